"""Two curvatures and a plane: of the last model, on the same samples, with the diverged left out."""

from dataclasses import replace
from math import isnan

import pytest
import torch
from small_grid import small_results

from fednb.metrics import hessian, landscape
from fednb.study.measurements import sharpness
from fednb.study.measurements.sharpness import eigenvalues, random_plane, surface


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        yield small_results(what=["model"])


@pytest.fixture(autouse=True)
def nothing_held():
    sharpness._held.clear()


def made(monkeypatch, *values):
    """Eigenpairs that are said and not computed: of values along the first two weights."""

    def of_runs(results, count, samples, **how):
        vectors = torch.eye(2, len(results.runs[0].w), dtype=torch.float64)
        asked.append((count, samples, how))
        return {r.key: hessian.Eigen(torch.tensor(values), vectors, torch.zeros(2), 9, True) for r in results.runs}

    asked: list = []
    monkeypatch.setattr(hessian, "of_runs", of_runs)
    return asked


def test_eigenvalues_are_those_of_the_hessian(results):
    """Order 1 and 2, to the square of the residuals; on 20 samples."""
    one = replace(results, grid=replace(results.grid, cells=results.grid.cells[:1]), runs=results.runs[:1])
    table = eigenvalues(one, samples=20)
    exact = hessian.table(one, hessian.of_runs(one, 2, 20, tolerance=1e-5, progress=False))
    mine = table[table["measure"] == "eigenvalue"]
    assert mine["value"].tolist() == pytest.approx(exact["value"].tolist(), rel=1e-3)
    assert mine["order"].tolist() == [1, 2] and mine["converged"].all()


def test_sharpness_has_no_sign(results, monkeypatch):
    """−7 is sharper than 5: a saddle is not flat."""
    made(monkeypatch, -7.0, 5.0)
    seen = eigenvalues(results).groupby("measure")["value"].apply(list)
    assert seen["eigenvalue"] == [-7, 5, -7, 5] and seen["sharpness"] == [7, 5, 7, 5]


def test_a_table_and_a_figure_share_their_directions(results, monkeypatch):
    """Asked for once, while samples and runs are the same."""
    asked = made(monkeypatch, 2.0, 1.0)
    eigenvalues(results)
    surface(results, points=3)
    assert len(asked) == 1
    one = replace(results, grid=replace(results.grid, cells=results.grid.cells[:1]), runs=results.runs[:1])
    eigenvalues(one)
    surface(one, points=3, samples=20)
    assert [samples for _, samples, _ in asked] == [50, 50, 20]


def test_samples_and_points_go_with_the_scale(results, monkeypatch):
    """50 and 7 x 7 at smoke scale; the paper's 500 elsewhere."""
    asked = made(monkeypatch, 2.0, 1.0)
    assert len(surface(results)) == 2 * 7**2
    eigenvalues(replace(results, grid=replace(results.grid, scale="laptop")))
    assert [samples for _, samples, _ in asked] == [50, 500]


def test_the_plane_lies_around_the_model(results):
    """In its middle the loss of the model itself, the same for any directions; its corners are 0.5 away each way."""
    table = surface(results, points=3, samples=30)
    assert sorted(set(table["a"])) == sorted(set(table["b"])) == [-0.5, 0, 0.5] and len(table) == 18
    middle = table[(table["a"] == 0) & (table["b"] == 0)]["value"].tolist()
    wanted = [float(hessian.sample_of(run, 30, device="cpu")(run.w)) for run in results.runs]
    assert middle == pytest.approx(wanted) and table["value"].max() > max(middle)


def test_a_diverged_run_has_no_eigenvalue(results, monkeypatch):
    """nan, under its own name: who diverged is not flat."""
    made(monkeypatch, 2.0, 1.0)
    first, second = (replace(run) for run in results.runs)
    second.about["status"] = "diverged"
    seen = eigenvalues(replace(results, runs=(first, second))).query("order == 1 and measure == 'sharpness'")
    assert seen["method"].tolist() == ["FedAvg", "FedSAM"]
    assert seen["value"].iloc[0] == 2 and isnan(seen["value"].iloc[1])
    assert set(surface(replace(results, runs=(first, second)), points=3)["method"]) == {"FedAvg"}


def test_a_random_plane_comes_with_its_shape(results):
    """7 x 7 places at smoke scale, up to 1 each way, and of each run the two numbers of that plane."""
    table = random_plane(results, samples=30)
    plane, shape = table[table["measure"] == "loss"], table[table["measure"] != "loss"]
    assert len(plane) == 2 * 7**2 and plane["a"].max() == 1 and shape[["a", "b"]].isna().all(axis=None)
    wanted = landscape.shapes(landscape.surfaces(results, None, 1.0, 7, 30, progress=False))
    assert shape["value"].tolist() == pytest.approx(wanted["value"].tolist())
    assert shape["measure"].tolist() == ["roughness", "extremes"] * 2


def test_a_diverged_run_is_not_smooth(results):
    first, second = (replace(run) for run in results.runs)
    second.about["status"] = "diverged"
    table = random_plane(replace(results, runs=(first, second)), points=3, samples=20)
    assert set(table[table["measure"] == "loss"]["method"]) == {"FedAvg"}
    lost = table[(table["method"] == "FedSAM")]
    assert lost["measure"].tolist() == ["roughness", "extremes"] and lost["value"].isna().all()
