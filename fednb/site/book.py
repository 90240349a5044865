"""What the site knows of one notebook: its executed copy, the runs behind it, and what was kept from larger scales."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from fednb import notebooks
from fednb.grid import SCALES
from fednb.paper import papers, shelf
from fednb.report import page_folder

Runs = dict[str, dict[str, Any]]  # what is known of each run, by key


@dataclass(frozen=True)
class KeptResults:
    """What was kept with the paper from an execution at one scale: papers/<id>/results/<notebook>_<scale>."""

    scale: str
    folder: Path

    @property
    def runs(self) -> Runs:
        return _json(self.folder / "runs.json")

    @property
    def command(self) -> str:
        file = self.folder / "command.txt"
        return file.read_text(encoding="utf-8").strip() if file.exists() else ""

    @property
    def pictures(self) -> list[Path]:
        return sorted(self.folder.glob("*.png"))


@dataclass(frozen=True)
class Book:
    """One notebook, and the scale at which its executed copy is shown; nothing where there is none."""

    name: str
    scale: str

    @classmethod
    def of(cls, name: str, scale: str = "") -> Book:
        """At the given scale, or at the largest at which it was executed."""
        wanted = [scale] if scale else list(reversed(SCALES))
        there = [s for s in wanted if (page_folder(name, s) / "executed.ipynb").exists()]
        return cls(name, there[0] if there else "")

    @property
    def url(self) -> str:
        return f"notebooks/{self.name}.html"

    @property
    def folder(self) -> str:
        """Where its pictures are in the site."""
        return f"notebooks/{self.name}"

    @property
    def paper(self) -> str:
        """The id of the paper that it belongs to, if it does."""
        first, _, rest = self.name.partition("/")
        return first if rest and (shelf("papers") / first / "paper.toml").exists() else ""

    @cached_property
    def title(self) -> str:
        return notebooks.title(self.name)

    @cached_property
    def content(self) -> dict[str, Any]:
        """The executed copy; where there is none, the notebook as it is."""
        file = page_folder(self.name, self.scale) / "executed.ipynb" if self.scale else notebooks.path(self.name)
        return _json(file)

    @property
    def runs(self) -> Runs:
        """The runs that the executed copy shows."""
        return _json(page_folder(self.name, self.scale) / "runs.json") if self.scale else {}

    @property
    def errors(self) -> int:
        """How many cells ended in an error."""
        outputs = (o for cell in self.content["cells"] for o in cell.get("outputs", []))
        return sum(o["output_type"] == "error" for o in outputs)

    @property
    def stopped(self) -> bool:
        """Whether the execution was interrupted: papermill has no time for its end."""
        about = self.content["metadata"].get("papermill", {})
        return "start_time" in about and not about.get("end_time")

    @property
    def outdated(self) -> bool:
        """Whether the notebook was changed after it was executed, as far as the copy tells."""
        told = self.content["metadata"].get("fednb", {}).get("made_from", "")
        return bool(told) and told.split()[0] != notebooks.made_from(self.name).split()[0]

    @property
    def kept(self) -> list[KeptResults]:
        """From the largest scale down."""
        if not self.paper:
            return []
        found = [KeptResults(scale, papers(self.paper).kept_folder(self.name, scale)) for scale in reversed(SCALES)]
        return [each for each in found if each.folder.is_dir()]

    @property
    def executed(self) -> dict[str, Any]:
        """What papermill and fednb wrote down about the execution."""
        about = self.content["metadata"]
        return about.get("papermill", {}) | about.get("fednb", {})


def seeds(runs: Runs) -> int:
    return len({about["seed"] for about in runs.values()})


def told_by(runs: Runs) -> Iterator[tuple[str, str]]:
    """The runs in words: how many, seeds, devices, versions, commits, dates."""
    abouts = list(runs.values())
    if not abouts:
        return
    several = sorted({about["seed"] for about in abouts})
    yield "runs", f"{len(abouts)}, n = {len(several)} seed{'s' * (len(several) != 1)} ({_few(several)})"
    yield "device", _few(_all(abouts, "device_name"))
    yield "engine", _few(_all(abouts, "engine"))
    versions = [about.get("versions", {}) for about in abouts]
    yield "versions", ", ".join(f"{name} {_few(_all(versions, name))}" for name in ("fednb", "torch", "python"))
    yield "commit of the runs", _few([short(c) for c in _all(versions, "commit")])
    yield "runs made", _span(_all(abouts, "ended") or _all(abouts, "started"))


def short(commit: str | None) -> str:
    """A commit's first letters, and whether files differed from it."""
    return (commit or "")[:12] + "-dirty" * (commit or "").endswith("-dirty")


def _all(abouts: list[dict[str, Any]], name: str) -> list[Any]:
    return list(dict.fromkeys(about[name] for about in abouts if about.get(name)))


def _few(values: list[Any]) -> str:
    more = f" and {len(values) - 6} more" if len(values) > 6 else ""
    return ", ".join(map(str, values[:6])) + more


def _span(times: list[str]) -> str:
    days = sorted({day(time) for time in times})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else ""


def day(time: str) -> str:
    """2026-11-15T05:56:37Z as 2026-11-15."""
    return datetime.fromisoformat(time).date().isoformat()


def _json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
