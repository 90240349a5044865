"""A store that cannot be written any more, that is removed in mid-run, that several users share."""

from __future__ import annotations

import random
import shutil
import stat

import pytest

from faults import census
from faults.cases import METHODS
from faults.conftest import LONG
from faults.shim import journal_of, marks
from faults.test_operations import TRIED, problems
from faults.verdicts import one_line, wrong

pytestmark = pytest.mark.faults
SEED = 19
PIECES = ("runs", "runs/*", "probes", "clients", "history.csv", "state.safetensors", "run.json")
RIGHTS = [(0o022, 0o644, 0o755), (0o002, 0o664, 0o775), (0o077, 0o600, 0o700)]


@pytest.mark.parametrize("method", METHODS)
def test_no_permission(warm, undisturbed, tmp_path, record_property, method):
    """From some operation on, nothing may be written: one line, and later it goes on."""
    count, truth = undisturbed(method)
    chosen = range(1, count + 1) if LONG else random.Random(f"{SEED} {method}").sample(range(1, count + 1), 8)
    failed = []
    for at in chosen:
        found = list(problems(warm, tmp_path, method, at, "EACCES", truth))
        failed += [f"operation {at} of {count}: {'; '.join(found)}"] * bool(found)
    record_property(TRIED, len(chosen))
    assert not failed, f"{len(failed)} of {len(chosen)}:\n" + "\n".join(failed[:40])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("what", PIECES)
def test_removed_in_mid_run(warm, undisturbed, tmp_path, method, what):
    """Removed by hand between two rounds: one line, or the right end; the same command ends right, nothing is torn."""
    _, truth = undisturbed(method)
    store, given = tmp_path / "store", dict(method=method, journal=str(tmp_path / "first.jsonl"))
    environment = {"FEDNB_STORE": str(store)}
    ended = warm("faults.cases:train", environment, remove=(what, 1), **given)
    assert ended.code == 0 or (ended.code == 2 and one_line(ended.err)), ended
    resumed = warm("faults.cases:again", environment, method=method, journal=str(tmp_path / "second.jsonl"))
    refused = resumed.code == 2 and one_line(resumed.err) and what in resumed.err
    assert refused or (resumed.code == 0 and not wrong(resumed.value, truth, what)), resumed
    assert not census.temporary(store)


@pytest.mark.parametrize(("umask", "file", "folder"), RIGHTS)
def test_files_get_the_rights_that_the_user_gives(warm, tmp_path, umask, file, folder):
    store = tmp_path / "store"
    ended = warm("faults.cases:train", {"FEDNB_STORE": str(store)}, method="scaffold", umask=umask,
                 journal=str(tmp_path / "first.jsonl"))  # fmt: skip
    assert ended.code == 0, ended.err
    rights = {p.relative_to(store): stat.S_IMODE(p.stat().st_mode) for p in store.rglob("*")}
    assert {str(p): oct(r) for p, r in rights.items() if r != (folder if (store / p).is_dir() else file)} == {}


def test_an_error_of_the_disk_loses_no_saved_round(warm, undisturbed, tmp_path):
    """The disk is full when the second round is saved; the first stays."""
    _, truth = undisturbed("fedsam")
    whole = dict(method="fedsam", journal=str(tmp_path / "whole.jsonl"))
    warm("faults.cases:train", {"FEDNB_STORE": str(tmp_path / "whole")}, **whole)
    notes = journal_of(tmp_path / "whole.jsonl")
    at = 1 + sum("op" in note for note in notes[: notes.index({"mark": "round", "value": 1})])
    store, given = tmp_path / "store", dict(method="fedsam", journal=str(tmp_path / "first.jsonl"), at=at, way="ENOSPC")
    ended = warm("faults.cases:train", {"FEDNB_STORE": str(store)}, **given)
    assert ended.code == 2 and one_line(ended.err) and str(store) in ended.err, ended
    again = tmp_path / "second.jsonl"
    resumed = warm("faults.cases:again", {"FEDNB_STORE": str(store)}, method="fedsam", journal=str(again))
    assert (resumed.value, marks(journal_of(again), "round")) == (truth, [1])
    shutil.rmtree(store)
