"""Who takes part, who holds what, and how much each one counts."""

import numpy as np
import pytest
import torch

from fednb.data.partition import PartitionFailed
from fednb.data.sources import Dataset
from fednb.engines.problem import Problem, clients_of, participants
from fednb.engines.setting import Setting

COIN = Setting(clients=100, participation=0.1, sampling="coin")
RELEASED = COIN.but(sampling="coin-released")
FIXED = COIN.but(sampling="fixed")


def cohorts(setting, seed, rounds):
    return [participants(setting, seed, t) for t in range(rounds)]


def test_the_released_coin_meets_the_counts_of_fl_simulator():
    """Seed 20, 800 rounds of 100 clients at 0.1, as counted in FL-Simulator: mean 10.02, sd 3.06, from 2 to 22.

    A binomial count of 100 tosses at 0.1 has mean 10 and sd 3.
    """
    counts = [len(ids) for ids in cohorts(RELEASED, 20, 800)]
    assert (round(np.mean(counts), 2), round(np.std(counts), 2), min(counts), max(counts)) == (10.02, 3.06, 2, 22)


def test_the_released_coin_follows_numpys_old_generator():
    """MT19937 seeded with 0 begins .549 .715 .603 .545 .424 .646 .438: at 0.5 clients 4 and 6 of seven come.

    Those are the numbers that numpy's documentation prints for np.random.seed(0); np.random.rand(7).
    """
    assert participants(Setting(clients=7, participation=0.5, sampling="coin-released"), 0, 0) == [4, 6]


def test_released_seeds_s_and_s_plus_one_are_one_sequence_shifted_by_a_round():
    assert cohorts(RELEASED, 4, 60)[1:] == cohorts(RELEASED, 5, 59)


def test_seeds_of_the_coin_are_independent():
    """No cohort of one seed comes back in another, at whatever round; each is a function of seed and round."""
    many = [tuple(ids) for seed in range(5) for ids in cohorts(COIN, seed, 60)]
    assert len(set(many)) == len(many)
    assert cohorts(COIN, 4, 60) == [participants(COIN, 4, t) for t in range(60)]


def test_the_coin_is_fair():
    """2000 rounds of 100 tosses at 0.1: counts have mean 10, sd 3; each client comes 200 times, give or take 5 sd."""
    came = cohorts(COIN, 0, 2000)
    counts = [len(ids) for ids in came]
    assert abs(np.mean(counts) - 10) < 5 * 3 / 2000**0.5 and abs(np.std(counts) - 3) < 0.25
    assert abs(np.bincount(np.concatenate(came), minlength=100) - 200).max() < 67


@pytest.mark.parametrize("coin", [COIN, RELEASED], ids=["coin", "released"])
def test_a_round_is_never_empty(coin):
    """At 0.001 a hundred clients all stay away in nine rounds of ten; they are tossed for again until someone comes."""
    rare = cohorts(coin.but(participation=0.001), 0, 100)
    assert all(rare) and np.mean([len(ids) for ids in rare]) < 1.5


def test_everyone_comes_at_one():
    assert participants(COIN.but(participation=1), 3, 3) == participants(FIXED.but(participation=1), 3, 3)
    assert participants(COIN.but(participation=1), 3, 3) == list(range(100))
    assert participants(RELEASED.but(participation=1), 3, 3) == list(range(100))


@pytest.mark.parametrize("clients, share, count", [(100, 0.1, 10), (10, 0.5, 5), (7, 0.5, 3), (10, 0.01, 1), (1, 1, 1)])
def test_a_fixed_count_without_replacement(clients, share, count):
    """⌊share · N⌋ different clients, and at least one."""
    setting = Setting(clients=clients, participation=share)
    for ids in cohorts(setting, 0, 50):
        assert len(ids) == len(set(ids)) == count
        assert ids == sorted(ids) and set(ids) <= set(range(clients))


def test_fixed_sampling_is_a_function_of_seed_and_round():
    """Asked twice, and backwards, the same; in 50 rounds of two seeds no two cohorts of 10 in 100 are the same."""
    forwards = cohorts(FIXED, 0, 50)
    assert [participants(FIXED, 0, t) for t in reversed(range(50))] == forwards[::-1]
    assert len(set(map(tuple, forwards + cohorts(FIXED, 1, 50)))) == 100


def test_fixed_sampling_favours_no_one():
    """2000 rounds at 0.1: each of 100 clients comes 200 times, give or take five standard deviations of 13.4."""
    times = np.bincount(np.concatenate(cohorts(FIXED, 0, 2000)), minlength=100)
    assert times.sum() == 20000
    assert abs(times - 200).max() < 67


def test_methods_and_local_training_meet_the_same_clients():
    """Only clients, participation, sampling, seed and round decide who comes."""
    assert participants(FIXED.but(lr=0.5, rounds=9, batch=3), 0, 5) == participants(FIXED, 0, 5)


def made(n=200, classes=4) -> Dataset:
    y = torch.arange(n) % classes
    return Dataset("made", torch.zeros(n, 1, 1, 1), y, torch.zeros(1), y[:1], classes, 1.0, (0.0,), (1.0,))


def test_a_smaller_training_set_is_a_subset_of_that_size_the_same_for_every_partition():
    """50 of 200 samples, each at one client; how they are dealt changes nothing in which they are."""
    few = Setting(clients=5, samples=50, partition="iid")
    held = [np.concatenate(clients_of(few.but(partition=p), 0, made())) for p in ("iid", "dirichlet(5.0, 0)")]
    assert len(set(held[0])) == 50 == len(held[0])
    assert sorted(held[0]) == sorted(held[1]) != list(range(50))
    assert sorted(np.concatenate(clients_of(few, 1, made()))) != sorted(held[0])


def test_classes_are_those_of_the_subset():
    """One class each (pathological, 1 of 4): the labels behind the returned indices, not behind positions 0..49."""
    data = made()
    for part in clients_of(Setting(clients=5, samples=50, partition="pathological(1)"), 0, data):
        assert len(set(data.y[part].tolist())) == 1


@pytest.mark.parametrize("samples", [None, 200, 10_000])
def test_all_samples_are_used_where_no_fewer_are_asked_for(samples):
    parts = clients_of(Setting(clients=5, samples=samples, partition="iid"), 0, made())
    assert sorted(np.concatenate(parts)) == list(range(200))


def test_an_empty_client_is_refused_with_the_way_out():
    """Four classes at alpha 0.001 go whole to at most four of ten clients; six have nothing."""
    empty = Setting(clients=10, partition="dirichlet(alpha=0.001, minimum=0)")
    with pytest.raises(PartitionFailed, match=r"dirichlet\(alpha=0.001, minimum=0\) leaves client \d .*minimum to 1"):
        clients_of(empty, 0, made())


def shares(by_size, ids):
    sizes = torch.tensor([1, 3, 4, 2])
    return Problem(None, None, layout=None, sizes=sizes, steps=sizes, training=None, by_size=by_size).shares(ids)


def test_shares_by_size_and_alike():
    """Sizes 1 and 4 of 1, 3, 4, 2: one fifth and four fifths, or a half each; a number per client, `[C, 1]`."""
    assert shares(True, [0, 2]).view(-1).tolist() == pytest.approx([0.2, 0.8])
    assert shares(True, [2, 0]).view(-1).tolist() == pytest.approx([0.8, 0.2])
    assert shares(False, [0, 2]).view(-1).tolist() == [0.5, 0.5]
    assert shares(True, [3]).tolist() == shares(False, [3]).tolist() == [[1.0]]
