"""Whatever is written in a file, an option or a call: an answer, or one line that says what is wrong.

Every input is tried in a forked child whose memory is bounded; what takes longer than seconds is a failure too.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import signal
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from every_kind import EVERY_KIND

from faults import hostile
from fednb import filters, parts
from fednb.algorithms.catalogue import CATALOGUE, method
from fednb.algorithms.sums import NAMES
from fednb.cli import commands as cli
from fednb.cli import grids, tables
from fednb.data.partition import parse
from fednb.engines.setting import Setting
from fednb.runs.probes import Probe
from fednb.study.claims import verdict
from fednb.study.paper import Paper

pytestmark = pytest.mark.faults
LONG = os.environ.get("FAULTS") == "long"
SECONDS, MEMORY, LETTERS = 20, 2 << 30, 600
Try = tuple[str, Callable[[], object]]


class Accepted(Exception):
    """Raised in the place of the training that an accepted input would begin."""


def wrong(attempt: Callable[[], object]) -> str:
    """What is wrong with the answer to one input; nothing where it is as it should be."""
    try:
        attempt()
    except Accepted:
        pass
    except cli.MISUSE as error:
        said = str(error)
        if "\n" in said or len(said) > LETTERS or not said:
            return f"a message of {len(said)} letters and {said.count(chr(10)) + 1} lines: {said[:200]!r}"
    except SystemExit as ended:
        return "" if ended.code in (0, 2) else f"exit status {ended.code}"
    except BaseException as error:  # a traceback, whatever it is
        return f"{type(error).__name__}: {str(error)[:100]!r} at {traceback.extract_tb(error.__traceback__)[-1]}"
    return ""


def failures(tries: Iterator[Try]) -> tuple[int, list[str]]:
    """How many inputs there were, and what went wrong, from a child that cannot take all memory or all time."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _answer(write, tries)
    os.close(write)
    lines, started = [], ""
    with os.fdopen(read) as answers:
        for line in answers:
            kind, _, text = line.rstrip("\n").partition(" ")
            started = text if kind == "try" else started
            if kind in ("bad", "done"):
                lines.append((kind, json.loads(text)))
    _, status = os.waitpid(child, 0)
    found = [text for kind, text in lines if kind == "bad"]
    total = next((count for kind, count in lines if kind == "done"), None)
    if total is None:
        return 0, [*found, f"the process ended with {os.waitstatus_to_exitcode(status)} in {started[:300]}"]
    return total, found


def _answer(write: int, tries: Iterator[Try]) -> None:
    """In the child: try all, and write down what is wrong."""
    status = 1
    try:
        torch.set_num_threads(1)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        count = 0
        with os.fdopen(write, "w", buffering=1) as answers, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for label, attempt in tries:
                answers.write(f"try {json.dumps(label[:300])}\n")
                signal.alarm(SECONDS)
                if bad := wrong(attempt):
                    answers.write(f"bad {json.dumps(f'{label[:200]!r}: {bad}')}\n")
                count += 1
                signal.alarm(0)
            answers.write(f"done {count}\n")
        status = 0
    finally:
        os._exit(status)


def settings(rng: random.Random, n: int) -> Iterator[Try]:
    """Every field with every hostile value, then several at once."""
    names = [f.name for f in fields(Setting)]
    each = [{name: value} for name in names for value in hostile.VALUES]
    some = ({rng.choice(names): rng.choice(hostile.VALUES) for _ in range(rng.randrange(2, 5))} for _ in range(10**9))
    for _, given in zip(range(n), _spread(rng, each, n, some), strict=False):
        yield f"Setting {_said(given)}", lambda given=given: str(Setting(**given))


def _spread(rng: random.Random, each: list, n: int, more: Iterator) -> Iterator:
    """All of a list where there is room for it, else some of it; then more."""
    yield from each if len(each) <= n else rng.sample(each, n)
    yield from more


def _said(given: object) -> str:
    try:
        return repr(given)[:300]
    except (ValueError, RecursionError):
        return "what cannot be written"


def fields_of_parts(rng: random.Random, n: int) -> Iterator[Try]:
    """Every field of every part and filter with every hostile value."""
    kinds = [*(getattr(parts, name) for name in parts.__all__), *(x for x in vars(filters).values() if _is_filter(x))]
    each = [(kind, f.name, value) for kind in kinds for f in fields(kind) for value in hostile.VALUES]
    for kind, name, value in _spread(rng, each, n, iter(())):
        given = {name: value}
        yield f"{kind.__name__} {_said(given)}", lambda kind=kind, given=given: repr(kind(**given))


def _is_filter(x: object) -> bool:
    return isinstance(x, type) and issubclass(x, filters.Filter) and x.__name__[0] != "_"


def parameters(rng: random.Random, n: int) -> Iterator[Try]:
    """Parameters of the methods of the catalogue by name."""
    for _ in range(n):
        name = rng.choice(list(CATALOGUE))
        known = [*CATALOGUE[name].method.parameters(), "name_of_nothing"]
        given = {rng.choice(known): rng.choice(hostile.VALUES) for _ in range(rng.choice([1, 1, 2]))}
        yield f"method {name} {_said(given)}", lambda name=name, given=given: repr(method(name, **given))


