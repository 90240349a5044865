"""Notebooks by name, and their headless execution with papermill, one or all of them."""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from fednb.base.files import DamagedFile, atomically
from fednb.base.processes import child
from fednb.base.version import __version__, commit
from fednb.runs.grid import SCALES
from fednb.study import execution
from fednb.study.execution import EXECUTED
from fednb.study.folders import page_folder
from fednb.study.paper import PACKAGE, Paper, shelf
from fednb.study.parameters import checked


class UnknownNotebook(ValueError):
    """A name that fits no notebook, or several."""


class OtherNotebook(ValueError):
    """A path to a file that differs from the notebook of its name."""


class NeedsJupyter(ImportError, ValueError):
    """A part of Jupyter that is not installed."""


class BadNotebook(ValueError):
    """A notebook of the shelf that cannot be read."""


class CellFailed(RuntimeError):
    """A cell of the notebook raised an error."""


def names() -> list[str]:
    """All notebooks, such as fedfft/01_fig1_perturbation_spectra."""
    root = shelf("notebooks")
    found = (p for p in root.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    return sorted(p.relative_to(root).with_suffix("").as_posix() for p in found)


def find(name: str) -> str:
    """A notebook by its name, a path to it, or the beginning of its name (fedfft/01)."""
    asked = name.removesuffix(".ipynb").split("notebooks/")[-1]
    file = Path(name).absolute() if name.endswith(".ipynb") and os.path.isfile(name) else None
    fits = [n for n in names() if n == asked or (file and file.as_posix().endswith(f"/{n}.ipynb"))]
    fits = fits or [n for n in names() if n.startswith(asked)]
    if len(fits) != 1:
        near = fits or difflib.get_close_matches(asked, names(), n=3, cutoff=0.2) or names()
        raise UnknownNotebook(f"no notebook {name!r}; closest: {', '.join(near[:5])}. `fednb ls notebooks` lists all.")
    if file:
        _refuse_other(file, fits[0])
    return fits[0]


def _refuse_other(file: Path, name: str) -> None:
    """Raise OtherNotebook if `file` differs from the notebook that would be executed for it."""
    if file.read_bytes() != path(name).read_bytes():
        folder = file.as_posix().removesuffix(f"/{name}.ipynb")
        mine = f"FEDNB_NOTEBOOKS={shlex.quote(folder)} fednb notebook {name}"
        raise OtherNotebook(f"{file} differs from {path(name)}; `{mine}` executes yours")


def path(name: str) -> Path:
    return shelf("notebooks") / f"{name}.ipynb"


def cells(name: str) -> list[dict[str, Any]]:
    """The cells of a notebook on the shelf."""
    try:
        book = json.loads(path(name).read_bytes())
    except (ValueError, RecursionError):
        raise BadNotebook(f"{path(name)}: is not JSON") from None
    if not execution.is_notebook(book):
        raise BadNotebook(f"{path(name)}: is not a notebook with cells")
    return book["cells"]


def title(name: str) -> str:
    """The first heading."""
    return "".join(cells(name)[0]["source"]).splitlines()[0].lstrip("# ")


def parameters(name: str) -> dict[str, Any]:
    """The names and defaults in the cell tagged `parameters`."""
    tagged = [c for c in cells(name) if "parameters" in c["metadata"].get("tags", [])]
    if len(tagged) != 1:
        raise BadNotebook(f"{path(name)}: must have one cell that is tagged `parameters`, and has {len(tagged)}")
    out: dict[str, Any] = {}
    try:
        for line in ast.parse("".join(tagged[0]["source"])).body:
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                out[line.targets[0].id] = ast.literal_eval(line.value)
    except (ValueError, SyntaxError, RecursionError):
        raise BadNotebook(f"{path(name)}: its parameters must be written as `name = number, text or list`") from None
    return out


def need(module: str) -> None:
    """Raise NeedsJupyter where a module of the extra `notebooks` is not installed."""
    if find_spec(module) is None:
        raise NeedsJupyter(f"{module} is not installed; install it with: pip install 'fednb[notebooks]'")


def execute(name: str, given: dict[str, Any]) -> Path:
    """Run a notebook with papermill; returns the folder with the executed copy and what the notebook kept.

    The page of an earlier execution stays until this one has succeeded.
    """
    need("papermill")
    given, scale = checked_parameters(name, given)
    with execution.fresh_page(name, scale) as folder:
        _execute_cells(name, given, folder, execution.failed_folder(name, scale))
        _sign(folder / EXECUTED, name)
    return page_folder(name, scale)


def _execute_cells(name: str, given: dict[str, Any], folder: Path, failed: Path) -> None:
    """Let papermill write the executed copy to a folder, cell by cell. failed: where it will lie after an error."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    up_to_there = f"\nthe notebook up to there: {failed / EXECUTED}"
    try:
        with _environment(FEDNB_PAGE=str(folder), **_modules(), **_terminal()):
            papermill.execute_notebook(
                path(name),
                folder / EXECUTED,
                parameters=given,
                kernel_name="python3",
                extra_arguments=["--IPKernelApp.log_level=50", "--IPKernelApp.ignore_cwd=True"],
            )
    except PapermillExecutionError as error:
        said = f"{name} stopped in cell {error.exec_count}: {error.ename}: {error.evalue}"
        raise CellFailed(said + up_to_there) from None
    except RuntimeError as error:  # the kernel died
        raise CellFailed(f"{name} stopped: {error}{up_to_there}") from None


def execute_plainly(name: str, given: dict[str, Any]) -> Path:
    """Run a notebook's cells as one Python program, for a machine without Jupyter; returns the page's folder."""
    given, scale = checked_parameters(name, given)
    known: dict[str, Any] = {"display": print}  # which Jupyter gives to every notebook
    code = [c for c in cells(name) if c["cell_type"] == "code"]
    with execution.fresh_page(name, scale) as folder, _environment(FEDNB_PAGE=str(folder), MPLBACKEND="agg"):
        for count, cell in enumerate(code, 1):
            try:
                exec(compile("".join(cell["source"]), f"{name}, cell {count}", "exec"), known)
            except Exception as error:
                said = f"{name} stopped in cell {count}: {type(error).__name__}: {error}"
                up_to_there = f"what it made up to there: {execution.failed_folder(name, scale)}"
                raise CellFailed(f"{said}\n{up_to_there}") from error
            if "parameters" in cell["metadata"].get("tags", []):
                known |= given
    return page_folder(name, scale)


def checked_parameters(name: str, given: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Parameters that the notebook can take, and the scale that they ask for; BadNotebookParameter for others."""
    known = parameters(name)
    given = checked(name, known, given)
    return given, given.get("scale", known.get("scale", SCALES[0]))


def kept_folder(name: str, scale: str) -> Path:
    """Where `--keep` writes the results of a paper's notebook; UnknownNotebook where it belongs to no paper."""
    paper, _, rest = name.partition("/")
    if not rest or not (shelf("papers") / paper).is_dir():
        raise UnknownNotebook(f"{name} belongs to no paper; only a paper's notebook has results to keep")
    return Paper(shelf("papers") / paper).own_folder(name, scale)


def is_kept(name: str, above: str) -> bool:
    """True if results of a notebook at a larger scale are kept with its paper. above: the smaller scale."""
    paper = shelf("papers") / name.partition("/")[0]
    larger = SCALES[SCALES.index(above) + 1 :] if "/" in name and paper.is_dir() else ()
    return any(Paper(paper).kept_folder(name, scale).is_dir() for scale in larger)


def keep_results(name: str, scale: str, folder: Path, command: str, fewer: bool = False) -> Path:
    """Copy what a paper's notebook showed (tables, figures, its runs' provenance) to `kept_folder`."""
    return execution.keep(folder, kept_folder(name, scale), command, fewer)


def _sign(executed: Path, name: str) -> None:
    """Write into an executed copy what it was made from."""
    book = json.loads(executed.read_text(encoding="utf-8"))
    book["metadata"]["fednb"] = {"version": __version__, "commit": commit(), "made_from": made_from(name)}
    atomically(executed, json.dumps(book, indent=1, ensure_ascii=False) + "\n")


def made_from(name: str) -> str:
    """What decides the outputs of a notebook, as a short text: its file, the library, the papers, torch."""
    own = hashlib.sha256(path(name).read_bytes()).hexdigest()[:16]
    return f"{own} {_library()}"


@cache
def _library() -> str:
    """Digest of the library's code but the site's, the papers' files but kept results, and torch's version."""
    code = [f for f in PACKAGE.rglob("*.py") if f.relative_to(PACKAGE).parts[:2] != ("show", "site")]
    papers = shelf("papers")
    every = (f for kind in ("*.toml", "*.csv") for f in papers.rglob(kind))
    printed = [f for f in every if f.relative_to(papers).parts[1:2] != ("results",)]
    whole = hashlib.sha256(torch.__version__.encode())
    for file in sorted(code) + sorted(printed):
        whole.update(file.name.encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def is_current(name: str, scale: str) -> bool:
    """Whether the executed copy at a scale is what executing the notebook now, as it is, would give."""
    try:
        about = execution.read_executed(name, scale)["metadata"]
    except (FileNotFoundError, DamagedFile):
        return False
    asked = about.get("papermill", {}).get("parameters")
    as_it_is = asked == {"scale": scale} and about.get("fednb", {}).get("made_from") == made_from(name)
    return as_it_is and not execution.page_problems(name, scale)


def execute_all(which: list[str], scale: str, jobs: int = 1) -> Iterator[tuple[str, str]]:
    """Execute notebooks, `jobs` at a time, each in a process of its own; yields each with its error, or nothing.

    One that fails does not stop the others. An interrupt ends those at work; their finished rounds are in the store.
    """
    at_work = AtWork()
    pool = ThreadPoolExecutor(jobs)
    try:
        waiting = {pool.submit(_execute_apart, name, scale, at_work): name for name in which}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        at_work.end()


class AtWork:
    """Processes that are at work, to be ended together; none is started afterwards."""

    PATIENCE = 30.0  # seconds that a process has to save what it has, before it is killed

    def __init__(self) -> None:
        self.processes: set[subprocess.Popen] = set()
        self.ending = False
        self.lock = threading.Lock()

    def run(self, command: list[str]) -> tuple[int, str]:
        """Start a process and wait for it: its exit status and what it said on stderr."""
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with self.lock:
            if self.ending:
                return 130, "interrupted"
            process = subprocess.Popen(command, text=True, errors="replace", **quiet)  # type: ignore[call-overload]
            self.processes.add(process)
        with process:
            said = process.communicate()[1]
        with self.lock:
            self.processes.discard(process)
        return process.returncode, said

    def end(self) -> None:
        """End all that are at work, and wait for them."""
        with self.lock:
            self.ending, left = True, list(self.processes)
        for process in left:
            process.terminate()
        for process in left:
            try:
                process.wait(self.PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _execute_apart(name: str, scale: str, at_work: AtWork) -> str:
    """Execute one notebook in a process of its own; returns the last lines of what went wrong, if anything did."""
    status, said = at_work.run(_command(name, scale))
    if status == 0:
        return ""
    _, known, reason = said.rpartition("fednb: ")  # what stands before it is papermill's bar
    return (reason if known else said[-2000:]).strip() or f"ended with exit status {status}"


def _command(name: str, scale: str) -> list[str]:
    return child.python("-m", "fednb", "notebook", name, "--scale", scale)


def _modules() -> dict[str, str]:
    """Where the kernel looks for modules: not in the current folder, unless this process does."""
    return {"PYTHONPATH": os.pathsep.join(child.folders()), "PYTHONSAFEPATH": "1"}


def _terminal() -> dict[str, str]:
    """Where the kernel shows its rounds: below papermill's cells, if anybody is looking."""
    return {"FEDNB_TERMINAL": os.ttyname(sys.stderr.fileno())} if sys.stderr.isatty() else {}


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Environment variables for the kernel, put back afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
