"""The verb `fednb ls`: methods, papers, grids, notebooks, data sets, models and partitions, in lines of 100 letters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fednb.algorithms.catalogue import methods
from fednb.data import partition, sources
from fednb.models import names as model_names
from fednb.study import notebooks
from fednb.study.columns import fitting
from fednb.study.paper import papers

if TYPE_CHECKING:
    import pandas as pd

METHODS = ["paper", "passes per step", "traffic vs FedAvg", "kept per client", "parameters"]  # of `fn.methods()`
ACROSS = "across"  # our study of all papers, which `papers()` does not list


def add_ls(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("what", choices=sorted(LISTS))
    verb.set_defaults(do=do_ls)


def do_ls(asked: argparse.Namespace) -> int:
    print(LISTS[asked.what]())
    return 0


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return table.reset_index().to_dict("records")


def _partitions() -> list[dict[str, Any]]:
    """Every kind of partition, as a setting writes it and in a sentence."""
    return [{"partition": str(kind()), "what it is": (kind.__doc__ or "").splitlines()[0]}
            for kind in partition.NAMES.values()]  # fmt: skip


def _grids() -> list[dict[str, Any]]:
    """Every grid of every paper, with its title where it has a section of that name."""
    rows = []
    for paper in (papers(id) for id in (*papers().index, ACROSS)):
        titles = {name: about.get("title", "") for name, about in paper.about["sections"].items()}
        names = sorted(path.stem for path in (paper.folder / "grids").glob("*.toml"))
        rows += [{"paper": paper.id, "grid": name, "what it is": titles.get(name, "")} for name in names]
    return rows


LISTS = {
    "methods": lambda: fitting(_records(methods()[METHODS])),
    "papers": lambda: fitting(_records(papers())),
    "notebooks": lambda: fitting([{"notebook": name, "title": notebooks.title(name)} for name in notebooks.names()]),
    "data": lambda: fitting(sources.table()),
    "models": lambda: "\n".join(model_names()),
    "partitions": lambda: fitting(_partitions()),
    "grids": lambda: fitting(_grids()),
}