WORST = [
    "fedavg) + sam",
    "fedavg" + " + dyn" * 10_000,
    "(" * 9999,
    "fedavg + adaptiveweights(learning_steps=1e300)",
    "fedavg + gaussiandetrend(1e12)",
]


def method_texts(rng: random.Random, n: int) -> Iterator[Try]:
    """Sums of terms, right and wrong; names of parts alone; what is no text."""
    for text in [*NAMES, *hostile.VALUES, *WORST]:
        yield f"text {_said(text)}", lambda text=text: repr(method(text))
    for _ in range(n):
        text = hostile.method_text(rng)
        yield f"text {text[:300]}", lambda text=text: repr(method(text))


def partitions(rng: random.Random, n: int) -> Iterator[Try]:
    """Texts of partitions; what is accepted deals a few samples to many or few clients."""
    labels = np.arange(300) % 5
    for _ in range(n):
        text, clients = hostile.partition_text(rng), rng.choice([-1, 0, 1, 5, 50, 300, 301, 10**9])

        def deal(text: str = text, clients: int = clients) -> None:
            parse(text).split(labels, clients, 0, labels)

        yield f"partition {text[:200]} {clients}", deal


def probes(rng: random.Random, n: int) -> Iterator[Try]:
    """Probes with hostile fields."""
    for _ in range(n):
        values = [*hostile.VALUES, ["k.c"], [1, "a"], [True], [None]]
        given = {rng.choice(["what", "rounds", "batches"]): rng.choice(values) for _ in range(rng.choice([1, 1, 2]))}
        yield f"probe {_said(given)}", lambda given=given: repr(Probe(**given))


WORDS = [["show"], ["ls"], ["verify"], ["verify", "--seeds"], ["notebook", "--all", "--jobs"], ["grid", "run"],
         ["plan"], ["plan", "fedfft", "--for"], ["verify", "fedfft", "--section", "table3", "--only"],
         ["grid", "status", "fedfft", "table3", "--methods"], ["grid", "status", "fedfft", "table3", "--precision"],
         ["notebook", "fedfft/01", "--scale"], ["notebook", "fedfft/01", "-p", "seeds"]]  # fmt: skip


def options(rng: random.Random, n: int) -> Iterator[Try]:
    """Command lines: one line on stderr at the most, and exit status 0 or 2."""
    names = [f"--{f.name}" for f in fields(Setting)]
    for _ in range(n):
        how = rng.randrange(10)
        if how < 5:
            given = [word for _ in range(rng.choice([1, 1, 2])) for word in (rng.choice(names), hostile.typed(rng))]
            argv = ["run", rng.choice(["fedavg", "fedsam", hostile.typed(rng)]), *given]
        elif how == 5:
            argv = ["run", hostile.method_text(rng).replace("\x00", "").encode("utf-8", "replace").decode()]
        elif how == 6:
            argv = ["run", "fedawa", "-p", rng.choice(["learning_steps", "lr", "optimiser", "x"]), hostile.typed(rng)]
        elif how == 7:
            argv = ["run", rng.choice(["--seed", "--workers", "--engine", "--device"]), hostile.typed(rng)]
        elif how == 8:
            paper, option = rng.choice(["fedfft", hostile.typed(rng)]), rng.choice(["--scale", "--seeds", "--jobs"])
            argv = ["grid", "status", paper, hostile.typed(rng), option, hostile.typed(rng)]
        else:
            argv = [*rng.choice(WORDS), hostile.typed(rng)]
        yield f"fednb {argv}", lambda argv=argv: _command(argv)


def _command(argv: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main(argv)
    finally:
        said = err.getvalue()
        if len(said.splitlines()) > 1 or len(said) > LETTERS:
            raise AssertionError(f"{len(said.splitlines())} lines, {len(said)} letters on stderr: {said[:200]!r}")


MADE = {
    "paper.toml": hostile.PAPER,
    "claims.toml": "",
    "grids/table1.toml": hostile.GRID,
    "tables/table1.csv": hostile.TABLE,
}


def _paper(folder: Path, texts: dict[str, str]) -> Paper:
    """A small paper with some of its files replaced."""
    for name, text in (MADE | texts).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))  # at times no UTF-8
    return Paper(folder)


def _mutated(rng: random.Random, text: str) -> str:
    """A TOML text with a value, a name or a letter wrong."""
    if rng.random() < 0.3:
        return hostile.broken(rng, text)
    tree = tomllib.loads(text)
    for _ in range(rng.choice([1, 1, 2, 3])):
        tree = hostile.changed(rng, tree)
    return "\n".join(f"{hostile.toml(str(name))} = {hostile.toml(value)}" for name, value in tree.items())


