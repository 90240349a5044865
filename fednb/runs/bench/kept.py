"""Figures that came with this version: the JSON that a benchmark wrote, shown again as a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fednb.runs.bench import engines, floor, precision, scale
from fednb.runs.bench import table as whole
from fednb.runs.bench.report import in_words, labelled, table

FOLDER = Path(__file__).with_name("kept")
HEADS = {"scale": scale.HEADS, "floor": floor.HEADS, "precision": precision.HEADS, "table": whole.HEADS}
WORKLOAD = "{model}, shapes of {data}: {participants} of {clients} clients x {samples} samples, batch {batch}, " \
           "{epochs} epochs, {precision}"  # fmt: skip
TRAINED = "{model} on {data}, {partition}, {clients} clients, participation {participation}, {rounds} rounds of " \
          "{epochs} epochs, batch {batch}"  # fmt: skip
TITLES = {"precision": TRAINED, "table": f"{TRAINED}, {{precision}}"}


def results() -> dict[str, dict[str, Any]]:
    """What each file holds, by its name: the rows, the machine, the workload, and the command where it is known."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}


def in_tables() -> str:
    """All of them for the terminal, and how they were made."""
    shown = (f"{name}\n{in_table(result)}\n" for name, result in results().items())
    return "\n".join([*shown, (FOLDER / "commands.txt").read_text().rstrip()])


def workload(result: dict[str, Any]) -> str:
    """What was timed, or compared, in words; nothing where the file does not say."""
    title = TITLES.get(result.get("bench", ""), WORKLOAD)
    return title.format(**result["workload"]) if "workload" in result else ""


def in_table(result: dict[str, Any]) -> str:
    """One of them."""
    what = workload(result) or result["bench"]
    heads = HEADS.get(result["bench"], {"method": "method", **engines.HEADS})
    return f"{what}\n{table([labelled(row) for row in result['rows']], heads)}\n{in_words(result['machine'])}"
