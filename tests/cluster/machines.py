"""A real Dask cluster on loopback: a scheduler and workers, each a process of its own, as a test needs them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fednb.base.files import atomically
from fednb.flower.local import free_port

PATIENCE = 180.0  # seconds for what takes one or two where nothing else runs
HERE = Path(__file__).parent


def wait_until(true, what: str, patience: float = PATIENCE):
    """What `true` gives as soon as it is something."""
    until = time.monotonic() + patience
    while not (found := true()):
        assert time.monotonic() < until, f"{what}: did not happen within {patience:g} s"
        time.sleep(0.02)
    return found


class Machines:
    """The processes of one cluster; `folder` gets their logs and the stores of workers that have their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.start_scheduler()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self) -> None:
        self._start("scheduler", "scheduler", "--host", "127.0.0.1", "--port", str(self.port))
        wait_until(self._answers, "the scheduler's start")

    def _answers(self) -> bool:
        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", self.port)) == 0

    def start_worker(self, name: str, store: Path | None = None, **environment: str) -> None:
        """A worker process; its store is the client's unless it has its own, and so are its data and its speed."""
        own = {"FEDNB_STORE": str(store)} if store else {}
        self._start(
            name, "worker", self.address, "--name", name, "--host", "127.0.0.1", "--no-nanny", "--nthreads", "1",
            "--death-timeout", "60", "--local-directory", str(self.folder / f"{name}.dask"), **own, **environment,
        )  # fmt: skip

    def _start(self, name: str, *what: str, **environment: str) -> None:
        """The command `dask` in a process, with the tests' own modules to import."""
        quiet = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        command = [sys.executable, str(HERE / "plugged.py"), *what, *quiet]
        known = {"OMP_NUM_THREADS": "1", "FEDNB_OFFLINE": "1", "PYTHONPATH": str(HERE.parent),
                 "FEDNB_TEST_ROUNDS": str(self.folder / "rounds.txt"),
                 "FEDNB_TEST_GATE": str(self.folder / "gate.txt")}  # fmt: skip
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **known, **environment}
            )

    @contextmanager
    def held_at(self, round: int) -> Iterator[None]:
        """No run gets past the end of this round while the block lasts, however long it takes."""
        gate = self.folder / "gate.txt"
        atomically(gate, str(round))
        try:
            yield
        finally:
            gate.unlink()

    def rounds(self) -> list[tuple[str, int, int]]:
        """Every round that workers really made: the run's key, the round, and the process."""
        file = self.folder / "rounds.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(key, int(t), int(pid)) for key, t, pid in (line.split() for line in lines)]

    def kill(self, name: str, by: int = signal.SIGKILL) -> None:
        """End a process, and wait for it."""
        process = self.processes.pop(name)
        process.send_signal(by)
        process.wait(PATIENCE)

    def at_work(self) -> dict[str, dict[str, dict]]:
        """By worker's name, the runs that it is at, as its last heartbeat told."""
        with self.client() as client:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
        return {about["name"]: about["metrics"].get("fednb", {}) for about in workers}

    def client(self):
        from distributed import Client

        return Client(self.address, set_as_default=False, timeout=PATIENCE)

    def tasks(self) -> dict[str, str]:
        """The tasks that the scheduler knows, with their states."""
        with self.client() as client:
            return client.run_on_scheduler(lambda dask_scheduler: {k: t.state for k, t in dask_scheduler.tasks.items()})

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
