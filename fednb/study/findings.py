"""papers/REPORT.md: which claims hold, which do not, what nobody can tell yet, on one screen and paper by paper.

Made from kept results and a few paragraphs that are written by hand: papers/<id>/summary.md, whose first line is its
date, and papers/across/contradictions.toml, printed statements that cannot all be right.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fednb.base.inputs import BadFile, read_text, read_toml, shown
from fednb.base.progress import duration
from fednb.study.beside import all_beside, beside, scatter
from fednb.study.claims import outcome_class, wrong_by_chance
from fednb.study.forest import drawing
from fednb.study.ledger import Account, Bill
from fednb.study.map import MapLine, heading, name_of
from fednb.study.paper import Paper
from fednb.study.times import GPU
from fednb.study.verdict_text import HEADLINE, on_which, short, without_source
from fednb.study.verify import BEST

Row = dict[str, Any]  # a claim with its evidence, as `rows_of` gives it
DAY = "%d %B %Y"
REPORT, PRINTED = "REPORT.md", "printed.svg"  # beside the papers: the report, and its picture of printed numbers
COUNTED = {
    "hold": ("holds", "average"), "do not": ("fails",), "open": ("open",), "seen": ("seen", "seen-average"),
    "not seen": ("not-seen",), "not clear": ("unclear",), "by construction": ("construction",), "not run": ("none",),
}  # fmt: skip  # heads of columns, and the classes of verdicts that are counted there
DECIDED = {"Hold, where they were run": "hold", "Do not hold": "do not", "Not decided": "open"}
HEAD = """# Do the claims of five papers hold?

Made by `make evidence` from the results in this folder and from paragraphs that were written by hand, the latest on
{day}.

In federated learning many clients train one model on data that stay with them. Where their data differ, what they
compute drifts apart, and the model suffers. Five papers say how to train so that it suffers less: by looking uphill
before each step (sharpness-aware minimisation, SAM), by removing low frequencies from what clients compute, or by both.
Here each sentence of theirs is a rule that numbers can fail, put to runs of our own; fewer than three seeds decide
nothing ([how](../notebooks/across/05_how_we_judge.ipynb)). Only **paper scale**, the printed setting, says that a claim
holds or does not; **laptop scale**, a small network on Fashion-MNIST, says seen, not seen or not clear. The sentences
that a paper stands on are its headlines; all others are in the [map](README.md).

An effect stands with its 90% interval in brackets, over pairs of runs with the same seed; where a sentence compares
several, it is that of the comparison on which the verdict hangs, named in parentheses. Accuracy is that of a run's best
round on the test set, as most of the papers' code reads it; FedSCAM's is that of its last round. Alpha says how much
the clients' data differ: the smaller, the more. A name that ends in -S or -D stands on top of SCAFFOLD or FedDyn.
"""
LACKING = f"""### What nobody can tell yet, and why

Missing are the runs of the settings and methods that a claim is about. Their time is that of one {GPU}, several runs at
a time; a star says that no kept run has that model, data set and precision, so that it was estimated from the nearest.
"""


@dataclass(frozen=True)
class Written:
    """A paragraph, and the day on which it was written."""

    day: datetime
    text: str

    @classmethod
    def of(cls, file: Path) -> Written:
        """From a file whose first line is a date, such as 17 November 2026."""
        first, _, rest = read_text(file).partition("\n")
        try:
            return cls(datetime.strptime(first.strip(), DAY), rest.strip())
        except ValueError:
            raise BadFile(file, f"begins with {shown(first)}: must be a date, such as 17 November 2026") from None


def rows_of(paper: Paper, lines: list[MapLine]) -> list[Row]:
    """The claims of a paper, each with the best evidence that is kept; verdict "not run" where there is none."""
    judged = {claim: row for line in lines for claim, row in line.judged.to_dict("index").items()}
    found = []
    for claim in paper.claims():
        best = {name.removeprefix("best_"): value for name, value in judged.get(claim.id, {}).items()}
        about = {"claim": claim.id, "says": claim.says, "section": claim.section, "weight": claim.weight}
        found.append(dict.fromkeys(BEST, "") | {"verdict": "not run"} | best | about)
    return found


def report(every: dict[Paper, list[MapLine]], accounts: dict[str, list[Account]]) -> str:
    """The report as Markdown. every: from `map.lines_of_all`. accounts: by paper, from `ledger.accounts_of`."""
    rows = {paper: rows_of(paper, lines) for paper, lines in every.items()}
    written = {paper: Written.of(paper.folder / "summary.md") for paper in rows}
    study = [paper for paper in rows if paper.about.get("study")]
    printed = [each for paper in study for each in contradictions(paper)]
    day = max(each.day for each in written.values())
    own = {paper: found for paper, found in rows.items() if paper not in study}
    parts = [
        HEAD.format(day=told(day)), "## In short\n", counts(rows), *decided(rows), "### What explains the gains\n",
        *(line for paper in study for line in (f"{written[paper].text}\n", *picture(paper, rows[paper]))),
        LACKING,
        *(missing(paper, found, accounts.get(paper.id, [])) for paper, found in rows.items()),
        "", *beside(all_beside(every)),
        "## Printed numbers that contradict one another\n", *map(contradiction, printed), "",
        *(of_paper(paper, found, written[paper], accounts.get(paper.id, [])) for paper, found in own.items()),
        *(line for paper in study
          for line in (f"## {heading(paper)}\n", *table(rows[paper], accounts.get(paper.id, [])))),
    ]  # fmt: skip
    return "\n".join(parts)


def pictures(every: dict[Paper, list[MapLine]]) -> dict[Path, str]:
    """The files of the pictures: a forest plot for each paper that has something to draw, and all printed numbers."""
    drawn = {forest_of(paper): drawing(rows_of(paper, lines)) for paper, lines in every.items()}
    numbers = {paper.folder.parent / PRINTED: scatter(all_beside(every)) for paper in [*every][:1]}
    return {file: text for file, text in (drawn | numbers).items() if text}


def forest_of(paper: Paper) -> Path:
    """Where the forest plot of a paper lies."""
    return paper.folder / "results" / "forest.svg"


def picture(paper: Paper, rows: list[Row]) -> list[str]:
    """The forest plot of a paper as a line of Markdown; none where there is nothing to draw."""
    return [f"![{picture_of(paper)}]({paper.id}/results/{forest_of(paper).name})\n"] if drawing(rows) else []


def picture_of(paper: Paper) -> str:
    """What a paper's forest plot shows, in words."""
    return f"{name_of(paper)}: our effects with their intervals, in units of the printed ones"


