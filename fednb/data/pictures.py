"""Data sets of pictures without natural clients: digits, torchvision's, Tiny ImageNet, BloodMNIST."""

from __future__ import annotations

import gzip
import importlib.util
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednb.base.progress import bar_of
from fednb.data.dataset import Damaged, Samples, Source, images, stratified, whole
from fednb.data.files import arrays_of, download, fetched, kept, marks, md5, unzipped


@dataclass(frozen=True)
class Digits:
    """scikit-learn's 1797 handwritten digits (8x8, values 0 to 16), one fifth of every class kept for testing."""

    def where(self, folder: Path) -> str:
        return "scikit-learn"

    def note(self, folder: Path) -> str:
        return ""

    def read(self, source: Source, folder: Path) -> Samples:
        values, labels = _digits()
        x, y = torch.from_numpy(values.astype(np.uint8)).view(-1, 1, 8, 8), whole(labels)
        train, test = (torch.from_numpy(part) for part in stratified(labels, share=0.2))
        return Samples(x[train], y[train], x[test], y[test])


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels `[1797, 64]` and labels, from scikit-learn's file: importing all of it takes longer than a run."""
    found = importlib.util.find_spec("sklearn")
    places = (found.submodule_search_locations if found else None) or []
    files = [file for place in places if (file := Path(place, "datasets", "data", "digits.csv.gz")).is_file()]
    if not files:
        from sklearn.datasets import load_digits

        return load_digits(return_X_y=True)
    with gzip.open(files[0], "rt") as text:
        rows = np.loadtxt(text, delimiter=",", dtype=np.int64)
    return rows[:, :-1], rows[:, -1]


@dataclass(frozen=True)
class Torchvision:
    """A data set that torchvision downloads."""

    reader: str
    folder: str
    files: tuple[str, ...]

    def where(self, folder: Path) -> str:
        return "" if self.missing(folder) else str(folder / self.folder)

    def note(self, folder: Path) -> str:
        return ""

    def missing(self, folder: Path) -> list[str]:
        """The files that are not in the folder."""
        return [file for file in self.files if not (folder / self.folder / file).is_file()]

    def read(self, source: Source, folder: Path) -> Samples:
        if self.missing(folder):
            from fednb.base.compat import torchvision

            reader = getattr(torchvision.datasets, self.reader)
            with bars_of(torchvision.datasets.utils, source.name):
                download(source.name, folder, self.folder, self.files, partial(reader, download=True))
        return self.present(folder)

    def present(self, folder: Path) -> Samples:
        """The samples of files that are all there. torchvision's own reader is not asked: importing it takes longer."""
        raise NotImplementedError


@dataclass(frozen=True)
class Idx(Torchvision):
    """Training images and labels, then those for testing, in MNIST's format."""

    def present(self, folder: Path) -> Samples:
        x, y, x_test, y_test = (_idx(folder / self.folder / file) for file in self.files)
        return Samples(images(x), whole(y), images(x_test), whole(y_test))


@dataclass(frozen=True)
class Cifar(Torchvision):
    """Pickled images and labels, those for testing in the last file but one; the last has the names of the classes.

    sums: md5 sums of the files with samples. labels: the name of labels inside.
    """

    sums: tuple[str, ...]
    labels: str = "labels"

    def present(self, folder: Path) -> Samples:
        named = zip(self.files, self.sums, strict=False)  # the last file has no samples
        parts = [self._part(folder / self.folder / file, sum) for file, sum in named]
        x, y = zip(*parts, strict=True)
        return Samples(torch.cat(x[:-1]), torch.cat(y[:-1]), x[-1], y[-1])

    def _part(self, file: Path, sum: str) -> tuple[Tensor, Tensor]:
        """Images uint8 [n, 3, 32, 32] and labels of one file, which is read only if it is the published one."""
        if (seen := md5(file)) != sum:
            raise Damaged(f"{file.name} has the md5 sum {seen}, expected {sum}")
        with open(file, "rb") as opened:
            found = pickle.load(opened, encoding="latin1")
        return torch.from_numpy(found["data"].reshape(-1, 3, 32, 32)), whole(np.asarray(found[self.labels]))


def _idx(file: Path) -> np.ndarray:
    """The bytes of an IDX file in their shape: two zeros, 8 for bytes, the count of sides, the sides, the values."""
    data = bytearray(file.read_bytes())
    sides = data[3] if data[:3] == b"\0\0\x08" and len(data) > 3 else 0
    start = 4 + 4 * sides
    shape = tuple(int.from_bytes(data[at : at + 4]) for at in range(4, start, 4))
    if not sides or len(data) != start + prod(shape):
        raise Damaged(f"{file.name} is not an IDX file of bytes, or is cut short")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


@contextmanager
def bars_of(utils: Any, name: str) -> Iterator[None]:
    """torchvision's downloads with our bar instead of its own, which writes hundreds of lines into a file."""
    before = utils.tqdm
    utils.tqdm = lambda total=None, **_: bar_of(total, f"downloading {name}", unit="B")
    try:
        yield
    finally:
        utils.tqdm = before


