"""Whole runs and whole tables through the real command, each in a fresh process: from the command to the result."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fednb.base.processes import child
from fednb.engines.setting import Setting
from fednb.runs.bench.report import Rows
from fednb.runs.bench.workload import Say
from fednb.runs.store import Entry

CASES = ("cold", "warm", "seeds", "table")
TITLES = {"cold": "one run, cold", "warm": "one run, warm", "seeds": "seeds of one method", "table": "methods x seeds"}
HEADS = {
    "title": "work", "runs": "runs", "seconds": "s", "seconds_per_run": "s/run", "seconds_rounds": "s in rounds",
    "seconds_else": "s elsewhere", "seconds_further": "s for a further seed", "status": "", "command": "command",
}  # fmt: skip
USUAL: dict[str, dict[str, Any]] = {
    "cpu": {
        "data": "digits", "model": "cnn-small", "partition": "dirichlet(alpha=0.6)", "clients": 10,
        "participation": 0.5, "rounds": 5, "epochs": 1, "batch": 10, "precision": "fp32",
    },
    "cuda": {
        "data": "cifar10", "model": "resnet20-gn", "partition": "dirichlet-client(alpha=0.1)", "clients": 100,
        "participation": 0.1, "rounds": 300, "epochs": 5, "batch": 50, "precision": "bf16",
    },
}  # fmt: skip
PAPER, SCALE = "bench", "laptop"


class BadCase(ValueError):
    """A case that this benchmark does not have, or that needs more seeds."""


@dataclass(frozen=True)
class Work:
    """What is timed: methods and seeds in one setting, on one device.

    seeds: how many each method of the cases "seeds" and "table" has. The first method is also the one of single runs.
    """

    setting: Setting
    methods: tuple[str, ...]
    seeds: int
    device: str

    def plain(self) -> dict[str, Any]:
        """The work as JSON can hold it."""
        own = {name: self.setting.plain()[name] for name in USUAL["cpu"]}
        return {**own, "methods": list(self.methods), "seeds": self.seeds}


def usual(device: str, **given: Any) -> Setting:
    """The setting for a device: digits in seconds on a CPU, CIFAR-10 as the papers train it on a GPU."""
    return Setting(**USUAL[torch.device(device).type] | given)


def checked(cases: Sequence[str], seeds: int) -> list[str]:
    """Cases in the order in which they are made; the cold run is always there, since it fills the caches."""
    for name in cases:
        if name not in CASES:
            raise BadCase(f"cases = {name!r}: must be of {', '.join(CASES)}")
    if seeds < 2 and "seeds" in cases:
        raise BadCase(f"seeds = {seeds}: a further seed needs at least 2; or leave the case `seeds` out with --cases")
    return [name for name in CASES if name == "cold" or name in cases]


def rows(work: Work, cases: Sequence[str], say: Say = lambda text: None) -> Rows:
    """One row for each case, all in one store of their own that is removed afterwards; no seed comes twice."""
    found: Rows = []
    with tempfile.TemporaryDirectory(prefix="fednb-bench-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        write_paper(folder / "papers" / PAPER, work)
        for name in cases:
            say(f"{TITLES[name]}: {shlex.join(['fednb', *words(name, work)])}")
            found.append(timed(name, work, folder))
    return further(found, work.seeds)


def words(case: str, work: Work) -> list[str]:
    """The command of a case, behind `fednb`."""
    if case in ("seeds", "table"):
        first = 2 if case == "seeds" else 2 + work.seeds
        seeds = ",".join(map(str, range(first, first + work.seeds)))
        return ["grid", "run", PAPER, case, "--scale", SCALE, "--seeds", seeds]
    settings = [f"--{name}={value}" for name, value in work.plain().items() if name in USUAL["cpu"]]
    seed = str(CASES.index(case))
    return ["run", work.methods[0], "--seed", seed, *settings, "--device", work.device, "--quiet"]


def write_paper(folder: Path, work: Work) -> None:
    """A paper whose grids are the cases "seeds" and "table"."""
    (folder / "grids").mkdir(parents=True)
    own = "\n".join(f"{name} = {json.dumps(value)}" for name, value in work.plain().items() if name in USUAL["cpu"])
    (folder / "paper.toml").write_text(f'title = "A benchmark"\n\n[{SCALE}]\n{own}\n')
    for case, methods in (("seeds", work.methods[:1]), ("table", work.methods)):
        (folder / "grids" / f"{case}.toml").write_text(f"methods = {json.dumps(list(methods))}\n\n[{SCALE}]\n")


def timed(case: str, work: Work, folder: Path) -> dict[str, Any]:
    """A command from its start to its end, and how much of that its run's rounds took.

    Of several runs only the whole is told: on a GPU their rounds overlap.
    """
    store = folder / "store"
    before = set(store.glob("runs/*"))
    began = time.monotonic()
    done = ended(words(case, work), environment(work, folder))
    seconds = time.monotonic() - began
    row: dict[str, Any] = {"case": case, "title": TITLES[case], "command": shlex.join(["fednb", *words(case, work)])}
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return row | {"status": f"failed: {said[-1]}"}
    made = [Entry(path.name, path).history() for path in sorted(set(store.glob("runs/*")) - before)]
    row |= {"runs": len(made), "seconds": seconds, "seconds_per_run": seconds / len(made), "status": ""}
    if len(made) > 1:
        return row
    rounds = sum(each["seconds"] for each in made[0])
    return row | {"seconds_rounds": rounds, "seconds_else": seconds - rounds}


def ended(told: Sequence[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`fednb` with these words and variables, in a process of its own, when it is over."""
    return subprocess.run(child.python("-m", "fednb", *told), env=os.environ | variables, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)  # fmt: skip


def environment(work: Work, folder: Path) -> dict[str, str]:
    """Variables for a command: a store and compiler caches of the benchmark's own; a GPU is hidden from CPU work."""
    store = folder / "store"
    own = {"FEDNB_STORE": store, "FEDNB_PAPERS": folder / "papers", "TORCHINDUCTOR_CACHE_DIR": store / "compiled",
           "TRITON_CACHE_DIR": store / "compiled" / "triton"}  # fmt: skip
    unseen = {"CUDA_VISIBLE_DEVICES": ""} if work.device == "cpu" else {}
    return {name: str(path) for name, path in own.items()} | unseen


def further(found: Rows, seeds: int) -> Rows:
    """Rows with what each seed behind the first took in one process: the seeds' time, less that of one warm run."""
    took = {row["case"]: row["seconds"] for row in found if "seconds" in row}
    if not {"warm", "seeds"} <= set(took):
        return found
    each = (took["seeds"] - took["warm"]) / (seeds - 1)
    return [row | ({"seconds_further": each} if row["case"] == "seeds" else {}) for row in found]
