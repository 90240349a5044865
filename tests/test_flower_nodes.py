"""The server's talk with nodes, over a grid in this process whose nodes can be lost, late, doubled or spoiled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import fednb as fn
from fednb.base.files import load_tensors
from fednb.flower import client_app
from fednb.flower.apps import serve
from fednb.flower.client import ClientSide
from fednb.flower.config import Federated, server_problem
from fednb.flower.nodes import TooFewNodes
from fednb.flower.server import STATE, ServerSide

flwr = pytest.importorskip("flwr.app", reason="needs Flower: pip install 'fednb[flower]'")
CONFIG = {
    "method": "SCAFFOLD", "timeout": 0.2, "tries": 2, "setting.samples": 150, "setting.clients": 3, "setting.rounds": 2,
    "setting.participation": 1.0, "setting.epochs": 1, "setting.batch": 50, "setting.augment": False,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    monkeypatch.setattr("fednb.flower.nodes.POLL", 0.01)
    for name in ("run_id", "node_id", "task_id"):  # of the process that makes messages
        monkeypatch.setattr(f"flwr.supercore.task_identity.TaskIdentity._{name}", 1)


class Nodes:
    """A grid whose nodes, 100 for client 0 and so on, answer at once; `spoil` may change or lose an answer."""

    def __init__(self, folder: Path, config: dict, clients=(0, 1, 2)) -> None:
        self.folder, self.config, self.app = folder, config, client_app()
        self.client_of = {100 + i: i for i in clients}
        self.replies: dict[str, object] = {}
        self.asked: list[tuple[int, int, str]] = []  # client, round, kind
        self.sent = 0
        self.spoil = lambda client, message, reply: reply

    def get_node_ids(self):
        return list(self.client_of)

    def push_messages(self, messages):
        names = []
        for message in messages:
            self.sent += 1
            name = f"message {self.sent}"
            message.metadata.__dict__["_message_id"] = name
            client = self.client_of[message.metadata.dst_node_id]
            self.asked.append((client, int(message.metadata.group_id), message.metadata.message_type))
            told = {"partition-id": client, "folder": str(self.folder / f"client-{client}")}
            context = flwr.Context(run_id=1, node_id=message.metadata.dst_node_id, node_config=told,
                                   state=flwr.RecordDict(), run_config=self.config)  # fmt: skip
            try:
                reply = self.app(message, context)
            except Exception as error:  # as the node's process does
                reply = flwr.Message(flwr.Error(code=2, reason=f"{error}"), reply_to=message)
            self.replies[name] = self.spoil(client, message, reply)
            names.append(name)
        return names

    def pull_messages(self, names):
        return [reply for name in names if (reply := self.replies.pop(name, None)) is not None]


def served(folder: Path, nodes: Nodes, config: dict | None = None) -> ServerSide:
    """Serve all rounds, in the folder's own state."""
    run = Federated.of({**nodes.config, **(config or {}), "folder": str(folder / "server")})
    server = ServerSide(server_problem(run, None), run.setting, run.method, run.server_folder, run.key)
    serve(run, server, nodes)
    return server


def weights(server: ServerSide) -> torch.Tensor:
    return server.s.values(["w"])["w"]


def expected(folder: Path, rounds: list[list[int]]) -> torch.Tensor:
    """The weights after rounds of these clients, and nothing else."""
    run = Federated.of({**CONFIG, "folder": str(folder / "server")})
    server = ServerSide(server_problem(run, None), run.setting, run.method, run.server_folder, run.key)
    sides = [ClientSide(server.problem, run.setting, run.method, folder / f"by-hand-{i}") for i in range(3)]
    for i in range(3):
        server.meet(i, int(server.problem.sizes[i]))
    for ids in rounds:
        server.finish({i: sides[i].answer(server.task(i), server.sends(i)) for i in ids})
    return weights(server)


