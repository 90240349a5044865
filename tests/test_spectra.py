"""Disagreement by frequency: signals whose spectrum is known by hand, and Eq. 4 written out."""

from itertools import combinations, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fednb.core.vectors import Layout
from fednb.metrics import spectra
from fednb.metrics.spectra import TooFewClients, dist, distances, edges, relative_variance, std, variance
from fednb.study.measurements.bands import CENTRALISED, WHOLE, distance_without_means, variance_without_means
from fednb.study.measurements.disagreement import disagreement


def layout(**sizes) -> Layout:
    return Layout(tuple(sizes), tuple((n,) for n in sizes.values()))


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


AMOUNTS = torch.tensor([[-3.0], [0.0], [1.0], [2.0]], dtype=torch.float64)  # mean 0, variance (9 + 0 + 1 + 4) / 4 = 3.5


@pytest.mark.parametrize("bands", [1, 2, 3, 7, 10])
def test_bands_hold_every_frequency_once(bands):
    """⌊n/2⌋ + 1 frequencies in `bands` runs without gap or overlap, none empty, lengths equal up to one."""
    for n in range(2 * bands, 2 * bands + 120):
        ends = edges(n, bands)
        held = [f for low, high in pairwise(ends) for f in range(low, high)]
        widths = {high - low for low, high in pairwise(ends)}
        assert held == list(range(n // 2 + 1)) and len(ends) == bands + 1
        assert min(widths) >= 1 and max(widths) - min(widths) <= 1


def test_clients_that_differ_by_a_constant_differ_in_the_first_band_only():
    """A constant c over 64 numbers is the coefficient √64 c at frequency 0, one of the ⌊33/10⌋ = 3 of band 1.

    The four constants have variance 3.5, so band 1 has 64 · 3.5 / 3; what the clients share has no part in it.
    """
    found = variance(noise(64) + AMOUNTS, layout(a=64))["a"]
    assert found[0].item() == pytest.approx(64 * 3.5 / 3)
    assert found[1:].max().item() == pytest.approx(0, abs=1e-20)


def test_clients_that_differ_by_alternating_signs_differ_in_the_last_band_only():
    """c · (+1, −1, +1, ...) is √64 c at frequency 32, one of the 33 − ⌊297/10⌋ = 4 of band 10."""
    signs = (-1.0) ** torch.arange(64, dtype=torch.float64)
    found = variance(noise(64) + AMOUNTS * signs, layout(a=64))["a"]
    assert found[-1].item() == pytest.approx(64 * 3.5 / 4)
    assert found[:-1].max().item() == pytest.approx(0, abs=1e-20)


def test_white_noise_is_flat_at_its_variance_in_long_and_short_layers():
    """Unit noise of 20 clients: E|ẑ_k − mean ẑ|² = 1 − 1/20 at every frequency, whatever the layer's length.

    A mean over 1000 (or 100) frequencies and 19 free clients has a relative sd of 1/√19000 = 0.7% (or 2.3%).
    """
    found = variance(noise(20, 22_000), layout(long=20_000, short=2_000))
    assert found["long"].tolist() == pytest.approx([0.95] * 10, rel=0.04)
    assert found["short"].tolist() == pytest.approx([0.95] * 10, rel=0.12)


@pytest.mark.parametrize("n, count", [(8, [1, 2, 2, 2, 1]), (9, [1, 2, 2, 2, 2])])
def test_variance_is_conserved(n, count):
    """Parseval: Σ_t Var(x_t) = Σ_f count_f Var(ẑ_f), one band per frequency.

    The real transform leaves out the mirror images: frequencies count twice but for 0 and, n even, n/2.
    """
    x = noise(5, n)
    found = variance(x, layout(a=n), bands=len(count))["a"]
    assert (found * torch.tensor(count)).sum().item() == pytest.approx(x.var(0, correction=0).sum().item())


def by_definition(x: np.ndarray, sizes: list[int], bands: int) -> np.ndarray:
    """δ `[layers, pairs, bands]` of Eq. 4: the Fourier sum by its definition, a 0/1 mask per band, a norm per pair."""
    out, begin = [], 0
    for n in sizes:
        f, t = np.arange(n // 2 + 1), np.arange(n)
        z = x[:, begin : begin + n] @ np.exp(-2j * np.pi * np.outer(t, f) / n)
        masks = [np.isin(f, band) for band in np.split(f, bands)]
        out.append([[np.linalg.norm(a * m - b * m) for m in masks] for a, b in combinations(z, 2)])
        begin += n
    return np.array(out)


@pytest.mark.parametrize("clients", [2, 3, 5])
def test_distances_are_those_of_equation_4(clients):
    """Layers of 10 and 17 numbers have 6 and 9 frequencies: three bands of 2 and of 3. C (C − 1) / 2 pairs."""
    x = noise(clients, 27)
    delta = distances(x, layout(a=10, b=17), bands=3)
    wanted = by_definition(x.numpy(), [10, 17], 3)
    assert delta["a"].shape == delta["b"].shape == (clients * (clients - 1) // 2, 3)
    np.testing.assert_allclose(delta["a"], wanted[0], rtol=1e-12)
    np.testing.assert_allclose(delta["b"], wanted[1], rtol=1e-12)
    mean = wanted.mean((0, 1))
    np.testing.assert_allclose(dist(delta), mean, rtol=1e-12)
    np.testing.assert_allclose(std(delta), np.sqrt(((wanted - mean) ** 2).mean((0, 1))), rtol=1e-10, atol=1e-12)


def test_dist_and_std_of_three_constants():
    """Constants 0, 1, 3 over 4 numbers: coefficient 4c, pairs 4, 8, 12; mean 8, deviations 4, 0, 4, Std √(32/3)."""
    x = torch.tensor([0.0, 1.0, 3.0])[:, None].expand(3, 4)
    delta = distances(x, layout(a=4), bands=3)
    assert sorted(delta["a"][:, 0].tolist()) == pytest.approx([4, 8, 12])
    assert dist(delta).tolist() == pytest.approx([8, 0, 0])
    assert std(delta).tolist() == pytest.approx([(32 / 3) ** 0.5, 0, 0])


def test_relative_variance_is_the_share_of_power_that_differs_whatever_the_power():
    """Constants −2, 1, 2, 3 around a mean of 1: variance 3.5, power 4.5; all agree on the rest.

    Noise of 4 clients has nothing in common: 1 − 1/4, in a strong band as in a weak one.
    """
    signs = (-1.0) ** torch.arange(64, dtype=torch.float64)
    alike = relative_variance(AMOUNTS + 1 + 5 * signs, layout(a=64))["a"]
    assert alike[0].item() == pytest.approx(3.5 / 4.5) and alike[1:].tolist() == pytest.approx([0] * 9, abs=1e-20)
    weak = 1e-6 * noise(4, 20_000)
    assert relative_variance(weak, layout(a=20_000))["a"].tolist() == pytest.approx([0.75] * 10, abs=0.02)
    assert relative_variance(weak + 9.0, layout(a=20_000))["a"][0].item() < 1e-6


@pytest.mark.parametrize("measure", [variance, distances, relative_variance])
def test_layers_with_fewer_frequencies_than_bands_are_left_out(measure):
    """Ten bands need ⌊n/2⌋ + 1 ≥ 10, that is n ≥ 18: 17 is too short, 18 is not."""
    found = measure(noise(3, 135), layout(bias=17, norm=18, weight=100), bands=10)
    assert list(found) == ["norm", "weight"]


@pytest.mark.parametrize("measure", [variance, distances, relative_variance])
def test_too_many_bands_and_too_few_clients_are_refused(measure):
    with pytest.raises(ValueError, match="no layer has 10 frequencies; ask for fewer bands"):
        measure(noise(3, 17), layout(a=17), bands=10)
    with pytest.raises(TooFewClients, match=r"shape \(1, 100\): at least two clients"):
        measure(noise(1, 100), layout(a=100))
    with pytest.raises(TooFewClients, match=r"shape \(100,\)"):
        measure(noise(100), layout(a=100))


CONSTANT = AMOUNTS.expand(4, 64)


class Made:
    """Results of two runs (alpha 0.6 and 0.1) with a probe in rounds 0 and 3: x, and twice as far apart at 0.1."""

    probe = SimpleNamespace(rounds=(0, 3))

    def __init__(self, x=CONSTANT, of=None):
        self.x, self.of = x, of or layout(a=32, b=32)

    def __iter__(self):
        for alpha, scale in ((0.6, 1.0), (0.1, 2.0)):
            frame = dict(vectors={"gradient": scale * self.x}, layout=self.of, clients=range(4))
            kept = [SimpleNamespace(round=t, **frame) for t in self.probe.rounds]
            about = dict(seed=7, key="k", all_probed=lambda _, k=kept: k)
            yield SimpleNamespace(tags={"alpha": alpha}, label="Ours"), SimpleNamespace(**about)


def test_tables_have_a_row_per_run_round_measure_and_band():
    """32 numbers, 17 frequencies, 8 in the first of two bands: 32 · 3.5 / 8 = 14; twice as far, four times that."""
    table = spectra.variance_by_band(Made(), "gradient", bands=2)
    assert len(table) == 2 * 2 * 2 and set(table["round"]) == {0, 3} and set(table["seed"]) == {7}
    assert set(table["method"]) == {"Ours"}  # the grid's label, not the method's own name
    first = table[table["band"] == 1].groupby("alpha")["value"].unique()
    assert first[0.6] == pytest.approx(14) and first[0.1] == pytest.approx(56)
    assert table[table["band"] == 2]["value"].max() == pytest.approx(0, abs=1e-20)
    both = spectra.distance_by_band(Made(), bands=2)
    assert len(both) == 16 and set(both["measure"]) == {"Dist", "Std"}


def test_layers_table_is_the_mean_over_runs_and_rounds():
    """(14 + 14 + 56 + 56) / 4 = 35 for both layers, in the first of two bands."""
    table = spectra.by_layer(Made(), "gradient", bands=2)
    assert list(table.index) == ["a", "b"] and list(table.columns) == [1, 2]
    assert table[1].tolist() == pytest.approx([35, 35]) and table[2].tolist() == pytest.approx([0, 0], abs=1e-20)


def test_disagreement_has_the_share_of_the_first_band_once_and_relative_variance_by_band():
    """Constants differ in the first band alone, and have a mean of 0: all variance is there, and all power differs."""
    table = disagreement(Made(), "gradient", bands=2)
    share, relative = (table[table["measure"] == name] for name in ("lowest band's share", "relative variance"))
    assert len(share) == 2 * 2 and share["value"].tolist() == pytest.approx([1.0] * 4) and share["band"].isna().all()
    assert len(relative) == 2 * 2 * 2 and set(relative["round"]) == {0, 3}
    assert relative.groupby("band")["value"].max().tolist() == pytest.approx([1.0, 0.0], abs=1e-9)


OUTPUTS = Layout(("a", "b", "bias"), ((8, 32), (8, 4, 8), (64,)))  # two layers of eight outputs with 32 weights each


def control(x, measured=distance_without_means):
    """Numbers of whole and centralised vectors (rows) by band (columns), at the larger alpha."""
    table = measured(Made(x, OUTPUTS), what="gradient", bands=4)
    assert len(table) == 2 * 2 * 2 * 4 and table["measure"].nunique() == 1
    return table[table["alpha"] == 0.6].groupby(["vectors", "band"])["value"].mean().unstack()


@pytest.mark.parametrize("measured, whole, share", [
    (distance_without_means, lambda x, of: dist(distances(x, of, bands=4)), 1 / 3),
    (variance_without_means, lambda x, of: variance(x, of, bands=4)["bias"], 1 / 3),
])  # fmt: skip
def test_what_the_weights_of_an_output_have_in_common_is_gone_from_every_band(measured, whole, share):
    """Every output of every client has its own constant: nothing is left of the weights, all of the bias."""
    means = noise(4, 16, seed=1).repeat_interleave(32, dim=1)
    bias = noise(4, 64, seed=2)
    found = control(torch.cat([means, bias], dim=1), measured)
    wanted = share * whole(bias, layout(bias=64))
    assert found.loc[CENTRALISED].to_numpy() == pytest.approx(wanted.numpy())
    assert (found.loc[WHOLE] > found.loc[CENTRALISED]).all()


@pytest.mark.parametrize("measured", [distance_without_means, variance_without_means])
def test_means_of_outputs_lie_in_low_frequencies(measured):
    """Of white noise centralisation takes one number in 32, from the lowest of four bands nearly alone."""
    found = control(noise(4, OUTPUTS.total, seed=3), measured)
    left = found.loc[CENTRALISED] / found.loc[WHOLE]
    assert left[1] < 0.97 and (left[[2, 3, 4]] > 0.98).all() and left[1] == left.min()
