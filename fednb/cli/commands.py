"""The command `fednb`: list what there is, run one method, execute a notebook, look at a run."""

from __future__ import annotations

import argparse
import ast
import json
import os
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn
from warnings import catch_warnings, simplefilter

from fednb.algorithms.catalogue import UnknownMethod, method, methods
from fednb.base.files import DamagedFile, atomically
from fednb.base.inputs import one_line, shown
from fednb.base.locks import NotAlone
from fednb.base.processes import ending
from fednb.base.progress import bar_of
from fednb.base.streams import whole_seeds
from fednb.bench.command import add_bench
from fednb.cli.lab import add_lab
from fednb.cli.store import add_store
from fednb.data import sources
from fednb.engines import ENGINES
from fednb.engines.setting import Setting
from fednb.models import names as model_names
from fednb.runs.experiment import run
from fednb.runs.grid import SCALES, NeedsGpu
from fednb.runs.store import StoreError, UnknownRun, find, home
from fednb.show.site.claims import claims_page
from fednb.show.site.command import add_publish
from fednb.study import execution, notebooks
from fednb.study.jobs import JobsFailed, jobs_of, run_all
from fednb.study.paper import UnknownPaper, papers
from fednb.study.verify import check_writable, in_columns, verify

MISUSE = (ValueError, UnknownMethod, UnknownPaper, UnknownRun, NeedsGpu, sources.DataNotFound, StoreError, DamagedFile,
          NotAlone)  # exit status 2  # fmt: skip
MOST_PROCESSES = 1024
MOST_TYPED = 10_000  # letters of a value that may be Python's


def main(argv: list[str] | None = None) -> int:
    """Parse, do, and turn errors that a user can mend into one line and exit status 2; FEDNB_DEBUG=1 shows them whole.

    A signal ends it with 128 and the signal's number, after saving.
    """
    asked = parser().parse_args(argv)
    try:
        with ending.saving_signals():
            return asked.do(asked)
    except KeyboardInterrupt as error:
        ending.say(f"\nfednb: {ending.farewell(error)}")
        return ending.exit_status(error)
    except BrokenPipeError:  # whoever read it, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
        return 141
    except Exception as error:
        line = one_line(str(error)) if isinstance(error, MISUSE) else ending.machine_failed(error)
        if line is None or os.environ.get("FEDNB_DEBUG") == "1":
            raise
        ending.say(f"fednb: {line}")
        return 2


