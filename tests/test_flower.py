"""Methods as Flower apps, without processes: what travels, what clients keep, and rounds in which something fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import fednb as fn
from fednb.algorithms.catalogue import CATALOGUE
from fednb.base.files import load_tensors
from fednb.engines.problem import participants, problem_of
from fednb.flower.client import ClientSide
from fednb.flower.config import BadConfig, Federated, OwnData, client_problem, server_problem
from fednb.flower.project import write_project
from fednb.flower.rows import NEVER, ClientRows, StateLost
from fednb.flower.server import STATE, ServerSide
from fednb.flower.wire import Parcels, fault, visible_part, wire_of
from fednb.runs.experiment import fitted

SETTING = fn.Setting(samples=150, clients=3, participation=0.67, rounds=3, epochs=1, batch=16, augment=False)
EVERY_KIND = ("SCAFFOLD", "FedSMOO", "FedWMSAM", "FedSCAM", "FedPer", "FedAWA", "FedGloSS", "FedDisco", "FedCR")


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))


class Pair:
    """A server and its clients in one process, handing each other what would travel."""

    def __init__(self, method: str | fn.Method, folder: Path, setting: fn.Setting = SETTING) -> None:
        self.method, self.folder = fn.method(method), folder
        self.setting = fitted(setting, self.method)
        self.problem = problem_of(self.setting, 0)
        self.server = self.fresh_server()
        self.clients = [
            ClientSide(self.problem, self.setting, self.method, folder / f"client-{i}") for i in range(setting.clients)
        ]
        for i, n in enumerate(self.problem.sizes.tolist()):
            self.server.meet(i, n, self.problem.labels[i].tolist() if self.server.wire.labels else ())

    def fresh_server(self) -> ServerSide:
        return ServerSide(self.problem, self.setting, self.method, self.folder / "server", "key")

    def asked(self, i: int) -> dict[str, torch.Tensor]:
        return self.clients[i].answer(self.server.task(i), self.server.sends(i))

    def round(self, ids: list[int]) -> None:
        answers = {i: self.asked(i) for i in ids}
        assert [self.server.fault(sent) for sent in answers.values()] == [None] * len(ids)
        self.server.finish(answers)

    @property
    def w(self) -> torch.Tensor:
        return self.server.s.values(["w"])["w"]


def alone(method: str | fn.Method, **changes) -> fn.runs.experiment.Run:
    return fn.run(SETTING.but(**changes), method, engine="loop", progress=False)


# What travels


@pytest.mark.parametrize("name", EVERY_KIND)
def test_two_halves_are_one_run(name, tmp_path):
    """The server is saved and loaded after every round, clients' rows are files: the weights are those of one run."""
    pair = Pair(name, tmp_path)
    for t in range(SETTING.rounds):
        pair.round(participants(SETTING, 0, t))
        pair.server.save()
        pair.server = pair.fresh_server()
        assert pair.server.load()
    torch.testing.assert_close(pair.w, alone(name).entry.load_state()[0]["w"], rtol=0, atol=1e-6)


def test_what_each_method_sends_is_what_it_declares():
    """In numbers per parameter; rows that the server keeps and class counts are no uploads of a round."""
    for name in CATALOGUE:
        method, layout = fn.method(name), fn.core.cost.LAYOUT
        wire, counted = (
            wire_of(method),
            fn.cost(fn.method(name, variates_at="client") if name == "FedWMSAM" else method),
        )
        rounds = fn.core.cost.small_rounds(method)
        parcels = Parcels(method, wire, layout)
        down = parcels.packed(rounds.s.values(wire.down), wire.down)
        assert round(sum(x.numel() for x in down.values()) / layout.total, 2) == counted.down, name
        assert not set(wire.up) & set(wire.rows_at_server), name


def test_names_are_seen_and_not_declared():
    assert wire_of(fn.method("SCAFFOLD")).up == ("b", "dc_k", "delta")
    assert wire_of(fn.method("FedAWA")).rows_at_server == ("logit", "weighed")
    assert wire_of(fn.method("FedDisco")).labels and not wire_of(fn.method("FedAvg")).labels
    assert wire_of(fn.method("FedGloSS")).down == ("b", "w_sent")
    assert "lr" in wire_of(fn.method("fedcm + warmup(5)")).up  # its server divides by the rate that clients had


def test_private_layers_stay(tmp_path):
    """FedPer's classifier is in no parcel, either way."""
    pair = Pair("FedPer", tmp_path)
    hidden = ~visible_part(pair.method, pair.problem.layout)
    sizes = pair.server.sends(0)["w"].numel(), pair.asked(0)["delta"].numel()
    assert hidden.sum() > 0 and set(sizes) == {pair.w.numel() - int(hidden.sum())}


def test_a_read_that_does_not_travel_is_an_error(tmp_path, monkeypatch):
    from fednb.flower.client import NotSent

    pair = Pair("SCAFFOLD", tmp_path)
    monkeypatch.setattr(pair.clients[0], "wire", wire_of(fn.method("FedAvg")))
    with pytest.raises(NotSent, match="the server sent c, w where SCAFFOLD sends w"):
        pair.asked(0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda sent: {**sent, "delta": sent["delta"] * float("nan")}, "numbers that are NaN or infinite"),
        (lambda sent: {**sent, "delta": sent["delta"][:-1]}, "sent delta as float32"),
        (lambda sent: {**sent, "delta": sent["delta"].double()}, "sent delta as float64"),
        (lambda sent: {"delta": sent["delta"], "h": sent["dc_k"]}, "sent delta, h where SCAFFOLD sends dc_k, delta"),
        (lambda sent: {}, "sent nothing where"),
    ],
    ids=["nan", "shape", "kind", "names", "nothing"],
)
def test_nonsense_is_told_in_words(change, words, tmp_path):
    pair = Pair("SCAFFOLD", tmp_path)
    assert words in pair.server.fault(change(pair.asked(0)))


