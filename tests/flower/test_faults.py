"""Nodes that are killed and come back, and one that sends nonsense: the rounds go on with the others, by name."""

from __future__ import annotations

import pytest
import torch

from fednb.flower.local import LocalFederation
from fednb.flower.project import write_project
from flower.runs import CLIENTS, by_hand, config, facts, finished, nodes, weights

pytestmark = pytest.mark.flower

SPOILED = """
from fednb.flower.records import opened, record_of
from flwr.app import Message

honest = app._registered_funcs["train.default"]


def train(message, context):
    reply = honest(message, context)
    if context.node_config["partition-id"] != 1:
        return reply
    told, sent = opened(reply)
    kinds = [
        {**sent, "delta": sent["delta"] * float("nan")},
        {**sent, "delta": sent["delta"][1:]},
        {"delta": sent["delta"], "mu": sent["dc_k"]},
    ]
    return Message(record_of(told, kinds[told["round"]]), reply_to=message)


app._registered_funcs["train.default"] = train
"""


@pytest.fixture(scope="module")
def federation(quick, tmp_path_factory):
    """A link and three nodes."""
    made = LocalFederation(tmp_path_factory.mktemp("faults"), **quick)
    try:
        made.start_link()
        nodes(made)
        yield made
    finally:
        made.stop()


def test_a_node_that_sends_nonsense_is_refused_by_name(federation, tmp_path):
    """Client 1 sends NaN in round 1, a shorter vector in round 2 and another method's vectors in round 3."""
    folder = tmp_path / "server"
    project = write_project(tmp_path / "spoiled", config("SCAFFOLD", folder, participation=1.0), own=False)
    app = project / "spoiled" / "client_app.py"
    app.write_text(app.read_text() + SPOILED)
    said = finished(federation.submit(project))
    assert [row["refused"] for row in facts(folder)["history"]] == [[1]] * 3
    for round, words in enumerate(("NaN or infinite", "sent delta as float32", "sent delta, mu where SCAFFOLD sends")):
        line = next(text for text in said.splitlines() if f"round {round + 1}: client 1 (node" in text)
        assert "is refused" in line and words in line
    expected = by_hand("SCAFFOLD", [[0, 2]] * 3, tmp_path / "by hand", participation=1.0)
    torch.testing.assert_close(weights(folder), expected, rtol=0, atol=1e-5)
    assert "1" not in facts(folder)["counted"]


def test_a_node_is_killed_and_started_again(federation, tmp_path):
    """Client 1 is killed behind round 1 and comes back after a round without it, with the state that it had."""
    folder, rounds = tmp_path / "server", 4
    told = config("SCAFFOLD", folder, participation=1.0, rounds=rounds, timeout=60.0)
    process = federation.submit(write_project(tmp_path / "killed", told, own=False))
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(f"fednb: round 1 of {rounds}"):
            federation.kill("node-1")
        if line.startswith(f"fednb: round 2 of {rounds}"):
            federation.start_node(1, CLIENTS)
    assert process.wait() == 0, said
    counted = [row["clients"] for row in facts(folder)["history"]]
    assert len(counted) == rounds and counted[:2] == [[0, 1, 2], [0, 2]] and counted[-1] == [0, 1, 2], said
    expected = by_hand("SCAFFOLD", counted, tmp_path / "by hand", participation=1.0)
    torch.testing.assert_close(weights(folder), expected, rtol=0, atol=1e-5)
