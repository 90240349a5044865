"""What the children of the fork server do: a short run by the command line, and a look at all of its numbers."""

from __future__ import annotations

import gc
import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from torch import Tensor, set_num_threads

from faults.shim import Shim, locks_that

SHORT = dict(data="digits", model="cnn-small", samples=60, clients=3, participation=0.7, batch=20, epochs=1)
METHODS = {"fedsam": ("perturbation", "global"), "scaffold": ()}  # and what is probed, in every round
ROUNDS = 2
PLACES = dict(points=3, samples=20)  # of the landscape


def load(folder: Path) -> None:
    """In the server: load everything that a short run needs, in one thread, so that a fork finds it in memory."""
    set_num_threads(1)
    os.environ["FEDNB_STORE"] = str(folder / "first")
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        for method in METHODS:
            assert command(method, 0) == 0
            numbers(method, 0)
    gc.collect()
    gc.freeze()  # what is loaded stays shared with the children


def command(method: str, seed: int, rounds: int = ROUNDS, engine: str = "loop") -> int:
    """`fednb run` of a short run, with its probe; the exit status."""
    from fednb.cli import commands as cli

    given = [x for name, value in (SHORT | {"rounds": rounds}).items() for x in (f"--{name}", str(value))]
    if probe := _probe(method, rounds):
        given += ["--probe", ",".join(probe.what), "--probe-rounds", ",".join(map(str, probe.rounds))]
    return cli.main(["run", method, *given, "--seed", str(seed), "--engine", engine, "--device", "cpu", "--quiet"])


def _probe(method: str, rounds: int) -> Any:
    from fednb.runs.probes import Probe

    return Probe(METHODS[method], rounds=tuple(range(rounds))) if METHODS.get(method) else None


def train(
    method: str, seed: int = 0, journal: str = "", rounds: int = ROUNDS, at: int = 0, way: str = "", aside: str = "",
    locks: str = "", remove: tuple[str, int] = ("", 0), wait: float = 0.0, umask: int = 0o22,
) -> None:  # fmt: skip
    """A run with a fault. Every round is saved; the journal tells which were computed and which were saved.

    remove: a pattern of files and folders of the store that are removed when so many rounds were computed. wait:
    seconds before it.
    """
    time.sleep(wait)
    os.umask(umask)
    store = Path(os.environ["FEDNB_STORE"])
    shim = Shim(store, Path(journal), at, way, Path(aside) if aside else None)
    _watch(shim, store, *remove)
    if locks:
        locks_that(locks)
    shim.install()
    code = command(method, seed, rounds)
    shim.mark("ended", code)
    raise SystemExit(code)


def _watch(shim: Shim, store: Path, pattern: str, behind: int) -> None:
    """Mark rounds in the journal, and let every round be saved, so that all runs do the same operations."""
    from fednb.runs import experiment

    one, saves = experiment._one_round, experiment.Checkpoints
    save, saves.SHARE = saves._save, float("inf")

    def one_round(engine, judge, method, s, *rest):
        t = s.t
        row = one(engine, judge, method, s, *rest)
        shim.mark("round", t)
        if t + 1 == behind:
            for path in list(store.rglob(pattern)):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return row

    def saved(self, s, *rest):
        save(self, s, *rest)
        shim.mark("saved", s.t - 1)

    experiment._one_round, saves._save = one_round, saved


def again(method: str, seed: int = 0, journal: str = "", rounds: int = ROUNDS) -> dict[str, Any]:
    """The same command without a fault, and then all numbers."""
    try:
        train(method, seed, journal, rounds)
    except SystemExit as end:
        if end.code:
            raise
    return without_seconds(numbers(method, seed, rounds, measured=False))


