"""A notebook executed and kept while files fail: the last good page and the kept evidence stay whole."""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from faults.made_page import KEPT, NAME, PAGE, REMARK, Shelf, execute_and_keep, kept, made_with, make, page

pytestmark = pytest.mark.faults

PARTS = 12  # of every sweep, a test each
FAULTS = {"kill": 2, "ENOSPC": 6, "EIO": 6, "EROFS": 6}  # and how many operations a short sweep goes on by
LONG = os.environ.get("FAULTS") == "long"
ONCE = ("kill", "EIO")  # a full or read-only disk stays so
ROOMY = ("replace", "rename", "unlink", "rmdir")  # what a full disk still does
OLD, NEW = 1, 2


class Harm:
    """Counts the file operations below a folder; the n-th fails."""

    def __init__(self, root: Path, fault: str, at: int) -> None:
        self.root, self.fault, self.at, self.count = str(root), fault, at, 0

    def __enter__(self) -> Harm:
        for name in ("replace", "rename", "unlink", "rmdir", "mkdir", "fsync", "write", "open"):
            setattr(os, name, self._harmed(name, getattr(os, name)))
        io.open = builtins.open = self._harmed_open(builtins.open)
        return self

    def __exit__(self, *error: object) -> None:
        """Only ever in a child that ends."""

    def _harmed(self, name, function):
        def harmed(what, *more, **how):
            reading = name == "open" and not (more or (0,))[0] & (os.O_WRONLY | os.O_RDWR)
            if not reading and self._here(what):
                self._step(name, lambda: name == "write" and function(what, more[0][: len(more[0]) // 2]))
            return function(what, *more, **how)

        return harmed

    def _harmed_open(self, function):
        def harmed(file, mode="r", *more, **how):
            if "w" in mode and self._here(file):
                self._step("open", lambda: function(file, mode, *more, **how).close())  # cut to nothing
            return function(file, mode, *more, **how)

        return harmed

    def _here(self, what) -> bool:
        if isinstance(what, int):
            try:
                what = os.readlink(f"/proc/self/fd/{what}")
            except OSError:
                return False
        return os.path.abspath(os.fspath(what)).startswith(self.root)

    def _step(self, name, half) -> None:
        self.count += 1
        due = self.count == self.at if self.fault in ONCE else 0 < self.at <= self.count
        if due and not (self.fault == "ENOSPC" and name in ROOMY):
            half()
            if self.fault == "kill":
                os._exit(9)
            number = getattr(errno, self.fault)
            raise OSError(number, os.strerror(number))


def child(function, *arguments) -> int:
    """Call a function in a process of its own: 0, or 1 for an error of the disk, 9 for a kill, 2 for anything else."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 2
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        code = function(*arguments) or 0
    except OSError:
        code = 1
    finally:
        os._exit(code)


def harmed_execution(root: Path, fault: str, at: int) -> int:
    with Shelf(root), Harm(root, fault, at):
        execute_and_keep(NEW)
    return 0


def counted_execution(root: Path, told: Path) -> int:
    with Shelf(root), Harm(root, "EIO", 0) as harm:
        execute_and_keep(NEW)
    os.close(os.open(f"{told}{harm.count}", os.O_CREAT | os.O_WRONLY))
    return 0


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A page and kept evidence made with x = 1, hand-written words beside both."""
    root = tmp_path_factory.mktemp("good")
    make(root)
    with Shelf(root):
        execute_and_keep(OLD)
    for folder in (page(root), kept(root)):
        (folder / "remarks.txt").write_text(REMARK)
    return root


@pytest.fixture(scope="module")
def operations(good, tmp_path_factory):
    """How many file operations an execution has."""
    folder = tmp_path_factory.mktemp("count")
    shutil.copytree(good, folder / "root")
    assert child(counted_execution, folder / "root", folder / "n-") == 0
    (told,) = folder.glob("n-*")
    return int(told.name[2:])


def check_whole(root: Path, *among: int) -> None:
    assert made_with(page(root), PAGE, among) in among
    assert made_with(kept(root), KEPT, among) in among
    for folder in (page(root), kept(root)):
        assert (folder / "remarks.txt").read_text() == REMARK


def settled(root: Path) -> None:
    """What is promised to who reads after a kill: an interrupted exchange of folders is undone."""
    from fednb.study import execution

    execution.check_pages()


def leftovers(root: Path) -> list[str]:
    return [str(p) for p in root.rglob(".*") if p.name.endswith((".new", ".old", ".tmp"))]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("fault", FAULTS)
def test_the_old_stays_until_the_new_is_whole(good, operations, tmp_path, fault, part, record_property):
    """File operations fail in turn: page and evidence are the old or the new, and the next try works."""
    every = 1 if LONG else FAULTS[fault]
    first = 1 + part * every + list(FAULTS).index(fault) % every
    turns = range(first, operations + 1, PARTS * every)
    record_property("file operations of a page that failed", len(turns))
    for at in turns:
        root = tmp_path / str(at)
        shutil.copytree(good, root)
        assert child(harmed_execution, root, fault, at) in ((9, 0) if fault == "kill" else (0, 1))
        with Shelf(root):
            settled(root)
            check_whole(root, OLD, NEW)
            execute_and_keep(NEW)
            check_whole(root, NEW)
        assert leftovers(root) == []
        shutil.rmtree(root)


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "bit": lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
    "zeros": lambda data: bytes(len(data)),
    "empty": lambda data: b"",
    "missing": lambda data: None,
}


def harm(path: Path, damage: str) -> None:
    data = DAMAGES[damage](path.read_bytes())
    path.unlink() if data is None else path.write_bytes(data)


@pytest.fixture
def root(good, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDNB_PAGE", raising=False)
    shutil.copytree(good, tmp_path / "root")
    with Shelf(tmp_path / "root"):
        yield tmp_path / "root"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [*PAGE, "contents.json"])
def test_a_damaged_page_is_not_current_and_not_kept(root, name, damage, record_property):
    """It is named with its path and what makes it again; kept evidence stays; the next execution sets it aside."""
    from fednb.study import execution, notebooks

    record_property("damaged files of pages", 1)
    notebooks.execute(NAME, {"scale": "smoke"})
    assert notebooks.is_current(NAME, "smoke")
    path = page(root) / name
    harm(path, damage)
    if (name, damage) == ("contents.json", "missing"):  # as a page from before there were lists
        assert execution.page_problems(NAME, "smoke") == []
        return
    assert not notebooks.is_current(NAME, "smoke")
    problems = execution.check_pages()
    assert problems and str(path) in problems[0] and f"`fednb notebook {NAME} --scale smoke`" in problems[0]
    with pytest.raises(RuntimeError, match="makes it again"):
        notebooks.keep_results(NAME, "smoke", page(root), "")
    assert made_with(kept(root), KEPT, (OLD,)) == OLD
    execute_and_keep(NEW)
    assert made_with(page(root), PAGE, (NEW,)) == made_with(kept(root), KEPT, (NEW,)) == NEW
    assert (kept(root) / "remarks.txt").read_text() == REMARK
    assert execution.check_pages() == []
    assert list((root / "store" / "set-aside").rglob("remarks.txt"))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["tab.csv", "runs.json", "contents.json"])
def test_damaged_evidence_is_never_read(root, name, damage, record_property):
    from fednb.base.files import DamagedFile
    from fednb.study.page import StoredResults

    record_property("damaged files of kept results", 1)
    harm(kept(root) / name, damage)
    stored = StoredResults(kept(root), None)
    if (name, damage) == ("contents.json", "missing"):
        assert len(stored.table("tab.csv")) == 20 and stored.runs
        return
    with pytest.raises(DamagedFile) as found:
        stored.runs if name == "runs.json" else stored.table("tab.csv")
    assert str(kept(root) / name) in str(found.value) and f"`fednb notebook {NAME} -p x 1`" in str(found.value)


def slow_execution(root: Path, x: int) -> int:
    with Shelf(root):
        execute_and_keep(x)
    return 0


def test_eight_processes_execute_one_page(good, tmp_path):
    """One after the other: the page and the evidence are of one of them each, and whole."""
    root = tmp_path / "root"
    shutil.copytree(good, root)
    started = []
    for x in range(2, 10):
        if (pid := os.fork()) == 0:
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                os._exit(slow_execution(root, x))
            finally:
                os._exit(2)
        started.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started] == [0] * 8
    check_whole(root, *range(2, 10))
    with Shelf(root):
        settled(root)
    assert leftovers(root) == []


def test_an_interrupted_execution_leaves_the_page(good, tmp_path):
    """SIGINT while a cell runs: the page is the old one."""
    root = tmp_path / "root"
    shutil.copytree(good, root)
    book = root / "notebooks" / f"{NAME}.ipynb"
    book.write_text(book.read_text().replace("import pandas", "import time; time.sleep(60); import pandas"))
    if (pid := os.fork()) == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            os._exit(slow_execution(root, NEW))
        except KeyboardInterrupt:
            os._exit(130)
        finally:
            os._exit(2)
    until = time.monotonic() + 60
    while not list((page(root).parent).rglob("executed.ipynb"))[1:] and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(pid, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    check_whole(root, OLD)
    assert leftovers(root) == []
