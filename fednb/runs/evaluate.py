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
from fednb.engines.objective import arithmetic
from fednb.engines.problem import data_of, validation_of
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


def judge_of(setting: Setting, seed: int, engine: Engine, w: Tensor, b: Tensor) -> GlobalJudge:
    """What judges the rounds of a run, as its setting says."""
    if setting.evaluation == "personal":
        return PersonalJudge(engine, w, b)
    return ValidatingJudge(engine, setting, seed) if setting.validation else GlobalJudge(engine)


def tuned(engine: Engine, method: Method, s: Server, table: Table, size: int) -> tuple[float, int]:
    """One more round in which everyone takes the server's model and trains the classifier alone.

    Returns the mean accuracy and the gradients that it took.

    Private heads stay private. Clients come in groups of `size`, so that no more memory is needed than in a round.
    """
    tune = Method(f"{method.name}, tuned", *(p for p in method.parts if p.owns_model), OnlyHead())
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
