"""Engines join mathematics to data: the same weights at different speeds. Imports algorithms, data, models, below."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, sqrt

import torch

from fednb.base.processes.shared import NotSendable, packed
from fednb.core.rounds import Method
from fednb.engines.loop import Loop
from fednb.engines.losses import LOSSES
from fednb.engines.objective import SHORT
from fednb.engines.own import why_not_stacked
from fednb.engines.pool import Pool
from fednb.engines.problem import Problem, dealt, problem_of
from fednb.engines.setting import Setting
from fednb.engines.single import refuse_single
from fednb.engines.stacked import MODES, SharedSteps, Stacked, mode_of
from fednb.models import own_of

ENGINES = ("auto", "loop", "pool", "stacked", *(f"stacked:{mode}" for mode in MODES))
SMALL = 1e9  # samples seen times weights: a run of about ten seconds, below which starting workers does not pay

Engine = Loop | Pool | Stacked


_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Company:
    """Other runs of this process: what they share on the device, and how many train in the same lanes at a time.

    kinds: of steps that are taken at a time, each in lanes of its own. turn: called before a run takes steps, when all
    that they need is made; it returns when the run may go on.
    """

    shared: SharedSteps | None = None
    runs: int = 1
    kinds: int = 1
    turn: Callable[[], None] = lambda: None


class BadEngine(ValueError):
    """An engine or device that is not there."""


class PrecisionNotHere(BadEngine):
    """A precision that a device does not have."""


def device_of(name: str) -> torch.device:
    """A device by name; "auto" is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadEngine(f"device = {name!r}: must be auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadEngine(f"device = {name!r}: torch finds no GPU here; use cpu or auto")
    return device


def choose(
    name: str, setting: Setting, method: Method, seed: int, *, device: str = "auto", workers: int | None = None,
    beside: Company | None = None,
) -> Engine:  # fmt: skip
    """The engine by name. "auto" takes stacked on a GPU; on a CPU pool, or loop where the run is small.

    "stacked:compiled" says how steps are taken; otherwise that depends on how many there will be. beside: what a
    stacked engine shares with other runs of this process.
    """
    if name not in ENGINES:
        raise BadEngine(f"engine = {name!r}: must be one of {', '.join(ENGINES)}")
    if workers is not None and workers < 1:
        raise BadEngine(f"workers = {workers}: must be at least 1")
    where = device_of("cpu" if name == "pool" and device == "auto" else device)
    suits(setting, where)
    with _one_at_a_time:  # what several threads were to load or place at the same time would be there several times
        data, parts = dealt(setting, seed)
        problem = problem_of(setting, seed, where, data, parts)
    refuse_single(problem, setting, seed)
    asked, size = name, (problem.objective.layout.total, sum(map(len, parts)))
    if name == "auto":
        name = _automatic(setting, method, where, *size)
    if name.startswith("stacked") and (why := _why_not_stacked(setting, problem)):
        name = "loop" if where.type == "cuda" else _automatic(setting, method, where, *size)
        _say_once(f"fednb: {why}: engine {name!r} in place of {asked!r}")
    if name == "pool":
        if where.type != "cpu":
            raise BadEngine("engine = 'pool' runs on the CPU; use device='cpu', or engine='stacked'")
        return Pool(problem, setting, seed, data, parts, workers or cores())
    if name == "loop":
        return Loop(problem)
    beside = beside or Company()
    steps = beside.runs * setting.rounds * int(problem.steps.max())
    mode = name.partition(":")[2] or mode_of(where, steps, setting.batch)
    if mode != "eager" and where.type != "cuda":
        raise BadEngine(f"engine = {name!r}: steps are captured on a GPU; use 'stacked', or device='cuda'")
    usual = max(1, round(setting.participation * setting.clients))
    return Stacked(problem, mode, expected(setting), beside.shared, beside.runs, beside.kinds, beside.turn, usual)


def suits(setting: Setting, where: torch.device) -> None:
    """Refuse a precision that is not to be had there."""
    if where.type != "cuda" and setting.precision in SHORT:
        raise PrecisionNotHere(f"precision = {setting.precision!r} is for a GPU; on a CPU use fp32 or fp64")


def expected(setting: Setting) -> int:
    """How many clients most rounds have: all that are drawn, or, by coin, the mean and one standard deviation."""
    mean = setting.participation * setting.clients
    if setting.sampling == "fixed":
        return max(1, int(mean))
    return max(1, ceil(mean + sqrt(mean * (1 - setting.participation))))


def _automatic(setting: Setting, method: Method, device: torch.device, P: int, samples: int) -> str:
    if device.type == "cuda":
        return "loop" if setting.model.endswith("-bn") or "-bn-" in setting.model else "stacked"
    work = setting.rounds * setting.participation * setting.epochs * samples * P
    if cores() == 1 or work < SMALL or os.name != "posix":
        return "loop"
    try:
        packed((method, own_of(setting.model), LOSSES.own(setting.loss)))
    except NotSendable:
        return "loop"
    return "pool"


def _why_not_stacked(setting: Setting, problem: Problem) -> str:
    """The reason why a user's own model or loss cannot be stacked; an empty text where they can, or none is own."""
    objective, model = problem.objective, own_of(setting.model)
    if model is None and (objective.criterion is None or len(objective.buffers)):
        return ""
    assert problem.samples is not None
    x, y = (part[:6] for part in problem.samples)
    why = why_not_stacked(objective, problem.inputs(x), y)
    whose = f"model {setting.model!r}" if objective.criterion is None else f"{setting.model!r} with {setting.loss!r}"
    return why and f"{whose} {why}"


_said: set[str] = set()


def _say_once(line: str) -> None:
    if line not in _said:
        print(line, file=sys.stderr)
    _said.add(line)


def cores() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
