"""Models by name: `build("resnet18-gn", classes=10, input=(3, 32, 32), seed=0)`. Imports base.

The classifier is the last module of every model, so that `Layout.select("@head")` finds it.
"""

import difflib
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fednb.base.imports import imported, is_import_path
from fednb.base.inputs import shown
from fednb.base.streams import stream
from fednb.models.bottleneck import BOTTLENECKS
from fednb.models.densenet import DENSENETS
from fednb.models.lstm import LSTMS
from fednb.models.own import BadModel, OwnModel, own_model
from fednb.models.resnet import RESNETS
from fednb.models.small import SMALL, InputTooSmall, WrongInput
from fednb.models.text import TEXTS, NotTokens
from fednb.models.vit import VITS, NeedsTimm

__all__ = [
    "BadModel",
    "InputTooSmall",
    "NeedsTimm",
    "NotTokens",
    "OwnModel",
    "UnknownModel",
    "WrongInput",
    "add_model",
    "build",
    "names",
    "reads",
]

FOR_IMAGES: dict[str, Callable[..., nn.Module]] = {**SMALL, **BOTTLENECKS, **RESNETS, **DENSENETS, **VITS}
FOR_TEXT: dict[str, Callable[..., nn.Module]] = {**LSTMS, **TEXTS}
MODELS: dict[str, Callable[..., nn.Module]] = {**FOR_IMAGES, **FOR_TEXT}  # and a user's own
AXES = {"images": 3, "text": 2}
SHAPES = {"images": "(channels, height, width), such as (3, 32, 32)", "text": "(vocabulary, length), such as (80, 80)"}


class UnknownModel(ValueError):
    """A name that no model has."""


def names() -> list[str]:
    """The names `build` takes."""
    return list(MODELS)


def reads(name: str) -> str:
    """What a model reads: "images" or "text"."""
    return "text" if find(name) in FOR_TEXT else "images"


_one_at_a_time = threading.RLock()  # layers draw their weights from torch's one generator


def build(name: str, classes: int, input: tuple[int, ...], seed: int = 0) -> nn.Module:
    """A new model on the CPU, for images of shape `input` (channels, height, width) or text of (vocabulary, length).

    Images are real tensors [n, channels, height, width], text is an integer tensor [n, length]. The first weights are a
    function of the name and the seed alone; no global generator is read or moved.
    """
    name, input = find(name), tuple(input)
    if own_of(name) is None:
        check(name, classes, input)
    with _one_at_a_time, torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(int(stream(seed, "init", name).integers(2**63)))
        return MODELS[name](classes, input)


def check(name: str, classes: int, input: tuple[int, ...]) -> None:
    """Refuse an image's shape for a text model, a text's for an image model, and what no model can have."""
    own = reads(name)
    other, others = ("images", FOR_IMAGES) if own == "text" else ("text", FOR_TEXT)
    if len(input) == AXES[other]:
        raise WrongInput(
            f"{name!r} reads {own}, input {SHAPES[own]}; {input} is the shape of {other}. "
            f"Models for {other}: {', '.join(others)}."
        )
    if len(input) != AXES[own] or min(input) < 1 or classes < 1:
        raise WrongInput(
            f"{name}: classes={classes}, input={input}; wanted is classes from 1 and an input {SHAPES[own]}."
        )


def simplified(name: str) -> str:
    """A name as it is compared: lower case, without '-' and '_'."""
    return str(name).lower().replace("-", "").replace("_", "").strip()


def find(name: str) -> str:
    """The catalogue's spelling of a name; letter case, '-' and '_' do not matter.

    What an import path such as "my_package.nets:Net" stands for is entered under that path.
    """
    if is_import_path(name):
        return _by_import_path(name)
    known = {simplified(each): each for each in MODELS}
    key = simplified(name)
    if key in known:
        return known[key]
    near = [known[each] for each in difflib.get_close_matches(key[:100], known, cutoff=0.4)]
    raise UnknownModel(
        f"no model {shown(name)}; closest: {', '.join(near or MODELS)}. `fednb ls models` lists all {len(MODELS)}. "
        "Yours: what fn.add_model entered in this process, or an import path, such as my_package.nets:Net."
    )


NAME = re.compile(r"[A-Za-z0-9][\w.+ -]{0,59}")
OF_THE_CATALOGUE = frozenset(map(simplified, MODELS))


def add_model(name: str, build: Any, weights: Any = None, *, partly: bool = False) -> None:
    """Enter a model of your own under a name, for `fn.Setting(model=name)` in this process.

    build: a class or function that makes a torch.nn.Module and needs no argument but `classes`, how many there are, and
    `input`, the shape of a sample such as (3, 32, 32); or a module, and every run starts from the weights that it has.
    The model answers `[n, classes]`. Its first weights are drawn by the run's seed. Parameters that require no gradient
    stay as they are.
    weights: the weights to start from instead, as a state_dict, or as a file that has one, written by safetensors or
    torch.save. They must fit exactly; partly=True leaves out those whose name or shape does not.

    A run's key has the code, the layers and the weights to start from. A name can be used again: another model replaces
    the former, which is said. Models with BatchNorm or Dropout, whose clients cannot be stacked, run on the engines
    `loop` and `pool`.

    >>> def net(classes, input):
    ...     return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))
    >>> fn.add_model("linear", net)
    >>> setting = fn.Setting(model="linear", samples=100, clients=4, rounds=1, epochs=1)
    >>> fn.run(setting, "FedAvg", progress=False).w.numel()
    650
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadModel(f"model {shown(name)}: must be a name of letters, digits, '-' and '_'")
    if simplified(name) in OF_THE_CATALOGUE:
        raise BadModel(f"model {name!r} is a model of the catalogue (`fednb ls models`); take another name")
    made = own_model(name, build, weights, partly)
    if made.weights is not None:  # names find their places in any order, and files have another than dictionaries
        made = replace(made, weights=dict(sorted(made.weights.items())))
    former = next((each for each in MODELS if simplified(each) == simplified(name)), name)
    known = MODELS.get(former)
    if isinstance(known, OwnModel) and former == name and known.does_the_same_as(made):
        return
    if MODELS.pop(former, None) is not None:
        print(f"fednb: model {former!r} is replaced by another", file=sys.stderr)
    MODELS[name] = made


def own_of(name: str) -> OwnModel | None:
    """The user's own model of that name; None for a model of the catalogue."""
    found = MODELS[name]
    return found if isinstance(found, OwnModel) else None


def _by_import_path(path: str) -> str:
    """The name of the model that an import path stands for: the path itself."""
    known = MODELS.get(path)
    if isinstance(known, OwnModel) and known.origin is None:  # sent by another process
        return path
    found = imported(path)
    if not isinstance(known, OwnModel) or known.origin is not found:
        MODELS[path] = own_model(path, found, None, False)
    return path
