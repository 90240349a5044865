"""What a filter leaves of the divergence between clients: by hand, and beside the control."""

import pandas as pd
import pytest
import torch
from pytest import approx
from small_grid import small_results

from fednb.core.vectors import Layout
from fednb.filters import HighPass
from fednb.metrics import cka
from fednb.study.measurements.bands import CENTRALISED
from fednb.study.measurements.layers import AFTER, BEFORE, CONTROL, left_by_filter, likeness, rows, weights

LAYOUT = Layout(("a.weight", "a.bias", "b.weight", "c.weight"), ((8, 8), (8,), (4, 16), (2, 32)))


def table(x, ratio=0.1, draws=3):
    return pd.DataFrame(rows(x, LAYOUT, HighPass(ratio), draws))


def value(found, measure, method, **where):
    mine = found[(found["measure"] == measure) & (found["method"] == method)]
    for column, wanted in where.items():
        mine = mine[mine[column] == wanted]
    return mine["value"].mean()


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def smooth_at_the_end():
    """Two clients ± g, 64 numbers a layer: white in a, a constant and the fastest wave in b, a constant in c."""
    one, wave = torch.ones(64, dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(32)
    g = torch.cat([noise(64), noise(8, seed=1), one + wave, 3 * one])
    return torch.stack([g, -g])


def test_biases_are_left_out():
    assert weights(LAYOUT) == ["a.weight", "b.weight", "c.weight"]


def test_shares_by_hand(smooth_at_the_end):
    """The mean of ±g is 0, so Δ = ‖g‖. Of b the constant goes: ‖wave‖ / ‖1 + wave‖ = 1/√2 is left; of c nothing."""
    found = table(smooth_at_the_end)
    g = smooth_at_the_end[0]
    assert value(found, "divergence", BEFORE, layer="c.weight") == approx(3 * 8)
    a = float(HighPass(0.1)(g[:64]).norm() / g[:64].norm())
    assert value(found, "divergence", AFTER, layer="a.weight") == approx(a * float(g[:64].norm()))
    assert value(found, "share left", AFTER) == approx((a + 0.5**0.5 + 0) / 3, abs=1e-9)
    assert value(found, "largest share left", AFTER) == approx(a)
    assert value(found, "share left by half", AFTER, half=1) == approx((a + 0.5**0.5) / 2, abs=1e-9)
    assert value(found, "share left by half", AFTER, half=2) == approx(0, abs=1e-9)
    assert value(found, "share left", BEFORE) == value(found, "largest share left", BEFORE) == 1.0


def test_drops_by_hand(smooth_at_the_end):
    """Δ − Δ(Φ): of b, ‖1 + wave‖ − ‖wave‖ = 8 (√2 − 1) goes, of c all of its 24."""
    found = table(smooth_at_the_end)
    g = smooth_at_the_end[0][:64]
    a = float(g.norm() - HighPass(0.1)(g).norm())
    assert value(found, "drop by half", AFTER, half=1) == approx((a + 8 * (2**0.5 - 1)) / 2)
    assert value(found, "drop by half", AFTER, half=2) == approx(24)
    assert value(found, "drop by half", BEFORE, half=1) == 0


def test_centralised_by_hand(smooth_at_the_end):
    """Without the mean of each output: of b the wave is left, ‖wave‖ = 8 of 8√2; of c nothing; biases stay out."""
    found = table(smooth_at_the_end)
    a = smooth_at_the_end[0][:64].reshape(8, 8)
    left = {"a.weight": float((a - a.mean(1, keepdim=True)).norm()), "b.weight": 8, "c.weight": 0}
    for layer, norm in left.items():
        assert value(found, "divergence", CENTRALISED, layer=layer) == approx(norm, abs=1e-9)
    shares = (left["a.weight"] / float(a.norm()), 0.5**0.5, 0)
    assert value(found, "share left", CENTRALISED) == approx(sum(shares) / 3, abs=1e-9)


def test_the_control_is_a_mean_over_draws_and_the_excess_is_of_the_worst_layer(smooth_at_the_end):
    found = table(smooth_at_the_end)
    control = found[(found["measure"] == "divergence") & (found["method"] == CONTROL)]
    assert control.groupby("layer").size().to_dict() == {"a.weight": 3, "b.weight": 3, "c.weight": 3}
    assert sorted(control["draw"].unique()) == [0, 1, 2]
    shares = {layer: value(found, "divergence", CONTROL, layer=layer) / value(found, "divergence", BEFORE, layer=layer)
              for layer in weights(LAYOUT)}  # fmt: skip
    assert value(found, "share left", CONTROL) == approx(sum(shares.values()) / 3)
    after = {layer: value(found, "divergence", AFTER, layer=layer) / value(found, "divergence", BEFORE, layer=layer)
             for layer in weights(LAYOUT)}  # fmt: skip
    assert value(found, "excess", AFTER) == approx(max(after[layer] - shares[layer] for layer in after))
    assert value(found, "share left", AFTER) < value(found, "share left", CONTROL)


def test_of_white_noise_the_filter_leaves_what_chance_leaves():
    """Six clients, 64 white numbers: HighPass(0.1) removes 3 of 33 frequencies, 5 of 64 dimensions: √(59/64) = 0.96."""
    found = table(noise(6, LAYOUT.total, seed=5), draws=8)
    for method in (AFTER, CONTROL):
        assert value(found, "share left", method) == approx((59 / 64) ** 0.5, abs=0.03)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        yield small_results(methods=("FedAvg",), what=["gradient", "model"])


def test_figure_2_from_runs(results):
    """cnn-small has four weight layers; before, after, centralised and two draws in each of two rounds."""
    found = left_by_filter(results, draws=2)
    counts = found.groupby(["measure", "method"]).size()
    assert counts["divergence"].to_dict() == {AFTER: 8, BEFORE: 8, CENTRALISED: 8, CONTROL: 16}
    assert counts["share left by half"].to_dict() == {AFTER: 4, BEFORE: 4, CENTRALISED: 4, CONTROL: 4}
    assert list(dict.fromkeys(found["layer"].dropna())) == ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"]
    assert set(found["round"]) == {0, 1} and found["value"].notna().all()
    assert (found[found["measure"] == "share left"]["value"] <= 1 + 1e-9).all()


@pytest.mark.parametrize("estimator, behind", [(cka.BIASED, ""), (cka.DEBIASED, ", debiased")])
def test_figure_7_from_runs(results, estimator, behind):
    """4 x 4 pairs of clients in two rounds; five layers with the penultimate one; means leave the diagonal out."""
    found = likeness(results, samples=40)
    names = ("CKA", "mean CKA by layer", "mean CKA, penultimate layer", "mean CKA, all layers")
    pair, layer, last, every = (name + behind for name in names)
    counts = found.groupby("measure").size().to_dict()
    assert {name: counts[name] for name in (pair, layer, last, every)} == {pair: 32, layer: 10, last: 2, every: 2}
    pairs = found[(found["measure"] == pair) & (found["round"] == 1)].pivot(
        index="client", columns="other", values="value"
    )
    mean = cka.mean_between(torch.tensor(pairs.to_numpy()))
    seen = found[found["round"] == 1].set_index("measure")["value"]
    assert seen[last] == approx(mean) and mean < 1 and len(counts) == 8
    assert seen[every] == approx(seen[layer].mean())
    table = cka.between_clients(results, samples=40, progress=False, estimator=estimator)
    assert found[found["measure"] == pair]["value"].tolist() == approx(table["value"].tolist())
