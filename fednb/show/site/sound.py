"""What pages are made of, read and checked: a file that no page can be made of is damaged, and named."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fednb.base.files import DamagedFile, read_json
from fednb.runs.bench.kept import workload
from fednb.show.explore.moves import MIME, Moving
from fednb.study.folders import Abouts, check, read_runs

Thing = TypeVar("Thing")


@dataclass
class Reading:
    """Reads files, and notes which are damaged, so that one does not stop the others."""

    wrong: list[str] = field(default_factory=list)

    def or_else(self, otherwise: Thing, read: Callable[[], Thing]) -> Thing:
        """What is read; where that is damaged, what to show otherwise."""
        try:
            return read()
        except (DamagedFile, OSError) as error:
            self.wrong.append(str(error))
            return otherwise


def as_notebook(content: dict[str, Any], file: Path, remedy: str) -> dict[str, Any]:
    """A notebook's content, once all that a page needs is there; its cells get names that stand in addresses."""
    try:
        about, cells = content["metadata"], content["cells"]
        whole = all(isinstance(x, dict) for x in (about, about.get("papermill", {}), about.get("fednb", {})))
        whole = whole and bool(cells) and all(map(_is_cell, cells))
    except (KeyError, TypeError, AttributeError, ValueError):
        whole = False
    if not whole:
        raise DamagedFile(file, f"is not a whole notebook; {remedy}")
    named = [cell | {"id": _name(str(cell.get("id", "")), at)} for at, cell in enumerate(cells)]
    return {"cells": named, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def _is_cell(cell: dict[str, Any]) -> bool:
    kind = cell["cell_type"] in ("markdown", "code", "raw")
    outputs = cell["outputs"] if cell["cell_type"] == "code" else []
    return kind and _is_text(cell["source"]) and isinstance(cell["metadata"], dict) and all(map(_is_output, outputs))


def _is_output(output: dict[str, Any]) -> bool:
    match output["output_type"]:
        case "stream":
            return _is_text(output["text"]) and isinstance(output["name"], str)
        case "error":
            return all(isinstance(line, str) for line in output["traceback"])
        case "execute_result" | "display_data":
            for kind, data in output["data"].items():
                if kind.startswith("image/") and not kind.endswith("+xml"):
                    b64decode("".join(data))
                elif kind == MIME:
                    Moving.read(data)
                elif kind.startswith("text/") and not _is_text(data):
                    return False
            return True
        case _:
            return False


def _is_text(thing: Any) -> bool:
    return isinstance(thing, str) or (isinstance(thing, list) and all(isinstance(line, str) for line in thing))


def _name(id: str, at: int) -> str:
    return id if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", id) else f"at-{at}"


def checked_runs(page: Path) -> Abouts:
    """The runs of a page or of kept results; nothing where none were written down."""
    file = page / "runs.json"
    check(file)
    return read_runs(file) if file.exists() else {}


def checked_benchmark(file: Path) -> dict[str, Any]:
    """What `fednb bench ... --out` wrote."""
    try:
        result = read_json(file)
        whole = all(isinstance(row, dict) for row in result["rows"])
        whole = whole and isinstance(result.get("machine", {}), dict) and isinstance(workload(result), str)
    except (DamagedFile, LookupError, TypeError, ValueError, AttributeError):
        whole = False
    if not whole:
        raise DamagedFile(file, f"is not a benchmark; `fednb bench ... --out {file}` makes it again")
    return result
