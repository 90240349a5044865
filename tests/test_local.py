"""Drift and radius, round by round: from histories and probes that are written out."""

from types import SimpleNamespace

import pytest
import torch

from fednb.metrics.tidy import NotProbed
from fednb.study.measurements.local import drifts, radii


class Made:
    """One run of three rounds, in two of which the radii of clients 4 and 7 were kept."""

    probe = SimpleNamespace(rounds=(0, 2))

    def __init__(self, name="k.rho_k"):
        seen = {0: [[0.01], [0.03]], 2: [[0.04], [0.05]]}
        kept = [SimpleNamespace(round=t, clients=(4, 7), vectors={name: torch.tensor(x)}) for t, x in seen.items()]
        rows = [{"round": t, "drift": d} for t, d in enumerate((3.0, 2.5, 2.0))]
        rows.append({"round": 3, "drift": 2.0, "tuned": 1})
        run = SimpleNamespace(seed=2, key="k", rows=rows, all_probed=lambda probe: kept)
        self.cells = [(SimpleNamespace(tags={"alpha": 0.1}, label="Ours"), run)]

    def __iter__(self):
        return iter(self.cells)


def test_drift_is_that_of_the_rounds():
    """One row each; tuning after the last round is no round."""
    table = drifts(Made())
    assert table[["round", "value"]].to_numpy().tolist() == [[0, 3.0], [1, 2.5], [2, 2.0]]
    assert set(table["measure"]) == {"drift"} and set(table["method"]) == {"Ours"} and set(table["alpha"]) == {0.1}


def test_radii_of_each_client_and_their_mean():
    """(0.01 + 0.03) / 2 = 0.02 in round 0, (0.04 + 0.05) / 2 = 0.045 in round 2."""
    table = radii(Made())
    mean = table[table["measure"] == "mean radius"]
    assert mean["round"].tolist() == [0, 2] and mean["value"].tolist() == pytest.approx([0.02, 0.045])
    assert mean["client"].isna().all()
    each = table[table["measure"] == "radius"]
    assert each["client"].tolist() == [4, 7, 4, 7] and each["value"].tolist() == pytest.approx([0.01, 0.03, 0.04, 0.05])


def test_radii_need_their_probe():
    with pytest.raises(NotProbed, match=r"kept k.h_adj, not 'k.rho_k'"):
        radii(Made("k.h_adj"))
