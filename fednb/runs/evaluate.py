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


def judge_of(setting: Setting, engine: Engine, w: Tensor, b: Tensor) -> GlobalJudge:
    return PersonalJudge(engine, w, b) if setting.evaluation == "personal" else GlobalJudge(engine)


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
