"""Distances between clients by hand, and a control that is as strong as the filter but knows no frequency."""

from itertools import combinations
from types import SimpleNamespace

import pytest
import torch

from fednb.core.vectors import Layout
from fednb.filters import Centralize, ClipToMedian, HighPass, LocalAverage, LowPass, RandomBand, Rescale
from fednb.metrics import drift
from fednb.metrics.drift import WHOLE, Turned, agreement, agreements, distances, divergence
from fednb.metrics.spectra import TooFewClients
from fednb.metrics.tidy import NotProbed


def layout(**sizes) -> Layout:
    return Layout(tuple(sizes), tuple((n,) for n in sizes.values()))


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def matrix(filter, n, shape=None):
    """A linear filter as a matrix: what it makes of the unit vectors."""
    return filter(torch.eye(n, dtype=torch.float64), shape).T


@pytest.mark.parametrize("n", [16, 17])
@pytest.mark.parametrize("kind", [HighPass, LowPass, RandomBand])
def test_a_projection_stays_one_of_the_same_rank(kind, n):
    """P = Pᵀ = P², and the trace of a projection is its rank: that of the filter itself."""
    plain, turned = matrix(kind(0.3), n), matrix(Turned.of(kind(0.3), seed=4), n)
    assert torch.allclose(turned, turned.T, atol=1e-12) and torch.allclose(turned @ turned, turned, atol=1e-12)
    assert turned.trace().item() == pytest.approx(plain.trace().item()) and plain.trace().item() < n - 1
    assert not torch.allclose(plain, turned, atol=0.01)


@pytest.mark.parametrize("filter, n, shape", [(LocalAverage(5), 24, None), (Centralize(), 24, (4, 6))])
def test_any_linear_filter_keeps_its_singular_values(filter, n, shape):
    """Qᵀ Φ Q with an orthogonal Q."""
    values = [torch.linalg.svdvals(matrix(each, n, shape)) for each in (filter, Turned.of(filter))]
    assert torch.allclose(*values, atol=1e-12)


def test_what_goes_is_on_average_the_share_of_dimensions():
    """HighPass(0.25) of 32 numbers removes ⌊0.25 · 17⌋ = 4 frequencies, 1 + 2 · 3 = 7 dimensions: all of a constant.

    In random axes 7/32 of it. The share of one draw has a standard deviation of about √14 / 32 = 0.12.
    """
    x = torch.ones(32, dtype=torch.float64)
    assert HighPass(0.25)(x).norm() < 1e-12
    lost = [1 - float(Turned(HighPass(0.25), seed=i)(x).square().sum()) / 32 for i in range(500)]
    assert sum(lost) / 500 == pytest.approx(7 / 32, abs=4 * 0.12 / 500**0.5)


def test_a_draw_is_a_function_of_the_seed():
    x = noise(3, 40)
    assert torch.equal(Turned(HighPass(0.2), 1)(x), Turned(HighPass(0.2), 1)(x))
    assert not torch.allclose(Turned(HighPass(0.2), 1)(x), Turned(HighPass(0.2), 2)(x))


def test_filters_that_see_neither_order_nor_sign_are_their_own_control():
    """A norm and a median of magnitudes are the same in the new axes."""
    x, both = 9 * noise(3, 40), layout(a=15, b=25)
    for filter in (Rescale(1.0), ClipToMedian(1.0)):
        turned = Turned.of(filter)
        assert turned.whole is filter.whole
        assert torch.allclose(both.map(turned, x), both.map(filter, x))


def test_the_control_touches_the_same_layers():
    x, both = noise(3, 40), layout(a=15, b=25)
    changed = both.layers(both.map(Turned.of(HighPass(0.5, where="b")), x) != x)
    assert not changed["a"].any() and changed["b"].all()


def test_divergence_by_hand():
    """Clients at (0, 0) and (6, 8): both are 5 from (3, 4). In the second layer all are alike."""
    found = divergence(torch.tensor([[0.0, 0.0, 7.0], [6.0, 8.0, 7.0]]), layout(a=2, b=1))
    assert found == {"a": 5.0, "b": 0.0}


def test_the_consensus_is_filtered_too_not_averaged_afterwards():
    """Eq. 5 has Φ(ḡ). Gradients 0, 0, 3 and Φ(x) = x²: 0, 0, 9 about Φ(1) = 1 is 10 / 3, about their mean it is 4."""
    found = divergence(torch.tensor([[0.0], [0.0], [3.0]]), layout(a=1), lambda x, shape: x**2)
    assert found["a"] == pytest.approx(10 / 3)


@pytest.mark.parametrize("filter", [HighPass(0.3), Turned(HighPass(0.3)), Centralize()])
def test_a_projection_never_raises_divergence(filter):
    """‖P x‖ ≤ ‖x‖: certain, whatever clients are like, and so no evidence."""
    x, both = noise(5, 90), Layout(("a", "b"), ((6, 10), (30,)))
    before, after = divergence(x, both), divergence(x, both, filter)
    assert all(after[name] <= before[name] + 1e-12 for name in before) and after["a"] < before["a"]


