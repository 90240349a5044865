"""A shelf with one made paper and three notebooks, one of them executed, for tests of the site."""

import base64
import json

import pandas as pd

from fednb.study.measurements.registry import MEASUREMENTS

PAPER = """
title = "Made & printed"
authors = "A. Nobody"
venue = "nowhere"
citation = "Nobody. Made."
code = "none"
[sections.fig1]
title = "Figure 1: a number"
notebook = "made/01_one"
grid = false
evidence = { made = {} }
[sections.fig2]
title = "Figure 2: another"
notebook = "made/02_two"
evidence = { made = {} }
"""
GRID = """
methods = ["FedSAM", { name = "FedFFT", ratio = 0.1 }, "FedAvg + Sam(0.1)"]
"""
CLAIMS = """
[[claim]]
id = "small"
section = "fig1"
says = "a <b>number</b> is small"
kind = "at_most"
left = "A"
measure = "made"
tolerance = 7.0
[[claim]]
id = "large"
section = "fig2"
says = "another is not large"
kind = "at_most"
left = "A"
measure = "made"
tolerance = 7.0
"""
LOG = """# How Made was read

One entry.

## sign
printed   minus
released  no code
we run    plus, see notebooks/made/01_one.ipynb
effect    none
"""
PNG = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
).decode()
BAR = "\rFedAvg:  17%|█▋        | 1/6 [00:00<00:04,  1.08round/s, accuracy 13.93%]"
RUN = {"seed": 0, "device_name": "a CPU", "engine": "loop", "ended": "2026-11-15T05:56:39Z",
       "versions": {"fednb": "0.1.0", "torch": "2", "python": "3", "commit": "a" * 40 + "-dirty"}}  # fmt: skip


def text(source, id):
    return {"cell_type": "markdown", "id": id, "metadata": {}, "source": source}


def code(source, id, *outputs, tags=()):
    return {"cell_type": "code", "id": id, "metadata": {"tags": list(tags)}, "source": source, "execution_count": None,
            "outputs": list(outputs)}  # fmt: skip


def said(words, name="stderr"):
    return {"output_type": "stream", "name": name, "text": words}


def shown(**data):
    """A result: png = ..., html = ..., view = ..."""
    kinds = {"png": "image/png", "html": "text/html", "plain": "text/plain",
             "view": "application/vnd.jupyter.widget-view+json"}  # fmt: skip
    return {"output_type": "execute_result", "execution_count": 1, "metadata": {},
            "data": {kinds[name]: value for name, value in data.items()}}  # fmt: skip


def failed(words):
    return {"output_type": "error", "ename": "ValueError", "evalue": words, "traceback": [f"ValueError: {words}"]}


def book(*cells, **about):
    return {"cells": list(cells), "metadata": about, "nbformat": 4, "nbformat_minor": 5}


HEAD = text("# Made, Figure 1: what $x^2$ is\n\nIt is **shown**.", "head")
GIVEN = code('scale = "smoke"', "given", tags=["parameters"])
IDEA = text("## The idea\n\nHere.", "idea")
DRAW = code('title = "A dot"\npage.keep("fig1", dot(title=title))', "draw", said(BAR),
            said("x.py:3: UserWarning: dim\n"), shown(png=PNG, plain="<Figure>"))  # fmt: skip
FRAME = code(
    "table", "frame", shown(html='<div>\n<style scoped>a { b }</style><table class="dataframe"></table></div>')
)
CELLS = [HEAD, GIVEN, code("# Parameters", "told", tags=["injected-parameters"]), IDEA, DRAW, FRAME]


def put(path, thing):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(thing if isinstance(thing, str) else json.dumps(thing))


def bare(cell):
    return cell if cell["cell_type"] == "markdown" else cell | {"outputs": []}


def move_shelf(root, monkeypatch):
    """Papers, notebooks and the store are looked for under a folder."""
    monkeypatch.setenv("FEDNB_STORE", str(root / "store"))
    for module in (
        "fednb.study.paper",
        "fednb.study.notebooks",
        "fednb.study.execution",
        "fednb.show.site.book",
        "fednb.show.site.publish",
    ):
        monkeypatch.setattr(f"{module}.shelf", lambda name: root / name)
    monkeypatch.setitem(MEASUREMENTS, "made", lambda scale: table(5.0))


def make(root, monkeypatch):
    """The shelf under a folder, and a store with one executed copy."""
    move_shelf(root, monkeypatch)
    paper, page = root / "papers" / "made", root / "store" / "notebooks" / "made" / "01_one" / "smoke"
    files = {"paper.toml": PAPER, "claims.toml": CLAIMS, "reading.md": LOG, "grids/fig2.toml": GRID}
    for name, thing in files.items():
        put(paper / name, thing)
    for name in ("00_hello", "made/01_one", "made/02_two"):
        put(root / "notebooks" / f"{name}.ipynb", book(*map(bare, (HEAD, GIVEN, IDEA, DRAW))))
    about = {
        "papermill": {
            "parameters": {"scale": "smoke"},
            "start_time": "2026-11-15T11:15:32+00:00",
            "end_time": "2026-11-15T11:15:35+00:00",
            "duration": 3.2,
        }
    }
    put(page / "executed.ipynb", book(*CELLS, **about))
    put(page / "runs.json", {"0123": RUN})
    put(page / "fig1_made.csv", table(5.0).to_csv())
    kept = paper / "results" / "02_two_laptop"
    put(kept / "fig2_made.csv", pd.concat([table(4.0 + seed, seed, "fig2") for seed in range(3)]).to_csv())
    put(kept / "runs.json", {str(seed): RUN | {"seed": seed} for seed in range(3)})
    put(kept / "command.txt", "fednb notebook made/02_two --scale laptop --keep\n\nOn a <fast> machine.\n")
    (kept / "fig1.png").write_bytes(base64.b64decode(PNG))
    return root


def table(value, seed=0, grid="fig1"):
    return pd.DataFrame([{"method": "A", "seed": seed, "measure": "made", "value": value, "grid": grid}])
