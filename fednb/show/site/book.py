"""What the site knows of one notebook: its executed copy, the runs behind it, and what was kept from larger scales."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.base.files import DamagedFile, read_json
from fednb.runs.grid import SCALES
from fednb.show.site.pages import address
from fednb.show.site.sound import Reading, as_notebook, checked_runs
from fednb.study import notebooks
from fednb.study.execution import EXECUTED, problems_of, read_executed
from fednb.study.folders import Abouts, contents_of, page_folder, read_table, remedy
from fednb.study.measured import precisions
from fednb.study.paper import Paper, papers, shelf
from fednb.study.verify import Judge, kept_verdicts

if TYPE_CHECKING:
    import pandas as pd

BLANK = {"cells": [{"cell_type": "markdown", "id": "none", "metadata": {}, "source": ""}], "metadata": {},
         "nbformat": 4, "nbformat_minor": 5}  # fmt: skip
KEPT_AS = re.compile(r'page\.keep\(\s*"([^"]+)"')
SHORT = ["verdict", "effect", "low", "high", "printed", "n", "settings_run", "settings_claimed"]  # of kept verdicts
MOST_ROWS = 60  # of a kept table that a page shows


@dataclass(frozen=True)
class KeptResults:
    """What was kept with the paper from an execution at one scale: papers/<id>/results/<notebook>_<scale>."""

    scale: str
    folder: Path
    runs: Abouts
    verdicts: pd.DataFrame
    command: str

    @classmethod
    def of(cls, paper: Paper, notebook: str, scale: str, judge: Judge | None = None) -> KeptResults:
        """Read kept results with every file checked, and judge them. judge: as `verify.best` takes it."""
        folder = paper.kept_folder(notebook, scale)
        told = folder / "command.txt"
        command = told.read_text(encoding="utf-8", errors="replace").strip() if told.exists() else ""
        return cls(scale, folder, checked_runs(folder), kept_verdicts(paper, notebook, scale, judge), command)

    @property
    def pictures(self) -> list[Path]:
        return sorted(self.folder.glob("*.png"))

    def beneath(self, cell: dict[str, Any]) -> dict[str, Any]:
        """A cell of the notebook with what was kept of it as its results."""
        if cell["cell_type"] != "code":
            return cell
        names = KEPT_AS.findall("".join(cell["source"]))
        return cell | {"outputs": [result for name in names if (result := self._result(name))]}

    def _result(self, name: str) -> dict[str, Any]:
        """A figure or table that was kept under a name, as a cell's result; nothing where it was not."""
        picture, file = self.folder / f"{name}.png", self.folder / f"{name}.csv"
        if name == "verdict":
            data = {"text/html": self.verdicts[SHORT].to_html(na_rep="", float_format="{:.3g}".format)}
        elif picture.exists():
            data = {"image/png": b64encode(picture.read_bytes()).decode()}
        elif file.exists():
            data = {"text/html": read_table(file).to_html(index=False, na_rep="", max_rows=MOST_ROWS)}
        else:
            return {}
        return {"output_type": "display_data", "metadata": {}, "data": data}


@dataclass(frozen=True)
class Book:
    """One notebook, and the scale at which it is shown; nothing where it was neither kept nor executed.

    content: the executed copy, or the notebook with kept results beneath its cells; where there is neither, the
    notebook as it is. runs: those that it shows. kept: from the largest scale down. shown: the kept results that the
    content has. wrong: a line for each damaged file, none of which is shown.
    """

    name: str
    scale: str
    content: dict[str, Any] = field(repr=False)
    runs: Abouts = field(repr=False)
    kept: tuple[KeptResults, ...] = field(repr=False)
    wrong: tuple[str, ...] = ()
    shown: KeptResults | None = field(default=None, repr=False)

    @classmethod
    def of(cls, name: str, scale: str = "", judge: Judge | None = None) -> Book:
        """At the given scale, or at the largest at which results are kept or it was executed.

        judge: as `verify.best` takes it.
        """
        executed = cls._executed(name, scale, judge)
        first = next((k for k in executed.kept if scale in ("", k.scale)), None)
        if first is None or (executed.scale and SCALES.index(executed.scale) >= SCALES.index(first.scale)):
            return executed
        return executed._with(first)

    def _with(self, kept: KeptResults) -> Book:
        """This notebook as it is now, with kept results beneath its cells."""
        seen = Reading(list(self.wrong))
        source: dict[str, Any] = seen.or_else(BLANK, lambda: _source(self.name))
        content = source | {"cells": [kept.beneath(cell) for cell in source["cells"]]}
        return replace(self, scale=kept.scale, content=content, runs=kept.runs, shown=kept,
                       wrong=tuple(dict.fromkeys(seen.wrong)))  # fmt: skip

    @classmethod
    def _executed(cls, name: str, scale: str, judge: Judge | None) -> Book:
        """At the given scale, or at the largest at which it was executed."""
        seen = Reading()
        wanted = [scale] if scale else list(reversed(SCALES))
        at = next((s for s in wanted if _was_executed(name, s)), "")
        copy = seen.or_else(None, lambda: _executed(name, at)) if at else None
        seen.wrong += problems_of(page_folder(name, at)) if at else []
        runs: Abouts = seen.or_else({}, lambda: checked_runs(page_folder(name, at))) if copy else {}
        content = copy or seen.or_else(BLANK, lambda: _source(name))
        kept = tuple(_kept(name, seen, judge))
        return cls(name, at if copy else "", content, runs, kept, tuple(dict.fromkeys(seen.wrong)))

    @property
    def url(self) -> str:
        return f"notebooks/{address(self.name)}.html"

    @property
    def folder(self) -> str:
        """Where its pictures are in the site."""
        return f"notebooks/{address(self.name)}"

    @property
    def paper(self) -> str:
        """The id of the paper that it belongs to, if it does."""
        return _paper_of(self.name)

    @property
    def title(self) -> str:
        """The first heading."""
        lines = "".join(self.content["cells"][0]["source"]).splitlines()
        return (lines[0].lstrip("# ") if lines else "") or self.name

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
        told = str(self.content["metadata"].get("fednb", {}).get("made_from", "")).split()
        return bool(told) and told[0] != notebooks.made_from(self.name).split()[0]

    @property
    def executed(self) -> dict[str, Any]:
        """What papermill and fednb wrote down about the execution."""
        about = self.content["metadata"]
        return about.get("papermill", {}) | about.get("fednb", {})


