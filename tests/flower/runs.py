"""A small setting, its run in one process, and runs of it in a federation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fednb as fn
from fednb.base.files import load_tensors
from fednb.engines.problem import problem_of
from fednb.flower.client import ClientSide
from fednb.flower.local import LocalFederation
from fednb.flower.server import STATE, ServerSide

CLIENTS = 3
SETTING: dict[str, Any] = {
    "samples": 150, "clients": CLIENTS, "participation": 0.67, "rounds": 3, "epochs": 1, "batch": 16, "augment": False,
}  # fmt: skip


def config(method: str, folder: Path, **changes: Any) -> dict[str, Any]:
    """The configuration of a run in a federation; changes: of the setting, or of the rest."""
    own = {name: value for name, value in changes.items() if name in fn.Setting().plain()}
    rest = {name.replace("_", "-"): value for name, value in changes.items() if name not in own}
    return {"method": method, "folder": str(folder), "timeout": 300.0, **rest, "setting": SETTING | own}


def alone(method: str, **changes: Any):
    """The run of a method in one process."""
    return fn.run(fn.Setting(**(SETTING | changes)), method, engine="loop", progress=False)


def weights(folder: Path):
    """The model of a server after its last saved round."""
    return load_tensors(folder / STATE)[0]["s.w"]


def facts(folder: Path) -> dict[str, Any]:
    """What a server has saved beside tensors."""
    return json.loads(load_tensors(folder / STATE)[1]["facts"])


def finished(process) -> str:
    """Wait for a run; returns its log."""
    said = process.communicate(timeout=450)[0]
    assert process.returncode == 0 and "fednb: finished" in said, said
    return said


def nodes(federation: LocalFederation, *options: str) -> None:
    """Start a node for each client."""
    for client in range(CLIENTS):
        federation.start_node(client, CLIENTS, *options)


def by_hand(method: str, rounds: list[list[int]], folder: Path, **changes: Any):
    """The weights after rounds of these clients: both halves in this process, and nothing between them."""
    setting, chosen = fn.Setting(**(SETTING | changes)), fn.method(method)
    problem = problem_of(setting, 0)
    server = ServerSide(problem, setting, chosen, folder, "by hand")
    clients = [ClientSide(problem, setting, chosen, folder) for _ in range(CLIENTS)]
    for i, n in enumerate(problem.sizes.tolist()):
        server.meet(i, n)
    for ids in rounds:
        server.finish({i: clients[i].answer(server.task(i), server.sends(i)) for i in ids})
    return server.s.values(["w"])["w"]
