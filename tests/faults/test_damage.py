"""Every kind of file of the store, damaged in every way: the true numbers or one line with the path, never others."""

from __future__ import annotations

import functools
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from faults import census
from faults.conftest import LONG
from faults.shim import journal_of
from faults.verdicts import wrong

pytestmark = pytest.mark.faults
SEED = 17
ROUNDS = 3
FLIPS = 24 if LONG else 2
WAYS = ("flip", "truncation", "zeros", "zeros at the end", "missing", "empty", "another run's", "of an earlier round")
STATES = {  # method, and where its run was killed: never, or so far behind the saving of round 1
    "ended, probed": ("fedsam", None),
    "ended, client rows": ("scaffold", None),
    "interrupted": ("scaffold", 1),
    "interrupted while saving": ("scaffold", 8),
    "interrupted, probed": ("fedsam", 8),
}


@dataclass(frozen=True)
class Made:
    """A store with a run and its true answers, another run of the same kind, and an ended run as it was earlier."""

    method: str
    run: Path
    other: Path
    earlier: Path | None
    truth: dict[str, Any]

    @property
    def files(self) -> list[Path]:
        """The run's files, relative to its folder; locks hold nothing."""
        found = (p.relative_to(self.run) for p in self.run.rglob("*") if p.is_file() and "lock" not in p.name)
        return sorted(p for p in found if not census.TEMPORARY.match(p.name))


@pytest.fixture(scope="module")
def made(warm, tmp_path_factory):
    """Stores by their state, each made once."""
    return functools.cache(lambda state: _made(warm, tmp_path_factory.mktemp("made"), *STATES[state]))


def _made(warm, folder: Path, method: str, behind: int | None) -> Made:
    """The run with seed 0 and the one with seed 1, as they were when they ended or were killed."""
    whole = _run(warm, folder / "whole", method, 0, 0).parents[1]
    saved = _saved(whole.with_suffix(".jsonl"))
    runs = [_run(warm, folder / f"store{seed}", method, seed, saved + behind if behind else 0) for seed in (0, 1)]
    earlier = None if behind else _run(warm, folder / "earlier", method, 0, saved + 1)
    shutil.copytree(folder / "store0", folder / "copy")
    answers = warm("faults.cases:numbers", {"FEDNB_STORE": str(folder / "copy")}, method=method, rounds=ROUNDS)
    assert not any("error" in x or "traceback" in x for x in answers.value.values() if isinstance(x, dict)), answers
    never_saved = f"probe {ROUNDS - 1}" if behind else ""
    truth = {name: answer for name, answer in answers.value.items() if name != never_saved}
    return Made(method, *runs, earlier, truth)


def _run(warm, store: Path, method: str, seed: int, at: int) -> Path:
    """The folder of a run that was killed before operation `at`, or ended and was measured."""
    environment, given = {"FEDNB_STORE": str(store)}, dict(method=method, seed=seed, rounds=ROUNDS)
    journal = str(store.with_suffix(".jsonl"))
    ended = warm("faults.cases:train", environment, at=at, way="kill", journal=journal, **given)
    assert ended.code == (-9 if at else 0), ended.err
    if not at:
        warm("faults.cases:numbers", environment, **given)
    (found,) = store.glob("runs/*")
    return found


def _saved(journal: Path) -> int:
    """How many operations there were until round 1 was saved."""
    notes = journal_of(journal)
    end = notes.index({"mark": "saved", "value": 1})
    return sum("op" in note for note in notes[:end])


def damage(path: Path, way: str, other: Path | None, chance: random.Random) -> bool:
    """Damage a file, or put another's bytes into it; whether it is another one now."""
    before = path.read_bytes()
    data = bytearray(before)
    if way == "flip" and data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif way == "truncation":
        del data[chance.randrange(len(data)) :]
    elif way == "zeros":
        data[:] = bytes(len(data))
    elif way == "zeros at the end":
        at = chance.randrange(len(data))
        data[at:] = bytes(len(data) - at)
    elif way == "empty":
        data.clear()
    elif other:
        data[:] = other.read_bytes()
    path.unlink()
    if way != "missing":
        path.write_bytes(data)
    return way == "missing" or data != before


