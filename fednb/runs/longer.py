"""A longer run goes on from a finished shorter one that differs from it in nothing but the number of rounds."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from fednb.core.record import LocalTraining
from fednb.data import identity
from fednb.runs.checkpoints import check_saved
from fednb.runs.keys import identify, key_of
from fednb.runs.result import Run
from fednb.runs.store import Entry, StoreError, home

ALIKE = ("mode", "device_name")  # of run.json: what decides the bits beside the key and the engine
SAME_BITS = {"pool": "loop"}  # engines


def shorter_run(wanted: Run, about: dict[str, Any]) -> Run | None:
    """The longest finished run that is the beginning of this one, bit for bit; None where there is none.

    about: what run.json will say of the wanted run. Engine, device and torch must be the shorter run's, and its last
    round must be one that the longer run tests, too. A diverged run is none: it would end where that one ended.
    """
    if any(f.name == "rounds" for f in fields(LocalTraining)):  # then a step may depend on how many rounds there are
        return None
    described = identify(wanted.setting, wanted.method, wanted.seed)
    if "once" in described:
        return None
    with suppress(FileNotFoundError):
        there = set(os.listdir(home() / "runs"))
        every = wanted.setting.evaluate_every
        for rounds in range((wanted.setting.rounds - 1) // every * every, 0, -every):
            described["run"][0]["rounds"] = rounds
            if (key := key_of(described)) in there:
                found = replace(wanted, entry=Entry.of(key), setting=wanted.setting.but(rounds=rounds))
                if _begins(found, about):
                    return found
    return None


def _begins(found: Run, about: dict[str, Any]) -> bool:
    """True if a shorter run is finished and whole, and was made as the longer one would be."""
    try:
        theirs = found.about
        engines = {SAME_BITS.get(each["engine"], each["engine"]) for each in (theirs, about)}
        alike = len(engines) == 1 and all(theirs.get(name) == about.get(name) for name in ALIKE)
        if found.status != "finished" or found.entry.bare or not alike:
            return False
        identity.check(theirs.get("data"), found.setting.data, found.key, thoroughly=True)
        if theirs["versions"]["torch"] != about["versions"]["torch"]:
            return False
        check_saved(found.entry)
        return True
    except (StoreError, KeyError, ValueError) as error:
        print(f"fednb: run {found.key} is not gone on from: {error}", file=sys.stderr)
        return False
