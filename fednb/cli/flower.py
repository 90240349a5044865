"""The verb `fednb flower`: a federation of Flower on this machine, or a project for one of one's own."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

from fednb.algorithms.catalogue import method
from fednb.base.locks import Busy, lock
from fednb.cli.options import parameters_of, processes
from fednb.engines.setting import Setting
from fednb.flower.config import Federated
from fednb.flower.installed import need_flower
from fednb.flower.local import end, local_federation
from fednb.flower.project import write_project
from fednb.runs.own_grid import method_of
from fednb.runs.store import home

NEW = "new"
OURS = "fednb: "  # how the server's own lines in a run's log begin


class RunFailed(ValueError):
    """A run of a federation that did not end as it should."""


def add_flower(verb: argparse.ArgumentParser) -> None:
    """Declare what can be asked of `fednb flower`."""
    verb.description = (
        "Run a method as a federation of Flower: a SuperLink, and a SuperNode for each client, as processes on "
        "loopback. `fednb flower new DIR` writes a project for a federation of one's own. Telemetry of Flower is off."
    )
    verb.add_argument("name", metavar="METHOD", help="see `fednb ls methods`; or `new` to write a project")
    verb.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="with `new`: the project's folder")
    verb.add_argument("--method", help="with `new`: the project's method")
    verb.add_argument("-p", dest="parameters", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"),
                      help="a parameter of the method, such as -p rho 0.05")  # fmt: skip
    verb.add_argument("--clients", type=processes, default=3, help="clients, each a node of its own; default 3")
    verb.add_argument("--rounds", type=int, help="communication rounds")
    verb.add_argument("--seed", type=int, default=0)
    verb.add_argument("--set", dest="settings", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"),
                      help="another field of the setting, such as --set lr 0.05; see `fednb run --help`")  # fmt: skip
    verb.add_argument("--min-nodes", type=int, default=2, help="clients that must answer for a round to count")
    verb.add_argument("--timeout", type=float, default=600.0, help="seconds that a round waits for answers")
    verb.add_argument("--again", action="store_true", help="begin anew; without it a run goes on where it was left")
    verb.add_argument("--state", type=Path, metavar="FOLDER", help="where server, clients and logs are kept; without "
                      "it in the store")  # fmt: skip
    verb.set_defaults(do=do_flower)


def do_flower(asked: argparse.Namespace) -> int:
    """Write a project, or run a method on this machine."""
    if asked.name == NEW:
        return _do_new(asked)
    if asked.folder is not None:
        raise ValueError(f"flower {asked.name} {asked.folder}: a folder belongs to `fednb flower new DIR`")
    if asked.method is not None:
        raise ValueError(f"flower {asked.name} --method {asked.method}: name one method")
    need_flower()
    config = config_of(asked, asked.name)
    folder = (asked.state or home() / "flower" / "here" / run_of(config).key).absolute()
    try:
        with lock(folder / "federation.lock", wait=False):
            return _run_here({**config, "again": asked.again, "folder": str(folder / "server")}, folder, asked.clients)
    except Busy:
        raise RunFailed(f"another federation is at work in {folder}; name another folder with --state") from None


def _do_new(asked: argparse.Namespace) -> int:
    if asked.folder is None:
        raise ValueError("flower new: name a folder, such as `fednb flower new my-federation --method fedfft-d`")
    config = config_of(asked, asked.method or "FedAvg")
    folder = write_project(asked.folder, config)
    package = folder.absolute().name.lower().replace("-", "_")
    print(f"{folder} runs {config['method']}; put your data loader into {folder / package / 'data.py'}")
    return 0


def config_of(asked: argparse.Namespace, name: str) -> dict[str, Any]:
    """The configuration of a run; checked, so that what is wrong is said before anything is started."""
    given = parameters_of(asked.settings, "--set")
    given |= {"clients": asked.clients} | ({"rounds": asked.rounds} if asked.rounds is not None else {})
    if "participation" not in given:
        given["participation"] = 1.0
    setting, parameters = Setting().but(**given), parameters_of(asked.parameters)
    chosen = method(method_of(name), **parameters)
    plain = setting.plain()
    config = {
        "method": name if "+" in name or ":" in name else chosen.name, "seed": asked.seed, "min-nodes": asked.min_nodes,
        "timeout": asked.timeout, "tries": 3, "folder": "", "again": False, "parameters": parameters,
        "setting": {f.name: _plain(plain[f.name]) for f in fields(Setting) if f.name in {*given, *SHOWN}},
    }  # fmt: skip
    run_of(config)
    return config


def run_of(config: dict[str, Any]) -> Federated:
    """The run that a configuration with tables describes."""
    flat = {f"{table}.{name}": x for table in ("setting", "parameters") for name, x in config[table].items()}
    return Federated.of({name: x for name, x in config.items() if not isinstance(x, dict)} | flat)


SHOWN = ("clients", "participation", "rounds", "model", "epochs", "batch", "lr")  # that a project is written with


def _plain(value: Any) -> Any:
    return "none" if value is None else value  # TOML has no word for it


def _run_here(config: dict[str, Any], folder: Path, clients: int) -> int:
    """Start a federation, run, and print what the server says; everything is ended on the way out."""
    print(f"fednb: {config['method']} on a SuperLink and {clients} SuperNodes on 127.0.0.1; logs in {folder}",
          flush=True)  # fmt: skip
    shutil.rmtree(folder / "try-out", ignore_errors=True)
    project = write_project(folder / "try-out", config, own=False)
    with local_federation(folder, clients) as federation:
        run, said, whole = federation.submit(project), "", []
        try:
            assert run.stdout is not None
            for line in run.stdout:
                whole.append(line)
                if line.startswith(OURS):
                    said = line
                    print(line, end="", flush=True)
        finally:
            end(run)
    if not said.startswith(f"{OURS}finished"):
        why = next((text for text in reversed(whole) if "Error" in text or "error" in text), "the run ended early")
        raise RunFailed(f"{why.strip()}; logs are in {folder}")
    return 0
