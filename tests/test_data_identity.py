"""A run knows which samples it had: other files under the same name are noticed, the same ones elsewhere are not."""

import shutil

import pytest
import torch
from test_data_domains import write_domains
from test_experiment import interrupted

from fednb.algorithms.catalogue import method
from fednb.data import identity as data_identity
from fednb.data import sources
from fednb.data.identity import OtherSamples, extent, identity
from fednb.data.sources import load
from fednb.engines.setting import Setting
from fednb.runs.experiment import run, run_of
from fednb.study.page import provenance

SETTING = Setting(data="domains", model="cnn-small", clients=2, participation=1.0, rounds=3, epochs=1, batch=8)


@pytest.fixture(autouse=True)
def store(tmp_path_factory, monkeypatch):
    place = tmp_path_factory.mktemp("store")
    monkeypatch.setenv("FEDNB_STORE", str(place))
    return place


def change(place):
    """One image more in each class: another data set under the same name, seen by another process."""
    shutil.rmtree(place)
    write_domains(place, each=6)
    sources.held.cache_clear()


def test_a_run_writes_down_what_it_had(folder):
    write_domains(folder / "domains")
    about = run(SETTING, "FedAvg", progress=False).about["data"]
    assert about == identity("domains") and len(about["sha256"]) == 32
    assert about["note"] == "domains 0 photo, 1 sketch; 3 classes" and about["files"].startswith("31 files, ")


@pytest.mark.parametrize("name", ["x", "y", "x_test", "y_test", "owner", "owner_test"])
def test_one_changed_number_is_another_fingerprint(folder, name):
    write_domains(folder / "domains")
    first = load("domains")
    before = first.fingerprint
    sources.held.cache_clear()
    again = load("domains")
    assert again is not first and again.fingerprint == before
    sources.held.cache_clear()
    other = load("domains")
    getattr(other, name).view(-1)[-1] += 1
    assert other.fingerprint != before


def test_a_finished_run_of_other_samples_is_not_passed_off_as_one_of_these(folder):
    place = write_domains(folder / "domains")
    before = run(SETTING, "FedAvg", progress=False)
    then = before.about["data"]["sha256"]
    change(place)
    with pytest.raises(OtherSamples, match=rf"run {before.key} .*'domains'.*{then}.*{load('domains').fingerprint}"):
        run(SETTING, "FedAvg", progress=False)
    assert run_of(SETTING, method("FedAvg"), 0).weights_sha256 == before.weights_sha256  # nothing is lost


def test_an_interrupted_run_does_not_go_on_with_other_samples(folder):
    place = write_domains(folder / "domains")
    interrupted(SETTING, "FedAvg", 1)
    change(place)
    with pytest.raises(OtherSamples, match="FEDNB_STORE"):
        run(SETTING, "FedAvg", progress=False)
    assert len(run_of(SETTING, method("FedAvg"), 0).rows) == 1


def test_an_interrupted_run_is_compared_thoroughly(folder):
    """Files of the same size may hold something else; where they are read anyway, that is noticed."""
    write_domains(folder / "domains")
    interrupted(SETTING, "FedAvg", 1)
    load("domains").x[0] += 1
    del load("domains").__dict__["fingerprint"]
    with pytest.raises(OtherSamples):
        run(SETTING, "FedAvg", progress=False)


def exchange(place):
    """Two images change places: files of the same names, as many bytes as before, and other samples."""
    one, other = (place / "photo" / name / "0.png" for name in ("desk", "pen"))
    held = one.read_bytes(), other.read_bytes()
    one.write_bytes(held[1])
    other.write_bytes(held[0])


def forget():
    """What another process would not have in memory."""
    sources.held.cache_clear()
    for known in (data_identity._looks, data_identity._current, data_identity._notes):
        known.clear()


@pytest.mark.parametrize("process", ["this process", "another"])
def test_files_of_the_same_size_are_not_taken_for_the_same(folder, process):
    place = write_domains(folder / "domains")
    before = run(SETTING, "FedAvg", progress=False)
    exchange(place)
    if process == "another":
        forget()
    with pytest.raises(OtherSamples, match=before.about["data"]["sha256"]):
        run(SETTING, "FedAvg", progress=False)
    assert before.about["data"]["files"] == extent(str(place))
    exchange(place)
    assert run(SETTING, "FedAvg", progress=False).key == before.key


