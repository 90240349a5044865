"""The loss around a point: exact on quadratics, and directions scaled filter by filter."""

import math

import pytest
import torch
from small_grid import small_results

from fednb.core.vectors import Layout
from fednb.metrics import cka, features, hessian, landscape
from fednb.metrics.landscape import extremes, filter_normalised, line, plane, random_direction, roughness, steps
from fednb.models import build


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        yield small_results()


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


A = noise(6, 6) @ noise(6, 6).T
CENTRE = noise(6, seed=1)


def bowl(w):
    """½ (w − c)ᵀ A (w − c) + 3"""
    return 0.5 * (w - CENTRE) @ A @ (w - CENTRE) + 3


def test_a_line_through_a_quadratic_is_a_parabola():
    """At the bottom L(c + a d) = 3 + ½ a² dᵀ A d."""
    d, a = noise(6, seed=2), steps(2.0, 9)
    assert torch.allclose(line(bowl, CENTRE, d, a), 3 + 0.5 * a**2 * (d @ A @ d), rtol=1e-12)


def test_a_plane_through_a_quadratic_is_the_quadratic():
    """½ (a² dᵀAd + 2ab dᵀAe + b² eᵀAe) + 3, first direction down, second across; away from the bottom too."""
    d, e, a, b = noise(6, seed=2), noise(6, seed=3), steps(1.0, 5), steps(0.5, 3)
    x, y = torch.meshgrid(a, b, indexing="ij")
    wanted = 3 + 0.5 * (x**2 * (d @ A @ d) + 2 * x * y * (d @ A @ e) + y**2 * (e @ A @ e))
    assert torch.allclose(plane(bowl, CENTRE, d, e, a, b), wanted, rtol=1e-12)
    tilted = plane(bowl, CENTRE + d, d, e, a, b)
    assert tilted[4, 1].item() == pytest.approx(bowl(CENTRE + 2 * d).item())
    assert tilted[2, 2].item() == pytest.approx(bowl(CENTRE + d + 0.5 * e).item())


