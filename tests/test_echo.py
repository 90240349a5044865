"""Two failure modes as numbers: ascents that miss the global one, steps that echo earlier ones; by hand and on runs."""

from itertools import pairwise
from math import isnan

import numpy as np
import pytest
import torch
from pytest import approx
from small_grid import SETTING, small_results
from torch import tensor
from torch.nn.functional import cross_entropy

from fednb.data.sources import load
from fednb.engines.problem import dealt, problem_of
from fednb.engines.setting import Setting
from fednb.metrics.features import NeedsStatistics
from fednb.metrics.tidy import NotProbed
from fednb.models import build
from fednb.runs.probes import Probe
from fednb.study.measurements import alignment, echo
from fednb.study.measurements.registry import MEASUREMENTS

KEPT = ["perturbation", "global", "move"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        yield small_results(("FedAvg", "FedSAM", "FedCM", "FedWMSAM"), KEPT)


def of(table, method, measure, **more):
    mine = table[(table["method"] == method) & (table["measure"] == measure)]
    for column, value in more.items():
        mine = mine[mine[column] == value]
    return mine["value"].tolist()


def test_alignment_by_hand():
    """∇F = (3, 4): along it 1, across it 0, against it −1, (1, 0) has 3/5; who does not perturb is left out."""
    delta = tensor([[0.3, 0.4], [-0.4, 0.3], [-6.0, -8.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    assert alignment.alignments(delta, tensor([3.0, 4.0])).tolist() == approx([1, 0, -1, 0.6])


@pytest.mark.parametrize("chunk", [500, 64])
def test_the_global_gradient_is_that_of_all_samples_of_the_clients(results, chunk, monkeypatch):
    """Plain autograd over every client's samples, what two hold counting twice; in one piece or several."""
    monkeypatch.setattr(alignment, "CHUNK", chunk)
    run = results.runs[0]
    w = run.probed(1).vectors["global"][0]
    _, parts = dealt(run.setting, 0)
    index = torch.from_numpy(np.concatenate([*parts, parts[0]]))
    data, model = load("digits"), build("cnn-small", 10, (1, 8, 8), seed=0).double()
    torch.nn.utils.vector_to_parameters(w, model.parameters())
    x = (data.x[index].double() / 16 - 0.3054) / 0.3760
    cross_entropy(model(x), data.y[index]).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    loss = alignment.GlobalLoss(problem_of(run.setting, 0), [*parts, parts[0]])
    assert torch.allclose(loss.gradient(w), expected, atol=1e-12)


def test_models_with_batchnorm_are_refused():
    setting = Setting(**SETTING).but(model="small-cnn-bn")
    data, parts = dealt(setting, 0)
    with pytest.raises(NeedsStatistics, match="BatchNorm"):
        alignment.GlobalLoss(problem_of(setting, 0, "cpu", data, parts), parts)


def test_the_kept_global_model_is_where_clients_start(results):
    """w_{t+1} = w_t + mean of the moves, by size; and the last kept one leads to the run's weights."""
    run = results.runs[0]
    first, second = (run.probed(t).vectors for t in (0, 1))
    sizes = torch.tensor([len(p) for p in dealt(run.setting, 0)[1]], dtype=torch.float64)
    for before, moves, after in ((first["global"][0], first["move"], second["global"][0]),
                                 (second["global"][0], second["move"], run.w)):  # fmt: skip
        assert torch.allclose(before + (sizes[:, None] * moves).sum(0) / sizes.sum(), after, atol=1e-12)


def test_alignment_of_runs(results):
    """FedAvg and FedWMSAM's first round perturb nothing: no number. FedSAM's is the mean cosine, by hand."""
    table = MEASUREMENTS["alignment"](results, device="cpu")
    assert all(map(isnan, of(table, "FedAvg", "alignment"))) and isnan(of(table, "FedWMSAM", "alignment", round=0)[0])
    run = results.runs[1]
    kept = run.probed(1).vectors
    g = alignment.GlobalLoss.of(run, "cpu").gradient(kept["global"][0])
    cosines = [float(d @ g / d.norm() / g.norm()) for d in kept["perturbation"]]
    assert of(table, "FedSAM", "alignment", round=1) == approx([sum(cosines) / 4])
    unit = kept["perturbation"] / kept["perturbation"].norm(dim=1, keepdim=True)
    pairs = [float(unit[i] @ unit[j]) for i in range(4) for j in range(4) if i != j]
    assert of(table, "FedSAM", "agreement", round=1) == approx([sum(pairs) / 12])
    assert 0 < of(table, "FedSAM", "alignment", round=1)[0] < 1


def test_what_was_not_kept_is_said(results):
    grid = results.grid
    with pytest.raises(ValueError, match="must be one of gradient, perturbation, move, model, global"):
        Probe(("globe",))
    run = results.runs[0]
    with pytest.raises(NotProbed, match=r"kept .*, not 'gradient'; add it to `what`"):
        alignment.wanted(run, run.probed(0), "gradient")
    assert grid.probe.what == tuple(KEPT)


def test_turns_by_hand():
    """Right, right, back, up: cosines 1, −1, 0 with the one before, −1 and 0 with the one before that."""
    u = dict(enumerate(tensor([[1.0, 0], [2.0, 0], [-1.0, 0], [0, 3.0]])))
    assert echo.turns(u) == approx({1: 1, 2: -1, 3: 0}) and echo.turns(u, 2) == approx({2: -1, 3: 0})
    del u[1]  # a round that was not kept: nobody is compared across the gap
    assert echo.turns(u) == approx({3: 0}) and echo.turns(u, 2) == approx({2: -1})


def test_steps_need_both_ends():
    held = {0: tensor([0.0]), 1: tensor([1.0]), 4: tensor([5.0]), 5: tensor([3.0])}
    assert {t: x.item() for t, x in echo.steps(held).items()} == {0: 1.0, 4: -2.0}


class Bowl:
    """L = ½ w²."""

    def gradient(self, w):
        return w


def test_overshoot_by_hand():
    """From 1 to −½ the loss rises at the end, from −½ to −¼ it still falls; into the minimum it does neither."""
    held = {0: tensor([1.0]), 1: tensor([-0.5]), 2: tensor([-0.25]), 3: tensor([0.0])}
    assert echo.overshoots(held, echo.steps(held), Bowl()) == approx({0: 1, 1: -1, 2: 0})


def test_momentum_echoes_on_a_quadratic():
    """Heavy ball, u ← 0.9 u − 0.1 w, on ½w²: swings through the minimum; plain descent never does."""

    def walk(beta):
        w, u, held = tensor([1.0]), tensor([0.0]), {}
        for t in range(60):
            held[t] = w
            u = beta * u - 0.1 * w
            w = w + u
        return held

    beyond = {b: [v > 0 for v in echo.overshoots(walk(b), echo.steps(walk(b)), Bowl()).values()] for b in (0.0, 0.9)}
    assert not any(beyond[0.0]) and 0.3 < sum(beyond[0.9]) / 59 < 0.6


def test_rises_are_of_the_test_loss():
    class Some:
        rows = [{"round": t, "test_loss": loss} for t, loss in enumerate([2.0, 1.5, None, 1.75, 1.0])]

    assert echo.rises(Some()) == {1: 0.0, 3: 0.25, 4: 0.0}


def test_phases_are_halves():
    assert [echo.phase(t, 5) for t in range(5)] == ["early"] * 3 + ["late"] * 2
    assert [echo.phase(t, 4) for t in range(4)] == ["early"] * 2 + ["late"] * 2


def test_echo_of_runs(results):
    """Two rounds, both ends kept: two steps, one turn in the late half; the numbers are those of the kept models."""
    table = MEASUREMENTS["echo"](results, device="cpu")
    for cell, run in results:
        w = [run.probed(0).vectors["global"][0], run.probed(1).vectors["global"][0], run.w]
        first, second = (b - a for a, b in pairwise(w))
        turn = float(first @ second / first.norm() / second.norm())
        assert of(table, cell.label, "persistence") == approx([turn])
        assert of(table, cell.label, "alternation", phase="late") == [float(turn < 0)]
        loss = alignment.GlobalLoss.of(run, "cpu")
        beyond = [float(loss.gradient(end) @ step > 0) for end, step in zip(w[1:], (first, second), strict=True)]
        assert of(table, cell.label, "overshoot") == beyond
        assert of(table, cell.label, "loss rise") == [max(0.0, run.rows[1]["test_loss"] - run.rows[0]["test_loss"])]


def test_past_steps_sound_longer_with_momentum(results):
    """FedCM's clients go nine tenths of their way as everyone went last: its steps are more alike than FedAvg's."""
    table = MEASUREMENTS["echoes"](results, most=2)
    assert of(table, "FedCM", "autocorrelation", phase="late", lag=1) > of(
        table, "FedAvg", "autocorrelation", phase="late", lag=1
    )
    assert all(map(isnan, of(table, "FedCM", "autocorrelation", lag=2)))  # three steps would be needed
    assert of(table, "FedSAM", "autocorrelation", lag=1, phase="late") == approx(
        of(MEASUREMENTS["echo"](results, device="cpu"), "FedSAM", "persistence")
    )
