"""Eigenpairs of Hessians against dense ones, of known spectra, and where directions are nearly or fully alike."""

import pytest
import torch
from small_grid import small_results
from torch import nn

from fednb.engines.objective import Objective
from fednb.metrics import hessian
from fednb.metrics.hessian import METHODS, Eigen, orthonormal, product_of, top
from fednb.metrics.sample import CHUNK, Sample, sample_of


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def known(*spectrum, seed=0):
    """A symmetric matrix with these eigenvalues; its eigenvectors are the rows of the second."""
    axes = torch.linalg.qr(noise(len(spectrum), len(spectrum), seed=seed)).Q.T
    return axes.T @ torch.diag(torch.tensor(spectrum, dtype=torch.float64)) @ axes, axes


def same_up_to_sign(found, wanted, atol=1e-6):
    return all(min((a - b).norm(), (a + b).norm()) < atol for a, b in zip(found, wanted, strict=True))


def of_matrix(H, count=2, tolerance=1e-10, **how):
    return top(lambda v: H @ v, H[0], count, tolerance=tolerance, most=5000, **how)


def tiny(samples=12, dtype=torch.float64):
    """A network of 21 weights and its loss on a few samples."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        objective = Objective(nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3, bias=False)).to(dtype))
    x, y = 2 * noise(samples, 3).to(dtype), torch.arange(samples) % 3
    return Sample(objective, x, y, torch.zeros(0)), objective.start(dtype, torch.device("cpu"))[0]


def test_products_are_those_of_the_dense_hessian():
    """L is an ordinary function of 21 numbers: autograd can write its Hessian out."""
    sample, w = tiny()
    with sample.arithmetic():
        H = torch.autograd.functional.hessian(sample, w)
    product = product_of(sample, w)
    assert torch.allclose(torch.stack([product(e) for e in torch.eye(len(w), dtype=w.dtype)]), H, atol=1e-12)
    assert H.abs().max() > 0.1


def test_chunks_add_up():
    """More samples than one chunk, the last short: the same product as with all at once."""
    sample, w = tiny(samples=CHUNK + 30)
    assert len(sample.pieces) == 2
    whole = product_of(lambda w: sample.objective.loss(w, sample.b, sample.x, sample.y), w)
    with sample.arithmetic():
        wanted = whole(w)
    assert torch.allclose(product_of(sample, w)(w), wanted, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_eigenpairs_are_those_of_the_dense_hessian(method):
    sample, w = tiny()
    with sample.arithmetic():
        values, vectors = torch.linalg.eigh(torch.autograd.functional.hessian(sample, w))
    order = values.abs().argsort(descending=True)[:3]
    found = top(product_of(sample, w), w, 3, method, tolerance=1e-9, most=20_000)
    assert found.converged and found.values.tolist() == pytest.approx(values[order].tolist(), abs=1e-6)
    assert same_up_to_sign(found.vectors, vectors.T[order])


@pytest.mark.parametrize("method", METHODS)
def test_known_spectra_largest_magnitude_first(method):
    """−7 is before 5: a direction downhill counts too, with its sign."""
    H, axes = known(5, 1, -7, 0.5, 2, 0, 0, -0.1)
    found = of_matrix(H, count=3, method=method)
    assert found.values.tolist() == pytest.approx([-7, 5, 2], abs=1e-6)
    assert same_up_to_sign(found.vectors, axes[[2, 0, 4]])
    assert (found.residuals <= 7e-10).all() and found.converged


@pytest.mark.parametrize("gap", [1e-1, 1e-3, 1e-5])
def test_near_degenerate_pairs_are_told_apart(gap):
    """5 and 5 − gap: both values, and each vector to its own axis."""
    H, axes = known(5, 5 - gap, *torch.linspace(0, 4, 40).tolist())
    found = of_matrix(H, tolerance=1e-12)
    assert found.values.tolist() == pytest.approx([5, 5 - gap], abs=1e-8)
    assert same_up_to_sign(found.vectors, axes[:2], atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("times", [2, 3])
def test_a_repeated_eigenvalue_is_found_as_often_as_it_is_there(method, times):
    """A single start vector would see it once. The vectors span the right plane; in it any axes will do."""
    H, axes = known(*[5] * times, *torch.linspace(0, 3, 20).tolist())
    found = of_matrix(H, count=times, method=method)
    assert found.values.tolist() == pytest.approx([5] * times, abs=1e-8)
    inside = found.vectors @ axes[:times].T
    assert torch.allclose(inside @ inside.T, torch.eye(times, dtype=torch.float64), atol=1e-6)


def test_lanczos_needs_fewer_products():
    """40 eigenvalues close to each other below the top: power iteration creeps, Krylov spaces do not."""
    H, _ = known(5, *torch.linspace(0, 4.9, 40).tolist())
    few, many = (of_matrix(H, 1, 1e-6, method=method).products for method in METHODS)
    assert few <= 41 < many


def test_reorthogonalisation_keeps_ghosts_away():
    """Eigenvalues over twelve orders of magnitude, every one wanted: each comes once, and the basis is orthonormal."""
    spectrum = [10.0**-i for i in range(12)]
    H, _ = known(*spectrum)
    found = of_matrix(H, count=12, tolerance=1e-14)
    assert found.values.tolist() == pytest.approx(spectrum, abs=1e-13)
    assert torch.allclose(found.vectors @ found.vectors.T, torch.eye(12, dtype=torch.float64), atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_the_start_does_not_matter_and_the_same_seed_repeats(method):
    """Not even the sign: the largest number of a vector is positive."""
    H, _ = known(5, 3, 1, 0.5, 0.2, 0.1)
    a, again, other = (of_matrix(H, method=method, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(a.vectors, again.vectors) and not torch.equal(a.vectors, other.vectors)
    assert torch.allclose(a.vectors, other.vectors, atol=1e-6)
    assert (a.vectors.gather(1, a.vectors.abs().argmax(1, keepdim=True)) > 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_too_few_products_say_so(method):
    H, _ = known(5, *torch.linspace(0, 4.99, 60).tolist())
    found = top(lambda v: H @ v, H[0], 2, method, tolerance=1e-10, most=6)
    assert not found.converged and found.products == 6 and found.residuals.max() > 1e-3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("most", [6, 20])
def test_residuals_are_true(method, most):
    """‖H v − λ v‖ as reported, before convergence too."""
    H, _ = known(5, *torch.linspace(0, 4.99, 60).tolist())
    found = top(lambda v: H @ v, H[0], 2, method, tolerance=1e-10, most=most)
    true = (found.vectors @ H - found.values[:, None] * found.vectors).norm(dim=1)
    assert found.residuals.tolist() == pytest.approx(true.tolist(), rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_coarse_tolerance_is_kept_by_every_pair(method):
    """What the first pair misses is no reason for the next never to arrive."""
    H, _ = known(5, 4, 3, *torch.linspace(0, 2, 30).tolist())
    found = top(lambda v: H @ v, H[0], 3, method, tolerance=3e-2, most=3000)
    true = (found.vectors @ H - found.values[:, None] * found.vectors).norm(dim=1)
    assert found.converged and found.products < 300 and (true <= 3e-2 * 5).all()


@pytest.mark.parametrize("method", METHODS)
def test_nothing_and_everything(method):
    """A linear loss has no curvature; a Hessian that is the identity has only eigenvectors."""
    w = torch.ones(4, dtype=torch.float64)
    flat = top(product_of(lambda w: (3 * w).sum(), w), w, 2, method)
    assert flat.values.tolist() == [0, 0] and flat.converged
    bowl = top(product_of(lambda w: 0.5 * (w * w).sum(), w), w, 4, method)
    assert bowl.values.tolist() == pytest.approx([1] * 4) and bowl.converged


def test_single_precision_models_are_multiplied_in_their_own_numbers():
    sample, w = tiny()
    single, w32 = tiny(dtype=torch.float32)
    exact = top(product_of(sample, w), w, 2, tolerance=1e-8)
    found = top(product_of(single, w32), w32, 2, tolerance=1e-4)
    assert found.values.dtype == found.vectors.dtype == torch.float64
    assert found.values.tolist() == pytest.approx(exact.values.tolist(), rel=1e-4) and found.converged


def test_progress_is_told():
    H, seen = known(5, 3, 1, 0.5)[0], []
    found = top(
        lambda v: H @ v, H[0], 1, tolerance=1e-8, watch=lambda products, residual: seen.append((products, residual))
    )
    assert [n for n, _ in seen] == list(range(1, found.products + 1)) and seen[-1][1] <= 1e-8 < seen[0][1]


@pytest.mark.parametrize("bad, said", [
    (dict(method="qr"), "method = 'qr': must be one of lanczos, power"),
    (dict(count=0), "count = 0"),
    (dict(count=5), "count = 5, most = 200: wanted is 1 ≤ count ≤ 4"),
    (dict(count=2, most=1), "most ≥ count"),
])  # fmt: skip
def test_bad_requests_are_refused(bad, said):
    with pytest.raises(ValueError, match=said):
        top(lambda v: v, torch.zeros(4), **bad)


def test_orthonormal_rows():
    """Also where a row lies so nearly inside the others that once is not enough: rounding grows by 1e8."""
    given = noise(3, 50)
    given[2] = given[0] + given[1] + 1e-8 * given[2]
    rows = orthonormal(given)
    assert torch.allclose(rows @ rows.T, torch.eye(3, dtype=torch.float64), atol=1e-14)


def test_of_runs_are_the_sharpest_directions_of_the_last_models(tmp_path, monkeypatch):
    """H v = λ v on the same 100 test images, checked by one more product; Lanczos and power agree."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    results = small_results()
    how = dict(count=1, samples=100, device="cpu", progress=False)
    found = hessian.of_runs(results, tolerance=1e-4, **how)
    for run in results.runs:
        sample, e = sample_of(run, 100, device="cpu"), found[run.key]
        assert isinstance(e, Eigen) and e.converged and e.vectors.shape == (1, len(run.w))
        miss = product_of(sample, run.w)(e.vectors[0]) - e.values[0] * e.vectors[0]
        assert miss.norm() <= 1.1e-4 * e.values[0].abs() and e.vectors[0].norm().item() == pytest.approx(1)
    other = hessian.of_runs(results, tolerance=1e-3, method="power", most=400, **how)
    table = hessian.table(results, found)
    assert table["value"].tolist() == pytest.approx(hessian.table(results, other)["value"].tolist(), rel=1e-3)
    assert table["method"].tolist() == ["FedAvg", "FedSAM"] and set(table["round"]) == {1}
    assert set(table["order"]) == {1} and table["converged"].all() and (table["value"] > 0).all()
