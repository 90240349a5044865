"""The example for a GPU that is there for minutes: what is kept is not made again, and finished runs are taken out."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fednb.cli import main

pytestmark = pytest.mark.faults

SCRIPT = Path(__file__).parents[2] / "examples" / "gpu_for_minutes.sh"
ASKED = [
    "fedfft",
    "--section",
    "table3",
    "--claim",
    "table3-low",
    "--only",
    "alpha=0.1",
    "--scale",
    "smoke",
]  # two runs


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with the example, no kept runs and a store of its own; runs are taken out every second."""
    (tmp_path / "examples").mkdir()
    shutil.copy(SCRIPT, tmp_path / "examples")
    given = {"FEDNB_STORE": str(tmp_path / "store"), "FEDNB": f"{sys.executable} -m fednb", "EVERY": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def started(machine, *asked):
    command = ["bash", str(machine / "examples" / SCRIPT.name), *asked]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def archives(machine):
    return sorted((machine / "out").glob("*.zip"))


def test_finished_runs_are_taken_out_and_not_made_again_on_the_next_machine(machine, capsys):
    said, _ = (work := started(machine, *ASKED)).communicate(timeout=300)
    assert work.returncode == 0, said
    assert "2 of 2" in said and f"finished runs: out/{archives(machine)[0].name}" in said
    shutil.rmtree(machine / "store")
    again, _ = (work := started(machine, *ASKED)).communicate(timeout=300)
    assert work.returncode == 0, again
    assert "2 runs new" in again and "2 of 2" not in again and again.endswith("no run was finished\n")
    assert len(archives(machine)) == 1 and not list((machine / "out").glob(".*"))
    shutil.rmtree(machine / "store")
    assert main(["store", "import", str(archives(machine)[0])]) == 0
    assert "2 runs new" in capsys.readouterr().out


def test_a_machine_that_is_taken_away_leaves_what_was_finished(machine):
    """Ended by a signal when the first runs are there: the script ends, not with success, and its archive has them."""
    work = started(machine, "specgradfilter", "--scale", "smoke")
    limit = time.monotonic() + 200
    while not archives(machine) and time.monotonic() < limit:
        time.sleep(0.1)
    os.kill(work.pid, signal.SIGTERM)
    said, _ = work.communicate(timeout=100)
    assert work.returncode not in (0, None) and "finished runs: out/" in said, said
    assert "claims" not in said.splitlines()[-2], "it ended before all was judged"
    assert len(archives(machine)) == 1


def test_a_wrong_question_is_answered_in_a_line(machine):
    said, _ = (work := started(machine, "fedfftt", "--scale", "smoke")).communicate(timeout=100)
    assert work.returncode == 2 and "fedfftt" in said and said.endswith("no run was finished\n")
