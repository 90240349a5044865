"""Long vectors in two dimensions: what two axes can keep is kept, and the spread is the covariance's trace."""

from math import isnan
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fednb.core.vectors import Layout
from fednb.metrics.embed import (
    TooFewPoints,
    chosen_layers,
    clouds,
    points,
    principal,
    relative_spread,
    shared,
    spread,
    spreads,
    tsne,
)
from fednb.metrics.tidy import Cloud


def vectors(clients=6, P=40, rank=2, seed=0):
    """Rows inside a plane (or a space of `rank` dimensions) through the origin."""
    rng = torch.Generator().manual_seed(seed)
    left, right = torch.randn(clients, rank, generator=rng), torch.randn(rank, P, generator=rng)
    return left.double() @ right.double()


def test_spread_of_two_points():
    """(0, 0) and (6, 8): both are 5 from their middle (3, 4), so 25."""
    assert spread(torch.tensor([[0.0, 0.0], [6.0, 8.0]])) == 25.0


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_spread_is_the_trace_of_the_covariance(rank):
    """Also far from the origin, where all clients have moved alike."""
    x = vectors(rank=rank) + 100.0
    assert spread(x) == pytest.approx(np.trace(np.cov(x.numpy().T, bias=True)))


@pytest.mark.parametrize("rank", [1, 2])
def test_two_axes_keep_all_angles_and_lengths_of_a_plane(rank):
    """Rank at most 2: ⟨point_i, point_j⟩ = ⟨x_i, x_j⟩, so lengths, angles and distances to the origin are true."""
    x, points = vectors(rank=rank), principal(vectors(rank=rank))
    assert points.shape == (6, 2)
    np.testing.assert_allclose(points @ points.T, (x @ x.T).numpy(), atol=1e-9)


def test_more_dimensions_lose_length_but_never_gain():
    """A projection: no point is farther from the origin than its vector, and some are nearer."""
    x = vectors(rank=5)
    lengths, kept = x.norm(dim=1).numpy(), np.linalg.norm(principal(x), axis=1)
    assert (kept <= lengths + 1e-9).all() and (kept < 0.99 * lengths).any()


def test_axes_are_ordered_and_uncorrelated():
    """Axes are orthogonal; sums of squares along them are those of x's singular values, largest first."""
    x = vectors(rank=5)
    points = principal(x, axes=3)
    squares = torch.linalg.svdvals(x).square().numpy()[:3]
    np.testing.assert_allclose(points.T @ points, np.diag(squares), atol=1e-9)
    assert squares[0] > squares[1] > squares[2]


