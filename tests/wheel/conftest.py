"""The built wheel in an environment of its own; only where it is asked for by name: `-m wheel`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
WHOLE = os.environ.get("WHEEL") == "whole"


def pytest_collection_modifyitems(config, items):
    if "wheel" not in config.option.markexpr:
        for item in items:
            if item.get_closest_marker("wheel"):
                item.add_marker(pytest.mark.skip(reason="builds and installs the wheel: make test-wheel"))


@dataclass(frozen=True)
class Installation:
    """An environment with the wheel, and an empty folder of a user who works with it."""

    environment: Path
    user: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def fednb(self) -> Path:
        return self.environment / "bin" / "fednb"

    @property
    def packages(self) -> Path:
        return next((self.environment / "lib").glob("python*/site-packages"))

    @property
    def variables(self) -> dict[str, str]:
        """Nothing of the caller's Python, Jupyter, store or data; the user's home is the user's folder."""
        mine = ("PYTHON", "JUPYTER", "IPYTHON", "FEDNB", "XDG", "VIRTUAL_ENV", "PYTEST")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        own = {"HOME": str(self.user), "FEDNB_STORE": str(self.user / "store"), "FEDNB_OFFLINE": "1"}
        return inherited | own | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def run(self, *command: object, status: int = 0, **variables: str) -> str:
        """What a command in the user's folder prints on stdout and stderr; it must end with `status`."""
        ended = subprocess.run(
            [str(word) for word in command], cwd=self.user, env=self.variables | variables, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        assert ended.returncode == status, ended.stdout[-4000:]
        return ended.stdout

    def digests(self) -> dict[str, str]:
        """Every file that the installation of fednb consists of, but compiled code."""
        found = (p for p in (self.packages / "fednb").rglob("*") if p.is_file() and p.suffix != ".pyc")
        return {str(p): sha256(p.read_bytes()).hexdigest() for p in found}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """The wheel in a new environment: with dependencies of its own (WHEEL=whole), or with those of this one."""
    home = Installation(tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("user"))
    venv.create(home.environment, symlinks=True)
    into = [*PIP, "--python", str(home.python), "install", "--constraint", str(ROOT / ".ci/constraints.txt")]
    if WHOLE:
        subprocess.run([*into, f"{wheel}[notebooks]"], check=True)
    else:
        subprocess.run([*into, "--no-deps", wheel], check=True)
        _lend_dependencies(home)
    return home


def _lend_dependencies(home: Installation) -> None:
    """Let an environment see this one's packages, after its own; the checkout is not among them.

    A line of a .pth file adds a folder to the path without the .pth files in it, such as that of an editable install.
    """
    shared = Path(sys.prefix) / "share" / "jupyter"
    ours = Path(pytest.__file__).parents[1]
    (home.packages / "lent.pth").write_text(f"{ours}\n")
    (home.environment / "share").mkdir(exist_ok=True)
    shutil.rmtree(home.environment / "share" / "jupyter", ignore_errors=True)
    (home.environment / "share" / "jupyter").symlink_to(shared)
