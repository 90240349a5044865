"""The verbs `fednb plan` and `fednb verify`: what the runs behind tables cost, and what they decide."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from fednb.base.files import atomically
from fednb.base.progress import duration
from fednb.cli.options import names_of, part_of, seconds_of, seeds_of
from fednb.engines.setting import Setting
from fednb.runs.grid import SCALES
from fednb.runs.store import home
from fednb.show.site.claims import claims_page
from fednb.study.paper import Paper, papers
from fednb.study.plan import has_grid, planned
from fednb.study.selection import Selection
from fednb.study.verdict_text import for_terminal
from fednb.study.verify import asked_claims, check_writable, verify, verify_kept, verify_within

if TYPE_CHECKING:
    import pandas as pd

PRECISIONS = Setting.__dataclass_fields__["precision"].metadata["allowed"]


def add_verify(verb: argparse.ArgumentParser) -> None:
    _add_papers(verb)
    verb.add_argument("--for", dest="seconds", type=seconds_of, metavar="TIME",
                      help="make missing runs for so long, such as 25m, in the order of `fednb plan`")  # fmt: skip
    verb.add_argument("--claim", action="append", default=[], metavar="ID", help="only this one; may be repeated")
    add_on(verb)
    verb.add_argument("--kept", action="store_true", help="judge what is kept with the papers, each claim at its "
                      "largest scale or at --scale; nothing is run")  # fmt: skip
    verb.add_argument("--dry-run", action="store_true", help="say what would be run and how long it takes")
    verb.add_argument("--full", action="store_true", help="print every claim with its numbers; default: a summary "
                      "where that is more than a screen")  # fmt: skip
    verb.add_argument("--csv", help="write the whole table, with rules and notebooks, to this file")
    verb.add_argument("--html", help="write it as a web page to this file")
    verb.set_defaults(do=do_verify)


def add_plan(verb: argparse.ArgumentParser) -> None:
    _add_papers(verb)
    verb.add_argument("--for", dest="seconds", type=seconds_of, default=inf, metavar="TIME",
                      help="what can be decided in this time, such as 25m; default: all of it")  # fmt: skip
    verb.add_argument("--csv", help="write the steps, also those that are too late, to this file")
    verb.set_defaults(do=do_plan)


def _add_papers(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("papers", nargs="*", metavar="PAPER", help="its id; `fednb ls papers` lists all")
    verb.add_argument("--section", help="one section of the paper, such as table1")
    verb.add_argument(
        "--all", action="store_true", help="all papers in one table; of `verify` also as CSV and web page"
    )
    add_scale(verb)


def add_scale(verb: argparse.ArgumentParser) -> None:
    """Options for the part of papers' grids that `chosen_of` gives, and for the device that they run on."""
    add_part(verb)
    verb.add_argument("--device", default="auto", help="auto | cpu | cuda")


def add_on(verb: argparse.ArgumentParser) -> None:
    """The option for a cluster on which missing runs are made."""
    verb.add_argument("--on", default="", metavar="ADDRESS", help="make missing runs on this Dask cluster: its "
                      "scheduler, such as tcp://10.0.0.1:8786, or its scheduler file; default: here")  # fmt: skip


def add_part(verb: argparse.ArgumentParser) -> None:
    """Options for the part of papers' grids that `chosen_of` gives."""
    verb.add_argument("--scale", default="smoke", help=" | ".join(SCALES))
    verb.add_argument("--seeds", type=seeds_of, help="such as 0,1,2; default: those of each grid")
    verb.add_argument("--only", action="append", default=[], metavar="NAME=VALUE,...",
                      help="a part of the grids, such as dataset=CIFAR-10; may be repeated")  # fmt: skip
    verb.add_argument("--methods", action="append", default=[], metavar="METHOD,...",
                      help="only these, by the table's names or ours, which `grid` makes in this order; may be "
                      "repeated")  # fmt: skip
    verb.add_argument("--precision", help=f"{PRECISIONS}; default: that of each grid. Another precision is another run")


def chosen_of(asked: argparse.Namespace, several: Iterable[tuple[Paper, str]]) -> Selection:
    """The part of some papers' grids that a command line asks for; refused where it fits no run of them."""
    plain = Selection(asked.seeds, part_of(asked.only), (), asked.precision)
    if not asked.only and not asked.methods:
        return plain
    grids = [plain.whole(paper, name, asked.scale) for paper, name in several]
    known = {name.lower() for grid in grids for cell in grid.cells for name in (cell.label, cell.method.name)}
    chosen = replace(plain, methods=names_of(asked.methods, known))
    chosen.check(grids)
    return chosen


