"""Whether steps of earlier rounds persist in later ones, and overshoot: FedWMSAM's "momentum-echo oscillation"."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import nan
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fednb.base.progress import bar_of
from fednb.engines.objective import one_thread
from fednb.metrics.cache import Measured, Question
from fednb.metrics.tidy import about, finished, wanted
from fednb.runs.probes import GLOBAL
from fednb.study.measurements.alignment import GlobalLoss
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Results
    from fednb.runs.probes import Probe

VERSION = 1  # of what is stored; see `metrics.cache`
PHASES = ("early", "late")  # the first and the second half of the rounds


def phase(t: int, rounds: int) -> str:
    """The half of training that a round is in."""
    return PHASES[int(2 * t >= rounds)]


def models(run: Run, probe: Probe) -> dict[int, Tensor]:
    """The global model that each probed round starts from, `[P]`, and the one that the run ends with."""
    held = {kept.round: wanted(run, kept, GLOBAL)[0][0] for kept in run.all_probed(probe)}
    return held | ({run.setting.rounds: run.w} if run.setting.rounds - 1 in held else {})


def steps(held: dict[int, Tensor]) -> dict[int, Tensor]:
    """u_t = w_{t+1} − w_t of each round whose beginning and end were kept."""
    return {t: held[t + 1].double() - w.double() for t, w in held.items() if t + 1 in held}


def cosine(a: Tensor, b: Tensor) -> float:
    """cos(a, b); 0 where one of them is zero."""
    return float(F.cosine_similarity(a.double(), b.double(), dim=-1, eps=1e-300))


def turns(u: dict[int, Tensor], lag: int = 1) -> dict[int, float]:
    """cos(u_{t−lag}, u_t) of each step: how much of an earlier one is in it, −1 if it takes all back."""
    return {t: cosine(u[t - lag], later) for t, later in u.items() if t - lag in u}


def overshoots(
    held: dict[int, Tensor], u: dict[int, Tensor], loss: GlobalLoss, tick: Callable[[], object] = lambda: None
) -> dict[int, float]:
    """cos(∇F(w_{t+1}), u_t) of each step: above 0 where the global loss rises when it ends, so that it went too far."""
    found = {}
    for t, step in u.items():
        found[t] = cosine(loss.gradient(held[t + 1]), step)
        tick()
    return found


def rises(run: Run) -> dict[int, float]:
    """How much the test loss grew from one evaluated round to the next; 0 if it fell."""
    seen = [(row["round"], row["test_loss"]) for row in run.rows if row["test_loss"] is not None]
    return {t: max(0.0, after - before) for (_, before), (t, after) in pairwise(seen)}


@measurement("echo")
@one_thread()
def echo(results: Results, device: str = "auto") -> pd.DataFrame:
    """How the server's steps follow each other, by round and by half of training (FedWMSAM Fig. 3).

    The probe must keep `global` in consecutive rounds.

    persistence: the cosine of a step with the one before. alternation: 1 if that is below 0, a step back. overshoot: 1
    if the loss over all clients' data rises along the step where it ends. loss rise: how much the test loss grew since
    the last evaluation, 0 if it fell. Means of them are shares of rounds, and so are what claims are judged on.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    sound, each = finished(results), len(results.probe.rounds)
    with bar_of(len(sound.runs) * each, "echo", unit="probe") as bar:
        for end, (cell, run) in enumerate(sound, 1):
            asked = Question(run, "overshoot", VERSION, {"rounds": results.probe.rounds, "device": device})
            held, there = models(run, results.probe), asked.answered
            u = steps(held)
            beyond = asked.answer(partial(_overshoots, run, held, u, device, bar.update))
            for measure, values in _measures(run, turns(u), beyond).items():
                rows += [
                    {**about(cell, run, t), "phase": phase(t, run.setting.rounds), "measure": measure, "value": value}
                    for t, value in values.items()
                ]
            bar.update(end * each - bar.n, before=there)
    return pd.DataFrame(rows)


def _overshoots(
    run: Run, held: dict[int, Tensor], u: dict[int, Tensor], device: str, tick: Callable[[], object]
) -> Measured:
    """The overshoots of one run, as they are kept."""
    found = overshoots(held, u, GlobalLoss.of(run, device), tick)
    return {"round": torch.tensor(list(found), dtype=torch.int64),
            "overshoot": torch.tensor(list(found.values()), dtype=torch.float64)}  # fmt: skip


def _measures(run: Run, turned: dict[int, float], beyond: Measured) -> dict[str, dict[int, float]]:
    """The numbers that `echo` gives of one run, by measure and round."""
    over = zip(beyond["round"].tolist(), beyond["overshoot"].tolist(), strict=True)
    return {
        "persistence": turned,
        "alternation": {t: float(value < 0) for t, value in turned.items()},
        "overshoot": {t: float(value > 0) for t, value in over},
        "loss rise": rises(run),
    }


@measurement("echoes")
@one_thread()
def echoes(results: Results, most: int = 5) -> pd.DataFrame:
    """How long a step persists: the mean cosine of steps that are 1, 2, ... `most` rounds apart (FedWMSAM Fig. 3).

    By the half of training that the later step is in; nan where no two such steps were kept.
    """
    import pandas as pd

    rows = []
    for cell, run in finished(results):
        u, rounds = steps(models(run, results.probe)), run.setting.rounds
        for half in PHASES:
            for lag in range(1, most + 1):
                found = [value for t, value in turns(u, lag).items() if phase(t, rounds) == half]
                head = {**about(cell, run, rounds - 1), "phase": half, "lag": lag, "measure": "autocorrelation"}
                rows.append({**head, "value": sum(found) / len(found) if found else nan})
    return pd.DataFrame(rows).astype({"value": float})