def _was_executed(name: str, scale: str) -> bool:
    """Whether there is an executed copy, or should be one."""
    folder = page_folder(name, scale)
    try:
        return (folder / EXECUTED).exists() or EXECUTED in contents_of(folder).files
    except DamagedFile:
        return True


def _executed(name: str, scale: str) -> dict[str, Any]:
    folder = page_folder(name, scale)
    try:
        return as_notebook(read_executed(name, scale), folder / EXECUTED, remedy(folder))
    except FileNotFoundError:
        raise DamagedFile(folder / EXECUTED, f"is missing; {remedy(folder)}") from None


def _source(name: str) -> dict[str, Any]:
    """The notebook as it is, without results."""
    file = notebooks.path(name)
    installed = shelf("notebooks").name == "_notebooks"
    back = "installing fednb again brings it back" if installed else f"`git checkout -- {file}` brings it back"
    try:
        return as_notebook(read_json(file), file, back)
    except DamagedFile as error:
        raise error if back in error.what else DamagedFile(file, f"{error.what}; {back}") from None


def _kept(name: str, seen: Reading, judge: Judge | None) -> Iterator[KeptResults]:
    """What was kept of a notebook, from the largest scale down; what is damaged is left out as a whole."""
    for scale in reversed(SCALES) if (paper := _paper_of(name)) else ():
        folder = papers(paper).kept_folder(name, scale)
        if wrong := problems_of(folder):
            seen.wrong += wrong
            continue
        read = partial(KeptResults.of, papers(paper), name, scale, judge)
        if folder.is_dir() and (kept := seen.or_else(None, read)):
            yield kept


def _paper_of(name: str) -> str:
    first, _, rest = name.partition("/")
    return first if rest and (shelf("papers") / first / "paper.toml").exists() else ""


def seeds(runs: Abouts) -> int:
    return len(_seeds(runs))


def caption(scale: str, runs: Abouts) -> str:
    """What stands below a picture: the scale, the number of seeds, the precision of the runs."""
    return ", ".join([f"{scale} scale", *([f"n = {seeds(runs)}"] if runs else []), *precisions(runs)])


def _seeds(runs: Abouts) -> list[str]:
    """As texts: whole numbers in their order, then whatever else was once taken for a seed."""
    found = {str(about.get("seed")) for about in runs.values()}
    return sorted(found, key=lambda seed: (not seed.isdecimal(), seed.zfill(20)))


def told_by(runs: Abouts) -> Iterator[tuple[str, str]]:
    """The runs in words: how many, seeds, precisions, devices, versions, commits, dates."""
    abouts = list(runs.values())
    if not abouts:
        return
    several = _seeds(runs)
    yield "runs", f"{len(abouts)}, n = {len(several)} seed{'s' * (len(several) != 1)} ({_few(several)})"
    yield "precision", _few(precisions(runs))
    yield "device", _few(_all(abouts, "device_name"))
    yield "engine", _few(_all(abouts, "engine"))
    versions = [told for about in abouts if isinstance(told := about.get("versions"), dict)]
    yield "versions", ", ".join(f"{name} {_few(_all(versions, name))}" for name in ("fednb", "torch", "python"))
    yield "commit of the runs", _few([short(c) for c in _all(versions, "commit")])
    yield "runs made", _span(_all(abouts, "ended") or _all(abouts, "started"))


def short(commit: str | None) -> str:
    """A commit's first letters, and whether files differed from it."""
    return str(commit or "")[:12] + "-dirty" * str(commit or "").endswith("-dirty")


def _all(abouts: list[dict[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(str(about[name]) for about in abouts if about.get(name)))


def _few(values: list[str]) -> str:
    more = f" and {len(values) - 6} more" if len(values) > 6 else ""
    return ", ".join(values[:6]) + more


def _span(times: list[str]) -> str:
    days = sorted({day(time) for time in times})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else ""


def day(time: str) -> str:
    """2026-11-15T05:56:37Z as 2026-11-15; another text as it is."""
    try:
        return datetime.fromisoformat(time).date().isoformat()
    except (ValueError, TypeError):
        return str(time)
