"""A fork server: one process that has loaded torch and fednb, and forks a child for every call that is to be harmed."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (−9 where it was killed), what it wrote, what its function returned."""

    code: int
    out: str
    err: str
    value: Any


@dataclass(frozen=True)
class Call:
    """A function by "module:name", its arguments, and changes of the environment (None removes a variable)."""

    function: str
    arguments: dict[str, Any]
    environment: dict[str, str | None]
    cwd: str | None = None


class Warm:
    """The server, seen from the tests. One request at a time, of one child or of several at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, 0

    def __enter__(self) -> Warm:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "faults.warm", str(self.folder)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout.readline() == "ready\n", "the fork server did not start; its error is above"
        return self

    def __exit__(self, *error: object) -> None:
        self.process.stdin.close()
        self.process.wait()

    def __call__(self, function: str, environment: dict[str, str | None] | None = None, **arguments: Any) -> Ended:
        """Run a function in a child of its own."""
        return self.together([Call(function, arguments, environment or {})])[0]

    def together(self, calls: list[Call], timeout: float = 120.0) -> list[Ended]:
        """Run several at the same moment. One that takes longer than `timeout` is killed, and has the code −9."""
        self.asked += 1
        names = [str(self.folder / f"{self.asked}-{i}") for i in range(len(calls))]
        asked = [vars(call) | {"name": name} for call, name in zip(calls, names, strict=True)]
        self.process.stdin.write(json.dumps({"calls": asked, "timeout": timeout}) + "\n")
        self.process.stdin.flush()
        codes = json.loads(self.process.stdout.readline())
        return [self._ended(code, name) for code, name in zip(codes, names, strict=True)]

    def _ended(self, code: int, name: str) -> Ended:
        out, err, value = (Path(f"{name}.{end}") for end in ("out", "err", "json"))
        texts = out.read_text(errors="replace"), err.read_text(errors="replace")
        ended = Ended(code, *texts, json.loads(value.read_text()) if value.exists() else None)
        for path in (out, err, value):
            path.unlink(missing_ok=True)
        return ended


def serve() -> None:
    """In the server: answer requests until there are no more."""
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        children = [_forked(call) for call in asked["calls"]]
        print(json.dumps(_codes(children, time.monotonic() + asked["timeout"])), flush=True)


def _codes(children: list[int], until: float) -> list[int]:
    codes: dict[int, int] = {}
    while len(codes) < len(children):
        for child in (c for c in children if c not in codes):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                codes[child] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.001)
    return [codes[child] for child in children]


def _forked(call: dict[str, Any]) -> int:
    if pid := os.fork():
        return pid
    code = 70
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as a command in a terminal has them: in the background
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # of a shell, or under nohup, both would be ignored
    try:
        for number, end in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{call['name']}.{end}", os.O_WRONLY | os.O_CREAT, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (os.fdopen(i, "w", closefd=False) for i in (1, 2))
        for name, text in call["environment"].items():
            os.environ.pop(name, None) if text is None else os.environ.update({name: text})
        if call["cwd"]:
            os.chdir(call["cwd"])
        module, name = call["function"].split(":")
        value = getattr(importlib.import_module(module), name)(**call["arguments"])
        Path(f"{call['name']}.json").write_text(json.dumps(value))
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    from faults.cases import load

    load(Path(sys.argv[1]))
    serve()
