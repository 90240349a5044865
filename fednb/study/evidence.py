"""The pages that are made of kept results: `python -m fednb.study.evidence --write` makes them, `--check` compares.

They are papers/README.md (the map), papers/REPORT.md with its pictures, the table of papers in README.md, and each
paper's results/README.md (what is missing).
"""

from __future__ import annotations

import sys
from pathlib import Path

from fednb.base.files import atomically
from fednb.study.findings import REPORT, pictures, report
from fednb.study.ledger import accounts_of, ledger, times_of_kept_runs
from fednb.study.map import COMMAND, lines_of_all, page, readme
from fednb.study.paper import shelf


def made() -> dict[Path, str]:
    """The files that are made of kept results, with what should be in them; README.md only where there is one."""
    every, front, times = lines_of_all(), shelf("papers").parent / "README.md", times_of_kept_runs()
    first = {front: readme(front.read_text(encoding="utf-8"), every)} if front.is_file() else {}
    accounts = {paper.id: accounts_of(paper, times) for paper in every}
    ledgers = {paper.folder / "results" / "README.md": ledger(accounts[paper.id]) for paper in every}
    pages = {shelf("papers") / "README.md": page(every), shelf("papers") / REPORT: report(every, accounts)}
    return first | pages | ledgers | pictures(every)


def main(asked: list[str]) -> int:
    """With `--write` write what is made, with `--check` say what is out of date. Exit status 2 else."""
    if asked not in (["--write"], ["--check"]):
        print("evidence: --write makes the pages, --check says which are out of date", file=sys.stderr)
        return 2
    stale = {file: text for file, text in made().items() if not file.is_file() or file.read_text("utf-8") != text}
    for file, text in stale.items() if asked == ["--write"] else ():
        file.parent.mkdir(exist_ok=True)
        atomically(file, text)
    for file in stale if asked == ["--check"] else ():
        print(f"{file} is out of date: {COMMAND}", file=sys.stderr)
    return int(bool(stale) and asked == ["--check"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
