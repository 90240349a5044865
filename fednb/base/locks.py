"""One process at a time: locks that fall with their process, and a refusal where the file system has none that work."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fednb.base.files import new_folder


class NotAlone(RuntimeError):
    """Nobody can tell whether another process works on the same thing."""


class Busy(RuntimeError):
    """Another process holds a lock that was not to be waited for."""


@dataclass(frozen=True)
class Held:
    """A lock that this process holds; without a descriptor where locks are switched off."""

    path: Path
    descriptor: int | None = None

    def check(self) -> None:
        """Raise NotAlone where the lock file was deleted or another one lies there: somebody else may hold that."""
        if self.descriptor is not None and not _is_there(self.path, self.descriptor):
            raise NotAlone(
                f"{self.path} was removed or replaced while this process held it; another process may be at work, so "
                f"this one stops. The same command goes on after the last saved round."
            )


@contextmanager
def lock(path: Path, waiting: str = "", wait: bool = True) -> Iterator[Held]:
    """Hold a lock file; wait while another process has it, or raise Busy. waiting: said once on stderr during a wait.

    FEDNB_LOCKS=off does without, for one process at a time on a file system that has no locks.
    """
    new_folder(path.parent)
    if os.environ.get("FEDNB_LOCKS") == "off":
        yield Held(path)
        return
    descriptor = _taken(path, waiting, wait)
    try:
        _check_that_it_holds(path)
        yield Held(path, descriptor)
    finally:
        os.close(descriptor)


def _taken(path: Path, waiting: str, wait: bool) -> int:
    """A descriptor of the lock file that is there, locked."""
    told = False
    while True:
        new_folder(path.parent)  # it may be set aside while we wait
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if _try(path, descriptor) and _is_there(path, descriptor):
            return descriptor
        os.close(descriptor)
        if not wait:
            raise Busy(f"{path} is held by another process")
        if waiting and not told:
            print(f"fednb: {waiting}", file=sys.stderr)
            told = True
        time.sleep(0.2)


def _try(path: Path, descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno == errno.EINTR:
            return False
        os.close(descriptor)
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            raise _no_locks(path, error.strerror) from None
        raise


def _check_that_it_holds(path: Path) -> None:
    """A second descriptor must not get the lock that we hold; a file system that gives it ignores locks."""
    second = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    finally:
        os.close(second)
    raise _no_locks(path, "the file system ignores them")


def _no_locks(path: Path, why: str | None) -> NotAlone:
    return NotAlone(f"{path}: locks do not work here ({why}). Where only one process at a time uses this store, set "
                    f"FEDNB_LOCKS=off; otherwise set FEDNB_STORE to a folder of a local disk.")  # fmt: skip


def _is_there(path: Path, descriptor: int) -> bool:
    """Whether the path still leads to the file of the descriptor."""
    try:
        there = os.stat(path)
    except OSError:
        return False
    here = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
