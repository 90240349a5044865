"""Long vectors in two dimensions: what two axes can keep is kept, and the spread is the covariance's trace."""

import numpy as np
import pytest
import torch

from fednb.metrics.embed import principal, spread


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
