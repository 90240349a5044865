"""The API reference: every public name is on it, with an example that runs as it stands there.

The rule: every name of `fednb.__all__` has an example in its own docstring, and so has every public function and class
of the modules among them. Errors need none. Parts, which all have the same form, have one together, on their module;
a module whose names have examples needs none itself.
"""

import ast
import builtins
import re
from doctest import NORMALIZE_WHITESPACE, DocTest, DocTestRunner
from types import ModuleType

import pytest

import fednb
from fednb.show.site import reference
from fednb.show.site.api import GROUPS, OTHERS, _text, api_pages, grouped
from fednb.show.site.reference import PublicName, begin, public

PUBLIC = public()
MODULES = [entry for entry in PUBLIC.values() if entry.kind == "module"]
SHOWN = [
    each
    for entry in PUBLIC.values()
    for each in (entry, *entry.inside, *(e for inner in entry.inside for e in inner.inside))
]


def needing_examples() -> list[PublicName]:
    """The entries that must have an example."""
    own = [entry for entry in PUBLIC.values() if entry.kind != "module" or entry.name == "parts"]
    inner = [each for module in MODULES if module.name != "parts" for each in module.inside if each.kind != "error"]
    return own + inner


@pytest.mark.parametrize("entry", needing_examples(), ids=lambda entry: entry.name)
def test_every_public_name_has_text_and_an_example_with_it_in(entry):
    assert entry.text, f"fn.{entry.name} has no docstring"
    assert entry.examples, f"fn.{entry.name} has no example: end its docstring with one"
    sources = "".join(example.source for example in entry.examples)
    assert re.search(rf"\b(fn\.)?{re.escape(entry.name)}\b", sources), f"the example of fn.{entry.name} does not use it"


def unknown_names(entry: PublicName) -> set[str]:
    """The names in an example that are neither Python's, nor made by the example, nor what the page begins with."""
    nodes = [node for example in entry.examples for node in ast.walk(ast.parse(example.source))]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    made = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return used - made - set(dir(builtins)) - {"results"} - set(begin([]))


@pytest.mark.parametrize("entry", [each for each in SHOWN if each.examples], ids=lambda entry: entry.name)
def test_every_example_has_only_the_names_that_the_page_begins_with(entry):
    """Doctests, which run the examples, know the names of their own file as well."""
    assert not unknown_names(entry)


@pytest.mark.parametrize("entry", [e for e in SHOWN if e.kind == "constant"], ids=lambda entry: entry.name)
def test_examples_of_constants_run(entry):
    """The search for doctests passes over them."""
    said: list[str] = []
    case = DocTest(list(entry.examples), begin(entry.examples), entry.name, entry.file, entry.line, None)
    DocTestRunner(optionflags=NORMALIZE_WHITESPACE, verbose=False).run(case, out=said.append)
    assert not said, "".join(said)


def pages():
    return {page.url: page for page in api_pages()}


def test_every_public_name_is_on_a_page_with_its_signature_and_place():
    found = pages()
    modules = {name for name in fednb.__all__ if isinstance(getattr(fednb, name), ModuleType)}
    assert set(found) == {"api.html", *(f"api/{name}.html" for name in modules)}
    for name in fednb.__all__:
        card = found["api.html"].body.split(f'<section class="card" id="{name}">')[1].split("</section>")[0]
        assert f"<code>fn.{name}</code>" in card and f"{PUBLIC[name].file}, line " in card
    assert "seed: int = 0," in found["api.html"].body and "-&gt; Run" in found["api.html"].body
    for module in MODULES:
        for each in module.inside:
            assert f'<section class="card" id="{each.name}">' in found[f"api/{module.name}.html"].body


def test_classes_show_their_methods_and_explained_fields():
    body = pages()["api.html"].body
    setting = body.split('id="Setting"')[1].split("</section>")[0]
    assert '<dt id="Setting.but"><code>.but(**changes: Any) -&gt; Setting</code></dt>' in setting
    assert (
        "<td>data set, see <code>fednb ls data</code>; or an import path</td>" in setting
        and "clients: int = 10," in setting
    )
    assert "_whole" not in setting  # the value, not the call that makes the field


def test_private_names_are_left_out():
    for each in SHOWN:
        assert not each.short.startswith("_") or each.name == "__version__", each.name
    assert PUBLIC["cka"].inside and not any("_compared" in page.body for page in pages().values())


def test_the_search_finds_names_and_methods():
    found = {entry.title: entry.url for page in api_pages() for entry in page.found if entry.kind == "api"}
    assert found["run"] == "api.html#run" and found["Setting.but"] == "api.html#Setting.but"
    assert found["cka.linear"] == "api/cka.html#cka.linear" and found["filters"] == "api/filters.html"
    assert set(fednb.__all__) <= set(found)


def test_names_are_grouped_and_a_new_one_is_not_lost():
    groups = grouped([*fednb.__all__, "brand_new"])
    assert groups[OTHERS] == ["brand_new"]
    assert sorted(name for names in groups.values() for name in names) == sorted([*fednb.__all__, "brand_new"])
    assert list(groups) == [*GROUPS, OTHERS]


def entry_of(name: str, text: str) -> PublicName:
    return PublicName(name, "class", f"{name}(x: Tensor, seed: int = 0)", text, (), "a.py", 1)


def test_docstrings_are_shown_as_text_and_never_as_markup():
    text = "Take <b>x</b>, see `fn.run` and `x < y`. seed: of it. other: not a parameter.\n\na    first\nbb   second"
    shown = _text(entry_of("Thing", text), {"run": "api.html#run"}, "api.html")
    assert "&lt;b&gt;x&lt;/b&gt;" in shown and '<a href="#run"><code>fn.run</code></a>' in shown
    assert "<code>x &lt; y</code>" in shown and "<pre" in shown.split("</p>")[1]
    assert "<code>seed</code>: of it. other: not" in shown


def test_a_name_in_a_docstring_leads_to_the_nearest_thing_of_that_name():
    places = {"run": "api.html#run", "Thing.run": "api.html#Thing.run", "m.run": "api/m.html#m.run"}
    assert '"#Thing.run"' in _text(entry_of("Thing", "`run(x)`"), places, "api.html")
    assert '"#Thing.run"' in _text(entry_of("Thing.other", "`run`"), places, "api.html")
    assert '"../api.html#run"' in _text(entry_of("m.f", "`fn.run`"), places, "api/m.html")
    assert '"#m.run"' in _text(entry_of("m.f", "`run`"), places, "api/m.html")
    assert "<a" not in _text(entry_of("m.f", "`runs` and `run + 1`"), places, "api/m.html")


def test_prompts_and_answers_stand_in_the_page():
    body = pages()["api/skew.html"].body
    assert "<b>&gt;&gt;&gt; </b>fn.skew.distance(np.array([[4, 0], [0, 4]]))\n<samp>0.5</samp>" in body


def test_sources_are_read_and_a_signature_is_broken_where_it_is_long():
    assert PUBLIC["run"].signature.startswith("run(\n    setting: Setting,\n    method: str | Method,\n")
    assert "    *,\n" in PUBLIC["run"].signature and PUBLIC["run"].file == "fednb/runs/experiment.py"
    assert PUBLIC["filters"].inside and "HighPass(ratio: float = 0.01, *, where: str = '*')" in [
        each.signature for each in PUBLIC["filters"].inside
    ]
    assert reference._call("a.f", ["x"], "") == "f(x)"
    assert reference._call("a.f", ["x" * 100], "") == f"f(\n    {'x' * 100},\n)"