class OneLineParser(argparse.ArgumentParser):
    """A parser whose complaints are one line: what is wrong, and which help to ask for."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"fednb: {one_line(message)}; see `{self.prog} --help`\n")


def parser() -> argparse.ArgumentParser:
    top = OneLineParser(prog="fednb", description=__doc__)
    names = "ls | run | lab | notebook | grid | verify | publish | show | store | bench"
    verbs = top.add_subparsers(required=True, metavar=names)
    ls = verbs.add_parser("ls", help="what there is")
    ls.add_argument("what", choices=sorted(LISTS))
    ls.set_defaults(do=do_ls)
    _add_run(verbs.add_parser("run", help="run one method in one setting, or resume it, or show it if it is finished"))
    add_lab(verbs.add_parser("lab", help="copy the notebooks to a folder of yours and open JupyterLab there"))
    book = verbs.add_parser("notebook", help="execute a notebook headless, or all of them")
    book.add_argument("name", nargs="?", help="such as fedfft/01; `fednb ls notebooks` lists all")
    book.add_argument("--all", action="store_true", help="all that were not executed as they are now")
    book.add_argument("--jobs", type=_processes, default=1, help="with --all: notebooks at a time")
    book.add_argument("--scale", default="smoke", help=" | ".join(SCALES))
    book.add_argument("-p", dest="parameters", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    book.add_argument("--plain", action="store_true", help="as one Python program, where there is no Jupyter")
    book.add_argument("--keep", action="store_true", help="copy tables, figures and provenance to papers/<id>/results, "
                      "or to FEDNB_RESULTS, or to the store where fednb was installed")  # fmt: skip
    book.set_defaults(do=do_notebook)
    grids = verbs.add_parser(
        "grid", help="the runs behind a paper's tables and figures: how far they are, or make them"
    )
    grids.add_argument("what", choices=["status", "run"])
    grids.add_argument("paper", help="its id; `fednb ls papers` lists all")
    grids.add_argument("names", nargs="+", metavar="GRID", help="such as table3; a file of papers/<id>/grids")
    _add_scale(grids)
    grids.add_argument("--jobs", type=_processes, default=1, help="runs at a time, each in a process of its own")
    grids.set_defaults(do=do_grid)
    claims = verbs.add_parser("verify", help="run a paper's grids, or those of all papers, and judge their claims")
    claims.add_argument("paper", nargs="?", help="its id; `fednb ls papers` lists all")
    claims.add_argument("--section", help="one section of the paper, such as table1")
    claims.add_argument("--all", action="store_true", help="all papers in one table, as CSV and as a web page too")
    _add_scale(claims)
    claims.add_argument("--csv", help="write the whole table, with rules and notebooks, to this file")
    claims.add_argument("--html", help="write it as a web page to this file")
    claims.set_defaults(do=do_verify)
    add_publish(verbs.add_parser("publish", help="the executed notebooks, claims and methods as a static site"))
    show = verbs.add_parser("show", help="a run from the store")
    show.add_argument("key", help="its key, or the beginning of it")
    show.set_defaults(do=do_show)
    add_store(verbs.add_parser("store", help="look whether everything in the store is sound, or repair it"))
    add_bench(verbs.add_parser("bench", help="time engines, filters, peers; see how things scale"))
    return top


def _add_run(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("name", nargs="?", metavar="METHOD", help="same as --method")
    verb.add_argument("--method", default="FedAvg", help="see `fednb ls methods`")
    verb.add_argument("-p", dest="parameters", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"),
                      help="a parameter of the method, such as -p rho 0.05")  # fmt: skip
    verb.add_argument("--seed", type=int, default=0)
    verb.add_argument("--engine", default="auto", help=" | ".join(ENGINES))
    verb.add_argument("--device", default="auto", help="auto | cpu | cuda")
    verb.add_argument("--workers", type=_processes, help="worker processes of the pool engine")
    verb.add_argument("--json", action="store_true", help="end with one line of JSON")
    verb.add_argument("--quiet", action="store_true", help="no progress bar")
    verb.add_argument("--again", action="store_true", help="make the run anew; what the store has of it is set aside")
    defaults = Setting()
    for f in fields(Setting):
        allowed = f" ({f.metadata['allowed']})" if "allowed" in f.metadata else ""
        names = dict.fromkeys([f"--{f.name.replace('_', '-')}", f"--{f.name}"])
        text = f"{f.metadata['help']}{allowed}; default {getattr(defaults, f.name)}".replace("%", "%%")
        verb.add_argument(*names, dest=f.name, metavar="VALUE", help=text)
    verb.set_defaults(do=do_run)


def _add_scale(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--scale", default="smoke", help=" | ".join(SCALES))
    verb.add_argument("--seeds", type=_seeds, help="such as 0,1,2; default: those of each grid")
    verb.add_argument("--device", default="auto", help="auto | cpu | cuda")


def _seeds(text: str) -> list[int]:
    try:
        return whole_seeds([int(seed) for seed in text.split(",")])
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be whole numbers of at least 0, such as 0,1,2") from None


def _processes(text: str) -> int:
    """A number of processes; what is less than one is refused where it is used."""
    if (number := int(text)) > MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"{shown(number)}: must be at most {MOST_PROCESSES}")
    return number


def parsed(text: str) -> Any:
    """A value as typed: a number, true or false, none, a list, or the text itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if len(text) > MOST_TYPED:
        return text
    with catch_warnings():
        simplefilter("ignore")  # of the compiler, about texts that are none of Python's
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, OverflowError):
            return text


def do_run(asked: argparse.Namespace) -> int:
    given = {f.name: parsed(v) for f in fields(Setting) if (v := getattr(asked, f.name)) is not None}
    setting = Setting().but(**given)
    chosen = method(asked.name or asked.method, **{name: parsed(value) for name, value in asked.parameters})
    done = run(setting, chosen, asked.seed, engine=asked.engine, device=asked.device, workers=asked.workers,
               progress=not asked.quiet, again=asked.again)  # fmt: skip
    seen = done.summary()
    if asked.json:
        print(json.dumps(seen))
    else:
        print("\n".join(f"{name:<18} {value}" for name, value in seen.items()))
        print(f"{'folder':<18} {done.entry.folder}")
    return 0


def do_ls(asked: argparse.Namespace) -> int:
    print(LISTS[asked.what]())
    return 0


def _table(rows: list[dict[str, Any]]) -> str:
    import pandas as pd

    return pd.DataFrame(rows).to_string(index=False)


LISTS = {
    "methods": lambda: methods().to_string(),
    "papers": lambda: papers().to_string(),
    "notebooks": lambda: _table([{"notebook": name, "title": notebooks.title(name)} for name in notebooks.names()]),
    "data": lambda: _table(sources.table()),
    "models": lambda: "\n".join(model_names()),
}


def do_notebook(asked: argparse.Namespace) -> int:
    given = {name: parsed(value) for name, value in asked.parameters}
    if asked.scale not in SCALES:
        raise ValueError(f"scale = {asked.scale!r}: must be one of {', '.join(SCALES)}")
    if bool(asked.name) == asked.all:
        raise ValueError("notebook: name one, such as `fednb notebook fedfft/01`, or say --all")
    if asked.all:
        return _do_all_notebooks(asked)
    name = notebooks.find(asked.name)
    given, scale = notebooks.checked_parameters(name, {"scale": asked.scale, **given})
    if asked.keep:
        notebooks.kept_folder(name, scale)  # refused now, not after hours
    try:
        execute = notebooks.execute_plainly if asked.plain else notebooks.execute
        folder = execute(name, given)
    except notebooks.CellFailed as error:
        print(f"fednb: {error}", file=sys.stderr)
        return 1
    written = execution.written(folder)
    for text in (path for path in written if path.suffix == ".txt"):
        print(f"\n{text.stem}\n{text.read_text()}", end="")
    print(f"\nnotebook  {folder if asked.plain else folder / 'executed.ipynb'}")
    for picture in (path for path in written if path.suffix == ".png"):
        print(f"figure    {picture}")
    if asked.keep:
        print(f"kept in   {notebooks.keep_results(name, scale, folder, _as_typed(asked, name))}")
    return 0


