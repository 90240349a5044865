"""The verb `fednb lab`: copy the notebooks to a folder of the user's, and open JupyterLab there."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from fednb.base.files import atomically, new_folder
from fednb.study import notebooks

FOLDER = Path("fednb-notebooks")
OPTIONS = [
    "--ServerApp.ip=127.0.0.1",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.news_url=None",
    "--LabApp.extension_manager=readonly",  # the other one asks a server for extensions
]
FOLDERS = ("FEDNB_STORE", "FEDNB_DATA", "FEDNB_RESULTS", "FEDNB_PAPERS", "FEDNB_NOTEBOOKS")  # variables that name one


class NoFolder(ValueError):
    """A folder that the notebooks cannot be copied to."""


def add_lab(verb: argparse.ArgumentParser) -> None:
    """Declare what can be asked of `fednb lab`."""
    verb.add_argument(
        "--to", type=Path, default=FOLDER, metavar="FOLDER", help=f"where your notebooks are; default ./{FOLDER}"
    )
    verb.add_argument("--no-open", action="store_true", help="copy the notebooks, and do not start JupyterLab")
    verb.add_argument(
        "options", nargs="*", metavar="-- OPTION", help="for JupyterLab, such as -- --no-browser --port=9000"
    )
    verb.set_defaults(do=do_lab)


def do_lab(asked: argparse.Namespace) -> int:
    """Copy what is not there yet; then this process becomes JupyterLab, unless --no-open was given."""
    if not asked.no_open:
        notebooks.need("jupyterlab")
    copied, changed = copy_notebooks(asked.to)
    for name in changed:
        print(f"left as it is: {asked.to / name}.ipynb, which differs from the one that comes with fednb")
    print(f"{copied} notebook{'s' * (copied != 1)} copied to {asked.to.absolute()}", flush=True)
    if not asked.no_open:
        command = lab_command(asked.to, asked.options)
        os.execve(command[0], command, os.environ | _absolute_folders())
    return 0


def copy_notebooks(to: Path) -> tuple[int, list[str]]:
    """Copy every notebook that is not in the folder `to`: how many were copied, and the names of those that differ.

    A file that is there is never written to.
    """
    copied, changed = 0, []
    for name in notebooks.names():
        source, target = notebooks.path(name), to / f"{name}.ipynb"
        try:
            if not os.path.lexists(target):
                new_folder(target.parent)
                atomically(target, source.read_bytes())
                copied += 1
            elif target.read_bytes() != source.read_bytes():
                changed.append(name)
        except OSError as error:
            raise NoFolder(f"{target}: cannot be copied ({error.strerror})") from None
    return copied, changed


def lab_command(folder: Path, options: list[str]) -> list[str]:
    """The command of a JupyterLab that shows a folder on this machine only and asks no server for news."""
    root = ["--allow-root"] if os.geteuid() == 0 else []
    lab = [sys.executable, "-P", "-m", "jupyterlab", f"--ServerApp.root_dir={folder.absolute()}"]
    return [*lab, *OPTIONS, *root, *options]


def _absolute_folders() -> dict[str, str]:
    """Variables that name fednb's folders, for kernels whose current folder is that of their notebook."""
    return {name: os.path.abspath(os.environ[name]) for name in FOLDERS if os.environ.get(name)}
