"""Partitions use the samples they promise to use, in the sizes they promise, as a function of the seed."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednb.data import partition
from fednb.data.partition import (
    NAMES,
    Dirichlet,
    DirichletClient,
    DirichletEqual,
    Iid,
    PartitionFailed,
    Pathological,
    UnknownPartition,
    counts,
    parse,
)

LABELS = np.arange(2000) % 10
EXACT = [Iid(), Dirichlet(0.5, minimum=0), Dirichlet(0.1, minimum=2)]
EQUAL = [DirichletClient(0.1), DirichletEqual(0.1), DirichletEqual(0.01), Pathological(2)]
alphas = st.floats(1e-3, 1e4)


@st.composite
def samples(draw):
    """Labels with gaps and uneven classes, and a number of clients that fits."""
    labels = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=120)))
    return labels, draw(st.integers(1, len(labels)))


def same(left, right):
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@settings(deadline=None, max_examples=60)
@given(samples(), st.integers(0, 2**32), alphas)
def test_exact_partitions_use_each_sample_once(case, seed, alpha):
    labels, clients = case
    for kind in (Iid(), Dirichlet(alpha, minimum=0)):
        parts = kind.split(labels, clients, seed)
        assert len(parts) == clients
        assert sorted(np.concatenate(parts)) == list(range(len(labels)))


@settings(deadline=None, max_examples=60)
@given(samples(), st.integers(0, 2**32), alphas)
def test_equal_partitions_have_equal_sizes(case, seed, alpha):
    labels, clients = case
    for kind in (DirichletClient(alpha), DirichletEqual(alpha), Pathological(1)):
        parts = kind.split(labels, clients, seed)
        assert {len(part) for part in parts} == {len(labels) // clients}
        assert all(part.dtype == np.int64 and 0 <= part.min() <= part.max() < len(labels) for part in parts)


@settings(deadline=None, max_examples=60)
@given(samples(), st.integers(0, 2**32), alphas)
def test_equal_without_refill_repeats_nothing(case, seed, alpha):
    labels, clients = case
    dealt = np.concatenate(DirichletEqual(alpha).split(labels, clients, seed))
    assert len(set(dealt.tolist())) == len(dealt) == len(labels) // clients * clients


@pytest.mark.parametrize("kind", EXACT + EQUAL, ids=str)
def test_split_is_a_function_of_the_seed(kind):
    before = np.random.get_state()[1].copy()
    first = kind.split(LABELS, 20, seed=7)
    assert same(first, kind.split(LABELS, 20, seed=7))
    assert not same(first, kind.split(LABELS, 20, seed=8))
    assert all(np.array_equal(part, np.sort(part)) for part in first)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_iid_sizes_differ_by_one_at_most():
    sizes = [len(part) for part in Iid().split(np.zeros(103, int), 10, 0)]
    assert sorted(sizes) == [10] * 7 + [11] * 3


def test_dirichlet_keeps_its_minimum():
    parts = Dirichlet(0.3, minimum=10).split(LABELS, 20, 0)
    assert min(map(len, parts)) >= 10
    assert len(set(map(len, parts))) > 5


@pytest.mark.parametrize("kind", [Dirichlet, DirichletClient, DirichletEqual])
def test_large_alpha_gives_the_global_shares(kind):
    """alpha → ∞: every client sees the classes as the whole data set does, up to sampling noise."""
    labels = np.repeat(np.arange(4), [4000, 3000, 2000, 1000])
    table = counts(labels, kind(1e6).split(labels, 5, 0), 4)
    shares = table / table.sum(1, keepdims=True)
    expected = [0.4, 0.3, 0.2, 0.1] if kind is Dirichlet else [0.25] * 4
    if kind is DirichletEqual:
        shares, expected = shares.mean(0, keepdims=True), [0.4, 0.3, 0.2, 0.1]
    np.testing.assert_allclose(shares, np.tile(expected, (len(shares), 1)), atol=0.03)


def test_small_alpha_leaves_few_classes():
    """alpha 0.1 over 10 classes: half of the clients hold 90% of their data in at most four classes."""
    for kind in (DirichletClient(0.1), DirichletEqual(0.1)):
        table = np.sort(counts(LABELS, kind.split(LABELS, 20, 1), 10), axis=1)[:, ::-1]
        needed = (table.cumsum(1) < 0.9 * table.sum(1, keepdims=True)).sum(1) + 1
        assert np.median(needed) <= 4


@pytest.mark.parametrize("alpha, unique, held", [(0.1, 0.924, 5.0), (0.6, 0.975, 9.3)])
def test_refill_has_fl_simulators_statistics(alpha, unique, held):
    """specs 3.1, one seed of 50,000 labels and 100 clients; ours is the mean of five seeds, which vary by 0.02."""
    labels = np.arange(50_000) % 10
    started, used, classes, most = time.perf_counter(), [], [], 0
    for seed in range(5):
        parts = DirichletClient(alpha).split(labels, 100, seed)
        times = np.bincount(np.concatenate(parts), minlength=len(labels))
        used.append((times > 0).mean())
        classes.append((counts(labels, parts, 10) > 0).sum(1).mean())
        most = max(most, times.max())
    assert np.mean(used) == pytest.approx(unique, abs=0.03)
    assert np.mean(classes) == pytest.approx(held, abs=0.3)
    assert most in (2, 3)
    assert time.perf_counter() - started < 10


def test_refill_within_a_client():
    """One client, one of two classes: ten draws from five samples take each of the five twice."""
    (part,) = Pathological(1).split(np.array([0, 1] * 5), 1, 0)
    values, times = np.unique(part, return_counts=True)
    assert (len(part), len(values), set(times)) == (10, 5, {2})


def test_prior_with_nothing_left_takes_what_remains():
    """alpha tiny: each prior is one class, and 30 samples of class 1 go to whoever has no class left."""
    labels = np.repeat([0, 1], [10, 30])
    for seed in range(5):
        parts = DirichletEqual(1e-3).split(labels, 4, seed)
        assert sorted(np.concatenate(parts)) == list(range(40))


def test_pathological_clients_hold_their_classes():
    table = counts(LABELS, Pathological(3).split(LABELS, 20, 0), 10)
    assert ((table > 0).sum(1) == 3).all()
    assert len({tuple(np.flatnonzero(row)) for row in table}) > 5
    assert np.abs(table[table > 0] - 100 / 3).max() < 5 * np.sqrt(100 * 2 / 9)


def test_remainder_is_left_out():
    assert [len(part) for part in DirichletEqual(1.0).split(np.arange(23) % 3, 5, 0)] == [4] * 5


def test_label_values_do_not_matter():
    """Classes 3 and 9 without the others are dealt as 0 and 1 are."""
    labels = np.arange(60) % 2
    for kind in (Dirichlet(1.0, minimum=1), DirichletClient(1.0), Pathological(1)):
        assert same(kind.split(labels, 4, 0), kind.split(np.where(labels, 9, 3), 4, 0))


def test_counts():
    labels = np.array([0, 0, 2, 1])
    assert counts(labels, [np.array([0, 2]), np.array([1, 3, 3])], 4).tolist() == [[1, 0, 1, 0], [1, 2, 0, 0]]


@pytest.mark.parametrize(
    "text, built",
    [
        ("iid", Iid()),
        ("IID()", Iid()),
        ("dirichlet", Dirichlet()),
        ("dirichlet(0.3)", Dirichlet(0.3)),
        ("dirichlet(alpha=0.1, minimum=5)", Dirichlet(0.1, 5)),
        ("dirichlet(1, 0)", Dirichlet(1.0, 0)),
        (" dirichlet-client( alpha = 0.6 ) ", DirichletClient(0.6)),
        ("dirichlet_equal(1e-1)", DirichletEqual(0.1)),
        ("DirichletClient(alpha=0.6)", DirichletClient(0.6)),
        ("pathological(2)", Pathological(2)),
    ],
)
def test_parse(text, built):
    assert parse(text) == built
    assert parse(built) is built


@given(st.sampled_from([Dirichlet, DirichletClient, DirichletEqual]), st.floats(1e-6, 1e6), st.integers(0, 99))
def test_text_and_back(kind, alpha, minimum):
    for built in (kind(alpha), Dirichlet(alpha, minimum), Pathological(minimum + 1), Iid()):
        assert parse(str(built)) == parse(repr(built)) == built


def test_canonical_text():
    assert str(DirichletClient()) == "dirichlet-client(alpha=0.1)"
    assert str(Dirichlet(1)) == str(Dirichlet(1.0)) == "dirichlet(alpha=1.0, minimum=10)"
    assert [str(NAMES[name]()).split("(")[0] for name in NAMES] == list(NAMES)
    assert Dirichlet(np.float32(0.5), np.int64(3)) == Dirichlet(0.5, 3)


@pytest.mark.parametrize(
    "text, says",
    [
        ("dirichlet(a=1)", "dirichlet: argument 'a' is unknown"),
        ("dirichlet(0.1, alpha=1)", "dirichlet: argument 'alpha' is given twice"),
        ("dirichlet-client(0.1, 5)", "dirichlet-client: argument '5' is unknown"),
        ("iid(3)", "iid: argument '3' is unknown; write e.g. \"iid\""),
        ("dirichlet(alpha=low)", "dirichlet: alpha='low' is not a number"),
        ("dirichlet(nan)", "dirichlet: alpha=nan; allowed is a number greater than 0"),
        ("pathological(2.5)", "pathological: classes=2.5; allowed is a whole number from 1"),
    ],
)
def test_bad_arguments_are_named(text, says):
    with pytest.raises(ValueError, match=says):
        parse(text)


@pytest.mark.parametrize(
    "build, says",
    [
        (lambda: Dirichlet(alpha=0), "dirichlet: alpha=0; allowed is a number greater than 0"),
        (lambda: DirichletClient(alpha=-0.1), "dirichlet-client: alpha=-0.1"),
        (lambda: DirichletEqual(alpha="0.1"), "dirichlet-equal: alpha='0.1'"),
        (lambda: Dirichlet(minimum=-1), "dirichlet: minimum=-1; allowed is a whole number from 0"),
        (lambda: Pathological(0), "pathological: classes=0; allowed is a whole number from 1"),
    ],
)
def test_fields_out_of_range_are_named(build, says):
    with pytest.raises(ValueError, match=says):
        build()


def test_unknown_partition_names_the_closest():
    with pytest.raises(UnknownPartition, match=r"no partition 'dirichlt'; closest: dirichlet"):
        parse("dirichlt(0.1)")
    for text in ("", "?", "dirichlet(0.1", None):
        with pytest.raises(UnknownPartition, match="closest: "):
            parse(text)


@pytest.mark.parametrize("kind", EXACT + EQUAL, ids=str)
@pytest.mark.parametrize("clients", [0, -1, 11])
def test_client_counts_that_cannot_be(kind, clients):
    with pytest.raises(PartitionFailed, match=f"clients={clients} for 10 samples; allowed is 1 to 10"):
        kind.split(np.zeros(10, int), clients, 0)


def test_minimum_that_cannot_be_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(partition, "RETRIES", 10**12)
    with pytest.raises(PartitionFailed, match=r"alpha=0.1, clients=300, minimum=10: .* there are too few"):
        Dirichlet().split(LABELS, 300, 0)


def test_minimum_that_is_not_met_says_how_near_it_came():
    with pytest.raises(PartitionFailed, match=r"alpha=0.01, clients=100, minimum=10: .* had \d+ at best"):
        Dirichlet(0.01).split(LABELS, 100, 0)


def test_more_classes_than_there_are():
    with pytest.raises(PartitionFailed, match="pathological: classes=11; the labels allow 1 to 10 classes"):
        Pathological(11).split(LABELS, 4, 0)
