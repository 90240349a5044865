"""Many runs in one process: each is the run that it would be alone, and an interrupted table goes on."""

import threading

import pandas as pd
import pytest

import fednb as fn
from fednb.base.locks import lock
from fednb.base.processes.ending import DeviceFailed
from fednb.engines.stacked import SharedSteps
from fednb.runs import together
from fednb.runs.experiment import run, run_of
from fednb.runs.grid import Grid
from fednb.runs.together import Wanted, run_all

SETTING = fn.Setting(samples=120, clients=4, rounds=3, epochs=1, batch=15, precision="fp64",
                     partition="dirichlet(alpha=0.3, minimum=4)")  # fmt: skip
FEDAVG, SCAFFOLD = fn.method("FedAvg"), fn.method("SCAFFOLD")
WANTED = [Wanted(SETTING, m, seed) for m in (FEDAVG, SCAFFOLD) for seed in (0, 1)]
COLUMNS = ["round", "accuracy", "test_loss", "train_loss", "drift", "gradient_evaluations", "bytes_down", "bytes_up"]


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    return tmp_path


def numbers(made):
    return made.history[COLUMNS]


def made_alone(monkeypatch, folder):
    monkeypatch.setenv("FEDNB_STORE", str(folder))
    return [run(w.setting, w.method, w.seed, engine="loop", progress=False) for w in WANTED]


@pytest.mark.parametrize("at_once, engine", [(1, "loop"), (4, "stacked"), (2, "auto")])
def test_each_run_is_the_one_that_it_would_be_alone(monkeypatch, store, at_once, engine):
    """Keys, histories and weights; several at a time in lanes that they share, or one after another."""
    found = dict(run_all(WANTED, engine=engine, device="cpu", at_once=at_once))
    weights = {at: r.w for at, r in found.items()}
    alone = made_alone(monkeypatch, store / "other")
    assert sorted(found) == [0, 1, 2, 3]
    for at, wanted in enumerate(alone):
        assert (found[at].key, found[at].status) == (wanted.key, "finished")
        pd.testing.assert_frame_equal(numbers(found[at]), numbers(wanted), rtol=0, atol=1e-10)
        assert (weights[at] - wanted.w).abs().max() < 1e-12


@pytest.mark.parametrize("name", ["FedFSA", "FedCR"])
def test_personal_runs_beside_each_other_are_tuned_as_alone(monkeypatch, store, name):
    """Each client's own model, tuned in the end, with weight decay; two seeds in lanes that they share."""
    setting = SETTING.but(evaluation="personal", tune_epochs=2, weight_decay=0.05)
    wanted = [Wanted(setting, fn.method(name), seed) for seed in (0, 1)]
    found = dict(run_all(wanted, engine="stacked", device="cpu", at_once=2))
    monkeypatch.setenv("FEDNB_STORE", str(store / "other"))
    for at, each in enumerate(wanted):
        alone = run(each.setting, each.method, each.seed, engine="loop", progress=False)
        pd.testing.assert_frame_equal(numbers(found[at]), numbers(alone), rtol=0, atol=1e-10)
        assert found[at].history["tuned"].iloc[-1] == 1


@pytest.mark.parametrize("at_once", [1, 2])
def test_no_round_is_begun_after_the_time_and_the_next_call_goes_on(monkeypatch, store, at_once):
    """The clock jumps when the first run has its second round: each keeps what it has, nothing is given."""
    clock = [0.0]
    monkeypatch.setattr(together.time, "monotonic", lambda: clock[0])

    def second_round(at, row):
        clock[0] += row["round"] == 1

    kept = list(run_all(WANTED[:2], engine="stacked", device="cpu", at_once=at_once, until=1.0, on_round=second_round))
    saved = [len(run_of(w.setting, w.method, w.seed).rows) for w in WANTED[:2]]
    assert kept == [] and sorted(saved) in ([[0, 2]] if at_once == 1 else [[1, 2], [2, 2]])
    assert list(run_all(WANTED[:2], device="cpu", at_once=at_once, until=1.0)) == [], "no time, no run"
    monkeypatch.undo()
    monkeypatch.setenv("FEDNB_STORE", str(store / "store"))
    seen = []
    found = dict(run_all(WANTED[:2], engine="stacked", device="cpu", at_once=at_once,
                         on_round=lambda at, row: seen.append((at, row["round"]))))  # fmt: skip
    assert sorted(found) == [0, 1] and sorted(set(seen)) == [(at, t) for at in (0, 1) for t in range(3)]
    for at, wanted in enumerate(made_alone(monkeypatch, store / "other")[:2]):
        pd.testing.assert_frame_equal(numbers(found[at]), numbers(wanted), rtol=0, atol=1e-10)


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_run_that_fails_is_told_and_the_others_are_made(at_once):
    bad = Wanted(SETTING.but(model="small-cnn-bn"), FEDAVG, 0)  # cannot be stacked
    found = dict(run_all([WANTED[0], bad, WANTED[1]], engine="stacked", device="cpu", at_once=at_once))
    assert "BatchNorm" in str(found[1]) and isinstance(found[1], ValueError)
    assert [found[at].status for at in (0, 2)] == ["finished", "finished"]


