"""Tests that need a real data set, and run where there is one."""

import os

import pytest

from fednb.data.sources import available


def real(name: str) -> pytest.MarkDecorator:
    """Skip unless the folder of FEDNB_DATA holds the set."""
    here = os.environ.get("FEDNB_DATA") and available(name)
    return pytest.mark.skipif(not here, reason=f"FEDNB_DATA has no {name}")
