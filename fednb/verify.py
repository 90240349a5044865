"""All claims of a paper at one scale: run what is missing, measure, judge, one table."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

from fednb.claims import Claim, verdict
from fednb.evidence import EVIDENCE
from fednb.grid import NeedsGpu
from fednb.paper import Paper

if TYPE_CHECKING:
    import pandas as pd

SHOWN = {"claim": 26, "paper": 44, "ours": 52, "n": 2, "verdict": 20}  # columns of the printed table, and their widths


def verify(paper: Paper, scale: str = "smoke", seeds: list[int] | None = None, device: str = "auto") -> pd.DataFrame:
    """One row per claim: what it says, its rule, the paper's numbers, ours, n, the verdict, and its notebook."""
    import pandas as pd

    tables = [_section(paper, name, scale, seeds, device) for name in paper.about["sections"]]
    found = pd.concat([table for table in tables if table is not None])
    return found.assign(paper_id=paper.id, scale=scale)


def _section(paper: Paper, name: str, scale: str, seeds: list[int] | None, device: str) -> pd.DataFrame | None:
    claims, notebook = paper.claims(name), paper.about["sections"][name]["notebook"]
    if not claims:
        return None
    try:
        judged = verdict(_measured(paper, name, scale, seeds, device), claims, scale)
    except NeedsGpu as error:
        judged = _kept(paper, name, scale, claims, str(error))
    return judged.assign(section=name, notebook=notebook)


def _measured(paper: Paper, name: str, scale: str, seeds: list[int] | None, device: str) -> list[pd.DataFrame]:
    """The tidy tables of a section's evidence, from its grid's runs."""
    evidence = paper.evidence(name)
    page = paper.page(name, scale=scale, seeds=seeds)
    if not page.grids:
        return [EVIDENCE[what](scale, **how).assign(grid=name) for what, how in evidence.items()]
    results = page.grid.run(device=device)
    return [EVIDENCE[what](results, **how).assign(grid=name) for what, how in evidence.items()]


def _kept(paper: Paper, name: str, scale: str, claims: list[Claim], reason: str) -> pd.DataFrame:
    """The verdicts that were kept from a run elsewhere; or the reason why there are none."""
    import pandas as pd

    folder = paper.page(name, scale=scale).kept_folder
    file = folder and folder / "verdict.csv"
    ids = [claim.id for claim in claims]
    if file and file.exists():
        return pd.read_csv(file, index_col="claim").reindex(ids)
    empty: dict[str, Any] = {"says": [c.says for c in claims], "rule": [c.rule for c in claims], "paper": "",
                             "ours": reason, "n": 0, "verdict": "not run"}  # fmt: skip
    return pd.DataFrame(empty, index=pd.Index(ids, name="claim"))


def in_columns(table: pd.DataFrame) -> str:
    """The table for a terminal: long texts wrapped inside their columns."""
    heads = "  ".join(name.ljust(width) for name, width in SHOWN.items())
    lines = [heads, "  ".join("-" * width for width in SHOWN.values())]
    for row in table.reset_index().to_dict("records"):
        cells = [wrap(str(row[name]), width) or [""] for name, width in SHOWN.items()]
        for i in range(max(map(len, cells))):
            each = (cell[i] if i < len(cell) else "" for cell in cells)
            lines.append(
                "  ".join(text.ljust(width) for text, width in zip(each, SHOWN.values(), strict=True)).rstrip()
            )
    return "\n".join(lines)