@dataclass(frozen=True)
class TinyImageNet:
    """The folder of the Stanford course's zip file: 200 classes of 500 JPEGs of 64x64; its validation set is our test.

    Decoded once; the images and labels of each split are kept beside it in one file.
    """

    folder: str = "tiny-imagenet-200"
    url: str = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
    sum: str = "90528d7ca1a48142e341f4ef8d21d0de"

    def where(self, folder: Path) -> str:
        place = folder / self.folder
        return str(place) if (place / "wnids.txt").is_file() and (place / "train").is_dir() else ""

    def note(self, folder: Path) -> str:
        return ""

    def read(self, source: Source, folder: Path) -> Samples:
        if not self.where(folder):
            download(source.name, folder, ".", [self.folder], partial(unzipped, self.url, self.sum))
        place = folder / self.folder
        number = {word: i for i, word in enumerate(sorted((place / "wnids.txt").read_text().split()))}
        if len(number) != source.classes:
            raise Damaged(f"wnids.txt names {len(number)} classes, expected {source.classes}")
        lists = {"train": trained_on(place, number), "test": validated_on(place, number)}
        (x, y), (x_test, y_test) = (decoded(place, split, files, source.shape) for split, files in lists.items())
        return Samples(images(x), whole(y), images(x_test), whole(y_test))


def trained_on(place: Path, number: dict[str, int]) -> list[tuple[str, int]]:
    """The training files with their classes, in the order of their names."""
    return [
        (f"train/{word}/images/{file}", each)
        for word, each in number.items()
        if (place / "train" / word / "images").is_dir()
        for file in sorted(os.listdir(place / "train" / word / "images"))
        if file.endswith(".JPEG")
    ]


def validated_on(place: Path, number: dict[str, int]) -> list[tuple[str, int]]:
    """The validation files with their classes."""
    file = place / "val" / "val_annotations.txt"
    if not file.is_file():
        raise Damaged(f"{file} is absent")
    rows = sorted(line.split("\t")[:2] for line in file.read_text().splitlines() if line)
    if unknown := [word for _, word in rows if word not in number]:
        raise Damaged(f"{file} names the class {unknown[0]!r}, which wnids.txt does not")
    return [(f"val/images/{name}", number[word]) for name, word in rows]


def decoded(place: Path, split: str, files: list[tuple[str, int]], shape: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [n, h, w, c] and labels of one split, kept in fednb-SPLIT.npz."""

    def make() -> dict[str, np.ndarray]:
        x = np.empty((len(files), *shape[1:], 3), dtype=np.uint8)
        with bar_of(len(files), f"decoding {split}", unit="image") as bar:
            for i, (file, _) in enumerate(files):
                x[i] = pixels(place / file, shape)
                bar.update()
        return {"x": x, "y": np.array([each for _, each in files], dtype=np.int64)}

    if not files:
        raise Damaged(f"no {split} images")
    arrays = kept(place / f"fednb-{split}.npz", marks("decoded 1", files), make)
    return arrays["x"], arrays["y"]


def pixels(file: Path, shape: tuple[int, ...]) -> np.ndarray:
    """One image file as RGB."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            seen = np.asarray(image.convert("RGB"))
    except OSError as error:
        raise Damaged(f"{file}: {error}") from error
    if seen.shape[:2] != tuple(shape[1:]):
        raise Damaged(f"{file} has {seen.shape[:2]} pixels, expected {tuple(shape[1:])}")
    return seen


@dataclass(frozen=True)
class Blood:
    """MedMNIST's BloodMNIST (28x28), its validation images left out; or a subset of it in one file.

    The subset has `images`, `labels` and `split` ("train" or "test").
    """

    file: str = "bloodmnist.npz"
    subset: str = "bloodmnist_subset.npz"
    url: str = "https://zenodo.org/records/10519652/files/bloodmnist.npz?download=1"
    sum: str = "7053d0359d879ad8a5505303e11de1dc"

    def where(self, folder: Path) -> str:
        here = [folder / name for name in (self.file, self.subset) if (folder / name).is_file()]
        return str(here[0]) if here else ""

    def note(self, folder: Path) -> str:
        if not self.where(folder).endswith(self.subset):
            return ""
        try:
            return f"subset: {len(arrays_of(folder / self.subset, 'labels')[0])} of 17092 images"
        except Damaged as error:
            return f"damaged: {error}"

    def read(self, source: Source, folder: Path) -> Samples:
        if not self.where(folder):
            fetch = partial(fetched, self.url, self.sum)
            download(source.name, folder, ".", [self.file], lambda part: fetch(part / self.file))
        place = Path(self.where(folder))
        if place.name == self.subset:
            return self.part(place, self.note(folder))
        if (seen := md5(place)) != self.sum:
            raise Damaged(f"{place.name} has the md5 sum {seen}, expected {self.sum}")
        x, y, x_test, y_test = arrays_of(place, "train_images", "train_labels", "test_images", "test_labels")
        return Samples(images(x), whole(y), images(x_test), whole(y_test))

    def part(self, place: Path, note: str) -> Samples:
        values, labels, split = arrays_of(place, "images", "labels", "split")
        x, y = images(values), whole(labels)
        if not len(x) == len(y) == len(split):
            raise Damaged(f"{place.name}: {len(x)} images, {len(y)} labels, {len(split)} splits")
        train, test = (torch.from_numpy(split == s) for s in ("train", "test"))
        return Samples(x[train], y[train], x[test], y[test], note=note)
