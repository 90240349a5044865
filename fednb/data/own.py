"""A user's own data as a data set: arrays checked, numbered and scaled, with errors that name the array."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednb.base.checks import is_number, is_whole
from fednb.base.inputs import shown
from fednb.data.dataset import Dataset, Given, Source, stratified
from fednb.data.own_folder import BadData, Pair
from fednb.data.own_samples import columns_of, read_pairs

AUGMENTATION = re.compile(r"\s*(flip|crop(?:\((\d+)\))?|none)\s*")
CROP = 4  # zeros around an image that is cropped, where nobody says how many
FEW = 1024  # samples of which statistics are taken at a time


@dataclass(frozen=True)
class Preparation:
    """How a user's samples become a model's inputs; the fields are explained at `fn.add_data`."""

    classes: int | None = None
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    scale: float | None = None
    augment: str = "none"
    vocabulary: int = 0
    channels: str = ""


def own_source(name: str, train: Any, test: Any, owners: Any, how: Preparation, size: Any, columns: Any) -> Source:
    """A line of the catalogue for a user's data; BadData, in one line, where they are not what they should be."""
    raw = read_pairs(name, train, test, size, columns_of(name, columns))
    data = _dataset(name, *raw, owners, test, how)
    shape = data.input
    return Source(
        name, data.classes, shape, len(data.y), len(data.y_test), Given(data, _digest(data)), data.mean, data.std,
        data.scale, data.pad, data.flip, "owner" if data.owner is not None else "",
    )  # fmt: skip


def _dataset(name: str, train: Pair, test: Pair | None, owners: Any, share: Any, how: Preparation) -> Dataset:
    x = samples(f"{name!r}: x of train", train[0], how)
    y, names = labels(f"{name!r}: y of train", train[1], len(x))
    owner, owner_test = _owners(name, owners, len(x), None if test is None else len(test[1]))
    if test is None:
        kept, out = (torch.from_numpy(part) for part in _held_out(name, y, share))
        x, y, x_test, y_test = x[kept], y[kept], x[out], y[out]
        owner, owner_test = (None, None) if owner is None else (owner[kept], owner[out])
    else:
        x_test = samples(f"{name!r}: x of test", test[0], how)
        y_test, _ = labels(f"{name!r}: y of test", test[1], len(x_test), names)
    if x_test.shape[1:] != x.shape[1:] or x_test.dtype != x.dtype:
        raise BadData(f"{name!r}: x of test has {_kind(x_test)}, expected {_kind(x)} as in train")
    classes = _classes(name, y, y_test, how.classes)
    pad, flip = _augmentation(name, how.augment, x)
    scale = _scale(name, how.scale, x)
    mean, std = ((), ()) if how.vocabulary else _statistics(name, how, x, scale)
    return Dataset(name, x, y, x_test, y_test, classes, scale, mean, std, pad, flip, how.vocabulary, owner, owner_test,
                   "given by the user")  # fmt: skip


def _kind(x: Tensor) -> str:
    return f"samples of shape {tuple(x.shape[1:])} ({str(x.dtype).removeprefix('torch.')})"


def _digest(data: Dataset) -> str:
    """A fingerprint of the samples, and of all that is done with them before a model sees them."""
    how = data.classes, data.scale, data.mean, data.std, data.pad, data.flip, data.vocabulary
    return hashlib.sha256(f"{data.fingerprint} {how}".encode()).hexdigest()[:32]


# Samples


def samples(what: str, values: Any, how: Preparation) -> Tensor:
    """A copy of the samples: uint8 or float32 `[n, channels, ...]`, or tokens, int32 `[n, length]`.

    Images may have their channels last, as files have them, or none. what: the array's name for messages.
    """
    x = array(what, values)
    if x.dim() < 2 or not len(x):
        raise BadData(f"{what} has shape {tuple(x.shape)}, expected [n, ...]: one row for each of at least one sample")
    if how.vocabulary:
        return _tokens(what, x, how.vocabulary)
    if x.dtype != torch.uint8:
        x = x.to(torch.float32)
        if wrong := int((~torch.isfinite(x)).sum()):
            first = int(torch.isfinite(x).flatten(1).all(1).logical_not().nonzero()[0])
            raise BadData(
                f"{what} has {wrong} numbers that are NaN or infinite, expected none; the first in row {first}"
            )
    return _channels_first(what, x, how.channels).contiguous()


def array(what: str, values: Any) -> Tensor:
    """A copy of an array, a tensor or a list of numbers, as a tensor on the CPU."""
    if isinstance(values, Tensor):
        return values.detach().cpu().clone()
    try:
        found = np.array(values)
    except ValueError:  # rows of different lengths
        found = np.array(None, dtype=object)
    if found.dtype.kind not in "buif":
        raise BadData(f"{what} is {found.dtype} {found.shape}, expected one array of numbers with a row per sample")
    kind = np.int64 if found.dtype.kind == "u" and found.dtype.itemsize > 1 else found.dtype
    return torch.from_numpy(np.ascontiguousarray(found.astype(kind)))


