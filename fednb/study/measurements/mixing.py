"""FedWMSAM's schedule: how much of a local step is the gradient and how much the momentum, round by round."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fednb.metrics.tidy import about, finished, wanted
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Cell, Results
    from fednb.runs.probes import Probe

ALPHA = "s.alpha"  # what a probe keeps of the schedule


@measurement("mixing")
def mixing(results: Results) -> pd.DataFrame:
    """α, the gradient's share of a local step, after every probed round, and what it follows (FedWMSAM, section C).

    As "gradient share"; and for the rounds between two probes as "agreement", 1 − α̂: how well the clients go on with
    the momentum, between 0.1 and 0.9, where the schedule is clipped. From a probe of s.alpha.
    """
    import pandas as pd

    rows = [row for cell, run in finished(results) for row in _of_run(cell, run, results.probe)]
    return pd.DataFrame(rows)


def _of_run(cell: Cell, run: Run, probe: Probe) -> Iterator[dict[str, Any]]:
    shares = {kept.round: float(wanted(run, kept, ALPHA)[0]) for kept in run.all_probed(probe)}
    for t, share in shares.items():
        yield {**about(cell, run, t), "measure": "gradient share", "value": share}
    weight = cell.method.parameters().get("lam", 0.0)
    for (t, before), (u, after) in pairwise(sorted(shares.items())) if weight else ():
        yield {**about(cell, run, u), "measure": "agreement", "value": 1 - followed(before, after, u - t, weight)}


def followed(before: float, after: float, rounds: int, weight: float) -> float:
    """α̂ that `rounds` steps α ← (1 − λ) α + λ α̂ have followed from one α to another, as their weighted mean.

    >>> round(followed(0.1, 0.99 * 0.1 + 0.01 * 0.7, rounds=1, weight=0.01), 6)
    0.7
    """
    left = (1 - weight) ** rounds
    return (after - left * before) / (1 - left)