LASTING = "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' in the manual."


@pytest.mark.parametrize("at_once", [1, 2])
def test_after_the_device_has_failed_no_other_run_is_begun(at_once):
    """The first run meets it in its second round and goes on in another call; one beside it ends before its time."""
    wanted = [WANTED[0], Wanted(SETTING.but(rounds=500), FEDAVG, 1), *WANTED[2:]]
    begun, failing = set(), [True]

    def on_round(at, row):
        begun.add(at)
        if failing and at == 0 and row["round"] == 1:
            raise RuntimeError(LASTING)

    found = dict(run_all(wanted, engine="stacked", device="cpu", at_once=at_once, on_round=on_round))
    assert list(found) == [0] and isinstance(found[0], DeviceFailed) and max(begun) < at_once
    assert str(found[0]) == (
        "the GPU has failed (CUDA error: an illegal memory access was encountered); "
        "the same command goes on after the last saved rounds"
    )
    failing.clear()
    assert len(run_of(SETTING, FEDAVG, 0).rows) == 2
    [(_, again)] = run_all(wanted[:1], engine="stacked", device="cpu", at_once=at_once, on_round=on_round)
    assert again.status == "finished"


def test_a_grid_whose_device_has_failed_does_not_try_its_runs_one_by_one(monkeypatch):
    grid = Grid.of("two", "smoke", {"setting": SETTING.plain(), "methods": ["FedAvg"], "seeds": [0, 1]})
    monkeypatch.setattr("fednb.runs.grid.run_all", lambda wanted, **how: [(0, DeviceFailed(RuntimeError(LASTING)))])
    monkeypatch.setattr("fednb.runs.grid.device_of", lambda device: type("Device", (), {"type": "cuda"}))
    with pytest.raises(DeviceFailed, match="illegal memory access"):
        grid.run(device="cpu")
    assert run_of(SETTING, FEDAVG, 0).rows == []


def test_whoever_stops_listening_stops_the_runs_and_loses_no_round():
    """As an interrupt does: threads end after their round, and what they have is saved."""
    long = [Wanted(SETTING.but(rounds=1), FEDAVG, 0), Wanted(SETTING.but(rounds=500), FEDAVG, 1)]
    listening = run_all(long, engine="stacked", device="cpu", at_once=2)
    at, first = next(listening)
    assert at == 0 and first.status == "finished"
    listening.close()
    rest = run_of(long[1].setting, FEDAVG, 1)
    assert rest.status == "running" and 0 < len(rest.rows) < 500
    with lock(rest.entry.folder / "lock", wait=False):
        pass  # nobody is at work on it any more


@pytest.fixture
def begun_early(monkeypatch):
    """Memory for runs that are begun early, and who asked for lanes: FedAvg's runs wait until SCAFFOLD's first has."""
    scaffold = threading.Event()
    plain = SharedSteps.lanes_for

    def noting(self, trip, *rest):
        lanes = plain(self, trip, *rest)
        if trip.method == SCAFFOLD:
            scaffold.set()
        return lanes

    monkeypatch.setattr(SharedSteps, "lanes_for", noting)
    monkeypatch.setattr(together, "_has_room", lambda device: True)
    return scaffold


