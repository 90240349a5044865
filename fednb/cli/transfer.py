"""The verbs `fednb store export`, `import` and `compare`: runs to a file that travels, from it, and beside it."""

from __future__ import annotations

import argparse
import sys
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.cli.choosing import named_runs, runs_of, size_of
from fednb.cli.tables import add_part, chosen_of
from fednb.runs.archive import Exported, export_runs, source_of
from fednb.runs.merging import Imported, import_runs
from fednb.runs.store import Entry, home
from fednb.runs.twice import made_twice
from fednb.study.columns import fitting
from fednb.study.paper import papers
from fednb.study.verify import check_writable

if TYPE_CHECKING:
    import pandas as pd

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
    verb.add_argument("--digits", type=int, metavar="N", help="so many digits of every number in the histories; with 6 "
                      "they take half the room")  # fmt: skip
    verb.set_defaults(do=do_export)


def add_import(verb: argparse.ArgumentParser) -> None:
    verb.description = """Check the runs of files and merge them into the store. A run that is there stays, and gets
        what it lacks: weights, probes, measurements. Another run under the same key is refused (exit status 1)."""
    verb.add_argument("files", nargs="+", metavar="FILE", help="what `fednb store export` wrote, a folder of runs such "
                      "as papers/fedfft/runs, or a store; several, one after the other")  # fmt: skip
    verb.set_defaults(do=do_import)


def add_compare(verb: argparse.ArgumentParser) -> None:
    verb.description = """Runs of the store beside the same runs of a file or folder, made elsewhere or earlier: which
        are the same in every digit, and how far apart the others end. A run that is made again on a CPU is the same; on
        a GPU sums have another order, and what begins as rounding grows from round to round."""
    verb.add_argument("file", metavar="FILE", help="what `fednb store export` wrote, a folder of runs such as "
                      "papers/fedfft/runs, or a store")  # fmt: skip
    verb.add_argument("--csv", action="store_true", help="every run as CSV")
    verb.set_defaults(do=do_compare)


def do_export(asked: argparse.Namespace) -> int:
    """Exit status 1 where a damaged run had to be left out."""
    path = Path(asked.file)
    check_writable("export", path)
    done = export_runs(_wanted(asked), path, asked.weights, asked.probes, asked.digits)
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
    """Exit status 1 where a run was refused; all others are imported. Nothing is where a file holds no runs."""
    paths = [Path(file) for file in asked.files]
    for path in paths:
        with source_of(path):
            pass
    done = Imported()
    for path in paths:
        done += import_runs(path)
    for line in done.refused:
        print(f"fednb: {line}", file=sys.stderr)
    print(f"{home()}: {runs_of(len(done.new))} new, {len(done.completed)} completed, {len(done.known)} known before, "
          f"{len(done.refused)} refused")  # fmt: skip
    return 1 if done.refused else 0


def do_compare(asked: argparse.Namespace) -> int:
    """Print how far the runs that are in both places are apart, by data, model and devices."""
    found = made_twice(Path(asked.file))
    if not len(found):
        raise ValueError(f"compare: no finished run of {home()} is in {asked.file}")
    if asked.csv:
        print(found.to_csv(), end="")
        return 0
    groups = found.groupby(["data", "model", "made here", "made there"], sort=False)
    print(fitting([dict(zip(groups.keys, names, strict=True)) | _apart(part) for names, part in groups]))
    print(f"{runs_of(len(found))} in both places, {found['same'].sum()} the same in every digit; accuracies, in "
          f"points: those of {asked.file} less those of {home()}")  # fmt: skip
    return 0


def _apart(part: pd.DataFrame) -> dict[str, Any]:
    """How far the accuracies of some runs are apart."""
    apart = part["difference"]
    told = {"mean": apart.mean(), "sd": apart.std() if len(part) > 1 else nan, "largest": apart.abs().max()}
    return {"runs": len(part), "same": int(part["same"].sum())} | {name: f"{x:.2f}" for name, x in told.items()}
