"""The store notices damage: no file of a run is used that is not what was written, and every message names it."""

import json
import pickle
import random
import shutil

import pytest
import torch
from interrupts import Stop, stop_after

from fednb.algorithms.catalogue import method
from fednb.base import files
from fednb.engines.setting import Setting
from fednb.metrics import cache as once
from fednb.runs import probes
from fednb.runs.experiment import run, run_of
from fednb.runs.grid import Cell, Grid
from fednb.runs.probes import Probe
from fednb.runs.store import (
    DamagedRun,
    DamagedRuns,
    Entry,
    NoWeights,
    StoreError,
    entries,
    find,
    home,
    load_measurement,
    set_aside,
    weights_digest,
)

SMALL = Setting(
    clients=4, participation=0.5, rounds=4, epochs=1, batch=50, samples=300, partition="dirichlet(alpha=0.5)"
)
PROBE = Probe(("global",), rounds=(0, 1, 3))


def made(seed=0, stopped=None, name="SCAFFOLD", setting=SMALL, **how):
    watch = stop_after(stopped) if stopped else False
    try:
        return run(setting, name, seed, engine="loop", device="cpu", probe=PROBE, progress=watch, **how)
    except Stop:
        return run_of(setting, method(name), seed, PROBE)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store with two finished runs (seeds 0, 1; the first with a measurement) and one after two rounds (seed 2)."""
    folder = tmp_path_factory.mktemp("original")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(folder))
        asked(made(0))
        made(1), made(2, stopped=2)
    return folder


@pytest.fixture(autouse=True)
def store(original, tmp_path, monkeypatch):
    shutil.copytree(original, tmp_path / "store")
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


def stored(seed):
    return run_of(SMALL, method("SCAFFOLD"), seed, PROBE)


def asked(done):
    return once.Question(done, "made", 1, {"samples": 20}).answer(lambda: {"value": torch.tensor(3.0)})


def everything(done):
    """All that can be read of a run."""
    state = sorted(done.entry.weights().items())
    return (done.status, done.rows, done.weights_sha256, *(x for _, x in state),
            *(kept.vectors["global"] for kept in done.all_probed(PROBE)))  # fmt: skip


DAMAGE = {
    "a bit": lambda path: flip(path, 0.5),
    "the first bit": lambda path: flip(path, 0.0),
    "the last bit": lambda path: flip(path, 1.0),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "two bytes less": lambda path: path.write_bytes(path.read_bytes()[:-2]),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "missing": lambda path: path.unlink(),
}


def flip(path, where, bit=0):
    data = bytearray(path.read_bytes())
    data[int(where * (len(data) - 1))] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["run.json", "history.csv", "state.safetensors", "probes/round-000001.safetensors"])
def test_a_finished_run_that_is_damaged_is_never_read_in_silence(name, damage):
    done = stored(0)
    everything(done)
    DAMAGE[damage](done.entry.folder / name)
    with pytest.raises(DamagedRun) as error:
        everything(stored(0))
    said = str(error.value)
    assert str(done.entry.folder / name) in said and "\n" not in said and "lost: the " in said
    assert f"`fednb store check --repair {done.key}`" in said


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["run.json", "history.csv", "state.safetensors", "clients/*", "probes/*"])
def test_an_interrupted_run_that_is_damaged_does_not_go_on(name, damage):
    """Where its probe is broken and not missing, the run may go on: the probe is noticed when it is read."""
    path = sorted(stored(2).entry.folder.glob(name))[0]
    DAMAGE[damage](path)
    with pytest.raises(DamagedRun, match=path.name):
        everything(made(2))


def test_what_is_lost_is_said():
    done = stored(0)
    flip(done.entry.state, 0.5)
    with pytest.raises(DamagedRun, match="lost: the run's 4 finished rounds"):
        done.entry.weights()
    flip(probes.path_of(done.entry, 1), 0.5)
    with pytest.raises(DamagedRun, match="lost: the probe of round 1"):
        done.probed(1)


@pytest.mark.parametrize("seed, name", [
    (0, "run.json"), (0, "history.csv"), (0, "state.safetensors"), (0, "probes/round-000001.safetensors"),
    (2, "run.json"), (2, "history.csv"), (2, "state.safetensors"), (2, "clients/*"), (2, "probes/round-000001*"),
])  # fmt: skip
def test_a_single_bit_anywhere_is_noticed(seed, name):
    """Fifty bits of each file, drawn by a seed; after each of them the file is put back."""
    draw = random.Random(7)
    path = sorted(stored(seed).entry.folder.glob(name))[0]
    whole = path.read_bytes()
    for _ in range(50):
        flip(path, draw.random(), draw.randrange(8))
        with pytest.raises(DamagedRun, match=path.name):
            everything(stored(seed)) if seed == 0 else everything(made(seed))
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["run.json", "state.safetensors", "history.csv", "probes/round-000001.safetensors"])
def test_another_runs_file_is_noticed(name):
    mine, other = stored(0).entry.folder, stored(1).entry.folder
    shutil.copy(other / name, mine / name)
    with pytest.raises(DamagedRun, match=name):
        everything(stored(0))


def test_another_rounds_probe_is_noticed():
    entry = stored(0).entry
    shutil.copy(probes.path_of(entry, 0), probes.path_of(entry, 1))
    with pytest.raises(DamagedRun, match="is the probe of round 0"):
        stored(0).probed(1)


def test_another_clients_row_is_noticed():
    left, right, *_ = sorted((stored(2).entry.folder / "clients").iterdir())
    shutil.copy(left, right)
    with pytest.raises(DamagedRun, match=f"{right.name}: is of client 0"):
        made(2)


def test_a_row_of_the_same_client_and_round_from_elsewhere_is_noticed():
    """Written with the right words and a digest of its own, but not by the save that the state belongs to."""
    path = sorted((stored(2).entry.folder / "clients").iterdir())[0]
    row, about = files.load_tensors(path)
    files.save_tensors(path, {name: x + 1 for name, x in row.items()}, about)
    with pytest.raises(DamagedRun, match="is not the file that the run's state was saved with"):
        made(2)


def rewritten(entry, change):
    """The run's state with something changed, and with a digest that fits."""
    state, about = files.load_tensors(entry.state)
    files.save_tensors(entry.state, change(state), about)


