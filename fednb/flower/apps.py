"""A ServerApp and a ClientApp of Flower that run any method: `server_app` and `client_app`, which a project calls."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fednb.base.locks import Busy, lock
from fednb.engines.problem import participants
from fednb.flower.client import ClientSide, Task
from fednb.flower.config import BadConfig, Federated, OwnData, client_problem, server_problem
from fednb.flower.installed import need_flower
from fednb.flower.nodes import Nodes
from fednb.flower.records import opened, record_of
from fednb.flower.server import ServerSide
from fednb.runs.store import home

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

MISSING = "this node has no partition-id: start it with --node-config 'partition-id=0 num-partitions=3', its own number"


def client_app(own: OwnData | None = None) -> ClientApp:
    """The ClientApp of a federation: says which client it is, and trains it when it is asked.

    own: the project's data; without it the client has its part of the setting's data set. The node's configuration has
    `partition-id`, and may have `folder`, where the client keeps what the method has it keep.
    """
    need_flower()
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def greet(message: Message, context: Context) -> Message:
        run, client = _client_of(context, own)
        problem, asked = client_problem(run, own, client), opened(message)[0]
        told: dict[str, Any] = {"client": client, "samples": int(problem.sizes[client])}
        if asked.get("labels") and problem.labels is not None:
            told["labels"] = problem.labels[client].tolist()
        return Message(record_of(told, {}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        run, client = _client_of(context, own)
        numbers, arrays = opened(message)
        if numbers.pop("key") != run.key:
            raise BadConfig("the server runs another method or setting than this client was told")
        task = Task(**numbers)
        if task.client != client:
            raise BadConfig(f"this node is client {client}, and was asked to be client {task.client}")
        folder = Path(str(context.node_config.get("folder") or home() / "flower" / "clients"))
        side = ClientSide(client_problem(run, own, client), run.setting, run.method, folder)
        sent = side.answer(task, arrays)
        told = {"federation": task.federation, "client": client, "round": task.round}
        return Message(record_of(told, sent), reply_to=message)

    return app


def _client_of(context: Context, own: OwnData | None) -> tuple[Federated, int]:
    """The run and this node's client number."""
    torch.set_num_threads(1)
    number = context.node_config.get("partition-id")
    if not isinstance(number, int):
        raise BadConfig(MISSING)
    return Federated.of(context.run_config, own, number), number


def server_app(own: OwnData | None = None) -> ServerApp:
    """The ServerApp of a federation: rounds with the clients that answer, saved after each of them.

    own: the project's data; without it the server tests on the setting's data set.
    """
    need_flower()
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        torch.set_num_threads(1)
        run = Federated.of(context.run_config, own)
        server = ServerSide(server_problem(run, own), run.setting, run.method, run.server_folder, run.key)
        try:
            with lock(run.server_folder / "lock", wait=False):
                serve(run, server, grid)
        except Busy:
            raise BadConfig(f"another server works in {run.server_folder}; give this one a folder of its own") from None

    return app


def serve(run: Federated, server: ServerSide, grid: Grid) -> None:
    """All rounds of a federation, from the last saved one on."""
    if run.again:
        server.path.unlink(missing_ok=True)
    elif server.load():
        say(f"goes on after {server.s.t} of {run.setting.rounds} rounds")
    nodes = Nodes(grid, server, run.patience, say)
    if server.s.t < run.setting.rounds and not server.sizes:
        nodes.assemble()
    while server.s.t < run.setting.rounds:
        t, began = server.s.t, time.monotonic()
        ids = participants(run.setting, run.seed, t)
        answers = nodes.gather(ids)
        server.finish(answers)
        row = _row(run, server, nodes, t, ids) | {"seconds": round(time.monotonic() - began, 3)}
        server.history.append(row)
        server.save()
        say(_line(run, row))
    say(f"finished: {server.path}")


def _row(run: Federated, server: ServerSide, nodes: Nodes, t: int, ids: list[int]) -> dict[str, Any]:
    """A line of the history; bytes are those of arrays in messages, of all clients together."""
    tested = (t + 1) % run.setting.evaluate_every == 0 or t + 1 == run.setting.rounds
    accuracy, loss = (server.evaluate() if tested else None) or (None, None)
    counted, refused = sorted(nodes.answers), sorted(nodes.refused)
    return {
        "round": t, "accuracy": accuracy, "test_loss": loss, "clients": counted, "refused": refused,
        "absent": [i for i in ids if i not in counted and i not in refused],
        "bytes_down": nodes.bytes["down"], "bytes_up": nodes.bytes["up"],
    }  # fmt: skip


def _line(run: Federated, row: dict[str, Any]) -> str:
    """A round in words."""
    asked = sum(len(row[who]) for who in ("clients", "refused", "absent"))
    tested = "" if row["accuracy"] is None else f"accuracy {row['accuracy']:.2f}%, "
    return f"round {row['round'] + 1} of {run.setting.rounds}: {tested}{len(row['clients'])} of {asked} clients"


def say(text: str) -> None:
    """One line for whoever reads the run's log."""
    print(f"fednb: {text}", flush=True)