def test_the_model_itself_is_in_the_middle():
    """Odd, symmetric, and exactly zero: no rounding of −1 + 10 · 0.1."""
    for points in (3, 21, 51):
        a = steps(0.7, points)
        assert len(a) == points and a[points // 2] == 0 and torch.equal(a, -a.flip(0)) and a[-1] == 0.7


@pytest.mark.parametrize("bad", [dict(points=20), dict(points=1), dict(radius=0.0), dict(radius=-1.0)])
def test_bad_steps_are_refused(bad):
    with pytest.raises(ValueError, match="a radius above 0 and an odd number of points"):
        steps(**bad)


def test_every_filter_has_the_norm_of_its_weights():
    """Output by output; tensors with one axis (biases, norm scales and shifts) do not move."""
    layout = Layout.of_parameters(model := build("resnet20-gn", 10, (3, 8, 8)))
    w = layout.flat(dict(model.named_parameters())).double()
    d, weights = layout.tensors(random_direction(w, layout)), layout.tensors(w)
    for name, piece in d.items():
        if piece.ndim == 1:
            assert not piece.any(), name
        else:
            assert torch.allclose(piece.flatten(1).norm(dim=1), weights[name].flatten(1).norm(dim=1)), name
    assert {x.ndim for x in d.values()} == {1, 2, 4}


def test_normalisation_turns_no_filter():
    """By hand: filters (3, 4) and (0, 2) of a direction, weights of norm 10 and 1: (6, 8) and (0, 1). The bias goes."""
    layout = Layout(("fc.weight", "fc.bias"), ((2, 2), (2,)))
    d = torch.tensor([3.0, 4.0, 0.0, 2.0, 5.0, 5.0])
    w = torch.tensor([10.0, 0.0, 0.6, 0.8, 1.0, 1.0])
    assert filter_normalised(d, w, layout).tolist() == pytest.approx([6, 8, 0, 1, 0, 0])


def test_a_dead_filter_stays_dead():
    """No weights, no step; and a direction of zero is no division by zero."""
    layout = Layout(("fc.weight",), ((2, 2),))
    zero, one = torch.zeros(4), torch.tensor([1.0, 0.0, 0.0, 0.0])
    assert not filter_normalised(torch.ones(4), zero, layout).any()
    assert filter_normalised(one, torch.ones(4), layout).tolist() == pytest.approx([2**0.5, 0, 0, 0])


def test_directions_are_a_function_of_the_seed():
    layout = Layout(("fc.weight",), ((4, 50),))
    w = noise(200)
    a, again, b = (random_direction(w, layout, seed) for seed in (0, 0, 1))
    assert torch.equal(a, again) and torch.cosine_similarity(a, b, dim=0).abs() < 0.3


def test_the_centre_of_every_picture_is_the_models_own_loss(results):
    """On the whole test set: the last line of the run's history."""
    how = dict(points=3, samples=10_000, device="cpu", progress=False)
    lines, surfaces = landscape.lines(results, **how), landscape.surfaces(results, **how)
    assert len(lines) == 2 * 3 and len(surfaces) == 2 * 9 and set(lines["measure"]) == {"loss"}
    last = {run.key: run.rows[-1]["test_loss"] for run in results.runs}
    for table in (lines[lines["a"] == 0], surfaces[(surfaces["a"] == 0) & (surfaces["b"] == 0)]):
        assert dict(zip(table["key"], table["value"], strict=True)) == pytest.approx(last)
    middle = surfaces[surfaces["b"] == 0]
    assert middle["value"].tolist() == pytest.approx(lines["value"].tolist())  # the first direction is the same
    assert lines["value"].nunique() == 6
    diagonal = surfaces[(surfaces["a"] == 1) & (surfaces["b"] == -1)][
        "value"
    ]  # the same twice would be the centre again
    assert not set(diagonal.round(9)) & {round(loss, 9) for loss in last.values()}


def test_along_an_eigenvector_the_curvature_is_the_eigenvalue(results):
    """(L(h) − 2 L(0) + L(−h)) / h² → λ: two ways to the same number, between two kinks of the ReLUs."""
    how = dict(samples=100, device="cpu", progress=False)
    found = hessian.of_runs(results, tolerance=1e-5, **how)
    table = landscape.surfaces(results, found, radius=1e-6, points=3, **how)
    for run in results.runs:
        mine = table[table["key"] == run.key].pivot(index="a", columns="b", values="value").to_numpy()
        rises = [mine[0, 1] - 2 * mine[1, 1] + mine[2, 1], mine[1, 0] - 2 * mine[1, 1] + mine[1, 2]]
        assert [r / 1e-12 for r in rises] == pytest.approx(found[run.key].values.tolist(), rel=1e-2)


def test_rise_is_measured_from_each_runs_own_centre(results):
    table = landscape.surfaces(results, points=3, samples=50, device="cpu", progress=False)
    risen = landscape.rise(table)
    assert set(risen["measure"]) == {"rise"} and set(table["measure"]) == {"loss"}
    assert risen[(risen["a"] == 0) & (risen["b"] == 0)]["value"].tolist() == [0, 0]
    difference = (table["value"] - risen["value"]).groupby(table["key"]).agg(["min", "max"])
    assert (difference["max"] - difference["min"] < 1e-12).all() and difference["max"].nunique() == 2


def squares(f, points=5, radius=1.0):
    a = steps(radius, points)
    return f(*torch.meshgrid(a, a, indexing="ij")), a, a


@pytest.mark.parametrize("f", [
    lambda x, y: 3 + 2 * x - y + 5 * x**2 - 4 * x * y + y**2, lambda x, y: x * y, lambda x, y: x + 2 * y,
])  # fmt: skip
def test_quadratics_are_smooth(f):
    """Bowls, saddles and planes are explained to the last digits; in any units."""
    surface, a, b = squares(f)
    assert roughness(surface, a, b) < 1e-12 and roughness(1e6 * surface, 7 * a, b) < 1e-12


def test_what_does_not_vary_has_no_roughness():
    assert roughness(*squares(lambda x, y: 0 * x + 2)) == 0


def test_the_roughness_of_a_chessboard():
    """±1 on 3 x 3 points: s(a) s(b), s = 2 a² − 1 = ⅔ p + ⅓, with p = 3 a² − 2 orthogonal to 1 and a, ‖p‖² = 6.

    s(a) s(b) = 4/9 p(a) p(b) + 2/9 (p(a) + p(b)) + 1/9. No quadratic has p(a) p(b), which is 16/81 · 36 = 64/9 of the
    board's 9 − 1/9 = 80/9.
    """
    board, a, b = squares(lambda x, y: (2 * x**2 - 1) * (2 * y**2 - 1), points=3)
    assert set(board.flatten().tolist()) == {1, -1}
    assert roughness(board, a, b) == pytest.approx((64 / 80) ** 0.5)
    assert roughness(5 - 3 * board, a, b) == pytest.approx((64 / 80) ** 0.5)


def test_a_loss_that_is_no_number_is_not_smooth():
    surface, a, b = squares(lambda x, y: x * y)
    surface[0, 0] = torch.inf
    assert math.isnan(roughness(surface, a, b))


def test_peaks_and_pits_lie_above_or_below_all_eight_neighbours():
    """A bowl has its pit, a saddle and a slope nothing; no peak is at an edge, or beside a point of the same height."""
    bowl = squares(lambda x, y: x**2 + y**2)[0]
    assert extremes(bowl) == extremes(-bowl) == 1
    assert extremes(squares(lambda x, y: x * y)[0]) == extremes(squares(lambda x, y: x + y)[0]) == 0
    flat = torch.zeros(5, 5)
    for i, j, height in ((1, 1, 1.0), (3, 3, -1.0), (4, 0, 2.0), (1, 3, 1.0)):
        flat[i, j] = height
    assert extremes(flat) == 3  # two peaks and a pit inside; the one at the corner does not count
    flat[1, 2] = 1.0  # now a ridge of three
    assert extremes(flat) == 1


def test_shapes_are_those_of_each_runs_surface(results):
    table = landscape.surfaces(results, points=5, samples=50, device="cpu", progress=False)
    found = landscape.shapes(table)
    assert found["method"].tolist() == ["FedAvg", "FedAvg", "FedSAM", "FedSAM"]
    for run in results.runs:
        mine = table[table["key"] == run.key].sort_values(["a", "b"])["value"].to_numpy().reshape(5, 5).copy()
        wanted = {"roughness": roughness(torch.from_numpy(mine), steps(1.0, 5), steps(1.0, 5)),
                  "extremes": extremes(torch.from_numpy(mine))}  # fmt: skip
        assert found[found["key"] == run.key].set_index("measure")["value"].to_dict() == pytest.approx(wanted)
    assert 0 < found.query("measure == 'roughness'")["value"].min() < 1 and "a" not in found


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
def test_a_gpu_sees_the_same(results):
    """Eigenvalues, directions, losses and CKA, in double precision on both."""
    here, there = (dict(samples=100, device=device, progress=False) for device in ("cpu", "cuda"))
    left, right = (hessian.of_runs(results, tolerance=1e-6, **how) for how in (here, there))
    for key, e in left.items():
        assert torch.allclose(e.values, right[key].values, rtol=1e-8) and right[key].vectors.device.type == "cpu"
        assert torch.allclose(e.vectors, right[key].vectors, atol=1e-4)
    tables = [[landscape.surfaces(results, left, points=3, **how), landscape.lines(results, points=3, **how),
               cka.between_clients(results, "*", **how)] for how in (here, there)]  # fmt: skip
    for ours, theirs in zip(*tables, strict=True):
        assert ours["value"].tolist() == pytest.approx(theirs["value"].tolist(), rel=1e-6)
    mean, same = (features.clouds(results, **how) for how in (here, there))
    assert all(torch.allclose(a.vectors, b.vectors, atol=1e-8) for a, b in zip(mean, same, strict=True))
