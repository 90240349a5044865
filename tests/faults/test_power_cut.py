"""The power fails after each file operation of a short run: only what was synced is there, and it goes on from that."""

from __future__ import annotations

import random
import shutil

import pytest

from faults import census
from faults.cases import METHODS
from faults.conftest import LONG
from faults.shim import cut_power, journal_of, marks
from faults.verdicts import differences

pytestmark = pytest.mark.faults
SEED = 16
NAMES = ("kept", "undone")


def cases_of(count, method, names):
    """Before which operations the power fails, and after the last. The short form takes a fifth of them."""
    every = list(range(1, count + 2))
    chance = random.Random(f"{SEED} {method} {names}")
    return every if LONG else sorted({*chance.sample(every, len(every) // 5), count + 1})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("names", NAMES)
def test_what_was_saved_is_there_after_a_power_cut(warm, undisturbed, tmp_path, record_property, method, names):
    """Names of files in folders that were not synced are all kept, or all undone."""
    count, truth = undisturbed(method)
    wrong = []
    for at in cases_of(count, method, names):
        found = list(problems(warm, tmp_path, method, at, names, truth))
        wrong += [f"before operation {at} of {count}: {'; '.join(found)}"] * bool(found)
    record_property("power cuts", len(cases_of(count, method, names)))
    assert not wrong, f"{len(wrong)} of {len(cases_of(count, method, names))}:\n" + "\n".join(wrong[:40])


def problems(warm, folder, method, at, names, truth):
    """What is wrong after a power cut before operation `at` and the same command again."""
    store, first, second, aside = (folder / name for name in ("store", "first.jsonl", "second.jsonl", "aside"))
    environment = {"FEDNB_STORE": str(store)}
    aside.mkdir()
    store.mkdir()
    given = dict(journal=str(first), aside=str(aside), at=at, way="kill")
    ended = warm("faults.cases:train", environment, method=method, **given)
    notes = journal_of(first)
    cut_power(notes, names)
    resumed = warm("faults.cases:again", environment, method=method, journal=str(second))
    if resumed.code or resumed.value != truth:
        yield f"resumed with {resumed.code} and other numbers: {differences(resumed, truth)}"
    elif lost := sorted({*marks(notes, "saved")} & {*marks(journal_of(second), "round")}):
        yield f"saved rounds {lost} were computed again"
    elif ended.code == 0 and marks(journal_of(second), "round"):
        yield "a finished run was computed again"
    if left := census.temporary(store):
        yield f"left over: {left}"
    for path in (first, second):
        path.unlink()
    shutil.rmtree(aside)
    shutil.rmtree(store)
