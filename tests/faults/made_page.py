"""A shelf with one made paper and notebook that are executed in milliseconds, and what must be whole of them."""

from __future__ import annotations

import json
import os
import struct
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

NAME = "made/01_x"
DEFAULTS = 'scale = "smoke"\nx = 0\ndevice = "auto"'
SHOW = """
import pandas as pd
from PIL import Image
from types import SimpleNamespace
import fednb as fn
class Picture:
    def get_figwidth(self): return 4.0
    def supxlabel(self, *said, **how): pass
    def savefig(self, path, **how):
        Image.new("RGB", (x + 1, 3)).save(path, format=how["format"])
page = fn.page("made/01_x", scale)
runs = [SimpleNamespace(key="run %d" % x, about={"seed": x, "device_name": "a CPU"})]
page.keep("tab", pd.DataFrame({"x": [x] * 20}), runs)
page.keep("verdict", pd.DataFrame({"claim": ["one"], "verdict": ["holds"], "n": [x], "ours": ["x"]}), runs)
page.keep("fig", Picture(), runs)
"""
PAGE = ("tab.csv", "tab.txt", "verdict.csv", "verdict.txt", "fig.png", "runs.json", "executed.ipynb")
KEPT = ("tab.csv", "fig.png", "runs.json", "command.txt")  # verdicts are judged anew
REMARK = "my own words"


def make(root: Path) -> None:
    """The shelf, with nothing executed yet."""
    (root / "papers" / "made").mkdir(parents=True)
    (root / "papers" / "made" / "paper.toml").write_text('title = "Made"\n')
    cells = [
        {"cell_type": "code", "source": source, "metadata": {"tags": tags}, "outputs": [], "execution_count": None}
        for source, tags in ((DEFAULTS, ["parameters"]), (SHOW, []))
    ]
    path = root / "notebooks" / f"{NAME}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


class Shelf(ExitStack):
    """The made shelf in place of the real one, and a kernel that is this process."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def __enter__(self) -> Shelf:
        import papermill

        for module in ("fednb.study.paper", "fednb.study.notebooks", "fednb.study.execution"):
            self.enter_context(mock.patch(f"{module}.shelf", lambda name: self.root / name, create=True))
        self.enter_context(mock.patch.object(papermill, "execute_notebook", executed_here))
        self.enter_context(mock.patch("os.fsync", lambda descriptor: None))  # no power is cut here
        self.enter_context(mock.patch("fednb.study.notebooks._library", lambda: "made"))
        self.enter_context(mock.patch("fednb.study.notebooks.commit", lambda: None))
        self.enter_context(mock.patch.dict(os.environ, {"FEDNB_STORE": str(self.root / "store")}))
        return self


def executed_here(source, target, parameters, **how) -> None:
    """As papermill does it: the copy is written in place after every cell."""
    book = json.loads(Path(source).read_text())
    book["metadata"]["papermill"] = {"parameters": parameters}
    known: dict = {}
    for cell in book["cells"]:
        exec(cell["source"], known)
        if cell["metadata"]["tags"]:
            known |= parameters
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": f"picture {known['x']}"}]
        with open(target, "w", encoding="utf-8") as f:
            f.write(json.dumps(book))


def execute_and_keep(x: int) -> None:
    """What `fednb notebook made/01 -p x ... --keep` does."""
    from fednb.study import notebooks

    folder = notebooks.execute(NAME, {"scale": "smoke", "x": x})
    notebooks.keep_results(NAME, "smoke", folder, f"fednb notebook {NAME} -p x {x}", fewer=True)  # of another x


def page(root: Path) -> Path:
    return root / "store" / "notebooks" / NAME / "smoke"


def kept(root: Path) -> Path:
    return root / "papers" / "made" / "results" / "01_x_smoke"


def content(x: int, name: str) -> bytes:
    """A text that a file has only where it was made with this x."""
    if name == "fig.png":
        return b"IHDR" + struct.pack(">II", x + 1, 3)  # its width and height
    if name == "executed.ipynb":
        return b"picture %d" % x
    if name == "command.txt":
        return f"-p x {x}".encode()
    return {"runs.json": f'"run {x}"', "tab.csv": f"19,{x}\n", "verdict.csv": f"holds,{x},x"}.get(name, f"{x}").encode()


def made_with(folder: Path, names: tuple[str, ...], among: tuple[int, ...]) -> int | str:
    """With which x a folder was made, if all its files were and all of them are there."""
    for x in among:
        if all((folder / name).is_file() and content(x, name) in (folder / name).read_bytes() for name in names):
            return x
    return f"torn: {sorted(p.name for p in folder.iterdir()) if folder.is_dir() else 'gone'}"
