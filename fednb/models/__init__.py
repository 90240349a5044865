"""Models by name: `build("resnet18-gn", classes=10, input=(3, 32, 32), seed=0)`."""

import difflib
from collections.abc import Callable

import torch
from torch import nn

from fednb.models.bottleneck import BOTTLENECKS
from fednb.models.resnet import RESNETS
from fednb.models.small import SMALL, InputTooSmall
from fednb.streams import stream

__all__ = ["InputTooSmall", "UnknownModel", "build", "names"]

MODELS: dict[str, Callable[[int, tuple[int, int, int]], nn.Module]] = {**SMALL, **BOTTLENECKS, **RESNETS}


class UnknownModel(ValueError):
    """A name that no model has."""


def names() -> list[str]:
    """The names `build` takes."""
    return list(MODELS)


def build(name: str, classes: int, input: tuple[int, int, int], seed: int = 0) -> nn.Module:
    """A new model for images of shape `input` (channels, height, width), on the CPU.

    The first weights are a function of the name and the seed alone; no global generator is read or moved.
    """
    name, input = find(name), tuple(input)
    if len(input) != 3 or min(input) < 1 or classes < 1:
        raise ValueError(
            f"{name}: classes={classes}, input={input}; wanted is classes from 1 and an input "
            "(channels, height, width), such as (3, 32, 32)."
        )
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(int(stream(seed, "init", name).integers(2**63)))
        return MODELS[name](classes, input)


def find(name: str) -> str:
    """The catalogue's spelling of a name; letter case, '-' and '_' do not matter."""
    known = {each.replace("-", ""): each for each in MODELS}
    key = str(name).lower().replace("-", "").replace("_", "").strip()
    if key in known:
        return known[key]
    near = [known[each] for each in difflib.get_close_matches(key, known, cutoff=0.4)]
    raise UnknownModel(
        f"no model {name!r}; closest: {', '.join(near or MODELS)}. `fednb ls models` lists all {len(MODELS)}."
    )
