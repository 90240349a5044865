"""Domains, the same classes in another look: read from folders, and dealt so that one of them is kept for testing."""

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from fednb.base.progress import bar_of
from fednb.base.streams import stream
from fednb.data.dataset import DataNotFound, Dataset, Samples, Source, images, stratified, whole
from fednb.data.files import absent, kept, marks
from fednb.data.split import Partition, PartitionFailed, switch

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
HELD_OUT = 0.2  # of every class in every domain, for partitions that know no target
OFFICE = "fill in the form on the Office-Home page of hemanthdv.org (Venkateswara et al. 2017) and unpack its zip there"
ANY = "put (or link) a folder there that holds a folder for each domain, in it one for each class, in it images"


@dataclass(frozen=True)
class Domains:
    """A folder of domains, each a folder of classes, each of images; every class in every domain.

    Images are decoded once, resized to the catalogue's shape whatever their own, and kept beside the domains in one
    file. Domains and classes are numbered in the order of their names. A fifth of every class in every domain, drawn
    once and for all, is for testing. names: the domains that must be there; any, at least two, if empty.
    """

    folder: str
    names: tuple[str, ...] = ()
    way: str = ANY
    full: int = 0  # images in all, where that is known

    def where(self, folder: Path) -> str:
        place = folder / self.folder
        here = all((place / name).is_dir() for name in self.names) if self.names else place.is_dir()
        return str(place) if here else ""

    def note(self, folder: Path) -> str:
        return ""

    def read(self, source: Source, folder: Path) -> Samples:
        place = folder / self.folder
        if not self.where(folder):
            looked = self.names or ("a folder for each domain",)
            raise DataNotFound(absent(source.name, looked, place, "it cannot be downloaded", self.way))
        domains = list(self.names) or inside(place)
        classes = agreed(place, domains, source.classes)
        files = listed(place, domains, classes)
        arrays = decoded(place, files, source.shape)
        x, y, owner = images(arrays["x"]), whole(arrays["y"]), whole(arrays["owner"])
        train, test = (torch.from_numpy(part) for part in held_out(place, arrays["y"], arrays["owner"]))
        return Samples(x[train], y[train], x[test], y[test], owner[train], owner[test], classes=len(classes),
                       note=self._said(domains, classes, len(y)))  # fmt: skip

    def _said(self, domains: list[str], classes: list[str], n: int) -> str:
        if self.names:
            return f"subset: {n} of {self.full} images" if n != self.full else ""
        return f"domains {', '.join(f'{i} {name}' for i, name in enumerate(domains))}; {len(classes)} classes"


def inside(place: Path) -> list[str]:
    """The folders in a folder, by name; hidden ones do not count."""
    return sorted(p.name for p in place.iterdir() if p.is_dir() and not p.name.startswith("."))


def agreed(place: Path, domains: list[str], expected: int) -> list[str]:
    """The classes, which all domains must have; as many as the catalogue says, where it says so."""
    if len(domains) < 2:
        raise DataNotFound(f"{place} has {', '.join(domains) or 'no folder'}; at least two domains are needed: {ANY}.")
    held = {domain: inside(place / domain) for domain in domains}
    classes = sorted(set().union(*held.values()))
    for domain, own in held.items():
        if lacking := [name for name in classes if name not in own]:
            raise DataNotFound(
                f"{place / domain} lacks {len(lacking)} of {len(classes)} classes, {lacking[0]!r} among them; every "
                "domain must have every class. Add its images, or take the class out of the other domains."
            )
    if not classes or expected not in (0, len(classes)):
        raise DataNotFound(f"{place} has {len(classes)} classes, expected {expected or 'some'}. Unpack it again.")
    return classes


def listed(place: Path, domains: list[str], classes: list[str]) -> list[tuple[str, int, int]]:
    """All image files with their class and domain, in the order of their names."""
    files = []
    for d, domain in enumerate(domains):
        for c, name in enumerate(classes):
            own = sorted(f for f in os.listdir(place / domain / name) if f.lower().endswith(PICTURES))
            if not own:
                kinds = ", ".join(PICTURES)
                raise DataNotFound(f"{place / domain / name} has no images ({kinds}); every class needs some.")
            files += [(f"{domain}/{name}/{file}", c, d) for file in own]
    return files


