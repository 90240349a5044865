"""LEAF's json files, whose samples have an author: one per writer of FEMNIST or role of Shakespeare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fednb.base.progress import bar_of
from fednb.data.dataset import Damaged
from fednb.data.files import kept, marks

TRAINED = 0.9  # of each author's samples, in LEAF and here
SPLITS = ("train", "test")
Converter = Callable[[list, list], tuple[np.ndarray, np.ndarray]]  # one author's x and y as arrays


def json_files(place: Path) -> dict[str, list[Path]]:
    """The json files of both splits; those in `data/` where LEAF's own folder was copied whole. Empty if not both."""
    for at in (place, place / "data"):
        found = {split: sorted((at / split).glob("*.json")) for split in SPLITS}
        if all(found.values()):
            return found
    return {}


def authors(files: list[Path], convert: Converter) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, x and y of each author in some files; one file is held at a time, since they are large."""
    with bar_of(len(files), f"reading {files[0].parent}", unit="file") as bar:
        for file in files:
            yield from _authors(file, convert)
            bar.update()


def _authors(file: Path, convert: Converter) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The authors in one of LEAF's files: name, samples and labels of each."""
    try:
        users = json.loads(file.read_text())["user_data"]
        for name, held in users.items():
            if not held["x"] and not held["y"]:
                continue
            x, y = convert(held["x"], held["y"])
            if len(x) != len(y):
                raise Damaged(f"{name} has {len(x)} samples with {len(y)} labels")
            yield name, x, y
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if isinstance(error, Damaged) else f"{type(error).__name__}: {error}"
        raise Damaged(f"{file.name} is not as LEAF writes it ({reason})") from error


def gathered(place: Path, convert: Converter, version: int = 1) -> dict[str, np.ndarray]:
    """train_x, train_y, train_owner and the same for test; owners are numbered by the order of their names.

    Reading takes minutes at full size, so what it gives is kept beside the files.
    """
    files = json_files(place)

    def make() -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        names: dict[str, np.ndarray] = {}
        for split in SPLITS:
            held = list(authors(files[split], convert))
            if not held:
                raise Damaged(f"the files of {split} hold no samples")
            names[split] = np.repeat([name for name, _, _ in held], [len(y) for _, _, y in held])
            found |= {f"{split}_{what}": np.concatenate([each[i] for each in held]) for i, what in ((1, "x"), (2, "y"))}
        known = np.unique(np.concatenate([*names.values()]))
        return found | {f"{split}_owner": np.searchsorted(known, names[split]) for split in SPLITS}

    every = [file for split in SPLITS for file in files[split]]
    return kept(place / "fednb-leaf.npz", marks(version, files=every), make)


def said(what: str, owners: int, full: int) -> str:
    """The note of a data set with fewer authors than the full one."""
    return f"subset: {owners} of {full} {what}" if owners < full else ""


def owners_of(arrays: dict[str, np.ndarray]) -> int:
    """How many authors there are."""
    return len(np.unique(np.concatenate([arrays[f"{split}_owner"] for split in SPLITS])))
