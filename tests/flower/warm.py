"""Flower's app processes as forks of one that has loaded torch: a message costs a fork, not five seconds of imports.

The commands `flwr-serverapp` and `flwr-clientapp` that SuperLink and SuperNodes start, and `flwr`, are small programs
here, which hand their arguments to the fork server and end as their fork ends. One that is killed takes its fork along.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

COMMANDS = ("flwr", "flwr-serverapp", "flwr-clientapp")
SHIM = """#!{python} -IS
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({path!r})
told = {{"argv": sys.argv, "environment": dict(os.environ), "cwd": os.getcwd()}}
socket.send_fds(line, [json.dumps(told).encode() + b"\\n"], [1, 2])
sys.exit(int(line.recv(16) or b"1"))
"""


class Warm:
    """The fork server, seen from the tests; `folder` is the one to put first into PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, str(folder / "line")

    def __enter__(self) -> Warm:
        for name in COMMANDS:
            shim = self.folder / name
            shim.write_text(SHIM.format(python=sys.executable, path=self.path))
            shim.chmod(0o755)
        self.process = subprocess.Popen(
            [sys.executable, __file__, self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "ready\n", "the fork server did not start; its error is above"
        return self

    def __exit__(self, *error: object) -> None:
        self.process.stdin.close()
        self.process.wait()


def serve(path: str) -> None:
    """Fork for every connection until the parent closes standard input."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how watchers end
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        line, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _watch(line)
        line.close()


def _watch(line: socket.socket) -> None:
    """Run one command in a fork; kill it where whoever asked is gone, else say how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, descriptors, _, _ = socket.recv_fds(line, 1 << 20, 2)
    while not data.endswith(b"\n"):
        data += line.recv(1 << 20)
    told = json.loads(data)
    child = os.fork()
    if child == 0:
        line.close()
        _work(told, descriptors)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            line.send(str(os.waitstatus_to_exitcode(status) & 0xFF).encode())
            os._exit(0)
        if select.select([line], [], [], 0.05)[0]:  # it sends nothing more: it has ended
            os.kill(child, signal.SIGKILL)
            os._exit(1)


def _work(told: dict, descriptors: list[int]) -> None:
    code = 1
    try:
        for number, descriptor in zip((1, 2), descriptors, strict=True):
            os.dup2(descriptor, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(told["environment"])
        os.chdir(told["cwd"])
        sys.argv = told["argv"]
        commands = {"flwr": flwr, "flwr-serverapp": flwr_serverapp, "flwr-clientapp": flwr_clientapp}
        commands[Path(sys.argv[0]).name]()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    import torch
    from flwr.cli.app import app as flwr
    from flwr.superlink.cli import flwr_serverapp
    from flwr.supernode.cli import flwr_clientapp

    import fednb.flower.apps  # noqa: F401

    torch.set_num_threads(1)
    serve(sys.argv[1])
