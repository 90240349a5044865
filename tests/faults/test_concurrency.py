"""Several processes start the same run where locks do not work: refused in one line, or the right bits."""

from __future__ import annotations

import random
import re
import shutil

import pytest

from faults.conftest import LONG
from faults.verdicts import differences, one_line
from faults.warm import Call

pytestmark = pytest.mark.faults
SEED = 18
ROUNDS = 5
LOCKS = {  # what is done to the locks: arguments of each process, and its environment
    "work": ({}, {}),
    "ignored": ({"locks": "ignored"}, {}),
    "ENOLCK": ({"locks": "ENOLCK"}, {}),
    "deleted": ({"remove": ("*lock*", 1)}, {}),
    "deleted later": ({"remove": ("*lock*", 3)}, {}),
    "off": ({}, {"FEDNB_LOCKS": "off"}),
}
STARTS = {2: 60, 8: 60} if LONG else {2: 3, 8: 1}


@pytest.mark.parametrize("locks", LOCKS)
@pytest.mark.parametrize("processes", STARTS)
def test_no_run_ends_with_wrong_weights(warm, undisturbed, tmp_path, record_property, locks, processes):
    """Each process alone is refused or prints the right weights; the same command afterwards has the right bits."""
    given = dict(method="scaffold", rounds=ROUNDS)
    _, truth = undisturbed(**given)
    chance = random.Random(f"{SEED} {locks} {processes}")
    wrong = []
    for start in range(STARTS[processes]):
        found = list(problems(warm, tmp_path, locks, processes, given, truth, chance))
        wrong += [f"start {start}: {'; '.join(found)}"] * bool(found)
    record_property(f"starts of {processes} processes at once", STARTS[processes])
    assert not wrong, f"{len(wrong)} of {STARTS[processes]} starts:\n" + "\n".join(wrong[:20])


def problems(warm, folder, locks, processes, given, truth, chance):
    """What is wrong after several processes made the same run."""
    arguments, changes = LOCKS[locks]
    environment = {"FEDNB_STORE": str(folder / "store")}
    waits = [chance.choice((0.0, chance.random() / 4)) for _ in range(processes)]
    asked = [given | arguments | {"journal": str(folder / f"{i}.jsonl"), "wait": t} for i, t in enumerate(waits)]
    for ended in warm.together([Call("faults.cases:train", each, environment | changes) for each in asked]):
        said = "\n".join(line for line in ended.err.splitlines() if "waiting" not in line)
        printed = re.search(r"weights_sha256 +(\w+)", ended.out)
        if ended.code == 0:
            if printed[1] != truth["weights"]:
                yield f"finished with wrong weights {printed[1]}"
        elif ended.code != 2 or not one_line(said):
            yield f"ended with {ended.code} and {len(said.splitlines())} lines: {said[-300:]}"
    resumed = warm("faults.cases:again", environment, journal=str(folder / "again.jsonl"), **given)
    if resumed.code or resumed.value != truth:
        yield f"afterwards {resumed.code} and other numbers: {differences(resumed, truth)}"
    for path in folder.glob("*.jsonl"):
        path.unlink()
    shutil.rmtree(folder / "store")
