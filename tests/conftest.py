"""The default run is on the CPU, also where there is a GPU: bits are compared. `-m gpu` sees the GPU."""

import os
import sys

import pytest

if "gpu" not in sys.argv:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.fixture(autouse=True)
def _products_as_before():
    """A CPU that cannot multiply in bf16 makes torch leave oneDNN for good: later bits would be others."""
    torch = sys.modules.get("torch")  # never loaded for this alone
    enabled = torch and torch.backends.mkldnn.enabled
    yield
    if enabled and not torch.backends.mkldnn.enabled:
        torch.backends.mkldnn.enabled = True


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder, and no network."""
    from fednb.data import sources

    monkeypatch.setenv("FEDNB_DATA", str(tmp_path))
    monkeypatch.setenv("FEDNB_OFFLINE", "1")
    sources.held.cache_clear()
    return tmp_path
