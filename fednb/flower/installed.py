"""Flower itself: imported when it is asked for, with its telemetry and its search for updates switched off."""

from __future__ import annotations

import os

from fednb.base.imports import installed

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}  # for every process that imports Flower


def need_flower() -> None:
    """Switch Flower's telemetry off and import it; NotInstalled, in one line, where it is not installed."""
    os.environ.update(QUIET)
    installed("flwr", "a federation of Flower", "flower")