@pytest.mark.parametrize("process", ["this process", "another"])
def test_a_new_run_has_the_files_as_they_are_now(folder, process):
    """Also where they were loaded before the first run; and no run is gone on from that had them as they were."""
    place = write_domains(folder / "domains")
    first = load("domains").fingerprint
    exchange(place)
    short = run(SETTING.but(rounds=1), "FedAvg", progress=False)
    assert short.about["data"]["sha256"] != first
    exchange(place)
    if process == "another":
        forget()
    longer = run(SETTING, "FedAvg", progress=False)
    assert longer.about["data"]["sha256"] == first and "went_on_from" not in longer.about


def test_a_longer_run_asks_what_was_read_and_not_how_large_it_is(folder, capsys):
    """The shorter run's record is of other samples in as many bytes."""
    write_domains(folder / "domains")
    short = run(SETTING.but(rounds=1), "FedAvg", progress=False)
    short.entry.describe(short.about | {"data": short.about["data"] | {"sha256": "0" * 32}})
    assert "went_on_from" not in run(SETTING, "FedAvg", progress=False).about
    assert f"run {short.key} is not gone on from" in capsys.readouterr().err


def test_another_process_need_not_read_what_was_read_once(folder, monkeypatch):
    write_domains(folder / "domains")
    before = run(SETTING, "FedAvg", progress=False)
    forget()
    monkeypatch.setattr(sources, "held", lambda *a: pytest.fail("data were loaded"))
    assert run(SETTING, "FedAvg", progress=False).key == before.key


def test_without_a_note_the_samples_are_read_once_more(folder, monkeypatch):
    """A store that came from another machine, or one from before there were notes; then they are noted."""
    write_domains(folder / "domains")
    before = run(SETTING, "FedAvg", progress=False)
    (folder / data_identity.NOTES).unlink()
    forget()
    assert run(SETTING, "FedAvg", progress=False).key == before.key
    assert (folder / data_identity.NOTES).is_file()


def test_many_files_are_not_looked_at_for_every_run(folder, monkeypatch):
    place = write_domains(folder / "domains")
    monkeypatch.setattr(data_identity, "MANY", 10)
    forget()
    before = extent(str(place))
    monkeypatch.setattr(data_identity.os, "walk", lambda *a, **k: pytest.fail("looked again"))
    assert extent(str(place)) == before


def test_the_same_samples_in_another_folder_are_the_same(folder, tmp_path_factory, monkeypatch):
    """Another number of files, such as one that was left there, is a reason to look, not to refuse."""
    write_domains(folder / "domains")
    before = run(SETTING, "FedAvg", progress=False)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (write_domains(elsewhere / "domains") / "list.csv").write_text("left here")
    monkeypatch.setenv("FEDNB_DATA", str(elsewhere))
    assert extent(str(elsewhere / "domains")) != before.about["data"]["files"]
    assert run(SETTING, "FedAvg", progress=False).weights_sha256 == before.weights_sha256


def test_without_data_a_finished_run_is_there_and_is_not_loaded(folder, monkeypatch):
    place = write_domains(folder / "domains")
    before = run(SETTING, "FedAvg", progress=False)
    monkeypatch.setattr(sources, "held", lambda *a: pytest.fail("data were loaded"))
    assert run(SETTING, "FedAvg", progress=False).key == before.key
    shutil.rmtree(place)
    assert run(SETTING, "FedAvg", progress=False).key == before.key


def test_a_run_from_before_fingerprints_is_taken_as_it_is(folder):
    place = write_domains(folder / "domains")
    before = run(SETTING, "FedAvg", progress=False)
    before.entry.describe({name: value for name, value in before.about.items() if name != "data"})
    change(place)
    assert torch.equal(run(SETTING, "FedAvg", progress=False).w, before.w)


def test_captions_say_what_is_particular_about_the_data(folder):
    write_domains(folder / "domains")
    assert provenance([run(SETTING, "FedAvg", progress=False)]).endswith("; domains 0 photo, 1 sketch; 3 classes")
    plain = Setting(clients=2, participation=1.0, rounds=1, epochs=1, samples=60)
    assert ";" not in provenance([run(plain, "FedAvg", progress=False)])
