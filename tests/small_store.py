"""A store of a test file's own in which the explorers' first runs take a second."""

import pytest

from fednb.show.explore import stored

TINY = dict(data="digits", model="cnn-small", samples=150, clients=3, participation=1.0, batch=50, epochs=1, rounds=2)
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    """Nobody is at the front end, unless a test says so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        patch.setenv("FEDNB_WIDGETS", "still")
        patch.setitem(stored.SCALES, "smoke", TINY)
        yield
