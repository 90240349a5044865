"""What tables about runs have in common: the columns that say which run a row is about, and the probed vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from fednb.base.progress import bar_of

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Cell, Results
    from fednb.runs.probes import Probe, Probed


REPORTS = {"best": "best accuracy", "last": "last accuracy", "last_ten": "last-ten accuracy"}  # by column: a measure
NOT_A_SETTING = ("method", "seed", "measure", "value", "std", "band", "round", "key", "device", "engine", "note",
                 "grid", "target", "residual", "converged", "figure", "tuned", "end", *REPORTS)  # fmt: skip

CONTROL = "(our control)"  # ends the label of a method that a paper's table does not have


def is_control(label: str) -> bool:
    """True if a method stands in a table as our control: no rival in sentences about all methods of the paper."""
    return label.endswith(CONTROL)


class NotProbed(ValueError):
    """A measurement asks for vectors that the grid's probe did not keep."""


@dataclass(frozen=True, eq=False)
class Cloud:
    """Vectors `[n, d]` of one run in one round, and what each of them is: {"client": 3}, or that and {"class": 7}."""

    about: dict[str, Any]
    rows: list[dict[str, Any]]
    vectors: Tensor


def run_columns(cell: Cell, run: Run) -> dict[str, Any]:
    """The first columns of a table about runs: the grid's tags, method (by the paper's name), seed, key, tuned."""
    return {**cell.tags, "method": cell.label, "seed": run.seed, "key": run.key, "tuned": cell.tuned}


def about(cell: Cell, run: Run, round: int) -> dict[str, Any]:
    """The first columns of a table about rounds: the grid's tags, method (by the paper's name), seed, round, key."""
    return {**cell.tags, "method": cell.label, "seed": run.seed, "round": round, "key": run.key}


def wanted(run: Run, kept: Probed, *names: str) -> list[Tensor]:
    """Vectors of a probed round by name; NotProbed where the probe did not keep one of them."""
    if lacking := [name for name in names if name not in kept.vectors]:
        raise NotProbed(
            f"the probe of run {run.key} kept {', '.join(kept.vectors)}, not {lacking[0]!r}; "
            f"add it to `what` of the grid's probe"
        )
    return [kept.vectors[name] for name in names]


def kept_of(cell: Cell, run: Run, probe: Probe, what: str) -> Iterator[tuple[dict[str, Any], Probed]]:
    """The probed rounds of one run that had at least two participants, each after its first columns (see `about`)."""
    for kept in run.all_probed(probe):
        wanted(run, kept, what)
        if len(kept.clients) > 1:
            yield about(cell, run, kept.round), kept


def probed(results: Results, what: str) -> Iterator[tuple[dict[str, Any], Probed]]:
    """The probed rounds with at least two participants of all runs, each after its first columns (see `about`)."""
    every = list(results)
    with bar_of(len(every), f"{what} of clients", unit="run") as bar:
        for cell, run in every:
            yield from kept_of(cell, run, results.probe, what)
            bar.update()


def finished(results: Results) -> Results:
    """The results without runs that diverged: their last model is not a number, and later rounds were never probed."""
    there = [(cell, run) for cell, run in results if run.status == "finished"]
    cells, runs = zip(*there, strict=True) if there else ((), ())
    return replace(results, grid=replace(results.grid, cells=cells), runs=runs)


def gains(
    scores: pd.DataFrame, over: dict[str, str], measure: str = "accuracy", how: Literal["inner", "left"] = "inner"
) -> pd.DataFrame:
    """What methods gain over others in the same setting with the same seed, in points: {"FedFFT": "FedSAM"}.

    A base that was run once beside a sweep counts for all values of it. Works on printed tables as well. how: where the
    base was not run there is no row ("inner"), or one without a value ("left"). Nothing is left of a base alone.

    >>> table = {"method": ["FedSAM", "FedFFT"], "seed": 0, "measure": "accuracy", "value": [80.0, 82.5]}
    >>> fn.gains(pd.DataFrame(table), over={"FedFFT": "FedSAM"})[["method", "measure", "value"]]
       method measure  value
    0  FedFFT    gain    2.5
    """
    import pandas as pd

    apart = ["key", "std", "note", *REPORTS]  # of one of the two, not of what is gained
    mine = scores[scores["measure"] == measure].drop(columns=apart, errors="ignore")
    same = [c for c in mine if c == "seed" or c not in NOT_A_SETTING]
    parts = []
    for left, right in over.items():
        base = mine[mine["method"] == right]
        keys = [c for c in same if base.empty or base[c].notna().any()]
        both = mine[mine["method"] == left].merge(base[[*keys, "value"]], on=keys, how=how, suffixes=("", "_base"))
        parts.append(both.assign(value=both["value"] - both["value_base"], measure="gain").drop(columns="value_base"))
    return pd.concat(parts, ignore_index=True) if parts else mine.iloc[:0].reset_index(drop=True)
