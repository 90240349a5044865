"""The verb `fednb grid`: the runs behind tables of a paper, or of a file of one's own; look how far, or make them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size

from fednb.cli.options import names_of, part_of, processes
from fednb.cli.tables import add_on, add_scale, chosen_of
from fednb.engines import device_of, suits
from fednb.runs.cluster.shards import Shard
from fednb.runs.cluster.status import look_at, summary
from fednb.runs.grid import SCALES, Grid
from fednb.runs.own_grid import FILE
from fednb.runs.together import Wanted
from fednb.show.grids import Comparison
from fednb.study.columns import WIDTH
from fednb.study.jobs import JobsFailed, follow, jobs_of, reasons, run_all, whole_grid
from fednb.study.paper import Paper, papers
from fednb.study.plan import name_of
from fednb.study.selection import Selection
from fednb.study.standings import check_base
from fednb.study.verify import check_writable


def add_grid(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("what", choices=["status", "run"])
    verb.add_argument("paper", metavar="PAPER|FILE", help="a paper's id, see `fednb ls grids`; or a TOML file of your "
                      "own, with entries as in papers/<id>/grids")  # fmt: skip
    verb.add_argument("names", nargs="*", metavar="GRID", help="of a paper, such as table3")
    add_scale(verb)
    verb.set_defaults(scale=None)  # a file may have none
    verb.add_argument("--jobs", type=processes, help="runs at a time, each in a process of its own; default: all in "
                      "this one, as many at once as a GPU favours")  # fmt: skip
    verb.add_argument("--together", type=processes, metavar="N", help="runs that train at the same time in this "
                      "process; default: six at most on a GPU, one on a CPU. Fewer are done sooner, the others later"
                      )  # fmt: skip
    add_on(verb)
    verb.add_argument("--shard", default="", metavar="I/N", help="make this part of N equal parts of all runs, such as "
                      "3/16, for job arrays that share a store; what is tuned is tuned first")  # fmt: skip
    verb.add_argument("--watch", action="store_true", help="of `status --on`: look again and again, until all is done")
    verb.add_argument("--base", default="", help="of a file: print what methods gain over this one, paired by seed")
    verb.add_argument("--csv", default="", help="of a file: write its table to this file")
    verb.add_argument("--latex", default="", help="of a file: write its table for a paper to this file")
    verb.set_defaults(do=do_grid)


def do_grid(asked: argparse.Namespace) -> int:
    for name in ("jobs", "together"):
        if (number := getattr(asked, name)) is not None and number < 1:
            raise ValueError(f"{name} = {number}: must be at least 1")
    _refuse_mixtures(asked)
    if asked.scale is None:
        asked.scale = "" if asked.paper.endswith(FILE) else SCALES[0]
    if asked.paper.endswith(FILE):
        return _do_file(asked)
    if not asked.names:
        raise ValueError(
            f"grid {asked.what} {asked.paper}: name a grid of it, such as table1; `fednb ls grids` lists all"
        )
    if asked.csv or asked.latex or asked.base:
        raise ValueError(
            "grid: --csv, --latex and --base are for a file of your own; `fednb verify` has a paper's tables"
        )
    paper = papers(asked.paper)
    chosen = chosen_of(asked, [(paper, name) for name in asked.names])
    failed: list[str] = []
    if asked.what == "run":
        failed = _run_on_processes(asked, asked.names, chosen) if asked.jobs else _run_here(asked, paper, chosen)
    _print_status(asked, lambda: [chosen.grid(paper, name, asked.scale) for name in asked.names])
    for line in failed:
        print(f"fednb: {line}", file=sys.stderr)
    return 1 if failed else 0


def _refuse_mixtures(asked: argparse.Namespace) -> None:
    """Refuse options that say different things about where runs are made."""
    given = [option for option in ("--on", "--shard", "--jobs") if getattr(asked, option[2:])]
    if len(given) > 1:
        raise ValueError(f"grid: {' and '.join(given)} do not go together: runs are made on a cluster, or as one part "
                         "of a job array, or in processes here")  # fmt: skip
    if asked.watch and not (asked.what == "status" and asked.on):
        raise ValueError("grid: --watch belongs to `fednb grid status ... --on ADDRESS`")
    if asked.together and (asked.jobs or asked.on or asked.what == "status"):
        raise ValueError("grid: --together is about the runs that `fednb grid run` makes in its own process; it does "
                         "not go with --jobs, --on or status")  # fmt: skip
    if asked.shard and asked.what == "status":
        raise ValueError("grid status: --shard belongs to `fednb grid run`")


def _print_status(asked: argparse.Namespace, grids: Callable[[], list[Grid]]) -> None:
    """Print how far the runs of some grids are, by what the store has, or by what a cluster tells as well."""
    if asked.what == "status" and asked.on:
        import pandas as pd

        found = look_at(
            lambda: pd.concat([grid.status() for grid in grids()], ignore_index=True), asked.on, asked.watch
        )
        print(f"{found.to_string(line_width=_width())}\n{summary(found)}")
        return
    for grid in grids():
        print(grid.status().to_string(line_width=_width()))


def _width() -> int | None:
    """How wide a table may be: as the terminal; without limit where the output goes to a file or another command."""
    return max(WIDTH, get_terminal_size().columns) if sys.stdout.isatty() else None


def _do_file(asked: argparse.Namespace) -> int:
    """A grid of one's own: what is missing is made, and its table printed and written where that is asked for."""
    if asked.names:
        raise ValueError(f"grid {asked.what} {asked.paper}: is a grid by itself; name no others")
    chosen = _chosen_of_file(asked)
    part = chosen.part(whole_grid(asked.paper, "", asked.scale, chosen))
    check_base(asked.base, dict.fromkeys(cell.label for cell in part.cells))
    for option in ("csv", "latex"):
        if file := getattr(asked, option):
            check_writable(f"--{option}", Path(file))
    failed = [] if asked.what == "status" else _run_file(asked, part, chosen)
    _print_status(asked, lambda: [part.settled()])
    if asked.what == "run" and not failed and not (asked.shard and _missing([part.settled()])):
        _show(asked, Comparison(part.settled()))
    for line in failed:
        print(f"fednb: {line}", file=sys.stderr)
    return 1 if failed else 0


