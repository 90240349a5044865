"""Class separation in features and in a plane: the silhouette by hand, and the features of the run's last model."""

import numpy as np
import pytest
import torch
from pytest import approx
from small_grid import small_results

from fednb.metrics import embed, features
from fednb.metrics.sample import sample_of
from fednb.study.measurements import separate
from fednb.study.measurements.registry import MEASUREMENTS


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        yield small_results(("FedAvg", "FedSAM"), ["model"])


def test_silhouette_by_hand():
    """At 0 and 1 against 9 and 10. Of 0: a = 1, b = 9.5, (9.5 − 1)/9.5; of 1: a = 1, b = 8.5; the others alike."""
    x, y = np.array([[0.0], [1.0], [9.0], [10.0]]), torch.tensor([0, 0, 1, 1])
    assert separate.silhouette(x, y) == approx((8.5 / 9.5 + 7.5 / 8.5) / 2)
    mixed = torch.tensor([0, 1, 0, 1])  # of 0: a = 9, b = (1 + 10)/2 = 5.5, −3.5/9; of 1: a = 9, b = (1 + 8)/2
    assert separate.silhouette(x, mixed) == approx((-3.5 / 9 - 4.5 / 9) / 2)


def test_separation_is_of_the_last_model_on_the_same_samples(results):
    table = MEASUREMENTS["separation"](results, samples=60, device="cpu")
    assert set(table["round"]) == {1}
    for cell, run in results:
        mine = table[table["method"] == cell.label].set_index("measure")["value"]
        sample = sample_of(run, 60, device="cpu")
        x = features.activations(sample.objective, run.w, sample.b, sample.x, [features.PENULTIMATE])
        x = x[features.PENULTIMATE]
        assert mine["silhouette"] == approx(separate.silhouette(x, sample.y))
        assert mine["silhouette in the plane"] == approx(separate.silhouette(embed.tsne(x), sample.y))


def test_points_are_those_that_the_plane_is_scored_on(results):
    """One t-SNE for the figure and the number: 60 samples of each of two runs, with their classes."""
    points = MEASUREMENTS["class_points"](results, samples=60, device="cpu")
    table = MEASUREMENTS["separation"](results, samples=60, device="cpu")
    assert len(points) == 120 and {"class", "x", "y", "method", "seed", "key"} <= set(points)
    for method, part in points.groupby("method"):
        scored = table[(table["method"] == method) & (table["measure"] == "silhouette in the plane")]["value"]
        assert separate.silhouette(part[["x", "y"]].to_numpy(), torch.tensor(part["class"].tolist())) == approx(
            scored.item()
        )


def test_discrepancy_is_the_spread_of_clients_within_a_class(results):
    table = MEASUREMENTS["discrepancy"](results, samples=60)
    cloud = features.clouds(results, samples=60, progress=False, device="cpu")[0]
    assert table.iloc[0][["method", "round", "measure"]].tolist() == ["FedAvg", 0, "spread"]
    classes = sorted({row["class"] for row in cloud.rows})
    own = [cloud.vectors[[row["class"] == c for row in cloud.rows]] for c in classes]
    assert table["value"][0] == approx(np.mean([embed.spread(x) for x in own]))


def test_clients_are_separated_by_what_their_models_make_of_each_class(results):
    """One point for each client and class; the plane is that of one run alone, and the one that is drawn."""
    table = MEASUREMENTS["client_separation"](results, samples=60)
    points = MEASUREMENTS["client_points"](results, samples=60)
    for cloud in features.clouds(results, samples=60, progress=False, device="cpu"):
        y = torch.tensor([row["class"] for row in cloud.rows])
        same = [table[c] == cloud.about[c] for c in ("key", "round")]
        mine = table[same[0] & same[1]].set_index("measure")["value"]
        assert mine["silhouette (clients)"] == approx(separate.silhouette(cloud.vectors, y))
        drawn = points[(points["key"] == cloud.about["key"]) & (points["round"] == cloud.about["round"])]
        assert drawn["class"].tolist() == y.tolist() and len(drawn) == len(y)
        assert drawn[["x", "y"]].to_numpy() == approx(embed.tsne(cloud.vectors.double()))
        plane = separate.silhouette(drawn[["x", "y"]].to_numpy(), y)
        assert mine["silhouette (clients, plane)"] == approx(plane)