def _tokens(what: str, x: Tensor, vocabulary: int) -> Tensor:
    if not is_whole(vocabulary, 1):
        raise BadData(f"{what}: vocabulary = {shown(vocabulary)}, expected a whole number of at least 1")
    if x.dim() != 2 or x.is_floating_point():
        raise BadData(f"{what} has shape {tuple(x.shape)} ({x.dtype}), expected whole numbers [n, length]: tokens")
    if not 0 <= int(x.min()) <= int(x.max()) < vocabulary:
        raise BadData(f"{what} has tokens {int(x.min())} to {int(x.max())}, expected 0 to {vocabulary - 1}")
    return x.to(torch.int32)


def _channels_first(what: str, x: Tensor, channels: str) -> Tensor:
    """Samples with their channels, if they have any, as the first of their axes."""
    if channels not in ("", "first", "last"):
        raise BadData(f"{what}: channels = {shown(channels)}, expected 'first' or 'last'")
    if x.dim() == 2 or channels == "first":
        return x
    if x.dim() == 3 and not channels:
        return x[:, None]
    first, last = (x.dim() == 4 and x.shape[axis] in (1, 3) for axis in (1, 3))
    if not channels and first == last:
        raise BadData(
            f"{what} has shape {tuple(x.shape)}, expected samples with channels: say channels='first' or 'last'"
        )
    return x.movedim(-1, 1) if channels or last else x


# Labels and owners


def labels(what: str, values: Any, n: int, known: list[str] | None = None) -> tuple[Tensor, list[str]]:
    """Labels as int64 `[n]`, and the names of classes where they are texts: those known, or else by the alphabet."""
    found = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.array(values)
    found = found.reshape(len(found)) if found.ndim == 2 and found.shape[1] == 1 else found
    if found.ndim != 1 or len(found) != n:
        raise BadData(f"{what} has shape {found.shape}, expected ({n},): one class for each sample of x")
    if found.dtype.kind in "USO":
        return _numbered(what, found, known)
    if found.dtype.kind == "f" and (wrong := int((~np.isfinite(found)).sum())):
        raise BadData(f"{what} has {wrong} labels that are NaN or infinite, expected whole numbers 0, 1, 2, ...")
    if known or found.dtype.kind not in "buif" or not np.array_equal(found, np.floor(found)):
        wanted = (
            f"names of classes: {shown(known)}" if known else "whole numbers 0, 1, 2, ...: one class for each sample"
        )
        raise BadData(f"{what} is {found.dtype}, expected {wanted}")
    return torch.from_numpy(found.astype(np.int64)), []


def _numbered(what: str, found: np.ndarray, known: list[str] | None) -> tuple[Tensor, list[str]]:
    if not all(isinstance(each, str) for each in found.tolist()):
        raise BadData(f"{what} is {found.dtype}, expected whole numbers 0, 1, 2, ... or names of classes")
    names = sorted(set(found.tolist())) if known is None else known
    if strange := sorted(set(found.tolist()) - set(names)):
        wanted = shown(names) if names else "whole numbers"
        raise BadData(f"{what} has the class {shown(strange[0])}, expected those of train: {wanted}")
    return torch.tensor([names.index(each) for each in found.tolist()]), names


def _classes(name: str, y: Tensor, y_test: Tensor, told: int | None) -> int:
    """How many classes there are; refuse labels out of range, and classes without a training sample unless said."""
    if told is not None and not is_whole(told, 2):
        raise BadData(f"{name!r}: classes = {shown(told)}, expected a whole number of at least 2")
    classes = max(2, int(y.max()) + 1) if told is None else int(told)
    for what, each in (("train", y), ("test", y_test)):
        if not 0 <= int(each.min()) <= int(each.max()) < classes:
            raise BadData(
                f"{name!r}: y of {what} has labels {int(each.min())} to {int(each.max())}, expected 0 to {classes - 1}"
            )
    counts = torch.bincount(y, minlength=classes)
    if told is None and (empty := (counts == 0).nonzero().flatten().tolist()):
        raise BadData(
            f"{name!r}: y of train has no sample of class {empty[0]}, expected some of each of 0 to {classes - 1}; "
            f"number them without gaps, or say classes={classes} where that is meant"
        )
    return classes


