"""Learning curves, round by round, and what is read off them: how they start, how they end, how they fall back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby, pairwise
from math import nan
from typing import TYPE_CHECKING, Any

from fednb.data.sources import find as find_data
from fednb.metrics.tidy import run_columns
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Cell, Results

LOSSES = {"test_loss": "test loss", "train_loss": "training loss"}  # as the history has them, and in words


@measurement("curves")
def curves(results: Results, most: int | None = None) -> pd.DataFrame:
    """The test accuracy of every evaluated round, in percent; of `most` rounds of each run, evenly, if it has more.

    For learning curves, such as FedWMSAM's Fig. 4, FedFSA's Fig. 3 and 5, FedSCAM's Fig. 2 and 10.
    """
    return _by_round(results, {"accuracy": "accuracy"}, most)


@measurement("losses")
def losses(results: Results, most: int | None = None) -> pd.DataFrame:
    """Test and training loss of every evaluated round (FedSCAM Fig. 15); of `most` rounds of each run, evenly.

    The training loss is the mean over clients of what they saw while training, each at its own moving model.
    """
    return _by_round(results, LOSSES, most)


def _by_round(results: Results, columns: dict[str, str], most: int | None) -> pd.DataFrame:
    """Some columns of the runs' histories, given with their names in words: one row per evaluated round."""
    import pandas as pd

    rows = [
        {**run_columns(c, r), "measure": f"{said} by round", "round": row["round"], "value": row[name]}
        for c, r in results for name, said in columns.items() for row in thinned(evaluated(r), most)
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"value": float})


def evaluated(run: Run) -> list[dict[str, Any]]:
    """The rounds of a run's history that were evaluated, without the line of tuning after the last one."""
    return [row for row in run.rows if row["accuracy"] is not None and not row.get("tuned")]


def thinned(rows: list[Any], most: int | None) -> list[Any]:
    """At most so many of a list, evenly spread, the last always among them.

    >>> thinned([1, 2, 3, 4, 5, 6, 7, 8], 4)
    [2, 4, 6, 8]
    """
    if most is None or len(rows) <= most:
        return rows
    return [rows[(i + 1) * len(rows) // most - 1] for i in range(most)]


@measurement("last_round")
def last_round(results: Results) -> pd.DataFrame:
    """The test accuracy of the last round of training, before any tuning, in percent (FedFSA Fig. 3b and 5)."""
    return _mean_where(results, "accuracy", lambda t, T: t == T - 1)


@measurement("peak")
def peak(results: Results) -> pd.DataFrame:
    """The highest test accuracy of any evaluated round of training, before any tuning, in percent (FedFSA Fig. 5)."""

    def highest(cell: Cell, run: Run) -> float:
        return max((row["accuracy"] for row in evaluated(run)), default=nan)

    return _for_each(results, "peak accuracy", highest)


@measurement("early")
def early(results: Results, share: float = 0.25) -> pd.DataFrame:
    """The mean test accuracy over the first `share` of the rounds, in percent: how fast a run starts.

    For FedFFT's Table 13, FedFSA's Fig. 3b and 5, FedWMSAM's Fig. 3 and 4.
    """
    return _mean_where(results, "early accuracy", lambda t, T: t < max(1, share * T))


@measurement("late")
def late(results: Results, share: float = 0.5) -> pd.DataFrame:
    """The mean test accuracy over the last `share` of the rounds, in percent (FedWMSAM Fig. 4).

    nan where a run never got there.
    """
    return _mean_where(results, "late accuracy", lambda t, T: t >= min(T - 1, (1 - share) * T))


def _mean_where(results: Results, measure: str, holds: Callable[[int, int], bool]) -> pd.DataFrame:
    """The mean test accuracy over the rounds t of T for which something holds; nan where there are none."""

    def mean(cell: Cell, run: Run) -> float:
        seen = [row["accuracy"] for row in evaluated(run) if holds(row["round"], cell.setting.rounds)]
        return sum(seen) / len(seen) if seen else nan

    return _for_each(results, measure, mean)


def _for_each(results: Results, measure: str, value: Callable[[Cell, Run], float]) -> pd.DataFrame:
    """One row for each run, with the number that a function makes of it."""
    import pandas as pd

    rows = [{**run_columns(c, r), "measure": measure, "value": value(c, r)} for c, r in results]
    return pd.DataFrame(rows).astype({"value": float})


@measurement("setbacks")
def setbacks(results: Results) -> pd.DataFrame:
    """How much test accuracy is lost from one evaluated round to the next, in percent, on average; 0 if it only rises.

    Smoothness of a learning curve as a number (FedFFT App. E.4, FedSCAM Table 2, FedWMSAM Fig. 3); compare runs that
    are evaluated equally often.
    """

    def lost(cell: Cell, run: Run) -> float:
        falls = [max(0.0, before - after) for before, after in pairwise(row["accuracy"] for row in evaluated(run))]
        return sum(falls) / len(falls) if falls else nan

    return _for_each(results, "setback", lost)


@measurement("final_losses")
def final_losses(results: Results) -> pd.DataFrame:
    """Test and training loss of the last round (FedSCAM Fig. 15); nan where the run diverged."""
    import pandas as pd

    rows = [
        {**run_columns(c, r), "measure": said, "value": evaluated(r)[-1][name] if r.status == "finished" else nan}
        for c, r in results for name, said in LOSSES.items()
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"value": float})


@measurement("at_chance")
def at_chance(results: Results, margin: float = 2.0) -> pd.DataFrame:
    """For how many evaluated rounds on end a run is back at guessing: the longest such stretch after it was above.

    Guessing is 100 / classes percent, give or take `margin` points (FedSCAM section 5.3: FedAvgM at about 10% in rounds
    6 to 13). A diverged run guesses to its end.
    """

    def rounds(cell: Cell, run: Run) -> float:
        if not (classes := find_data(cell.setting.data).classes):
            raise ValueError(f"at_chance: how many classes {cell.setting.data!r} has is not known before it is read")
        low = [row["accuracy"] <= 100 / classes + margin for row in evaluated(run)]
        low += [True] * (cell.setting.rounds - run.rounds_done) if run.status == "diverged" else []
        return _longest(low[low.index(False) :]) if False in low else len(low)

    return _for_each(results, "rounds at chance", rounds)


def _longest(low: list[bool]) -> int:
    """The length of the longest stretch of true ones."""
    return max(len(list(same)) if is_low else 0 for is_low, same in groupby(low))
