"""A Flower project for one method, as files: what `flwr run` accepts, with the data loader to fill in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fednb.base.files import atomically, new_folder
from fednb.base.inputs import shown
from fednb.flower.config import BadConfig

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "{method} as a federation of Flower"
dependencies = ["fednb[flower]"]

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.flwr.app]
publisher = "fednb"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

[tool.flwr.app.config]
{config}
"""

SERVER = '''\
"""The server: rounds of the method, tested on the server's own samples."""

from fednb.flower import server_app
{own}
app = server_app({argument})
'''

CLIENT = '''\
"""A client: trains on the samples of its own node."""

from fednb.flower import client_app
{own}
app = client_app({argument})
'''

PACKAGE = '"""{method} as a Flower app."""\n'

DATA = '''\
"""Your data. Put your own loaders in place of the two functions, and what they need in place of the numbers."""

import numpy as np
from sklearn.datasets import load_digits

from fednb.flower import OwnData


def train(client: int, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples of one client, x [n, channels, height, width] and y [n]; called on its own node alone."""
    x, y = _digits()
    return x[client:-300:clients], y[client:-300:clients]


def test() -> tuple[np.ndarray, np.ndarray]:
    """The samples that the server tests on."""
    x, y = _digits()
    return x[-300:], y[-300:]


def _digits() -> tuple[np.ndarray, np.ndarray]:
    found = load_digits()
    return found.images[:, None].astype(np.uint8), found.target


DATA = OwnData(train, test, classes=10, scale=16.0, mean=0.3, std=0.38)
'''

README = """\
# {name}

{method} as a federation of Flower. Your data loader goes into `{package}/data.py`, settings are in `pyproject.toml`.

    pip install -e .                                          # on the server and on every node
    export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
    flower-superlink --insecure --disable-runtime-dependency-installation --host 127.0.0.1 --port 8000
    flower-supernode --insecure --superlink 127.0.0.1:8000 --host 127.0.0.1 --port 9094 --node-config "partition-id=0"
    flwr run . here --stream        # ~/.flwr/config.toml: [superlink.here], address = "127.0.0.1:8000", insecure = true

A supernode for each of {clients} clients, with a partition-id and a port of its own. `--insecure` is for one machine:
examples/flower/README.md of fednb shows certificates and keys of nodes, and what happens when nodes fail.
"""


def write_project(folder: Path, config: dict[str, Any], own: bool = True) -> Path:
    """Write a project into a new folder, whose name is the project's; returns it.

    config: the run's configuration, a dictionary that may hold dictionaries. own: with a loader to fill in; without it
    clients have their parts of the setting's data set.
    """
    name = folder.absolute().name.lower().replace("_", "-")
    if not NAME.fullmatch(name):
        raise BadConfig(f"{shown(folder.name)}: a project's name is of letters, digits and '-', such as my-federation")
    if folder.exists() and any(folder.iterdir()):
        raise BadConfig(f"{folder} is there and not empty; name a new folder")
    package = name.replace("-", "_")
    words = {"name": name, "package": package, "method": config["method"], "config": as_toml(config),
             "clients": config["setting"]["clients"]}  # fmt: skip
    if own:
        words |= {"own": f"from {package}.data import DATA\n", "argument": "DATA"}
    else:
        words |= {"own": "", "argument": ""}
    files = {"pyproject.toml": PROJECT, "README.md": README, f"{package}/server_app.py": SERVER,
             f"{package}/client_app.py": CLIENT, f"{package}/__init__.py": PACKAGE}  # fmt: skip
    new_folder(folder / package)
    for path, text in files.items():
        atomically(folder / path, text.format(**words))
    if own:
        atomically(folder / package / "data.py", DATA)
    return folder


def as_toml(config: dict[str, Any], table: str = "tool.flwr.app.config") -> str:
    """Texts, numbers and truth values as lines of TOML, dictionaries as tables below `table`.

    >>> print(as_toml({"method": "FedSAM", "setting": {"lr": 0.1}}, "here"))
    method = "FedSAM"
    <BLANKLINE>
    [here.setting]
    lr = 0.1
    """
    plain = [f"{name} = {json.dumps(value)}" for name, value in config.items() if not isinstance(value, dict)]
    tables = {f"{table}.{name}": inner for name, inner in config.items() if isinstance(inner, dict) and inner}
    return "\n".join([*plain, *(f"\n[{name}]\n{as_toml(inner, name)}" for name, inner in tables.items())])
