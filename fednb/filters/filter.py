"""The base class of filters: maps from a layer's flat vector to a vector, along the last axis, batched over clients.

Every filter is called as `filter(x, shape)`: `x` is `[..., n]`, `shape` the layer's own shape where the filter needs
it (kernels, flattening orders). `where` chooses layers by name: "fc.*", "!fc.*", "conv1.weight, layer4.*".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from torch import Tensor

from fednb.base.checks import check_fields
from fednb.base.streams import joint_seed

Shape = tuple[int, ...] | None


class HasSeed(Protocol):
    """A server, or whatever else knows the seed of a run."""

    @property
    def seed(self) -> int: ...


@dataclass(frozen=True)
class Filter:
    """What all filters share: which layers they touch. `whole` filters see all chosen layers as one vector.

    >>> class Half(fn.filters.Filter):
    ...     def __call__(self, x, shape=None):
    ...         return x / 2
    ...
    >>> Half(where="fc.*")(torch.ones(2))
    tensor([0.5000, 0.5000])
    """

    where: str = field(default="*", kw_only=True)
    whole = False
    flat = True  # looks at the flat vector alone, not at the layer's shape

    def __post_init__(self) -> None:
        check_fields(self, ValueError)

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        raise NotImplementedError

    def of_run(self, seed: int) -> Filter:
        """The filter of a run with this seed: whatever it, or a filter inside it, draws depends on both seeds."""
        known = {f.name for f in fields(self)}
        new: dict[str, Any] = {}
        if "filter" in known:
            new["filter"] = self.filter.of_run(seed)  # type: ignore[attr-defined]
        if "seed" in known:
            new["seed"] = joint_seed(seed, self.seed)  # type: ignore[attr-defined]
        return replace(self, **new) if new else self

    @property
    def draws(self) -> bool:
        """True if it, or a filter inside it, draws something by a seed."""
        known = {f.name for f in fields(self)}
        return "seed" in known or ("filter" in known and self.filter.draws)  # type: ignore[attr-defined]

    def in_run(self, s: HasSeed) -> Filter:
        """The filter of the run of this server, which is asked for its seed only if the filter draws."""
        return self.of_run(s.seed) if self.draws else self

    def idle(self, n: int) -> bool:
        """True if a layer of n numbers passes unchanged."""
        return False

    def at_once(self, x: Tensor, sizes: tuple[int, ...], picked: Sequence[int]) -> Tensor | None:
        """Filter the picked layers of x `[..., P]`, layers of these sizes, in one operation; None if there is none."""
        return None

    @property
    def short(self) -> str:
        """A name for tables: the class and the value of its first field."""
        first = next((v for k, v in vars(self).items() if k != "where"), "")
        return f"{type(self).__name__}({first})"