def test_steps_of_another_kind_are_made_before_it_is_their_turn(monkeypatch, store, begun_early):
    """Two at a time: SCAFFOLD's lanes are there before FedAvg's runs end, and its rounds come after one has ended."""
    rows = []

    def on_round(at, row):
        rows.append((at, row["round"]))
        if WANTED[at].method == FEDAVG and row["round"] == 1:
            assert begun_early.wait(60)

    found = dict(run_all(WANTED, engine="stacked", device="cpu", at_once=2, on_round=on_round))
    first, last = rows.index((2, 0)), min(rows.index((0, 2)), rows.index((1, 2)))
    assert last < first
    for at, wanted in enumerate(made_alone(monkeypatch, store / "other")):
        pd.testing.assert_frame_equal(numbers(found[at]), numbers(wanted), rtol=0, atol=1e-10)


def test_a_run_that_waits_for_its_turn_ends_with_the_time(monkeypatch, begun_early):
    """It has taken no round, and the next call makes it."""
    clock = [0.0]
    monkeypatch.setattr(together.time, "monotonic", lambda: clock[0])

    def on_round(at, row):
        assert begun_early.wait(60)
        clock[0] = 2.0

    assert list(run_all(WANTED, engine="stacked", device="cpu", at_once=2, until=1.0, on_round=on_round)) == []
    assert run_of(SETTING, SCAFFOLD, 0).rows == []
    assert len(dict(run_all(WANTED, engine="stacked", device="cpu", at_once=2))) == 4


def test_a_grid_on_a_gpu_makes_its_missing_runs_together(monkeypatch):
    """Those that are there are not made again; one that fails is met again where it is made by itself."""
    grid = Grid.of("two", "smoke", {"setting": SETTING.plain(), "methods": ["FedAvg"], "seeds": [0, 1, 2]})
    run(SETTING, FEDAVG, 1, progress=False)
    asked = []

    def pretend(wanted, **how):
        asked.append([w.seed for w in wanted])
        yield 0, run(wanted[0].setting, wanted[0].method, wanted[0].seed, progress=False)
        yield 1, RuntimeError("no room")

    monkeypatch.setattr("fednb.runs.grid.run_all", pretend)
    monkeypatch.setattr("fednb.runs.grid.device_of", lambda device: type("Device", (), {"type": "cuda"}))
    done = grid.run(device="cpu")
    assert asked == [[0, 2]] and [r.status for r in done.runs] == ["finished"] * 3


def test_what_a_run_shared_with_nobody_who_is_left_is_forgotten(monkeypatch):
    """Lanes of FedAvg when its second run has ended; those of runs that are to come, never."""
    kept, plain = [], SharedSteps.keep_only

    def keep_only(self, methods):
        plain(self, methods)
        kept.append(({m.name for m in methods}, {lanes.method.name for lanes in self.known}))

    monkeypatch.setattr(SharedSteps, "keep_only", keep_only)
    list(run_all(WANTED, engine="stacked", device="cpu", at_once=2))
    assert [wanted for wanted, _ in kept] == [{"FedAvg", "SCAFFOLD"}, {"SCAFFOLD"}, {"SCAFFOLD"}]
    assert "FedAvg" in kept[0][1] and kept[-1][1] == {"SCAFFOLD"}


@pytest.mark.parametrize(
    "of_each, several, wanted",
    [
        ([3, 3], 6, [(3, 2)] * 6),
        ([3, 3], 3, [(3, 1), (3, 2), (3, 2), (3, 2), (3, 2), (3, 1)]),
        ([6], 6, [(6, 1)] * 6),
        ([9], 6, [(6, 1)] * 6 + [(3, 1)] * 3),
        ([3, 3, 0, 0, 2, 2], 6, [(3, 2)] * 6 + [(2, 2)] * 4),
        ([1, 1, 1, 1], 2, [(1, 2)] * 4),
        ([4, 1], 2, [(2, 1), (2, 1), (2, 1), (2, 2), (1, 2)]),
    ],
)
def test_runs_of_a_kind_and_kinds_that_are_at_work_at_a_time(of_each, several, wanted):
    """Lanes are made for those who train in them at a time, not for all that there will be."""
    methods = [fn.method(name) for name in ("FedAvg", "SCAFFOLD", "FedDyn", "FedSAM")]
    runs = [Wanted(SETTING, methods[i % 4], seed) for i, many in enumerate(of_each) for seed in range(many)]
    line = together._Line(together._Work(runs, "cpu", "auto", None, None), several)
    assert [line.beside(at) for at in range(len(runs))] == wanted
