"""The folders of pages and of kept results: their names and locks, and their files, which are checked when read."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.base import files
from fednb.base.files import Contents, DamagedFile
from fednb.base.locks import Held, lock
from fednb.runs.grid import SCALES
from fednb.runs.store import home, place_aside

if TYPE_CHECKING:
    import pandas as pd

Abouts = dict[str, dict[str, Any]]  # what is known of each run, by key


class BadPage(ValueError):
    """A name or a scale that no page can have."""


PART = re.compile(r"[\w-][\w. -]*")  # of a page's name: it leads neither up nor elsewhere


def page_folder(notebook: str, scale: str) -> Path:
    """The folder in the store for what a notebook shows at a scale."""
    if scale not in SCALES:
        raise BadPage(f"no scale {scale!r}; the scales are {', '.join(SCALES)}")
    if not isinstance(notebook, str) or not all(PART.fullmatch(part) for part in notebook.split("/")):
        raise BadPage(f"no notebook can be called {notebook!r}; a name is such as fedfft/01_fig1")
    return home() / "notebooks" / notebook / scale


def page_lock(folder: Path) -> AbstractContextManager[Held]:
    """Held while files of a page or of kept results change, or while new ones take their place.

    Its file lies beside a page, and in the store for any other folder.
    """
    path = folder.with_name(f".{folder.name}.lock")
    if not folder.is_relative_to(home()):
        path = home() / "locks" / f"{folder.name}-{files.digest(os.fsencode(folder.absolute()))[:16]}.lock"
    return lock(path, f"{folder} is being written by another process; waiting for it")


def put_back(folder: Path) -> Path:
    """A page or kept results, put back where a kill left them without their name; where the disk can be written to."""
    if not folder.exists() and any(folder.parent.glob(f".{glob.escape(folder.name)}.*.old")):
        with suppress(OSError, RuntimeError), page_lock(folder):
            files.restore(folder)
    return folder


def read_table(path: Path, **how: Any) -> pd.DataFrame:
    """A CSV file of a page or of kept results, checked."""
    import pandas as pd

    check(path)
    try:
        return pd.read_csv(path, **how)
    except ValueError:
        raise DamagedFile(path, f"is not a table; {remedy(path.parent)}") from None


def read_runs(path: Path) -> Abouts:
    """A runs.json of a page or of kept results, checked."""
    check(path)
    try:
        runs = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise DamagedFile(path, f"is not JSON; {remedy(path.parent)}") from None
    if not isinstance(runs, dict) or not all(isinstance(about, dict) for about in runs.values()):
        raise DamagedFile(path, f"is not an object of runs by key; {remedy(path.parent)}")
    return runs


def check(path: Path) -> None:
    """Raise DamagedFile where a file of a page or of kept results is not what was written; an older one passes."""
    contents = contents_of(path.parent)
    try:
        contents.check_file(path.name)
    except DamagedFile as error:
        raise DamagedFile(error.path, f"{error.what}; {remedy(path.parent)}") from None


def contents_of(folder: Path) -> Contents:
    """The list of the files of a page or of stored results; DamagedFile names the command that makes it again."""
    try:
        return Contents.of(folder)
    except DamagedFile as error:
        raise DamagedFile(error.path, f"{error.what}; {remedy(folder)}") from None


def remedy(folder: Path) -> str:
    """The advice in an error about a damaged page or stored results: which command makes it again."""
    told = folder / "command.txt"
    if told.is_file():
        command = told.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    elif folder.is_relative_to(home() / "notebooks"):
        command = f"fednb notebook {folder.parent.relative_to(home() / 'notebooks')} --scale {folder.name}"
    else:
        return "execute its notebook again"
    return f"`{command}` makes it again"


def copy_aside(path: Path) -> Path:
    """Copy a file or folder, whose place something else will take, to set-aside/NAME-N of the store."""
    target = place_aside("-".join(path.parts[-3:]))
    if path.is_dir():
        shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copyfile(path, target / path.name)
    files.sync_below(target)
    return target
