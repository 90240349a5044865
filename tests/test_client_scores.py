"""FedSCAM's score beside label skew: from probes and splits that are written out, and from a run."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pytest import approx
from small_grid import small_results

from fednb.engines.problem import class_counts
from fednb.metrics import skew
from fednb.metrics.tidy import NotProbed
from fednb.study.measurements import client_scores as of_scores
from fednb.study.measurements.client_scores import client_scores

COUNTS = np.array([[2, 2], [4, 0], [1, 3], [1, 3]])  # of 8 and 8: 0, 1/2, 1/4 and 1/4 away from the whole


@pytest.fixture
def made(monkeypatch):
    """One run of four clients, three of whom came, in another order."""
    monkeypatch.setattr(of_scores, "label_counts", lambda setting, seed: COUNTS)

    class Made(list):
        probe = None

    def one(scores, name="k.het"):
        kept = SimpleNamespace(round=4, clients=(1, 0, 2), vectors={name: torch.tensor(scores)[:, None]})
        run = SimpleNamespace(seed=2, key="k", all_probed=lambda probe: [kept])
        return Made([(SimpleNamespace(tags={}, label="Ours", setting=None), run)])

    return one


def test_scores_stand_beside_the_skew_of_the_same_client(made):
    """Client 1 is farthest from the whole, client 0 as the whole is."""
    table = client_scores(made([3.0, 1.0, 2.0])).set_index(["measure", "client"])["value"]
    assert table["heterogeneity score"].to_dict() == {1: 3.0, 0: 1.0, 2: 2.0}
    assert table["distance to the whole"].to_dict() == approx({1: 0.5, 0: 0.0, 2: 0.25})


@pytest.mark.parametrize("scores, wanted", [([3.0, 1.0, 2.0], 1.0), ([1.0, 3.0, 2.0], -1.0), ([2.0, 1.0, 3.0], 0.5)])
def test_the_correlation_is_over_the_clients_of_a_round(made, scores, wanted):
    table = client_scores(made(scores))
    found = table[table["measure"] == "rank correlation"]
    assert found["value"].tolist() == approx([wanted]) and found["round"].tolist() == [4]
    assert found["client"].isna().all()


def test_scores_need_their_probe(made):
    with pytest.raises(NotProbed, match=r"kept k.h_adj, not 'k.het'"):
        client_scores(made([1.0, 2.0, 3.0], "k.h_adj"))


def test_the_skew_is_that_of_the_runs_own_split(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    results = small_results(["fedscam"], ["k.het"])
    table = client_scores(results)
    first = table[(table["round"] == 0) & (table["measure"] == "distance to the whole")]
    assert first["value"].tolist() == approx(skew.distances(class_counts(results.runs[0].setting, 0)).tolist())
    assert (table[table["measure"] == "heterogeneity score"]["value"] > 0).all()
