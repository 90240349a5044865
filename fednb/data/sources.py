"""The data sets by name: found on disk or downloaded, checked, and held once as tensors."""

import difflib
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fednb.streams import stream

TIMEOUT = 15.0  # seconds a download may stay silent before it counts as failed


class UnknownData(ValueError):
    """A name that no data set has."""


class DataNotFound(FileNotFoundError):
    """The files of a data set are absent or damaged, and could not be fetched."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels of one data set, with what training needs to know about them.

    x, x_test: uint8 [n, c, h, w]; y, y_test: int64 [n]. `x / scale` lies in [0, 1]; `mean` and `std`, one number per
    channel, apply after that. `pad` is the zero-padding of the random crop (0: no crop), `flip` the mirror image.
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

    @property
    def input(self) -> tuple[int, int, int]:
        """(channels, height, width) of one image."""
        return tuple(self.x.shape[1:])


@dataclass(frozen=True)
class Source:
    """One line of the catalogue: what a data set is, which files hold it, how FL-Simulator or its kin prepare it."""

    name: str
    classes: int
    shape: tuple[int, int, int]
    train: int
    test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 255.0
    pad: int = 0
    flip: bool = False
    reader: str = ""  # the class of torchvision.datasets; empty: scikit-learn ships the data
    folder: str = ""
    files: tuple[str, ...] = ()


IDX = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
CIFAR10_FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")

SOURCES = {
    source.name: source
    for source in (
        # mean and standard deviation of all pixels of our training split, after division by 16; no paper uses this set
        Source("digits", 10, (1, 8, 8), 1438, 359, mean=(0.3054,), std=(0.3760,), scale=16.0),
        # FedFSA's released code: 0.5 / 0.5, no augmentation (its appendix claims one)
        Source(
            "fashion-mnist",
            10,
            (1, 28, 28),
            60000,
            10000,
            mean=(0.5,),
            std=(0.5,),
            reader="FashionMNIST",
            folder="FashionMNIST/raw",
            files=IDX,
        ),
        # FL-Simulator, and FedLESAM, FedWMSAM, FedDyn and FedFSA with it: crop from padding 4, mirror
        Source(
            "cifar10",
            10,
            (3, 32, 32),
            50000,
            10000,
            mean=(0.491, 0.482, 0.447),
            std=(0.247, 0.243, 0.262),
            pad=4,
            flip=True,
            reader="CIFAR10",
            folder="cifar-10-batches-py",
            files=CIFAR10_FILES,
        ),
        Source(
            "cifar100",
            100,
            (3, 32, 32),
            50000,
            10000,
            mean=(0.5071, 0.4867, 0.4408),
            std=(0.2675, 0.2565, 0.2761),
            pad=4,
            flip=True,
            reader="CIFAR100",
            folder="cifar-100-python",
            files=("train", "test", "meta"),
        ),
    )
}


def names() -> list[str]:
    """The names `load` takes."""
    return list(SOURCES)


def load(name: str) -> Dataset:
    """The data set of that name; letter case, '-' and '_' do not matter. Loaded once per process and folder."""
    return held(find(name).name, root())


def available(name: str) -> str:
    """Where the data set lies on this machine; '' if it would have to be downloaded."""
    source = find(name)
    if not source.reader:
        return "scikit-learn"
    return "" if missing(source, root()) else str(root() / source.folder)


def table() -> list[dict[str, str | int]]:
    """One row per data set for `fednb ls data`: name, classes, shape, train, test, where."""
    return [
        {
            "name": s.name,
            "classes": s.classes,
            "shape": "x".join(map(str, s.shape)),
            "train": s.train,
            "test": s.test,
            "where": available(s.name) or "not here",
        }
        for s in SOURCES.values()
    ]


def root() -> Path:
    """The folder of the data: FEDNB_DATA, or `fednb/data` in the user's cache."""
    if given := os.environ.get("FEDNB_DATA"):
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "fednb" / "data"


def plain(name: str) -> str:
    """A name as it is compared: lower case, without '-' and '_'."""
    return str(name).lower().replace("-", "").replace("_", "").strip()


def find(name: str) -> Source:
    """The catalogue line of a name."""
    known = {plain(each): source for each, source in SOURCES.items()}
    if plain(name) in known:
        return known[plain(name)]
    near = [known[each].name for each in difflib.get_close_matches(plain(name), known, cutoff=0.4)]
    raise UnknownData(
        f"no data set {name!r}; closest: {', '.join(near or SOURCES)}. `fednb ls data` lists all {len(SOURCES)}."
    )


