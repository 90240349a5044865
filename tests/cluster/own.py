"""Data and methods of a user, which workers import: other samples by FEDNB_TEST_SAMPLES, and broken parts."""

from __future__ import annotations

import os

import numpy as np

from fednb.core.rounds import Method, Part, part


def dots():
    """Twelve dozen points of two kinds."""
    rng = np.random.default_rng(int(os.environ.get("FEDNB_TEST_SAMPLES", 0)))
    y = np.arange(144) % 2
    x = rng.integers(0, 128, size=(144, 1, 8, 8), dtype=np.uint8) + 100 * y[:, None, None, None].astype(np.uint8)
    return (x[:96], y[:96]), (x[96:], y[96:])


@part
class Broken(Part):
    """Fails in its second round."""

    def server(self, k, s):
        """raise"""
        if s.t:
            raise RuntimeError("this part is broken on purpose")


@part
class Deadly(Part):
    """Ends the process in which it runs."""

    def server(self, k, s):
        """exit"""
        os._exit(9)


def broken() -> Method:
    return Method("broken", Broken())


def deadly() -> Method:
    return Method("deadly", Deadly())
