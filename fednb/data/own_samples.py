"""What a user hands over as data, read as pairs of arrays: arrays, torch data sets, folders of images, tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fednb.base.checks import is_number, is_whole
from fednb.base.inputs import shown
from fednb.data.own_folder import BadData, Pair, read_folders

WAYS = "(x, y), a torch Dataset, a folder of images or a table of Hugging Face's `datasets`"
SAMPLE_COLUMNS = ("image", "img", "pixel_values", "x", "input_ids", "tokens", "features")
LABEL_COLUMNS = ("label", "labels", "fine_label", "y", "target")
GREY = ("1", "L")  # Pillow's modes of images without colour


def read_pairs(
    name: str, train: Any, test: Any, size: Any, columns: tuple[str, str] | None
) -> tuple[Pair, Pair | None]:
    """Samples and labels to train and to test on; None for the test where a share of the first is to be held out."""
    size = _size(name, size)
    if isinstance(train, str | Path) and test is None:
        train, test = Path(train) / "train", Path(train) / "test"
        if lacking := [place for place in (train, test) if not place.is_dir()]:
            raise BadData(
                f"{name!r}: there is no folder {lacking[0]}, expected train/ and test/ in {train.parent}; "
                "a folder of classes and a share, such as test=0.2, does too"
            )
    if isinstance(train, Mapping) and test is None:
        if lacking := [part for part in ("train", "test") if part not in train]:
            raise BadData(f"{name!r}: no {lacking[0]!r} among {shown(list(train))}, expected 'train' and 'test'")
        train, test = train["train"], train["test"]
    if test is None:
        raise BadData(f"{name!r}: test is missing, expected {WAYS}, or a share of train such as 0.2")
    if isinstance(train, str | Path):
        return read_folders(name, Path(train), test, size)
    first = read_pair(f"{name!r}: train", train, size, columns)
    return first, None if is_number(test) else read_pair(f"{name!r}: test", test, size, columns)


def read_pair(what: str, given: Any, size: tuple[int, int] | None, columns: tuple[str, str] | None) -> Pair:
    """Samples and labels of a part, whichever way they are given."""
    if isinstance(given, tuple | list) and len(given) == 2:
        return given[0], given[1]
    if hasattr(given, "column_names") and hasattr(given, "__getitem__"):
        return _table(what, given, size, columns)
    if isinstance(given, Tensor | np.ndarray | Mapping | str | bytes) or not hasattr(given, "__getitem__"):
        raise BadData(f"{what} is {shown(given)}, expected {WAYS}")
    if not hasattr(given, "__len__"):
        raise BadData(f"{what} is {type(given).__name__} without a length, expected {WAYS}")
    rows = [given[i] for i in range(len(given))]
    if wrong := [i for i, row in enumerate(rows) if not isinstance(row, tuple | list) or len(row) != 2]:
        raise BadData(f"{what}[{wrong[0]}] is {shown(rows[wrong[0]])}, expected a pair (sample, label)")
    return stacked(what, [row[0] for row in rows], size), np.array([_number(row[1]) for row in rows])


def _number(label: Any) -> Any:
    """A label as Python's number, where it is an array with one number in it."""
    return label.item() if hasattr(label, "item") and np.asarray(label).size == 1 else label


def stacked(what: str, rows: list[Any], size: tuple[int, int] | None) -> np.ndarray:
    """Samples of one shape as one array; images of Pillow's as `[n, 1, height, width]` or `[n, 3, height, width]`."""
    if not rows:
        raise BadData(f"{what} has no sample, expected at least one")
    pictures = [row for row in rows if hasattr(row, "convert") and hasattr(row, "resize")]
    colour = "L" if all(row.mode in GREY for row in pictures) else "RGB"
    made = [_pixels(row, size, colour) if pictures else np.asarray(row) for row in rows]
    if wrong := [i for i, row in enumerate(made) if row.shape != made[0].shape]:
        raise BadData(
            f"{what}[{wrong[0]}] has shape {made[wrong[0]].shape}, expected {made[0].shape} as the first; "
            "size=(height, width) makes images equal"
        )
    return np.stack(made)


def _pixels(image: Any, size: tuple[int, int] | None, colour: str) -> np.ndarray:
    """An image of Pillow's as uint8 `[channels, height, width]`, in grey or in colour, of a size or of its own."""
    from PIL import Image

    seen = image.convert(colour)
    seen = seen if size is None else seen.resize(size[::-1], Image.Resampling.BILINEAR)
    return np.asarray(seen).reshape(seen.height, seen.width, -1).transpose(2, 0, 1)


def _table(what: str, table: Any, size: tuple[int, int] | None, columns: tuple[str, str] | None) -> Pair:
    """The columns of samples and labels of a table of Hugging Face's."""
    there = list(table.column_names)
    told = columns or tuple(
        next((name for name in known if name in there), known[0]) for known in (SAMPLE_COLUMNS, LABEL_COLUMNS)
    )
    if lacking := [name for name in told if name not in there]:
        raise BadData(f"{what} has no column {lacking[0]!r} among {shown(there)}; say columns=(samples, labels)")
    rows = [table[i] for i in range(len(table))]
    return stacked(what, [row[told[0]] for row in rows], size), np.array([_number(row[told[1]]) for row in rows])


def columns_of(name: str, given: Any) -> tuple[str, str] | None:
    """The names of a table's columns of samples and of labels, where they are told."""
    if given is None:
        return None
    if not isinstance(given, tuple | list) or len(given) != 2 or not all(isinstance(each, str) for each in given):
        raise BadData(f"{name!r}: columns = {shown(given)}, expected two names: of the samples and of the labels")
    return given[0], given[1]


def _size(name: str, given: Any) -> tuple[int, int] | None:
    pair = (given, given) if is_whole(given, 1) else tuple(given) if isinstance(given, tuple | list) else given
    if given is not None and not (isinstance(pair, tuple) and len(pair) == 2 and all(is_whole(n, 1) for n in pair)):
        raise BadData(f"{name!r}: size = {shown(given)}, expected (height, width)")
    return pair