def grid_files(rng: random.Random, n: int, folder: Path) -> Iterator[Try]:
    """Grid files, and the grids made of them at every scale."""
    for _ in range(n):
        text = _mutated(rng, rng.choice([hostile.GRID, hostile.GRID, hostile.SUMS]))
        scale = rng.choice(["smoke", "laptop", "paper"])

        def made(text: str = text, scale: str = scale) -> None:
            _paper(folder, {"grids/table1.toml": text}).grid("table1", scale)

        yield f"grid {scale} {text[:300]}", made


def paper_files(rng: random.Random, n: int, folder: Path) -> Iterator[Try]:
    """paper.toml, and all that is read from it."""

    def read(text: str) -> None:
        paper = _paper(folder, {"paper.toml": text})
        repr(paper)
        for section in list(paper.about["sections"]):
            paper.evidence(section)
            paper.claims(section)
        paper.grid("table1", "smoke")

    for _ in range(n):
        text = _mutated(rng, hostile.PAPER)
        yield f"paper {text[:300]}", lambda text=text: read(text)


def claim_files(rng: random.Random, n: int, folder: Path) -> Iterator[Try]:
    """claims.toml with claims of every kind, judged on a table that has what they look at."""

    def read(text: str, table: pd.DataFrame) -> None:
        verdict(table, _paper(folder, {"claims.toml": text}).claims(), "laptop")

    for _ in range(n):
        kind = rng.choice(list(EVERY_KIND))
        about, rows = EVERY_KIND[kind]
        claim = {"id": "c", "section": "table1", "says": "so", "kind": kind, "measure": "accuracy", **about}
        other = {"id": "d", "section": "fig2", "says": "so", "kind": "above", "left": ["A"], "right": "B"}
        text = _mutated(rng, f"claim = {hostile.toml([claim, other])}")
        table = pd.DataFrame(rows).assign(grid="table1")
        if rng.random() < 0.3:
            column = rng.choice(list(table))
            table = table.assign(**{column: [rng.choice([float("nan"), None, "x", 1.0, 1e999]) for _ in rows]})
        yield f"claims {text[:300]}", lambda text=text, table=table: read(text, table)


CELLS = ["", "nan", "inf", "1e999", "alpha=e", "a=--", "x=1e999%", "-", "€", "9" * 400, "Fig 2"]


def printed_tables(rng: random.Random, n: int, folder: Path) -> Iterator[Try]:
    """Printed tables, as they are read and as claims see them."""
    shared = {"section": "table1", "says": "so", "left": "A", "right": "B", "along": "rho", "at": "x"}
    kinds = ["above", "gain_grows", "first", "falls_along", "lowest_band_largest", "within"]
    claims = f"claim = {hostile.toml([{'id': kind, 'kind': kind, **shared} for kind in kinds])}"
    ours = pd.DataFrame(EVERY_KIND["above"][1]).assign(grid="table1")

    def read(text: str) -> None:
        paper = _paper(folder, {"tables/table1.csv": text, "claims.toml": claims})
        paper.printed("table1")
        verdict(ours, paper.claims("table1"), "laptop")

    for _ in range(n):
        cells = [line.split(",") for line in hostile.TABLE.strip().split("\n")]
        for _ in range(rng.choice([1, 2, 5])):
            row = rng.choice(cells)
            row[rng.randrange(len(row))] = rng.choice(CELLS)
        text = "\n".join(map(",".join, cells))
        text = hostile.broken(rng, text) if rng.random() < 0.4 else text
        yield f"table {text[:300]}", lambda text=text: read(text)


FAMILIES = {  # how many inputs: short, long
    settings: (1200, 10_000), fields_of_parts: (1200, 9000), parameters: (300, 5000), method_texts: (800, 9000),
    partitions: (400, 4000), probes: (150, 1000), options: (200, 1000),
}  # fmt: skip
FILES = {grid_files: (350, 3000), paper_files: (250, 1200), claim_files: (500, 3000), printed_tables: (100, 700)}


@pytest.fixture
def without_training(monkeypatch):
    """Commands that would begin to work raise `Accepted` instead."""

    def accepted(*args: object, **named: object) -> None:
        raise Accepted

    monkeypatch.setattr(cli, "run", accepted)
    for name in ("verify", "verify_within", "planned"):
        monkeypatch.setattr(tables, name, accepted)
    for name in ("follow", "run_all"):
        monkeypatch.setattr(grids, name, accepted)
    for name in ("execute", "execute_plainly", "execute_all"):
        monkeypatch.setattr(cli.notebooks, name, accepted)


@pytest.mark.parametrize("family", [*FAMILIES, *FILES], ids=lambda f: f.__name__)
def test_no_input_gives_a_traceback(family, without_training, tmp_path, record_property):
    short, long = (FAMILIES | FILES)[family]
    beside = [tmp_path / "paper"] if family in FILES else []
    count, found = failures(family(random.Random(f"seed of {family.__name__}"), long if LONG else short, *beside))
    record_property("hostile inputs", count)
    assert not found, f"{len(found)} of {count}: " + "\n".join([*found[:4], found[-1]])
    assert count >= (long if LONG else short) * 0.9
