"""The explorer of partitions: its numbers are those of the library, and every control moves the picture."""

import re
from dataclasses import fields

import numpy as np
import pytest
from moving import check, through_controls

import fednb as fn
from fednb.data.partition import NAMES
from fednb.data.sources import load
from fednb.metrics.skew import distance, distances
from fednb.show.explore.partitions import ORDERS, OWN, SHARES, Partitions, deal, partition_of

HOMES = {"natural": "femnist-made", "domains": "office-home-made"}  # data sets that know owners


@pytest.fixture(scope="module")
def one():
    return Partitions()


@pytest.fixture
def explorer(one):
    """As it is opened."""
    start = Partitions()
    with one.together():
        for name, each in start.controls.items():
            one.controls[name].value = each.value
    return one


def put(explorer, **values):
    with explorer.together():
        for name, value in values.items():
            explorer.controls[name].value = value


def test_distance_is_total_variation():
    """Two clients of one class each: |1 − ½| + |0 − ½|, halved, is ½. One class of C each: 1 − 1/C. The same: 0."""
    assert distances(np.array([[4, 0], [0, 4]])).tolist() == [0.5, 0.5]
    assert distances(5 * np.eye(4)).tolist() == [0.75] * 4
    assert distances(np.array([[1, 2], [2, 4]])).tolist() == [0.0, 0.0]
    counts = np.array([[3, 1], [0, 4]])  # the whole is (3/8, 5/8)
    assert distances(counts) == pytest.approx([3 / 8, 3 / 8]) and distance(counts) == pytest.approx(3 / 8)


@pytest.mark.parametrize("kind", NAMES)
def test_every_kind_is_shown_as_the_library_deals_it(explorer, kind):
    data, clients = HOMES.get(kind, "digits"), 8
    put(explorer, kind=kind, data=data, clients=clients, alpha=0.5, seed=3)
    setting = fn.Setting(data=data, clients=clients, partition=partition_of(explorer.values))
    counts = fn.class_counts(setting, seed=3)
    assert explorer.sheet.cells.get_array().tolist() == counts.tolist()
    sizes, away = (bar.get_data().values for bar in explorer.sheet.bars)
    assert sizes.tolist() == counts.sum(1).tolist()
    assert away == pytest.approx(distances(counts))
    assert f"Mean distance {distance(counts):.3f}" in explorer.words.value


@pytest.mark.parametrize("kind", NAMES)
def test_controls_are_those_of_the_kind(explorer, kind):
    put(explorer, kind=kind)
    shown = {name for name in OWN if explorer.controls[name].layout.display != "none"}
    assert shown == {f.name for f in fields(NAMES[kind])} & set(OWN)


@pytest.mark.parametrize("kind, name, value", [
    ("dirichlet", "alpha", 1.0), ("dirichlet", "clients", 12), ("dirichlet", "seed", 1), ("dirichlet", "minimum", 20),
    ("dirichlet", "order", "size"), ("dirichlet", "shown", SHARES), ("dirichlet", "data", "bloodmnist-made"),
    ("dirichlet", "kind", "iid"), ("pathological", "classes", 5), ("pathological-shards", "classes", 5),
    ("dirichlet-equal", "quirk", True), ("domains", "target", 2), ("natural", "minimum", 30),
])  # fmt: skip
def test_a_control_moves_the_picture(explorer, kind, name, value):
    put(explorer, kind=kind, data=HOMES.get(kind, "digits"), clients=8)
    before = explorer.picture.value
    explorer.controls[name].value = value
    assert explorer.picture.value[:4] == b"\x89PNG" and explorer.picture.value != before


def test_a_split_that_is_none_leaves_the_picture_and_says_why(explorer):
    before = explorer.picture.value
    explorer.controls["kind"].value = "natural"
    assert "does not know natural clients" in explorer.words.value and "role='alert'" in explorer.words.value
    assert explorer.picture.value == before
    explorer.controls["kind"].value = "iid"
    assert "Mean distance" in explorer.words.value and explorer.picture.value != before


def test_classes_end_where_the_data_does(explorer):
    """Ten classes of digits are chosen, then a data set that has eight: one picture, of eight."""
    put(explorer, kind="pathological", classes=10)
    explorer.controls["data"].value = "bloodmnist-made"
    assert explorer.controls["classes"].value == 8
    assert "classes=8" in explorer.sheet.title.get_text() and "alert" not in explorer.words.value


@pytest.mark.parametrize("name", ORDERS)
def test_orders_lose_nobody(name):
    table = deal("digits", fn.Setting().partition, 10, 0).table
    order = ORDERS[name](table)
    assert sorted(order) == list(range(10))
    falling = {"size": table.sum(1), "distance": distances(table), "largest class": -table.argmax(1)}
    assert name == "as dealt" or (np.diff(falling[name][order]) <= 0).all()


def test_samples_with_several_owners_are_counted(explorer):
    """As many are dealt as the clients hold; those with an owner are fewer where classes start again."""
    put(explorer, kind="dirichlet-client", alpha=0.1)
    held, there, twice = (int(x.replace(",", "")) for x in re.search(
        r"([\d,]+) of ([\d,]+) samples are dealt, and ([\d,]+) times", explorer.words.value).groups())  # fmt: skip
    assert there == 1438 and held + twice == 20 * (1438 // 20) and twice > 0
    put(explorer, kind="iid")
    assert "1,438 of 1,438 samples are dealt, each to one client" in explorer.words.value


def test_executed_headless_it_is_a_grid_of_pictures(monkeypatch):
    monkeypatch.setenv("FEDNB_WIDGETS", "still")
    seen = Partitions.at("smoke", clients=10)._repr_mimebundle_()
    assert set(seen) == {"text/plain", "image/png"}
    kinds = {each["kind"] for each in Partitions().stills()}
    assert {"iid", "dirichlet", "pathological", "natural"} <= kinds <= set(NAMES)


def test_in_a_front_end_it_has_controls(monkeypatch):
    monkeypatch.setenv("FEDNB_WIDGETS", "live")
    seen = Partitions()._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in seen and "image/png" in seen


def test_shares_of_a_client_sum_to_one(explorer):
    put(explorer, shown=SHARES)
    assert np.allclose(np.asarray(explorer.sheet.cells.get_array()).sum(1), 1)


def test_all_partitions_of_a_data_set_have_one_colour_scale(explorer):
    """Up to the 147 digits of the largest class, whoever has them; the bar beside the heat map has the same colours."""
    sheet = explorer.sheet
    most = int(np.bincount(load("digits").y).max())
    for values in ({"kind": "iid"}, {"kind": "dirichlet"}, {"kind": "dirichlet-client", "alpha": 0.05, "clients": 40}):
        put(explorer, **values)
        assert sheet.cells.get_clim() == sheet.shades.get_clim() == (0, most)
        assert sheet.shades.get_array().max() == most and sheet.cells.norm is sheet.shades.norm
        assert np.asarray(sheet.cells.get_array()).max() < most
    put(explorer, shown=SHARES)
    assert sheet.cells.get_clim() == sheet.shades.get_clim() == (0, 1)


def test_without_a_kernel_every_state_has_its_picture(explorer):
    check(explorer, through_controls(explorer))
