"""All claims of a paper, or of all papers, at one scale: run what is missing, measure, judge, one table."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fednb.base.files import DamagedFile, new_folder
from fednb.base.inputs import closest, shown
from fednb.base.progress import bar_of
from fednb.data.dataset import DataNotFound
from fednb.data.identity import OtherSamples
from fednb.engines import PrecisionNotHere
from fednb.runs.grid import SCALES, Grid, NeedsGpu, Results
from fednb.study.claims import Claim
from fednb.study.folders import put_back
from fednb.study.jobs import follow
from fednb.study.measured import JUDGED, Measured, not_run
from fednb.study.measurements.registry import measurement_named
from fednb.study.page import Page, abouts
from fednb.study.paper import Paper
from fednb.study.plan import Need, Section, has_grid, needed, planned, sections
from fednb.study.selection import Selection
from fednb.study.verdict_text import in_columns  # noqa: F401  (prints the table that `verify` gives)

if TYPE_CHECKING:
    import pandas as pd

Judge = Callable[[Paper, str, str, tuple[str, ...]], "pd.DataFrame | None"]  # as `kept_section`

BEST = ("scale", *(name for name in JUDGED if name not in ("claim", "says", "rule", "paper")))  # of kept results

JUDGING = 0.02  # of the time that was given: kept for measuring and judging what was run
NOT_HERE = (NeedsGpu, PrecisionNotHere, DataNotFound, OtherSamples)  # why a section is not run on this machine
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
    chosen: Selection | None = None,
    claims: Collection[str] = (),
    on: str = "",
) -> pd.DataFrame:
    """One row per claim of one paper or several: the columns of `page.verdict`.

    Columns section and notebook say where it belongs, weight how much hangs on it. What was kept with the paper from
    the largest scale at which the claim was run is judged as well and stands beside it: best_verdict, best_scale and so
    on.
    Sections whose data are not here, or not those of their runs, or which need a GPU that is not here, are judged on
    what was kept at this scale, or else "not run", and the others go on. So they do after a section that failed or
    whose files are damaged; column `failed` says why. section: judge this one only. chosen: the part of the grids that
    is run and judged; its seeds count in place of `seeds`. claims: the ids of those that are judged, by the runs that
    they need; all if empty. on: the address of a Dask scheduler, or its file; missing runs are made there.
    """
    import pandas as pd

    several, chosen = _listed(papers), chosen or Selection(seeds)
    todo = asked_claims(several, section, claims)
    if chosen.only or chosen.methods:
        chosen.check(chosen.whole(paper, name, scale) for paper, name, _ in todo if has_grid(paper, name))
    tables = []
    with bar_of(len(todo), f"claims at {scale} scale", unit="section") as bar:
        for paper, name, own in todo:
            bar.say(f"{paper.id} {name}")
            some = own if claims else None
            tables.append(judged(paper, name, scale, device=device, chosen=chosen, claims=some, on=on))
            bar.update()
    return pd.concat(tables)


def asked_claims(
    papers: Iterable[Paper], section: str | None = None, ids: Collection[str] = ()
) -> list[tuple[Paper, str, list[Claim]]]:
    """The sections of some papers that have claims, each with its own; ids: these claims only, refused if unknown."""
    several = list(papers)
    named = [(p, name) for p in several for name in ([section] if section else p.about["sections"])]
    found = [(paper, name, own) for paper, name in named if (own := paper.claims(name))]
    if not found:
        raise NoClaims(f"{', '.join(paper.id for paper in several)} {section or ''}: has no claims to judge")
    known = {claim.id for _, _, own in found for claim in own}
    if unknown := [id for id in ids if id not in known]:
        among = f"`fednb verify {several[0].id} --kept --full` lists all"
        raise NoClaims(f"no claim {shown(unknown[0])}; closest: {closest(unknown[0], known, 'none')}; {among}")
    chosen = [(paper, name, [c for c in own if c.id in ids or not ids]) for paper, name, own in found]
    return [each for each in chosen if each[2]]


def verify_within(
    seconds: float,
    papers: Paper | Iterable[Paper],
    scale: str = "smoke",
    device: str = "auto",
    section: str | None = None,
    chosen: Selection | None = None,
    claims: Collection[str] = (),
    on: str = "",
) -> pd.DataFrame:
    """One row per claim, as in `verify`, after making missing runs for so many seconds in the order of the plan.

    A claim is judged when all runs that it needs are there; of the others the row says how many are missing. What was
    begun is saved and goes on the next time.
    """
    import pandas as pd

    began, several, chosen = time.monotonic(), _listed(papers), chosen or Selection()
    asked_claims(several, section, claims)
    plan = planned(several, scale, seconds, device, chosen, section, claims)
    big = scale == "paper" and device == "auto"
    if plan.tasks and big and not on and not torch.cuda.is_available():
        raise NeedsGpu(f"{len(plan.tasks)} runs are missing at paper scale and this machine has no GPU. "
                       "Use --scale laptop, or --device cpu --precision fp32 to run it here all the same.")  # fmt: skip
    planning = time.monotonic() - began  # reading all that was planned again, for judging, takes as long
    until = began + seconds - max(JUDGING * seconds, planning)
    made = follow([t.wanted for t in plan.tasks], [t.name for t in plan.tasks], "plan", device=device, until=until,
                  on=on, needs_gpu=big)  # fmt: skip
    errors = {plan.tasks[i].key: run for i, run in made if isinstance(run, Exception)}
    found = sections(several, scale, chosen, section, claims)
    return pd.concat([_judged_so_far(each, scale, errors, began + seconds) for each in found])


def _listed(papers: Paper | Iterable[Paper]) -> list[Paper]:
    return [papers] if isinstance(papers, Paper) else list(papers)


def _judged_so_far(section: Section, scale: str, errors: dict[str, Exception], until: float) -> pd.DataFrame:
    """The claims of a section: those whose runs are there are judged, the others say what they lack.

    errors: why runs could not be made, by key. until: the moment after which nothing that takes long is measured.
    """
    import pandas as pd

    finished = {run.key for run in section.runs if not run.entry.unfinished}
    ready = [need for need in section.needs if not _lacks(need, finished, errors)]
    too_late = time.monotonic() > until and not _by_accuracy(section, ready)
    late = "its runs are made; it is measured the next time" if too_late else ""
    reasons: dict[str, list[Need]] = {}
    for need in section.needs:
        reasons.setdefault(_lacks(need, finished, errors) or late, []).append(need)
    tables = []
    for reason, needs in reasons.items():
        claims, broken = [need.claim for need in needs], any(_broken(need, errors) for need in needs)
        measure = _refusing(reason, broken) if reason else lambda: _measured_part(section, ready, scale)
        tables.append(_judged(section.paper, section.name, scale, measure, claims))
    return pd.concat(tables).loc[[need.claim.id for need in section.needs]]


def _lacks(need: Need, finished: set[str], errors: dict[str, Exception]) -> str:
    """Why a claim cannot be judged yet; an empty text where it can."""
    missing = need.keys - finished
    why = next((f": {errors[key]}" for key in missing if key in errors), "")
    return need.never or (f"{len(missing)} of {len(need.keys)} runs are missing{why}" if missing else "")


def _broken(need: Need, errors: dict[str, Exception]) -> bool:
    """True if a run that a claim needs failed for another reason than what this machine has not."""
    return any(not isinstance(errors[key], NOT_HERE) for key in need.keys if key in errors)


def _refusing(reason: str, broken: bool) -> Callable[[], Measured]:
    """A function that gives no tables, but the reason why there are none."""

    def measure() -> Measured:
        raise RuntimeError(reason) if broken else NotThere(reason)

    return measure


def _measured_part(section: Section, ready: list[Need], scale: str) -> Measured:
    """The tidy tables for the claims that are ready, from the runs that they need and no others."""
    if section.grid is None:
        return _measured(section.paper, section.name, scale, None)
    keys = frozenset().union(*(need.keys for need in ready))
    made = [(cell, run) for cell, run in zip(section.grid.cells, section.runs, strict=True) if run.key in keys]
    grid = replace(section.grid, cells=tuple(cell for cell, _ in made))
    results = Results(grid, tuple(replace(run) for _, run in made))
    only = ("accuracy",) if _by_accuracy(section, ready) else None
    return _measured(section.paper, section.name, scale, results, only)


def _by_accuracy(section: Section, needs: list[Need]) -> bool:
    """True if some claims of a section need the accuracy of runs and nothing else."""
    measures = {measure for need in needs for measure in need.claim.measures}
    return section.grid is not None and measures == {"accuracy"} and "accuracy" in section.paper.evidence(section.name)


def judged(
    paper: Paper,
    name: str,
    scale: str,
    seeds: list[int] | None = None,
    device: str = "auto",
    chosen: Selection | None = None,
    claims: list[Claim] | None = None,
    on: str = "",
) -> pd.DataFrame:
    """The claims of one section, or some of them, as in `verify`: missing runs are made."""
    chosen = chosen or Selection(seeds)

    def measure() -> Measured:
        if not has_grid(paper, name):
            return _measured(paper, name, scale, None)
        return _measured(paper, name, scale, _part(paper, name, scale, chosen, claims).run(device=device, on=on))

    return _judged(paper, name, scale, measure, claims)


def _part(paper: Paper, name: str, scale: str, chosen: Selection, claims: list[Claim] | None = None) -> Grid:
    """The wanted part of a section's grid, or of that what some claims need; NotThere where no run of it is wanted."""
    if not chosen.cells(chosen.whole(paper, name, scale)):
        raise NotThere(f"no run fits {chosen}")
    grid = chosen.grid(paper, name, scale)
    if claims is None:
        return grid
    some = {i for claim in claims for i in needed(claim, grid, paper.evidence(name))}
    return replace(grid, cells=tuple(cell for i, cell in enumerate(grid.cells) if i in some) or grid.cells)


