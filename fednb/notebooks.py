"""Notebooks by name, and their headless execution with papermill, one or all of them."""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from fednb.paper import Paper, shelf
from fednb.report import page_folder
from fednb.store import atomically
from fednb.version import __version__, commit


class UnknownNotebook(ValueError):
    """A name that fits no notebook, or several."""


class BadNotebookParameter(ValueError):
    """A parameter that the notebook does not have."""


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
    fits = [n for n in names() if n == asked] or [n for n in names() if n.startswith(asked)]
    if len(fits) != 1:
        near = fits or difflib.get_close_matches(asked, names(), n=3, cutoff=0.2) or names()
        raise UnknownNotebook(f"no notebook {name!r}; closest: {', '.join(near[:5])}. `fednb ls notebooks` lists all.")
    return fits[0]


def path(name: str) -> Path:
    return shelf("notebooks") / f"{name}.ipynb"


def cells(name: str) -> list[dict[str, Any]]:
    return json.loads(path(name).read_text(encoding="utf-8"))["cells"]


def title(name: str) -> str:
    """The first heading."""
    return "".join(cells(name)[0]["source"]).splitlines()[0].lstrip("# ")


def parameters(name: str) -> dict[str, Any]:
    """The names and defaults in the cell tagged `parameters`."""
    (tagged,) = [c for c in cells(name) if "parameters" in c["metadata"].get("tags", [])]
    out: dict[str, Any] = {}
    for line in ast.parse("".join(tagged["source"])).body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            out[line.targets[0].id] = ast.literal_eval(line.value)
    return out


def execute(name: str, given: dict[str, Any]) -> Path:
    """Run a notebook with papermill; returns the folder with the executed copy and what the notebook kept."""
    folder = _fresh_folder(name, given)
    import papermill
    from papermill.exceptions import PapermillExecutionError

    try:
        with _environment(FEDNB_PAGE=str(folder), **_terminal()):
            papermill.execute_notebook(
                path(name),
                folder / "executed.ipynb",
                parameters=given,
                kernel_name="python3",
                extra_arguments=["--IPKernelApp.log_level=40"],
            )
    except PapermillExecutionError as error:
        raise CellFailed(
            f"{name} stopped in cell {error.exec_count}: {error.ename}: {error.evalue}\n"
            f"the notebook up to there: {folder / 'executed.ipynb'}"
        ) from None
    _sign(folder / "executed.ipynb", name)
    return folder


def execute_plainly(name: str, given: dict[str, Any]) -> Path:
    """Run a notebook's cells as one Python program, for a machine without Jupyter; returns the page's folder."""
    folder = _fresh_folder(name, given)
    known: dict[str, Any] = {}
    code = [c for c in cells(name) if c["cell_type"] == "code"]
    with _environment(FEDNB_PAGE=str(folder), MPLBACKEND="agg"):
        for count, cell in enumerate(code, 1):
            try:
                exec(compile("".join(cell["source"]), f"{name}, cell {count}", "exec"), known)
            except Exception as error:
                raise CellFailed(f"{name} stopped in cell {count}: {type(error).__name__}: {error}") from error
            if "parameters" in cell["metadata"].get("tags", []):
                known |= given
    return folder


def _fresh_folder(name: str, given: dict[str, Any]) -> Path:
    """The folder of what a notebook shows at a scale, emptied; parameters that it does not have are refused before."""
    known = parameters(name)
    for wrong in (p for p in given if p not in known):
        raise BadNotebookParameter(f"{name} has no parameter {wrong!r}; it has: {', '.join(known)}")
    folder = page_folder(name, given.get("scale", known.get("scale", "smoke")))
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.txt"), *folder.glob("*.csv"), *folder.glob("*.png"), *folder.glob("runs.json")):
        old.unlink()
    return folder


def keep_results(name: str, scale: str, folder: Path, command: str) -> Path:
    """Copy what a paper's notebook showed (tables, figures, its runs' provenance) to papers/<id>/results."""
    paper, _, rest = name.partition("/")
    if not rest or not (shelf("papers") / paper).is_dir():
        raise UnknownNotebook(f"{name} belongs to no paper; only a paper's notebook has results to keep")
    target = Paper(shelf("papers") / paper).kept_folder(name, scale)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / "command.txt").write_text(command + "\n")
    for kind in ("*.csv", "*.png", "runs.json"):
        for file in folder.glob(kind):
            shutil.copy(file, target)
    return target


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
    """The library's files but the site's, which only reads, and the papers' but what was kept; with torch's version."""
    here = Path(__file__).resolve().parent
    code = [f for f in here.rglob("*.py") if f.relative_to(here).parts[0] not in ("site", "_notebooks")]
    told = [f for f in shelf("papers").rglob("*") if f.suffix in (".toml", ".csv") and "results" not in f.parts]
    whole = hashlib.sha256(torch.__version__.encode())
    for file in sorted(code) + sorted(told):
        whole.update(file.name.encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def is_current(name: str, scale: str) -> bool:
    """Whether the executed copy at a scale is what executing the notebook now, as it is, would give."""
    executed = page_folder(name, scale) / "executed.ipynb"
    if not executed.exists():
        return False
    about = json.loads(executed.read_text(encoding="utf-8"))["metadata"]
    asked = about.get("papermill", {}).get("parameters")
    return asked == {"scale": scale} and about.get("fednb", {}).get("made_from") == made_from(name)


def execute_all(which: list[str], scale: str, jobs: int = 1) -> Iterator[tuple[str, str]]:
    """Execute notebooks, `jobs` at a time, each in a process of its own; yields each with its error, or nothing.

    One that fails does not stop the others. An interrupt ends those at work; their finished rounds are in the store.
    """
    at_work: set[subprocess.Popen] = set()
    pool = ThreadPoolExecutor(jobs)
    try:
        waiting = {pool.submit(_execute_apart, name, scale, at_work): name for name in which}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(at_work):
            process.terminate()


def _execute_apart(name: str, scale: str, at_work: set[subprocess.Popen]) -> str:
    """Execute one notebook in a process of its own; returns the last lines of what went wrong, if anything did."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(_command(name, scale), text=True, errors="replace", **quiet) as process:  # type: ignore[call-overload]
        at_work.add(process)
        said = process.communicate()[1]
        at_work.discard(process)
    if process.returncode == 0:
        return ""
    _, known, reason = said.rpartition("fednb: ")  # what stands before it is papermill's bar
    return (reason if known else said[-2000:]).strip() or f"ended with exit status {process.returncode}"


def _command(name: str, scale: str) -> list[str]:
    return [sys.executable, "-m", "fednb", "notebook", name, "--scale", scale]


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