@pytest.mark.parametrize("change, said", [
    (lambda s: {n: x for n, x in s.items() if n != "c"}, "has b, w where the method needs b, c, w"),
    (lambda s: s | {"extra": torch.zeros(1)}, "has b, c, extra, w where"),
    (lambda s: s | {"c": torch.zeros(3)}, r"c is float32 \(3,\), and the method needs float32 \(22602,\)"),
    (lambda s: s | {"c": s["c"].double()}, "c is float64 .*needs float32"),
])  # fmt: skip
def test_a_state_must_fit_the_method_and_the_model(change, said):
    rewritten(stored(2).entry, change)
    with pytest.raises(DamagedRun, match=said):
        made(2)


@pytest.mark.parametrize("row, said", [
    ({}, "has  where the method needs c_k"),
    ({"c_k": torch.zeros(7)}, r"c_k is float32 \(7,\)"),
])  # fmt: skip
def test_a_row_must_fit_the_method_and_the_model(row, said):
    entry = stored(2).entry
    path = sorted((entry.folder / "clients").iterdir())[0]
    digest = files.save_tensors(path, row, files.load_tensors(path)[1])
    state, about = files.load_tensors(entry.state)
    about["rows"] = json.dumps(json.loads(about["rows"]) | {"0": digest})
    files.save_tensors(entry.state, state, about)
    with pytest.raises(DamagedRun, match=said):
        made(2)


def test_the_weights_digest_is_recorded_and_not_recomputed():
    """A state with other weights and a digest of its own is not what the run ended with."""
    done = stored(0)
    assert done.weights_sha256 == weights_digest(done.w, done.entry.weights()["b"])
    before = done.weights_sha256
    rewritten(done.entry, lambda s: s | {"w": s["w"] + 1})
    assert stored(0).weights_sha256 == before
    with pytest.raises(DamagedRun, match="has other weights than were recorded when the run ended"):
        stored(0).w  # noqa: B018


def test_a_history_has_a_row_for_every_round():
    """A history and its digest that fit each other are not enough."""
    entry = stored(0).entry
    about, data = entry.about(), (entry.folder / "history.csv").read_bytes()
    fewer = b"\n".join(data.split(b"\n")[:-2]) + b"\n"
    (entry.folder / "history.csv").write_bytes(fewer)
    entry.describe(about | {"history": {"rows": 3, "bytes": len(fewer), "sha256": files.digest(fewer)}})
    with pytest.raises(DamagedRun, match=r"history.csv: has not one row for each of the 4 finished rounds"):
        entry.history()


def test_measurements_that_are_damaged_are_made_again_and_it_is_said(capsys):
    done = stored(0)
    (file,) = (done.entry.folder / "measured").iterdir()
    for damage in DAMAGE:
        DAMAGE[damage](file)
        assert asked(done) == {"value": torch.tensor(3.0)}
        said = capsys.readouterr().err
        assert said.count("\n") == (damage != "missing")
        assert damage == "missing" or (f"{file}: " in said and "one measurement, which is made again" in said)
        assert load_measurement(done.entry, file, {}) is not None, "it was not kept again"


