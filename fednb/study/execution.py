"""Pages and kept results on the disk: made in a fresh folder, put in place when they are whole, checked when read."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fednb.base import files
from fednb.base.files import Contents, DamagedFile
from fednb.base.locks import lock
from fednb.runs.grid import SCALES
from fednb.runs.store import home
from fednb.study.folders import (
    Abouts,
    check,
    contents_of,
    copy_aside,
    page_folder,
    page_lock,
    put_back,
    read_runs,
    remedy,
)
from fednb.study.paper import Paper, shelf

EXECUTED = "executed.ipynb"
COMMAND = "command.txt"
SHOWN = ("*.csv", "*.png", "runs.json")  # what is kept with a paper
JUDGED_ANEW = "verdict.csv"  # not kept: claims are judged on the kept tables whenever they are shown
OF_PAGE = (*SHOWN, "*.txt", EXECUTED)  # what fednb writes into a page, for pages from before there were lists
OF_KEPT = (*SHOWN, COMMAND)


class NothingToKeep(ValueError):
    """A page without tables, figures or runs."""


class KeepsFewer(ValueError):
    """A page that lacks runs which are kept now, and would take their place."""


def failed_folder(name: str, scale: str) -> Path:
    """Where an execution that failed lies, beside the last good one."""
    page = page_folder(name, scale)
    return page.with_name(f"{page.name}-failed")


@contextmanager
def fresh_page(name: str, scale: str) -> Iterator[Path]:
    """An empty folder for an execution, which becomes the page at the end of the block.

    After an error the last good page is as it was, and what there is of the new one lies in `failed_folder`. Another
    process that executes the same page is waited for.
    """
    page = page_folder(name, scale)
    waiting = f"{name} is being executed at {scale} scale by another process; waiting for it"
    with lock(page.with_name(f".{scale}.executing"), waiting):
        _settle(page)
        fresh = files.new_folder(files.beside(page))
        try:
            yield fresh
            _carry_executed(page, fresh)
            _list_all(fresh)
            with page_lock(page):
                _take_place(fresh, page, OF_PAGE)
        except BaseException:
            with suppress(OSError, RuntimeError):
                _put_away(fresh, failed_folder(name, scale))
            shutil.rmtree(fresh, ignore_errors=True)
            raise


def _settle(folder: Path) -> None:
    """Put back or remove what a kill left beside a page; only for who executes it."""
    with page_lock(folder):
        for name in (folder.name, f"{folder.name}-failed"):
            files.sweep(folder.parent, of=name)


def _list_all(folder: Path) -> None:
    """List every file of a folder that fednb made."""
    files.sweep(folder)
    contents = Contents(folder)
    for path in sorted(p for p in folder.iterdir() if p.is_file() and p.name != files.LIST):
        contents.add(path.name)
    contents.save()


def _carry_executed(page: Path, fresh: Path) -> None:
    """Keep the executed copy where a notebook was executed as a plain program, which makes none."""
    if not (fresh / EXECUTED).exists():
        with suppress(FileNotFoundError, DamagedFile):
            _read_executed(page)
            shutil.copyfile(page / EXECUTED, fresh / EXECUTED)


def _put_away(fresh: Path, failed: Path) -> None:
    """Let a failed execution take the place of an earlier one, if it came so far as to write anything."""
    if any(fresh.iterdir()):
        _list_all(fresh)
        _take_place(fresh, failed, OF_PAGE)


def _take_place(fresh: Path, target: Path, kinds: tuple[str, ...]) -> None:
    """Let a whole folder take the place of the last one: only files that fednb listed go, and only if they are whole.

    Others are carried over. A folder that is damaged, or from before there were lists, is copied to `set-aside` first.
    kinds: what fednb writes there, for a folder without a list.
    """
    if target.is_dir():
        foreign = _foreign(target, kinds)
        why = _not_ours(target) or next((f"{p.name} is not by fednb" for p in foreign if (fresh / p.name).exists()), "")
        if why:
            print(f"fednb: {target} is replaced; as it was ({why}): {copy_aside(target)}", file=sys.stderr)
        for path in foreign:
            _carry(path, fresh / path.name)
    try:
        files.swap(fresh, target)
    except BaseException:
        files.restore(target)
        raise


def _not_ours(folder: Path) -> str:
    """Why a folder's files are not known to be as fednb wrote them; nothing where they are."""
    try:
        contents = Contents.of(folder)
        contents.check()
    except DamagedFile as error:
        return f"{error.path.name} {error.what}"
    return "" if contents.listed else "it has no list of its files"


