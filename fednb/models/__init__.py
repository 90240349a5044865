"""Models by name: `build("resnet18-gn", classes=10, input=(3, 32, 32), seed=0)`. Imports base.

The classifier is the last module of every model, so that `Layout.select("@head")` finds it.
"""

import difflib
import threading
from collections.abc import Callable

import torch
from torch import nn

from fednb.base.inputs import shown
from fednb.base.streams import stream
from fednb.models.bottleneck import BOTTLENECKS
from fednb.models.densenet import DENSENETS
from fednb.models.lstm import LSTMS
from fednb.models.resnet import RESNETS
from fednb.models.small import SMALL, InputTooSmall, WrongInput
from fednb.models.text import TEXTS, NotTokens
from fednb.models.vit import VITS, NeedsTimm

__all__ = ["InputTooSmall", "NeedsTimm", "NotTokens", "UnknownModel", "WrongInput", "build", "names", "reads"]

FOR_IMAGES: dict[str, Callable[..., nn.Module]] = {**SMALL, **BOTTLENECKS, **RESNETS, **DENSENETS, **VITS}
FOR_TEXT: dict[str, Callable[..., nn.Module]] = {**LSTMS, **TEXTS}
MODELS = {**FOR_IMAGES, **FOR_TEXT}
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


def find(name: str) -> str:
    """The catalogue's spelling of a name; letter case, '-' and '_' do not matter."""
    known = {each.replace("-", ""): each for each in MODELS}
    key = str(name).lower().replace("-", "").replace("_", "").strip()
    if key in known:
        return known[key]
    near = [known[each] for each in difflib.get_close_matches(key[:100], known, cutoff=0.4)]
    raise UnknownModel(
        f"no model {shown(name)}; closest: {', '.join(near or MODELS)}. `fednb ls models` lists all {len(MODELS)}."
    )
