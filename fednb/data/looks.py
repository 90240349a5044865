"""Four looks of the same shapes, after the manner of Office-Home's domains: for stand-ins where it is not at hand."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fednb.base.streams import stream
from fednb.data.dataset import Reader, Samples, Source, stratified, whole

Look = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def painted(shapes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Art: light colours on dark ones, another pair each time, under brush strokes of another direction."""
    n, h, w = shapes.shape
    dark, light = rng.uniform(0.0, 0.4, size=(n, 3, 1, 1)), rng.uniform(0.6, 1.0, size=(n, 3, 1, 1))
    angle, phase = rng.uniform(0, 2 * np.pi, size=(2, n, 1, 1))
    across = np.cos(angle) * np.arange(w) + np.sin(angle) * np.arange(h)[:, None]
    strokes = 1 + 0.25 * np.sin(2 * across + phase)
    return (dark + (light - dark) * shapes[:, None]) * strokes[:, None]


def flat(shapes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Clipart: one full colour in three steps on white."""
    colour = np.eye(3)[rng.integers(3, size=len(shapes))][:, :, None, None]
    return 1 - (1 - colour) * np.round(2 * shapes[:, None]) / 2


def on_white(shapes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Product: dark on white, without colour."""
    return np.repeat(1 - rng.uniform(0.7, 1.0, size=(len(shapes), 1, 1, 1)) * shapes[:, None], 3, axis=1)


def cluttered(shapes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Real World: light on a lit and uneven ground, with little contrast and with noise."""
    n, h, w = shapes.shape
    coarse = rng.uniform(0.0, 0.4, size=(n, 3, 3, 3))
    rows, columns = (np.arange(size) * 3 // size for size in (h, w))
    ground = coarse[:, :, rows][:, :, :, columns]
    return ground + 0.6 * shapes[:, None] + 0.08 * rng.standard_normal((n, 3, h, w))


LOOKS: dict[str, Look] = {"Art": painted, "Clipart": flat, "Product": on_white, "Real World": cluttered}


def seen(shapes: np.ndarray, domain: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
    """Shapes [n, h, w] in [0, 1], each in the look of its domain: uint8 [n, 3, h, w]."""
    x = np.empty((len(shapes), 3, *shapes.shape[1:]))
    for number, look in enumerate(LOOKS.values()):
        x[domain == number] = look(shapes[domain == number], rng)
    return torch.from_numpy(np.rint(255 * np.clip(x, 0, 1)).astype(np.uint8))


@dataclass(frozen=True)
class InLooks:
    """Grey images of another data set in four looks, each image in one of them; the catalogue says how many.

    The images are drawn evenly from the classes of its training set, a fifth of them for testing, as in Office-Home.
    """

    of: Reader

    def where(self, folder: Path) -> str:
        return self.of.where(folder)

    def note(self, folder: Path) -> str:
        return "made: images of another set in four looks"

    def read(self, source: Source, folder: Path) -> Samples:
        found = self.of.read(source, folder)
        rng, n = stream(0, "made", source.name), source.train + source.test
        some = stratified(found.y.numpy(), n / len(found.y))[1][:n]
        y, shapes = found.y.numpy()[some], found.x.numpy()[some][:, 0] / 255
        return dealt(shapes, y, dealt_out(rng, y), rng, self.note(folder))


def dealt_out(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    """A domain for each sample, each class in all of them evenly."""
    domain = np.empty_like(y)
    for c in np.unique(y):
        mine = rng.permutation(np.flatnonzero(y == c))
        domain[mine] = np.arange(len(mine)) % len(LOOKS)
    return domain


def dealt(shapes: np.ndarray, y: np.ndarray, domain: np.ndarray, rng: np.random.Generator, note: str = "") -> Samples:
    """Shapes in the looks of their domains, a fifth of every class in every domain for testing."""
    x, owner = seen(shapes, domain, rng), whole(domain)
    train, test = (torch.from_numpy(part) for part in stratified(domain * (y.max() + 1) + y, 0.2))
    return Samples(x[train], whole(y)[train], x[test], whole(y)[test], owner[train], owner[test], note=note)