def decoded(place: Path, files: list[tuple[str, int, int]], shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Images uint8 [n, h, w, 3], classes and domains, kept in fednb-HEIGHTxWIDTH.npz."""

    def make() -> dict[str, np.ndarray]:
        x = np.empty((len(files), *shape[1:], 3), dtype=np.uint8)
        with bar_of(len(files), f"decoding {place.name}", unit="image") as bar:
            for i, (file, _, _) in enumerate(files):
                x[i] = small(place / file, shape)
                bar.update()
        y, owner = (np.array([row[at] for row in files], dtype=np.int64) for at in (1, 2))
        return {"x": x, "y": y, "owner": owner}

    about = marks("domains 1", files, shape, files=[place / file for file, _, _ in files])
    return kept(place / f"fednb-{shape[1]}x{shape[2]}.npz", about, make)


def small(file: Path, shape: tuple[int, ...]) -> np.ndarray:
    """One image as RGB of that height and width, without regard to its own: the usual way with Office-Home."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            seen = image.convert("RGB").resize((shape[2], shape[1]), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what broken files make it raise
        raise DataNotFound(f"{file} cannot be read: {error}. Replace or delete that image and run again.") from error
    return np.asarray(seen)


def held_out(place: Path, y: np.ndarray, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices (train, test): a fifth of every class in every domain is for testing."""
    train, test = stratified(owner * (y.max() + 1) + y, HELD_OUT)
    if not len(test):
        raise DataNotFound(f"{place} has fewer than three images of every class in every domain: none to test on.")
    return train, test


@dataclass(frozen=True)
class LeaveOneOut(Partition):
    """Clients hold the domains that are not the target, one domain each; the test set is the target domain, all of it.

    Clients go round the domains in turn and share each one's samples evenly, so that with as many clients as domains
    each has a whole one. FedWMSAM, Table 2 ("10% sample, 100% active"): share 0.1 with everyone in every round.
    target: the domain's number in the order of names; in Office-Home 0 Art, 1 Clipart, 2 Product, 3 Real World.
    share: so much of each class in each domain is dealt, at least one sample.
    seen: the target's training samples are dealt as well, and its held-out fifth alone is the test set.
    """

    target: int = 0
    share: float = 1.0
    seen: bool = switch()
    name: ClassVar[str] = "domains"

    def __post_init__(self):
        super().__post_init__()
        if self.share > 1:
            raise ValueError(f"{self.name}: share={self.share}; allowed is above 0 and at most 1.")

    def split(self, labels, clients, seed, owner=None):
        sources = self._sources(owner, clients)
        if clients > len(labels):
            raise PartitionFailed(f"clients={clients} for {len(labels)} samples; allowed is 1 to {len(labels)}.")
        rng, parts = stream(seed, "partition", self.name), [np.empty(0, dtype=np.int64)] * clients
        for at, domain in enumerate(sources):
            dealt = rng.permutation(_some(rng, labels, np.flatnonzero(owner == domain), self.share))
            theirs = range(at, clients, len(sources))
            if len(dealt) < len(theirs):
                raise PartitionFailed(
                    f"{self.name}: domain {domain} has {len(dealt)} samples for {len(theirs)} clients. "
                    "Lower clients or raise share."
                )
            for client, part in zip(theirs, np.array_split(dealt, len(theirs)), strict=True):
                parts[client] = np.sort(part)
        return parts

    def _sources(self, owner, clients: int) -> list[int]:
        """The domains that are trained on; refuse a target that is none, and domains without a client."""
        if owner is None:
            raise PartitionFailed(
                f"{self.name}: this data set knows no domains. office-home does (`fednb ls data`); for others take a "
                "partition by label, such as 'dirichlet(alpha=0.1)'."
            )
        known = np.unique(owner).tolist()
        if self.target not in known or len(known) < 2:
            raise PartitionFailed(f"{self.name}: target={self.target}; the data has domains {known}.")
        sources = [each for each in known if self.seen or each != self.target]
        if clients < len(sources):
            raise PartitionFailed(
                f"{self.name}: clients={clients} for {len(sources)} domains; each domain needs one at least."
            )
        return sources

    def changed(self, data, parts, seed):
        if data.owner is None or data.owner_test is None:
            return data
        return tested_on(data, self.target, self.seen)


def _some(rng: np.random.Generator, labels: np.ndarray, index: np.ndarray, share: float) -> np.ndarray:
    """A share of the samples of each class among some, at least one."""
    mine = np.asarray(labels)[index]
    chosen = [rng.permutation(index[mine == c]) for c in np.unique(mine)]
    return np.concatenate([each[: max(1, round(share * len(each)))] for each in chosen])


@lru_cache(maxsize=4)
def tested_on(data: Dataset, target: int, seen: bool) -> Dataset:
    """The data with the target domain as its test set: its held-out samples, and unless it was seen all others too."""
    assert data.owner is not None and data.owner_test is not None
    out = data.owner_test == target
    x, y, owner = data.x_test[out], data.y_test[out], data.owner_test[out]
    if not seen:
        all_else = data.owner == target
        x, y = torch.cat([data.x[all_else], x]), torch.cat([data.y[all_else], y])
        owner = torch.cat([data.owner[all_else], owner])
    return replace(data, x_test=x, y_test=y, owner_test=owner)
