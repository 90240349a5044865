"""All claims of a paper, or of all papers, at one scale: run what is missing, measure, judge, one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from fednb.base.files import DamagedFile, new_folder
from fednb.base.progress import bar_of
from fednb.data.dataset import DataNotFound
from fednb.data.identity import OtherSamples
from fednb.runs.grid import SCALES, NeedsGpu
from fednb.study.claims import Claim, verdict
from fednb.study.measurements.registry import measurement_named
from fednb.study.page import page_folder, put_back, read_table
from fednb.study.paper import Paper

if TYPE_CHECKING:
    import pandas as pd

SHOWN = {"paper_id": ("paper", 14), "claim": ("claim", 24), "paper": ("printed", 34), "ours": ("ours", 36),
         "n": ("n", 2), "verdict": ("verdict", 13), "kept": ("best kept", 16)}  # fmt: skip  # heads and widths


NOT_HERE = (NeedsGpu, DataNotFound, OtherSamples)  # why a section is not run on this machine
FAILED = (DamagedFile, ValueError, KeyError, RuntimeError)  # why a section that was run has no verdict


class NotThere(RuntimeError):
    """Tables that no notebook has measured yet, where nothing was to be run."""


class NoClaims(ValueError):
    """A section, or papers, without a claim."""


class CannotWrite(ValueError):
    """A file that the table cannot be written to."""


def verify(
    papers: Paper | Iterable[Paper],
    scale: str = "smoke",
    seeds: list[int] | None = None,
    device: str = "auto",
    section: str | None = None,
) -> pd.DataFrame:
    """One row per claim of one paper or several: what it says, its rule, the paper's numbers, ours, n, the verdict.

    Columns section and notebook say where it belongs. What was kept with the paper from the largest scale that decided
    something stands beside it: best_verdict, best_scale, best_n and best_ours. Sections whose data are not here, or
    not those of their runs, or which need a GPU that is not here, are "not run", and the others go on. So they do after
    a section that failed or whose files are damaged; column `failed` says why. section: judge this one only.
    """
    import pandas as pd

    several = [papers] if isinstance(papers, Paper) else list(papers)
    named = [(p, name) for p in several for name in ([section] if section else p.about["sections"])]
    todo = [(paper, name) for paper, name in named if paper.claims(name)]
    if not todo:
        raise NoClaims(f"{', '.join(paper.id for paper in several)} {section or ''}: has no claims to judge")
    tables = []
    with bar_of(len(todo), f"claims at {scale} scale", unit="section") as bar:
        for paper, name in todo:
            bar.say(f"{paper.id} {name}")
            tables.append(judged(paper, name, scale, seeds, device))
            bar.update()
    return pd.concat(tables)


def judged(paper: Paper, name: str, scale: str, seeds: list[int] | None = None, device: str = "auto") -> pd.DataFrame:
    """The claims of one section, as in `verify`: missing runs are made."""
    return _judged(paper, name, scale, lambda: _measured(paper, name, scale, seeds, device))


def recalled(paper: Paper, name: str, scale: str) -> pd.DataFrame:
    """The claims of one section, as in `verify`, judged on the tables that its notebook stored: nothing is run."""
    return _judged(paper, name, scale, lambda: _stored_tables(paper, name, scale))


def _judged(paper: Paper, name: str, scale: str, measured: Callable[[], list[pd.DataFrame]]) -> pd.DataFrame:
    """The claims of one section, judged on the tables that `measured` gives."""
    claims, notebook = paper.claims(name), paper.about["sections"][name]["notebook"]
    try:
        found = verdict(measured(), claims, scale)
        failed = ""
    except (*NOT_HERE, NotThere) as error:
        found, failed = _stored_verdicts(paper, name, scale, claims, str(error))
    except FAILED as error:
        failed = " ".join(f"{error}".split()) or type(error).__name__
        found = _not_run(claims, failed)
    where = {"section": name, "notebook": notebook, "paper_id": paper.id, "scale": scale, "failed": failed}
    return found.assign(**where).join(best(paper, name))


def _measured(paper: Paper, name: str, scale: str, seeds: list[int] | None, device: str) -> list[pd.DataFrame]:
    """The tidy tables of a section's evidence, from its grid's runs."""
    evidence = paper.evidence(name)
    page = paper.page(name, scale=scale, seeds=seeds)
    if not page.grids:
        return [measurement_named(what)(scale, **how).assign(grid=name) for what, how in evidence.items()]
    results = page.grid.run(device=device)
    return [measurement_named(what)(results, **how).assign(grid=name) for what, how in evidence.items()]


def _stored_tables(paper: Paper, name: str, scale: str) -> list[pd.DataFrame]:
    """The tidy tables of a section's evidence, as `page.measure` stored them when the notebook was executed."""
    notebook = paper.about["sections"][name]["notebook"]
    page = put_back(page_folder(notebook, scale))
    files = [page / f"{name}_{what}.csv" for what in paper.evidence(name)]
    if not all(file.exists() for file in files):
        raise NotThere(f"not measured here yet: `fednb notebook {notebook} --scale {scale}`")
    return [read_table(file, index_col=0, keep_default_na=False, na_values=[""]) for file in files]