def recalled(paper: Paper, name: str, scale: str, judge: Judge | None = None) -> pd.DataFrame:
    """The claims of one section, as in `verify`, judged on what its notebook stored, nothing run. judge: see `best`."""
    return _judged(paper, name, scale, lambda: _stored(paper, name, scale), judge=judge)


def _stored(paper: Paper, name: str, scale: str) -> Measured:
    """What lies in the folder of a section's page in the store; NotThere where a table is missing."""
    page = Page(paper.about["sections"][name]["notebook"], scale, evidence={name: paper.evidence(name)})
    put_back(page.folder)
    measured = page.measured()
    if any(measured.lacking.values()):
        raise NotThere(f"not measured here yet: `fednb notebook {page.notebook} --scale {page.scale}`")
    return measured


def _judged(
    paper: Paper,
    name: str,
    scale: str,
    measure: Callable[[], Measured],
    claims: list[Claim] | None = None,
    judge: Judge | None = None,
) -> pd.DataFrame:
    """The claims of one section, or some of them, judged on what `measure` gives, or else on what was kept."""
    some, notebook = tuple(claim.id for claim in claims or ()), paper.about["sections"][name]["notebook"]
    claims = claims or paper.claims(name)
    try:
        measured = measure()
        found, failed = _page(paper, name, scale, claims).verdict(measured), ""
    except (*NOT_HERE, NotThere) as error:
        kept = partial(judge or kept_section, paper, name, scale, some)
        found, failed = _kept_or_not_run(kept, claims, str(error))
    except FAILED as error:
        failed = " ".join(f"{error}".split()) or type(error).__name__
        found = not_run(claims, {claim.id: failed for claim in claims})
    where = {"section": name, "notebook": notebook, "paper_id": paper.id, "scale": scale, "failed": failed}
    return found.assign(**where, weight=_weights(found, claims)).join(best(paper, name, judge))


