"""What a data set is once it is loaded, what the catalogue says of it, and what can be wrong with it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fednb.base.streams import stream


class UnknownData(ValueError):
    """A name that no data set has."""


class DataNotFound(FileNotFoundError):
    """The files of a data set are absent or damaged, and could not be fetched."""


class Damaged(ValueError):
    """A file does not hold what it should."""


TENSORS = ("x", "y", "x_test", "y_test")  # what training and testing need of a data set on their device


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels of one data set, with what training needs to know about them.

    Images: x, x_test are uint8 [n, c, h, w]; `x / scale` lies in [0, 1]; `mean` and `std`, one number per channel,
    apply after that (a negative std inverts the image). `pad` is the zero-padding of the random crop (0: no crop),
    `flip` the mirror image. Text: x, x_test are token numbers [n, length], uint8 or int32, below `vocabulary`; nothing
    is scaled or augmented. Labels y, y_test are int64 [n].
    `owner` and `owner_test` are the natural client (writer, role) of each sample, int64 [n], where the data knows it.
    `note` says what a reader of results must know, such as "subset: 28 of about 3550 writers".
    """

    name: str
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: int = 0
    flip: bool = False
    vocabulary: int = 0  # tokens of a text; 0: images
    owner: Tensor | None = None
    owner_test: Tensor | None = None
    note: str = ""

    @property
    def input(self) -> tuple[int, ...]:
        """(channels, height, width) of one image, or (vocabulary, length) of one text."""
        return (self.vocabulary, self.x.shape[1]) if self.vocabulary else tuple(self.x.shape[1:])

    @cached_property
    def fingerprint(self) -> str:
        """The first half of a SHA-256 of all samples, labels and owners, with their shapes."""
        digest = hashlib.sha256()
        for name in (*TENSORS, "owner", "owner_test"):
            if (values := getattr(self, name)) is not None:
                array = np.ascontiguousarray(values.cpu().numpy())
                digest.update(f"{name} {array.dtype} {array.shape} ".encode())
                digest.update(array.data)
        return digest.hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class Samples:
    """What a reader found: the part of a data set that the catalogue does not know."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    owner: Tensor | None = None
    owner_test: Tensor | None = None
    vocabulary: int = 0
    classes: int = 0  # where the catalogue cannot know them
    note: str = ""


class Reader(Protocol):
    """Where the files of a data set lie, and how they are read."""

    def where(self, folder: Path) -> str:
        """The place of the data in a data folder; '' where it is not there."""
        ...

    def note(self, folder: Path) -> str:
        """What can be said without loading, such as "subset: 28 writers"; '' otherwise."""
        ...

    def read(self, source: Source, folder: Path) -> Samples:
        """All samples. Raises `Damaged` where a file is not what it should be, `DataNotFound` where none is there."""
        ...


@dataclass(frozen=True)
class Source:
    """One line of the catalogue: what a data set is, how FL-Simulator or its kin prepare it, who reads it."""

    name: str
    classes: int  # 0 where only the reader can know
    shape: tuple[int, ...]  # (channels, height, width), or (vocabulary, length) of a text: the largest vocabulary
    train: int
    test: int
    reader: Reader
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    scale: float = 255.0
    pad: int = 0
    flip: bool = False
    owners: str = ""  # what a natural client is: "writer" or "role"

    @property
    def text(self) -> bool:
        """True if samples are texts: lists of tokens."""
        return self.reader.data.vocabulary > 0 if isinstance(self.reader, Given) else len(self.shape) == 2


@dataclass(frozen=True)
class Given:
    """A reader of data that a user has handed over in memory.

    digest: a fingerprint of the samples, labels and owners and of how they are scaled and augmented: what a run's key
    has of them.
    """

    data: Dataset = field(compare=False, repr=False, metadata={"label": True})
    digest: str = ""

    def where(self, folder: Path) -> str:
        return "given"

    def note(self, folder: Path) -> str:
        return self.data.note

    def read(self, source: Source, folder: Path) -> Samples:
        d = self.data
        return Samples(d.x, d.y, d.x_test, d.y_test, d.owner, d.owner_test, d.vocabulary, d.classes, d.note)


def check(source: Source, found: Samples) -> None:
    """Refuse samples that are not what the catalogue promises."""
    classes = found.classes or source.classes
    for what, x, y in (("training", found.x, found.y), ("test", found.x_test, found.y_test)):
        if len(x) != len(y) or not len(y):
            raise Damaged(f"{len(x)} {what} samples with {len(y)} labels")
        shape = source.shape[1:] if source.text else source.shape
        if tuple(x.shape[1:]) != shape:
            raise Damaged(f"{what} samples of shape {tuple(x.shape[1:])}, expected {shape}")
        if not 0 <= int(y.min()) <= int(y.max()) < classes:
            raise Damaged(f"{what} labels {int(y.min())}..{int(y.max())}, expected 0..{classes - 1}")
        if source.text and not 0 <= int(x.min()) <= int(x.max()) < found.vocabulary <= source.shape[0]:
            raise Damaged(f"{what} tokens {int(x.min())}..{int(x.max())}, expected 0..{found.vocabulary - 1}")
    if not source.owners and (len(found.y) > source.train or len(found.y_test) > source.test):
        raise Damaged(f"{len(found.y)} + {len(found.y_test)} samples, expected {source.train} + {source.test}")
    for owner, y in ((found.owner, found.y), (found.owner_test, found.y_test)):
        if source.owners and (owner is None or len(owner) != len(y)):
            raise Damaged(f"not every sample has a {source.owners}")


def remark(source: Source, found: Samples) -> str:
    """The note of a data set: the reader's, or that some samples are absent."""
    if found.note or source.owners or (len(found.y), len(found.y_test)) == (source.train, source.test):
        return found.note
    return f"subset: {len(found.y)} of {source.train} training, {len(found.y_test)} of {source.test} test samples"


def stratified(labels: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices (rest, share) with `share` of every class in the second part; the same on every machine."""
    rng, picked = stream(0, "stratified", str(share)), []
    for each in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == each))
        picked.append(members[: round(share * len(members))])
    second = np.sort(np.concatenate(picked))
    return np.setdiff1d(np.arange(len(labels)), second), second


def images(values: np.ndarray) -> Tensor:
    """uint8 [n, h, w] or [n, h, w, c] as [n, c, h, w]."""
    if values.dtype != np.uint8 or values.ndim not in (3, 4):
        raise Damaged(f"images are {values.dtype} {values.shape}, expected uint8 [n, h, w] or [n, h, w, c]")
    last = values[:, None] if values.ndim == 3 else values.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(last))


def whole(values: np.ndarray) -> Tensor:
    """Labels or owners as int64 [n]."""
    return torch.from_numpy(np.asarray(values).reshape(len(values)).astype(np.int64))