def test_all_clients_in_all_rounds_are_one_run(tmp_path):
    nodes = Nodes(tmp_path, CONFIG)
    server = served(tmp_path, nodes)
    setting = Federated.of(CONFIG).setting
    alone = fn.run(setting, "SCAFFOLD", engine="loop", progress=False)
    torch.testing.assert_close(weights(server), alone.entry.load_state()[0]["w"], rtol=0, atol=1e-6)
    assert [kind for *_, kind in nodes.asked] == ["query"] * 3 + ["train"] * 6
    assert [row["bytes_up"] for row in server.history] == [row["bytes_up"] for row in alone.rows]


def test_a_client_that_stays_away_is_left_out(tmp_path, capsys):
    nodes = Nodes(tmp_path, CONFIG)
    nodes.spoil = lambda client, message, reply: (
        None if client == 1 and message.metadata.message_type == "train" and message.metadata.group_id == "0" else reply
    )
    server = served(tmp_path, nodes)
    assert [row["clients"] for row in server.history] == [[0, 2], [0, 1, 2]]
    assert [row["absent"] for row in server.history] == [[1], []]
    assert torch.equal(weights(server), expected(tmp_path / "hand", [[0, 2], [0, 1, 2]]))
    assert "round 1 of 2: accuracy" in capsys.readouterr().out


def test_a_node_that_comes_back_is_asked_in_the_same_round(tmp_path, capsys):
    """Node 101 loses its message; node 201 says that it is client 1, and the round is whole."""
    nodes = Nodes(tmp_path, CONFIG | {"timeout": 30.0})

    def spoil(client, message, reply):
        if message.metadata.dst_node_id == 101 and message.metadata.message_type == "train":
            nodes.client_of[201] = 1
            return None
        return reply

    nodes.spoil = spoil
    server = served(tmp_path, nodes)
    assert [row["clients"] for row in server.history] == [[0, 1, 2], [0, 1, 2]]
    assert torch.equal(weights(server), expected(tmp_path / "hand", [[0, 1, 2], [0, 1, 2]]))
    assert "client 1 is node 201, it was 101" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["nan", "shape", "names", "round", "error", "pickle"])
def test_a_bad_answer_is_refused_by_name(what, tmp_path, capsys):
    from fednb.flower.records import opened, record_of

    words = {"nan": "NaN or infinite", "shape": "sent delta as float32 (22601,)",
             "names": "sent delta, h where SCAFFOLD", "round": "answered for round 7 in place of",
             "error": "no samples today",
             "pickle": "an array that cannot be read"}[what]  # fmt: skip

    def spoil(client, message, reply):
        if client != 2 or message.metadata.message_type == "query":
            return reply
        if what == "error":
            return flwr.Message(flwr.Error(code=2, reason="no samples today"), reply_to=message)
        told, sent = opened(reply)
        if what == "pickle":
            import pickle

            reply.content["arrays"]["delta"] = flwr.Array("object", (1,), "numpy.ndarray", pickle.dumps([1]))
            return reply
        sent = {"nan": sent | {"delta": sent["delta"] / 0}, "shape": sent | {"delta": sent["delta"][1:]},
                "names": {"delta": sent["delta"], "h": sent["dc_k"]}, "round": sent}[what]  # fmt: skip
        return flwr.Message(record_of(told | ({"round": 7} if what == "round" else {}), sent), reply_to=message)

    nodes = Nodes(tmp_path, CONFIG)
    nodes.spoil = spoil
    server = served(tmp_path, nodes)
    assert [row["refused"] for row in server.history] == [[2], [2]]
    assert torch.equal(weights(server), expected(tmp_path / "hand", [[0, 1], [0, 1]]))
    said = capsys.readouterr().out
    assert "round 1: client 2 (node 102) is refused" in said and words in said


