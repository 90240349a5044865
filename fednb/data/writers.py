"""FEMNIST: handwritten digits and letters, by writer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fednb.base.streams import stream
from fednb.data.dataset import Damaged, DataNotFound, Samples, Source, images, whole
from fednb.data.files import absent, arrays_of
from fednb.data.leaf import TRAINED, gathered, json_files, owners_of, said

WRITERS = 3550  # in full (LEAF)


@dataclass(frozen=True)
class Writers:
    """LEAF's json files in femnist/train and femnist/test, or a subset in one file.

    The subset has `images`, `labels` and `writer`. A tenth of each writer's images, drawn once and for all, is for
    testing, as LEAF's `-t sample` has it. Images are as LEAF has them, dark ink on white: the catalogue's std is
    negative, which makes ink positive, (0.5 − x) / 0.5.
    """

    folder: str = "femnist"
    subset: str = "femnist_leaf_subset.npz"

    def where(self, folder: Path) -> str:
        if json_files(folder / self.folder):
            return str(folder / self.folder)
        return str(folder / self.subset) if (folder / self.subset).is_file() else ""

    def note(self, folder: Path) -> str:
        if not self.where(folder).endswith(self.subset):
            return ""
        try:
            return said("writers", len(np.unique(arrays_of(folder / self.subset, "writer")[0])), WRITERS)
        except Damaged as error:
            return f"damaged: {error}"

    def read(self, source: Source, folder: Path) -> Samples:
        if not (place := self.where(folder)):
            way = "make LEAF's json files there (`./preprocess.sh -s niid --sf 1.0 -k 0 -t sample` in its data/femnist)"
            looked = ["train/*.json", "test/*.json", f"../{self.subset}"]
            raise DataNotFound(absent(source.name, looked, folder / self.folder, "LEAF offers no download", way))
        if place.endswith(self.subset):
            return one_file(Path(place))
        held = gathered(Path(place), pixels)
        note = said("writers", owners_of(held), WRITERS)
        x, x_test = (images(held[f"{split}_x"]) for split in ("train", "test"))
        y, y_test, owner, owner_test = (
            whole(held[f"{s}_{what}"]) for what in ("y", "owner") for s in ("train", "test")
        )
        return Samples(x, y, x_test, y_test, owner, owner_test, note=note)


def pixels(x: list, y: list) -> tuple[np.ndarray, np.ndarray]:
    """One writer's images, uint8 [n, 28, 28], from lists of 784 numbers in [0, 1]."""
    values = np.asarray(x, dtype=np.float32).reshape(len(x), -1)
    if values.shape[1] != 784 or not ((values >= 0) & (values <= 1)).all():
        raise Damaged(f"images of {values.shape[1]} values, expected 784 in [0, 1]")
    return np.rint(values * 255).astype(np.uint8).reshape(-1, 28, 28), np.asarray(y, dtype=np.int64)


def one_file(place: Path) -> Samples:
    """The subset, with each writer's images split."""
    values, labels, names = arrays_of(place, "images", "labels", "writer")
    x, y = images(values), whole(labels)
    if not len(x) == len(y) == len(names):
        raise Damaged(f"{place.name}: {len(x)} images, {len(y)} labels, {len(names)} writers")
    owner = whole(np.unique(names, return_inverse=True)[1])
    train, test = (torch.from_numpy(part) for part in held_out(owner.numpy()))
    note = said("writers", int(owner.max()) + 1, WRITERS)
    return Samples(x[train], y[train], x[test], y[test], owner[train], owner[test], note=note)


def held_out(owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices (train, test): nine tenths of each owner's samples, rounded down but at least one, and the rest."""
    train = []
    for each in np.unique(owner):
        mine = np.flatnonzero(owner == each)
        train.append(stream(0, "held out", int(each)).permutation(mine)[: max(1, int(TRAINED * len(mine)))])
    first = np.sort(np.concatenate(train))
    return first, np.setdiff1d(np.arange(len(owner)), first)
