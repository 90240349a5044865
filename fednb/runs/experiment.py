"""run(setting, method, seed): train, evaluate, checkpoint; resume what was interrupted, reuse what is finished."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from math import ceil, isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednb import models
from fednb.algorithms.catalogue import method as named
from fednb.algorithms.parts.optimiser import rate_factor
from fednb.base.locks import Held
from fednb.base.progress import Bar, bar_of
from fednb.base.streams import whole_seed
from fednb.base.version import __version__, commit
from fednb.core.record import Server, Table
from fednb.core.rounds import Method, observed_server
from fednb.data import identity
from fednb.engines import Company, Engine, Pool, Stacked, choose
from fednb.engines.objective import wait_for
from fednb.engines.problem import participants
from fednb.engines.setting import Setting
from fednb.runs import probes
from fednb.runs.callbacks.callback import Watch, telling
from fednb.runs.checkpoints import Checkpoints, Session
from fednb.runs.evaluate import GlobalJudge, judge_of, tuned
from fednb.runs.keys import identify, key_of, own_model
from fednb.runs.longer import shorter_run
from fednb.runs.result import NotProbed as NotProbed
from fednb.runs.result import Run
from fednb.runs.store import Entry, home


class NoFittingModel(ValueError):
    """A method that needs a kind of model which the setting's has no form of."""


def fitted(setting: Setting, method: Method) -> Setting:
    """The setting with the form of its model that the method needs: cnn5 with a bottleneck, cnn5-cr, for FedCR."""
    for end in (p.network for p in method.parts if not setting.model.endswith(p.network)):
        if setting.model + end not in models.names():
            there = ", ".join(name for name in models.names() if name.endswith(end))
            raise NoFittingModel(f"{method.name} has no form of {setting.model!r}; the models that fit it are {there}")
        setting = setting.but(model=setting.model + end)
    return setting


def run_of(setting: Setting, method: Method, seed: int, probe: probes.Probe | None = None) -> Run:
    """The run with this identity, whether or not it has been started."""
    setting = fitted(setting, method)
    return Run(Entry.of(key_of(identify(setting, method, seed, probe))), setting, method, whole_seed(seed))


def run(
    setting: Setting,
    method: str | Method,
    seed: int = 0,
    *,
    engine: str = "auto",
    device: str = "auto",
    workers: int | None = None,
    probe: probes.Probe | None = None,
    progress: bool | Watch = True,
    on_round: Watch | Sequence[Watch] = (),
    again: bool = False,
    beside: Company | None = None,
) -> Run:
    """Run a method in a setting, or take it from the store where it is finished.

    An interrupted run goes on after its last finished round, with the same bits as if nothing had happened; so does a
    run with more rounds than a finished one that is otherwise the same. A loss that is not finite ends the run with
    status "diverged". on_round: a function, or several, told of every round as a dictionary (see `fn.callbacks`).
    progress: a bar, none, or a function in its place. again: make the run anew; what the store has of it is set aside.
    beside: runs of this process that train on the same device at the same time (see `fednb.runs.together`).

    >>> setting = fn.Setting(samples=100, clients=4, rounds=2, epochs=1, batch=25)
    >>> run = fn.run(setting, "FedSAM", progress=False)
    >>> run.status, len(run.history)
    ('finished', 2)
    """
    method = named(method)
    if probe:
        probes.check(probe, method)
    if probe and max(probe.rounds, default=0) >= setting.rounds:
        raise ValueError(f"probe rounds = {probe.rounds}: the run has rounds 0 to {setting.rounds - 1}")
    wanted = run_of(setting, method, seed, probe)
    if again:
        wanted.entry.set_aside()
    identity.check(wanted.about.get("data"), setting.data, wanted.key, thoroughly=not wanted.entry.ended)
    made = None if wanted.entry.ended else choose(engine, wanted.setting, method, wanted.seed, device=device,
                                                  workers=workers, beside=beside)  # fmt: skip
    if isinstance(made, Stacked) and made.mode == "compiled":  # for processes to come
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(home() / "compiled"))
    with telling(on_round, wanted, lambda: replace(wanted)) as tell:
        if made is None or not _made(wanted, made, probe, progress, tell, again):
            for row in replace(wanted).rows if on_round else []:
                if not row.get("tuned"):
                    tell(row)
    return replace(wanted)  # as it is now, under the key that it had: code that cannot be read has another every time