@lru_cache(maxsize=8)
def held(name: str, folder: Path) -> Dataset:
    """Load one data set from one folder, and keep it."""
    source = SOURCES[name]
    x, y, x_test, y_test = read(source, folder) if source.reader else digits()
    return Dataset(
        name, x, y, x_test, y_test, source.classes, source.scale, source.mean, source.std, source.pad, source.flip
    )


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """scikit-learn's 1797 handwritten digits (8x8, values 0 to 16), one fifth of every class kept for testing."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(images.astype(np.uint8)).view(-1, 1, 8, 8)
    y = torch.from_numpy(labels.astype(np.int64))
    train, test = (torch.from_numpy(part) for part in stratified(labels, share=0.2))
    return x[train], y[train], x[test], y[test]


def stratified(labels: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices (rest, share) with `share` of every class in the second part; the same on every machine."""
    rng, picked = stream(0, "stratified", share), []
    for each in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == each))
        picked.append(members[: round(share * len(members))])
    second = np.sort(np.concatenate(picked))
    return np.setdiff1d(np.arange(len(labels)), second), second


def missing(source: Source, folder: Path) -> list[str]:
    """The files of a data set that are not in the folder."""
    return [file for file in source.files if not (folder / source.folder / file).is_file()]


def read(source: Source, folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test tensors through torchvision's reader and its checks; download first what is not there."""
    from fednb.compat import torchvision

    reader = getattr(torchvision.datasets, source.reader)
    if missing(source, folder):
        download(source, folder, reader)
    try:
        return *tensors(reader(folder, train=True), source), *tensors(reader(folder, train=False), source)
    except (RuntimeError, AssertionError, ValueError, KeyError) as error:  # what a damaged file makes readers raise
        reason = str(error).split(". ")[0] or type(error).__name__
        raise DataNotFound(
            f"the files of {source.name!r} in {folder / source.folder} are damaged: {reason}. "
            "Delete that folder and run again to download it, or set FEDNB_DATA."
        ) from error


def tensors(split, source: Source) -> tuple[Tensor, Tensor]:
    """Images uint8 [n, c, h, w] and labels int64 [n] of one torchvision data set, of the promised shape."""
    x, y = torch.as_tensor(split.data), torch.as_tensor(split.targets, dtype=torch.int64)
    x = x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2)
    if len(x) != len(y) or tuple(x.shape[1:]) != source.shape or not 0 <= int(y.min()) <= int(y.max()) < source.classes:
        raise ValueError(
            f"{len(x)} images {tuple(x.shape[1:])} with {len(y)} labels {int(y.min())}..{int(y.max())}, "
            f"expected as many labels as images, {source.shape}, 0..{source.classes - 1}"
        )
    return x.contiguous(), y


def download(source: Source, folder: Path, reader: type) -> None:
    """Fetch a data set into a folder of its own and move the finished files, so a broken download leaves nothing."""
    if os.environ.get("FEDNB_OFFLINE", "") not in ("", "0"):
        raise DataNotFound(absent(source, folder, "downloads are off (FEDNB_OFFLINE is set)"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder, ignore_cleanup_errors=True) as part:
            with silence_limit(TIMEOUT):
                reader(part, download=True)
            (folder / source.folder).mkdir(parents=True, exist_ok=True)
            for file in source.files:
                os.replace(Path(part) / source.folder / file, folder / source.folder / file)
    except (OSError, RuntimeError, HTTPException, EOFError) as error:
        reason = f"the download failed: {str(error).strip() or type(error).__name__}"
        raise DataNotFound(absent(source, folder, reason)) from error


def absent(source: Source, folder: Path, reason: str) -> str:
    """What was looked for, where, why it was not fetched, and the way out."""
    lacking = missing(source, folder) or source.files
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return (
        f"{source.name!r} is not here: looked for {lacking[0]}{more} in {folder / source.folder}; {reason}. "
        f"Set FEDNB_DATA to a folder that holds {source.folder}, or connect (without FEDNB_OFFLINE) and run again."
    )


@contextmanager
def silence_limit(seconds: float) -> Iterator[None]:
    """Let network connections opened inside fail after that many silent seconds instead of waiting forever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
