"""Markdown as HTML: mathematics without scripts, headings that can be linked to, reading logs as lists."""

import re

import pytest

from fednb.show.site.text import linked, mathml, reading_log, rendered, slug, unique, without_markup
from fednb.study import notebooks
from fednb.study.paper import shelf


def test_a_formula_becomes_mathml_that_says_how_it_was_typed():
    html = rendered(r"Let $\delta_k = \rho\, x^2$ be small.")
    assert "<msub><mi>&#x003B4;</mi><mi>k</mi></msub>" in html and "<msup><mi>x</mi><mn>2</mn></msup>" in html
    assert r'alttext="\delta_k = \rho\, x^2"' in html and "$" not in html


def test_display_mathematics_over_several_lines():
    html = rendered("before\n\n$$ a +\nb $$\n\nafter")
    assert html.count('display="block"') == 1 and '<span class="formula">' in html


def test_code_is_not_mathematics():
    html = rendered("`$x$` and\n\n    $y$\n\n```\n$z$\n```\n")
    assert "<math" not in html and {"$x$", "$y$", "$z$"} <= set(re.findall(r"\$\w\$", html))


@pytest.mark.parametrize("tex", [r"\frac{a", r"\nosuchcommand x", "a_1_2", "a}"])
def test_what_cannot_be_converted_stays_readable(tex):
    assert mathml(tex) == f'<code class="tex">${tex}$</code>'


def test_sizes_before_delimiters_are_left_to_the_browser():
    """MathML's delimiters stretch by themselves; the converter does not know \\big before a command."""
    assert "tex" not in mathml(r"\big\lVert x \big\rVert").split(">")[0].replace("alttext", "")
    assert mathml(r"\Big( x \Big)").startswith("<math ")


@pytest.mark.parametrize("name", notebooks.names())
def test_every_formula_of_our_notebooks_can_be_shown(name):
    texts = ["".join(c["source"]) for c in notebooks.cells(name) if c["cell_type"] == "markdown"]
    assert 'class="tex"' not in rendered("\n\n".join(texts))


def test_headings_have_names_of_their_own():
    html = rendered("# A b\n\n## A b\n\n## $x$ & y", taken={"a-b"})
    assert re.findall(r'<h(\d) id="([^"]+)"', html) == [("1", "a-b-2"), ("2", "a-b-3"), ("2", "x-y")]
    assert slug("What we found?") == "what-we-found" and slug("!") == "part"
    taken = {"a", "a-2"}
    assert unique("a", taken) == "a-3" and "a-3" in taken


def test_links_to_notebooks_lead_to_pages_and_files_of_the_checkout_are_text():
    html = rendered("[a](../fedfft/01_x.ipynb#idea) [b](../../fednb/core/rounds.py) [c](https://example.org)")
    assert re.findall('href="([^"]+)"', html) == ["../fedfft/01_x.html#idea", "https://example.org"]
    assert ">a</a> b <a" in html


def test_tables_scroll_in_a_box_of_their_own():
    html = rendered("| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert html.startswith('<div class="scroll" tabindex="0"><table>') and html.strip().endswith("</table></div>")


LOG = """# How it was read

One entry each.

## dual-sign
printed   minus, where `a  b` is
          on two lines
released  no code
we run    plus
effect    none

## other
printed   x
released  y
we run    z
effect    not measured
"""


def test_a_reading_log_is_a_list_under_each_heading():
    html = reading_log(LOG)
    assert re.findall("<dt>(.*?)</dt>", html) == ["printed", "released", "we run", "effect"] * 2
    assert "<dd>minus, where <code>a  b</code> is on two lines</dd>" in html
    assert '<h2 id="dual-sign">' in html and "<p>One entry each.</p>" in html


@pytest.mark.parametrize("path", sorted(shelf("papers").glob("*/reading.md")), ids=lambda p: p.parent.name)
def test_no_line_of_our_reading_logs_is_lost(path):
    text = path.read_text()
    html = reading_log(text)
    for label in ("printed", "released", "we run", "effect"):
        assert html.count(f"<dt>{label}</dt>") == len(re.findall(rf"^{label}  ", text, re.MULTILINE))
    shown = re.sub(r"[\W_]", "", without_markup(html))
    lost = [word for word in re.findall(r"[A-Za-z]{4,}", text) if word not in shown]
    assert lost == []


def test_notebooks_that_a_text_names_are_links():
    html = linked(
        '<p title="notebooks/a/01.ipynb">see notebooks/a/01.ipynb, notebooks/b.ipynb</p>', ["a/01"], "{}!".format
    )
    assert html == (
        '<p title="notebooks/a/01.ipynb">see <a href="a/01!">notebooks/a/01.ipynb</a>, notebooks/b.ipynb</p>'
    )


def test_plain_words():
    assert without_markup(rendered("**a** &amp; $x_1$") + "<style>b { c }</style>") == "a & x_1"