def _made(
    wanted: Run, engine: Engine, probe: probes.Probe | None, progress: bool | Watch, tell: Watch, again: bool
) -> bool:
    """Make a run under its lock; False where another process has made it meanwhile."""
    with wanted.entry.lock() as held:
        if wanted.entry.ended:
            return False
        with _watching(progress, wanted) as watch:

            def both(row: dict[str, Any]) -> None:
                watch(row)
                tell(row)

            _train(wanted, engine, probe, both, held, again)
    return True


def _train(
    wanted: Run, engine: Engine, probe: probes.Probe | None, watch: Watch, held: Held, again: bool = False
) -> None:
    setting, method, entry, problem = wanted.setting, wanted.method, wanted.entry, engine.problem
    dtype, device = next((p.dtype, p.device) for p in problem.objective.model.parameters())
    w, b = problem.objective.start(dtype, device)
    judge = judge_of(setting, wanted.seed, engine, w, b)
    start = {name: torch.zeros(size, dtype=torch.float64) for name, size in judge.kept.items()}
    s = problem.server(method, w, b)
    table = _table(method.buffers("per_client", problem.objective.layout, w) | start, problem.clients, device)
    session = Session(entry, held)
    history = session.load(s, table)
    if probe:
        probes.check_probes(entry, [t for t in probe.rounds if t < s.t])
    about = _about(wanted, engine, probe, device) | _from_before(entry)
    session.describe(about | {"status": "running"})
    if begun := None if history or probe or again else shorter_run(wanted, about):
        history = session.take_over(begun.entry, s, table)
        about |= {"went_on_from": begun.key}
        session.describe(about | {"status": "running"})
    for row in history[: s.t]:
        watch(row)
    with Checkpoints(session, s, table, history) as checkpoints:
        while s.t < setting.rounds and all(map(_sound, history[-1:])):
            ids = participants(setting, wanted.seed, s.t)
            history.append(_one_round(engine, judge, method, s, table, ids, setting, probe, entry))
            checkpoints.finished(ids)
            watch(history[-1])
    tuning = setting.evaluation == "personal" and setting.tune_epochs and not history[-1]["tuned"]
    if tuning and _sound(history[-1]):
        history.append(_tuned_row(wanted, engine, s, table, history[-1]))
        session.save(s, table, [], history)
    session.end(about | {"status": "finished" if _sound(history[-1]) else "diverged", "ended": _now()})


def _from_before(entry: Entry) -> dict[str, Any]:
    """What stays of run.json when an interrupted run goes on."""
    known = entry.about()
    return {"started": _now()} | {name: known[name] for name in ("started", "unchecked") if name in known}


def _table(start: dict[str, Tensor], clients: int, device: torch.device) -> Table:
    """What clients keep; in the host's memory where it would take more than half of what a GPU has left."""
    wanted = clients * sum(x.numel() * x.element_size() for x in start.values())
    return Table(start, on_host=device.type == "cuda" and wanted > torch.cuda.mem_get_info(device)[0] / 2)


def _sound(row: dict[str, Any]) -> bool:
    """Whether the round's numbers are still numbers."""
    return isfinite(row["train_loss"]) and isfinite(row["drift"])


