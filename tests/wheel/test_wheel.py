"""The wheel without the repository: what is in it, its commands, and that they write into the user's folders only."""

import csv
import json
import re
import signal
import subprocess
import time
import zipfile
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from fednb.base.version import __version__
from fednb.study.verify import BEST

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]
PLACES = {"fednb": "fednb", "papers": "fednb/_papers", "notebooks": "fednb/_notebooks"}
NOT_SOURCE = ("__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache")
NOTEBOOK, SECTION = "specgradfilter/02_fig2_layer_divergence", "fig2"  # one run
KEPT = "02_fig2_layer_divergence_smoke"
TABLE = "fig2_left_by_filter.csv"


@pytest.fixture(scope="module")
def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def before(installed):
    """The installed files before the first command."""
    return installed.digests()


@pytest.fixture(scope="module")
def kept(installed, before):
    """What `fednb notebook --keep` printed."""
    return installed.run(installed.fednb, "notebook", NOTEBOOK, "--keep")


def test_the_wheel_holds_the_package_the_papers_and_the_notebooks_and_nothing_else(names):
    expected = set()
    for source, place in PLACES.items():
        found = (p.relative_to(ROOT / source) for p in (ROOT / source).rglob("*") if p.is_file())
        expected |= {f"{place}/{p.as_posix()}" for p in found if not set(NOT_SOURCE) & set(p.parts)}
    about = {name for name in names if name.startswith(f"fednb-{__version__}.dist-info/")}
    assert names - about == expected
    assert "fednb/py.typed" in names and f"fednb-{__version__}.dist-info/licenses/LICENSE" in about


def test_no_data_and_no_weights_are_in_the_wheel(names, wheel):
    """Small files of text and figures: code takes little room, evidence most of it, and grows with every kept run."""
    kinds = {Path(name).suffix for name in names if "dist-info" not in name}
    assert kinds <= {".py", ".typed", ".toml", ".csv", ".md", ".json", ".txt", ".png", ".ipynb", ".css", ".js", ".svg"}
    with zipfile.ZipFile(wheel) as archive:
        sizes = {each.filename: each.compress_size for each in archive.infolist()}
    evidence = {name for name in sizes if re.match(r"fednb/_papers/[^/]+/(results|runs)/", name)}
    assert max(sizes.values()) < 250_000
    assert sum(size for name, size in sizes.items() if name not in evidence) < 1.5e6
    assert wheel.stat().st_size < 20e6


def test_fednb_comes_from_the_wheel(installed, before):
    said = installed.run(installed.python, "-c", "import fednb; print(fednb.__file__, fednb.__version__)")
    assert said.split() == [str(installed.packages / "fednb" / "__init__.py"), __version__]
    assert str(ROOT) not in installed.run(installed.python, "-c", "import sys; print(*sys.path)").split()


def test_lab_copies_the_notebooks_and_leaves_changed_ones_alone(installed, before):
    said = installed.run(installed.fednb, "lab", "--no-open")
    mine = installed.user / "fednb-notebooks"
    books = sorted(p.relative_to(mine) for p in mine.rglob("*.ipynb"))
    assert len(books) > 50 and said.endswith(f"{len(books)} notebooks copied to {mine}\n")
    assert all((mine / p).read_bytes() == (ROOT / "notebooks" / p).read_bytes() for p in books)
    (mine / "00_start_here.ipynb").write_text("mine")
    (mine / books[1]).unlink()
    said = installed.run(installed.fednb, "lab", "--no-open", "--to", mine)
    assert said.splitlines() == [
        f"left as it is: {mine / '00_start_here.ipynb'}, which differs from the one that comes with fednb",
        f"1 notebook copied to {mine}",
    ]
    assert (mine / "00_start_here.ipynb").read_text() == "mine" and (mine / books[1]).exists()


