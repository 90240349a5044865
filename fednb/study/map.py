"""The map of the papers: which notebook shows which sections, on which runs, and what was found so far.

`python -m fednb.study.map` prints it as Markdown; `--write` writes it to papers/README.md.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fednb.base.files import atomically
from fednb.runs.grid import SCALES
from fednb.study import notebooks
from fednb.study.paper import Paper, papers, shelf
from fednb.study.verify import best

if TYPE_CHECKING:
    import pandas as pd

VERDICTS = {
    "hold": "holds",
    "do not hold": "does not hold",
    "not decided": "not decided",
}  # column, verdict's beginning
COMMAND = "python -m fednb.study.map --write"
HEAD = f"""# Map of the papers

Made from the files in this folder by `{COMMAND}`; change those, not this page.

- **runs**: the grids behind a notebook, one file each. "none" where it computes everything itself.
- **claims**: how many rules of `claims.toml` the notebook judges, and how many of them hold, do not hold (false in some
  setting for every seed) or are not decided in the best evidence that is kept. The rest was not run.
- **evidence**: the largest scale with kept results, the number of seeds n, and the device; the link leads to the
  tables, figures, runs and the command.
"""
COLUMNS = ("notebook", "sections", "runs", "claims", *VERDICTS, "evidence")
SCALE_NOTE = "Scale `laptop` shows a tendency, `paper` is the printed setting; what `smoke` runs is no evidence.\n"


@dataclass(frozen=True)
class MapLine:
    """One notebook of a paper."""

    paper: Paper
    notebook: str
    sections: tuple[str, ...]  # names in paper.toml
    claims: int  # how many the sections make

    @property
    def titles(self) -> list[str]:
        """The titles of the sections that the notebook shows."""
        return [self.paper.about["sections"][name]["title"] for name in self.sections]

    @property
    def found(self) -> str:
        """What was found so far, in a line written by hand; empty without kept results."""
        return self.paper.about.get("found", {}).get(self.notebook, "")

    @property
    def grids(self) -> list[str]:
        """The sections that have a grid of runs."""
        return [name for name in self.sections if self.paper.about["sections"][name].get("grid", True)]

    @cached_property
    def judged(self) -> pd.DataFrame:
        """The best kept verdict of each claim, without claims that were never run (columns as in `verify.best`)."""
        import pandas as pd

        table = pd.concat([best(self.paper, name) for name in self.sections])
        return table[table["best_verdict"] != ""]

    @property
    def results_folder(self) -> Path | None:
        """The folder of the kept results of the largest scale that has some."""
        folders = [self.paper.kept_folder(self.notebook, scale) for scale in SCALES]
        return next((folder for folder in reversed(folders) if folder.is_dir()), None)


def map_lines(paper: Paper) -> list[MapLine]:
    """The notebooks of a paper in the order of their names."""
    shown_in = {name: section["notebook"] for name, section in paper.about["sections"].items()}
    made = Counter(shown_in[claim.section] for claim in paper.claims())
    return [
        MapLine(paper, notebook, tuple(name for name in shown_in if shown_in[name] == notebook), made[notebook])
        for notebook in sorted(set(shown_in.values()))
    ]


def page() -> str:
    """The map of all papers and of the study across them, as Markdown with links relative to papers/."""
    every = {paper: map_lines(paper) for paper in map(papers, (*papers().index, "across"))}
    known = {line.notebook for mine in every.values() for line in mine}
    others = [f"- {_link(name)}: {notebooks.title(name)}" for name in notebooks.names() if name not in known]
    top = [HEAD, SCALE_NOTE, "## Notebooks of no paper\n", *others, ""]
    return "\n".join([*top, *(_of_paper(paper, mine) for paper, mine in every.items())])


def _of_paper(paper: Paper, mine: list[MapLine]) -> str:
    """One paper: a table of its notebooks, then each claim with what was found."""
    about = paper.about
    read = f"{about['authors']}; {about['venue']}. How it was read: [{paper.id}/reading.md]({paper.id}/reading.md)."
    table = [_row(COLUMNS), _row(["---"] * len(COLUMNS)), *(_row(_cells(line)) for line in mine)]
    return "\n".join([f"## {about['title']}", "", read, "", *table, "", *map(_said, mine), ""])


def _row(cells: list[str] | tuple[str, ...]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _cells(line: MapLine) -> list[str]:
    counted = [str(sum(line.judged["best_verdict"].str.startswith(begin))) for begin in VERDICTS.values()]
    grids = ", ".join(f"[{name}]({line.paper.id}/grids/{name}.toml)" for name in line.grids) or "none"
    return [_link(line.notebook), "; ".join(line.titles), grids, str(line.claims),
            *(counted if len(line.judged) else [""] * len(VERDICTS)), _evidence(line)]  # fmt: skip


def _link(notebook: str) -> str:
    """A link to a notebook, under its short name (fedfft/01)."""
    folder, _, name = notebook.rpartition("/")
    short = f"{folder}/{name.split('_')[0]}" if folder and name[0].isdigit() else notebook
    return f"[{short}](../notebooks/{notebook}.ipynb)"


def _evidence(line: MapLine) -> str:
    """The scale, n and device of the kept results, linked to their folder."""
    if not line.results_folder:
        return ""
    scale = line.results_folder.name.rpartition("_")[2]
    seeds = sorted(set(line.judged.loc[line.judged["best_scale"] == scale, "best_n"]), key=int)
    text = f"{scale}, n = {' and '.join(seeds)}" if seeds else scale
    return f"[{text}]({line.paper.id}/results/{line.results_folder.name}){_device(line.results_folder)}"


def _device(folder: Path) -> str:
    """The devices of the kept runs; nothing where there are no runs."""
    file = folder / "runs.json"
    runs = json.loads(file.read_text(encoding="utf-8")).values() if file.exists() else []
    return "".join(f", {name}" for name in sorted({run["device_name"] for run in runs}))


def _said(line: MapLine) -> str:
    """The claim as the notebook's first cell states it, and what was found."""
    first = "".join(notebooks.cells(line.notebook)[0]["source"])
    claim = " ".join(next(text for text in first.split("\n\n") if text.startswith("**Claim.**")).split())
    found = f" **Found.** {line.found}." if line.found else ""
    return f"- {_link(line.notebook)} {claim}{found}"


def main(asked: list[str]) -> int:
    """Print the page, or write it with `--write`; exit status 2 for anything else."""
    if asked not in ([], ["--write"]):
        print(f"map: {' '.join(asked)}: only --write is known", file=sys.stderr)
        return 2
    if asked:
        atomically(shelf("papers") / "README.md", page())
    else:
        print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
