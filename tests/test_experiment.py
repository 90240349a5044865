"""Runs: kept by content, resumed bit for bit, honest about divergence, never at work twice."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from interrupts import Stop, stop_after

from fednb.algorithms.catalogue import CATALOGUE, method
from fednb.base.files import load_tensors
from fednb.core.record import Server, Table
from fednb.engines.setting import Setting
from fednb.runs import experiment
from fednb.runs.checkpoints import Checkpoints
from fednb.runs.experiment import run, run_of
from fednb.runs.store import Entry, UnknownRun, find

SMALL = Setting(
    clients=4, participation=0.5, rounds=4, epochs=1, batch=50, samples=300, partition="dirichlet(alpha=0.5)"
)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    return tmp_path


def test_the_clock_of_a_round_stops_when_the_device_is_done(monkeypatch):
    """A GPU answers before it has worked: without waiting, the seconds of a run would be those of giving orders."""
    order = []
    monkeypatch.setattr(experiment, "wait_for", lambda device: order.append(str(device)))
    clock = iter(range(1000))
    monkeypatch.setattr(experiment.time, "perf_counter", lambda: order.append("clock") or next(clock))
    run(SMALL.but(rounds=2), "FedAvg", 0, progress=False)
    rounds = [i for i, what in enumerate(order) if what == "cpu"]
    assert len(rounds) == 2
    assert all(order[i - 1] == order[i + 1] == "clock" for i in rounds)


def interrupted(setting, name, rounds, **how):
    with pytest.raises(Stop):
        run(setting, name, progress=stop_after(rounds), **how)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_method_resumes_exactly(name, store, monkeypatch):
    whole = run(SMALL, name, progress=False, engine="loop")
    monkeypatch.setenv("FEDNB_STORE", str(store / "other"))
    interrupted(SMALL, name, 2, engine="loop")
    assert run_of(SMALL, method(name), 0).status == "running"
    resumed = run(SMALL, name, progress=False, engine="loop")
    assert resumed.weights_sha256 == whole.weights_sha256
    without = [{k: v for k, v in row.items() if k != "seconds"} for row in resumed.rows]
    assert without == [{k: v for k, v in row.items() if k != "seconds"} for row in whole.rows]


def test_a_finished_run_is_not_run_again(monkeypatch):
    first = run(SMALL, "FedAvg", progress=False)
    monkeypatch.setattr("fednb.runs.experiment.choose", lambda *a, **k: pytest.fail("it trained again"))
    again = run(SMALL, "FedAvg", progress=False)
    assert again.key == first.key and again.weights_sha256 == first.weights_sha256


def test_what_changes_numbers_changes_the_key_and_reporting_does_not():
    key = run_of(SMALL, method("FedSAM"), 0).key
    others = [
        run_of(SMALL, method("FedSAM"), 1),
        run_of(SMALL, method("FedSAM", rho=0.2), 0),
        run_of(SMALL.but(lr=0.2), method("FedSAM"), 0),
        run_of(SMALL.but(partition="dirichlet(alpha=0.6)"), method("FedSAM"), 0),
    ]
    assert key not in {r.key for r in others} and len({r.key for r in others}) == 4
    assert run_of(SMALL.but(report="last"), method("FedSAM"), 0).key == key


def test_history_counts_what_was_done():
    """Each step is one gradient for FedAvg and two for FedSAM; SCAFFOLD sends two vectors each way."""
    runs = {name: run(SMALL, name, progress=False).rows[0] for name in ("FedAvg", "FedSAM", "SCAFFOLD")}
    assert runs["FedSAM"]["gradient_evaluations"] == 2 * runs["FedAvg"]["gradient_evaluations"]
    weights = 22_602  # cnn-small on 8x8: 160 + 4640 + 16512 + 1290
    assert runs["FedAvg"]["bytes_down"] == runs["FedAvg"]["bytes_up"] == 2 * 4 * weights
    assert runs["SCAFFOLD"]["bytes_down"] == runs["SCAFFOLD"]["bytes_up"] == 4 * 4 * weights


def test_divergence_is_recorded_not_raised():
    """A rate of 1e20 without a clip overflows: the run ends, says so, and stays ended."""
    wild = run(SMALL.but(lr=1e20, clip_norm=None), "FedAvg", progress=False)
    assert wild.status == "diverged" and len(wild.rows) < SMALL.rounds
    assert wild.accuracy_last is None
    assert run(SMALL.but(lr=1e20, clip_norm=None), "FedAvg", progress=False).about["ended"] == wild.about["ended"]


def test_a_crash_between_state_and_status_is_mended():
    done = run(SMALL, "FedDyn", progress=False)
    about = done.entry.about()
    done.entry.describe(about | {"status": "running"})
    again = run(SMALL, "FedDyn", progress=False)
    assert again.status == "finished" and again.weights_sha256 == done.weights_sha256


def test_the_folder_says_where_the_numbers_come_from():
    about = run(SMALL, "FedFFT", seed=3, progress=False).about
    assert about["seed"] == 3 and about["setting"]["samples"] == 300 and "HighPass" in about["parts"]
    assert {"fednb", "torch", "numpy", "python"} <= set(about["versions"])


def test_only_rows_of_the_last_state_are_kept_per_client():
    done = run(SMALL, "SCAFFOLD", progress=False)
    files = sorted(p.name for p in (done.entry.folder / "clients").iterdir())
    versions = json.loads(load_tensors(done.entry.folder / "state.safetensors")[1]["clients"])
    assert files == sorted(f"{int(i):05d}-{v:06d}.safetensors" for i, v in versions.items())


def test_runs_are_found_by_the_beginning_of_their_key():
    done = run(SMALL, "FedAvg", progress=False)
    assert find(done.key[:5]).key == done.key
    with pytest.raises(UnknownRun, match="no run 'zz' among 1"):
        find("zz")


def test_evaluation_can_be_rarer_but_the_last_round_counts():
    rows = run(SMALL.but(evaluate_every=3), "FedAvg", progress=False).rows
    assert [row["accuracy"] is not None for row in rows] == [False, False, True, True]


def command(*more, store):
    base = [sys.executable, "-m", "fednb.cli.commands", "run", "SCAFFOLD", "--clients", "4", "--participation", "1.0",
            "--samples", "400", "--rounds", "6", "--epochs", "6", "--engine", "pool", "--workers", "2", "--quiet",
            "--json"]  # fmt: skip
    return [*base, *more], {**os.environ, "FEDNB_STORE": str(store)}


DIES = """
import os, signal, sys, time
from pathlib import Path
from fednb.cli.commands import main
from fednb.engines.crew import Crew