def test_the_control_tells_a_fall_from_a_smooth_cause():
    """Clients that differ by constants: the filter removes all of it, a projection of the same rank about a seventh."""
    x = noise(80) + torch.tensor([[-3.0], [0.0], [1.0], [2.0]], dtype=torch.float64)
    before, after, random = (
        divergence(x, layout(a=80), f)["a"] for f in (None, HighPass(0.15), Turned(HighPass(0.15)))
    )
    assert after < 1e-10 and 0.8 * before < random < before


def test_distances_by_layer_and_in_all():
    """Moves (3, 4 | 12): 5 and 12 by layer, 13 together. The same as models around a centre."""
    moves, both = torch.tensor([[3.0, 4.0, 12.0], [0.0, 0.0, 0.0]]), layout(a=2, b=1)
    centre = torch.tensor([1.0, -2.0, 0.5])
    for found in (distances(moves, both), distances(moves + centre, both, centre)):
        assert {name: x.tolist() for name, x in found.items()} == {"a": [5, 0], "b": [12, 0], WHOLE: [13, 0]}


@pytest.mark.parametrize("vectors, wanted", [
    ([[1, 0], [2, 0], [5, 0]], 1),
    ([[1, 0], [-3, 0]], -1),
    ([[1, 0], [0, 1]], 0),
    ([[1, 0], [0, 1], [1, 1]], 2 * 0.5**0.5 / 3),
    ([[1, 0], [2, 0], [0, 0]], 1 / 3),
])  # fmt: skip
def test_agreement_by_hand(vectors, wanted):
    """The mean over pairs; a vector of length zero agrees with nobody."""
    assert agreement(torch.tensor(vectors, dtype=torch.float64)) == pytest.approx(wanted)


def test_agreement_is_the_mean_over_pairs_whatever_the_lengths():
    """Also for gradients as small as 1e-9."""
    x = noise(6, 30) * torch.tensor([1e-9, 1, 2, 3, 4, 1e9], dtype=torch.float64)[:, None]
    pairs = [torch.cosine_similarity(a, b, dim=0, eps=1e-30).item() for a, b in combinations(x, 2)]
    assert agreement(x) == pytest.approx(sum(pairs) / 15)


def test_agreements_by_layer():
    """Alike in a, opposite in b: 1 and −1, and together (25 − 144) / 169."""
    found = agreements(torch.tensor([[3.0, 4.0, 12.0], [3.0, 4.0, -12.0]]), layout(a=2, b=1))
    assert found == pytest.approx({"a": 1, "b": -1, WHOLE: -119 / 169})


@pytest.mark.parametrize("measure", [lambda x: divergence(x, layout(a=4)), agreement])
def test_a_single_client_is_refused(measure):
    with pytest.raises(TooFewClients, match=r"shape \(1, 4\): at least two clients"):
        measure(noise(1, 4))


class Made:
    """Two runs, probed in rounds 0 and 3; in round 3 of the second only one client came."""

    probe = SimpleNamespace(rounds=(0, 3))

    def __iter__(self):
        for name, scale, came in (("FedAvg", 1.0, 4), ("FedSAM", 2.0, 1)):
            x = scale * torch.tensor([[-3.0], [0.0], [1.0], [2.0]]).expand(4, 128)
            kept = [self.kept(0, x), self.kept(3, x[:came])]
            about = dict(seed=7, key=name, all_probed=lambda _, k=kept: k)
            yield SimpleNamespace(tags={"alpha": 0.1}, label=name), SimpleNamespace(**about)

    def kept(self, t, x):
        vectors = {"gradient": x, "move": x}
        return SimpleNamespace(round=t, vectors=vectors, layout=layout(a=64, b=64), clients=range(len(x)))


def test_drift_and_cosines_have_a_row_per_layer_and_one_for_all():
    """Constants −3, 0, 1, 2: one pair agrees, two are opposed, three have a vector of zero: (1 − 2) / 6."""
    moved, agreed = drift.drift_by_layer(Made()), drift.agreement_by_layer(Made())
    assert set(moved["layer"]) == {"a", "b", WHOLE} and len(moved) == len(agreed) == 3 * 3
    whole = moved[(moved["layer"] == WHOLE)].groupby("method")["value"].first()
    assert whole["FedAvg"] == pytest.approx(12 * 2**0.5) and whole["FedSAM"] == pytest.approx(24 * 2**0.5)
    assert agreed["value"].tolist() == pytest.approx([-1 / 6] * 9)


def test_what_was_not_kept_is_named():
    with pytest.raises(NotProbed, match="kept gradient, move, not 'perturbation'; add it"):
        drift.agreement_by_layer(Made(), "perturbation")
