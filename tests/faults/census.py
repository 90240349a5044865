"""What a test left behind: processes that carry its mark, shared memory, temporary files of the store."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MARK = "FEDNB_CENSUS"
SHARED = Path("/dev/shm")
OURS = re.compile(r"fednb|psm_|torch_")
TEMPORARY = re.compile(r"^\..*\.(new|old|tmp)")  # hidden, and called fresh or old: what a write beside leaves behind
PATIENCE = 60.0  # seconds in which processes that are ending may end, also on a busy machine


@contextmanager
def marking() -> Iterator[str]:
    """Processes that are started in the block carry a mark, which it gives: `marked` finds them by it."""
    os.environ[MARK] = secrets.token_hex(8)
    try:
        yield os.environ[MARK]
    finally:
        del os.environ[MARK]


def marked(mark: str, but: frozenset[int] = frozenset()) -> list[str]:
    """The processes that were started with this mark in their environment, each as "pid command"."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) not in {os.getpid(), *but}:
            try:
                if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append(f"{folder.name} {command[:200]}")
            except OSError:  # it has ended, or is not ours
                continue
    return sorted(found)


def shared_memory() -> set[str]:
    """The names in shared memory that fednb, multiprocessing or torch give."""
    return {p.name for p in SHARED.iterdir() if OURS.match(p.name)} if SHARED.is_dir() else set()


def temporary(folder: Path) -> list[str]:
    """The temporary files below a folder."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if TEMPORARY.match(p.name))


def left(look: Callable[[], list[str]]) -> list[str]:
    """What is still there after a while."""
    until = time.monotonic() + PATIENCE
    while (found := look()) and time.monotonic() < until:
        time.sleep(0.05)
    return found
