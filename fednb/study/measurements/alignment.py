"""Whether clients look uphill where the global loss goes up: FedWMSAM's "local-global curvature misalignment"."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import nan
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fednb.base.progress import bar_of
from fednb.engines import device_of
from fednb.engines.objective import one_thread
from fednb.engines.problem import Problem, dealt, problem_of
from fednb.metrics.cache import Measured, Question
from fednb.metrics.drift import agreement
from fednb.metrics.features import NeedsStatistics
from fednb.metrics.tidy import about, finished, wanted
from fednb.runs.probes import GLOBAL
from fednb.runs.result import refuse_others
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Results
    from fednb.runs.probes import Probe

VERSION = 1  # of what is stored; see `metrics.cache`
MEASURES = ("alignment", "agreement")
CHUNK = 500  # samples at a time; fixed, so that sums have one order


class GlobalLoss:
    """F(w) = Σ n_k/n F_k(w): the mean loss over the samples of all clients, as they are, without augmentation."""

    def __init__(self, problem: Problem, parts: list[np.ndarray]) -> None:
        if len(problem.objective.buffers):
            raise NeedsStatistics(
                "probes keep weights, not BatchNorm statistics, so the loss of a probed model is not known; use the "
                "model with GroupNorm (-gn)"
            )
        assert problem.samples is not None
        self.objective, self.inputs = problem.objective, problem.inputs
        index = torch.from_numpy(np.concatenate(parts)).to(problem.samples[1].device)
        self.x, self.y = (part[index] for part in problem.samples)

    @classmethod
    def of(cls, run: Run, device: str = "auto") -> GlobalLoss:
        """The mean loss over the samples of a run's clients."""
        refuse_others(run)
        data, parts = dealt(run.setting, run.seed)
        return cls(problem_of(run.setting, run.seed, device_of(device), data, parts), parts)

    def gradient(self, w: Tensor) -> Tensor:
        """∇F(w), `[P]`, in double precision on the CPU."""
        like = next(self.objective.model.parameters())
        w, none = w.to(like.device, like.dtype), like.new_zeros(0)
        total = torch.zeros(len(w), dtype=torch.float64, device=like.device)
        for at in range(0, len(self.y), CHUNK):
            x, y = self.x[at : at + CHUNK], self.y[at : at + CHUNK]
            total += self.objective.gradient(w, none, self.inputs(x), y)[0].double() * (len(y) / len(self.y))
        return total.cpu()


def alignments(delta: Tensor, g: Tensor) -> Tensor:
    """cos(δ_k, ∇F) of each client that perturbs at all, `[C']`: 1 if it looks where the global loss rises most."""
    moved = delta[delta.norm(dim=-1) > 0].double()
    return F.cosine_similarity(moved, g.double()[None], dim=-1, eps=1e-300)


@measurement("alignment")
@one_thread()
def alignment(results: Results, device: str = "auto") -> pd.DataFrame:
    """How clients' perturbations lie to the global one and to each other, in every probed round (FedWMSAM Fig. 2).

    alignment: the mean over clients of cos(δ_k, ∇F(w)), ∇F that of all clients' data at the model w that the round
    starts from, which is the direction of the perturbation of the global loss. agreement: the mean cosine between two
    clients. Clients without a perturbation (FedLESAM's at their first time) do not count. The probe keeps perturbation
    and global; FedWMSAM's perturbation is zero at a client's first step, so that it needs two batches to be seen.
    """
    import pandas as pd

    rows, sound = [], finished(results)
    with bar_of(len(sound.runs) * len(results.probe.rounds), "alignment", unit="probe") as bar:
        for end, (cell, run) in enumerate(sound, 1):
            asked = Question(run, "alignment", VERSION, {"rounds": results.probe.rounds, "device": device})
            there, make = asked.answered, partial(_by_round, run, results.probe, device, bar.update)
            found = {name: x.tolist() for name, x in asked.answer(make).items()}
            for t, *values in zip(*(found[name] for name in ("round", *MEASURES)), strict=True):
                named = zip(MEASURES, values, strict=True)
                rows += [{**about(cell, run, t), "measure": name, "value": value} for name, value in named]
            bar.update(end * len(results.probe.rounds) - bar.n, before=there)
    return pd.DataFrame(rows)


def _by_round(run: Run, probe: Probe, device: str, tick: Callable[[], object]) -> Measured:
    """The measures of one run in every probed round, as they are kept."""
    loss, found = GlobalLoss.of(run, device), []
    for kept in run.all_probed(probe):
        delta, w = wanted(run, kept, "perturbation", GLOBAL)
        each = alignments(delta, loss.gradient(w[0]))
        moved = delta[delta.norm(dim=-1) > 0]
        found.append((float(each.mean()) if len(each) else nan, agreement(moved) if len(moved) > 1 else nan))
        tick()
    values = torch.tensor(found, dtype=torch.float64).view(-1, len(MEASURES))
    return {"round": torch.tensor(probe.rounds), **dict(zip(MEASURES, values.T, strict=True))}