def _weights(found: pd.DataFrame, claims: list[Claim]) -> list[str]:
    """How much hangs on each claim of a table of verdicts: headline, table or detail."""
    weights = {claim.id: claim.weight for claim in claims}
    return [weights[id] for id in found.index]


def _page(paper: Paper, name: str, scale: str, claims: list[Claim]) -> Page:
    """The page of one section, with some of its claims."""
    return replace(paper.page(name, scale=scale), claims=tuple(claims))


def _measured(
    paper: Paper, name: str, scale: str, results: Results | None, what: Iterable[str] | None = None
) -> Measured:
    """The tidy tables of a section's evidence, from its grid's runs where it has any. what: these measurements only."""
    evidence = paper.evidence(name)
    of = scale if results is None else results
    tables = [measurement_named(each)(of, **evidence[each]).assign(grid=name) for each in what or evidence]
    return Measured({name: tables}, abouts(results) if results else {})


def _kept_or_not_run(
    kept: Callable[[], pd.DataFrame | None], claims: list[Claim], reason: str
) -> tuple[pd.DataFrame, str]:
    """The claims judged on the tables kept with the paper, or why there are none; and what is damaged."""
    try:
        found = kept()
    except DamagedFile as error:
        return not_run(claims, {claim.id: str(error) for claim in claims}), str(error)
    return not_run(claims, {claim.id: reason for claim in claims}) if found is None else found, ""


