"""Linear CKA, debiased and not: invariances, values by hand, independent features, and the tables made of it."""

import pytest
import torch
from pandas.testing import assert_frame_equal
from small_grid import small_results

from fednb.metrics import cka
from fednb.metrics.cka import BIASED, DEBIASED, BadEstimator, between, layer_by_layer, linear, mean_between, shape
from fednb.metrics.features import PENULTIMATE, activations
from fednb.metrics.sample import sample_of
from fednb.runs.archive import export_runs
from fednb.runs.merging import import_runs
from fednb.runs.store import entries


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        yield small_results()


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


both = pytest.mark.parametrize("estimator", [DEBIASED, BIASED])


@both
@pytest.mark.parametrize("n, d", [(50, 4), (10, 30)])
def test_one_for_itself_turned_scaled_and_shifted(n, d, estimator):
    """With fewer samples than features too."""
    x = noise(n, d)
    turn = torch.linalg.qr(noise(d, d, seed=1)).Q
    for y in (x, x @ turn, 3 * x, x + noise(d, seed=2), -0.1 * x @ turn + 7):
        assert linear(x, y, estimator) == pytest.approx(1)


@both
def test_stretching_one_feature_matters(estimator):
    """Invariance to all linear maps would make wide layers incomparable (Kornblith et al., §2.1)."""
    x = noise(50, 4)
    assert linear(x, x * torch.tensor([10.0, 1, 1, 1]), estimator) < 0.9


@pytest.mark.parametrize("d, biased", [(4096, 0.94), (16384, 0.985)])
def test_independent_features_are_not_alike(d, biased):
    """256 samples of more features: plain CKA is about d / (d + n) whatever they are, the debiased one about 0."""
    x, y = noise(256, d), noise(256, d, seed=1)
    assert between([x, y], BIASED)[0, 1].item() == pytest.approx(biased, abs=0.005)
    assert linear(x, y) == pytest.approx(0, abs=3 * 2**0.5 / 256)


def test_what_two_models_share_is_seen_among_many_features():
    """Half of the variance is common: ‖E X Yᵀ‖² is ¼ of ‖E X Xᵀ‖² where features are independent of each other."""
    shared, own, other = (noise(256, 4096, seed=seed) for seed in range(3))
    assert linear(shared + own, shared + other) == pytest.approx(0.25, abs=0.02)
    assert between([shared + own, shared + other], BIASED)[0, 1] > 0.9


@pytest.mark.parametrize("n, d, e", [(4, 2, 3), (7, 3, 20), (9, 30, 2)])
def test_debiased_by_song_and_others_formula(n, d, e):
    """HSIC₁ = (tr K L + 1ᵀK1 1ᵀL1 / ((n−1)(n−2)) − 2 1ᵀKL1 / (n−2)) / (n(n−3)), K and L without their diagonals."""
    x, y = noise(n, d) + 3, noise(n, e, seed=1) + noise(n, 1)

    def hsic(a, b):
        k, m = (z @ z.T * (1 - torch.eye(n, dtype=torch.float64)) for z in (a, b))
        common = k.sum() * m.sum() / ((n - 1) * (n - 2)) - 2 * (k @ m).sum() / (n - 2)
        return (torch.trace(k @ m) + common) / (n * (n - 3))

    wanted = hsic(x, y) / (hsic(x, x) * hsic(y, y)).sqrt()
    assert linear(x, y) == pytest.approx(float(wanted))


def test_estimators_that_cannot_be_are_refused():
    with pytest.raises(BadEstimator, match="'unbiased': must be debiased or biased"):
        linear(noise(5, 2), noise(5, 2), "unbiased")
    with pytest.raises(BadEstimator, match="at least 4 samples, not 3"):
        shape(noise(3, 2))


@pytest.mark.parametrize("x, y, wanted", [
    ([1, -1, 1, -1], [1, 1, -1, -1], 0),
    ([1, -1, 0, 0], [1, -1, 1, -1], 0.5),
    ([2, 0, 1, 1], [-3, 3, -3, 3], 0.5),
])  # fmt: skip
def test_of_single_features_it_is_the_squared_correlation(x, y, wanted):
    """(x·y)² / (‖x‖² ‖y‖²), centred: 2² / (2 · 4) = 1/2."""
    x, y = (torch.tensor(z, dtype=torch.float64)[:, None] for z in (x, y))
    assert linear(x, y, BIASED) == pytest.approx(wanted, abs=1e-15)


def test_two_features_by_hand():
    """X = (u, v) and Y = u, with u, v uncorrelated of length 2: 4² / (√(4² + 4²) · 4) = 1/√2."""
    u, v = torch.tensor([1.0, -1, 1, -1]), torch.tensor([1.0, 1, -1, -1])
    assert linear(torch.stack([u, v], 1), u[:, None], BIASED) == pytest.approx(0.5**0.5)


@both
def test_symmetric_and_small_for_unrelated_features(estimator):
    """Of 1000 samples unrelated features share about d / n."""
    x, y = noise(1000, 5), noise(1000, 3, seed=1)
    assert linear(x, y, estimator) == pytest.approx(linear(y, x, estimator)) and abs(linear(x, y, estimator)) < 0.01


