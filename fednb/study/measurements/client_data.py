"""How the data lie with clients: how many samples each has, how far its classes are from those of all together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fednb.engines.problem import class_counts
from fednb.metrics import skew
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

measurement("class_skew")(skew.class_skew)  # FedFFT Fig. 5, FedSCAM Fig. 18, FedFSA Fig. 7
measurement("size_skew")(skew.size_skew)  # FedSCAM Fig. 19


@measurement("client_sizes")
def client_sizes(results: Results) -> pd.DataFrame:
    """How many samples each client has: one row per client of every split, which the methods of a setting share.

    For FedFFT's Tables 11 and 12, whose data sets come with their own clients.
    """
    import pandas as pd

    rows, seen = [], set()
    for c, r in results:
        split = (c.setting.data, str(c.setting.partition), c.setting.clients, c.setting.samples, r.seed)
        if split not in seen:
            seen.add(split)
            held = class_counts(c.setting, r.seed).sum(1).tolist()
            head = {**c.tags, "method": "all", "seed": r.seed, "measure": "samples"}
            rows += [{**head, "client": i, "value": float(n)} for i, n in enumerate(held)]
    return pd.DataFrame(rows)
