"""Files that are whole or not there: written beside, synced, put in place at once; read back with their digests.

A file takes its place only when all of it is on the disk, so that a reader, a kill or a power cut finds the old one or
the new one. What is kept carries a digest of its own; what does not fit it is damaged and never used.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor

LEFTOVER = re.compile(r"\.(?P<name>.+)\.\d+-[0-9a-f]{8}\.(?P<kind>new|old)", re.DOTALL)
NO_DIGEST = "0" * 64  # stands in a file while its digest is computed
MARK = "has_digest"  # beside the digest, so that one whose name is damaged is missed
LIST = "contents.json"


class DamagedFile(RuntimeError):
    """A file that is not what was written."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path, self.what = path, what

    def __reduce__(self) -> tuple[Any, ...]:
        return DamagedFile, (self.path, self.what)


def beside(path: Path, kind: str = "new") -> Path:
    """A hidden name in the same folder that nobody else uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.{kind}")


def sync_folder(folder: Path) -> None:
    """Put a folder's names on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that does not sync folders
            raise
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Put a file's bytes on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte, also where the system takes them in pieces."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A fresh name to write to; at the end of the block it takes the place of `path`. An error removes it."""
    fresh = beside(path)
    try:
        yield fresh
        sync_file(fresh)
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def atomically(path: Path, data: str | bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half; it stays after a power cut.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "note.txt"
    >>> atomically(file, "whole")
    >>> file.read_text(), [p.name for p in file.parent.iterdir()]
    ('whole', ['note.txt'])
    """
    with replacing(path) as fresh:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            write_all(descriptor, data.encode() if isinstance(data, str) else data)
        finally:
            os.close(descriptor)


def new_folder(path: Path) -> Path:
    """Make a folder and those above it, where they are missing; their names are synced."""
    if not path.is_dir():
        new_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)
    return path


def sync_below(folder: Path) -> None:
    """Put a folder and all that it holds on the disk."""
    for path in sorted((p for p in folder.rglob("*") if not p.is_symlink()), reverse=True):
        sync_folder(path) if path.is_dir() else sync_file(path)
    sync_folder(folder)


def swap(fresh: Path, target: Path) -> None:
    """Let a whole new folder take another's place. The old one stays until the new one is there."""
    sync_below(fresh)
    old = beside(target, "old")
    if target.exists():
        os.rename(target, old)
    os.rename(fresh, target)
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)  # what stays of it is swept later


def restore(target: Path) -> None:
    """Put an old folder back where a swap was cut short between taking it away and putting the new one in place."""
    if not target.exists() and target.parent.is_dir():
        for old in sorted(p for p in target.parent.iterdir() if _leftover_of(p) == (target.name, "old")):
            os.rename(old, target)
            sync_folder(target.parent)
            return


