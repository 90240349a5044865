"""A plugin for examples in docstrings: each begins with the names that the API reference promises, and has a store."""

import pytest


@pytest.fixture(scope="session")
def examples_store(tmp_path_factory):
    return tmp_path_factory.mktemp("examples")


@pytest.fixture
def own_names():
    """Data, models, partitions, losses and metrics that a test enters under names of its own go when it ends."""
    from fednb import models
    from fednb.data import partition, sources
    from fednb.engines.losses import LOSSES
    from fednb.engines.measures import METRICS

    registers: list[dict] = [sources.SOURCES, models.MODELS, partition.OWN, LOSSES.known, METRICS.known]
    before = [dict(register) for register in registers]
    yield
    for register, known in zip(registers, before, strict=True):
        register.clear()
        register.update(known)


@pytest.fixture(autouse=True)
def example(request, monkeypatch):
    """Prepares an example before it is run; other tests are left alone."""
    if isinstance(request.node, pytest.DoctestItem):
        from fednb.show.site.reference import begin  # when tests/conftest.py has chosen the device

        request.getfixturevalue("own_names")
        monkeypatch.setenv("FEDNB_STORE", str(request.getfixturevalue("examples_store")))
        monkeypatch.setenv("MPLBACKEND", "agg")
        request.getfixturevalue("doctest_namespace").update(begin(request.node.dtest.examples))
