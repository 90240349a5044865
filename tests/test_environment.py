"""One set of pins: the Makefile, CI and environment.yml install the same versions."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fednb.base.version import __version__

ROOT = Path(__file__).parent.parent
PINS_FILE = ".ci/constraints.txt"
RELEASE_FILES = ("README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md", "CONTRIBUTING.md")


def pins() -> dict[str, str]:
    lines = (ROOT / PINS_FILE).read_text().splitlines()
    found = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in found}


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(text) for group in (project["dependencies"], *extras) for text in group]


def test_every_requirement_has_a_pin_above_its_floor():
    for needed in requirements():
        assert pins()[canonicalize_name(needed.name)] in needed.specifier, needed.name


def test_requirements_state_floors_not_pins():
    """The same code runs on Python 3.12 with torch 2.11 and torchvision 0.26."""
    assert all(str(r.specifier).startswith(">=") for r in requirements())
    floors = {r.name: str(r.specifier) for r in requirements()}
    assert floors["torch"] == ">=2.11" and floors["torchvision"] == ">=0.26"


def test_torch_is_pinned_to_the_tested_pair():
    assert (pins()["torch"], pins()["torchvision"]) == ("2.13.0", "0.28.0")


def test_makefile_and_conda_use_the_pins_and_nothing_else():
    makefile, conda = (ROOT / "Makefile").read_text(), (ROOT / "environment.yml").read_text()
    assert f"PINS := {PINS_FILE}" in makefile and "-c $(PINS)" in makefile
    assert f"- -c {PINS_FILE}" in conda
    assert not re.findall(r"\w==\d", makefile + conda)  # a version in a second place would drift


def test_conda_installs_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.search(r"-e \.\[(.*)\]", (ROOT / "environment.yml").read_text())
    peers = {"peers"}  # wants an older attrs than the pins have; only `fednb bench peers` asks for it
    assert named and set(named[1].split(",")) == set(project["optional-dependencies"]) - peers


def test_ci_is_exactly_what_the_readme_says():
    commands = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    words = [word for line in commands if "make " in line for word in line.removeprefix("exec ").split()]
    run = [word for word in words if word != "make" and not word.startswith("-")]
    assert run == ["lint", "test", "test-faults", "test-wheel", "test-browser", "test-cluster", "test-flower"]
    readme = (ROOT / "README.md").read_text()
    assert all(f"    make {target} " in readme for target in run)


def test_top_level_is_as_designed():
    import subprocess

    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    top = {line.split("/")[0] for line in listed.splitlines()}
    plain = {name for name in top if not name.startswith(".")}
    assert plain <= {
        *RELEASE_FILES,
        "pyproject.toml",
        "environment.yml",
        "Makefile",
        "examples",
        "fednb",
        "notebooks",
        "papers",
        "tests",
    }


@pytest.mark.parametrize("name", RELEASE_FILES)
def test_a_release_has_its_files(name):
    assert (ROOT / name).read_text(encoding="utf-8").strip()


def test_the_licence_is_mit_everywhere():
    assert (ROOT / "LICENSE").read_text().startswith("MIT License\n\nCopyright (c) 2026 the fednb authors\n")
    assert "\nlicense: MIT\n" in (ROOT / "CITATION.cff").read_text()


def test_version_and_date_are_the_same_in_citation_and_changelog():
    """The newest entry of the changelog is this version; the citation has its date."""
    cited = (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest[1] == __version__
    assert f"\nversion: {__version__}\n" in cited and f'\ndate-released: "{newest[2]}"\n' in cited


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/faults/README.md"])
def test_links_in_pages_lead_to_files(page):
    links = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text())
    inside = [link for link in links if not link.startswith("https://")]
    assert [link for link in inside if not (ROOT / page).parent.joinpath(link).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_paths_named_in_pages_are_there(page):
    """`fednb/...`, `tests/...`, `papers/...` and `notebooks/...` in backticks, unless a part is to be filled in."""
    named = re.findall(r"`((?:fednb|tests|papers|notebooks)/[\w./-]+)`", (ROOT / page).read_text())
    assert named and [name for name in named if not (ROOT / name).exists()] == []
