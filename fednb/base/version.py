"""The version and the commit, in one place."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__version__ = "0.2.0"
"""The version of fednb: three numbers with dots between them.

>>> fn.__version__.count(".")
2
"""


def commit() -> str | None:
    """The checkout's commit, "-dirty" where files differ from it; FEDNB_COMMIT tells a copy without its history."""
    here = Path(__file__).resolve().parents[2]
    if told := os.environ.get("FEDNB_COMMIT"):
        return told
    if not (here / ".git").exists():
        return None
    ask = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip() or None
