"""Processes that are killed, stopped or ended at any moment: nothing is left behind, no finished round is lost."""

from __future__ import annotations

import os
import random
import signal

import pytest

from faults import census
from faults.warm import Call

pytestmark = pytest.mark.faults
LONG = os.environ.get("FAULTS") == "long"
MODULE = "faults.processes"


def moments(seed: int, short: int, long: int, until: float) -> list[float]:
    """Seconds after a start: spread over the time in which processes load their modules, and some later."""
    rng, count = random.Random(seed), long if LONG else short
    return [until * (i + rng.random()) / count for i in range(count)]


def store(i: int = 0) -> dict[str, str]:
    """A store of its own for a child."""
    return {"FEDNB_STORE": f"{os.environ['FEDNB_STORE']}/{i}"}


@pytest.mark.parametrize("what", ["command", "grid"])
def test_a_parent_that_is_killed_leaves_nothing(what, warm, mark, servers, record_property):
    """Workers of the pool and processes of a grid: while they are started, while they load, at work."""
    shared, found = census.shared_memory(), []
    times = moments(1, 7, 100, 4.0)
    for i, after in enumerate(times):
        (killed,) = warm.together([Call(f"{MODULE}:{what}", {}, store(i))], timeout=after)
        assert killed.code == -signal.SIGKILL, killed.err
        left = census.left(lambda: census.marked(mark, frozenset(servers))), sorted(census.shared_memory() - shared)
        found += [(round(after, 2), *left)] * any(left)
    record_property("kills of a parent", len(times))
    assert not found, f"{len(found)} of {len(times)} kills left something: {found}"


@pytest.mark.parametrize("at", ["start", "work"])
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_worker_that_is_stopped_or_killed_is_replaced(number, at, warm):
    """It is named, another does its work, and the weights are those of an undisturbed run."""
    for i, after in enumerate(moments(2, 1, 8, 0.5)):
        patient = {"FEDNB_WORKER_TIMEOUT": "4", **store(i)}
        given = {"number": int(number), "after": after, "at": at}
        (seen,) = warm.together([Call(f"{MODULE}:harmed", given, patient)], timeout=90)
        assert seen.code == 0, (seen.code, seen.err)
        assert seen.value["same"] and len(seen.value["victims"]) == 1
        how = "has not run for 4 s" if number == signal.SIGSTOP else "was ended by SIGKILL"
        assert f"worker process {seen.value['victims'][0]} {how}" in seen.value["said"]


@pytest.mark.parametrize("engine", ["loop", "pool"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_saves_the_last_finished_round(number, engine, warm):
    """As Ctrl-C does, also where the workers get it too; one line, and 128 and the signal's number."""
    seen = warm(f"{MODULE}:ended", store(), signals=[int(number)], engine=engine, everyone=True)
    assert seen.code == 0, (seen.code, seen.err)
    assert seen.value["code"] == 128 + number and "Traceback" not in seen.err
    assert "goes on after the last finished round" in seen.err.splitlines()[-1]
    assert seen.value["saved"] >= seen.value["finished"] >= 3


def test_a_second_signal_does_not_fall_into_the_saving(warm):
    seen = warm(f"{MODULE}:ended", store(), signals=[15, 15, 2, 1, 15], engine="loop")
    assert seen.code == 0 and seen.value["code"] == 143, (seen.code, seen.err)
    assert seen.value["saved"] >= seen.value["finished"]


def test_nohup_stays_deaf(warm):
    """SIGHUP was ignored when the command was started; SIGTERM comes after it, and ends the run."""
    seen = warm(f"{MODULE}:ended", store(), signals=[1, 1, 15], engine="loop", nohup=True)
    assert seen.code == 0 and seen.value["code"] == 143, (seen.code, seen.err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_grid_that_is_ended_leaves_nothing(number, warm):
    """While its processes load, and at work. The census after the test counts."""
    for i, after in enumerate(moments(3, 1, 10, 8.0)):
        given = {"number": int(number), "after": after}
        seen = warm(f"{MODULE}:grid_ended", store(i), **given)
        assert seen.code == 0 and seen.value == {"code": 128 + number, "children": []}, (seen.code, seen.err)
        assert "Traceback" not in seen.err


def test_a_grid_process_that_is_killed_is_replaced_and_a_failing_run_does_not_end_the_others(warm):
    seen = warm(f"{MODULE}:grid_harmed", store())
    assert seen.code == 0, seen.err
    done, failed = seen.value["done"], seen.value["failed"]
    assert done == [[0, "finished"], [1, "finished"]], seen.value
    assert len(failed) == 1 and "table8 99: IndexError" in failed[0], seen.value
