"""The evidence in words: which notebook shows which sections, on which runs, and what the kept results say.

papers/README.md, and the table of papers in README.md; `fednb.study.evidence` writes both. Every count, verdict and
number is judged on kept results.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb.runs.grid import SCALES
from fednb.study import notebooks
from fednb.study.claims import OUTCOMES, outcome_class, wrong_by_chance
from fednb.study.claims.claim import WEIGHTS
from fednb.study.paper import Paper, papers
from fednb.study.verdict_text import interval, on_which, short, without_source
from fednb.study.verify import best

if TYPE_CHECKING:
    import pandas as pd

COMMAND = "make evidence"
HEAD = f"""# Map of the papers

Made from the files in this folder by `{COMMAND}`; change those, not this page.

- **runs**: the grids behind a notebook, one file each. "none" where it computes everything itself.
- **claims**: how many rules of `claims.toml` the notebook judges.
- **paper scale**: how many of them hold, do not hold and are not decided in the kept results of that scale; **laptop
  scale**: how many are seen, not seen and not clear there. Each claim counts at the largest scale at which it was run;
  one whose words cannot be otherwise counts as **by construction**.
- **evidence**: the largest scale with kept results, and smaller ones that a verdict rests on, each with the number of
  seeds n of its verdicts and the device; the link leads to the tables, figures, runs and the command.
- **Found**: each verdict with the effect, its interval in brackets and what the paper prints.
"""
COUNTED = {
    "paper": (("holds", "average"), ("fails",), ("open",)),
    "laptop": (("seen", "seen-average"), ("not-seen",), ("unclear",)),
}  # by scale: classes of verdicts that are counted together: for a claim, against it, neither
COLUMNS = ("notebook", "sections", "runs", "claims", *(f"{scale} scale" for scale in COUNTED), "by construction",
           "evidence")  # fmt: skip
SCALE_NOTE = "Scale `laptop` shows a tendency, `paper` is the printed setting; what `smoke` runs is no evidence.\n"
BEGIN, END = f"<!-- made by {COMMAND} -->", "<!-- end of what is made -->"  # around the table of papers in README.md
HOW_WE_JUDGE = "notebooks/across/05_how_we_judge.ipynb"
TITLES = {
    "fedfsa": "FedFSA",
    "across": "across the papers",
}  # names of methods whose papers' titles do not begin with them


@dataclass(frozen=True)
class MapLine:
    """One notebook of a paper."""

    paper: Paper
    notebook: str
    sections: tuple[str, ...]  # names in paper.toml
    claims: int  # how many the sections make
    known: pd.DataFrame | None = field(default=None, compare=False, repr=False)  # see `map_lines`

    @property
    def titles(self) -> list[str]:
        """The titles of the sections that the notebook shows."""
        return [self.paper.about["sections"][name]["title"] for name in self.sections]

    @property
    def remark(self) -> str:
        """What explains the findings, in a line written by hand, without verdicts or numbers of its own."""
        return self.paper.about.get("found", {}).get(self.notebook, "")

    @property
    def found(self) -> str:
        """What the kept results say: the claims by verdict with their numbers, then the remark; Markdown."""
        words = dict.fromkeys(sorted(self.judged["best_verdict"], key=_by_class))
        rows = self.judged.reset_index().to_dict("records")
        told = [
            f"**{word}**: {', '.join(_short(row) for row in rows if row['best_verdict'] == word)}" for word in words
        ]
        return ". ".join(["; ".join(told), *([f"Remark: {self.remark}"] if self.remark else [])]) if told else ""

    @property
    def grids(self) -> list[str]:
        """The sections that have a grid of runs."""
        return [name for name in self.sections if self.paper.about["sections"][name].get("grid", True)]

    @cached_property
    def judged(self) -> pd.DataFrame:
        """The best kept verdict of each claim, without claims that were never run (columns as in `verify.best`)."""
        import pandas as pd

        table = pd.concat([self._best(name) for name in self.sections])
        return table[table["best_verdict"] != ""]

    def _best(self, section: str) -> pd.DataFrame:
        """The best kept verdict of each claim of a section."""
        if self.known is None:
            return best(self.paper, section)
        mine = self.known[(self.known["paper_id"] == self.paper.id) & (self.known["section"] == section)]
        return mine[[name for name in mine if name.startswith("best_")]]

    @property
    def results(self) -> dict[str, Path]:
        """By scale, the folders of kept results: of the largest that has some, and of others that verdicts rest on."""
        kept = {scale: self.paper.kept_folder(self.notebook, scale) for scale in reversed(SCALES)}
        there = {scale: folder for scale, folder in kept.items() if folder.is_dir()}
        rest_on = {*list(there)[:1], *self.judged["best_scale"]}
        return {scale: folder for scale, folder in there.items() if scale in rest_on}


def map_lines(paper: Paper, known: pd.DataFrame | None = None) -> list[MapLine]:
    """The notebooks of a paper in the order of their names. known: verdicts on all claims, as `verify` gives them."""
    shown_in = {name: section["notebook"] for name, section in paper.about["sections"].items()}
    made = Counter(shown_in[claim.section] for claim in paper.claims())
    return [
        MapLine(paper, notebook, tuple(name for name in shown_in if shown_in[name] == notebook), made[notebook], known)
        for notebook in sorted(set(shown_in.values()))
    ]


def lines_of_all() -> dict[Paper, list[MapLine]]:
    """The notebooks of all papers and of the study across them."""
    return {paper: map_lines(paper) for paper in map(papers, (*papers().index, "across"))}


def page(every: dict[Paper, list[MapLine]]) -> str:
    """The map of all papers, as Markdown with links relative to papers/. every: what `lines_of_all` gives."""
    known = {line.notebook for mine in every.values() for line in mine}
    others = [f"- {_link(name)}: {notebooks.title(name)}" for name in notebooks.names() if name not in known]
    top = [HEAD, SCALE_NOTE, "## Notebooks of no paper\n", *others, ""]
    return "\n".join([*top, *(_of_paper(paper, mine) for paper, mine in every.items())])


def name_of(paper: Paper) -> str:
    """The name of a paper's method."""
    return str(TITLES.get(paper.id) or paper.about["title"].partition(":")[0])


