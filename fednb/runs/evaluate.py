"""How a round is judged: the server's model on the test set, or each client's own model on its own split."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednb.algorithms.parts import OnlyHead
from fednb.base.progress import bar_of
from fednb.core.record import Cohort, Server, Table
from fednb.core.rounds import Method
from fednb.engines import Engine
from fednb.engines.measures import METRICS, Metric
from fednb.engines.objective import arithmetic
from fednb.engines.problem import Problem, clients_of, data_of, validation_of, whole_parts
from fednb.engines.setting import Setting


class GlobalJudge:
    """Accuracy (percent) and loss of the server's model on the whole test set."""

    kept: dict[str, int] = {}

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def row(self, k: Cohort, s: Server, table: Table, tested: bool) -> dict[str, Any]:
        """The judgement of one round; nothing where it is not tested."""
        accuracy, loss = self.engine.evaluate(*s.values(("w", "b")).values()) if tested else (None, None)
        return {"accuracy": accuracy, "test_loss": loss}


class ValidatingJudge(GlobalJudge):
    """The server's model on the test set, and on the samples that the setting holds out for validation."""

    def __init__(self, engine: Engine, setting: Setting, seed: int) -> None:
        super().__init__(engine)
        assert engine.problem.samples is not None
        held = torch.from_numpy(validation_of(setting, seed, data_of(setting)))
        x, y = engine.problem.samples
        self.samples = x[held.to(x.device)], y[held.to(y.device)]

    def row(self, k: Cohort, s: Server, table: Table, tested: bool) -> dict[str, Any]:
        seen = super().row(k, s, table, tested)
        accuracy, loss = self._validated(*s.values(("w", "b")).values()) if tested else (None, None)
        return seen | {"validation_accuracy": accuracy, "validation_loss": loss}

    def _validated(self, w: Tensor, b: Tensor) -> tuple[float, float]:
        problem, (x, y) = self.engine.problem, self.samples
        pieces = zip(x.split(problem.chunk), y.split(problem.chunk), strict=True)
        with arithmetic(problem.objective.precision):
            scores = [problem.objective.score(w, b, problem.inputs(some), answers) for some, answers in pieces]
        right, loss = (sum(float(each[i]) for each in scores) for i in (0, 1))
        return 100.0 * right / len(y), loss / len(y)


class PersonalJudge(GlobalJudge):
    """The unweighted mean over all clients of each one's own latest model on its own test split (FedFSA, FedCR).

    A client that stays away keeps the accuracy of the model it last trained; one that never came has the first model.
    The server's model on all splits together stands beside it.
    """

    kept = {"own_accuracy": 1}

    def __init__(self, engine: Engine, w: Tensor, b: Tensor) -> None:
        super().__init__(engine)
        self.first: list[float] = []
        with bar_of(engine.problem.clients, "first model", unit="client") as bar:
            for i in range(engine.problem.clients):
                self.first.append(engine.problem.score_own(w, b, i))
                bar.update()

    def mean(self, table: Table) -> float:
        return float(np.mean([self.own(table, i) for i in range(len(self.first))]))

    def own(self, table: Table, i: int) -> float:
        return float(table.clients[i]["own_accuracy"]) if i in table.clients else self.first[i]

    def row(self, k: Cohort, s: Server, table: Table, tested: bool) -> dict[str, Any]:
        for i, accuracy in zip(k.ids, self.engine.evaluate_own(k), strict=True):
            table.clients[i]["own_accuracy"] = torch.tensor([accuracy], dtype=torch.float64)
        seen = super().row(k, s, table, tested)
        own = self.mean(table) if tested else None
        return {"accuracy": own, "test_loss": seen["test_loss"], "global_accuracy": seen["accuracy"], "tuned": 0}


