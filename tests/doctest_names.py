"""A plugin for examples in docstrings: each begins with the names that the API reference promises, and has a store."""

import pytest


@pytest.fixture(scope="session")
def examples_store(tmp_path_factory):
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(autouse=True)
def example(request, monkeypatch):
    """Prepares an example before it is run; other tests are left alone."""
    if isinstance(request.node, pytest.DoctestItem):
        from fednb.show.site.reference import begin  # when tests/conftest.py has chosen the device

        monkeypatch.setenv("FEDNB_STORE", str(request.getfixturevalue("examples_store")))
        monkeypatch.setenv("MPLBACKEND", "agg")
        request.getfixturevalue("doctest_namespace").update(begin(request.node.dtest.examples))
