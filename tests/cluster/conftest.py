"""A Dask cluster on this machine: only where it is asked for, by `-m cluster`; nothing of it is left behind."""

from __future__ import annotations

import pytest
from faults import census

from cluster.machines import Machines


def pytest_collection_modifyitems(config, items):
    if "cluster" not in config.option.markexpr:
        for item in items:
            if item.get_closest_marker("cluster"):
                item.add_marker(pytest.mark.skip(reason="starts a Dask cluster: make test-cluster"))


@pytest.fixture(scope="session", autouse=True)
def mark():
    """Processes started from here on carry it, and none of them is left at the end."""
    with census.marking() as mark:
        yield
        assert not census.left(lambda: census.marked(mark)), "processes are left"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The client's store, which workers share that have no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        patch.setenv("FEDNB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def machines(store, tmp_path_factory):
    """A scheduler without workers."""
    made = Machines(tmp_path_factory.mktemp("machines"))
    yield made
    made.end()
