"""The accuracy of every run, as reported and as best, last and last ten; gains over a method; the spread over seeds."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from fednb.metrics.tidy import REPORTS, gains, run_columns
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Results


@measurement("accuracy")
def accuracy(results: Results, best_of: dict[str, list[str]] | None = None) -> pd.DataFrame:
    """The accuracy that the setting reports (best, last, or mean of the last ten), in percent: one row per run.

    Columns best, last and last_ten have all three beside it, so that a reader sees what hangs on the choice. For most
    tables of all papers. best_of, for FedWMSAM's Table 1: a line that a table has for several methods together, such as
    {"FedLESAM(-S/-D)": ["FedLESAM-S", ...]}. In each setting it has the runs of the one whose mean over seeds is
    highest, under that name; the others are left out.
    """
    import pandas as pd

    rows = [{**run_columns(cell, run), "measure": "accuracy", "value": run.accuracy, **_reports(run)}
            for cell, run in results]  # fmt: skip
    table = pd.DataFrame(rows).astype(dict.fromkeys(["value", *REPORTS], float))
    for line, among in (best_of or {}).items():
        rest = table[~table["method"].isin(among)]
        table = pd.concat([rest, _best(table, line, among)]).sort_index(ignore_index=True)
    return table


def _reports(run: Run) -> dict[str, float | None]:
    return {"best": run.accuracy_best, "last": run.accuracy_last, "last_ten": run.accuracy_last_ten}


@measurement("accuracy_reports")
def accuracy_reports(results: Results, best_of: dict[str, list[str]] | None = None) -> pd.DataFrame:
    """Best accuracy, last accuracy and last-ten accuracy of every run as measures of their own: three rows per run.

    For claims that name one of them, whatever the setting reports, in tables of all papers. best_of: as in `accuracy`,
    chosen by what is reported.
    """
    import pandas as pd

    seen = accuracy(results, best_of)
    plain = seen.drop(columns=list(REPORTS))
    return pd.concat([plain.assign(measure=measure, value=seen[name]) for name, measure in REPORTS.items()],
                     ignore_index=True)  # fmt: skip


def _best(table: pd.DataFrame, line: str, among: list[str]) -> pd.DataFrame:
    """The rows of the best of some methods, setting by setting, under the name that they share."""
    settings = [c for c in table if c not in ("method", "seed", "key", "tuned", "measure", "value", *REPORTS)]
    rivals = table[table["method"].isin(among)]
    known = rivals.assign(value=rivals["value"].fillna(-inf))  # who diverged is behind all
    means = known.groupby([*settings, "method"], dropna=False)["value"].transform("mean")
    highest = means.groupby([rivals[c] for c in settings], dropna=False).transform("max") if settings else means.max()
    return rivals[means == highest].drop_duplicates([*settings, "seed"]).assign(method=line)


@measurement("gained")
def gained(results: Results, over: str) -> pd.DataFrame:
    """What each method gains over one of them in the same setting with the same seed, in points of accuracy.

    For our own study of filters inside other methods (notebooks/across/01).
    """
    seen = accuracy(results)
    return gains(seen, {name: over for name in dict.fromkeys(seen["method"]) if name != over}, how="left")


@measurement("spread_over_seeds")
def spread_over_seeds(results: Results) -> pd.DataFrame:
    """The standard deviation of the reported accuracy over the seeds of a setting (FedSCAM section 5.4, Fig. 7).

    A seed changes the split of the data, the first model and the order of batches. nan of one seed or a diverged run.
    """
    seen = accuracy(results).drop(columns=["seed", "key", "tuned", *REPORTS])
    same = [name for name in seen if name != "value"]
    found = seen.groupby(same, sort=False, dropna=False)["value"].agg(lambda each: each.std(skipna=False))
    return found.reset_index().assign(seed="all", measure="spread over seeds")