def do_plan(asked: argparse.Namespace) -> int:
    several = _asked_papers(asked, "plan")
    if asked.csv:
        check_writable("--csv", Path(asked.csv))
    plan = planned(several, asked.scale, asked.seconds, asked.device, _chosen(asked, several), asked.section)
    print(plan)
    if asked.csv:
        atomically(Path(asked.csv), plan.table().to_csv(index=False))
        print(f"written to {asked.csv}")
    return 0


def do_verify(asked: argparse.Namespace) -> int:
    several = _asked_papers(asked, "verify")
    _refuse_running(asked)
    if asked.dry_run:
        return _tell_time(asked, several)
    files = _files(asked)
    found = _verified(asked, several)
    print(for_terminal(found, asked.full))
    if "csv" in files:
        atomically(files["csv"], found.to_csv())
    if "html" in files:
        atomically(files["html"], claims_page(found, {paper.id: paper.about["title"] for paper in several}))
    for file in files.values():
        print(f"written to {file}")
    failed = found[found["failed"] != ""].drop_duplicates(["paper_id", "section"])
    for section in failed.to_dict("records"):
        print(f"fednb: {section['paper_id']} {section['section']}: {section['failed']}", file=sys.stderr)
    return 1 if len(failed) else 0


def _refuse_running(asked: argparse.Namespace) -> None:
    """Refuse options about runs beside --kept, which makes none."""
    about_runs = {"--dry-run": asked.dry_run, "--for": asked.seconds, "--seeds": asked.seeds, "--only": asked.only,
                  "--methods": asked.methods, "--precision": asked.precision, "--on": asked.on}  # fmt: skip
    if asked.kept and (given := [option for option, value in about_runs.items() if value]):
        raise ValueError(f"verify: --kept runs nothing, so {given[0]} does not belong to it")


def _tell_time(asked: argparse.Namespace, several: list[Paper]) -> int:
    """Print the runs that are missing, in the order in which they would be made, and what they take."""
    asked_claims(several, asked.section, asked.claim)
    seconds = inf if asked.seconds is None else asked.seconds
    chosen = _chosen(asked, several)
    plan = planned(several, asked.scale, seconds, asked.device, chosen, asked.section, asked.claim)
    steps = [step for step in plan.steps if step.within]
    missing, time = sum(len(step.tasks) for step in steps), duration(sum(step.seconds for step in steps))
    print(f"{plan}\nnothing was run: {missing} runs are missing at {asked.scale} scale, which take about {time}")
    return 0


def _verified(asked: argparse.Namespace, several: list[Paper]) -> pd.DataFrame:
    if asked.kept:
        return verify_kept(several, asked.scale if asked.scale != SCALES[0] else None, asked.section, asked.claim)
    chosen = _chosen(asked, several)
    if asked.seconds is None:
        return verify(several, asked.scale, None, asked.device, asked.section, chosen, asked.claim, asked.on)
    return verify_within(
        asked.seconds, several, asked.scale, asked.device, asked.section, chosen, asked.claim, asked.on
    )


def _asked_papers(asked: argparse.Namespace, verb: str) -> list[Paper]:
    """The papers that a command line names, or all; refused where it is not clear which."""
    if bool(asked.papers) == asked.all:
        raise ValueError(f"{verb} what? Name papers, such as `fednb {verb} fedfft`, or say --all")
    if asked.section and (asked.all or len(asked.papers) > 1):
        raise ValueError(f"{verb}: --section belongs to one paper")
    if asked.scale not in SCALES:
        raise ValueError(f"no scale {asked.scale!r}; the scales are {', '.join(SCALES)}")
    return [papers(id) for id in (papers().index if asked.all else dict.fromkeys(asked.papers))]


def _chosen(asked: argparse.Namespace, several: list[Paper]) -> Selection:
    """The part of the papers' grids, of all sections or of one, that a command line asks for."""
    named = [
        (paper, name) for paper in several for name in ([asked.section] if asked.section else paper.about["sections"])
    ]
    return chosen_of(asked, [(paper, name) for paper, name in named if has_grid(paper, name)])


def _files(asked: argparse.Namespace) -> dict[str, Path]:
    """Where the table goes, as CSV and as a web page; refused before anything is run where it cannot go there."""
    beside = home() / "verify" / f"claims_{'kept' if asked.kept else asked.scale}"
    named = {
        "csv": asked.csv or (asked.all and f"{beside}.csv"),
        "html": asked.html or (asked.all and f"{beside}.html"),
    }
    files = {option: Path(file) for option, file in named.items() if file}
    for option, file in files.items():
        check_writable(f"--{option}", file)
    if len({file.resolve() for file in files.values()}) < len(files):
        raise ValueError(f"--csv and --html name the same file: {asked.csv}")
    return files