def _chosen_of_file(asked: argparse.Namespace) -> Selection:
    """The part of a file's grid that a command line asks for; refused where there is none."""
    all_of_it = Selection(asked.seeds, precision=asked.precision)
    whole = whole_grid(asked.paper, "", asked.scale, all_of_it)
    known = {name.lower() for cell in whole.cells for name in (cell.label, cell.method.name)}
    chosen = replace(all_of_it, only=part_of(asked.only), methods=names_of(asked.methods, known))
    chosen.check([whole])
    return chosen


def _run_file(asked: argparse.Namespace, part: Grid, chosen: Selection) -> list[str]:
    """Make what is missing of a file's grid, first what tunes; gives a line for each reason why runs failed."""
    if asked.jobs:
        return _run_on_processes(asked, [part.name], chosen)
    failed = _make(asked, [part.tuning] if part.tuning else [])
    return failed or _make(asked, _ready(asked, [part.settled()]))


def _show(asked: argparse.Namespace, done: Comparison) -> None:
    """Print a finished grid's table, and write it to the files that were named."""
    table = done.table(asked.base)
    print("\n" + table.to_string(float_format="{:.2f}".format, line_width=_width()))
    if asked.csv:
        print(f"written to {done.to_csv(asked.csv, asked.base)}")
    if asked.latex:
        done.to_latex(asked.latex)
        print(f"written to {asked.latex}")


def _run_on_processes(asked: argparse.Namespace, names: list[str], chosen: Selection) -> list[str]:
    """Make what is missing, each run in a process, first what tunes; gives a line for each reason why runs failed."""
    failed: list[str] = []
    for tuning in (True, False):
        todo = [job for name in names
                for job in jobs_of(asked.paper, name, asked.scale, chosen=chosen, tuning=tuning)]  # fmt: skip
        try:
            for job, status in run_all(todo, asked.jobs, asked.device) if todo else ():
                print(f"{job.name}: {status}", flush=True)
        except JobsFailed as error:
            failed += str(error).splitlines()
    return failed


def _run_here(asked: argparse.Namespace, paper: Paper, chosen: Selection) -> list[str]:
    """Make what is missing in this process, first what tunes; gives a line for each reason why runs failed."""
    first = [chosen.grid(paper, name, asked.scale).tuning for name in asked.names]
    failed = _make(asked, [grid for grid in first if grid])
    return failed + _make(asked, _ready(asked, [chosen.grid(paper, name, asked.scale) for name in asked.names]))


def _ready(asked: argparse.Namespace, grids: list[Grid]) -> list[Grid]:
    """The grids that can be made now. With --shard those that wait for other shards' tuning are left out, and named."""
    for grid in (grid for grid in grids if asked.shard and grid.waiting):
        print(f"{grid.name} is tuned first: shard {asked.shard} has made its part of the tuning. When all shards are "
              "through, the same command makes the grid itself.", flush=True)  # fmt: skip
    return [grid for grid in grids if not (asked.shard and grid.waiting)]


def _make(asked: argparse.Namespace, grids: list[Grid]) -> list[str]:
    """Make the missing runs of some grids in this process; gives a line for each reason why runs failed."""
    missing = _missing(grids, asked.shard)
    wanted, names = [w for w, _ in missing.values()], [name for _, name in missing.values()]
    for each in wanted if not asked.on else ():
        suits(each.setting, device_of(asked.device))  # refused now, not run by run
    big = asked.scale == "paper" and asked.device == "auto"
    what = " ".join([asked.paper, *asked.names])
    made = follow(wanted, names, what, device=asked.device, on=asked.on, needs_gpu=big, at_once=asked.together)
    return reasons((names[i], str(run) or type(run).__name__) for i, run in made if isinstance(run, Exception))


def _missing(grids: list[Grid], shard: str = "") -> dict[str, tuple[Wanted, str]]:
    """The runs of some grids, or a part of them, that can be made and are not finished: by key, with their names."""
    known: dict[str, tuple[Wanted, str]] = {}
    unfinished: set[str] = set()
    for grid in grids:
        runs = {run.key: (cell, run) for cell, run in zip(grid.cells, grid.runs(), strict=True) if not cell.waits}
        known = {key: (Wanted(c.setting, c.method, c.seed, grid.probe), name_of(grid, c))
                 for key, (c, _) in runs.items()} | known  # fmt: skip
        unfinished |= {key for key, (_, run) in runs.items() if run.entry.unfinished}
    mine = Shard.of(shard).keys({key: wanted for key, (wanted, _) in known.items()}) if shard else known
    return {key: known[key] for key in mine if key in unfinished}