def test_another_runs_measurement_is_made_again(capsys):
    """Its name says what is asked of which run; the words inside must say the same."""
    left, right = stored(0), stored(1)
    asked(right)
    (mine,), (other,) = ((r.entry.folder / "measured").iterdir() for r in (left, right))
    shutil.copy(other, mine)
    assert load_measurement(left.entry, mine, {}) is None
    assert f"belongs to run {right.key}" in capsys.readouterr().err
    asked(left)
    copied = mine.with_name("made-other.safetensors")
    shutil.copy(mine, copied)
    assert load_measurement(left.entry, copied, {"question": "another"}) is None
    assert "has another measurement in it" in capsys.readouterr().err


def grid(*seeds):
    m = method("SCAFFOLD")
    return Grid("small", "smoke", tuple(Cell(SMALL, m, seed, {"data": "digits"}) for seed in seeds), PROBE)


def test_a_grid_goes_on_past_damaged_runs_and_names_them_all():
    flip(stored(0).entry.folder / "run.json", 0.5)
    flip(stored(2).entry.state, 0.5)
    with pytest.raises(DamagedRuns) as error:
        grid(0, 2, 3, 1).run(device="cpu", engine="loop")
    said = str(error.value)
    assert stored(3).status == "finished", "a run behind the damaged ones was not made"
    assert said.startswith("2 damaged") and "run.json" in said and "state.safetensors" in said and "\n" not in said
    assert f"--repair {stored(0).key} {stored(2).key}`" in said
    assert grid(0, 1).status()["status"].tolist() == ["damaged", "finished"]


def test_errors_travel_between_processes():
    error = pickle.loads(pickle.dumps(DamagedRun("abc", home() / "x", "is missing", "all")))
    assert (error.key, error.path, str(error)) == ("abc", home() / "x", str(error)) and "x: is missing" in str(error)
    assert str(pickle.loads(pickle.dumps(DamagedRuns([error])))) == str(DamagedRuns([error]))


def without_digests(entry):
    """The run as versions before digests wrote it."""
    about = entry.about()
    old = {name: value for name, value in about.items() if name not in ("history", "weights_sha256", "round", "saved")}
    for path in entry.folder.rglob("*.safetensors"):
        tensors, words = files.load_tensors(path)
        kept = {name: value for name, value in words.items() if name in ("round", "clients", "layout")}
        files.atomically(path, files.bytes_of(tensors, metadata=kept))
    (entry.folder / "run.json").write_text(json.dumps(old))


def test_an_older_store_is_read_and_marked_unchecked():
    before = everything(stored(0))
    without_digests(stored(0).entry)
    assert "unchecked" in stored(0).about
    after = everything(stored(0))
    assert after[:3] == before[:3]
    assert all(torch.equal(a, b) for a, b in zip(after[3:], before[3:], strict=True))


def test_an_older_interrupted_run_goes_on_and_stays_unchecked(original, monkeypatch):
    """What was loaded without a digest says so for ever; what is saved from then on has one."""
    whole = made(2)
    shutil.rmtree(whole.entry.folder)
    shutil.copytree(original / "runs" / whole.key, whole.entry.folder)
    without_digests(whole.entry)
    again = made(2)
    assert again.weights_sha256 == whole.weights_sha256 and "unchecked" in again.about
    assert [row["round"] for row in again.rows] == [0, 1, 2, 3]
    flip(again.entry.state, 0.5)
    with pytest.raises(DamagedRun):
        again.entry.weights()


def test_a_file_that_lost_its_digest_is_not_taken_for_an_old_one():
    entry = stored(0).entry
    tensors, words = files.load_tensors(entry.state)
    files.atomically(entry.state, files.bytes_of(tensors, metadata=words))
    with pytest.raises(DamagedRun, match="has lost its digest"):
        entry.weights()


def test_a_bare_run_has_its_numbers_and_no_weights():
    """As evidence is archived: run.json that says so, and history.csv."""
    done = stored(0)
    accuracy, digest, rows = done.accuracy, done.weights_sha256, done.rows
    for name in ("state.safetensors", "writer", "lock"):
        (done.entry.folder / name).unlink()
    for name in ("clients", "probes", "measured"):
        shutil.rmtree(done.entry.folder / name)
    done.entry.describe(done.about | {"weights": "left out"})
    bare = stored(0)
    assert (bare.accuracy, bare.weights_sha256, bare.rows) == (accuracy, digest, rows)
    assert made(0).status == "finished"
    with pytest.raises(NoWeights, match=f"run {done.key}: its weights were left out"):
        bare.w  # noqa: B018
    flip(bare.entry.folder / "history.csv", 0.5)
    with pytest.raises(DamagedRun, match=r"history.csv"):
        stored(0).rows  # noqa: B018


