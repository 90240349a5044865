"""Ctrl-C on a real terminal: the key reaches the command and its processes, and what is finished is saved."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from faults.processes import options

pytestmark = pytest.mark.faults
PATIENCE = 180.0  # seconds for what takes five where nothing else runs


class Terminal:
    """A command with a terminal of its own, and what it has written there."""

    def __init__(self, arguments: list[str]) -> None:
        self.leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (24, 80))
        self.written, self.until = "", time.monotonic() + PATIENCE
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fednb", *arguments], env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=follower, stdout=follower, stderr=follower, start_new_session=True, preexec_fn=_hear,
        )  # fmt: skip
        os.close(follower)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.leader)

    def read(self) -> bool:
        """Take what there is; False when the command and its processes have closed the terminal."""
        assert time.monotonic() < self.until, f"nothing happened: {self.written[-2000:]}"
        if not select.select([self.leader], [], [], 0.05)[0]:
            return True
        try:
            self.written += os.read(self.leader, 65536).decode(errors="replace")
            return True
        except OSError:  # that is how Linux says that nobody has the other end any more
            return False

    def type(self, keys: bytes) -> None:
        os.write(self.leader, keys)

    def end(self) -> int:
        """Read to the end; the exit status."""
        while self.read():
            pass
        return self.process.wait(PATIENCE)


def _hear() -> None:
    """In the command's process: the terminal is its own, and Ctrl-C is heard also where tests are in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("engine", ["loop", "pool"])
def test_ctrl_c_saves_what_is_finished_and_the_bar_ends_its_line(engine):
    store = Path(os.environ["FEDNB_STORE"])
    with Terminal([each for each in options(100_000, engine) if each != "--quiet"]) as terminal:
        while not (any(store.glob("runs/*/state.safetensors")) and "%|" in terminal.written):
            assert terminal.read(), terminal.written[-2000:]
        terminal.type(b"\x03")
        assert terminal.end() == 130, terminal.written[-2000:]
    assert "Traceback" not in terminal.written
    assert terminal.written.splitlines()[-1] == (
        "fednb: interrupted; the same command goes on after the last finished round"
    )
    (run,) = store.glob("runs/*")
    assert len((run / "history.csv").read_text().splitlines()) > 1
