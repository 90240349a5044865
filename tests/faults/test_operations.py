"""Every file operation of a short run fails in turn; the same command then ends with the same bits, nothing lost."""

from __future__ import annotations

import random
import shutil

import pytest

from faults import census
from faults.cases import METHODS
from faults.conftest import LONG
from faults.shim import WAYS, journal_of, marks, operations
from faults.verdicts import differences, one_line

pytestmark = pytest.mark.faults
SEED = 15
TRIED = "file operations that failed"
PARTS = 2  # tests per method, so that two processes share the work


def cases_of(count, method, part):
    """Which operation fails how: all of them in all ways in the long form, else each of them in one."""
    chance = random.Random(f"{SEED} {method}")
    every = [(at, way) for at in range(1, count + 1) for way in WAYS]
    some = [(at, way) for at in range(1, count + 1) for way in chance.sample(WAYS, 1)]
    return (every if LONG else some)[part::PARTS]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_same_command_goes_on(warm, undisturbed, tmp_path, record_property, method, part):
    count, truth = undisturbed(method)
    assert count > 20
    wrong = []
    for at, way in cases_of(count, method, part):
        found = list(problems(warm, tmp_path, method, at, way, truth))
        wrong += [f"operation {at} of {count}, {way}: {'; '.join(found)}"] * bool(found)
    record_property(TRIED, len(cases_of(count, method, part)))
    assert not wrong, f"{len(wrong)} of {len(cases_of(count, method, part))}:\n" + "\n".join(wrong[:40])


@pytest.mark.parametrize("method", METHODS)
def test_going_on_is_as_safe(warm, undisturbed, tmp_path, record_property, method):
    """The run was killed in the middle of a write; now the operations of the command that goes on fail in turn."""
    whole, truth = undisturbed(method)
    before, journal = tmp_path / "before", tmp_path / "before.jsonl"
    given = dict(method=method, journal=str(journal))
    warm("faults.cases:train", {"FEDNB_STORE": str(before)}, at=whole * 5 // 6, way="half", **given)
    saved, store = marks(journal_of(journal), "saved"), tmp_path / "store"
    assert saved == [0]
    shutil.copytree(before, store)
    given = dict(method=method, journal=str(tmp_path / "going on.jsonl"))
    warm("faults.cases:train", {"FEDNB_STORE": str(store)}, **given)
    count = operations(journal_of(tmp_path / "going on.jsonl"))
    shutil.rmtree(store)
    cases = [(at, way) for at in range(1, count + 1) for way in WAYS]
    cases, wrong = cases if LONG else random.Random(f"{SEED} {method}").sample(cases, 12), []
    for at, way in cases:
        shutil.copytree(before, store)
        found = list(problems(warm, tmp_path, method, at, way, truth, saved))
        wrong += [f"operation {at} of {count}, {way}: {'; '.join(found)}"] * bool(found)
    record_property(TRIED, len(cases))
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong[:40])


def problems(warm, folder, method, at, way, truth, saved=()):
    """What is wrong after a fault and the same command again. saved: rounds that were saved before."""
    store, first, second = folder / "store", folder / "first.jsonl", folder / "second.jsonl"
    environment = {"FEDNB_STORE": str(store)}
    ended = warm("faults.cases:train", environment, method=method, journal=str(first), at=at, way=way)
    if way in ("kill", "half"):
        if ended.code != -9:
            yield f"ended with {ended.code}: {ended.err}"
    elif not (ended.code == 0 or (ended.code == 2 and one_line(ended.err) and str(store) in ended.err)):
        yield f"ended with {ended.code} and {len(ended.err.splitlines())} lines: {ended.err[-300:]}"
    resumed = warm("faults.cases:again", environment, method=method, journal=str(second))
    if resumed.code or resumed.value != truth:
        yield f"resumed with {resumed.code} and other numbers: {differences(resumed, truth)}"
    if lost := sorted({*saved, *marks(journal_of(first), "saved")} & {*marks(journal_of(second), "round")}):
        yield f"saved rounds {lost} were computed again"
    if left := census.temporary(store):
        yield f"left over: {left}"
    for path in (first, second):
        path.unlink()
    shutil.rmtree(store)
