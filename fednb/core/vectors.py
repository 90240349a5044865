"""Vectors along the last axis, and the layout that knows the layers inside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from math import prod

import torch
from torch import Tensor, nn

TINY = 1e-7  # FL-Simulator's epsilon: the perturbation is rho * g / (|g| + 1e-7)
TOGETHER = 65_536  # numbers: layers up to this size are filtered in company; longer ones would be copied for no gain


def norm(x: Tensor) -> Tensor:
    """‖x‖, per client, kept as a last axis of one."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def unit(x: Tensor, epsilon: float = TINY) -> Tensor:
    """x / (‖x‖ + epsilon), per client: x / ‖x‖ but for an epsilon that released code adds; zero where x is zero."""
    return x / (norm(x) + epsilon)


def direction(x: Tensor) -> Tensor:
    """x / ‖x‖ without any epsilon, per client; zero where x is zero."""
    length = norm(x)
    return x / torch.where(length == 0, 1.0, length)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """⟨x, y⟩, per client."""
    return (x * y).sum(-1, keepdim=True)


def cos(x: Tensor, y: Tensor) -> Tensor:
    """The cosine of the angle between x and y, per client; zero where either is zero."""
    return dot(direction(x), direction(y))


def clip(v: Tensor, most: float | Tensor | None) -> Tensor:
    """v scaled down to norm `most` where it is longer (PyTorch's global-norm clipping, epsilon 1e-6)."""
    return v if most is None else v * (most / (norm(v) + 1e-6)).clamp_max(1.0)


def chosen(name: str, where: str) -> bool:
    """Whether a layer's name fits `where`: patterns between commas, `!` in front takes layers away.

    >>> chosen("fc.weight", "fc.*"), chosen("fc.weight", "!fc.*"), chosen("conv1.weight", "!fc.*")
    (True, False, True)
    """
    patterns = [p.strip() for p in where.split(",")]
    take = [p for p in patterns if not p.startswith("!")] or ["*"]
    leave = [p[1:] for p in patterns if p.startswith("!")]
    return any(fnmatchcase(name, p) for p in take) and not any(fnmatchcase(name, p) for p in leave)


def _filtered(filter: Callable[..., Tensor], layers: list[Tensor], shape: tuple[int, ...]) -> Sequence[Tensor]:
    """Layers `[..., n]` of one shape, filtered in one call."""
    if len(layers) == 1:
        return [filter(layers[0], shape)]
    return filter(torch.stack(layers, dim=-2), shape).unbind(-2)


@dataclass(frozen=True)
class Layout:
    """Where each layer (parameter tensor) lies inside a model's flat vector, in the order of the module."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Layout:
        return cls(tuple(tensors), tuple(tuple(x.shape) for x in tensors.values()))

    @classmethod
    def of_parameters(cls, model: nn.Module) -> Layout:
        return cls.of(dict(model.named_parameters()))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(prod(shape) for shape in self.shapes)

    @property
    def total(self) -> int:
        """P, the number of parameters."""
        return sum(self.sizes)

    def top(self, layers: int) -> int:
        """The number of parameters in the last so many layers, or in all where there are no more."""
        return sum(self.sizes[-layers:])

    def __len__(self) -> int:
        """L, the number of layers."""
        return len(self.names)

    def layers(self, x: Tensor) -> dict[str, Tensor]:
        """The flat layers `[..., n]` of a vector `[..., P]`, by name (views)."""
        return dict(zip(self.names, x.split(self.sizes, dim=-1), strict=True))

    def tensors(self, x: Tensor) -> dict[str, Tensor]:
        """The layers of one vector `[P]` in their own shapes, by name (views)."""
        return {
            name: piece.reshape(shape) for (name, piece), shape in zip(self.layers(x).items(), self.shapes, strict=True)
        }

    def flat(self, tensors: dict[str, Tensor]) -> Tensor:
        """One vector `[P]` from tensors by name: the inverse of `tensors`."""
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.names])

    def select(self, where: str) -> tuple[bool, ...]:
        """For each layer, whether its name fits `where` (see `chosen`). "@head": the last module, "@body": the rest."""
        if where in ("@head", "@body"):
            last = self.names[-1].rpartition(".")[0]
            return tuple((name.rpartition(".")[0] == last) == (where == "@head") for name in self.names)
        picked = tuple(chosen(name, where) for name in self.names)
        if not any(picked):
            raise NoSuchLayer(f"no layer fits where={where!r}; the layers are {', '.join(self.names)}")
        return picked

    def map(self, filter: Callable[..., Tensor], x: Tensor) -> Tensor:
        """Apply a filter layer by layer (or, if it says `whole`, to all chosen layers at once, told their shapes).

        Small layers of one shape go through it together; those of a size that it calls `idle` do not go at all. What a
        filter does to all layers `at_once` comes before that.
        """
        picked = [i for i, yes in enumerate(self.select(getattr(filter, "where", "*"))) if yes]
        if (at_once := getattr(filter, "at_once", None)) and (done := at_once(x, self.sizes, picked)) is not None:
            return done
        pieces = list(x.split(self.sizes, dim=-1))
        if getattr(filter, "whole", False):
            done = filter(torch.cat([pieces[i] for i in picked], dim=-1), tuple(self.shapes[i] for i in picked))
            new = dict(zip(picked, done.split([self.sizes[i] for i in picked], dim=-1), strict=True))
        else:
            new = {}
            for at in self._alike(picked, getattr(filter, "idle", lambda n: False)):
                new |= zip(at, _filtered(filter, [pieces[i] for i in at], self.shapes[at[0]]), strict=True)
        return torch.cat([new.get(i, piece) for i, piece in enumerate(pieces)], dim=-1)

    def _alike(self, picked: Sequence[int], idle: Callable[[int], bool]) -> list[list[int]]:
        """The layers that a filter has to see, those of one shape in one list where they are small."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for i in picked:
            if not idle(self.sizes[i]):
                alone = () if self.sizes[i] <= TOGETHER else (-1, i)
                groups.setdefault((*self.shapes[i], *alone), []).append(i)
        return list(groups.values())

    def spread(self, per_layer: Tensor) -> Tensor:
        """One number per layer `[..., L]`, repeated over its parameters: `[..., P]`."""
        return per_layer[..., _layer_of(self.sizes, per_layer.device)]


@lru_cache(maxsize=16)
def _layer_of(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """The number of each parameter's layer, `[P]`; kept on the device, so that nobody waits for a copy."""
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).to(device)


class NoSuchLayer(ValueError):
    """A `where` that fits no layer of the model."""
