"""Which sample a client sees when, and how it is changed: functions of (seed, round, client)."""

import numpy as np
import pytest
import torch

from fednb.data.plan import ExplicitPlan, augment, batches, changes, step_count
from fednb.data.resident import Resident
from fednb.data.sources import Dataset

RAMP = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).view(1, 1, 2, 3)


def how(flip, top, left):
    return torch.tensor([[flip, top, left]])


@pytest.mark.parametrize("n, epochs, size", [(7, 3, 3), (6, 2, 3), (2, 2, 5), (1, 1, 1), (50, 1, 8)])
def test_an_epoch_is_a_permutation(n, epochs, size):
    """⌈n / size⌉ batches an epoch hold 0..n−1 once each; what is left of the last batch is −1, nothing else is."""
    per_epoch = -(-n // size)
    drawn = batches(0, 1, 2, n, epochs, size)
    assert drawn.shape == (epochs * per_epoch, size) and len(drawn) == step_count(n, epochs, size)
    for epoch in drawn.view(epochs, -1).tolist():
        assert sorted(epoch[:n]) == list(range(n))
        assert epoch[n:] == [-1] * (per_epoch * size - n)


def test_epochs_are_shuffled_apart():
    """Two orders of 50 samples agree with chance 1/50!; so do the sorted order and a drawn one."""
    first, second = batches(0, 0, 0, 50, 2, 50)
    assert not torch.equal(first, second) and not torch.equal(first, torch.arange(50))


@pytest.mark.parametrize("draw", [lambda *at: batches(*at, 50, 1, 10), lambda *at: changes(*at, 5, 10, 4)])
def test_draws_are_functions_of_seed_round_and_client(draw):
    """The same three numbers give the same draw, in any order of asking; another one anywhere gives another draw."""
    at = [(1, 2, 3), (0, 2, 3), (1, 0, 3), (1, 2, 0), (2, 1, 3), (1, 3, 2)]
    drawn = [draw(*a) for a in at]
    for a, x in reversed(list(zip(at, drawn, strict=True))):
        assert torch.equal(draw(*a), x)
    assert len({tuple(x.flatten().tolist()) for x in drawn}) == len(at)


def test_half_are_flipped_and_half_are_cropped_apart():
    """10,000 draws, pad 4: ½ flip; a drawn corner is the middle once in 81, so ½ · 80/81 move; both: the product.

    Four standard deviations of a share of 10,000 are at most 0.02.
    """
    flip, *corner = changes(0, 0, 0, steps=200, size=50, pad=4).view(-1, 3).T
    moved = torch.stack(corner).ne(4).any(0).double()
    assert set(flip.tolist()) == {0, 1}
    assert [sorted(set(c.tolist())) for c in corner] == [list(range(9))] * 2
    assert flip.double().mean().item() == pytest.approx(0.5, abs=0.02)
    assert moved.mean().item() == pytest.approx(0.5 * 80 / 81, abs=0.02)
    assert (flip * moved).mean().item() == pytest.approx(0.25 * 80 / 81, abs=0.02)


def test_the_middle_corner_is_the_image_itself():
    assert torch.equal(augment(RAMP, how(0, 2, 2), pad=2), RAMP)


def test_a_flip_is_the_mirror():
    """[1 2 3] becomes [3 2 1]; rows stay where they are."""
    assert augment(RAMP, how(1, 1, 1), pad=1).flatten().tolist() == [3, 2, 1, 6, 5, 4]


@pytest.mark.parametrize(
    "corner, seen",
    [
        ((0, 0), [0, 0, 0, 0, 1, 2]),
        ((2, 2), [5, 6, 0, 0, 0, 0]),
        ((0, 1), [0, 0, 0, 1, 2, 3]),
        ((1, 2), [2, 3, 0, 5, 6, 0]),
    ],
)
def test_a_shift_brings_zeros_in(corner, seen):
    """[1 2 3; 4 5 6] with a border of one zero: the corner (top, left) says which 2x3 window is cut out."""
    assert augment(RAMP, how(0, *corner), pad=1).flatten().tolist() == seen


def test_every_image_is_changed_by_its_own_line_in_all_channels():
    """Two images of two channels: the first is mirrored, then moved one to the right; the second stays."""
    x = torch.cat([RAMP, 10 * RAMP], dim=1).repeat(2, 1, 1, 1)
    out = augment(x, torch.tensor([[1, 1, 0], [0, 1, 1]]), pad=1)
    assert out[0, 0].tolist() == [[0, 3, 2], [0, 6, 5]] and torch.equal(out[0, 1], 10 * out[0, 0])
    assert torch.equal(out[1], x[1])


def test_every_image_is_cropped_where_that_is_asked_for():
    """Corners are drawn for all and used by half; the others get theirs, and nothing else changes."""
    half, every = (changes(3, 1, 0, 20, 50, pad=4, every=e) for e in (False, True))
    left = (half[..., 1:] == 4).all(-1)
    assert 0.4 < left.double().mean() < 0.6
    assert torch.equal(half[~left], every[~left]) and torch.equal(half[..., 0], every[..., 0])
    assert (every[..., 1:] == 4).all(-1).double().mean() < 0.05  # one corner of 81 is the image itself


def made(pad=0, flip=False) -> Dataset:
    """Ten images of two channels and one line: image i is i + (10, 20, 30), its second channel twice that, label i."""
    line = torch.tensor([10, 20, 30]) + torch.arange(10)[:, None]
    x = torch.stack([line, 2 * line], dim=1)[:, :, None].to(torch.uint8)
    y = torch.arange(10)
    return Dataset("made", x, y, x[:2], y[:2], 10, 50.0, (0.51, 0.25), (0.2, 0.4), pad, flip)


def home(data, parts, augmented=True):
    return Resident.of(data, [np.array(p) for p in parts], torch.float64, augmented, "cpu")


def test_unequal_clients_are_padded_to_the_longest():
    """Batch 2, one epoch: 5 samples take 3 steps (2, 2, 1 valid), 1 sample takes 1 and stands still for two."""
    plan = home(made(), [[0, 1, 2, 3, 4], [9]]).plan(0, 0, [0, 1], epochs=1, size=2)
    valid = torch.stack([plan.at(step)[2] for step in range(3)])
    assert valid.sum(-1).tolist() == [[2, 1], [2, 0], [1, 0]]
    assert plan.index.shape == (2, 3, 2) and plan.how is None


def test_batches_have_the_labels_and_values_of_the_clients_own_samples():
    """Labels are the sample's number, so position (c, step, b) must show part_c[batches(...)[step, b]].

    Values: (x / 50 − mean) / std per channel, with x = label + (10, 20, 30) and twice that.
    """
    parts = [[8, 1, 5, 0, 3], [9, 2, 7]]
    plan = home(made(), parts).plan(seed=4, t=6, ids=[1, 0], epochs=2, size=2)
    for c, i in enumerate([1, 0]):
        local = batches(4, 6, i, len(parts[i]), 2, 2)
        for step in range(len(local)):
            x, y, valid = (part[c] for part in plan.at(step))
            assert valid.tolist() == (local[step] >= 0).tolist()
            for b in np.flatnonzero(valid):
                label = parts[i][local[step, b]]
                raw = label + np.array([10.0, 20.0, 30.0])
                by_hand = [[(raw / 50 - 0.51) / 0.2], [(2 * raw / 50 - 0.25) / 0.4]]
                assert y[b] == label
                np.testing.assert_allclose(x[b].numpy(), by_hand, rtol=1e-14)


@pytest.mark.parametrize("augmented, data", [(True, made()), (False, made(pad=1, flip=True))])
def test_augmentation_is_off_without_a_recipe_or_by_choice(augmented, data):
    assert home(data, [range(10)], augmented).plan(0, 0, [0], 1, 5).how is None


def seen(data, rounds=30):
    """Every first channel that ten samples show in some rounds, beside the sample's own."""
    at = home(data, [range(10)])
    shown = [at.plan(0, t, [0], 1, 10).at(0)[:2] for t in range(rounds)]
    return [(x[0, b, 0, 0].tolist(), at.inputs(data.x[y[0, b]])[0, 0].tolist()) for x, y in shown for b in range(10)]


def test_with_both_an_image_is_a_window_of_itself_or_of_its_mirror():
    """[a b c] in a border of zeros (after normalisation) has three windows, its mirror three, and the border one."""
    met = set()
    for x, (a, b, c) in seen(made(pad=1, flip=True)):
        windows = [[0, a, b], [a, b, c], [b, c, 0], [0, c, b], [c, b, a], [b, a, 0], [0, 0, 0]]
        met.add(windows.index(x))
    assert met == set(range(7))


def test_a_data_set_that_is_cropped_only_is_never_mirrored():
    """pad = 1, flip = False: the values rise from left to right, and still do in every window, zeros apart."""
    for x, _ in seen(made(pad=1, flip=False)):
        inside = [v for v in x if v != 0]
        assert inside == sorted(inside)


def test_a_data_set_that_is_mirrored_only_is_never_moved():
    """pad = 0, flip = True: the image or its mirror, and both are met."""
    pairs = seen(made(flip=True))
    assert all(x in (own, own[::-1]) for x, own in pairs)
    assert {x == own for x, own in pairs} == {True, False}


def test_explicit_batches_are_given_back_as_they_are():
    x, y = torch.randn(2, 3, 4, 5), torch.arange(24).view(2, 3, 4)
    at = ExplicitPlan(x, y).at(1)
    assert torch.equal(at[0], x[:, 1]) and torch.equal(at[1], y[:, 1]) and at[2].all() and at[2].shape == (2, 4)
