"""What filters take away of drift and of what is common: by hand, and on a small run."""

from math import isnan

import pandas as pd
import pytest
import torch
from pytest import approx
from quadratics import vector
from small_grid import small_results

from fednb.core.vectors import Layout
from fednb.filters import Centralize, HighPass, MeanOnly
from fednb.study.measurements.removed import removed, rows

LAYOUT = Layout(("body.weight", "head.weight", "head.bias"), ((4,), (2, 2), (1,)))
FILTERS = {"mean": MeanOnly(0.5), "classes": Centralize()}


def table(x) -> pd.Series:
    found = pd.DataFrame(rows(x, LAYOUT, FILTERS))
    return found.set_index(["measure", "method", "part"])["value"].sort_index()


@pytest.fixture
def two_clients():
    """Common: 1 everywhere in the body, (1, −1, 0, 0) in the head, 3 in its bias. Apart, with either sign:
    (1, −1, 0, 0) in the body, (1, 1, −1, −1) in the head, 0 in the bias.
    """
    common = vector(1, 1, 1, 1, 1, -1, 0, 0, 3)
    apart = vector(1, -1, 0, 0, 1, 1, -1, -1, 0)
    return torch.stack([common + apart, common - apart])


def test_shares_by_hand(two_clients):
    """In the body the common part is its mean, and clients differ in what has none: all of one goes, none of the other.

    In the head they differ in class means, which have no mean together: centralising takes all of it and the mean
    nothing; of what is common, 2 + 9 with the bias, it takes nothing.
    """
    seen = table(two_clients)
    body, head = "all but the classifier", "classifier"
    assert seen["mean removed", "mean", body] == approx(1.0) and seen["drift removed", "mean", body] == approx(0.0)
    assert seen["drift removed", "classes", head] == approx(1.0)
    assert seen["drift removed", "mean", head] == approx(0.0)
    assert seen["mean removed", "classes", head] == approx(0.0)
    assert seen["mean over drift removed", "classes", head] == approx(0.0)
    assert isnan(seen["mean over drift removed", "mean", body])  # nothing was removed


def test_where_the_drift_lies(two_clients):
    """Squares of the differences: 2 in the body and 4 in the head, of each client."""
    seen = table(two_clients)["share of the drift", "no filter"]
    assert seen["all but the classifier"] == approx(2 / 6) and seen["classifier"] == approx(4 / 6)


def test_a_filter_that_cannot_tell_them_apart_has_the_ratio_one():
    """g_k = (1 ± ε) g: drift and mean are the same direction, and lose the same share."""
    g = torch.randn(9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = pd.DataFrame(rows(torch.stack([1.1 * g, 0.9 * g]), LAYOUT, {"5": HighPass(0.5)}))
    assert found[found["measure"] == "mean over drift removed"]["value"].tolist() == approx([1.0, 1.0])


def test_a_small_run_by_filter_and_part(tmp_path, monkeypatch):
    """One row for each measure, filter, part and round; the classifier's mean over all classes is zero by itself."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    results = small_results(["FedAvg"], what=["gradient"])
    found = removed(results, {"5%": "highpass(0.05)", "mean": "meanonly(0.05)"})
    assert len(found) == 2 * 2 * (1 + 2 * 3) and set(found["round"]) == {0, 1}
    seen = found.groupby(["measure", "method", "part"])["value"].mean()
    assert seen["drift removed", "mean", "classifier"] == approx(0.0, abs=1e-9)  # softmax: gradients sum to zero
    assert 0.05 < seen["drift removed", "5%", "classifier"] <= 1
    assert seen["share of the drift"].sum() == approx(1.0)


def test_only_filters_can_remove(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    with pytest.raises(ValueError, match=r"'x' = 'dyn\(5\)': must be a filter, such as highpass"):
        removed(small_results(["FedAvg"], what=["gradient"]), {"x": "dyn(5)"})
