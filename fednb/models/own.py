"""A user's own model: how it is built, checked and identified, and the weights that it starts from."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fednb.base.codetext import Unreadable, describe, installed
from fednb.base.inputs import closest, one_line, shown

GIVEN = {"classes": "classes", "num_classes": "classes", "input": "input", "input_shape": "input"}  # to a builder
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_serial = count(1)


class BadModel(ValueError):
    """A model of a user that is not what it should be: which, and what was expected."""


@dataclass(frozen=True, eq=False)
class OwnModel:
    """A builder of models, called with the number of classes and the shape of a sample.

    make: a class, a function, or a module that is copied. weights: those it starts from, by name. partly: those that do
    not fit are left out. serial: a number that no other of this process has.
    """

    name: str
    make: Callable[..., nn.Module] | nn.Module
    weights: dict[str, Tensor] | None = None
    partly: bool = False
    serial: int = field(default_factory=lambda: next(_serial))
    known: dict[Any, Any] = field(default_factory=dict, repr=False)  # what was found out about it
    origin: Any = field(default=None, repr=False)  # what the user gave

    def __call__(self, classes: int, input: tuple[int, ...]) -> nn.Module:
        """A new model; BadModel where the builder needs something else, or makes something else."""
        made = deepcopy(self.make) if isinstance(self.make, nn.Module) else self._called(classes, input)
        if not isinstance(made, nn.Module):
            raise BadModel(f"model {self.name!r} makes {shown(made)}, expected a torch.nn.Module")
        _initialised(self.name, made, input)
        if self.weights is not None:
            _load(self.name, made, self.weights, self.partly)
        return made

    def _called(self, classes: int, input: tuple[int, ...]) -> Any:
        values = {"classes": classes, "input": input}
        given = {name: values[what] for name, what in _wanted(self.name, self.make).items()}
        try:
            return self.make(**given)
        except Exception as error:  # of a user's code
            told = ", ".join(f"{name}={value}" for name, value in given.items())
            why = f"{type(error).__name__}: {one_line(str(error))}"
            raise BadModel(f"model {self.name!r} cannot be built with {told or 'no arguments'}: {why}") from error

    def identity(self, classes: int, input: tuple[int, ...], text: bool) -> dict[str, Any]:
        """What a run's key has of the model: its code, its layers for these data, and the weights that it starts from.

        The model is built and tried once: BadModel where it does not answer with one number for each class.
        """
        at = classes, input, text
        if at not in self.known:
            self.known[at] = structure(self._tried(*at))
        return {"layers": self.known[at], **self.origins()}

    def origins(self) -> dict[str, Any]:
        """Where its layers and first weights come from, whatever the data: code, and a fingerprint of given weights."""
        if "weights" not in self.known:
            self.known["weights"] = digest(self.weights) if self.weights is not None else ""
        return {"code": self._code(), "weights": self.known["weights"], "partly": self.partly}

    def does_the_same_as(self, other: OwnModel) -> bool:
        """True if another model has the same code and starts from the same weights; False where that cannot be read."""
        try:
            return self.origins() == other.origins()
        except Unreadable:
            return False

    def _code(self) -> Any:
        if not isinstance(self.make, nn.Module):
            return [describe(self.make), library_source(self.make)]
        if "code" not in self.known:  # a copy that nobody else has, so that it stays what it is
            self.known["code"] = [describe(self.make), library_source(type(self.make))]
        return self.known["code"]

    def _tried(self, classes: int, input: tuple[int, ...], text: bool) -> nn.Module:
        """A model after it has answered two samples of zeros as it should."""
        with torch.random.fork_rng(devices=[]), torch.device("cpu"), torch.no_grad():
            torch.default_generator.manual_seed(0)
            made = self(classes, input).eval()
            x = torch.zeros((2, input[-1]), dtype=torch.int64) if text else torch.zeros((2, *input))
            try:
                out = made(x)
            except Exception as error:  # of a user's code
                why = f"{type(error).__name__}: {one_line(str(error))}"
                raise BadModel(f"model {self.name!r} fails on a batch {tuple(x.shape)}: {why}") from error
        answer = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        if answer != (2, classes):
            raise BadModel(
                f"model {self.name!r} answers {answer} to a batch {tuple(x.shape)}, expected (2, {classes}): "
                "one number for each class"
            )
        return made


def own_model(name: str, make: Any, weights: Any, partly: bool) -> OwnModel:
    """A user's model by name; BadModel where it is no model, or the weights are none."""
    origin = make
    if isinstance(make, nn.Module):
        make = deepcopy(make).cpu()
    elif not callable(make):
        raise BadModel(f"model {name!r} is {shown(make)}, expected a torch.nn.Module, or a function that makes one")
    else:
        _wanted(name, make)
    told = None if weights is None else _weights(name, weights)
    return OwnModel(name, make, told, bool(partly), origin=origin)


