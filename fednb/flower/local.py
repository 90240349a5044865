"""A federation on this machine: SuperLink and SuperNodes as processes on loopback, which end with the block."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fednb.base.files import atomically, new_folder
from fednb.flower.installed import QUIET, need_flower

HOST = "127.0.0.1"
NAME = "here"  # of the connection in Flower's configuration
PATIENCE = 60.0  # seconds in which the SuperLink must be reachable
GRACE = 5.0  # seconds that a process has to end by itself


class NotStarted(RuntimeError):
    """A process of the federation that ended before its time."""


class LocalFederation:
    """A SuperLink and its SuperNodes, each a process group of its own, with logs in a folder.

    folder: for Flower's configuration (FLWR_HOME), logs, and what the clients keep. changed: variables of the
    environment of all its processes.
    """

    def __init__(self, folder: Path, **changed: str) -> None:
        need_flower()
        self.folder, self.changed = new_folder(folder), changed
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: list[IO[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """Variables for every process of Flower: no telemetry, a configuration of its own, this Python's commands."""
        path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
        own = {"FLWR_HOME": str(self.folder / "home"), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2", "PATH": path,
               "OMP_NUM_THREADS": "1"}  # fmt: skip
        return {**os.environ, **QUIET, **own, **self.changed}

    def start_link(self, *options: str) -> None:
        """Start the SuperLink, and wait until it listens. options: "--insecure", or certificates and their kind."""
        options = options or ("--insecure",)
        self._start("superlink", ["flower-superlink", "--disable-runtime-dependency-installation", "--host", HOST,
                                  "--port", str(self.port), *options])  # fmt: skip
        self._configure("--insecure" in options, options)
        until = time.monotonic() + PATIENCE
        while not listens(self.port):
            self.check("superlink")
            if time.monotonic() > until:
                raise NotStarted(f"the SuperLink does not listen after {PATIENCE:g} s; see {self.log('superlink')}")
            time.sleep(0.1)

    def _configure(self, insecure: bool, options: Sequence[str]) -> None:
        lines = [f"[superlink.{NAME}]", f'address = "{HOST}:{self.port}"']
        if insecure:
            lines += ["insecure = true"]
        else:
            lines += [f'root-certificates = "{options[options.index("--ssl-ca-certfile") + 1]}"']
        home = new_folder(self.folder / "home")
        atomically(home / "config.toml", "\n".join(["[superlink]", f'default = "{NAME}"', "", *lines, ""]))

    def start_node(self, client: int, clients: int, *options: str, **more: str) -> None:
        """Start the SuperNode of a client. options: as for the SuperLink. more: entries of its configuration."""
        own = {"folder": str(self.folder / f"client-{client}"), **more}
        told = [f"partition-id={client}", f"num-partitions={clients}", *(f'{n}="{value}"' for n, value in own.items())]
        self._start(f"node-{client}", [
            "flower-supernode", "--superlink", f"{HOST}:{self.port}", "--host", HOST, "--port", str(free_port()),
            "--node-config", " ".join(told), *(options or ("--insecure",)),
        ])  # fmt: skip

    def _start(self, name: str, command: list[str]) -> None:
        log = open(self.log(name), "ab")  # noqa: SIM115  closed in `stop`
        self.logs.append(log)
        self.processes[name] = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self.environment,
            start_new_session=True, cwd=self.folder,
        )  # fmt: skip

    def submit(self, project: Path, *options: str) -> subprocess.Popen[str]:
        """Start a run of a project; what the process prints is the run's log."""
        command = ["flwr", "run", str(project), NAME, "--stream", *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                env=self.environment, start_new_session=True, text=True)  # fmt: skip

    def log(self, name: str) -> Path:
        """The file with all that a process says."""
        return self.folder / f"{name}.log"

    def check(self, name: str) -> None:
        """Raise NotStarted where a process has ended."""
        if (status := self.processes[name].poll()) is not None:
            said = self.log(name).read_text(errors="replace").strip().splitlines()
            raise NotStarted(f"{name} ended with status {status}: {said[-1] if said else 'without a word'}")

    def kill(self, name: str) -> None:
        """End a process and its children at once, as a power cut would."""
        end(self.processes.pop(name), at_once=True)

    def stop(self) -> None:
        """End all processes, nodes first."""
        for name in reversed(list(self.processes)):
            self.processes[name].terminate()
        for name in reversed(list(self.processes)):
            end(self.processes.pop(name))
        for log in self.logs:
            log.close()


def end(process: subprocess.Popen, at_once: bool = False) -> None:
    """End a process that leads a group, and all that is left of the group."""
    if not at_once and process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def local_federation(folder: Path, clients: int) -> Iterator[LocalFederation]:
    """A SuperLink and a SuperNode for each client, which are ended after the block whatever happens in it."""
    made = LocalFederation(folder)
    try:
        made.start_link()
        for client in range(clients):
            made.start_node(client, clients)
        yield made
    finally:
        made.stop()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    """True if a process takes connections on a port of loopback."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
