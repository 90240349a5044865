"""Partitions use the samples they promise to use, in the sizes they promise, as a function of the seed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fednb.base.streams import stream
from fednb.data import labels as by_label
from fednb.data.dataset import Dataset
from fednb.data.partition import (
    NAMES,
    Dirichlet,
    DirichletClient,
    DirichletEqual,
    FeatureShift,
    Iid,
    Natural,
    PartitionFailed,
    Pathological,
    PathologicalShards,
    UnknownPartition,
    counts,
    parse,
)

LABELS = np.arange(2000) % 10
EXACT = [Iid(), Dirichlet(0.5, minimum=0), Dirichlet(0.1, minimum=2), FeatureShift()]
EQUAL = [
    DirichletClient(0.1),
    DirichletEqual(0.1),
    DirichletEqual(0.01),
    DirichletEqual(0.5, quirk=True),
    Pathological(2),
    PathologicalShards(2),
]
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
    for quirk in (False, True):
        dealt = np.concatenate(DirichletEqual(alpha, quirk).split(labels, clients, seed))
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
    used, classes, most = [], [], 0
    for seed in range(5):
        parts = DirichletClient(alpha).split(labels, 100, seed)
        times = np.bincount(np.concatenate(parts), minlength=len(labels))
        used.append((times > 0).mean())
        classes.append((counts(labels, parts, 10) > 0).sum(1).mean())
        most = max(most, times.max())
    assert np.mean(used) == pytest.approx(unique, abs=0.03)
    assert np.mean(classes) == pytest.approx(held, abs=0.3)
    assert most in (2, 3)


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


def test_equal_sizes_without_refill_are_an_exact_partition_where_clients_divide():
    """specs 3.6: FedFSA's two partitions use each sample once."""
    for kind in (DirichletEqual(0.5), DirichletEqual(0.5, quirk=True), PathologicalShards(5)):
        parts = kind.split(LABELS, 20, 3)
        assert {len(part) for part in parts} == {100}
        assert sorted(np.concatenate(parts)) == list(range(2000))


@pytest.mark.parametrize("quirk, spread, agreement", [(True, 0.039, 0.0), (False, 0.138, 0.985)])
def test_with_the_quirk_no_client_draws_the_first_class_from_its_prior(quirk, spread, agreement):
    """fedfsa/sections.md no 15, CIFAR-10 and Dir(0.5): the share of class 0 has std 0.039 and correlation 0.00 with the
    prior; class 1, which the quirk does not touch, 0.138 and 0.985. Without it class 0 is like any other.
    """
    labels = np.arange(60_000) % 10
    kind = DirichletEqual(0.5, quirk)
    prior = drawn_prior(kind)
    shares = counts(labels, kind.split(labels, 100, 0), 10) / 600
    assert shares[:, 0].std() == pytest.approx(spread, abs=0.025)
    assert np.corrcoef(shares[:, 0], prior[:, 0])[0, 1] == pytest.approx(agreement, abs=0.25 if quirk else 0.03)
    assert np.corrcoef(shares[:, 1], prior[:, 1])[0, 1] == pytest.approx(0.985, abs=0.03)


def drawn_prior(kind):
    """The prior that a split of ten classes among 100 clients draws first, seed 0."""
    return stream(0, "partition", kind.name).dirichlet(np.full(10, kind.alpha), size=100)


