"""run(setting, method, seed): train, evaluate, checkpoint; resume what was interrupted, reuse what is finished."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednb import models
from fednb.algorithms.catalogue import method as named
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
from fednb.runs.checkpoints import Checkpoints, Session
from fednb.runs.evaluate import GlobalJudge, judge_of, tuned
from fednb.runs.keys import identify, key_of
from fednb.runs.store import Entry, home

Watch = Callable[[dict[str, Any]], None]


class NotProbed(RuntimeError):
    """A round that a run did not reach."""


@dataclass(frozen=True)
class Run:
    """A run as the store has it."""

    entry: Entry
    setting: Setting
    method: Method
    seed: int

    @property
    def key(self) -> str:
        return self.entry.key

    @cached_property
    def about(self) -> dict[str, Any]:
        return self.entry.about()

    @property
    def status(self) -> str:
        """finished, diverged, or running (also where it was interrupted)."""
        return self.about.get("status", "absent")

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        return self.entry.history()

    @cached_property
    def history(self):
        """One row per round, as a pandas table."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def accuracies(self) -> list[float]:
        """Test accuracy in percent, of the rounds that were evaluated and finite."""
        return [row["accuracy"] for row in self.rows if row["accuracy"] is not None and isfinite(row["accuracy"])]

    @property
    def accuracy_last(self) -> float | None:
        """Of the last round; nothing where the run diverged."""
        return self.accuracies[-1] if self.accuracies and self.status == "finished" else None

    @property
    def accuracy_best(self) -> float | None:
        return max(self.accuracies, default=None)

    @property
    def accuracy_last_ten(self) -> float | None:
        """The mean over the last ten rounds that were evaluated; nothing where the run diverged."""
        return float(np.mean(self.accuracies[-10:])) if self.accuracy_last is not None else None

    @property
    def accuracy(self) -> float | None:
        """The one that the setting reports."""
        if self.setting.report == "mean_last_10":
            return self.accuracy_last_ten
        return self.accuracy_best if self.setting.report == "best" else self.accuracy_last

    @cached_property
    def w(self) -> Tensor:
        """The global model's weights after the last finished round."""
        return self.entry.weights()["w"]

    @property
    def weights_sha256(self) -> str:
        """The digest of the weights and buffers, as recorded when they were written."""
        return self.entry.weights_sha256()

    def probed(self, t: int) -> probes.Probed:
        """What the run's probe kept in round t."""
        return probes.read_probe(self.entry, t)

    def all_probed(self, probe: probes.Probe) -> list[probes.Probed]:
        """What was kept in all rounds of a probe."""
        if missing := [t for t in probe.rounds if t >= len(self.rows)]:
            raise NotProbed(f"run {self.key} ({self.method}) is {self.status} after {len(self.rows)} rounds; "
                            f"its probe of round {missing[0]} was never taken")  # fmt: skip
        return [self.probed(t) for t in probe.rounds]

    def summary(self) -> dict[str, Any]:
        """The run in one line of JSON; DamagedRun where the weights that it names are not there any more."""
        if not self.entry.bare:
            self.entry.load_state()
        seconds = [row["seconds"] for row in self.rows]
        return {
            "key": self.key,
            "status": self.status,
            "method": self.method.name,
            "rounds": sum(not row.get("tuned") for row in self.rows),
            "accuracy_last": self.accuracy_last,
            "accuracy_best": self.accuracy_best,
            "seconds_per_round": float(np.mean(seconds)) if seconds else None,
            "weights_sha256": self.weights_sha256,
            "engine": self.about["engine"],
            "device": self.about["device"],
        }


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
    again: bool = False,
    beside: Company | None = None,
) -> Run:
    """Run a method in a setting, or take it from the store where it is finished.

    An interrupted run goes on after its last finished round, with the same bits as if nothing had happened. A loss
    that stops being finite ends the run with status "diverged". again: make the run anew; what the store has of it is
    set aside. beside: runs of this process that train on the same device at the same time (see `fednb.runs.together`).

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
    if not wanted.entry.ended:
        made = choose(engine, wanted.setting, method, wanted.seed, device=device, workers=workers, beside=beside)
        if isinstance(made, Stacked) and made.mode == "compiled":  # for processes to come
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(home() / "compiled"))
        with wanted.entry.lock() as held:
            if not wanted.entry.ended:
                with _watching(progress, wanted) as watch:
                    _train(wanted, made, probe, watch, held)
    return replace(wanted)  # as it is now, under the key that it had: code that cannot be read has another every time


def _train(wanted: Run, engine: Engine, probe: probes.Probe | None, watch: Watch, held: Held) -> None:
    setting, method, entry, problem = wanted.setting, wanted.method, wanted.entry, engine.problem
    dtype, device = next((p.dtype, p.device) for p in problem.objective.model.parameters())
    w, b = problem.objective.start(dtype, device)
    judge = judge_of(setting, engine, w, b)
    start = {name: torch.zeros(size, dtype=torch.float64) for name, size in judge.kept.items()}
    s = problem.server(method, w, b)
    table = _table(method.buffers("per_client", problem.objective.layout, w) | start, problem.clients, device)
    session = Session(entry, held)
    history = session.load(s, table)
    if probe:
        probes.check_probes(entry, [t for t in probe.rounds if t < s.t])
    about = _about(wanted, engine, probe, device) | _from_before(entry)
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
    longer = wanted.setting.but(epochs=wanted.setting.tune_epochs, rounds=1)
    tuner = choose(engine.name, longer, wanted.method, wanted.seed, device=str(s.values(["w"])["w"].device),
                   workers=len(engine.crew.members) if isinstance(engine, Pool) else None)  # fmt: skip
    began = time.perf_counter()
    accuracy, gradients = tuned(tuner, wanted.method, s, table, size=last["clients"])
    one = last["bytes_down"] // last["clients"]
    done = {"accuracy": accuracy, "gradient_evaluations": gradients, "clients": tuner.problem.clients, "tuned": 1}
    sent = {"bytes_down": one * tuner.problem.clients, "bytes_up": 0, "lr": tuner.problem.rate(s.t)}
    return last | {"round": s.t, "seconds": time.perf_counter() - began} | done | sent


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
        "lr": problem.rate(t),
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
        "engine": engine.name,
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
