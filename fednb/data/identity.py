"""Which samples a run was made with: a run's key has a data set's name alone, and files under that name may differ."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fednb.data.sources import available, load

Identity = dict[str, str]


class OtherSamples(ValueError):
    """A run in the store was made with other samples than lie here under the same name."""


def identity(name: str) -> Identity:
    """What a run writes down of its data: a fingerprint of the samples, the extent of their files, and the note."""
    data = load(name)
    return {"sha256": data.fingerprint, "files": extent(available(name)), "note": data.note}


def check(known: Identity | None, name: str, run: str, thoroughly: bool) -> None:
    """Refuse a run of the store that had other samples; without data here, or anything known, there is no objection.

    Unless thoroughly, files of the same extent are taken for the same without being read, which takes no time.
    """
    here = available(name)
    if not known or not here or (not thoroughly and known["files"] == extent(here)):
        return
    now = identity(name)
    if now["sha256"] != known["sha256"]:
        then, present = (f"{each['note'] or 'no subset'}, {each['sha256']}" for each in (known, now))
        raise OtherSamples(
            f"run {run} in the store was made with another {name!r} ({then}) than lies in {here} ({present}). "
            "Set FEDNB_DATA to the data that it had, or FEDNB_STORE to another folder for runs with these."
        )


@lru_cache(maxsize=8)
def extent(place: str) -> str:
    """How many files there are in a place, and how many bytes; '' where data come from no file. Looked at once."""
    path = Path(place)
    if not place or not path.exists():
        return ""
    sizes = [file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    return f"{len(sizes)} files, {sum(sizes)} bytes"