def numbers(method: str, seed: int = 0, rounds: int = ROUNDS, measured: bool = True) -> dict[str, Any]:
    """All that can be asked of a run, each with its answer or the line of its error; at last `run`, which may train.

    A child has nothing in memory of a run: every question goes to the disk. measured: measurements are asked for too,
    where the run is finished.
    """
    from fednb.algorithms.catalogue import method as named
    from fednb.engines.setting import Setting
    from fednb.runs.experiment import run, run_of

    wanted = Setting(**SHORT | {"rounds": rounds}), named(method), seed, _probe(method, rounds)

    def fresh() -> Any:
        return run_of(*wanted)

    asked: dict[str, Callable[[], Any]] = {
        "status": lambda: fresh().status,
        "w": lambda: _bits(fresh().w),
        "weights": lambda: fresh().weights_sha256,
        "history": lambda: fresh().rows,
        "accuracy": lambda: fresh().accuracy,
        "summary": lambda: fresh().summary(),
    }
    for t in range(rounds if wanted[3] else 0):
        asked[f"probe {t}"] = lambda t=t: {name: _bits(x) for name, x in fresh().probed(t).vectors.items()}
    if measured and _answer(lambda: fresh().status) == "finished":
        asked |= {"measured": lambda: _measured(fresh()), "landscape": lambda: _landscape(fresh())}
    asked["run"] = lambda: _trained(run(*wanted[:3], probe=wanted[3], engine="loop", device="cpu", progress=False))
    return {name: _answer(question) for name, question in asked.items()}


def repaired(method: str, rounds: int = ROUNDS) -> dict[str, Any]:
    """`fednb store check`, with --repair, and once more; each with its exit status and text. Then the run."""
    from fednb.cli import commands as cli

    found = {}
    for name, words in (("check", ()), ("repair", ("--repair",)), ("after", ())):
        with redirect_stdout(io.StringIO()) as said:
            found[name] = cli.main(["store", "check", *words]), said.getvalue()
    return found | {"run": numbers(method, 0, rounds, measured=False)["run"]}


def grid() -> dict[str, Any]:
    """A grid of three runs: the statuses of the runs and the error that it ends with."""
    from fednb.runs.grid import Grid

    described = dict(setting=SHORT | {"rounds": ROUNDS}, methods=["FedAvg", "FedSAM", "SCAFFOLD"], seeds=[0])
    made = Grid.of("small", "smoke", described)
    error = _answer(lambda: len(made.run(device="cpu", engine="loop").runs))
    runs = [_answer(lambda r=r: _trained(r)) for r in made.runs()]
    return {"keys": [r.key for r in made.runs()], "error": error, "runs": runs}


def _trained(run: Any) -> Any:
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in run.rows]
    return [run.status, _bits(run.w), rows]


def without_seconds(answers: dict[str, Any]) -> dict[str, Any]:
    """Answers without what differs from run to run of the same numbers."""
    history = [{name: x for name, x in row.items() if name != "seconds"} for row in answers["history"]]
    summary = {name: x for name, x in answers["summary"].items() if name != "seconds_per_round"}
    return answers | {"history": history, "summary": summary}


def _answer(question: Callable[[], Any]) -> Any:
    """As JSON gives it back; an error that is meant for users is {"error": its line}, others {"traceback": ...}."""
    from fednb.cli.commands import MISUSE

    try:
        return json.loads(json.dumps(question()))
    except MISUSE as error:
        return {"error": str(error), "type": type(error).__name__}
    except Exception as error:
        return {"traceback": str(error), "type": type(error).__name__}


def _bits(x: Tensor) -> str:
    return hashlib.sha256(x.detach().cpu().contiguous().numpy().tobytes()).hexdigest()


def _measured(run: Any) -> str:
    from fednb.metrics.cache import Question

    found = Question(run, "fault", 1, {"samples": 3}).answer(lambda: {"mean": run.w.double().mean()[None]})
    return _bits(found["mean"])


def _landscape(run: Any) -> str:
    from fednb.show.explore.planes import Finished, Plane

    plane = Plane(**PLACES)
    return _bits(plane.losses(Finished(run.entry, run.setting, run.method.name, run.seed, ""), device="cpu"))
