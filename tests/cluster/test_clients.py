"""Workers with stores and data of their own, runs that fail, clients that end too early; what status tells."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial

import pytest

from cluster.grids import Asking, assert_free, grid_of, keys, weights, weights_of_one_process
from cluster.machines import HERE, PATIENCE, wait_until
from fednb.cli.commands import main
from fednb.runs.cluster.status import summary
from fednb.runs.own_grid import grid_of_file

pytestmark = pytest.mark.cluster

OWN = """
seeds = [{seeds}]
methods = {methods}
[setting]
data = "digits"
samples = 200
clients = 4
participation = 1.0
rounds = {rounds}
epochs = 1
batch = 25
"""


@pytest.fixture(scope="module")
def workers(machines, tmp_path_factory):
    """One on the client's store, one with a store of its own, one that has other samples as well."""
    machines.start_worker("here", FEDNB_TEST_SLOW="0.1")
    machines.start_worker("apart", tmp_path_factory.mktemp("apart"), FEDNB_TEST_SLOW="0.1")
    machines.start_worker("other", tmp_path_factory.mktemp("other"), FEDNB_TEST_SLOW="0.1", FEDNB_TEST_SAMPLES="1")
    return machines


def command(*words, **more):
    """The command `fednb` in a process of its own, which hears Ctrl-C also in the background of a shell."""
    more = {"PYTHONPATH": str(HERE.parent)} | more
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen([sys.executable, "-m", "fednb", *map(str, words)], env={**os.environ, **more},
                            preexec_fn=hears, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip


def own_file(folder, methods="['FedAvg']", rounds=4, seeds="0, 1"):
    path = folder / "mine.toml"
    path.write_text(OWN.format(methods=methods, rounds=rounds, seeds=seeds))
    return path


def made_by(machines, name, grid) -> list[str]:
    pid = machines.processes[name].pid
    return [key for key, t, who in machines.rounds() if who == pid and key in keys(grid) and t == 0]


def test_other_samples_get_no_runs_and_results_come_back_checked(workers, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(HERE.parent))
    grid = grid_of(["FedAvg", "SCAFFOLD"], seeds=[0, 1, 2, 3], rounds=3, data="cluster.own:dots", samples=90)
    client = Asking(grid, workers.address)
    assert all(made.status == "finished" for made in client.all())
    assert weights(grid) == weights_of_one_process(grid, monkeypatch, tmp_path)
    assert made_by(workers, "here", grid) and made_by(workers, "apart", grid)
    assert not made_by(workers, "other", grid)
    [line] = [line for line in client.said if "other" in line]
    assert "another 'cluster.own:dots' (fingerprint" in line and "gets no runs" in line
    assert Counter(key for key, _, _ in workers.rounds() if key in keys(grid)) == dict.fromkeys(keys(grid), 3)
    assert workers.tasks() == {}
    assert_free(grid)


def test_a_run_that_fails_by_itself_is_tried_once(workers, tmp_path, monkeypatch, capsys):
    """All others are made; the reason is said at the end, and status tells it afterwards."""
    monkeypatch.syspath_prepend(str(HERE.parent))
    file = own_file(tmp_path, "['cluster.own:broken', 'FedAvg']", seeds="30")
    assert main(["grid", "run", str(file), "--on", workers.address, "--device", "cpu"]) == 1
    assert "broken on purpose (on " in capsys.readouterr().err
    assert main(["grid", "status", str(file), "--on", workers.address]) == 0
    out = capsys.readouterr().out
    assert "1 done, 0 running, 1 failed, 0 missing" in out and "broken on purpose" in out
    counted = Counter((key, t) for key, t, _ in workers.rounds())
    assert set(counted.values()) == {1}


def test_status_tells_who_is_at_what_and_watch_until_the_end(workers):
    grid = grid_of(["FedSAM"], seeds=[40, 41, 42, 43], rounds=12)
    with workers.held_at(1):
        client = Asking(grid, workers.address)
        running = wait_until(lambda: _running(grid, workers.address), "three runs at work")
        assert {row["where"] for row in running} == {"here", "apart", "other"}
        assert {row["rounds"] for row in running} == {"1/12"}
        found = grid.status(on=workers.address)
        assert "running" in summary(found) and "left" in summary(found), found
    ended = grid.status(on=workers.address, watch=True)
    assert set(ended["status"]) == {"finished"} and summary(ended) == "4 done, 0 running, 0 failed, 0 missing"
    client.all()


def _running(grid, on):
    found = grid.status(on=on)
    running = found[(found["status"] == "running") & ~found["rounds"].str.startswith("0/")].to_dict("records")
    return running if len(running) == 3 else None


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_client_that_ends_leaves_the_cluster_clean(workers, tmp_path, by):
    """Runs at work stop after their present round, nothing stays on the scheduler, and the same command goes on."""
    seeds = "50, 51, 52, 53" if by == signal.SIGINT else "60, 61, 62, 63"
    file = own_file(tmp_path, rounds=300, seeds=seeds)
    grid = grid_of_file(file)
    client = command("grid", "run", file, "--on", workers.address)
    wait_until(lambda: len({key for key, _, _ in workers.rounds() if key in keys(grid)}) == 3, "three runs at work")
    client.send_signal(by)
    _, err = client.communicate(timeout=PATIENCE)
    assert client.returncode == (130 if by == signal.SIGINT else -9), err
    assert "Traceback" not in err
    wait_until(lambda: workers.tasks() == {}, "a scheduler that has forgotten")
    wait_until(lambda: not any(workers.at_work().values()), "workers that have stopped")
    made = workers.rounds()
    time.sleep(0.5)
    assert workers.rounds() == made, "workers go on for nobody"
    assert {key for key, _, _ in made if key in keys(grid)} < set(keys(grid)), "no further run was begun"
    [here] = [run for run in grid.runs() if run.entry.started]  # the two others are in their workers' own stores
    assert here.status == "running" and len(here.rows) == max(t for key, t, _ in made if key == here.key) + 1
    if by == signal.SIGINT:
        assert_free(grid)


def test_a_worker_that_is_lost_too_often_fails_its_run_alone(store, tmp_path, monkeypatch):
    from cluster.machines import Machines

    monkeypatch.syspath_prepend(str(HERE.parent))
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    machines = Machines(tmp_path)
    try:
        machines.start_worker("first")
        from cluster.own import deadly

        grid = grid_of([{"name": deadly()}, "FedAvg"], seeds=[70], rounds=2)
        client = Asking(grid, machines.address)
        assert machines.processes.pop("first").wait(PATIENCE) == 9
        machines.start_worker("second")
        failed, made = client.all()
        assert "1 workers were lost while they had it" in str(failed) and made.status == "finished"
        assert machines.tasks() == {}
    finally:
        machines.end()