def test_too_few_answers_end_the_run_and_nothing_is_lost(tmp_path):
    """Round 2 finds one client of two that are needed, twice; a second run with all of them goes on from round 1."""
    nodes = Nodes(tmp_path, CONFIG)
    nodes.spoil = lambda client, message, reply: (
        None if client > 0 and message.metadata.message_type == "train" and message.metadata.group_id == "1" else reply
    )
    with pytest.raises(TooFewNodes, match=r"round 2 was tried 2 times: 1 of 3 clients answered, none came from 1, 2, "
                                          r"and 2 are needed .* goes on after round 1"):  # fmt: skip
        served(tmp_path, nodes)
    again = Nodes(tmp_path, CONFIG)
    server = served(tmp_path, again)
    assert [(i, t) for i, t, kind in again.asked if kind == "train"] == [(0, 1), (1, 1), (2, 1)]
    assert torch.equal(weights(server), expected(tmp_path / "hand", [[0, 1, 2], [0, 1, 2]]))


def test_an_answer_is_kept_while_the_others_are_tried_again(tmp_path):
    nodes, tries = Nodes(tmp_path, CONFIG | {"min-nodes": 3}), []

    def spoil(client, message, reply):
        if client == 1 and message.metadata.message_type == "train" and not tries:
            tries.append(1)
            return None
        return reply

    nodes.spoil = spoil
    served(tmp_path, nodes)
    assert [i for i, t, kind in nodes.asked if kind == "train" and t == 0] == [0, 1, 2, 1]


def test_a_run_needs_its_nodes(tmp_path):
    with pytest.raises(TooFewNodes, match=r"1 of 3 clients are there after 0\.2 s, and 2 are needed"):
        served(tmp_path, Nodes(tmp_path, CONFIG, clients=[1]))


def test_strangers_cannot_take_part(tmp_path, capsys):
    """A fourth node in a federation of three, and one that has lost its files."""
    nodes = Nodes(tmp_path, CONFIG)
    nodes.client_of[107] = 7
    server = served(tmp_path, nodes)
    assert "node 107 cannot take part: partition-id = 7: there are clients 0 to 2" in capsys.readouterr().out
    assert [row["clients"] for row in server.history] == [[0, 1, 2]] * 2


def test_a_client_without_its_files_is_refused(tmp_path, capsys):
    nodes = Nodes(tmp_path, CONFIG)

    def spoil(client, message, reply):
        if client == 1 and message.metadata.group_id == "0" and message.metadata.message_type == "train":
            for path in (tmp_path / "client-1").rglob("*.safetensors"):
                path.unlink()
        return reply

    nodes.spoil = spoil
    server = served(tmp_path, nodes)
    assert [row["refused"] for row in server.history] == [[], [1]]
    assert "client 1 has no state of round 0" in capsys.readouterr().out


def test_a_message_has_less_than_two_kilobytes_beside_its_arrays(tmp_path):
    """The protocol's overhead: names, shapes, the task and numpy's headers, whatever the model's size."""
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    seen = []

    def spoil(client, message, reply):
        if message.metadata.message_type == "train":
            for each in (message, reply):
                whole = sum(len(x.deflate()) for x in get_all_nested_objects(each).values())
                arrays = sum(x.numpy().nbytes for x in each.content["arrays"].values())
                seen.append(whole - arrays)
        return reply

    nodes = Nodes(tmp_path, CONFIG)
    nodes.spoil = spoil
    served(tmp_path, nodes)
    assert len(seen) == 12 and max(seen) < 2048


def test_a_finished_run_is_not_made_again(tmp_path):
    nodes = Nodes(tmp_path, CONFIG)
    served(tmp_path, nodes)
    before, asked = (tmp_path / "server" / STATE).read_bytes(), len(nodes.asked)
    served(tmp_path, nodes)
    assert len(nodes.asked) == asked and (tmp_path / "server" / STATE).read_bytes() == before
    anew = Nodes(tmp_path, CONFIG)
    other = served(tmp_path, anew, {"again": True})
    assert len(anew.asked) == asked
    assert json.loads(load_tensors(other.path)[1]["facts"])["history"][0]["clients"] == [0, 1, 2]
