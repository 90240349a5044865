"""The verbs `fednb grid`, `fednb plan` and `fednb verify`: the runs behind tables, what they cost, what they decide."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from fednb.base.files import atomically
from fednb.base.inputs import one_line
from fednb.cli.options import names_of, part_of, processes, seconds_of, seeds_of
from fednb.engines import device_of, suits
from fednb.engines.setting import Setting
from fednb.runs.grid import SCALES, Grid
from fednb.runs.store import home
from fednb.runs.together import Wanted
from fednb.show.site.claims import claims_page
from fednb.study.jobs import JobsFailed, follow, jobs_of, run_all
from fednb.study.paper import Paper, papers
from fednb.study.plan import has_grid, name_of, planned
from fednb.study.selection import Selection
from fednb.study.verify import check_writable, in_columns, verify, verify_within

if TYPE_CHECKING:
    import pandas as pd

PRECISIONS = Setting.__dataclass_fields__["precision"].metadata["allowed"]


def add_grid(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("what", choices=["status", "run"])
    verb.add_argument("paper", help="its id; `fednb ls papers` lists all")
    verb.add_argument("names", nargs="+", metavar="GRID", help="such as table3; a file of papers/<id>/grids")
    _add_scale(verb)
    verb.add_argument("--jobs", type=processes, help="runs at a time, each in a process of its own; default: all in "
                      "this one, as many at once as a GPU favours")  # fmt: skip
    verb.set_defaults(do=do_grid)


def add_verify(verb: argparse.ArgumentParser) -> None:
    _add_papers(verb)
    verb.add_argument("--for", dest="seconds", type=seconds_of, metavar="TIME",
                      help="make missing runs for so long, such as 25m, in the order of `fednb plan`")  # fmt: skip
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
    _add_scale(verb)


def _add_scale(verb: argparse.ArgumentParser) -> None:
    add_part(verb)
    verb.add_argument("--device", default="auto", help="auto | cpu | cuda")


def add_part(verb: argparse.ArgumentParser) -> None:
    """Options for the part of papers' grids that `chosen_of` gives."""
    verb.add_argument("--scale", default="smoke", help=" | ".join(SCALES))
    verb.add_argument("--seeds", type=seeds_of, help="such as 0,1,2; default: those of each grid")
    verb.add_argument("--only", action="append", default=[], metavar="NAME=VALUE,...",
                      help="a part of the grids, such as dataset=CIFAR-10; may be repeated")  # fmt: skip
    verb.add_argument("--methods", action="append", default=[], metavar="METHOD,...",
                      help="only these, by the table's names or ours; may be repeated")  # fmt: skip
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


def do_grid(asked: argparse.Namespace) -> int:
    if asked.jobs is not None and asked.jobs < 1:
        raise ValueError(f"jobs = {asked.jobs}: must be at least 1")
    paper = papers(asked.paper)
    chosen = chosen_of(asked, [(paper, name) for name in asked.names])
    failed: list[str] = []
    if asked.what == "run":
        failed = _run_on_processes(asked, chosen) if asked.jobs else _run_here(asked, paper, chosen)
    for name in asked.names:
        print(chosen.grid(paper, name, asked.scale).status().to_string())
    for line in failed:
        print(f"fednb: {line}", file=sys.stderr)
    return 1 if failed else 0


def _run_on_processes(asked: argparse.Namespace, chosen: Selection) -> list[str]:
    """Make what is missing, each run in a process, first what tunes; gives a line for each that failed."""
    failed: list[str] = []
    for tuning in (True, False):
        todo = [job for name in asked.names
                for job in jobs_of(asked.paper, name, asked.scale, chosen=chosen, tuning=tuning)]  # fmt: skip
        try:
            for job, status in run_all(todo, asked.jobs, asked.device) if todo else ():
                print(f"{job.name}: {status}", flush=True)
        except JobsFailed as error:
            failed += str(error).splitlines()
    return failed


def _run_here(asked: argparse.Namespace, paper: Paper, chosen: Selection) -> list[str]:
    """Make what is missing in this process, first what tunes; gives a line for each run that failed."""
    first = [chosen.grid(paper, name, asked.scale).tuning for name in asked.names]
    failed = _make(asked, [grid for grid in first if grid])
    return failed + _make(asked, [chosen.grid(paper, name, asked.scale) for name in asked.names])


def _make(asked: argparse.Namespace, grids: list[Grid]) -> list[str]:
    """Make the missing runs of some grids in this process; gives a line for each that failed."""
    missing: dict[str, tuple[Wanted, str]] = {}
    for grid in grids:
        missing = _missing(grid) | missing
    wanted, names = [w for w, _ in missing.values()], [name for _, name in missing.values()]
    for each in wanted:
        suits(each.setting, device_of(asked.device))  # refused now, not run by run
    made = follow(wanted, names, " ".join([asked.paper, *asked.names]), device=asked.device)
    return [f"{names[i]}: {one_line(str(run)) or type(run).__name__}" for i, run in made if isinstance(run, Exception)]


def _missing(grid: Grid) -> dict[str, tuple[Wanted, str]]:
    """The runs of a grid that can be made and are not finished, by key, each with its name."""
    return {run.key: (Wanted(cell.setting, cell.method, cell.seed, grid.probe), name_of(grid, cell))
            for cell, run in zip(grid.cells, grid.runs(), strict=True)
            if run.entry.unfinished and not cell.waits}  # fmt: skip


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
    files = _files(asked)
    found = _verified(asked, several)
    print(in_columns(found))
    if "csv" in files:
        atomically(files["csv"], found.to_csv())
    if "html" in files:
        atomically(files["html"], claims_page(found, {paper.id: paper.about["title"] for paper in several}))
    print("\n".join(f"written to {file}" for file in files.values()))
    failed = found[found["failed"] != ""].drop_duplicates(["paper_id", "section"])
    for section in failed.to_dict("records"):
        print(f"fednb: {section['paper_id']} {section['section']}: {section['failed']}", file=sys.stderr)
    return 1 if len(failed) else 0


def _verified(asked: argparse.Namespace, several: list[Paper]) -> pd.DataFrame:
    chosen = _chosen(asked, several)
    if asked.seconds is None:
        return verify(several, asked.scale, None, asked.device, asked.section, chosen)
    return verify_within(asked.seconds, several, asked.scale, asked.device, asked.section, chosen)


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
    beside = home() / "verify" / f"claims_{asked.scale}"
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
