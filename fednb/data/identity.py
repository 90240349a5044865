"""Which samples a run was made with: a run's key has a data set's name alone, and files under that name may differ.

A fingerprint of samples takes as long as loading them. It is noted beside the data sets, with the state of the files
(names, sizes, times, inodes) that they were read from, and holds until that state is another one.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fednb.base.files import DamagedFile, read_json, write_json
from fednb.base.version import __version__
from fednb.data import sources
from fednb.data.dataset import Given
from fednb.data.files import root
from fednb.data.sources import available, load

Identity = dict[str, str]
NOTES = "fednb-samples.json"  # in the data folder
MADE = ("fednb-*.npz", ".part-*")  # files that readers put there, which have marks of what they were made from
MANY, PATIENCE = 1000, 10.0  # more files than that are looked at again after so many seconds


class OtherSamples(ValueError):
    """A run in the store was made with other samples than lie here under the same name."""


class Look(NamedTuple):
    """What was seen of a place: the extent of its files, a fingerprint of their state, and until when both count."""

    extent: str = ""
    state: str = ""
    until: float = 0.0


_looks: dict[str, Look] = {}  # by place
_current: dict[tuple[str, str], str] = {}  # by name and place: the state of the files when a run last asked for them
_notes: dict[tuple[str, str], str] = {}  # by name and state: the fingerprint of the samples


def identity(name: str) -> Identity:
    """What a run writes down of its data: a fingerprint of the samples, the extent of their files, and the note."""
    place = available(name)
    if (name, place) not in _current:
        _renew(name, place)
    data = load(name)
    place = available(name)  # it may have been downloaded
    _note(name, place, data.fingerprint)
    return {"sha256": data.fingerprint, "files": extent(place), "note": data.note}


def check(known: Identity | None, name: str, run: str, thoroughly: bool) -> None:
    """Refuse a run of the store that had other samples; without data here, or anything known, there is no objection.

    Data whose files have changed since they were loaded are forgotten, so that the next who asks reads them again.
    Thoroughly, it is the samples in memory that are compared; otherwise a noted fingerprint of the files is enough.
    """
    here = available(name)
    _renew(name, here)
    if not known or not here:
        return
    now = load(name).fingerprint if thoroughly else _fingerprint(name, here, known)
    if now != known["sha256"]:
        then, present = (f"{each['note'] or 'no subset'}, {each['sha256']}" for each in (known, identity(name)))
        found = f"run {run} in the store was made with another {name!r} ({then}) than"
        if isinstance(sources.find(name).reader, Given):
            raise OtherSamples(f"{found} has the name now ({present}). Enter the former again with fn.add_data.")
        raise OtherSamples(
            f"{found} lies in {here} ({present}). "
            "Set FEDNB_DATA to the data that it had, or FEDNB_STORE to another folder for runs with these."
        )


def extent(place: str) -> str:
    """How many files there are in a place, and how many bytes; '' where data come from no file."""
    return _look(place).extent


def _renew(name: str, place: str) -> None:
    """Forget the samples in memory where the files have changed since, or nobody knows which files they are of."""
    state, before = _look(place).state, _current.get((name, place))
    if state and state != before and (before is not None or _noted(name, state) is None):
        sources.held.cache_clear()
    _current[name, place] = state


def _fingerprint(name: str, place: str, known: Identity) -> str:
    """The fingerprint of the samples in a place, noted or read; data that never came from files are those known."""
    state = _look(place).state
    if not state and not known["files"]:
        return known["sha256"]
    return _noted(name, state) or identity(name)["sha256"]


def _note(name: str, place: str, fingerprint: str) -> None:
    """Note a fingerprint where the files are still what they were when they were asked for."""
    state = _look(place).state
    if not state or state != _current.get((name, place)) or _noted(name, state) is not None:
        return
    _notes[name, state] = fingerprint
    with suppress(OSError):  # a folder that cannot be written
        write_json(root() / NOTES, _written() | {name: [state, fingerprint]})


def _noted(name: str, state: str) -> str | None:
    """The fingerprint of samples whose files are in that state; None where nobody noted it."""
    if (name, state) not in _notes:
        match _written().get(name):
            case [str(noted), str(fingerprint)] if noted == state:
                _notes[name, state] = fingerprint
    return _notes.get((name, state))


def _written() -> dict[str, Any]:
    try:
        return read_json(root() / NOTES)
    except (OSError, DamagedFile):
        return {}


def _look(place: str) -> Look:
    """What is in a place now; of many files, what was there a moment ago."""
    if place in _looks and time.monotonic() < _looks[place].until:
        return _looks[place]
    found = sorted(_files(Path(place))) if place else []
    if not found:
        return Look()
    said = f"{len(found)} files, {sum(size for _, size, *_ in found)} bytes"
    kept = [each for each in found if not any(Path(each[0]).match(pattern) for pattern in MADE)]
    state = hashlib.sha256(f"{__version__} {kept}".encode()).hexdigest()
    _looks[place] = Look(said, state, time.monotonic() + (PATIENCE if len(found) > MANY else 0.0))
    return _looks[place]


def _files(place: Path) -> Iterator[tuple[str, int, int, int, int]]:
    """The path, size, times and inode of each file in a place, links followed."""
    met = set()
    walk = [(str(place.parent), [], [place.name])] if place.is_file() else os.walk(place, followlinks=True)
    for folder, below, names in walk:
        if (own := os.path.realpath(folder)) in met:
            below.clear()
            continue
        met.add(own)
        for path in (os.path.join(folder, name) for name in names):
            with suppress(FileNotFoundError):  # taken away meanwhile
                at = os.stat(path)
                yield path, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino
