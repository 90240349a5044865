"""Real federations on loopback: only where they are asked for, by `-m flower`; nothing may be left behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from faults import census


def pytest_collection_modifyitems(config, items):
    wanted = "flower" in config.option.markexpr
    reason = "starts federations for minutes: make test-flower" if not wanted else "needs Linux: it looks into /proc"
    for item in items:
        if item.get_closest_marker("flower") and not (wanted and sys.platform == "linux"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def mark():
    """Processes started from here on carry it; at the end none of them is left."""
    with census.marking() as mark:
        yield
        assert not census.left(lambda: census.marked(mark)), "processes are left"


@pytest.fixture(scope="session")
def quick(mark, tmp_path_factory):
    """Variables with which Flower's app processes are forks of one that is warm."""
    from fednb.flower.installed import QUIET, need_flower
    from flower.warm import Warm

    need_flower()
    assert all(os.environ[name] == value for name, value in QUIET.items())
    with Warm(tmp_path_factory.mktemp("warm")) as warm:
        scripts = str(Path(sys.executable).parent)
        yield {"PATH": os.pathsep.join([str(warm.folder), scripts, os.environ["PATH"]])}


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store of the test's own."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    return tmp_path / "store"
