"""The report as a page: what holds, what does not, what nobody can tell yet; as papers/REPORT.md has it."""

from __future__ import annotations

from collections.abc import Collection
from html import escape

from fednb.show.site.pages import SitePage, address
from fednb.show.site.text import linked, rendered
from fednb.study.findings import REPORT, forest_of, picture_of
from fednb.study.paper import Paper

URL = "report.html"


def report_page(known: list[Paper], names: Collection[str]) -> list[SitePage]:
    """The page, with a picture for each paper that has one; nothing where there is no report.

    names: the notebooks that the site has.
    """
    file = next((paper.folder.parent / REPORT for paper in known), None)
    if file is None or not file.is_file():
        return []
    text = file.read_text(encoding="utf-8").replace("](../notebooks/", "](notebooks/")
    body = linked(rendered(text), names, lambda name: f"notebooks/{address(name)}.html")
    drawn = {f"report/{address(paper.id)}.svg": paper for paper in known if forest_of(paper).is_file()}
    for url, paper in drawn.items():
        words = escape(picture_of(paper))
        body = body.replace(f"<p>{words}</p>", f'<figure><img src="{url}" alt="{words}"></figure>')
    return [SitePage(URL, "Report", body, files={url: forest_of(paper) for url, paper in drawn.items()}, wide=True)]