def test_the_origin_stays():
    """Moves that all go the same way stay on one side: (3, 4) and (6, 8) are 5 and 10 out, not ±2.5 about a centre."""
    points = principal(torch.tensor([[3.0, 4.0], [6.0, 8.0]]))
    np.testing.assert_allclose(points, [[5, 0], [10, 0]], atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_orientation_does_not_hang_on_the_solver(seed):
    """An eigenvector's sign is arbitrary; here points add up to the right and up, in whatever order clients come."""
    x = vectors(rank=5, seed=seed)
    points = principal(x)
    assert (points.sum(0) >= 0).all()
    np.testing.assert_allclose(principal(x.flip(0)), points[::-1], atol=1e-9)


def test_relative_spread_is_a_share_of_the_mean_square():
    """(0, 0) and (6, 8): 25 of (0 + 100) / 2. Scaling changes nothing; all alike is 0, about a mean of zero 1."""
    x = torch.tensor([[0.0, 0.0], [6.0, 8.0]])
    assert relative_spread(x) == relative_spread(1e-4 * x.double()) == pytest.approx(0.5)
    assert relative_spread(torch.ones(3, 2)) == 0 and relative_spread(torch.tensor([[1.0], [-1.0]])) == 1
    assert isnan(relative_spread(torch.zeros(3, 2)))


def test_shared_axes_are_the_pca_of_all_together():
    """As scikit-learn has it, up to the sign of an axis; each group gets its own rows back."""
    from sklearn.decomposition import PCA

    groups = {"FedSAM": vectors(clients=6, rank=5) + 3, "FedFFT": vectors(clients=4, rank=5, seed=1)}
    found = shared(groups)
    wanted = PCA(2, svd_solver="full").fit_transform(torch.cat(list(groups.values())).numpy())
    together = np.concatenate([found["FedSAM"], found["FedFFT"]])
    assert found["FedSAM"].shape == (6, 2) and found["FedFFT"].shape == (4, 2)
    np.testing.assert_allclose(np.abs(together), np.abs(wanted), atol=1e-9)
    assert (together[np.abs(together).argmax(0), [0, 1]] > 0).all()


def test_shared_axes_keep_distances_between_groups():
    """In a plane all of them, also from one group to the other: nothing is centred group by group."""
    both = vectors(clients=10)
    found = shared({"a": both[:6], "b": both[6:] + both[:1]})
    wanted = (both[0] - both[6] - both[0]).norm().item()
    assert np.linalg.norm(found["a"][0] - found["b"][0]) == pytest.approx(wanted)


def blobs(each=12, far=50.0):
    """Three well-separated clusters in 40 dimensions."""
    rng = torch.Generator().manual_seed(0)
    centres = far * torch.eye(40)[:3]
    return torch.cat([c + torch.randn(each, 40, generator=rng) for c in centres])


def test_tsne_keeps_neighbours():
    """The nearest neighbour of every point is one of its own cluster."""
    placed = tsne(blobs())
    away = np.linalg.norm(placed[:, None] - placed[None], axis=-1) + 1e9 * np.eye(36)
    assert placed.shape == (36, 2) and (away.argmin(1) // 12 == np.arange(36) // 12).all()


def test_tsne_is_quiet_and_repeats_itself(capfd):
    """Same vectors and seed, same picture; long vectors are no different from the few dimensions they span."""
    first, again = tsne(blobs()), tsne(blobs())
    assert np.array_equal(first, again)
    turn = torch.linalg.qr(torch.randn(40, 40, generator=torch.Generator().manual_seed(1))).Q
    assert np.allclose(np.ptp(tsne(blobs() @ turn), 0), np.ptp(first, 0), rtol=0.5)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("n", [3, 4, 10])
def test_tsne_of_few_points(n):
    """The perplexity gives way: 10 clients cannot have 30 neighbours."""
    placed = tsne(vectors(clients=n, rank=5))
    assert placed.shape == (n, 2) and np.isfinite(placed).all() and np.ptp(placed) > 0


def test_tsne_of_two_points_is_refused():
    with pytest.raises(TooFewPoints, match="t-SNE of 2 points: at least three"):
        tsne(vectors(clients=2))


def cloud(method, x, round=0, **more):
    about = {"alpha": 0.1, "method": method, "seed": 0, "round": round, "key": method}
    return Cloud(about, [{"client": i, **{k: v[i] for k, v in more.items()}} for i in range(len(x))], x)


def test_points_of_one_round_share_their_axes():
    """Rank two: distances between methods are true. Another round has axes of its own."""
    x = vectors(clients=6)
    table = points([cloud("FedSAM", x[:3]), cloud("FedFFT", x[3:]), cloud("FedSAM", 9 * x[:3], round=1)])
    assert list(table.columns) == ["alpha", "method", "seed", "round", "key", "client", "x", "y"]
    first = table[table["round"] == 0]
    assert first["method"].tolist() == ["FedSAM"] * 3 + ["FedFFT"] * 3 and first["client"].tolist() == [0, 1, 2] * 2
    place = first[["x", "y"]].to_numpy()
    assert np.linalg.norm(place[0] - place[4]) == pytest.approx((x[0] - x[4]).norm().item())
    np.testing.assert_allclose(table[table["round"] == 1][["x", "y"]].sum(), 0, atol=1e-9)


def test_points_by_tsne():
    table = points([cloud("a", blobs()[:18]), cloud("b", blobs()[18:])], how="tsne")
    np.testing.assert_array_equal(table[["x", "y"]].to_numpy(), tsne(blobs()))
    with pytest.raises(ValueError, match="how = 'umap': must be pca or tsne"):
        points([], how="umap")


def test_spreads_are_within_classes_where_there_are_classes():
    """Classes 0 and 1 lie 100 apart, clients 2 apart within them: 1 on average, not 2501."""
    x = torch.tensor([[0.0], [2.0], [100.0], [102.0]])
    table = spreads([cloud("m", x, **{"class": [0, 0, 1, 1]}), cloud("n", x)])
    seen = table.pivot(index="method", columns="measure", values="value")["spread"]
    assert seen["m"] == pytest.approx(1) and seen["n"] == pytest.approx(2501)


def test_clouds_are_the_chosen_layers_of_what_was_kept():
    both, x = Layout(("conv1.weight", "fc.weight"), ((2,), (3,))), torch.arange(10.0).view(2, 5)
    assert chosen_layers(x, both, "fc.*").tolist() == [[2, 3, 4], [7, 8, 9]]
    kept = SimpleNamespace(round=4, clients=(3, 8), layout=both, vectors={"perturbation": x})
    run = SimpleNamespace(seed=0, key="k", all_probed=lambda probe: [kept])
    cell = SimpleNamespace(tags={"alpha": 0.1}, label="FedSAM")

    class Made(list):
        probe = None

    (found,) = clouds(Made([(cell, run)]), "perturbation", "conv1.weight")
    assert found.about == {"alpha": 0.1, "method": "FedSAM", "seed": 0, "round": 4, "key": "k"}
    assert found.rows == [{"client": 3}, {"client": 8}] and found.vectors.tolist() == [[0, 1], [5, 6]]