@pytest.mark.parametrize(
    "n, classes, s, size", [(60_000, 10, 5, 120), (60_000, 100, 15, 40), (110_000, 200, 50, 22), (70_000, 10, 5, 140)]
)
def test_shards_have_the_papers_sizes(n, classes, s, size):
    """specs 3.6: CIFAR-10 Pat(5): 120, CIFAR-100 Pat(15): 40, Tiny Pat(50): 22, Fashion-MNIST: 140; 100 clients."""
    labels = np.arange(n) % classes
    assert PathologicalShards(s).shard(np.bincount(labels), 100) == size
    parts = PathologicalShards(s).split(labels, 100, 0)
    table = counts(labels, parts, classes)
    assert sorted(np.concatenate(parts)) == list(range(n)) and {len(part) for part in parts} == {n // 100}
    assert (table % size == 0).all()
    held = (table > 0).sum(1)
    assert held.max() <= s and (held == s).mean() >= 0.9  # the last clients may find too few classes left


def test_shards_are_of_distinct_classes_while_there_are_any():
    """Two classes of 200 and four clients of two shards: each client has one shard, 50 samples, of either class."""
    for seed in range(5):
        table = counts(LABELS[LABELS < 2], PathologicalShards(2).split(LABELS[LABELS < 2], 4, seed), 2)
        assert (table == 50).all()


def test_a_client_that_finds_no_new_class_takes_a_second_shard():
    """30 samples of class 0, 10 of class 1, four shards of 10 for two clients: one has (20, 0), the other (10, 10)."""
    table = counts(np.repeat([0, 1], [30, 10]), PathologicalShards(2).split(np.repeat([0, 1], [30, 10]), 2, 0), 2)
    assert sorted(table.tolist()) == [[10, 10], [20, 0]]


@settings(deadline=None, max_examples=60)
@given(samples(), st.integers(0, 2**32), st.integers(1, 3))
def test_shards_are_equal_and_never_dealt_twice(case, seed, classes):
    """Whatever the classes: equal parts, no sample twice, or a refusal that says what is too few."""
    labels, clients = case
    try:
        parts = PathologicalShards(classes).split(labels, clients, seed)
    except PartitionFailed as refused:
        assert classes > len(set(labels)) or clients * classes > len(labels), refused
    else:
        dealt = np.concatenate(parts)
        assert len({len(part) for part in parts}) == 1 and len(set(dealt.tolist())) == len(dealt)
        assert all(len(set(labels[part])) <= classes for part in parts)


def test_too_few_samples_for_the_shards():
    with pytest.raises(PartitionFailed, match=r"10 clients with 2 classes each need 20 shards; there are only 12"):
        PathologicalShards(2).split(np.arange(12) % 3, 10, 0)


OWNER = np.repeat([7, 3, 5, 9], [1, 6, 2, 11])


def test_natural_clients_are_whole_owners():
    """Owners 7, 3, 5, 9 have 1, 6, 2, 11 samples; the order of clients is that of the owners' numbers."""
    parts = Natural().split(np.zeros(20, int), 4, 0, owner=OWNER)
    assert [OWNER[part].tolist() for part in parts] == [[3] * 6, [5] * 2, [7], [9] * 11]
    assert sorted(np.concatenate(parts)) == list(range(20))
    assert all(part.dtype == np.int64 for part in parts)


def test_natural_clients_are_drawn_by_the_seed_among_those_with_enough():
    chosen = {tuple(OWNER[p[0]] for p in Natural(2).split(np.zeros(20, int), 2, s, owner=OWNER)) for s in range(20)}
    assert chosen == {(3, 5), (3, 9), (5, 9)}
    for seed in range(3):
        first, again = (Natural(2).split(np.zeros(20, int), 2, seed, owner=OWNER) for _ in range(2))
        assert same(first, again)


def test_too_few_natural_clients_says_how_many_there_are():
    says = "clients=3; the data has 4 natural clients, 2 of them with at least 6 samples"
    with pytest.raises(PartitionFailed, match=says):
        Natural(6).split(np.zeros(20, int), 3, 0, owner=OWNER)
    with pytest.raises(PartitionFailed, match="clients=0; the data has 4"):
        Natural().split(np.zeros(20, int), 0, 0, owner=OWNER)


def test_data_without_owners_has_no_natural_clients():
    with pytest.raises(PartitionFailed, match=r"does not know natural clients\. femnist and shakespeare do"):
        Natural().split(LABELS, 3, 0)


def owned(owner, owner_test) -> Dataset:
    x, x_test = (torch.arange(len(o)).view(-1, 1, 1, 1).to(torch.uint8) for o in (owner, owner_test))
    owners = (torch.tensor(o) for o in (owner, owner_test))
    y, y_test = torch.zeros(len(owner), dtype=torch.int64), torch.arange(len(owner_test))
    return Dataset("owned", x, y, x_test, y_test, 1, 1.0, (0.0,), (1.0,), 0, False, 0, *owners)


def test_natural_clients_are_tested_on_what_they_hold_back():
    """Owners 0 and 2 take part: of the test samples of owners 2, 0, 1, 2 the first, second and last stay."""
    data = owned([0, 1, 2, 2], [2, 0, 1, 2])
    parts = [np.array([0]), np.array([2, 3])]
    seen = Natural().changed(data, parts, 0)
    assert seen.y_test.tolist() == [0, 1, 3] == seen.x_test.flatten().tolist()
    assert seen.owner_test.tolist() == [2, 0, 2] and torch.equal(seen.x, data.x)
    assert Natural().changed(data, parts, 0) is seen  # one object: worker processes are not sent it again
    assert Natural().changed(data, [np.array([i]) for i in range(3)], 0) is data


def test_natural_clients_without_any_test_sample_are_refused():
    with pytest.raises(PartitionFailed, match="none of the 1 clients has a test sample"):
        Natural().changed(owned([0, 1], [1]), [np.array([0])], 0)


@pytest.mark.parametrize("kind", EXACT[:-1] + EQUAL, ids=str)
def test_partitions_by_label_change_nothing(kind):
    data = owned([0, 1], [1])
    assert kind.changed(data, [np.array([0])], 0) is data


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
        ("pathological-shards(classes=15)", PathologicalShards(15)),
        ("dirichlet-equal(0.5, quirk=true)", DirichletEqual(0.5, True)),
        ("dirichlet-equal(0.5, False)", DirichletEqual(0.5)),
        ("natural", Natural(1)),
        ("natural(minimum=8)", Natural(8)),
        ("feature-shift", FeatureShift(3, 2, 3)),
        ("feature_shift(0)", FeatureShift(0)),
    ],
)
def test_parse(text, built):
    assert parse(text) == built
    assert parse(built) is built


