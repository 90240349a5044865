"""How skewed clients are, on counts that are written out, and on digits."""

import numpy as np
import pytest

import fednb as fn
from fednb.metrics.skew import class_skew, classes_for, distance, size_skew, tables

CASES = {"smoke": [{"dataset": "digits", "data": "digits", "clients": 6}]}


@pytest.mark.parametrize(
    "counts, wanted",
    [
        ([[5, 5], [1, 1]], 0.0),  # sizes differ, classes do not
        ([[4, 0], [0, 4]], 0.5),
        ([[3, 1], [1, 3]], 0.25),
        ([[8, 0], [1, 0], [0, 1]], (0.1 + 0.1 + 0.9) / 3),  # the whole is (0.9, 0.1): samples count there, clients here
        ([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], 0.75),
    ],
)
def test_distance_is_total_variation_to_all_clients_together(counts, wanted):
    assert distance(np.array(counts)) == pytest.approx(wanted)


@pytest.mark.parametrize(
    "client, share, wanted",
    [
        ([10, 90, 0], 0.9, 1),  # exactly enough is enough, and order does not matter
        ([89, 11, 0], 0.9, 2),
        ([25, 25, 25, 25], 0.9, 4),
        ([25, 25, 25, 25], 0.5, 2),
        ([7, 0, 0, 0], 0.9, 1),
    ],
)
def test_classes_for_counts_the_largest_first(client, share, wanted):
    assert classes_for(np.array([client]), share) == wanted
    assert classes_for(np.array([client, [1] + [0] * (len(client) - 1)]), share) == (wanted + 1) / 2


def test_the_table_has_every_partition_seed_and_number():
    """Two partitions x two seeds x two numbers; the number is that of the clients that the runs would have."""
    partitions = ["dirichlet-client(alpha=0.6)", "iid"]
    table = class_skew("smoke", partitions, seeds=[3, 4], **CASES)
    assert len(table) == 8 and set(table["method"]) == {"dirichlet-client", "iid"}
    setting = fn.Setting(data="digits", clients=6, partition="dirichlet-client(alpha=0.6)")
    mine = table[(table["method"] == "dirichlet-client") & (table["seed"] == 4)].set_index("measure")["value"]
    assert mine["distance to the whole"] == distance(fn.class_counts(setting, 4))
    assert mine["classes for 90%"] == classes_for(fn.class_counts(setting, 4))


def test_smaller_alpha_is_farther_from_the_whole():
    """Dirichlet priors: in the mean over three seeds, and iid below both."""
    partitions = ["dirichlet(alpha=0.1)", "dirichlet(alpha=10.0)", "iid"]
    table = class_skew("smoke", partitions, seeds=[0, 1, 2], **CASES)
    table = table[table["measure"] == "distance to the whole"]
    far = table.groupby(["method", "alpha"], sort=False, dropna=False)["value"].mean()
    assert far.iloc[0] > 2 * far.iloc[1] > 2 * far.iloc[2]


def test_counts_are_shown_under_data_set_and_alpha():
    partitions = ["dirichlet(alpha=0.6)", "dirichlet-client(alpha=0.6)"]
    shown = tables("smoke", partitions, seed=1, kind="dirichlet-client", **CASES)
    assert list(shown) == ["digits, α = 0.6"]
    setting = fn.Setting(data="digits", clients=6, partition="dirichlet-client(alpha=0.6)")
    assert (shown["digits, α = 0.6"] == fn.class_counts(setting, 1)).all()


def test_sizes_are_those_of_the_clients_that_runs_would_have():
    """The largest over the mean, and the smallest; 1 and 300 / 6 = 50 where all are alike."""
    cases = {"smoke": [{"dataset": "digits", "data": "digits", "clients": 6, "samples": 300}]}
    table = size_skew("smoke", ["iid", "dirichlet(alpha=0.1, minimum=10)"], seeds=[3], **cases)
    seen = table.set_index(["method", "measure"])["value"]
    assert seen["iid"].to_dict() == {"largest over the mean": 1.0, "smallest client": 50.0}
    held = fn.class_counts(fn.Setting(data="digits", clients=6, samples=300, partition="dirichlet(alpha=0.1)"), 3).sum(
        1
    )
    assert seen["dirichlet"].tolist() == [max(held) / 50, min(held)] and max(held) > 50


def test_a_data_set_may_have_partitions_of_its_own():
    """In place of those of all; a partition without α goes by its own text."""
    cases = [*CASES["smoke"], CASES["smoke"][0] | {"partitions": ["pathological-shards(classes=5)"]}]
    table = class_skew("smoke", ["iid", "dirichlet(alpha=0.1)"], smoke=cases)
    assert table["method"].tolist() == ["iid"] * 2 + ["dirichlet"] * 2 + ["pathological-shards"] * 2
    assert list(tables("smoke", ["dirichlet(alpha=0.1)"], smoke=cases)) == [
        "digits, α = 0.1",
        "digits, pathological-shards(classes=5)",
    ]
