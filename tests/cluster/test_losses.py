"""Three workers on one store: one is killed at work, one is slow, the scheduler restarts; every run ends once."""

from __future__ import annotations

from collections import Counter

import pytest

from cluster.grids import Asking, assert_free, grid_of, keys, weights, weights_of_one_process
from cluster.machines import PATIENCE, wait_until
from fednb.runs.store import Entry

pytestmark = pytest.mark.cluster


def test_a_killed_and_a_slow_worker(machines, monkeypatch, tmp_path):
    """The client is there before the workers. The killed one's run goes on elsewhere after its last saved round."""
    grid = grid_of(["FedAvg", "FedSAM", "SCAFFOLD"], seeds=[0, 1, 2])
    expected = weights_of_one_process(grid, monkeypatch, tmp_path)
    client = Asking(grid, machines.address)
    with machines.held_at(2):
        machines.start_worker("quick", FEDNB_TEST_SLOW="0.05")
        machines.start_worker("slow", FEDNB_TEST_SLOW="0.4")
        machines.start_worker("victim", FEDNB_TEST_SLOW="0.05")
        victim = machines.processes["victim"].pid
        at_work = wait_until(lambda: [r for r in machines.rounds() if r[1:] == (2, victim)], "the victim's third round")
        [left] = [key for key, _, _ in at_work]
        wait_until((Entry.of(left).folder / "state.safetensors").exists, "a saved round")
        machines.kill("victim")
    assert all(made.status == "finished" for made in client.all())
    assert weights(grid) == expected
    made = machines.rounds()
    assert Counter(key for key, t, _ in made if t == 5) == Counter(keys(grid))  # the last round, once of each
    others = sorted(t for key, t, pid in made if key == left and pid != victim)
    assert others[0] > 0 and others[-1] == 5, "it goes on, and does not begin anew"
    assert machines.tasks() == {}
    wait_until(lambda: not any(machines.at_work().values()), "idle workers")
    assert_free(grid)


def test_two_clients_make_every_run_once(machines):
    grid = grid_of(["FedAvg", "FedSAM"], seeds=[10, 11, 12])
    both = [Asking(grid, machines.address) for _ in range(2)]
    assert all(made.status == "finished" for client in both for made in client.all())
    made = Counter((key, t) for key, t, _ in machines.rounds() if key in keys(grid))
    assert made == Counter((key, t) for key in keys(grid) for t in range(6))
    assert machines.tasks() == {}
    assert_free(grid)


def test_a_scheduler_that_restarts(machines, monkeypatch, tmp_path):
    """Workers end with their scheduler and are started again, as a cluster's manager does; the client waits."""
    grid = grid_of(["FedAvg", "FedSAM", "SCAFFOLD"], seeds=[20, 21])
    expected = weights_of_one_process(grid, monkeypatch, tmp_path)
    with machines.held_at(0):
        client = Asking(grid, machines.address)
        wait_until(lambda: [r for r in machines.rounds() if r[0] in keys(grid)], "the first round")
        machines.kill("scheduler")
    for name in ("quick", "slow"):  # they notice by themselves
        machines.processes.pop(name).wait(PATIENCE)
    machines.start_scheduler()
    for name in ("quick", "slow", "third"):
        machines.start_worker(name, FEDNB_TEST_SLOW="0.05")
    assert all(made.status == "finished" for made in client.all())
    assert any("lost" in line for line in client.said)
    assert weights(grid) == expected
    made = [r for r in machines.rounds() if r[0] in keys(grid)]
    assert Counter((key, t) for key, t, _ in made) == Counter((key, t) for key in keys(grid) for t in range(6))
    assert machines.tasks() == {}
    assert_free(grid)
