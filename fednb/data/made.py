"""Stand-ins for data sets that cannot be shipped: made by a fixed seed, small, and learnable by a small model.

They have the shapes and types of the real ones where that is cheap, and say so where not. They are for tests and for
the smoke scale; nothing about a paper can be read off them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fednb.base.streams import stream
from fednb.data import looks
from fednb.data.dataset import Samples, Source, images, whole
from fednb.data.text import UNKNOWN, windows

AUTHORS = 20  # natural clients of the sets that have them
ANYTHING = 0.05  # of an author's samples are of any class, so that none is quite excluded
SPOKEN = "the king and queen"  # few words: a small LSTM learns them in some tens of steps


@dataclass(frozen=True)
class Made:
    """Data that a function makes from the catalogue's line."""

    make: Callable[[Source], Samples]

    def where(self, folder: Path) -> str:
        return "made"

    def note(self, folder: Path) -> str:
        return "made: a stand-in for the real set"

    def read(self, source: Source, folder: Path) -> Samples:
        return replace(self.make(source), note=self.note(folder))


def drawings(source: Source) -> Samples:
    """Pictures by author: a rough pattern per class in dark ink on white, slanted and inked in each author's manner.

    Authors differ in how much they write and in which classes they write most.
    """
    rng = stream(0, "made", source.name)
    n, (_, h, w) = source.train + source.test, source.shape
    owner = np.sort(np.concatenate([np.arange(AUTHORS).repeat(2), rng.integers(AUTHORS, size=n - 2 * AUTHORS)]))
    taste = rng.dirichlet(np.full(source.classes, 0.3), size=AUTHORS) + ANYTHING / source.classes
    y = np.array([rng.choice(source.classes, p=taste[each] / taste[each].sum()) for each in owner])
    ink = patterns(rng, source.classes, (1, h, w))[y] > 0.5
    slant, weight = rng.integers(-1, 2, size=AUTHORS), rng.uniform(0.6, 1.0, size=AUTHORS)
    shift = slant[owner][:, None] * np.round(np.linspace(1, -1, h)).astype(int)
    columns = (np.arange(w) + shift[:, :, None]) % w
    drawn = np.take_along_axis(ink[:, 0], columns, axis=2) * weight[owner][:, None, None]
    x = np.clip(1 - drawn + 0.1 * rng.standard_normal(drawn.shape), 0, 1)
    return shared_out(images(np.rint(255 * x).astype(np.uint8)), y, owner, source, rng)


def pictures(source: Source) -> Samples:
    """Pictures in colour: a faint pattern per class, moved by up to a pixel, lit differently each time, with noise."""
    rng = stream(0, "made", source.name)
    n = source.train + source.test
    y = rng.permutation(n) % source.classes
    seen = patterns(rng, source.classes, source.shape)
    x = 0.3 + 0.4 * (seen + seen[..., ::-1] if source.flip else 2 * seen)[y] / 2  # a mirror image keeps its class
    for i, (dy, dx) in enumerate(rng.integers(-1, 2, size=(n, 2))):
        x[i] = np.roll(x[i], (dy, dx), axis=(1, 2))
    light = rng.uniform(0.8, 1.2, size=(n, 1, 1, 1))
    x = np.clip(light * x + 0.15 * rng.standard_normal(x.shape), 0, 1)
    return shared_out(torch.from_numpy(np.rint(255 * x).astype(np.uint8)), y, None, source, rng)


def domains(source: Source) -> Samples:
    """Pictures in four domains: a pattern per class, the same in all of them, in each in another look."""
    rng = stream(0, "made", source.name)
    n, (_, h, w) = source.train + source.test, source.shape
    y = np.arange(n) % source.classes
    shape = patterns(rng, source.classes, (1, h, w))[:, 0]
    shape = (shape + shape[..., ::-1]) / 2  # a mirror image keeps its class
    least, most = (f(shape, axis=(1, 2), keepdims=True) for f in (np.min, np.max))
    shapes = ((shape - least) / (most - least))[y]
    for i, (dy, dx) in enumerate(rng.integers(-1, 2, size=(n, 2))):
        shapes[i] = np.roll(shapes[i], (dy, dx), axis=(0, 1))
    return looks.dealt(shapes, y, looks.dealt_out(rng, y), rng)


def patterns(rng: np.random.Generator, classes: int, shape: tuple[int, ...]) -> np.ndarray:
    """One pattern per class in [0, 1]: 4x4 random numbers a channel, drawn large and smoothed."""
    c, h, w = shape
    coarse = rng.random((classes, c, 4, 4))
    rows, columns = (np.minimum(np.arange(size) * 4 // size, 3) for size in (h, w))
    large = coarse[:, :, rows][:, :, :, columns]
    return (large + np.roll(large, 1, 2) + np.roll(large, 1, 3) + np.roll(large, (1, 1), (2, 3))) / 4


def plays(source: Source) -> Samples:
    """Text by role: each role says a few of the words over and over, in its own order of liking."""
    rng, words = stream(0, "made", source.name), SPOKEN.split()
    length = source.shape[1]
    train, test = source.train // AUTHORS, source.test // AUTHORS
    parts: list[list[np.ndarray]] = [[], [], [], []]
    for _ in range(AUTHORS):
        likes = rng.dirichlet(np.full(len(words), 0.5))
        said = " ".join(rng.choice(words, size=train + test + 2 * length, p=likes))
        x, y = windows(said, length)
        cut = slice(train + length, train + length + test)  # no character of it was seen in training
        for held, values in zip(parts, (x[:train], y[:train], x[cut], y[cut]), strict=True):
            held.append(values)
    x, y, x_test, y_test = (np.concatenate(held) for held in parts)
    owner, owner_test = (whole(np.arange(AUTHORS).repeat(each)) for each in (train, test))
    tokens, tokens_test = torch.from_numpy(x), torch.from_numpy(x_test)
    return Samples(tokens, whole(y), tokens_test, whole(y_test), owner, owner_test, vocabulary=UNKNOWN + 1)


def questions(source: Source) -> Samples:
    """Texts of 8 to `length` tokens: three in ten are words of the topic, the others are common to all."""
    rng = stream(0, "made", source.name)
    vocabulary, length = source.shape
    n, own = source.train + source.test, 6
    common = vocabulary - 2 - own * source.classes  # tokens 2, 3, ... are common; the topics' own come after, in turn
    y = rng.permutation(n) % source.classes
    theirs = 2 + common + own * y[:, None] + rng.integers(own, size=(n, length))
    x = np.where(rng.random((n, length)) < 0.3, theirs, 2 + rng.integers(common, size=(n, length)))
    x[np.arange(length) >= rng.integers(8, length + 1, size=(n, 1))] = 0
    return shared_out(torch.from_numpy(x.astype(np.int32)), y, None, source, rng, vocabulary)


def shared_out(
    x: torch.Tensor, y: np.ndarray, owner: np.ndarray | None, source: Source, rng: np.random.Generator,
    vocabulary: int = 0,
) -> Samples:  # fmt: skip
    """Samples cut at random into training and test set."""
    order = torch.from_numpy(rng.permutation(len(y)))
    train, test = order[: source.train].sort()[0], order[source.train :].sort()[0]
    labels = whole(y)
    mine, mine_test = (None if owner is None else whole(owner)[part] for part in (train, test))
    return Samples(x[train], labels[train], x[test], labels[test], mine, mine_test, vocabulary)