def test_lab_opens_the_copies_on_this_machine_only(installed, before):
    folder = installed.user / "opened"
    command = [installed.fednb, "lab", "--to", folder, "--", "--no-browser", "--ServerApp.port=0"]
    own = {"JUPYTER_RUNTIME_DIR": str(installed.user / "runtime"), "JUPYTER_TOKEN": "token"}
    with (installed.user / "lab.log").open("wb") as log:
        lab = subprocess.Popen(command, cwd=installed.user, env=installed.variables | own, stdout=log, stderr=log)
    try:
        server = _server(installed.user / "runtime" / f"jpserver-{lab.pid}.json", lab, installed.user / "lab.log")
        assert server["hostname"] == "127.0.0.1" and server["root_dir"] == str(folder)
        ask = Request(f"{server['url']}api/contents/fedfft", headers={"Authorization": "token token"})
        shown = _answered(ask, lab)["content"]
        assert "01_fig1_perturbation_spectra.ipynb" in {entry["name"] for entry in shown}
    finally:
        lab.send_signal(signal.SIGTERM)
        lab.wait(180)


def _server(file, process, log):
    """What a server that has just started says of itself."""
    for _ in range(600):
        if process.poll() is not None:
            break
        if file.exists() and (text := file.read_text()).endswith("}"):
            return json.loads(text)
        time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start: {log.read_text()[-2000:]}")


def _answered(ask, process):
    """What a server answers, which may say where it is a moment before it listens there."""
    for _ in range(600):
        try:
            return json.load(urlopen(ask, timeout=180))
        except URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError) or process.poll() is not None:
                raise
        time.sleep(0.2)
    pytest.fail(f"nobody listens at {ask.full_url}")


def test_a_copied_notebook_finds_papers_and_the_users_store(installed, kept):
    """Executed in its own folder as JupyterLab does it; the run is there already, and is not made again."""
    folder = installed.user / "copies"
    installed.run(installed.fednb, "lab", "--no-open", "--to", folder)
    runs = sorted((installed.user / "store" / "runs").iterdir())
    page = installed.user / "store" / "notebooks" / NOTEBOOK / "smoke" / "verdict.csv"
    written = page.stat().st_mtime_ns
    book = folder / f"{NOTEBOOK}.ipynb"
    installed.run(installed.python, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", book)
    assert sorted((installed.user / "store" / "runs").iterdir()) == runs and len(runs) == 1
    assert page.stat().st_mtime_ns > written
    said = installed.run(installed.fednb, "notebook", book, status=2)
    assert f"FEDNB_NOTEBOOKS={folder} fednb notebook {NOTEBOOK}` executes yours" in said


def test_keep_writes_into_the_users_store(installed, kept):
    folder = installed.user / "store" / "results" / "specgradfilter" / KEPT
    assert f"kept in   {folder}\n" in kept
    names = {p.name for p in folder.iterdir()}
    assert {TABLE, "runs.json", "command.txt", "contents.json"} <= names and "verdict.csv" not in names


def test_verify_judges_and_shows_what_came_with_the_wheel(installed, kept):
    table = installed.user / "claims.csv"
    installed.run(installed.fednb, "verify", "specgradfilter", "--section", SECTION, "--csv", table)
    rows = list(csv.DictReader(table.open()))
    assert [row["claim"].partition("-")[0] for row in rows] == ["fig2"] * 4 and "not run" not in table.read_text()
    assert sum(name.startswith("best_") for name in rows[0]) == len(BEST)
    assert {row["best_scale"] for row in rows} == {"paper"}  # what is kept, though smoke alone was run here


def test_publish_shows_the_users_results_beside_those_of_the_wheel(installed, kept):
    installed.run(installed.fednb, "publish", "--out", "site")
    (page,) = (installed.user / "site").rglob(f"{NOTEBOOK}.html")
    text = page.read_text()
    assert "--scale smoke --keep" in text and "--scale laptop --plain --keep" in text  # the commands that were recorded


def test_the_store_is_checked_with_the_users_results(installed, kept):
    assert " 1 sound" in installed.run(installed.fednb, "store", "check")
    file = installed.user / "store" / "results" / "specgradfilter" / KEPT / TABLE
    file.write_text("damaged")
    assert f"{file}: " in installed.run(installed.fednb, "store", "check", status=1)


def test_nothing_was_written_into_the_installation(installed, before, kept):
    """Runs last: every command above has been given."""
    assert installed.digests() == before
