"""How a method rates its clients: FedSCAM's heterogeneity score beside how skewed the labels of a client are."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch

from fednb.engines.problem import class_counts
from fednb.metrics import skew
from fednb.metrics.tidy import kept_of
from fednb.study.measurements.registry import measurement
from fednb.study.measurements.sensitivity import rank_correlation

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

SCORE = "k.het"  # what a probe keeps of FedSCAM's h_i

label_counts = cache(class_counts)  # runs of one setting and seed share their split


@measurement("client_scores")
def client_scores(results: Results) -> pd.DataFrame:
    """FedSCAM's score h_i of every client in every probed round, and how it goes with label skew (sections 1, 6.0.1).

    "heterogeneity score" with the column client, "distance to the whole" of that client's labels (`fn.skew.distances`),
    and for each round their "rank correlation" over clients; from a probe of k.het.
    """
    import pandas as pd

    rows = []
    for cell, run in results:
        far = torch.from_numpy(skew.distances(label_counts(cell.setting, run.seed)))
        for head, kept in kept_of(cell, run, results.probe, SCORE):
            scores, skews = kept.vectors[SCORE].double().flatten(), far[list(kept.clients)]
            for measure, values in (("heterogeneity score", scores), ("distance to the whole", skews)):
                each = zip(kept.clients, values.tolist(), strict=True)
                rows += [{**head, "measure": measure, "client": client, "value": value} for client, value in each]
            rows.append({**head, "measure": "rank correlation", "value": rank_correlation(scores, skews)})
    return pd.DataFrame(rows)
