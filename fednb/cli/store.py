"""The verbs of `fednb store`: list, show, check and remove what is kept; export runs, import and compare them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fednb.base.checks import is_number
from fednb.base.locks import Busy
from fednb.base.progress import bar_of
from fednb.cli.again import command_of
from fednb.cli.choosing import add_filters, add_keys, filtered, is_filtered, named_runs, readable, runs_of, size_of
from fednb.cli.transfer import add_compare, add_export, add_import
from fednb.runs.listing import remove, remove_set_aside, size_by_kind
from fednb.runs.soundness import MEASUREMENT, checks
from fednb.runs.store import DamagedRun, Entry, StoreError, entries, find, home, set_aside, writing
from fednb.study.columns import fitting
from fednb.study.execution import check_pages
from fednb.study.kept_runs import KeptRun, find_kept

SHOWN = 10  # rows of a run's measurements
TRIES = 5  # a run at work changes while it is looked at


def add_store(verb: argparse.ArgumentParser) -> None:
    kinds = verb.add_subparsers(required=True, metavar="ls | show | size | check | export | import | compare | rm")
    ls = kinds.add_parser("ls", help="the runs of the store as a table")
    add_keys(ls)
    add_filters(ls)
    ls.add_argument("--csv", action="store_true", help="as CSV, with sizes in bytes and ages in days")
    ls.set_defaults(do=do_ls)
    add_show(kinds.add_parser("show", help="a run: what it is, and its last rounds"))
    kinds.add_parser("size", help="how much there is of each kind of file").set_defaults(do=do_size)
    _add_check(kinds.add_parser("check", help="look at every file of every run, and at executed pages"))
    add_export(kinds.add_parser("export", help="write runs to one file, to be imported elsewhere"))
    add_import(kinds.add_parser("import", help="take in the runs of such a file, or of a folder of runs"))
    add_compare(kinds.add_parser("compare", help="how far runs that were made twice are apart, here and there"))
    rm = kinds.add_parser("rm", help="remove runs for good; asks first")
    add_keys(rm)
    add_filters(rm)
    rm.add_argument("--set-aside", action="store_true", help="everything in the store's set-aside/, too")
    rm.add_argument("--yes", action="store_true", help="do not ask")
    rm.set_defaults(do=do_rm)


def add_show(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("key", help="its key, or the beginning of it, such as a caption has")
    verb.set_defaults(do=do_show)


def _add_check(verb: argparse.ArgumentParser) -> None:
    add_keys(verb)
    verb.add_argument("--repair", action="store_true", help="set what is damaged aside, in the store's set-aside/")
    verb.set_defaults(do=do_check)


def do_ls(asked: argparse.Namespace) -> int:
    found = filtered(asked, named_runs(asked))
    if asked.csv:
        print(found.to_csv(), end="")
        return 0
    if len(found):
        print(readable(found))
    print(f"{home()}: {runs_of(len(found))}, {size_of(found['bytes'].sum())}")
    return 0


def do_show(asked: argparse.Namespace) -> int:
    """A run of the store or of a paper: what it is, its last rounds or measurements, and what makes it again."""
    kept = None if any(entry.key.startswith(asked.key) for entry in entries()) else find_kept(asked.key)
    if kept and not kept.entry:
        return _show_results(kept)
    entry = kept.entry if kept and kept.entry else find(asked.key)
    about, rows = entry.about(), entry.history()
    print(json.dumps(about, indent=1, ensure_ascii=False))
    if "unchecked" in about:
        print("unchecked: an older version wrote it without digests")
    print(_rounds(rows[-10:]) if rows else "no finished round")
    print(
        f"{len(rows)} finished rounds in {entry.folder}{', kept with a paper; the store does not have it' * bool(kept)}"
    )
    _say_again(about, entry.key)
    return 0


def _say_again(about: dict[str, Any], key: str) -> None:
    """Print the command that makes a run again, where there is one."""
    if found := command_of(about):
        other = "" if found.key == key else f", in this version as run {found.key},"
        print(f"made again{other} by: {found.text}")


def _rounds(rows: list[dict[str, Any]]) -> str:
    """Rows of a history or of a tidy table for people: rounds count from 1."""
    counted = [row | {"round": row["round"] + 1} if is_number(row.get("round")) else row for row in rows]
    return fitting([{name.replace("_", " "): value for name, value in row.items()} for row in counted])


def _show_results(kept: KeptRun) -> int:
    """Print a run of which a paper's results tell what it is and what was measured, without its rounds."""
    print(json.dumps(kept.about(), indent=1, ensure_ascii=False))
    measured = kept.measured()
    if len(measured):
        print(_rounds(measured.fillna("").to_dict("records")[:SHOWN]))
    more = f" and {kept.more} other results" * bool(kept.more)
    print(f"the store does not have it; kept without its rounds in {kept.place / 'runs.json'}{more}")
    _say_again(kept.about(), kept.key)
    return 0


def do_size(asked: argparse.Namespace) -> int:
    found = size_by_kind()
    shown = found.assign(size=[size_of(x) for x in found["bytes"]])
    print(shown[["files", "size"]].reset_index().to_string(index=False))
    print(f"{home()}: {found['files'].sum()} files, {size_of(found['bytes'].sum())}")
    return 0


def do_rm(asked: argparse.Namespace) -> int:
    """Exit status 0 where everything was removed, 1 where a run is at work or nobody agreed."""
    named = asked.keys or is_filtered(asked)
    if not named and not asked.set_aside:
        raise ValueError(
            "rm: which runs? Name keys or say which, such as --older-than 30d; `fednb store ls` lists them"
        )
    found = filtered(asked, named_runs(asked) if named else [])
    if len(found):
        print(readable(found), flush=True)
    what = f"{runs_of(len(found))} ({size_of(found['bytes'].sum())}){' and all that was set aside' * asked.set_aside}"
    if (len(found) or asked.set_aside) and not asked.yes and not _agreed(what):
        return 1
    freed, left = remove_set_aside() if asked.set_aside else 0, 0
    with bar_of(len(found), "removing", unit="run") as bar:
        for key in found.index:
            try:
                freed += remove(Entry.of(key))
            except Busy:
                print(f"fednb: run {key} is at work in another process; it stays", file=sys.stderr)
                left += 1
            bar.update()
    print(f"{runs_of(len(found) - left)} removed, {size_of(freed)} freed")
    return 1 if left else 0


def _agreed(what: str) -> bool:
    """Ask on a terminal; where nobody can be asked it is refused."""
    if not sys.stdin.isatty():
        raise ValueError(f"rm: {what} would be removed for good; say --yes")
    try:
        return input(f"remove {what} for good? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def do_check(asked: argparse.Namespace) -> int:
    """Exit status 0 where everything is sound or was set aside, 1 where damage is left."""
    chosen = named_runs(asked)
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
    for check in checks(entry):
        try:
            check()
        except StoreError as error:
            yield error
            if error.args[1:2] == (entry.folder / "run.json",):  # says what else there must be
                return


def _repair(entry: Entry) -> list[StoreError]:
    """Set a damaged run aside, or its damaged measurements alone; returns what could not be."""
    with entry.lock(), writing(entry.folder):
        found = problems(entry)  # it may have been repaired while we waited for the lock
        damaged = [error for error in found if isinstance(error, DamagedRun)]
        alone = [error.path for error in damaged if error.lost == MEASUREMENT]
        for path in alone if len(alone) == len(damaged) else [entry.folder]:
            print(f"{path}: set aside as {set_aside(path, entry.key)}", flush=True)
        return [error for error in found if error not in damaged]