def kept_section(paper: Paper, name: str, scale: str, ids: tuple[str, ...]) -> pd.DataFrame | None:
    """The claims of a section judged on the tables kept with the paper at a scale; None where nothing was kept.

    ids: these claims only; all if empty.
    """
    folder = put_back(paper.kept_folder(paper.about["sections"][name]["notebook"], scale))
    if not folder.is_dir():
        return None
    page = _page(paper, name, scale, [claim for claim in paper.claims(name) if claim.id in ids or not ids])
    return page.verdict(page.measured(folder))


def kept_verdicts(paper: Paper, notebook: str, scale: str, judge: Judge | None = None) -> pd.DataFrame:
    """The claims of a notebook's sections, judged on the tables kept with the paper at a scale. judge: see `best`."""
    import pandas as pd

    sections = [name for name, about in paper.about["sections"].items() if about["notebook"] == notebook]
    found = [(judge or kept_section)(paper, name, scale, ()) for name in sections if paper.claims(name)]
    return pd.concat([each for each in found if each is not None] or [not_run([], {})])


def best(paper: Paper, name: str, judge: Judge | None = None) -> pd.DataFrame:
    """The claims of a section judged on kept tables, each at the largest scale at which it was run.

    Columns best_verdict, best_scale and so on; empty texts for a claim that was never run. A table that is damaged is
    told on stderr and left out. judge: for who asks several times, `functools.cache(kept_section)`, which judges once.
    """
    import pandas as pd

    claims = paper.claims(name)
    ids = pd.Index([claim.id for claim in claims], name="claim")
    found = pd.DataFrame("", index=ids, columns=[f"best_{column}" for column in BEST], dtype=object)
    row = _largest(paper, name, (), SCALES[1:], judge or kept_section)[list(BEST)].astype(object).add_prefix("best_")
    found.loc[row.index, row.columns] = row
    return found


def _largest(paper: Paper, name: str, ids: tuple[str, ...], scales: Iterable[str], judge: Judge) -> pd.DataFrame:
    """Some claims of a section judged on kept tables, each at the last of some scales at which it was run."""
    import pandas as pd

    found = not_run([], {}).assign(scale="")
    for scale in scales:
        try:
            kept = judge(paper, name, scale, ids)
        except DamagedFile as error:
            print(f"fednb: {error}", file=sys.stderr)
            continue
        if kept is not None:
            ran = kept[~kept["verdict"].str.startswith("not run")].assign(scale=scale)
            found = pd.concat([found.drop(ran.index, errors="ignore"), ran]) if len(found) else ran
    return found


def verify_kept(
    papers: Paper | Iterable[Paper], scale: str | None = None, section: str | None = None, claims: Collection[str] = ()
) -> pd.DataFrame:
    """One row per claim, as in `verify`, judged on what is kept with the papers: nothing is run or looked for.

    Each at the largest scale at which it was run, which column `scale` says, or at the one named. claims: these ids
    only; all if empty.
    """
    import pandas as pd

    tables = []
    for paper, name, own in asked_claims(_listed(papers), section, claims):
        ids = tuple(claim.id for claim in own)
        ran = _largest(paper, name, ids, [scale] if scale else SCALES[1:], kept_section)
        rest = [claim for claim in own if claim.id not in ran.index]
        table = pd.concat([ran, not_run(rest, {c.id: "nothing is kept" for c in rest}).assign(scale="")])
        where = {"section": name, "notebook": paper.about["sections"][name]["notebook"], "paper_id": paper.id}
        none = dict.fromkeys((f"best_{column}" for column in BEST), "")
        told = table.loc[[claim.id for claim in own]].assign(**where, failed="", **none)
        tables.append(told.assign(weight=_weights(told, own)))
    return pd.concat(tables)


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
