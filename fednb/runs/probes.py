"""What to keep from a round beside its result: gradients, perturbations, models, and what parts declare."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from fednb.base.checks import MOST_WHOLE, is_text, is_whole
from fednb.base.files import DamagedFile, new_folder, save_tensors
from fednb.base.inputs import shown
from fednb.core.record import Cohort, Server, Table
from fednb.core.rounds import Method, start_round
from fednb.core.vectors import Layout
from fednb.engines.loop import single_oracle
from fednb.engines.problem import Problem
from fednb.runs.store import Entry, writing

BEFORE, AFTER = ("gradient", "perturbation"), ("move", "model")
GLOBAL = "global"
DECLARED = {"k.": ("per_client", "this_round"), "s.": ("on_server",)}  # how a part's own names begin, and its kinds


@dataclass(frozen=True)
class Probe:
    """Keep `what` of every participant in these rounds.

    Gradients and perturbations are taken at the global model that the round starts from, on each client's first
    `batches` batches (the mean of them), before any training. Moves and models are the clients' own after training;
    "global" is the model that the round starts from.
    What the method's parts declare goes by its name in them, as it is at the end of the round: k.rho_k, FedSCAM's
    radius of each client, or s.alpha, a number of the server's.

    >>> probe = fn.Probe(what=["gradient", "model"], rounds=[0])
    >>> setting = fn.Setting(samples=100, clients=4, participation=1.0, rounds=1, epochs=1, batch=25)
    >>> seen = fn.run(setting, "FedAvg", probe=probe, progress=False).probed(0)
    >>> seen.clients, sorted(seen.vectors)
    ((0, 1, 2, 3), ['gradient', 'model'])
    """

    what: tuple[str, ...] = ("perturbation",)
    rounds: tuple[int, ...] = (0,)
    batches: int = 1

    def __post_init__(self) -> None:
        for name in ("what", "rounds"):
            value = getattr(self, name)
            several = value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
            object.__setattr__(self, name, tuple(islice(several, MOST_WHOLE)))
        if not all(map(is_text, self.what)):
            raise ValueError(f"probe {shown(self.what)}: must be names")
        if unknown := {what for what in self.what if what[:2] not in DECLARED} - {*BEFORE, *AFTER, GLOBAL}:
            raise ValueError(
                f"probe {shown(sorted(unknown)[0])}: must be one of {', '.join((*BEFORE, *AFTER, GLOBAL))}, "
                f"or k.NAME or s.NAME for what a part declares"
            )
        if not is_whole(self.batches, 1) or not all(map(is_whole, self.rounds)):
            given = f"batches = {shown(self.batches)}, rounds = {shown(self.rounds)}"
            raise ValueError(f"{given}: at least 1 batch, rounds from 0")


def check(probe: Probe, method: Method) -> None:
    """Refuse a probe of state that no part of the method declares."""
    known = [mark + name for mark, kinds in DECLARED.items() for kind in kinds for name in method.declared(kind)]
    for wrong in (what for what in probe.what if what[:2] in DECLARED and what not in known):
        there = ", ".join(known) or "nothing"
        raise ValueError(f"probe {wrong!r}: no part of {method.name} declares it; declared are {there}")


@dataclass(frozen=True, eq=False)
class Probed:
    """What a probe kept in one round: vectors `[C, P]` by name, with the layers inside them; of the server `[1, D]`."""

    round: int
    clients: tuple[int, ...]
    layout: Layout
    vectors: dict[str, Tensor]


def before_training(probe: Probe, problem: Problem, method: Method, s: Server, ids: Sequence[int], table: Table):
    """Gradients and perturbations of each participant, `[C, P]`, and the global model. Nothing of the run changes."""
    wanted = [what for what in probe.what if what in BEFORE]
    each = [_one(probe, problem, method, s, i, table) for i in ids] if wanted else []
    start = {GLOBAL: s.values(["w"])["w"][None]} if GLOBAL in probe.what else {}
    return {what: torch.cat([x[what] for x in each]) for what in wanted} | start


def _one(probe: Probe, problem: Problem, method: Method, s: Server, i: int, table: Table) -> dict[str, Tensor]:
    oracle = single_oracle(problem.objective, problem.plan(s.t, [i]))
    k = problem.cohort(method, s, [i], table.gather([i], method.declared("per_client")), oracle)
    with problem.objective.arithmetic():
        start_round(method, k, s)
        looks = [_look(method, k, s, step) for step in range(min(probe.batches, k.max_steps))]
    return {what: torch.stack([look[what] for look in looks]).mean(0) for what in BEFORE}


def _look(method: Method, k: Cohort, s: Server, step: int) -> dict[str, Tensor]:
    k.begin(step)
    delta = method.fold("perturb", k, s, None)
    return {"gradient": k.grad(k.w), "perturbation": torch.zeros_like(k.w) if delta is None else delta}


def after_training(probe: Probe, k: Cohort, s: Server) -> dict[str, Tensor]:
    """Moves and models of each participant, and declared state."""
    done = {"move": k.values(["delta"])["delta"], "model": k.values(["w"])["w"]}
    moved = {what: done[what] for what in probe.what if what in AFTER}
    return moved | {what: _state(what, k, s) for what in probe.what if what[:2] in DECLARED}


def _state(what: str, k: Cohort, s: Server) -> Tensor:
    """k.NAME of each participant, `[C, D]`, or s.NAME as one row."""
    mark, name = what[:2], what[2:]
    return k.values([name])[name] if mark == "k." else s.values([name])[name][None]


def write_probe(entry: Entry, t: int, ids: Sequence[int], layout: Layout, vectors: dict[str, Tensor]) -> None:
    """Write one round's vectors into the run's folder."""
    with writing(entry.folder):
        new_folder(entry.folder / "probes")
        about = {"clients": json.dumps(list(ids)), "layout": json.dumps([layout.names, layout.shapes])}
        save_tensors(path_of(entry, t), vectors, about | {"key": entry.key, "round": str(t)})


def read_probe(entry: Entry, t: int) -> Probed:
    """Read one round's vectors back, checked."""
    path = path_of(entry, t)
    vectors, about = entry.read(path, _lost(t))
    with entry.reading(path, _lost(t)):
        if about.get("round", str(t)) != str(t):
            raise DamagedFile(path, f"is the probe of round {about['round']}")
        try:
            names, shapes = json.loads(about["layout"])
            layout = Layout(tuple(names), tuple(tuple(shape) for shape in shapes))
            return Probed(t, tuple(json.loads(about["clients"])), layout, vectors)
        except (KeyError, TypeError, ValueError):
            raise DamagedFile(path, "does not say which clients and layers it has") from None


def check_probes(entry: Entry, rounds: Sequence[int]) -> None:
    """Refuse a run that has lost a probe of its finished rounds."""
    for t in rounds:
        with entry.reading(path_of(entry, t), _lost(t)):
            path_of(entry, t).stat()


def path_of(entry: Entry, t: int) -> Path:
    return entry.folder / "probes" / f"round-{t:06d}.safetensors"


def _lost(t: int) -> str:
    return f"the probe of round {t}"