def _foreign(folder: Path, kinds: tuple[str, ...]) -> list[Path]:
    """What lies in a folder that fednb did not write, by its list or else by what it writes there."""
    try:
        contents = Contents.of(folder)
    except DamagedFile:
        contents = Contents(folder)
    by_kind = {path.name for kind in kinds for path in folder.glob(kind)}
    mine = {files.LIST, *(contents.files if contents.listed else by_kind)}
    return sorted(p for p in folder.iterdir() if p.name not in mine and not files.LEFTOVER.fullmatch(p.name))


def _carry(path: Path, to: Path) -> None:
    if to.exists():
        return
    if path.is_dir() and not path.is_symlink():
        shutil.copytree(path, to, symlinks=True)
    else:
        shutil.copy2(path, to, follow_symlinks=False)


def keep(page: Path, target: Path, command: str, fewer: bool = False) -> Path:
    """Copy what a page shows (tables, figures, provenance) to `target`; what is there stays until the copy is whole.

    command: what makes it again. Hand-written files in `target` stay. fewer: also where the page lacks runs that
    `target` has; else it is refused.
    """
    with page_lock(target):
        files.sweep(files.new_folder(target.parent), of=target.name)
        fresh = files.new_folder(files.beside(target))
        try:
            with page_lock(page):
                _copy_shown(page, fresh)
            if not fewer:
                _refuse_fewer(fresh, target)
            files.atomically(fresh / COMMAND, command + "\n")
            _list_all(fresh)
            _take_place(fresh, target, OF_KEPT)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    return target


def _copy_shown(page: Path, fresh: Path) -> None:
    """Copy a page's tables, figures and runs.json, each checked; a page with a damaged file is refused."""
    listed = contents_of(page)
    for name in listed.files:
        check(page / name)
    found = [path for kind in SHOWN for path in sorted(page.glob(kind)) if path.name != JUDGED_ANEW]
    shown = [path for path in found if path.name in listed.files or not listed.listed]
    if not shown:
        raise NothingToKeep(f"{page} has no table, figure or runs.json to keep")
    for path in shown:
        shutil.copyfile(path, fresh / path.name)
        if listed.listed and files.digest_of(fresh / path.name) != listed.files[path.name]:
            raise DamagedFile(path, f"changed while it was copied; {remedy(page)}")


def _refuse_fewer(fresh: Path, target: Path) -> None:
    """Raise KeepsFewer where kept runs would go of which the new results have no like one."""
    new, kept = list(_runs_in(fresh).values()), list(_runs_in(target).values())
    lost = [about for about in kept if not any(_alike(about, other) for other in new)]
    if lost:
        first = f"{lost[0].get('method')} with seed {lost[0].get('seed')}"
        raise KeepsFewer(f"{target} stays as it is: runs that the new page lacks: {len(lost)} of {len(kept)}, the "
                         f"first {first}; make or import them, or add --fewer to keep it without them")  # fmt: skip


def _runs_in(folder: Path) -> Abouts:
    """What is known of the runs in a folder; nothing where they cannot be read."""
    try:
        return read_runs(folder / "runs.json")
    except (DamagedFile, OSError):
        return {}


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """True if two runs are one experiment with one seed, as far as both say: versions may give it other keys."""
    ours, theirs = one.get("setting", {}), other.get("setting", {})
    same = all(one.get(name) == other.get(name) for name in ("method", "parts", "seed"))
    return same and all(theirs.get(name, value) == value for name, value in ours.items())


