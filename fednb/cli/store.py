"""The verb `fednb store check`: look at every file of the store, say what is wrong, and set damaged runs aside."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fednb.base.progress import bar_of
from fednb.runs import checkpoints, probes
from fednb.runs.store import DamagedRun, Entry, StoreError, entries, find, home, set_aside, writing
from fednb.study.execution import check_pages

MEASUREMENT, MEASURED = "one measurement", ("measured", "landscapes")
TRIES = 5  # a run at work changes while it is looked at


def add_store(verb: argparse.ArgumentParser) -> None:
    check = verb.add_subparsers(required=True, metavar="check").add_parser(
        "check", help="look at every file of every run, and at executed pages"
    )
    check.add_argument("keys", nargs="*", metavar="KEY", help="only these runs; the beginning of a key is enough")
    check.add_argument("--repair", action="store_true", help="set what is damaged aside, in the store's set-aside/")
    check.set_defaults(do=do_store)


def do_store(asked: argparse.Namespace) -> int:
    """Exit status 0 where everything is sound or was set aside, 1 where damage is left."""
    chosen = list(dict.fromkeys(map(find, asked.keys))) if asked.keys else entries()
    damaged = unchecked = left = 0
    with bar_of(len(chosen), "checking", unit="run") as bar:
        for entry in chosen:
            wrong = problems(entry)
            damaged += bool(wrong)
            for error in wrong:
                print(error, flush=True)
            if wrong and asked.repair:
                left += len(_repair(entry))
            elif not wrong and "unchecked" in entry.about():
                print(f"{entry.folder}: unchecked, an older version wrote it without digests", flush=True)
                unchecked += 1
            bar.update()
    pages = [] if asked.keys else check_pages()
    for line in pages:
        print(line)
    print(_summary(len(chosen), damaged, unchecked, len(pages)))
    return 1 if pages or (left if asked.repair else damaged) else 0


def _summary(runs: int, damaged: int, unchecked: int, pages: int) -> str:
    sound = runs - damaged - unchecked
    ends = f"; {pages} problem{'s' * (pages != 1)} with pages" * bool(pages)
    return f"{home()}: {runs} runs, {sound} sound, {unchecked} unchecked, {damaged} damaged{ends}"


def problems(entry: Entry) -> list[StoreError]:
    """Everything that is wrong with a run: the errors that reading its files raises.

    A run at work replaces files while they are read: what was found then does not count, and is looked at again.
    """
    for _ in range(TRIES):
        before = _moment(entry)
        found = list(_problems(entry))
        if not found or _moment(entry) == before:
            return found
    return []


def _moment(entry: Entry) -> list[Any]:
    """What changes whenever a run at work writes."""
    files = [entry.folder / name for name in ("run.json", "state.safetensors", "history.csv", "writer")]
    return [(s.st_ino, s.st_size, s.st_mtime_ns) if (s := _stat(path)) else None for path in files]


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _problems(entry: Entry) -> Iterator[StoreError]:
    for check in _checks(entry):
        try:
            check()
        except StoreError as error:
            yield error
            if error.args[1:2] == (entry.folder / "run.json",):  # says what else there must be
                return


def _checks(entry: Entry) -> Iterator[Callable[[], Any]]:
    """One after another, what must go without an error."""
    yield entry.about
    yield entry.history
    about = entry.about()
    if not entry.bare and (about.get("saved") or entry.state.exists()):
        yield partial(checkpoints.check_saved, entry)
    kept = about.get("probe", {}).get("rounds", [])
    finished = _finished_rounds(entry)
    named = (re.fullmatch(r"round-(\d{6,}).safetensors", path.name) for path in entry.folder.glob("probes/*"))
    there = [int(match[1]) for match in named if match]
    for t in sorted({*(t for t in kept if t < finished and not entry.bare), *there}):
        yield partial(probes.read_probe, entry, t)
    for path in (path for name in MEASURED for path in sorted(entry.folder.glob(f"{name}/*.safetensors"))):
        yield partial(entry.read, path, MEASUREMENT)


def _finished_rounds(entry: Entry) -> int:
    try:
        known = entry.extent()
    except (RuntimeError, OSError):
        return 0  # said already
    return known[1] if known else 0


def _repair(entry: Entry) -> list[StoreError]:
    """Set a damaged run aside, or its damaged measurements alone; returns what could not be."""
    with entry.lock(), writing(entry.folder):
        found = problems(entry)  # it may have been repaired while we waited for the lock
        damaged = [error for error in found if isinstance(error, DamagedRun)]
        alone = [error.path for error in damaged if error.lost == MEASUREMENT]
        for path in alone if len(alone) == len(damaged) else [entry.folder]:
            print(f"{path}: set aside as {set_aside(path, entry.key)}", flush=True)
        return [error for error in found if error not in damaged]