def sweep(folder: Path, of: str | None = None) -> list[Path]:
    """Remove what interrupted writing left in a folder (not below it); only for who holds the folder's lock.

    of: only what was to become the file or folder of this name.
    """
    if not folder.is_dir():
        return []
    found = sorted(p for p in folder.iterdir() if (left := _leftover_of(p)) and of in (None, left[0]))
    for path in found:
        name, kind = _leftover_of(path) or ("", "")
        if kind == "old":
            restore(folder / name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return found


def _leftover_of(path: Path) -> tuple[str, str] | None:
    """What a leftover was for and its kind, by its name."""
    match = LEFTOVER.fullmatch(path.name)
    return (match["name"], match["kind"]) if match else None


def digest(data: bytes | bytearray | memoryview) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def write_json(path: Path, what: dict[str, Any]) -> None:
    """Write an object as JSON, atomically, with its own digest under "sha256"."""
    atomically(path, as_json(what))


def as_json(what: dict[str, Any]) -> bytes:
    """An object as the bytes of a JSON file, with its own digest under "sha256"."""
    plain = json.loads(json.dumps(what, ensure_ascii=False)) | {MARK: True}
    text = json.dumps(plain | {"sha256": _digest_of_json(plain)}, indent=1, ensure_ascii=False)
    return f"{text}\n".encode()


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote, checked; one from before there were digests comes with "unchecked": True."""
    return from_json(path, path.read_bytes())


def from_json(path: Path, data: bytes) -> dict[str, Any]:
    """The object in the bytes that `as_json` gave, checked. path: the file that is named where they are damaged."""
    try:
        what = json.loads(data)
    except (ValueError, RecursionError):
        raise DamagedFile(path, "is not JSON") from None
    if not isinstance(what, dict):
        raise DamagedFile(path, "is not a JSON object")
    written = what.pop("sha256", None)
    if written is None and MARK not in what:
        return what | {"unchecked": True}
    if written != _digest_of_json(what):
        raise DamagedFile(path, "is not what was written (its digest does not fit)")
    del what[MARK]
    return what


def _digest_of_json(plain: dict[str, Any]) -> str:
    return digest(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode())


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, str]) -> str:
    """Tensors and a few words about them, as safetensors with a digest of the whole file in it, which is returned."""
    plain = {name: x.detach().cpu().contiguous() for name, x in tensors.items()}
    data = bytes_of(_apart(plain), metadata=about | {MARK: "yes", "sha256": NO_DIGEST})
    end = 8 + int.from_bytes(data[:8], "little")
    found = digest(data)
    header = data[:end].replace(NO_DIGEST.encode(), found.encode(), 1)
    with replacing(path) as fresh:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            write_all(descriptor, header)
            write_all(descriptor, memoryview(data)[end:])
        finally:
            os.close(descriptor)
    return found


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that share memory, which safetensors refuses, as copies."""
    seen: set[int] = set()
    out = {}
    for name, x in tensors.items():
        place = x.untyped_storage().data_ptr()
        whole = x.untyped_storage().nbytes() == x.numel() * x.element_size()
        out[name] = x if whole and place not in seen else x.clone()
        seen.add(place)
    return out


def load_tensors(path: Path, key: str | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `save_tensors` wrote, checked. key: the run that it must belong to.

    A file from before there were digests comes with about["unchecked"] = "yes".
    """
    data = path.read_bytes()
    about = _about(path, data[: _header_end(path, data)])
    written, marked = about.pop("sha256", None), about.pop(MARK, None)
    if written is None and marked is None:
        about["unchecked"] = "yes"
    elif not written or written != _digest_of_tensors(path, data, written):
        raise DamagedFile(path, "is not what was written (its digest does not fit)")
    if key is not None and about.get("key", key) != key:
        raise DamagedFile(path, f"belongs to run {about['key']}")
    try:
        return tensors_of(data), about
    except (SafetensorError, ValueError, RuntimeError, KeyError):
        raise DamagedFile(path, "is not a file of tensors") from None


def metadata(path: Path) -> dict[str, str]:
    """The words about a file's tensors alone, unchecked, the digest among them."""
    with open(path, "rb") as f:
        start = f.read(8)
        size = int.from_bytes(start, "little")
        if len(start) < 8 or size > os.fstat(f.fileno()).st_size:
            raise DamagedFile(path, "is cut short")
        return _about(path, start + f.read(size))


def _header_end(path: Path, data: bytes) -> int:
    end = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or end > len(data):
        raise DamagedFile(path, "is cut short")
    return end


def _about(path: Path, start: bytes) -> dict[str, str]:
    try:
        about = json.loads(start[8:]).get("__metadata__") or {}
        assert all(isinstance(x, str) for x in (*about, *about.values()))
    except (ValueError, RecursionError, AttributeError, AssertionError, TypeError):
        raise DamagedFile(path, "is not a file of tensors") from None
    return dict(about)


def _digest_of_tensors(path: Path, data: bytes, written: str) -> str:
    """The digest that the file had before its own was put into it."""
    end = _header_end(path, data)
    whole = hashlib.sha256(data[:end].replace(written.encode(), NO_DIGEST.encode(), 1))
    whole.update(memoryview(data)[end:])
    return whole.hexdigest()


@dataclass
class Contents:
    """The list of what fednb wrote into a folder, with digests: contents.json."""

    folder: Path
    files: dict[str, str] = field(default_factory=dict)
    listed: bool = False  # whether the folder has a list

    @classmethod
    def of(cls, folder: Path) -> Contents:
        """A folder's list, empty where it has none."""
        path = folder / LIST
        if not path.exists():
            return cls(folder)
        files = read_json(path).get("files")
        if not isinstance(files, dict) or not all(_is_plain_name(name) for name in files):
            raise DamagedFile(path, "is not a list of files")
        return cls(folder, files, True)

    def add(self, name: str) -> None:
        """Enter a file as it is now."""
        self.files[name] = digest_of(self.folder / name)

    def save(self) -> None:
        """Write contents.json."""
        write_json(self.folder / LIST, {"files": dict(sorted(self.files.items()))})
        self.listed = True

    def check_file(self, name: str) -> None:
        """Raise DamagedFile where a listed file is missing or is not what was written."""
        path = self.folder / name
        if name not in self.files:
            return
        if not path.is_file():
            raise DamagedFile(path, "is missing")
        if digest_of(path) != self.files[name]:
            raise DamagedFile(path, "is not what was written (its digest does not fit)")

    def check(self) -> None:
        """Check every listed file."""
        for name in self.files:
            self.check_file(name)


def _is_plain_name(name: Any) -> bool:
    """A file's name that leads nowhere else."""
    return isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name