def test_a_run_without_a_finished_round_has_no_weights():
    with pytest.raises(NoWeights, match="no finished round"):
        stored(9).w  # noqa: B018
    entry = stored(9).entry
    files.new_folder(entry.folder)
    entry.describe({"key": entry.key, "status": "running"})
    assert entry.history() == []
    with pytest.raises(NoWeights, match="no finished round"):
        entry.weights()


def test_again_sets_the_old_run_aside_and_makes_it_anew(store):
    before = stored(0)
    assert (before.entry.folder / "measured").exists()
    began = before.about["started"]
    flip(before.entry.folder / "run.json", 0.3)
    damaged = (before.entry.folder / "run.json").read_bytes()
    after = made(0, again=True)
    assert after.key == before.key and after.status == "finished" and after.about["started"] >= began
    assert (store / "set-aside" / f"{after.key}-1" / "run.json").read_bytes() == damaged
    assert not (after.entry.folder / "measured").exists() and len(after.rows) == 4
    made(0, again=True)
    assert sorted(p.name for p in (store / "set-aside").iterdir()) == [f"{after.key}-1", f"{after.key}-2"]


def test_nothing_is_set_aside_over_what_is_there(store):
    """Names that are taken, by a folder with something in it or by a file, are left as they are."""
    entry = stored(0).entry
    (store / "set-aside" / f"{entry.key}-1").mkdir(parents=True)
    (store / "set-aside" / f"{entry.key}-2").write_text("mine")
    assert set_aside(entry.folder / "history.csv", entry.key) == store / "set-aside" / f"{entry.key}-3" / "history.csv"
    assert set_aside(entry.folder, entry.key) == store / "set-aside" / f"{entry.key}-4"
    assert (store / "set-aside" / f"{entry.key}-2").read_text() == "mine"
    assert not any((store / "set-aside" / f"{entry.key}-1").iterdir()) and not entry.folder.exists()


def test_a_run_that_lost_its_description_is_still_found():
    entry = stored(0).entry
    (entry.folder / "run.json").unlink()
    assert find(entry.key[:6]) == entry and entry in entries()


def test_a_file_that_cannot_be_read_is_named(monkeypatch):
    entry = stored(0).entry

    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(StoreError, match=r"run.json: cannot be read \(Permission denied\)"):
        entry.about()
    assert not isinstance(Entry.of("0").about(), StoreError)


def test_explorers_leave_damaged_runs_out_and_say_so(capsys):
    from fednb.show.explore.stored import on_disk

    assert len(list(on_disk("run.json"))) == 3
    flip(stored(0).entry.folder / "run.json", 0.5)
    flip(stored(1).entry.folder / "history.csv", 0.5)
    assert [run.key for run, _ in on_disk("run.json")] == [stored(2).key]
    said = capsys.readouterr().err
    assert said.count("\n") == 2 and f"{stored(0).key}/run.json" in said and f"{stored(1).key}/history.csv" in said


@pytest.mark.parametrize("damage", ["a bit", "half", "empty", "another plane", "another run"])
def test_a_damaged_landscape_is_made_again_and_it_is_said(damage, capsys):
    from fednb.show.explore.planes import Finished, Plane

    done, plane = stored(0), Plane(points=3)
    run = Finished(done.entry, SMALL, "SCAFFOLD", 0, "")
    plane._save(run, torch.ones(3, 3), 2)
    assert plane.load(run)[1] == 2 and torch.equal(plane.load(run)[0], torch.ones(3, 3))
    if damage == "another plane":
        Plane(points=3, seed=1)._save(run, torch.zeros(3, 3), 3)
        shutil.copy(Plane(points=3, seed=1).file(run), plane.file(run))
    elif damage == "another run":
        other = Finished(stored(1).entry, SMALL, "SCAFFOLD", 1, "")
        plane._save(other, torch.zeros(3, 3), 3)
        shutil.copy(plane.file(other), plane.file(run))
    else:
        DAMAGE[damage](plane.file(run))
    assert plane.load(run)[1] == 0 and plane.load(run)[0].isnan().all()
    assert f"{plane.file(run)}: " in capsys.readouterr().err