deal = Crew.deal

def half(crew, messages, **how):
    if messages[0][0] == "train" and messages[0][2] == 3:
        deal(crew, messages[:2], **how)
        while not list(Path(os.environ["FEDNB_STORE"]).glob("runs/*/state.safetensors")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    return deal(crew, messages, **how)

Crew.deal = half
sys.exit(main())
"""


def test_kill_9_in_mid_round_then_the_same_command_gives_the_same_bits(tmp_path):
    """The process dies when two clients of the fourth round are trained and two are not; the second call goes on
    after the last round that was saved and ends with the same weights."""
    argv, env = command("--engine", "loop", store=tmp_path / "whole")  # no workers to wait for, and the same bits
    whole = json.loads(subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout)
    argv, env = command(store=tmp_path / "broken")
    killed = subprocess.run([sys.executable, "-c", DIES, *argv[3:]], env=env, stdout=subprocess.DEVNULL)
    finished = len(Entry(whole["key"], tmp_path / "broken" / "runs" / whole["key"]).history())
    assert killed.returncode == -signal.SIGKILL and 1 <= finished <= 3
    mended = json.loads(subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout)
    assert mended["weights_sha256"] == whole["weights_sha256"]
    assert mended["accuracy_last"] == whole["accuracy_last"] and mended["rounds"] == 6


def test_the_same_key_is_never_at_work_twice(tmp_path):
    """Two processes start the same run at once: one trains, the other waits, and each round is made once."""
    argv, env = command(store=tmp_path)
    both = [subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in (1, 2)]
    said = [p.communicate() for p in both]
    left, right = (json.loads(out) for out, _ in said)
    assert left == right
    assert sum("waiting for it" in err for _, err in said) == 1


class Slow:
    """A store where saving takes a second, and a clock that knows."""

    def __init__(self, monkeypatch):
        self.now, self.saved = 0.0, []
        monkeypatch.setattr("fednb.runs.checkpoints.time.monotonic", lambda: self.now)

    def save(self, s, rows, changed, history):
        self.now += 1.0
        self.saved.append((s.t, changed, len(history), {i: row["c"].item() for i, row in rows.clients.items()}))


def test_saving_takes_a_20th_of_the_time(monkeypatch):
    """Rounds of two seconds, saves of one: the first is saved, the next after 40 s, when two are a 20th, the
    next after 60 s, each with all that changed since; and what is left at the end."""
    slow, history = Slow(monkeypatch), []
    one = torch.zeros(1)
    s, table = Server(one, torch.zeros(0), {}, t=0, N=9, lr=1.0), Table({"c": one})
    with pytest.raises(Stop), Checkpoints(slow, s, table, history) as checkpoints:
        for t in range(31):
            slow.now += 2.0
            table.scatter([t], {"c": torch.full((1, 1), float(t))})
            s.t += 1
            history.append({"round": t})
            checkpoints.finished([t])
        s.t = 99  # a round that is not over
        raise Stop
    assert [(t, changed, rows) for t, changed, rows, _ in slow.saved] == [
        (1, [0], 1), (20, [*range(1, 20)], 20), (29, [*range(20, 29)], 29), (31, [29, 30], 31),
    ]  # fmt: skip
    assert slow.saved[-1][-1] == {29: 29.0, 30: 30.0}


def test_half_written_files_are_never_seen(tmp_path):
    """Files appear under their name only when complete: leftovers of a kill have another name."""
    done = run(SMALL, "FedAvg", progress=False)
    (done.entry.folder / ".state.safetensors.7-0123abcd.new").write_bytes(b"half")
    (done.entry.folder / ".history.csv.7-0123abcd.new").write_text("rou")
    assert run(SMALL, "FedAvg", progress=False).weights_sha256 == done.weights_sha256
    assert isinstance(done.entry.folder, Path)
