"""Faults on purpose: only where they are asked for, by `-m faults` or FAULTS; a census after every test."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter

import pytest

from faults import census
from faults.shim import journal_of, operations
from faults.warm import Warm

LONG = os.environ.get("FAULTS") == "long"


def pytest_collection_modifyitems(config, items):
    wanted = "faults" in config.option.markexpr or os.environ.get("FAULTS")
    reason = "injects faults for minutes: make test-faults" if not wanted else "needs Linux: it looks into /proc"
    for item in items:
        if item.get_closest_marker("faults") and not (wanted and sys.platform == "linux"):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter):
    """How often each kind of fault was tried: what tests told `record_property` as a number."""
    ended = [r for kind in ("passed", "failed") for r in terminalreporter.getreports(kind) if r.when == "call"]
    tried: Counter[str] = Counter()
    for name, count in (told for report in ended for told in report.user_properties if isinstance(told[1], int)):
        tried[name] += count
    for name, count in sorted(tried.items()):
        terminalreporter.write_line(f"{count:>7} {name}")


@pytest.fixture(scope="session")
def mark():
    """Processes started from here on carry it."""
    with census.marking() as mark:
        yield mark


@pytest.fixture(scope="session")
def servers():
    """The process ids of fork servers, which stay from test to test."""
    return set()


@pytest.fixture(autouse=True)
def counted(mark, servers, tmp_path, monkeypatch):
    """A store of the test's own; afterwards no process, no shared memory, no temporary file is left."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    shared = census.shared_memory()
    yield
    assert not census.left(lambda: census.marked(mark, frozenset(servers))), "processes are left"
    assert not census.left(lambda: sorted(census.shared_memory() - shared)), "shared memory is left"
    assert not census.temporary(tmp_path / "store"), "temporary files are left"


@pytest.fixture(scope="session")
def warm(mark, servers, tmp_path_factory):
    """A process with torch and fednb loaded, which forks a child for every call."""
    with Warm(tmp_path_factory.mktemp("warm")) as started:
        servers.add(started.process.pid)
        yield started
    servers.clear()


@pytest.fixture(scope="session")
def undisturbed(warm, tmp_path_factory):
    """A run without a fault, by method and rounds: how many operations it has, and its numbers. Made once."""

    @functools.cache
    def made(method, rounds=2):
        folder = tmp_path_factory.mktemp("truth")
        journal, environment = folder / "journal", {"FEDNB_STORE": str(folder / "store")}
        ended = warm("faults.cases:again", environment, method=method, rounds=rounds, journal=str(journal))
        assert ended.code == 0, ended.err
        return operations(journal_of(journal)), ended.value

    return made