def _wanted(name: str, make: Any) -> dict[str, str]:
    """The arguments of a builder that are known here; BadModel where it needs others."""
    try:
        there = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # of C
        return {}
    wanted = {p.name: GIVEN[p.name] for p in there if p.name in GIVEN and p.kind is not p.POSITIONAL_ONLY}
    loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if lacking := [p.name for p in there if p.default is p.empty and p.kind not in loose and p.name not in wanted]:
        raise BadModel(
            f"model {name!r} needs {lacking[0]!r}, expected a builder that needs at most classes and input, such as "
            f"lambda classes, input: Net({lacking[0]}=..., classes=classes)"
        )
    return wanted


def _initialised(name: str, made: nn.Module, input: tuple[int, ...]) -> None:
    """Refuse a model without weights to train; give lazy layers their shapes by a batch of zeros."""
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in made.parameters()):
        with torch.no_grad():
            made.eval()(torch.zeros((2, *input)))
            made.train()
    if not any(p.requires_grad for p in made.parameters()):
        raise BadModel(f"model {name!r} has no weights to train, expected some parameters that require gradients")


# Weights


def _weights(name: str, given: Any) -> dict[str, Tensor]:
    """Weights by name, from a dictionary or from a file of safetensors or of torch.save."""
    if isinstance(given, str | Path):
        given = _from_file(name, Path(given).expanduser())
    if not isinstance(given, Mapping) or not all(isinstance(each, Tensor) for each in given.values()):
        raise BadModel(f"model {name!r}: weights are {shown(given)}, expected a state_dict, or a file with one")
    return {str(key): value.detach().cpu().clone() for key, value in given.items()}


def _from_file(name: str, path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, ValueError, EOFError) as error:
        raise BadModel(f"model {name!r}: weights in {path} cannot be read: {one_line(str(error), 200)}") from None
    except Exception as error:  # pickle's, for files that hold more than tensors
        why = one_line(str(error), 100)
        raise BadModel(f"model {name!r}: {path} holds no plain state_dict, expected torch.save of one: {why}") from None
    inner = found.get("state_dict") if isinstance(found, Mapping) else None
    return inner if isinstance(inner, Mapping) else found


def _load(name: str, made: nn.Module, weights: dict[str, Tensor], partly: bool) -> None:
    """Give a model its first weights; BadModel where they do not fit, unless those that do are enough."""
    own = made.state_dict()
    fitting = {key: x for key, x in weights.items() if key in own and own[key].shape == x.shape}
    if not partly and (strange := sorted(set(weights) - set(own))):
        near = closest(strange[0], own, next(iter(own)))
        raise BadModel(
            f"model {name!r}: weights have {strange[0]!r}, expected names of the model such as {near}; partly=True "
            "leaves out what does not fit"
        )
    if not partly and (wrong := [key for key in own if key not in fitting]):
        is_there = f"has shape {tuple(weights[wrong[0]].shape)}" if wrong[0] in weights else "is missing"
        raise BadModel(f"model {name!r}: weight {wrong[0]!r} {is_there}, expected {tuple(own[wrong[0]].shape)}; "
                       "partly=True leaves out what does not fit")  # fmt: skip
    if not fitting:
        raise BadModel(f"model {name!r}: none of {len(weights)} weights fits, expected names of the model such as "
                       f"{next(iter(own))!r}")  # fmt: skip
    made.load_state_dict(fitting, strict=False)


# Identity


def structure(made: nn.Module) -> str:
    """A fingerprint of a model's layers: what it prints, and names, shapes and kinds of its tensors."""
    tensors = [(key, tuple(x.shape), str(x.dtype)) for key, x in made.state_dict().items()]
    trained = [key for key, p in made.named_parameters() if p.requires_grad]
    return hashlib.sha256(f"{ADDRESS.sub('', repr(made))} {tensors} {trained}".encode()).hexdigest()[:32]


def digest(weights: dict[str, Tensor]) -> str:
    """A fingerprint of weights by name."""
    return hashlib.sha256(repr(describe(weights)).encode()).hexdigest()[:32]


def library_source(make: Any) -> str:
    """A fingerprint of the source of a builder that is installed, whose code a description has by its name alone."""
    make = getattr(make, "func", make)
    if not installed((getattr(make, "__module__", "") or "").partition(".")[0]):
        return ""
    try:
        return hashlib.sha256(inspect.getsource(make).encode()).hexdigest()[:32]
    except (OSError, TypeError):
        return ""
