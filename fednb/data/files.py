"""Files of data sets: the folder they lie in, downloads that leave nothing half done, and arrays made once."""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

import numpy as np

from fednb.base.progress import bar_of
from fednb.data.dataset import Damaged, DataNotFound

TIMEOUT = 15.0  # seconds a download may stay silent before it counts as failed


def root() -> Path:
    """The folder of the data: FEDNB_DATA, or `fednb/data` in the user's cache."""
    if given := os.environ.get("FEDNB_DATA"):
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "fednb" / "data"


def absent(name: str, looked: Iterable[str], where: Path, reason: str, way: str = "") -> str:
    """What was looked for, where, why it was not fetched, and the way out."""
    first, *more = looked
    others = f" and {len(more)} more" if more else ""
    way = way or "connect (without FEDNB_OFFLINE) and run again"
    return (
        f"{name!r} is not here: looked for {first}{others} in {where}; {reason}. "
        f"Set FEDNB_DATA to a folder that holds {where.name or where}, or {way}."
    )


def download(name: str, folder: Path, inside: str, files: Iterable[str], fetch: Callable[[Path], object]) -> None:
    """Let `fetch` fill a folder of its own and move the finished files, so a broken download leaves nothing.

    The files (or folders) lie in the folder `inside` ('.' for none), before and after.
    """
    files = list(files)
    lacking = [file for file in files if not (folder / inside / file).exists()] or files
    if os.environ.get("FEDNB_OFFLINE", "") not in ("", "0"):
        raise DataNotFound(absent(name, lacking, folder / inside, "downloads are off (FEDNB_OFFLINE is set)"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder, ignore_cleanup_errors=True) as part:
            with silence_limit(TIMEOUT):
                fetch(Path(part))
            (folder / inside).mkdir(parents=True, exist_ok=True)
            for file in files:
                os.replace(Path(part) / inside / file, folder / inside / file)
    except (OSError, RuntimeError, HTTPException, EOFError) as error:
        reason = f"the download failed: {str(error).strip() or type(error).__name__}"
        raise DataNotFound(absent(name, lacking, folder / inside, reason)) from error


def fetched(url: str, sum: str, file: Path) -> None:
    """One file from the network, checked against its md5 sum."""
    seen = hashlib.md5(usedforsecurity=False)
    with urlopen(url, timeout=TIMEOUT) as answer, open(file, "wb") as out:
        size = int(answer.headers.get("Content-Length") or 0) or None
        with bar_of(size, f"downloading {file.name}", unit="B") as bar:
            while block := answer.read(1 << 20):
                seen.update(block)
                out.write(block)
                bar.update(len(block))
    if seen.hexdigest() != sum:
        raise RuntimeError(f"{url} has the md5 sum {seen.hexdigest()}, expected {sum}")


def unzipped(url: str, sum: str, into: Path) -> None:
    """A zip file from the network, unpacked."""
    fetched(url, sum, into / "fetched.zip")
    try:
        with zipfile.ZipFile(into / "fetched.zip") as packed:
            members = packed.infolist()
            with bar_of(len(members), "unpacking", unit="file") as bar:
                for member in members:
                    packed.extract(member, into)
                    bar.update()
    except zipfile.BadZipFile as error:
        raise RuntimeError(f"{url}: {error}") from error


def md5(file: Path) -> str:
    """The md5 sum of a file."""
    with open(file, "rb") as f:
        return hashlib.file_digest(f, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def arrays_of(file: Path, *names: str) -> list[np.ndarray]:
    """Some arrays of an npz file."""
    try:
        with np.load(file) as found:
            return [found[name] for name in names]
    except KeyError as error:
        raise Damaged(f"{file.name}: {str(error).strip(chr(34))}") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise Damaged(f"{file.name} cannot be read: {error}") from error


def marks(*about: object, files: Iterable[Path] = ()) -> str:
    """A fingerprint of how arrays were made, and of the size and times of the files that they were made from."""
    found = [(file.name, file.stat()) for file in files]
    seen = [(name, at.st_size, at.st_mtime_ns, at.st_ctime_ns) for name, at in found]
    return hashlib.sha256(repr((about, seen)).encode()).hexdigest()


def kept(file: Path, fingerprint: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays that take long to make, made once and kept in a file; made again where the fingerprint is another.

    The file appears whole or not at all. In a folder that cannot be written the arrays are made each time.
    """
    with suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile), np.load(file) as found:
        if str(found["fingerprint"]) == fingerprint:
            return {name: found[name] for name in found.files if name != "fingerprint"}
    arrays = make()
    with suppress(OSError):
        descriptor, part = tempfile.mkstemp(prefix=".part-", suffix=".npz", dir=file.parent)
        try:
            with os.fdopen(descriptor, "wb") as out:
                np.savez(out, **arrays, fingerprint=np.array(fingerprint))  # type: ignore[arg-type]
            os.replace(part, file)
        finally:
            Path(part).unlink(missing_ok=True)
    return arrays


@contextmanager
def silence_limit(seconds: float) -> Iterator[None]:
    """Let network connections opened inside fail after that many silent seconds instead of waiting forever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
