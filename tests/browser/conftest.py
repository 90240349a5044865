"""One JupyterLab and one browser for all explorers; only where they are asked for by name: `-m browser`."""

import json
import shutil
import signal
from contextlib import ExitStack

import pytest

from browser import chromium
from browser.driver import ROOT, WIDE, Notebook
from browser.lab import Lab

KEPT = ROOT / "build" / "browser"  # screenshots, and what the server said
QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
QUIET += ["--disable-background-networking", "--disable-component-update"]


def pytest_collection_modifyitems(config, items):
    if "browser" not in config.option.markexpr:
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.skip(reason="drives a real browser: make test-browser"))


def pytest_terminal_summary(terminalreporter, config):
    if "browser" in config.option.markexpr and KEPT.exists():
        terminalreporter.write_line(f"screenshots and logs: {KEPT}")


@pytest.fixture(scope="session")
def kept():
    """An empty folder for what stays after the test."""
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    return KEPT


@pytest.fixture(scope="session")
def lab(kept, tmp_path_factory):
    """JupyterLab on a copy of the explorers: the checkout is only read."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended from outside: as if interrupted, so it cleans up
    home = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks" / "explore", home / "notebooks", ignore=shutil.ignore_patterns(".*"))
    server = Lab(home, kept / "jupyterlab.log")
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def browser(kept):
    """Chromium without a window; pages share what it has loaded once."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail("no playwright: pip install -e '.[browser]', or make test-browser, which does it", pytrace=False)
    path = chromium.needed()
    with sync_playwright() as playwright:
        # Its sandbox cannot start for root or in most containers, and it opens nothing but our own server.
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", *QUIET])
        yield started.new_context(viewport=dict(zip(("width", "height"), WIDE, strict=True)))
        started.close()


@pytest.fixture(scope="class")
def notebook(request, lab, browser, kept):
    """The notebook that the class of tests is about, opened and run in a kernel of its own."""
    write(lab.notebooks / f"{request.cls.name}.ipynb", getattr(request.cls, "cells", ()))
    page = browser.new_page()
    opened = Notebook(page, lab, request.cls.name)
    with ExitStack() as afterwards:  # from the last to the first, all of them whatever happens
        afterwards.callback(lab.shut_kernels)
        afterwards.callback(page.close)
        afterwards.callback(opened.screenshot, kept / f"{request.cls.name}_end.png", WIDE[0])
        opened.open()
        opened.run()
        yield opened


def write(file, cells):
    """A notebook of these cells; of none, the file stays as it is."""
    made = [{"cell_type": "code", "id": f"cell-{i}", "source": source.strip("\n")} for i, source in enumerate(cells)]
    blank = {"metadata": {}, "outputs": [], "execution_count": None}
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    if made:
        content = {"cells": [each | blank for each in made], "metadata": about, "nbformat": 4, "nbformat_minor": 5}
        file.write_text(json.dumps(content))