def _owners(name: str, given: Any, n: int, n_test: int | None) -> tuple[Tensor | None, Tensor | None]:
    """The owner of each sample as a number from 0 on; of test samples too, where a pair is given."""
    if given is None:
        return None, None
    pair = isinstance(given, tuple) and len(given) == 2 and np.ndim(given[0]) == 1
    each = [np.array(g.cpu() if isinstance(g, Tensor) else g) for g in (given if pair else (given,))]
    wanted = (n,) if n_test is None or not pair else (n, n_test)
    if [e.shape for e in each] != [(size,) for size in wanted]:
        expected = " and ".join(f"({size},)" for size in wanted)
        raise BadData(f"{name!r}: owners have shape {', '.join(str(e.shape) for e in each)}, expected {expected}")
    if any(e.dtype.kind not in "iuUSb" for e in each):
        raise BadData(f"{name!r}: owners are {each[0].dtype}, expected whole numbers or names")
    known = np.unique(np.concatenate(each))
    numbers = [torch.from_numpy(np.searchsorted(known, e)) for e in each]
    return numbers[0], numbers[1] if pair else None


def _held_out(name: str, y: Tensor, share: Any) -> tuple[np.ndarray, np.ndarray]:
    """Samples to train and to test on: a share of every class is for testing, the same on every machine."""
    if not is_number(share) or not 0 < share < 1:
        raise BadData(f"{name!r}: test = {shown(share)}, expected a pair (x, y), or a share of train such as 0.2")
    train, test = stratified(y.numpy(), float(share))
    if not len(train) or not len(test):
        raise BadData(f"{name!r}: test = {share} of {len(y)} samples leaves none to train or none to test on")
    return train, test


# Scaling and augmentation


def _scale(name: str, told: float | None, x: Tensor) -> float:
    if told is None:
        return 255.0 if x.dtype == torch.uint8 else 1.0
    if not is_number(told) or told <= 0:
        raise BadData(f"{name!r}: scale = {shown(told)}, expected a number above 0")
    return float(told)


def _statistics(name: str, how: Preparation, x: Tensor, scale: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel: as given, or those of the training samples."""
    mean, std = (_per_channel(name, what, getattr(how, what), x.shape[1]) for what in ("mean", "std"))
    if std is not None and 0.0 in std:
        raise BadData(f"{name!r}: std = {shown(how.std)}, expected numbers other than 0")
    if mean is None or std is None:
        found = _measured(x, scale)
        mean, std = mean or found[0], std or found[1]
    return mean, std


def _per_channel(name: str, what: str, told: Any, channels: int) -> tuple[float, ...] | None:
    if told is None:
        return None
    values = [told] * channels if is_number(told) else list(told) if np.ndim(told) == 1 else []
    if len(values) != channels or not all(isfinite(value) for value in values):
        raise BadData(f"{name!r}: {what} = {shown(told)}, expected one number, or {channels}: one for each channel")
    return tuple(float(value) for value in values)


def _measured(x: Tensor, scale: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel to six digits, which no order of adding changes; 1 where all are equal."""
    count, zero = x.numel() // x.shape[1], torch.zeros(x.shape[1], dtype=torch.float64)
    mean = sum((part.sum(1) for part in _by_channel(x, scale)), zero) / count
    spread = sum(((part - mean[:, None]).square().sum(1) for part in _by_channel(x, scale)), zero) / count
    std = spread.sqrt()
    std = torch.where(std > 1e-12 * mean.abs().clamp_min(1e-300), std, torch.ones_like(std))
    means, deviations = (tuple(float(f"{value:.6g}") for value in each.tolist()) for each in (mean, std))
    return means, deviations


def _by_channel(x: Tensor, scale: float) -> Iterator[Tensor]:
    """Some samples after others, `[channels, numbers]` in float64."""
    return (part.double().div(scale).movedim(1, 0).flatten(1) for part in x.split(FEW))


def _augmentation(name: str, text: Any, x: Tensor) -> tuple[int, bool]:
    """Padding of the crop and whether images are mirrored, from a text such as "flip + crop(4)"."""
    found = [AUGMENTATION.fullmatch(piece) for piece in str(text or "none").lower().split("+")]
    if not all(found):
        raise BadData(f"{name!r}: augment = {shown(text)}, expected 'none', 'flip', 'crop(4)' or 'flip + crop(4)'")
    pieces = [each for each in found if each and each[1] != "none"]
    if pieces and x.dim() != 4:
        raise BadData(f"{name!r}: augment = {shown(text)} is for images, and {_kind(x)} are none")
    crops = [int(each[2] or CROP) for each in pieces if each[1].startswith("crop")]
    if max(crops, default=0) > min(x.shape[-2:]):
        raise BadData(f"{name!r}: augment = {shown(text)}, expected a crop of at most {min(x.shape[-2:])} pixels")
    return max(crops, default=0), any(each[1] == "flip" for each in pieces)