@pytest.mark.parametrize("d, e", [(3, 40), (40, 3), (5, 5)])
def test_gram_matrices_give_the_same(d, e):
    """‖Yᵀ X‖² = ⟨X Xᵀ, Y Yᵀ⟩: few samples and many features, or the other way round."""
    x, y = noise(12, d) + 2, noise(12, e, seed=1) + x_part(noise(12, d), e)
    assert float(shape(x, BIASED) @ shape(y, BIASED)) == pytest.approx(linear(x, y, BIASED))


def x_part(x, e):
    return x[:, :1].expand(-1, e)


@both
def test_images_are_flattened(estimator):
    x, y = noise(9, 2, 3, 3), noise(9, 4, seed=1)
    assert linear(x, y, estimator) == pytest.approx(linear(x.flatten(1), y, estimator))
    assert linear(x, y, estimator) == pytest.approx(float(shape(x, estimator) @ shape(y, estimator)))


@both
def test_features_that_do_not_vary_have_no_likeness(estimator):
    assert torch.tensor(linear(noise(5, 2), torch.ones(5, 3), estimator)).isnan()
    assert between([noise(5, 2), torch.ones(5, 3)], estimator)[0, 1].isnan()


@both
def test_between_is_linear_of_every_pair_and_the_mean_leaves_the_diagonal_out(estimator):
    models = [noise(20, d, seed=d) + noise(20, 1) for d in (3, 4, 5)]
    found = between(models, estimator)
    wanted = torch.tensor([[linear(a, b, estimator) for b in models] for a in models])
    assert torch.allclose(found, wanted.double(), atol=1e-6)
    pairs = wanted[0, 1] + wanted[0, 2] + wanted[1, 2]
    assert mean_between(found) == pytest.approx(float(pairs) / 3, rel=1e-5)


def test_layer_by_layer_is_the_mean_over_ordered_pairs_of_different_models():
    features = [[noise(15, 4, seed=10 * c + m) + noise(15, 1, seed=m) for m in range(2)] for c in range(3)]
    found = layer_by_layer(torch.stack([torch.stack([shape(x) for x in model]) for model in features]))
    for m in range(2):
        for n in range(2):
            each = [linear(features[j][m], features[k][n]) for j in range(3) for k in range(3) if j != k]
            assert found[m, n].item() == pytest.approx(sum(each) / 6)


@both
def test_clients_are_compared_on_the_same_samples(results, estimator):
    """The table's numbers are CKA of activations taken by hand; a client is like itself, and as like as the other."""
    table = cka.between_clients(results, samples=60, device="cpu", progress=False, estimator=estimator)
    assert len(table) == 2 * 2 * 4 * 4 and set(table["layer"]) == {PENULTIMATE}
    run = results.runs[1]
    sample, kept = sample_of(run, 60, device="cpu"), run.probed(1)
    mine = table[(table["method"] == "FedSAM") & (table["round"] == 1)].pivot(
        index="client", columns="other", values="value"
    )
    seen = [
        activations(sample.objective, w, sample.b, sample.x, [PENULTIMATE])[PENULTIMATE] for w in kept.vectors["model"]
    ]
    assert [mine.loc[0, 2], mine.loc[2, 0]] == pytest.approx([linear(seen[0], seen[2], estimator)] * 2)
    assert [mine.loc[i, i] for i in range(4)] == pytest.approx([1] * 4) and mine.loc[0, 2] < 0.999


def test_client_models_that_came_without_the_runs_weights_are_compared_too(results, tmp_path, monkeypatch):
    """`fednb store export --probes` leaves the runs' own weights out, which nothing here asks for."""
    asked = dict(layers="*", samples=21, device="cpu", progress=False)
    export_runs(entries(), tmp_path / "runs.zip", probes=True)
    wanted = cka.between_clients(results, **asked)  # after the export, which takes along what is measured
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    import_runs(tmp_path / "runs.zip")
    there = small_results()
    assert all(run.entry.bare for _, run in there)
    assert_frame_equal(cka.between_clients(there, **asked), wanted)


def test_every_layer_and_its_mean(results):
    table = cka.between_clients(results, "*", samples=60, device="cpu", progress=False)
    means = cka.mean_by_layer(table)
    assert list(dict.fromkeys(table["layer"])) == ["conv1", "conv2", "fc1", PENULTIMATE, "fc2"]
    assert len(means) == 2 * 2 * 5 and "client" not in means and set(means["measure"]) == {"CKA, debiased"}
    part = table[(table["layer"] == "fc1") & (table["round"] == 0) & (table["method"] == "FedAvg")]
    wanted = (part["value"].sum() - 4) / 12
    mine = means[(means["layer"] == "fc1") & (means["round"] == 0) & (means["method"] == "FedAvg")]
    assert mine["value"].tolist() == pytest.approx([wanted])


def test_between_layers_has_the_means_on_its_diagonal(results):
    square = cka.between_layers(results, samples=60, device="cpu", progress=False)
    means = cka.mean_by_layer(cka.between_clients(results, "*", samples=60, device="cpu", progress=False))
    own = square[square["layer"] == square["other"]]
    assert len(square) == 2 * 2 * 5 * 5
    assert own["value"].tolist() == pytest.approx(means["value"].tolist())
