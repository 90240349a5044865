"""What was tried to tune a grid's methods, and what was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results


@measurement("tuning")
def tuning(results: Results) -> pd.DataFrame:
    """The tuning curves of a grid: a row for each method, parameter and value that was tried (`Grid.tuning_curves`).

    Column `at` has the tried value, `value` the accuracy in percent, `chosen` and `edge` say what was taken and whether
    it is the first or last of its list. For tables whose methods were tuned, such as SpecGradFilter's Table I.
    """
    return results.grid.tuning_curves()
