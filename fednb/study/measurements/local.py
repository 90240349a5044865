"""How clients train, round by round: how far they go from the model they received, and how far they look uphill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fednb.metrics.tidy import about, probed
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

RADIUS = "k.rho_k"  # what a probe keeps of FedSCAM's radius


@measurement("drifts")
def drifts(results: Results) -> pd.DataFrame:
    """The mean over clients of ‖w_k − w‖, w being the model that they received, in every round (FedSCAM Fig. 9)."""
    import pandas as pd

    rows = [
        {**about(cell, run, row["round"]), "measure": "drift", "value": row["drift"]}
        for cell, run in results for row in run.rows if not row.get("tuned")
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"value": float})


@measurement("radii")
def radii(results: Results) -> pd.DataFrame:
    """The radius ρ_k of every client in every probed round, and the mean over clients (FedSCAM Fig. 1).

    As "radius" with the column client, and as "mean radius"; from a probe of k.rho_k.
    """
    import pandas as pd

    rows = []
    for head, kept in probed(results, RADIUS):
        seen = kept.vectors[RADIUS].double().flatten()
        rows.append({**head, "measure": "mean radius", "value": float(seen.mean())})
        each = zip(kept.clients, seen.tolist(), strict=True)
        rows += [{**head, "measure": "radius", "client": client, "value": value} for client, value in each]
    return pd.DataFrame(rows)
