"""The report as a page: what holds, what does not, what nobody can tell yet; as papers/REPORT.md has it."""

from __future__ import annotations

import re
from collections.abc import Collection
from html import escape

from fednb.show.site.pages import SitePage, address
from fednb.show.site.text import linked, rendered
from fednb.study.beside import WORDS
from fednb.study.findings import PRINTED, REPORT, forest_of, picture_of
from fednb.study.paper import Paper

URL = "report.html"


def report_page(known: list[Paper], names: Collection[str]) -> list[SitePage]:
    """The page, with its picture of printed numbers and one for each paper that has any; nothing without a report.

    names: the notebooks that the site has.
    """
    file = next((paper.folder.parent / REPORT for paper in known), None)
    if file is None or not file.is_file():
        return []
    text = file.read_text(encoding="utf-8").replace("](../notebooks/", "](notebooks/")
    body = linked(rendered(text), names, lambda name: f"notebooks/{address(name)}.html")
    pictures = {
        f"report/{address(paper.id)}.svg": (forest_of(paper), re.escape(escape(picture_of(paper)))) for paper in known
    }
    pictures[f"report/{PRINTED}"] = (file.parent / PRINTED, WORDS.format("[0-9]+"))
    drawn = {url: (picture, words) for url, (picture, words) in pictures.items() if picture.is_file()}
    for url, (_, words) in drawn.items():
        body = re.sub(f"<p>({words})</p>", rf'<figure><img src="{url}" alt="\1"></figure>', body)
    return [SitePage(URL, "Report", body, files={url: picture for url, (picture, _) in drawn.items()}, wide=True)]
