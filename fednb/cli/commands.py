"""The command `fednb`: list what there is, run one method, execute a notebook, look at a run."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import NoReturn

from fednb.algorithms.catalogue import UnknownMethod, method
from fednb.base.files import DamagedFile
from fednb.base.inputs import one_line, shown
from fednb.base.locks import NotAlone
from fednb.base.processes import ending
from fednb.base.progress import bar_of
from fednb.base.version import __version__
from fednb.cli.flower import add_flower
from fednb.cli.grids import add_grid
from fednb.cli.lab import add_lab
from fednb.cli.lists import add_ls
from fednb.cli.options import in_words, parameters_of, parsed, processes, rounds_of
from fednb.cli.store import add_show, add_store
from fednb.cli.tables import add_plan, add_verify
from fednb.data import sources
from fednb.engines import ENGINES
from fednb.engines.setting import Setting
from fednb.runs.bench.command import add_bench
from fednb.runs.callbacks import Callback, MLflow, NotInstalled, TensorBoard, WandB
from fednb.runs.experiment import run
from fednb.runs.grid import SCALES, NeedsGpu
from fednb.runs.own_grid import method_of
from fednb.runs.probes import Probe
from fednb.runs.result import export_path
from fednb.runs.store import StoreError, UnknownRun
from fednb.show.site.command import add_publish
from fednb.study import execution, notebooks
from fednb.study.paper import UnknownPaper
from fednb.study.verify import check_writable

MISUSE = (ValueError, UnknownMethod, UnknownPaper, UnknownRun, NeedsGpu, sources.DataNotFound, StoreError, DamagedFile,
          NotAlone, NotInstalled)  # exit status 2  # fmt: skip


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
        self.exit(2, f"fednb: {one_line(in_words(message))}; see `{self.prog} --help`\n")


def parser() -> argparse.ArgumentParser:
    top = OneLineParser(prog="fednb", description=__doc__)
    top.add_argument("--version", action="version", version=f"fednb {__version__}")
    names = "ls | run | lab | notebook | grid | plan | verify | publish | show | store | bench | flower"
    verbs = top.add_subparsers(required=True, metavar=names)
    add_ls(verbs.add_parser("ls", help="what there is"))
    _add_run(verbs.add_parser("run", help="run one method in one setting, or resume it, or show it if it is finished"))
    add_lab(verbs.add_parser("lab", help="copy the notebooks to a folder of yours and open JupyterLab there"))
    book = verbs.add_parser("notebook", help="execute a notebook headless, or all of them")
    book.add_argument("name", nargs="?", help="such as fedfft/01; `fednb ls notebooks` lists all")
    book.add_argument("--all", action="store_true", help="all that were not executed as they are now")
    book.add_argument("--unless-kept", action="store_true", help="with --all: not those of which results of a larger "
                      "scale are kept")  # fmt: skip
    book.add_argument("--jobs", type=processes, default=1, help="with --all: notebooks at a time")
    book.add_argument("--scale", help=f"{' | '.join(SCALES)}; default {SCALES[0]}")
    book.add_argument("-p", dest="parameters", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    book.add_argument("--plain", action="store_true", help="as one Python program, where there is no Jupyter")
    book.add_argument("--keep", action="store_true", help="copy tables, figures and provenance to papers/<id>/results, "
                      "or to FEDNB_RESULTS, or to the store where fednb was installed")  # fmt: skip
    book.add_argument("--fewer", action="store_true", help="with --keep: also where runs that are kept now would go")
    book.set_defaults(do=do_notebook)
    add_grid(verbs.add_parser("grid", help="the runs behind a paper's tables and figures: look how far, or make them"))
    add_plan(verbs.add_parser("plan", help="what can be decided in the time one has, and in which order"))
    add_verify(verbs.add_parser("verify", help="run the grids of papers and judge their claims"))
    add_publish(verbs.add_parser("publish", help="the executed notebooks, claims and methods as a static site"))
    add_show(verbs.add_parser("show", help="a run from the store, or one that is kept with the papers"))
    add_store(verbs.add_parser("store", help="what is kept: list, check and remove it, take runs elsewhere and back"))
    add_bench(verbs.add_parser("bench", help="time engines, filters, peers; see how things scale"))
    add_flower(verbs.add_parser("flower", help="run a method as a federation of Flower, or write a project for one"))
    return top


def _add_run(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("name", nargs="?", metavar="METHOD", help="same as --method")
    verb.add_argument("--method", help="see `fednb ls methods`; or an import path of your own; default FedAvg")
    verb.add_argument("-p", dest="parameters", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"),
                      help="a parameter of the method, such as -p rho 0.05")  # fmt: skip
    verb.add_argument("--seed", type=int, default=0)
    verb.add_argument("--engine", default="auto", help=" | ".join(ENGINES))
    verb.add_argument("--device", default="auto", help="auto | cpu | cuda")
    verb.add_argument("--workers", type=processes, help="worker processes of the pool engine")
    verb.add_argument("--json", action="store_true", help="end with one line of JSON")
    verb.add_argument("--quiet", action="store_true", help="no progress bar")
    verb.add_argument("--again", action="store_true", help="make the run anew; what the store has of it is set aside")
    verb.add_argument("--log", action="append", default=[], metavar="KIND=FOLDER", help="write every round to a log in "
                      "this folder: tensorboard=, mlflow= or wandb=; nothing is sent; may be repeated")  # fmt: skip
    verb.add_argument("--export", metavar="FILE", help="write the trained weights to this file, NAME.safetensors")
    verb.add_argument("--probe", metavar="WHAT,...", help="keep these vectors of every participant beside the run: "
                      "gradient, perturbation, move, model; global; or k.NAME or s.NAME of a part")  # fmt: skip
    verb.add_argument("--probe-rounds", type=rounds_of, metavar="ROUND,...", help="with --probe: in these rounds, "
                      "counted from 0; default 0")  # fmt: skip
    verb.add_argument("--probe-batches", type=int, metavar="N", help="with --probe: gradients and perturbations "
                      "are means over so many batches of each participant; default 1")  # fmt: skip
    defaults = Setting()
    for f in fields(Setting):
        allowed = f" ({f.metadata['allowed']})" if "allowed" in f.metadata else ""
        names = dict.fromkeys([f"--{f.name.replace('_', '-')}", f"--{f.name}"])
        text = f"{f.metadata['help']}{allowed}; default {getattr(defaults, f.name)}".replace("%", "%%")
        verb.add_argument(*names, dest=f.name, metavar="VALUE", help=text)
    verb.set_defaults(do=do_run)


LOGS: dict[str, Callable[[str], Callback]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


def _log(text: str) -> Callback:
    """A log as typed, such as tensorboard=logs."""
    kind, _, folder = text.partition("=")
    if kind not in LOGS or not folder:
        raise ValueError(f"--log {shown(text)}: must be tensorboard, mlflow or wandb, and a folder: tensorboard=logs")
    return LOGS[kind](folder)


def _probe(asked: argparse.Namespace) -> Probe | None:
    """What is to be kept of which rounds, as typed."""
    given = {"rounds": asked.probe_rounds, "batches": asked.probe_batches}
    given = {name: value for name, value in given.items() if value is not None}
    if asked.probe is None:
        if given:
            raise ValueError(f"--probe-{next(iter(given))}: comes with --probe, such as --probe gradient")
        return None
    return Probe(tuple(what.strip() for what in asked.probe.split(",")), **given)


def do_run(asked: argparse.Namespace) -> int:
    if asked.name is not None and asked.method is not None:
        raise ValueError(f"run {shown(asked.name)} --method {shown(asked.method)}: name one method")
    given = {f.name: parsed(v) for f in fields(Setting) if (v := getattr(asked, f.name)) is not None}
    setting = Setting().but(**given)
    named = method_of(asked.name or asked.method or "FedAvg")
    chosen = method(named, **parameters_of(asked.parameters))
    if asked.export:
        check_writable("--export", export_path(asked.export))
    done = run(setting, chosen, asked.seed, engine=asked.engine, device=asked.device, workers=asked.workers,
               probe=_probe(asked), progress=not asked.quiet, on_round=[_log(text) for text in asked.log],
               again=asked.again)  # fmt: skip
    seen = done.summary()
    if asked.json:
        print(json.dumps(seen))
    else:
        print("\n".join(f"{name:<18} {value}" for name, value in seen.items()))
        print(f"{'folder':<18} {done.entry.folder}")
        if asked.probe:
            print(f"{'probes':<18} {done.entry.folder / 'probes'}")
        if begun := done.about.get("went_on_from"):
            print(f"{'went_on_from':<18} {begun}, a finished run of fewer rounds")
    if asked.export:
        print(f"weights written to {done.export(asked.export)}", file=sys.stderr if asked.json else sys.stdout)
    if done.status == "diverged":
        print(f"fednb: run {done.key} diverged in round {seen['rounds']} of {setting.rounds}; it has no accuracy. "
              f"A lower --lr, or --clip-norm, may help", file=sys.stderr)  # fmt: skip
    return 1 if done.status == "diverged" else 0


def do_notebook(asked: argparse.Namespace) -> int:
    given = parameters_of(asked.parameters)
    if asked.scale is not None and "scale" in given:
        raise ValueError(f"--scale {shown(asked.scale)} -p scale {shown(given['scale'])}: give it once")
    asked.scale = SCALES[0] if asked.scale is None else asked.scale
    if asked.scale not in SCALES:
        raise ValueError(f"scale = {asked.scale!r}: must be one of {', '.join(SCALES)}")
    if bool(asked.name) == asked.all:
        raise ValueError("notebook: name one, such as `fednb notebook fedfft/01`, or say --all")
    if asked.fewer and not asked.keep:
        raise ValueError("notebook --fewer: says what --keep may do, and comes with it")
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
        kept = notebooks.keep_results(name, scale, folder, _as_typed(asked, name, scale), asked.fewer)
        print(f"kept in   {kept}")
    return 0


def _do_all_notebooks(asked: argparse.Namespace) -> int:
    """Execute every notebook whose executed copy is not up to date."""
    if asked.parameters or asked.plain or asked.keep:
        raise ValueError("notebook --all: each as it is; -p, --plain and --keep belong to one notebook")
    if asked.jobs < 1:
        raise ValueError(f"jobs = {asked.jobs}: must be at least 1")
    for problem in (text for name in notebooks.names() for text in execution.page_problems(name, asked.scale)):
        print(f"fednb: {problem}", file=sys.stderr)
    kept = [name for name in notebooks.names() if asked.unless_kept and notebooks.is_kept(name, asked.scale)]
    todo = [n for n in notebooks.names() if n not in kept and not notebooks.is_current(n, asked.scale)]
    current, more = len(notebooks.names()) - len(todo) - len(kept), f"{len(kept)} are kept, " if kept else ""
    print(f"{current} notebooks are up to date, {more}{len(todo)} to execute", flush=True)
    failed: list[str] = []
    with bar_of(len(todo), f"notebooks at {asked.scale} scale", unit="notebook") as bar:
        for name, error in notebooks.execute_all(todo, asked.scale, asked.jobs):
            failed += [f"{name}: {error}"] * bool(error)
            bar.say(f"{name}{f'; {len(failed)} failed' * bool(failed)}")
            bar.update()
    for text in failed:
        print(f"fednb: {text}", file=sys.stderr)
    return 1 if failed else 0


def _as_typed(asked: argparse.Namespace, name: str, scale: str) -> str:
    """The command that makes these results again."""
    given = "".join(f" -p {key} {shlex.quote(value)}" for key, value in asked.parameters if key != "scale")
    return f"fednb notebook {name} --scale {scale}{given}{' --plain' if asked.plain else ''} --keep"


if __name__ == "__main__":
    sys.exit(main())