def _stored_verdicts(paper: Paper, name: str, scale: str, claims: list[Claim], reason: str) -> tuple[pd.DataFrame, str]:
    """The verdicts stored with the paper from a run elsewhere, or why there are none; and what is damaged."""
    file = _verdict_file(paper, name, scale)
    if not file.exists():
        return _not_run(claims, reason), ""
    try:
        stored = read_table(file, index_col="claim").reindex([claim.id for claim in claims])
    except DamagedFile as error:
        return _not_run(claims, str(error)), str(error)
    found = _not_run(claims, reason).astype(object)
    found.update(stored)  # an older file may lack a claim or a column
    return found, ""


def _not_run(claims: list[Claim], reason: str) -> pd.DataFrame:
    """Claims without numbers, and why there are none."""
    import pandas as pd

    ids = [claim.id for claim in claims]
    empty: dict[str, Any] = {"says": [c.says for c in claims], "rule": [c.rule for c in claims], "paper": "",
                             "ours": reason, "n": 0, "verdict": "not run"}  # fmt: skip
    return pd.DataFrame(empty, index=pd.Index(ids, name="claim"))


def _verdict_file(paper: Paper, name: str, scale: str) -> Path:
    """Where `--keep` puts the verdicts of a section's notebook."""
    return put_back(paper.kept_folder(paper.about["sections"][name]["notebook"], scale)) / "verdict.csv"


def best(paper: Paper, name: str) -> pd.DataFrame:
    """The kept verdicts of a section: of each claim the one from the largest scale at which it was run."""
    import pandas as pd

    ids = pd.Index([claim.id for claim in paper.claims(name)], name="claim")
    found = pd.DataFrame("", index=ids, columns=["best_verdict", "best_scale", "best_n", "best_ours"])
    for scale in SCALES[1:]:
        file = _verdict_file(paper, name, scale)
        if not file.exists():
            continue
        try:
            kept = read_table(file, index_col="claim")
        except DamagedFile as error:
            print(f"fednb: {error}", file=sys.stderr)
            continue
        ran = kept[~kept["verdict"].str.startswith("not run") & kept.index.isin(ids)]
        row = ran[["verdict", "n", "ours"]].astype(str).add_prefix("best_").assign(best_scale=scale)
        found.loc[row.index, row.columns] = row
    return found


def check_writable(option: str, file: Path) -> None:
    """Refuse a file that cannot be written to, before anything is run for it; its folder is made."""
    try:
        new_folder(file.absolute().parent)
    except OSError as error:
        raise CannotWrite(f"{option} {file}: its folder cannot be made ({error.strerror})") from None
    if file.is_dir():
        raise CannotWrite(f"{option} {file}: is a folder; name a file in it")
    if not os.access(file.absolute().parent, os.W_OK | os.X_OK):
        raise CannotWrite(f"{option} {file}: its folder cannot be written to")


def in_columns(table: pd.DataFrame) -> str:
    """The table for a terminal: long texts wrapped inside their columns."""
    widths = [width for _, width in SHOWN.values()]
    lines = [_line([head for head, _ in SHOWN.values()], widths), _line(["-" * width for width in widths], widths)]
    for row in table.reset_index().to_dict("records"):
        kept = f"{row['best_verdict']} ({row['best_scale']}, n = {row['best_n']})" if row["best_verdict"] else ""
        texts = row | {"kept": kept}
        cells = [wrap(str(texts[name]), width) or [""] for name, (_, width) in SHOWN.items()]
        lines += [_line([c[i] if i < len(c) else "" for c in cells], widths) for i in range(max(map(len, cells)))]
    return "\n".join(lines)


def _line(texts: list[str], widths: list[int]) -> str:
    return "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()
