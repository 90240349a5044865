"""Three clouds of one round: which vectors are in them, how far they spread, and where they lie."""

from dataclasses import replace

import pytest
import torch
from small_grid import small_results

from fednb.core.vectors import NoSuchLayer
from fednb.metrics import embed, features
from fednb.metrics.tidy import finished
from fednb.study.measurements.alike import PANELS, clouds, neighbours, places, spreads


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        yield small_results(("FedSAM", "FedFFT"), ["perturbation", "model"])


def test_panels_are_the_clouds_of_one_layer_and_of_the_features(results):
    """Four clients, two methods, two rounds: a and c have a vector each, b one for each of ten classes."""
    found = clouds(results, samples=100)
    assert [(c.about["panel"], c.about["method"], c.about["round"]) for c in found] == [
        (panel, method, t) for panel in PANELS for method in ("FedSAM", "FedFFT") for t in (0, 1)
    ]
    one_by_one = [
        *embed.clouds(results, "perturbation", "conv2.weight"),
        *features.clouds(results, features.PENULTIMATE, 100, progress=False),
        *embed.clouds(results, "model", "conv2.weight"),
    ]
    assert all(torch.equal(a.vectors, b.vectors) for a, b in zip(found, one_by_one, strict=True))
    assert {len(c.rows) for c in found if c.about["panel"] == PANELS[1]} == {40}


def test_the_first_layer_that_the_model_has_is_taken(results):
    """conv1.weight of the small network has 144 numbers, conv2.weight 4608; a list without any of its layers fails."""
    lengths = [c.vectors.shape[1] for c in clouds(results, ["nothing", "conv1.weight", "conv2.weight"], samples=20)]
    assert lengths[:4] == [144] * 4 and lengths[4:8] == [128] * 4 and lengths[8:] == [144] * 4
    with pytest.raises(NoSuchLayer, match="layer5"):
        clouds(results, after=["layer4.1.bn2", "layer5"], samples=20)


def test_spreads_and_places_are_those_of_the_clouds(results):
    """Two numbers for every cloud; a place for every vector, both methods about the same centre."""
    table, placed = spreads(results, samples=50), places(results, samples=50)
    first = clouds(results, samples=50)[0]
    mine = table[(table["panel"] == PANELS[0]) & (table["method"] == "FedSAM") & (table["round"] == 0)]
    assert mine["value"].tolist() == [embed.spread(first.vectors), embed.relative_spread(first.vectors)]
    assert len(table) == 2 * 12 and len(placed) == 4 * (4 + 40 + 4)
    centres = placed.groupby(["panel", "round"])[["x", "y"]].mean().to_numpy()
    assert abs(centres).max() < 1e-6 * placed[["x", "y"]].abs().max().max()


def test_filtered_perturbations_of_one_model_spread_less_in_the_first_round(results):
    """Round 0 starts from one model for both: a filter takes energy away from each difference, and never adds any."""
    table = spreads(results, samples=20).query("round == 0 and panel == @PANELS[0] and measure == 'spread'")
    seen = table.set_index("method")["value"]
    assert 0 < seen["FedFFT"] < seen["FedSAM"]


def test_neighbours_are_the_same_vectors_placed_by_tsne(results):
    only = replace(results, grid=replace(results.grid, probe=replace(results.probe, rounds=(0,))))
    found, by_axes = neighbours(only, samples=20), places(only, samples=20)
    same = ["method", "round", "panel", "client", "class"]
    assert found[same].equals(by_axes[same]) and not found["x"].equals(by_axes["x"])


def test_diverged_runs_are_left_out(results):
    """Their last round was never probed and their weights are not numbers: the others stay, in their order."""
    lost, kept = results.runs
    lost = replace(lost)
    lost.about["status"] = "diverged"
    sound = finished(replace(results, runs=(lost, kept)))
    assert sound.runs == (kept,) and [c.label for c in sound.grid.cells] == ["FedFFT"]
    assert len(finished(replace(results, runs=(lost, lost))).runs) == 0
