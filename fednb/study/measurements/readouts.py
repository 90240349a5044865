"""One run, several accuracies: what a paper prints depends on which round of the curve it reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

READ = {"best": "best round", "last": "last round", "mean_last_10": "mean of the last ten"}  # `report`, and in words


@measurement("readouts")
def readouts(results: Results) -> pd.DataFrame:
    """Every run's accuracy as best round, last round and mean of the last ten, in percent (notebooks/across/02).

    Which of the three stands in the column method, the run's label in `run`. The last ten are evaluated rounds. A
    diverged run has none.
    """
    import pandas as pd

    rows = [
        {**c.tags, "run": c.label, "method": said, "seed": r.seed, "key": r.key, "measure": "accuracy as read",
         "value": replace(r, setting=r.setting.but(report=report)).accuracy}
        for c, r in results for report, said in READ.items()
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"value": float})
