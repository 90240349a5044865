"""The default run is on the CPU, also where there is a GPU: bits are compared. `-m gpu` sees the GPU."""

import os
import sys

import pytest

if "gpu" not in sys.argv:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder, and no network."""
    from fednb.data import sources

    monkeypatch.setenv("FEDNB_DATA", str(tmp_path))
    monkeypatch.setenv("FEDNB_OFFLINE", "1")
    sources.held.cache_clear()
    return tmp_path