def told(day: datetime) -> str:
    """A day as people write it: 7 November 2026."""
    return f"{day.day} {day:%B %Y}"


def counts(rows: dict[Paper, list[Row]]) -> str:
    """How many headline claims of each paper have which verdict, as a table, and how many may be wrong by chance."""
    lines = ["| headline claims of | all | " + " | ".join(COUNTED) + " |", "|---" * (len(COUNTED) + 2) + "|"]
    for paper, found in rows.items():
        kinds = Counter(outcome_class(row["verdict"]) for row in found if row["weight"] == HEADLINE)
        numbers = [sum(kinds[kind] for kind in classes) for classes in COUNTED.values()]
        lines.append(f"| {name_of(paper)} | {sum(kinds.values())} | {' | '.join(str(n or '') for n in numbers)} |")
    verdicts = [row["verdict"] for found in rows.values() for row in found if row["weight"] == HEADLINE]
    return "\n".join([*lines, "", wrong_by_chance(verdicts), ""])


def decided(rows: dict[Paper, list[Row]]) -> list[str]:
    """Headline claims at paper scale: those that hold, that do not, that stay open."""
    parts = []
    for title, kind in DECIDED.items():
        lines = [f"- {name_of(paper)}: {sentence(row)}" for paper, found in rows.items() for row in found
                 if row["weight"] == HEADLINE and outcome_class(row["verdict"]) in COUNTED[kind]]  # fmt: skip
        parts.append(f"### {title}, at paper scale\n\n" + "\n".join(lines or ["None so far."]) + "\n")
    return parts


def sentence(row: Row) -> str:
    """A claim with its verdict and numbers, in a line."""
    printed = short(row["printed"])
    numbers = [on_which(row), f"printed {printed}" if printed else "", f"n = {row['n']}" if row["n"] else ""]
    return f"{without_source(row['says'])}. **{row['verdict']}**, {', '.join(filter(None, numbers))}".rstrip(", ")


def missing(paper: Paper, rows: list[Row], accounts: list[Account]) -> str:
    """How many headline claims of a paper have no evidence at paper scale, and what runs they need."""
    open_ones = [row for row in rows if row["weight"] == HEADLINE and row["scale"] != "paper"
                 and outcome_class(row["verdict"]) != "construction"]  # fmt: skip
    bills = bills_of(accounts)
    lacking = Bill.of_all(bills[row["claim"]] for row in open_ones if row["claim"] in bills)
    every = sum(row["weight"] == HEADLINE for row in rows)
    return (f"- {name_of(paper)}: {len(open_ones)} of {every} headline claims were not run at paper scale. They need "
            f"{len(lacking.missing)} more runs, about {duration(lacking.seconds)}.")  # fmt: skip


def bills_of(accounts: list[Account]) -> dict[str, Bill]:
    """By claim the runs that it is about."""
    return {claim: bill for each in accounts for claim, bill in each.claims.items()}


def contradictions(paper: Paper) -> list[Row]:
    """Statements of the papers that cannot all be right, as papers/across/contradictions.toml has them."""
    file = paper.folder / "contradictions.toml"
    return list(read_toml(file)["contradiction"]) if file.is_file() else []


def contradiction(each: Row) -> str:
    """A contradiction as a line of a list."""
    return f"- **{each['about']}.** {each['one']} {each['other']} *{each['settled_by']}*"


def of_paper(paper: Paper, rows: list[Row], written: Written, accounts: list[Account]) -> str:
    """A paper: the paragraph, the picture, and its headline claims."""
    text = f"{written.text} ({told(written.day)})\n"
    return "\n".join([f"## {heading(paper)}\n", text, *picture(paper, rows), *table(rows, accounts)])


def table(rows: list[Row], accounts: list[Account]) -> list[str]:
    """The lines of a table of headline claims, with what is missing of each at paper scale."""
    cost = {claim: bill.cost for claim, bill in bills_of(accounts).items()}
    heads = ("claim", "verdict", "effect", "printed", "scale", "missing at paper scale: runs, time")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in (row for row in rows if row["weight"] == HEADLINE):
        cells = (f"{row['says']} (`{row['claim']}`)", row["verdict"], on_which(row) if row["n"] else "",
                 short(row["printed"]), f"{row['scale']}, n = {row['n']}" if row["n"] else "",
                 cost.get(row["claim"], ""))  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return [*lines, ""]