def written(folder: Path) -> list[Path]:
    """The files of a page that fednb wrote, the oldest first."""
    return sorted((folder / name for name in contents_of(folder).files), key=lambda path: path.stat().st_mtime_ns)


def read_executed(name: str, scale: str) -> dict[str, Any]:
    """The executed copy of a notebook, checked. FileNotFoundError where there is none, DamagedFile where it is torn."""
    page = page_folder(name, scale)
    try:
        return _read_executed(page)
    except (DamagedFile, FileNotFoundError):  # once more: it may have been replaced just now
        return _read_executed(put_back(page))


def _read_executed(page: Path) -> dict[str, Any]:
    path = page / EXECUTED
    check(path)
    try:
        book = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise DamagedFile(path, f"is not JSON; {remedy(page)}") from None
    if not is_notebook(book):
        raise DamagedFile(path, f"is not a notebook; {remedy(page)}")
    return book


def is_notebook(book: Any) -> bool:
    """Whether what was read has the form of a notebook: cells with sources, and what papermill and fednb say of it."""
    if not isinstance(book, dict) or not isinstance(about := book.get("metadata"), dict):
        return False
    told = all(isinstance(about.get(name, {}), dict) for name in ("papermill", "fednb"))
    return told and isinstance(cells := book.get("cells"), list) and all(map(_is_cell, cells))


def _is_cell(cell: Any) -> bool:
    return (
        isinstance(cell, dict) and {"cell_type", "source"} <= set(cell) and isinstance(cell.get("metadata", {}), dict)
    )


def problems_of(folder: Path) -> list[str]:
    """What is wrong with a page or with kept results: one line for each damaged file."""
    try:
        names = list(contents_of(folder).files)
    except DamagedFile as error:
        return [str(error)]
    found = []
    for name in names:
        try:
            check(folder / name)
        except DamagedFile as error:
            found.append(str(error))
    return found


def page_problems(name: str, scale: str) -> list[str]:
    """What is wrong with a notebook's page: nothing where there is none."""
    found = problems_of(page_folder(name, scale))
    try:
        read_executed(name, scale)
    except FileNotFoundError:
        pass
    except DamagedFile as error:
        found += [str(error)] * (str(error) not in found)
    return found


def pages() -> list[tuple[str, str]]:
    """The notebooks and scales that have a page in the store."""
    root = home() / "notebooks"
    found = {p.parent for kind in (EXECUTED, files.LIST, "runs.json") for p in root.rglob(kind)}
    inside = [p.relative_to(root) for p in found if p.name in SCALES]
    return sorted((p.parent.as_posix(), p.name) for p in inside if not any(part.startswith(".") for part in p.parts))


def check_pages() -> list[str]:
    """What is wrong with any page of the store, or with kept results, the papers' or the user's own: a line each."""
    results = results_folders()
    for old in (*(home() / "notebooks").rglob(".*.old"), *(old for folder in results for old in folder.glob(".*.old"))):
        if match := files.LEFTOVER.fullmatch(old.name):
            put_back(old.with_name(match["name"]))
    found = [problem for name, scale in pages() for problem in page_problems(name, scale)]
    kept = (p for folder in results for p in sorted(folder.glob("*")) if p.is_dir() and not p.name.startswith("."))
    return found + [problem for folder in kept for problem in problems_of(folder)]


def results_folders() -> list[Path]:
    """The folders of kept results, of each paper those that came with it and the user's own."""
    papers = [Paper(folder) for folder in sorted(shelf("papers").glob("*")) if folder.is_dir()]
    return list(dict.fromkeys(folder for paper in papers for folder in (paper.folder / "results", paper.own_results)))
