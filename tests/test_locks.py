"""Locks: one holder at a time, and a refusal where nobody can tell."""

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from fednb.base.locks import NotAlone, lock

HOLD = """
import sys
from pathlib import Path
from fednb.base.locks import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def no_locks(monkeypatch):
    """A file system that refuses locks."""

    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)


def test_a_second_process_waits_and_says_so(tmp_path, capfd):
    path = tmp_path / "deep" / "lock"
    held = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(held, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "held\n"
        code = HOLD.replace("lock(Path(sys.argv[1]))", 'lock(Path(sys.argv[1]), "waiting for it")')
        command = [sys.executable, "-c", code, str(path)]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **streams) as second:
            assert second.stderr.readline() == "fednb: waiting for it\n"
            assert second.poll() is None
            first.communicate("\n")
            assert second.stdout.readline() == "held\n"
            second.communicate("\n")
    assert first.returncode == second.returncode == 0


def test_a_lock_falls_with_its_process(tmp_path):
    path = tmp_path / "lock"
    held = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(held, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "held\n"
        first.kill()
        first.communicate()
    with lock(path) as mine:
        mine.check()


@pytest.mark.parametrize("spoil", [lambda p: p.unlink(), lambda p: os.replace(p.with_name("other"), p)])
def test_a_lock_file_that_is_gone_is_noticed(tmp_path, spoil):
    (tmp_path / "other").touch()
    with lock(tmp_path / "lock") as held:
        held.check()
        spoil(tmp_path / "lock")
        with pytest.raises(NotAlone, match="removed or replaced"):
            held.check()


def test_a_file_system_that_ignores_locks_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    with pytest.raises(NotAlone, match="FEDNB_LOCKS=off"), lock(tmp_path / "lock"):
        pass


def test_a_file_system_without_locks_is_refused(tmp_path, no_locks):
    with pytest.raises(NotAlone, match="No locks available"), lock(tmp_path / "lock"):
        pass


def test_one_process_can_do_without(tmp_path, no_locks, monkeypatch):
    monkeypatch.setenv("FEDNB_LOCKS", "off")
    with lock(tmp_path / "lock") as held:
        held.check()