# What clients keep


def test_a_round_that_did_not_count_leaves_no_trace(tmp_path):
    """Client 0 trains in round 0, and its answer is lost: it takes part in round 1 as if for the first time."""
    lost, never = Pair("SCAFFOLD", tmp_path / "a"), Pair("SCAFFOLD", tmp_path / "b")
    lost.asked(0)
    for pair in (lost, never):
        pair.round([1, 2])
        pair.round([0, 1])
        pair.round([0, 2])
    assert torch.equal(lost.w, never.w)


def test_a_client_keeps_the_counted_round_and_the_next(tmp_path):
    rows = ClientRows(tmp_path, "f", 3)
    start = {"c": torch.zeros(2)}
    assert torch.equal(rows.before(0, NEVER, start)["c"], start["c"])
    rows.save(0, {"c": torch.ones(2)})
    rows.save(4, {"c": torch.full((2,), 4.0)})  # round 0 did not count, or its answer is on the way
    assert torch.equal(rows.before(4, 0, start)["c"], torch.ones(2))
    assert sorted(p.name for p in rows.place.iterdir()) == ["round-000000.safetensors"]
    with pytest.raises(StateLost, match="client 3 has no state of round 4"):
        rows.before(5, 4, start)
    rows.save(6, {"c": torch.ones(2)})
    with pytest.raises(StateLost, match="client 3 was in round 7, and is asked for round 6 again"):
        rows.before(5, NEVER, start)  # nothing is removed for an old message
    assert len(list(rows.place.iterdir())) == 2
    assert torch.equal(ClientRows(tmp_path, "other", 3).before(0, NEVER, start)["c"], start["c"])


def test_the_state_of_another_run_is_refused(tmp_path):
    pair = Pair("FedAvg", tmp_path)
    pair.round([0, 1])
    pair.server.save()
    other = ServerSide(pair.problem, pair.setting, pair.method, tmp_path / "server", "another")
    with pytest.raises(ValueError, match="has the state of another run"):
        other.load()


# Configuration and projects


def test_configuration_is_checked():
    assert Federated.of({"method": "fedsam", "parameters.rho": 0.2, "setting.lr": 0.05}).setting.lr == 0.05
    with pytest.raises(BadConfig, match="no entry 'methd'"):
        Federated.of({"methd": "fedsam"})
    with pytest.raises(BadConfig, match="min-nodes = 0"):
        Federated.of({"min-nodes": 0})


@pytest.mark.usefixtures("own_names")
def test_own_data_are_each_clients_own(tmp_path):
    """Two clients of a project: each loads its own samples alone, and both halves make a round of them."""
    x, y = torch.rand(40, 1, 8, 8, generator=torch.manual_seed(0)).numpy(), torch.arange(40) % 10
    asked = []

    def train(client, clients):
        asked.append((client, clients))
        return x[: 10 * (client + 1)], y[: 10 * (client + 1)]

    own = OwnData(train, lambda: (x, y), classes=10)
    config = {"method": "SCAFFOLD", "setting.clients": 2, "setting.rounds": 1}
    run = Federated.of(config, own)
    server = ServerSide(server_problem(run, own), run.setting, run.method, tmp_path, run.key)
    answers = {}
    for i in range(2):
        problem = client_problem(Federated.of(config, own, i), own, i)
        server.meet(i, int(problem.sizes[i]))
        side = ClientSide(problem, run.setting, run.method, tmp_path / str(i))
        answers[i] = side.answer(server.task(i), server.sends(i))
    server.finish(answers)
    assert asked == [(0, 2), (1, 2)] and server.sizes == {0: 10, 1: 20}
    assert server.evaluate() is not None


def test_a_project_is_one_that_flower_accepts(tmp_path):
    pytest.importorskip("flwr", reason="needs Flower: pip install 'fednb[flower]'")
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    folder = write_project(tmp_path / "my-federation", {"method": "FedFFT-D", "setting": {"clients": 3}})
    config, _ = load_and_validate(folder / "pyproject.toml")
    assert config["tool"]["flwr"]["app"]["config"]["method"] == "FedFFT-D"
    assert build_fab_from_disk(folder)
    with pytest.raises(BadConfig, match="not empty"):
        write_project(folder, {"method": "FedAvg", "setting": {"clients": 3}})


def test_what_a_server_saves_can_be_read(tmp_path):
    pair = Pair("FedAWA", tmp_path)
    pair.round([0, 2])
    pair.server.save()
    state, about = load_tensors(tmp_path / "server" / STATE)
    assert json.loads(about["facts"])["counted"] == {"0": 0, "2": 0}
    assert {name for name in state if name.startswith("row.2.")} == {"row.2.logit", "row.2.weighed"}


def test_faults_are_none_for_the_right_answer():
    assert fault({"a": torch.ones(2)}, {"a": torch.zeros(2)}, "M") is None
