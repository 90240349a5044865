"""Validation data: who holds them, that nobody trains on them, and what is reported by them."""

import numpy as np
import pytest

from fednb.cli.commands import main
from fednb.data.partition import PartitionFailed
from fednb.engines.problem import clients_of, data_of, validation_of
from fednb.engines.setting import BadSetting, Setting
from fednb.runs.experiment import run, run_of
from fednb.runs.listing import list_runs
from fednb.runs.result import Run

SMALL = Setting(samples=200, clients=4, participation=1.0, rounds=3, epochs=1, batch=25, validation=0.2)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))


@pytest.mark.parametrize("whose", ["clients", "server"])
def test_nobody_trains_on_validation_samples(whose):
    """A fifth of 200 samples is held out, the others are dealt out, and none is in both."""
    setting, data = SMALL.but(validation_on=whose), data_of(SMALL)
    parts, held = clients_of(setting, 0, data), validation_of(setting, 0, data)
    assert len(held) == pytest.approx(40, abs=2) and len(np.concatenate(parts)) + len(held) == 200
    assert not np.intersect1d(held, np.concatenate(parts)).size
    assert validation_of(setting, 1, data).tolist() != held.tolist()


def test_each_client_gives_its_share():
    data = data_of(SMALL)
    whole, cut = (clients_of(SMALL.but(validation=share), 0, data) for share in (0.0, 0.2))
    assert [len(c) for c in cut] == [len(w) - round(0.2 * len(w)) for w in whole]
    assert all(np.isin(c, w).all() for c, w in zip(cut, whole, strict=True))


def test_a_sample_of_two_clients_is_held_out_of_both(monkeypatch):
    """Clients 0 and 1 both hold samples 0 to 9: what either holds out, neither trains on."""
    monkeypatch.setattr(type(SMALL.partition), "split", lambda *a: [np.arange(10), np.arange(10)])
    setting, data = SMALL.but(clients=2), data_of(SMALL)
    held = validation_of(setting, 0, data)
    assert len(held) > 2 and all(not np.isin(p, held).any() for p in clients_of(setting, 0, data))


def test_a_client_that_would_lose_all_its_samples_is_named(monkeypatch):
    monkeypatch.setattr(type(SMALL.partition), "split", lambda *a: [np.arange(10), np.arange(1)])
    monkeypatch.setattr("fednb.engines.problem.stream", lambda *a: np.random.default_rng(3))
    setting = SMALL.but(clients=2, validation=0.9)
    with pytest.raises(PartitionFailed, match=r"validation = 0.9 leaves client 1 without samples; lower it"):
        clients_of(setting, 0, data_of(setting))


@pytest.mark.parametrize("whose", ["clients", "server"])
def test_every_round_is_judged_on_both(whose):
    done = run(SMALL.but(validation_on=whose, evaluate_every=3), "FedAvg", progress=False)
    assert [row["validation_accuracy"] is None for row in done.rows] == [True, True, False]
    last = done.rows[-1]
    held, data = validation_of(done.setting, 0, data_of(done.setting)), data_of(done.setting)
    x = (data.x[held].float() / data.scale - data.mean[0]) / data.std[0]
    right = (done.model()(x).argmax(1) == data.y[held]).double().mean()
    assert last["validation_accuracy"] == pytest.approx(100 * float(right)) and last["validation_loss"] > 0


def test_the_reported_round_is_the_best_on_validation_data():
    """Validation is best in round 1, where the test accuracy is 40; the best on test, 60, is another round's."""
    rows = [{"accuracy": a, "validation_accuracy": v} for a, v in ((60.0, 50.0), (40.0, 70.0), (30.0, 70.0))]
    seen = made(rows, SMALL)
    assert (seen.accuracy, seen.accuracy_best, seen.validation_accuracy) == (40.0, 60.0, 70.0)
    last = made(rows, SMALL.but(report="last"))
    assert (last.accuracy, last.validation_accuracy) == (30.0, 70.0)
    assert made(rows, SMALL.but(report="mean_last_10")).validation_accuracy == pytest.approx(190 / 3)
    assert made([{"accuracy": 60.0}], SMALL.but(validation=0.0)).accuracy == 60.0


def test_the_listing_reports_by_validation():
    done = run(SMALL, "FedAvg", progress=False)
    assert list_runs().loc[done.key, "accuracy"] == done.accuracy == done.accuracy_by_validation


def made(rows: list[dict], setting: Setting, status: str = "finished") -> Run:
    seen = run_of(setting, run(setting.but(rounds=1), "FedAvg", progress=False).method, 0)
    vars(seen).update(rows=rows, about={"status": status})
    return seen


def test_a_diverged_run_has_no_accuracy():
    seen = made([{"accuracy": 60.0, "validation_accuracy": 50.0}], SMALL, "diverged")
    assert {seen.accuracy, seen.accuracy_best, seen.accuracy_last, seen.validation_accuracy} == {None}
    assert made([{"accuracy": 60.0}], SMALL.but(validation=0.0), "diverged").accuracy is None


def test_a_diverged_run_says_so_in_its_exit_status(capsys):
    asked = ["run", "fedavg", "--samples", "300", "--rounds", "2", "--quiet", "--clip-norm", "none"]
    assert main(asked) == 0
    assert main([*asked, "--lr", "1e20"]) == 1
    assert "diverged in round 1 of 2; it has no accuracy" in capsys.readouterr().err


def test_clients_with_splits_of_their_own_are_refused():
    with pytest.raises(BadSetting, match=r"validation = 0.2: .*held_out = 0.2 holds samples out"):
        SMALL.but(evaluation="personal")


@pytest.mark.parametrize("whose, samples, clients", [("clients", 4, 4), ("server", 1, 1)])
def test_where_nothing_can_be_held_out_nothing_is_trained(whose, samples, clients):
    """One sample each: nobody could train and hold out."""
    setting = SMALL.but(samples=samples, clients=clients, partition="iid", validation_on=whose)
    with pytest.raises(PartitionFailed, match=r"validation = 0.2 holds nothing out, .* samples or fewer clients"):
        run(setting, "FedAvg", progress=False)


@pytest.mark.parametrize("whose, samples, clients", [("clients", 5, 4), ("server", 2, 1)])
def test_one_sample_is_enough_to_hold_out(whose, samples, clients):
    setting = SMALL.but(samples=samples, clients=clients, partition="iid", validation_on=whose, rounds=1)
    assert run(setting, "FedAvg", progress=False).rows[-1]["validation_accuracy"] in (0.0, 100.0)
