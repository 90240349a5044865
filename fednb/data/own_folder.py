"""A user's folder of images, in it a folder for each class, read as one array of samples and their labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from fednb.base.checks import is_number
from fednb.base.inputs import shown
from fednb.base.progress import bar_of
from fednb.data.domains import PICTURES, inside
from fednb.data.files import kept, marks

Pair = tuple[Any, Any]  # samples and labels
GREY = ("1", "L")  # Pillow's modes of images without colour


class BadData(ValueError):
    """Data of a user that are not what they should be: which array, and what was expected."""


def read_folders(name: str, train: Path, test: Any, size: tuple[int, int] | None) -> tuple[Pair, Pair | None]:
    """The images of two folders, or of one of which a share is to be held out; labels are the names of classes.

    Images are as large as `size` says, or as they are, where all are equally large. They have one channel where all are
    grey, and three where not.
    """
    places = [train] if is_number(test) else [train, Path(test)]
    if absent := [place for place in places if not place.is_dir()]:
        raise BadData(f"{name!r}: there is no folder {absent[0]}, expected one with a folder of images for each class")
    classes = inside(train)
    if len(classes) < 2:
        raise BadData(f"{name!r}: {train} has {len(classes)} folders, expected one for each of at least two classes")
    if strange := sorted(set(inside(places[-1])) - set(classes)):
        raise BadData(f"{name!r}: {places[-1]} has the class {strange[0]!r}, expected those of train: {shown(classes)}")
    found = []
    for place in places:
        found.append(images(name, place, inside(place), size))
        size = size or found[0]["x"].shape[1:3]
    channels = slice(1 if all(each["grey"].all() for each in found) else 3)
    first, *rest = [(each["x"][..., channels].transpose(0, 3, 1, 2), each["y"]) for each in found]
    return first, rest[0] if rest else None


def images(name: str, place: Path, classes: list[str], size: tuple[int, int] | None) -> dict[str, np.ndarray]:
    """The images of a folder, x uint8 `[n, height, width, 3]`, the classes' names y and which are grey.

    They are decoded once and kept in the folder, in one file.
    """
    files = [(each, file) for each in classes for file in _pictures(name, place / each)]
    height, width = size or _size_of(name, place / files[0][0] / files[0][1])

    def make() -> dict[str, np.ndarray]:
        x, grey = np.empty((len(files), height, width, 3), dtype=np.uint8), np.empty(len(files), dtype=bool)
        with bar_of(len(files), f"decoding {place.name}", unit="image") as bar:
            for i, (each, file) in enumerate(files):
                x[i], grey[i] = _decoded(name, place / each / file, (height, width), size is None)
                bar.update()
        return {"x": x, "y": np.array([each for each, _ in files]), "grey": grey}

    about = marks("images 1", files, size, files=[place / each / file for each, file in files])
    return kept(place / f"fednb-images-{height}x{width}.npz", about, make)


def _pictures(name: str, folder: Path) -> list[str]:
    found = sorted(file for file in os.listdir(folder) if file.lower().endswith(PICTURES))
    if not found:
        raise BadData(f"{name!r}: {folder} has no images, expected some: {', '.join(PICTURES)}")
    return found


def _size_of(name: str, file: Path) -> tuple[int, int]:
    """Height and width of an image."""
    return _opened(name, file)[0].shape[:2]  # type: ignore[return-value]


def _decoded(name: str, file: Path, size: tuple[int, int], exactly: bool) -> tuple[np.ndarray, bool]:
    """An image of that size, `[height, width, 3]`, and whether it is grey; exactly: it must be so large already."""
    x, grey = _opened(name, file, None if exactly else size)
    if x.shape[:2] != size:
        raise BadData(
            f"{name!r}: {file} is {x.shape[0]}x{x.shape[1]}, expected {size[0]}x{size[1]} as the first; "
            "size=(height, width) makes images equal"
        )
    return x, grey


def _opened(name: str, file: Path, size: tuple[int, int] | None = None) -> tuple[np.ndarray, bool]:
    from PIL import Image

    try:
        with Image.open(file) as image:
            grey, seen = image.mode in GREY, image.convert("RGB")
            seen = seen if size is None else seen.resize(size[::-1], Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what broken files make it raise
        raise BadData(f"{name!r}: {file} cannot be read: {error}, expected an image; replace or delete it") from error
    return np.asarray(seen), grey