def _tuned_row(wanted: Run, engine: Engine, s: Server, table: Table, last: dict[str, Any]) -> dict[str, Any]:
    """The extra line of a personalised run: everyone's classifier tuned on the server's model."""
    groups = ceil(engine.problem.clients / last["clients"])  # each trained like the clients of a round
    longer = wanted.setting.but(epochs=wanted.setting.tune_epochs, rounds=groups)
    beside = None
    if isinstance(engine, Stacked) and engine.beside_others:
        beside = Company(engine.shared, engine.runs, engine.kinds)
    tuner = choose(engine.name, longer, wanted.method, wanted.seed, device=str(s.values(["w"])["w"].device),
                   workers=len(engine.crew.members) if isinstance(engine, Pool) else None, beside=beside)  # fmt: skip
    began = time.perf_counter()
    accuracy, gradients = tuned(tuner, wanted.method, s, table, size=last["clients"])
    one = last["bytes_down"] // last["clients"]
    done = {"accuracy": accuracy, "gradient_evaluations": gradients, "clients": tuner.problem.clients, "tuned": 1}
    sent = {"bytes_down": one * tuner.problem.clients, "bytes_up": 0, "lr": tuner.problem.rate(s.t)}
    unknown = dict.fromkeys(wanted.setting.metrics)  # of the tuned models
    return last | {"round": s.t, "seconds": time.perf_counter() - began} | done | sent | unknown


def _one_round(
    engine: Engine, judge: GlobalJudge, method: Method, s: Server, table: Table, ids: list[int], setting: Setting,
    probe: probes.Probe | None, entry: Entry,
) -> dict[str, Any]:  # fmt: skip
    """One round, from the participants to a line of the history."""
    t, problem = s.t, engine.problem
    probe = probe if probe is not None and t in probe.rounds else None
    vectors = probes.before_training(probe, problem, method, s, ids, table) if probe else {}
    began = time.perf_counter()
    k, down = engine.train(method, s, ids, table.gather(ids, method.declared("per_client")))
    up = observed_server(method, k, s)
    table.scatter(ids, k.values(method.declared("per_client")))
    wait_for(s.values(["w"])["w"].device)
    seconds = time.perf_counter() - began
    now = k.values(("w", "delta", "loss"))
    if probe:
        probes.write_probe(entry, t, ids, problem.objective.layout, vectors | probes.after_training(probe, k, s))
    tested = (t + 1) % setting.evaluate_every == 0 or t + 1 == setting.rounds
    judged = judge.row(k, s, table, tested)
    width = now["w"].element_size()
    return {
        "round": t,
        **judged,
        "train_loss": float(now["loss"].double().mean()),
        "drift": float(now["delta"].double().norm(dim=-1).mean()),
        "seconds": seconds,
        "gradient_evaluations": int(k.evaluations.sum()),
        "bytes_down": down * width * len(ids),
        "bytes_up": up * width * len(ids),
        "clients": len(ids),
        "lr": problem.rate(t) * rate_factor(method, t),
    }


@contextmanager
def _watching(progress: bool | Watch, wanted: Run) -> Iterator[Watch]:
    """A progress bar, a caller's own function, or silence."""
    if callable(progress):
        yield progress
        return
    with bar_of(wanted.setting.rounds, wanted.method.name, show=progress) as bar:
        count = counting(bar, wanted)

        def watch(row: dict[str, Any]) -> None:
            if row["accuracy"] is not None:
                bar.say(f"accuracy {row['accuracy']:.2f}%")
            count(row)

        yield watch


def counting(bar: Bar, wanted: Run) -> Watch:
    """Counts a run's rounds; those that were finished before say nothing about how long the others take."""
    known = len(wanted.entry.history())

    def watch(row: dict[str, Any]) -> None:
        bar.update(before=row["round"] < known)

    return watch


def _about(wanted: Run, engine: Engine, probe: probes.Probe | None, device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"
    return {
        "key": wanted.key,
        "setting": wanted.setting.plain(),
        "method": wanted.method.name,
        "parts": repr(wanted.method),
        "seed": wanted.seed,
        **({"probe": asdict(probe)} if probe else {}),
        "data": identity.identity(wanted.setting.data),
        **({"model": own} if (own := own_model(wanted.setting)) else {}),
        "engine": engine.name,
        **({"mode": engine.mode} if isinstance(engine, Stacked) else {}),
        "device": str(device),
        "device_name": name,
        "versions": {
            "fednb": __version__,
            "commit": commit(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