class MeasuringJudge(GlobalJudge):
    """What another judge says of a round, and the setting's extra metrics.

    A metric of the clients asks about each one's own samples: with evaluation="personal" its latest own model on its
    test split, else the server's model on what it holds out for validation, or on its training samples. Every metric is
    tried on the first model, so that one that fails does so before anything is trained.
    """

    def __init__(self, judge: GlobalJudge, setting: Setting, seed: int, w: Tensor, b: Tensor) -> None:
        super().__init__(judge.engine)
        self.judge, self.metrics = judge, [METRICS[name] for name in setting.metrics]
        self.personal = setting.evaluation == "personal"
        self.own = _samples_of_clients(setting, seed, self.engine.problem) if self._of_clients() else []
        self.kept = judge.kept | {_kept(m): 1 for m in self._of_clients() if self.personal}
        self._on_test_set(w, b)
        self.first = [self._on_client(w, b, client) for client in range(len(self.own))]

    def row(self, k: Cohort, s: Server, table: Table, tested: bool) -> dict[str, Any]:
        seen = self.judge.row(k, s, table, tested)
        for at, client in enumerate(k.ids if self.own and self.personal else ()):
            w, b = (x[at] for x in k.values(("w", "b")).values())
            for m, value in self._on_client(w, b, client).items():
                table.clients[client][_kept(m)] = torch.tensor([value], dtype=torch.float64)
        if not tested:
            return seen | {m.name: None for m in self.metrics}
        w, b = s.values(("w", "b")).values()
        found = self._on_test_set(w, b) | self._over_clients(w, b, table)
        return seen | {m.name: found[m] for m in self.metrics}

    def _of_clients(self) -> list[Metric]:
        return [m for m in self.metrics if m.per_client]

    def _on_test_set(self, w: Tensor, b: Tensor) -> dict[Metric, float]:
        wanted = [m for m in self.metrics if not m.per_client]
        assert self.engine.problem.test is not None
        answers = self.engine.problem.answers(w, b, *self.engine.problem.test) if wanted else ()
        return {m: m(*answers) for m in wanted}

    def _on_client(self, w: Tensor, b: Tensor, client: int) -> dict[Metric, float]:
        assert self.engine.problem.samples is not None
        x, y = (each[self.own[client]] for each in self.engine.problem.samples)
        answers = self.engine.problem.answers(w, b, x, y)
        return {m: m(*answers) for m in self._of_clients()}

    def _over_clients(self, w: Tensor, b: Tensor, table: Table) -> dict[Metric, float]:
        if self.personal:
            each = [self._latest(table, client) for client in range(len(self.own))]
        else:
            each = [self._on_client(w, b, client) for client in range(len(self.own))]
        return {m: m.over_clients(values[m] for values in each) for m in self._of_clients()}

    def _latest(self, table: Table, client: int) -> dict[Metric, float]:
        if client not in table.clients:
            return self.first[client]
        return {m: float(table.clients[client][_kept(m)]) for m in self._of_clients()}


def _kept(metric: Metric) -> str:
    """The name under which each client keeps its number."""
    return f"own_{metric.name}"


def _samples_of_clients(setting: Setting, seed: int, problem: Problem) -> list[Tensor]:
    """Each client's samples to be asked about, as indices; a client without any is left out."""
    assert problem.samples is not None
    if setting.evaluation == "personal":
        return list(problem.own)
    data = data_of(setting)
    if setting.validation and setting.validation_on == "clients":
        whole, held = whole_parts(setting, seed, data), validation_of(setting, seed, data)
        parts = [np.intersect1d(part, held) for part in whole]
    else:
        parts = clients_of(setting, seed, data)
    return [torch.from_numpy(part).to(problem.samples[1].device) for part in parts if len(part)]


def judge_of(setting: Setting, seed: int, engine: Engine, w: Tensor, b: Tensor) -> GlobalJudge:
    """What judges the rounds of a run, as its setting says."""
    judge = _judge(setting, seed, engine, w, b)
    return MeasuringJudge(judge, setting, seed, w, b) if setting.metrics else judge


def _judge(setting: Setting, seed: int, engine: Engine, w: Tensor, b: Tensor) -> GlobalJudge:
    if setting.evaluation == "personal":
        return PersonalJudge(engine, w, b)
    return ValidatingJudge(engine, setting, seed) if setting.validation else GlobalJudge(engine)


def tuning(method: Method) -> Method:
    """The method of the round that tunes classifiers: what keeps models private, and training of the last module."""
    return Method(f"{method.name}, tuned", *(p for p in method.parts if p.owns_model), OnlyHead.after(method))


def tuned(engine: Engine, method: Method, s: Server, table: Table, size: int) -> tuple[float, int]:
    """One more round in which everyone takes the server's model and trains the classifier alone.

    Returns the mean accuracy and the gradients that it took.

    Private heads stay private. Clients come in groups of `size`, so that no more memory is needed than in a round.
    """
    tune = tuning(method)
    found: list[float] = []
    gradients = 0
    with bar_of(engine.problem.clients, "tuning", unit="client") as bar:
        for at in range(0, engine.problem.clients, size):
            ids = list(range(at, min(at + size, engine.problem.clients)))
            k, _ = engine.train(tune, s, ids, table.gather(ids, tune.declared("per_client")))
            found += engine.evaluate_own(k)
            gradients += int(k.evaluations.sum())
            bar.update(len(ids))
    return float(np.mean(found)), gradients