def _do_all_notebooks(asked: argparse.Namespace) -> int:
    """Execute every notebook whose executed copy is not up to date."""
    if asked.parameters or asked.plain or asked.keep:
        raise ValueError("notebook --all: each as it is; -p, --plain and --keep belong to one notebook")
    if asked.jobs < 1:
        raise ValueError(f"jobs = {asked.jobs}: must be at least 1")
    for problem in (text for name in notebooks.names() for text in execution.page_problems(name, asked.scale)):
        print(f"fednb: {problem}", file=sys.stderr)
    todo = [name for name in notebooks.names() if not notebooks.is_current(name, asked.scale)]
    print(f"{len(notebooks.names()) - len(todo)} notebooks are up to date, {len(todo)} to execute", flush=True)
    failed: list[str] = []
    with bar_of(len(todo), f"notebooks at {asked.scale} scale", unit="notebook") as bar:
        for name, error in notebooks.execute_all(todo, asked.scale, asked.jobs):
            failed += [f"{name}: {error}"] * bool(error)
            bar.say(f"{name}{f'; {len(failed)} failed' * bool(failed)}")
            bar.update()
    for text in failed:
        print(f"fednb: {text}", file=sys.stderr)
    return 1 if failed else 0


def _as_typed(asked: argparse.Namespace, name: str) -> str:
    """The command that makes these results again."""
    given = "".join(f" -p {key} {shlex.quote(value)}" for key, value in asked.parameters)
    return f"fednb notebook {name} --scale {asked.scale}{given}{' --plain' if asked.plain else ''} --keep"


def do_grid(asked: argparse.Namespace) -> int:
    if asked.jobs < 1:
        raise ValueError(f"jobs = {asked.jobs}: must be at least 1")
    failed: list[str] = []
    if asked.what == "run":
        todo = [job for name in asked.names for job in jobs_of(asked.paper, name, asked.scale, asked.seeds)]
        try:
            for job, status in run_all(todo, asked.jobs, asked.device):
                print(f"{job.grid} {job.cell}: {status}", flush=True)
        except JobsFailed as error:
            failed = [f"fednb: {line}" for line in str(error).splitlines()]
    for name in asked.names:
        print(papers(asked.paper).grid(name, asked.scale, asked.seeds).status().to_string())
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


def do_verify(asked: argparse.Namespace) -> int:
    if bool(asked.paper) == asked.all:
        raise ValueError("verify what? Name one paper, such as `fednb verify fedfft`, or say --all")
    if asked.all and asked.section:
        raise ValueError("verify --all: all sections of all papers; --section belongs to one paper")
    if asked.scale not in SCALES:
        raise ValueError(f"no scale {asked.scale!r}; the scales are {', '.join(SCALES)}")
    shown = [papers(id) for id in papers().index] if asked.all else [papers(asked.paper)]
    beside = home() / "verify" / f"claims_{asked.scale}"
    files = {
        "csv": asked.csv or (asked.all and f"{beside}.csv"),
        "html": asked.html or (asked.all and f"{beside}.html"),
    }
    wanted = {option: Path(file) for option, file in files.items() if file}
    for option, file in wanted.items():
        check_writable(f"--{option}", file)
    if len({file.resolve() for file in wanted.values()}) < len(wanted):
        raise ValueError(f"--csv and --html name the same file: {asked.csv}")
    found = verify(shown, asked.scale, asked.seeds, asked.device, asked.section)
    print(in_columns(found))
    if files["csv"]:
        atomically(Path(files["csv"]), found.to_csv())
    if files["html"]:
        atomically(Path(files["html"]), claims_page(found, {paper.id: paper.about["title"] for paper in shown}))
    print("\n".join(f"written to {file}" for file in files.values() if file))
    failed = found[found["failed"] != ""].drop_duplicates(["paper_id", "section"])
    for section in failed.to_dict("records"):
        print(f"fednb: {section['paper_id']} {section['section']}: {section['failed']}", file=sys.stderr)
    return 1 if len(failed) else 0


def do_show(asked: argparse.Namespace) -> int:
    entry = find(asked.key)
    print(json.dumps(entry.about(), indent=1, ensure_ascii=False))
    rows = entry.history()
    if "unchecked" in entry.about():
        print("unchecked: an older version wrote it without digests")
    print(_table(rows[-10:]) if rows else "no finished round")
    print(f"{len(rows)} finished rounds in {entry.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