@given(st.sampled_from([Dirichlet, DirichletClient, DirichletEqual]), st.floats(1e-6, 1e6), st.integers(0, 99))
def test_text_and_back(kind, alpha, minimum):
    whole = (
        Pathological(minimum + 1),
        PathologicalShards(minimum + 1),
        Natural(minimum + 1),
        FeatureShift(minimum % 6),
    )
    for built in (kind(alpha), Dirichlet(alpha, minimum), DirichletEqual(alpha, minimum > 50), *whole, Iid()):
        assert parse(str(built)) == parse(repr(built)) == built


def test_canonical_text():
    assert str(DirichletClient()) == "dirichlet-client(alpha=0.1)"
    assert str(DirichletEqual()) == "dirichlet-equal(alpha=0.1)"  # a switch that is off does not change a run's key
    assert str(DirichletEqual(quirk=True)) == "dirichlet-equal(alpha=0.1, quirk=True)"
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
        (lambda: PathologicalShards(0), "pathological-shards: classes=0; allowed is a whole number from 1"),
        (lambda: DirichletEqual(quirk=1), "dirichlet-equal: quirk=1; allowed is true or false"),
        (lambda: Natural(0), "natural: minimum=0; allowed is a whole number from 1"),
        (lambda: FeatureShift(6), r"feature-shift: severity=6; allowed is 0 \(clean\) to 5"),
        (lambda: FeatureShift(-1), "feature-shift: severity=-1; allowed is a whole number from 0"),
        (lambda: FeatureShift(fewest=4), "feature-shift: fewest=4, most=3; allowed is 1 to 15"),
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
    monkeypatch.setattr(by_label, "RETRIES", 10**12)
    with pytest.raises(PartitionFailed, match=r"alpha=0.1, clients=300, minimum=10: .* there are too few"):
        Dirichlet().split(LABELS, 300, 0)


def test_minimum_that_is_not_met_says_how_near_it_came():
    with pytest.raises(PartitionFailed, match=r"alpha=0.01, clients=100, minimum=10: .* had \d+ at best"):
        Dirichlet(0.01).split(LABELS, 100, 0)


@pytest.mark.parametrize("kind", [Pathological(11), PathologicalShards(11)], ids=str)
def test_more_classes_than_there_are(kind):
    with pytest.raises(PartitionFailed, match=f"{kind.name}: classes=11; the labels allow 1 to 10 classes"):
        kind.split(LABELS, 4, 0)