def heading(paper: Paper) -> str:
    """A paper's title, and before it the method's name where the title does not begin with it."""
    name, title = name_of(paper), str(paper.about["title"])
    return title if title.lower().startswith(name.lower()) else f"{name}: {title}"


def _of_paper(paper: Paper, mine: list[MapLine]) -> str:
    """One paper: a table of its notebooks, then each claim with what was found."""
    about = paper.about
    read = f"{about['authors']}; {about['venue']}. How it was read: [{paper.id}/reading.md]({paper.id}/reading.md)."
    table = [_row(COLUMNS), _row(["---"] * len(COLUMNS)), *(_row(_cells(line)) for line in mine)]
    return "\n".join([f"## {heading(paper)}", "", read, "", *table, "", *map(_said, mine), ""])


def _row(cells: list[str] | tuple[str, ...]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _cells(line: MapLine) -> list[str]:
    grids = ", ".join(f"[{name}]({line.paper.id}/grids/{name}.toml)" for name in line.grids) or "none"
    return [_link(line.notebook), "; ".join(line.titles), grids, str(line.claims),
            *(_counts([line], scale) for scale in COUNTED), _fixed([line]), _evidence(line)]  # fmt: skip


def _counts(lines: list[MapLine], scale: str) -> str:
    """How many verdicts of some notebooks are for, against and neither at a scale: "2 / 1 / 0"; empty without any."""
    found = Counter(outcome_class(v) for line in lines for v in line.judged["best_verdict"])
    numbers = [sum(found[kind] for kind in kinds) for kinds in COUNTED[scale]]
    return " / ".join(map(str, numbers)) if any(numbers) else ""


def _fixed(lines: list[MapLine]) -> str:
    """How many claims of some notebooks cannot be otherwise; empty without any."""
    found = sum(outcome_class(v) == "construction" for line in lines for v in line.judged["best_verdict"])
    return str(found or "")


def _by_class(verdict: str) -> tuple[int, str]:
    return list(OUTCOMES.values()).index(outcome_class(verdict)), verdict


def _short(row: dict[str, Any]) -> str:
    """A claim with its numbers: "`table3-low` 3.3 [2.1, 4.5], printed 21.6"."""
    return f"`{row['claim']}` {', '.join(filter(None, [interval(row, 'best_'), _printed(row)]))}".rstrip()


def _printed(row: dict[str, Any]) -> str:
    """What is printed, in words; an empty text where nothing is."""
    printed = short(row["best_printed"])
    return f"printed {printed}" if printed else ""


def _link(notebook: str) -> str:
    """A link to a notebook, under its short name (fedfft/01)."""
    return f"[{_short_name(notebook)}](../notebooks/{notebook}.ipynb)"


def _short_name(notebook: str) -> str:
    """The beginning of a notebook's name that `fednb notebook` finds it by: fedfft/01."""
    folder, _, name = notebook.rpartition("/")
    return f"{folder}/{name.split('_')[0]}" if folder and name[0].isdigit() else notebook


def _evidence(line: MapLine) -> str:
    """Scale, n and device of the kept results, linked to their folders."""
    told = []
    for scale, folder in line.results.items():
        seeds = sorted(set(line.judged.loc[line.judged["best_scale"] == scale, "best_n"]))
        text = f"{scale}, n = {' and '.join(map(str, seeds))}" if seeds else scale
        told.append(f"[{text}]({line.paper.id}/results/{folder.name}){_device(folder)}")
    return "; ".join(told)


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


def readme(text: str, every: dict[Paper, list[MapLine]]) -> str:
    """README.md with the table of papers made again: all between two marks. every: what `lines_of_all` gives."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md: the table of papers must stand between {BEGIN} and {END}")
    return "".join([before, BEGIN, "\n", papers_table(every), "\n", chance(every), END, after])


def chance(every: dict[Paper, list[MapLine]]) -> str:
    """How many of the verdicts in the table of papers may be wrong, and where that was found."""
    verdicts = [v for lines in every.values() for line in lines for v in line.judged["best_verdict"]]
    return f"{wrong_by_chance(verdicts)} How that was found: [across/05]({HOW_WE_JUDGE}).\n"


def papers_table(every: dict[Paper, list[MapLine]]) -> str:
    """One row per paper: its claims, how many have which verdict at which scale, and the evidence that weighs most."""
    heads = ("paper", "claims", "paper scale: hold / do not / open", "laptop scale: seen / not / not clear",
             "by construction", "not run", "the evidence that weighs most, and the command that shows it")  # fmt: skip
    lines = [_row(heads), _row(["---"] * len(heads))]
    for paper, mine in every.items():
        claims, ran = sum(line.claims for line in mine), sum(len(line.judged) for line in mine)
        counts = [*(_counts(mine, scale) for scale in COUNTED), _fixed(mine)]
        lines.append(_row([name_of(paper), str(claims), *counts, str(claims - ran), _weightiest(paper, mine)]))
    return "\n".join(lines) + "\n"


def _weightiest(paper: Paper, mine: list[MapLine]) -> str:
    """A claim of the highest weight, at the largest scale that one was run at, beside a printed number if there is one.

    With its numbers, and the command for it.
    """
    claims = {claim.id: claim for claim in paper.claims()}
    found = [(row, line.notebook) for line in mine for row in line.judged.reset_index().to_dict("records")]
    if not found:
        return f"none yet, every notebook runs at smoke scale only: `fednb notebook {_short_name(mine[0].notebook)}`"
    row, notebook = min(found, key=lambda each: _rank(each[0], WEIGHTS.index(claims[each[0]["claim"]].weight)))
    says, scale = without_source(claims[row["claim"]].says), row["best_scale"]
    settings = f"{row['best_settings_run']} of {row['best_settings_claimed']} settings"
    told = ", ".join(filter(None, [f"**{row['best_verdict']}**", on_which(row, "best_"), _printed(row)]))
    return (f"{says}: {told} ({scale} scale, n = {row['best_n']}, {settings}): "
            f"`fednb notebook {_short_name(notebook)} --scale {scale}`")  # fmt: skip


def _rank(row: dict[str, Any], weight: int) -> tuple[bool, int, int, bool]:
    """Sorts claims: those with an effect first, then by weight, the largest scale, and with a printed number."""
    return not short(row["best_effect"]), weight, -SCALES.index(row["best_scale"]), not short(row["best_printed"])
