"""The report on the site: its links, its pictures, and nothing where there is no report."""

import re

from fednb.show.site.report import report_page
from fednb.study import notebooks
from fednb.study.findings import forest_of
from fednb.study.paper import Paper, papers

SHELF = [papers(id) for id in (*papers().index, "across")]


def test_the_report_has_its_pictures_and_leads_to_notebooks():
    (page,) = report_page(SHELF, notebooks.names())
    drawn = {f"report/{paper.id}.svg": forest_of(paper) for paper in SHELF if forest_of(paper).is_file()}
    drawn |= {"report/printed.svg": SHELF[0].folder.parent / "printed.svg"}
    assert page.files == drawn and len(drawn) > 3
    shown = set(re.findall(r'<img src="([^"]+)" alt="[^"]+"', page.body))
    assert shown == set(drawn)
    links = set(re.findall(r'href="(notebooks/[^"#]+)"', page.body))
    assert links and links <= {f"notebooks/{name}.html" for name in notebooks.names()}
    assert "<h2" in page.body and "<table>" in page.body and "](" not in page.body


def test_without_a_report_there_is_no_page(tmp_path):
    (tmp_path / "made").mkdir()
    assert report_page([Paper(tmp_path / "made")], []) == [] == report_page([], [])