def alike(made: Made, file: Path, way: str) -> Path | None:
    """The same kind of file of the other run, or of the same run a round earlier; run.json then was as good as now."""
    if way == "another run's":
        fits = [made.other / file] if (made.other / file).exists() else sorted((made.other / file).parent.glob("*"))
        return fits[0] if fits else None
    there = way == "of an earlier round" and made.earlier and (made.earlier / file).exists()
    return made.earlier / file if there and file.name != "run.json" else None


def cases_of(made: Made, state: str) -> list[tuple[Path, str, int]]:
    """File, way and number of the damage: all in the long form, else each file once in a few ways."""
    chance = random.Random(f"{SEED} {state}")
    every = [(file, way, n) for file in made.files for way in WAYS for n in range(FLIPS if way == "flip" else 1)]
    return every if LONG else chance.sample(every, min(len(every), 22))


def damaged(made: Made, store: Path, file: Path, way: str, number: int) -> Path | None:
    """A copy of the store with one damaged file, and where that is; nothing where the damage changed nothing."""
    shutil.copytree(made.run.parents[1], store)
    path = store / "runs" / made.run.name / file
    chance = random.Random(f"{SEED} {file} {way} {number}")
    return path if damage(path, way, alike(made, file, way), chance) else None


@pytest.mark.parametrize("state", STATES)
def test_damage_is_never_silent(warm, made, tmp_path, record_property, state):
    """All that can be asked of the run; for some of them also what `fednb store check` says and repairs."""
    it, store, failed, tried = made(state), tmp_path / "damaged", [], 0
    environment, given = {"FEDNB_STORE": str(store)}, dict(method=it.method, rounds=ROUNDS)
    for i, case in enumerate(cases_of(it, state)):
        if damaged(it, store, *case):
            answers = warm("faults.cases:numbers", environment, **given)
            found = wrong(answers.value, it.truth, case[0].name) if not answers.code else [answers.err[-300:]]
            if i % 4 == 0:
                seen = [(answers.value or {}).get(question) for question in it.truth]
                refused = any(isinstance(answer, dict) and "error" in answer for answer in seen)
                shutil.rmtree(store)
                found += list(badly_repaired(warm, it, store, damaged(it, store, *case), refused))
            failed += [f"{case[0]}, {case[1]}: {'; '.join(found)}"] * bool(found)
            tried += 1
        shutil.rmtree(store)
    record_property("damaged files", tried)
    silent = sum("SILENT" in text for text in failed)
    assert not failed, f"{len(failed)} of {tried} damaged files, {silent} silent:\n" + "\n".join(failed[:60])


def badly_repaired(warm, made, store, path, refused):
    """What is wrong with `fednb store check` and --repair for a damaged file. refused: whether a question was."""
    before = path.read_bytes() if path.exists() else None
    ended = warm("faults.cases:repaired", {"FEDNB_STORE": str(store)}, method=made.method, rounds=ROUNDS)
    if ended.code:
        yield f"store check ended with {ended.code}: {ended.err[-300:]}"
        return
    seen = ended.value
    if refused and (seen["check"][0] != 1 or str(path) not in seen["check"][1]):
        yield f"store check does not find it: {seen['check']}"
    if (seen["repair"][0], seen["after"][0]) != (0, 0):
        yield f"is not repaired: {seen['repair']}, {seen['after']}"
    if seen["run"] != made.truth["run"]:
        yield f"repaired, the run has other numbers: {seen['run']}"
    if seen["check"][0] and before and not any(p.read_bytes() == before for p in store.rglob(path.name)):
        yield "the damaged file is not set aside but gone"


def test_a_grid_goes_on_past_a_damaged_run(warm, tmp_path):
    """The first run of three is damaged, the last is missing: it is made, and the damaged one is named."""
    environment = {"FEDNB_STORE": str(tmp_path / "store")}
    whole = warm("faults.cases:grid", environment).value
    assert whole["error"] == 3
    for file in ("run.json", "history.csv", "state.safetensors"):
        runs = tmp_path / "store" / "runs"
        path = runs / whole["keys"][0] / file
        before = path.read_bytes()
        path.write_bytes(before[: len(before) // 2])
        shutil.rmtree(runs / whole["keys"][2])
        seen = warm("faults.cases:grid", environment).value
        assert seen["runs"][1:] == whole["runs"][1:]
        assert "error" in seen["runs"][0] and str(path) in seen["runs"][0]["error"]
        assert seen["error"] == 3 or str(path) in seen["error"]["error"], seen["error"]
        path.write_bytes(before)
