"""What children of the fork server do in tests of processes: runs whose workers are stopped, killed or ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from faults.cases import SHORT

ROUNDS = 40


def options(rounds: int, engine: str) -> list[str]:
    """The arguments of a short run on two workers."""
    given = [x for name, value in (SHORT | {"rounds": rounds}).items() for x in (f"--{name}", str(value))]
    where = ["--engine", engine, "--device", "cpu", "--quiet", *(["--workers", "2"] if engine == "pool" else [])]
    return ["run", "scaffold", *given, *where]


def command(rounds: int = 100_000, engine: str = "pool") -> None:
    """`fednb run`, for as long as it is let."""
    from fednb.cli.commands import main

    raise SystemExit(main(options(rounds, engine)))


def grid(jobs: int = 2) -> None:
    """`fednb grid run`, for as long as it is let."""
    from fednb.cli.commands import main

    raise SystemExit(main(["grid", "run", "fedfft", "table8", "--jobs", str(jobs), "--device", "cpu"]))


def children() -> list[int]:
    """The processes that this one has started and that are not dead."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if folder.name.isdigit() and parent == str(os.getpid()) and state != "Z":
            found.append(int(folder.name))
    return found


def harmed(number: int, after: float, at: str = "work") -> dict[str, Any]:
    """A run on two workers, of which one gets a signal: `after` seconds after it was started, or after its first round.

    Returns whether the weights are those of a run on one process, which worker it was and what was said.
    """
    victims: list[int] = []

    def harm(started: Callable[[], bool]) -> None:
        while not started():
            time.sleep(0.01)
        time.sleep(after)
        victims.extend(children()[:1])
        for pid in victims:
            os.kill(pid, number)

    store = Path(os.environ["FEDNB_STORE"])
    begun = {"work": lambda: any(store.glob("pool/runs/*/state.safetensors")), "start": lambda: len(children()) == 2}
    threading.Thread(target=harm, args=(begun[at],), daemon=True).start()
    said = StringIO()
    with redirect_stderr(said):
        pooled = _weights("pool", store / "pool")
    return {"same": pooled == _weights("loop", store / "loop"), "victims": victims, "said": said.getvalue()}


def _weights(engine: str, store: Path) -> str:
    from fednb.engines.setting import Setting
    from fednb.runs.experiment import run

    os.environ["FEDNB_STORE"] = str(store)
    workers = 2 if engine == "pool" else None
    setting = Setting(**SHORT | {"rounds": ROUNDS, "evaluate_every": 10})
    return run(setting, "scaffold", engine=engine, device="cpu", workers=workers, progress=False).weights_sha256


def ended(signals: list[int], engine: str, everyone: bool = False, nohup: bool = False) -> dict[str, Any]:
    """`fednb run`, which gets signals one after another when it has finished some rounds; everyone: its workers too.

    Saving is put off until it must be, and then lasts until all signals are sent. Returns the exit code, the rounds
    that were finished and the rounds saved.
    """
    from fednb.cli import commands as cli
    from fednb.runs import experiment

    if nohup:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    rows: list[dict[str, Any]] = []

    def send() -> None:
        while len(rows) < 3:
            time.sleep(0.01)
        for number in signals:
            for pid in [*(children() if everyone else []), os.getpid()]:
                os.kill(pid, number)
            time.sleep(0.05)
        sent.set()

    sent = threading.Event()
    threading.Thread(target=send, daemon=True).start()
    run = experiment.run
    cli.run = lambda *given, **how: run(*given, **how | {"progress": rows.append})
    with _saving_late(sent):
        code = cli.main(options(100_000, engine))
    (key,) = (p.name for p in Path(os.environ["FEDNB_STORE"]).glob("runs/*"))
    return {"code": code, "finished": len(rows), "saved": len(experiment.Entry.of(key).history())}


@contextmanager
def _saving_late(sent: threading.Event) -> Iterator[None]:
    """After its first round a run saves at its end only, and so slowly that every signal falls into the saving."""
    from fednb.runs import experiment

    class Late(experiment.Checkpoints):
        SHARE = 1e-9

        def __exit__(self, *error: Any) -> None:
            assert self.left is not None and sent.wait(60)
            super().__exit__(*error)

    before, experiment.Checkpoints = experiment.Checkpoints, Late
    try:
        yield
    finally:
        experiment.Checkpoints = before


def grid_ended(number: int, after: float) -> dict[str, Any]:
    """`fednb grid run`, which gets a signal together with its processes."""
    from fednb.cli.commands import main

    def send() -> None:
        while not children():
            time.sleep(0.01)
        time.sleep(after)
        for pid in [os.getpid(), *children()] if number != signal.SIGTERM else [os.getpid()]:
            os.kill(pid, number)

    threading.Thread(target=send, daemon=True).start()
    code = main(["grid", "run", "fedfft", "table8", "--jobs", "2", "--device", "cpu"])
    return {"code": code, "children": children()}


def grid_harmed() -> dict[str, Any]:
    """Two runs of a grid and one that is not there, of which the first process is killed when it has loaded."""
    from dataclasses import replace

    from fednb.study import jobs

    def kill() -> None:
        while not any(Path(os.environ["FEDNB_STORE"]).glob("runs/*/lock")):
            time.sleep(0.01)
        os.kill(min(children()), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    todo = jobs.jobs_of("fedfft", "table8", "smoke")[:2]
    done, failed = [], []
    try:
        for job, status in jobs.run_all([replace(todo[0], cell=99), *todo], 2, "cpu"):
            done.append([job.cell, status])
    except jobs.JobsFailed as error:
        failed = str(error).splitlines()
    return {"done": sorted(done), "failed": failed}
