"""The verbs `fednb store export` and `fednb store import`: runs to a file that travels, and from it into a store."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fednb.cli.choosing import named_runs, runs_of, size_of
from fednb.cli.tables import add_part, chosen_of
from fednb.runs.archive import Exported, export_runs
from fednb.runs.merging import import_runs
from fednb.runs.store import Entry, home
from fednb.study.paper import papers
from fednb.study.verify import check_writable

MOST_NAMED = 5  # keys in a line


def add_export(verb: argparse.ArgumentParser) -> None:
    verb.description = """Write finished runs to one file: their settings, histories and what was measured. Without
        a key or a grid: all finished runs of the store."""
    verb.add_argument("file", metavar="FILE", help="the file to write, such as runs.zip; there must be none yet")
    verb.add_argument("--key", dest="keys", action="append", metavar="KEY", help="this run; the beginning of a key is "
                      "enough; may be repeated")  # fmt: skip
    verb.add_argument("--grid", nargs=2, action="append", default=[], metavar=("PAPER", "GRID"),
                      help="the runs of a paper's grid, such as --grid fedfft table1; may be repeated")  # fmt: skip
    add_part(verb)
    verb.add_argument("--weights", action="store_true", help="the runs whole: models, clients' rows and probes, too")
    verb.add_argument("--probes", action="store_true", help="the probes, also without weights")
    verb.set_defaults(do=do_export)


def add_import(verb: argparse.ArgumentParser) -> None:
    verb.description = """Check the runs of a file and merge them into the store. A run that is there stays, and gets
        what it lacks: weights, probes, measurements. Another run under the same key is refused (exit status 1)."""
    verb.add_argument("file", metavar="FILE", help="what `fednb store export` wrote, a folder of runs, or a store")
    verb.set_defaults(do=do_import)


def do_export(asked: argparse.Namespace) -> int:
    """Exit status 1 where a damaged run had to be left out."""
    path = Path(asked.file)
    check_writable("export", path)
    done = export_runs(_wanted(asked), path, asked.weights, asked.probes)
    for line in _left_out(done):
        print(f"fednb: {line}", file=sys.stderr)
    print(f"{path}: {runs_of(len(done.written))}, {size_of(path.stat().st_size)}")
    return 1 if done.damaged else 0


def _wanted(asked: argparse.Namespace) -> list[Entry]:
    """The runs of the named grids, of their tuning too, and of the keys; all of the store where nothing is named."""
    grids = [(papers(paper), name) for paper, name in asked.grid]
    chosen = chosen_of(asked, grids)
    several = [chosen.grid(paper, name, asked.scale) for paper, name in grids]
    named = [run.entry for grid in several for part in (grid.tuning, grid) if part for run in part.runs()]
    if asked.keys or not grids:
        named += named_runs(asked)
    return list(dict.fromkeys(named))


def _left_out(done: Exported) -> list[str]:
    """A line for each reason why runs are not in an archive as they were asked for."""
    lines = list(done.damaged)
    if done.unfinished:
        lines.append(f"not finished and left out: {_named(done.unfinished)}")
    if done.bare:
        lines.append(f"without weights, which the store does not have: {_named(done.bare)}")
    return lines


def _named(keys: list[str]) -> str:
    more = f" and {len(keys) - MOST_NAMED} more" * (len(keys) > MOST_NAMED)
    return f"{runs_of(len(keys))}, {', '.join(keys[:MOST_NAMED])}{more}"


def do_import(asked: argparse.Namespace) -> int:
    """Exit status 1 where a run was refused; all others are imported."""
    done = import_runs(Path(asked.file))
    for line in done.refused:
        print(f"fednb: {line}", file=sys.stderr)
    print(f"{home()}: {runs_of(len(done.new))} new, {len(done.completed)} completed, {len(done.known)} known before, "
          f"{len(done.refused)} refused")  # fmt: skip
    return 1 if done.refused else 0
