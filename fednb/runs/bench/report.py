"""Where numbers come from and how they are shown: the machine, a table, one line of JSON."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from typing import Any

import torch

from fednb.base.version import __version__, commit
from fednb.engines import cores

Rows = list[dict[str, Any]]


def machine(device: str) -> dict[str, Any]:
    """What a time means nothing without."""
    gpu = torch.device(device).type == "cuda"
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "gpu": torch.cuda.get_device_name(device) if gpu else None,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,  # before anything is timed
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if gpu else None,
        "fednb": __version__,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _cpu() -> str:
    """The processor's name; Python knows it on few systems."""
    if shutil.which("lscpu"):
        told = subprocess.run(["lscpu"], capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
        names = [line.partition(":")[2].strip() for line in told.stdout.splitlines() if line.startswith("Model name")]
        if names:
            return names[0]
    return platform.processor() or platform.machine()


def in_words(about: dict[str, Any]) -> str:
    """The machine in two lines."""
    where = [f"{about['cpu']}, {about['cores']} cores", about["gpu"], f"load {about['load']}"]
    what = [f"{name} {about[name]}" for name in ("torch", "cuda", "python", "fednb", "commit") if about[name]]
    return f"machine   {'; '.join(filter(None, where))}\nversions  {', '.join(what)}; {about['date']}"


def labelled(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its engine and mode in one word."""
    return row | {"label": ":".join(filter(None, (row.get("engine"), row.get("mode"))))}


def table(rows: Rows, heads: dict[str, str]) -> str:
    """Rows under headings, numbers to three digits; columns that nobody fills are left out."""
    shown = [name for name in heads if any(row.get(name) is not None for row in rows)]
    lines = [[heads[name] for name in shown], *([_cell(row.get(name)) for name in shown] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = {i for i, name in enumerate(shown) if any(isinstance(row.get(name), str) for row in rows)}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in texts else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
