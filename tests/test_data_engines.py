"""Text, natural clients and shifted features on every engine: tokens reach the model as they are, data is sent once."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fednb as fn
from fednb.algorithms.catalogue import method
from fednb.core.record import Table
from fednb.core.rounds import observed_server
from fednb.data import shift
from fednb.data.partition import PartitionFailed
from fednb.data.resident import Resident
from fednb.data.sources import load
from fednb.engines import choose
from fednb.engines.loop import Loop
from fednb.engines.pool import Pool
from fednb.engines.problem import clients_of, data_of, dealt, own_split, participants, problem_of
from fednb.engines.setting import Setting
from fednb.engines.stacked import Stacked

TOPICS = Setting(
    data="yahoo-answers-made", model="fasttext", partition="dirichlet(alpha=0.5, minimum=2)", clients=6, rounds=2,
    epochs=1, batch=20, samples=240, lr=1.0,
)  # fmt: skip
ROLES = TOPICS.but(data="shakespeare-made", model="lstm-small", partition="natural", samples=None, clients=4)
SHIFTED = Setting(partition="feature-shift(severity=3)", samples=240, clients=6, rounds=2, epochs=1, batch=20)


class Bag(nn.Module):
    """The mean of word vectors and a linear layer: the smallest text model. Keeps what it was given."""

    def __init__(self, classes, input):
        super().__init__()
        self.words, self.fc = nn.Embedding(input[0], 4), nn.Linear(4, classes)
        self.given = []

    def forward(self, x):
        self.given.append((x.dtype, tuple(x.shape)))
        return self.fc(self.words(x).mean(-2))


@pytest.fixture
def bag(monkeypatch):
    """A setting whose model is our own."""
    monkeypatch.setattr(
        "fednb.engines.problem.build", lambda name, classes, input, seed: _seeded(seed, lambda: Bag(classes, input))
    )
    return TOPICS


def _seeded(seed, make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def weights(engine, setting, rounds=2):
    """The global weights after some rounds of FedFFT."""
    chosen = method("FedFFT")
    dtype = torch.float64 if setting.precision == "fp64" else torch.float32
    w, b = engine.problem.objective.start(dtype, torch.device("cpu"))
    s = engine.problem.server(chosen, w, b)
    table = Table(chosen.buffers("per_client", engine.problem.objective.layout, w))
    for t in range(rounds):
        ids = participants(setting, 0, t)
        k, _ = engine.train(chosen, s, ids, table.gather(ids))
        observed_server(chosen, k, s)
        table.scatter(ids, k.values(table.start))
    return s.w


def test_tokens_reach_the_model_as_long_integers(bag):
    """x is int32 in the data set and int64 [batch, 20] at the model, values unchanged; `augment` does nothing."""
    data = load("yahoo-answers-made")
    home = Resident.of(data, [np.arange(30)], torch.float32, True, "cpu")
    x, y, valid = home.plan(0, 0, [0], 1, 30).at(0)
    assert x.dtype == torch.int64 and x.shape == (1, 30, 20) and valid.all()
    order = (x[0][:, None] == data.x[:30].long()).all(-1).int().argmax(1)
    assert torch.equal(data.x[:30].long()[order], x[0]) and torch.equal(data.y[:30][order], y[0])
    problem = problem_of(bag, 0)
    problem.score(*problem.objective.start(torch.float32, torch.device("cpu")), 0)
    assert problem.objective.model.given == [(torch.int64, (200, 20))]


def test_a_text_model_gives_the_same_weights_in_a_loop_and_stacked(bag):
    """Unequal clients are padded with token 0 of sample 0 and masked; float64, 1e-12."""
    setting = bag.but(precision="fp64")
    looped, stacked = (weights(kind(problem_of(setting, 0)), setting) for kind in (Loop, Stacked))
    assert (looped - stacked).abs().max() < 1e-12
    assert (looped - problem_of(setting, 0).objective.start(torch.float64, torch.device("cpu"))[0]).abs().max() > 1e-4


@pytest.mark.parametrize("setting", [TOPICS, ROLES, SHIFTED], ids=lambda s: s.data)
def test_pool_equals_loop_bit_for_bit(setting):
    looped = weights(choose("loop", setting, method("FedFFT"), 0), setting)
    assert torch.equal(looped, weights(choose("pool", setting, method("FedFFT"), 0, workers=2), setting))


@pytest.mark.parametrize(
    "setting, least", [(TOPICS.but(rounds=4, samples=None), 30), (ROLES, 5)], ids=["topics", "roles"]
)
def test_a_run_of_a_text_model(setting, least, tmp_path, monkeypatch):
    """The same history from loop and pool; ten topics are found better than by chance."""
    seen = []
    for engine in ("loop", "pool"):
        monkeypatch.setenv("FEDNB_STORE", str(tmp_path / engine))
        rows = fn.run(setting, "FedAvg", engine=engine, workers=2, progress=False).rows
        seen.append(json.dumps([{k: v for k, v in row.items() if k != "seconds"} for row in rows]))
    assert seen[0] == seen[1] and rows[-1]["accuracy"] > least


def test_shifted_images_are_corrupted_once_and_sent_once(monkeypatch):
    """Two methods of a grid, and the workers of both, share one corrupted data set; workers do not corrupt it again."""
    shift.shifted.cache_clear()
    shift.tested.cache_clear()
    calls, real = [], shift.corrupted_by
    monkeypatch.setattr(shift, "corrupted_by", lambda *a, **k: calls.append(1) or real(*a, **k))
    first = choose("pool", SHIFTED, method("FedAvg"), 0, workers=2)
    told = []
    monkeypatch.setattr(type(first.crew), "tell", lambda self, what, *more: told.append(what))
    choose("pool", SHIFTED.but(lr=0.2), method("FedSAM"), 0, workers=2)
    assert len(calls) == 2  # training and test images
    assert told == ["work_on"]


def test_data_that_is_handed_in_with_its_parts_is_not_changed_again():
    data, parts = dealt(SHIFTED, 0)
    problem = problem_of(SHIFTED, 0, data=data, parts=parts)
    assert torch.equal(problem.samples[0], data.x) and torch.equal(problem.test[0], data.x_test)
    assert torch.equal(problem_of(SHIFTED, 0).samples[0], data.x)
    assert not torch.equal(problem_of(SHIFTED.but(partition="feature-shift(0)"), 0).samples[0], data.x)


def test_workers_are_not_sent_the_owners(monkeypatch):
    """Who holds what is in the parts; a frame with a number per sample would be pickled for every worker."""
    data, parts = dealt(ROLES, 0)
    frames = []
    engine = choose("pool", TOPICS, method("FedAvg"), 0, workers=2)
    monkeypatch.setattr(type(engine.crew), "tell", lambda self, *message: frames.append(message))
    Pool(problem_of(ROLES, 0, data=data, parts=parts), ROLES, 0, replace(data), parts, workers=2)
    what, _, frame, about = frames[0]
    assert what == "data" and frame.owner is None and frame.owner_test is None and data.owner is not None
    assert set(about) == {"x", "y", "x_test", "y_test"} and frame.vocabulary == 81
    monkeypatch.undo()
    engine.crew.close()  # it believes to hold data that it was never sent
    fn.engines.pool.dismiss()


def test_natural_clients_are_single_owners_and_tested_on_their_own():
    data = load("femnist-light-made")
    seen, parts = dealt(Setting(data="femnist-light-made", partition="natural(minimum=10)", clients=7), 0)
    owners = [data.owner[p].unique() for p in parts]
    assert all(len(o) == 1 for o in owners) and len({int(o) for o in owners}) == 7
    for part, owner in zip(parts, owners, strict=True):
        assert len(part) == int((data.owner == owner).sum()) >= 10
    assert set(seen.owner_test.tolist()) <= {int(o) for o in owners} and 0 < len(seen.y_test) < len(data.y_test)


def test_a_smaller_training_set_keeps_owners_together():
    setting = Setting(data="femnist-light-made", partition="natural", samples=200, clients=10)
    data = data_of(setting)
    parts = clients_of(setting, 0, data)
    assert all(len(data.owner[p].unique()) == 1 for p in parts) and sum(map(len, parts)) < 200


def test_owners_are_pooled_with_the_samples():
    """Personal evaluation: a client has all that its owner has in both sets, and 30% of it is its own test split."""
    data = load("femnist-light-made")
    setting = Setting(data="femnist-light-made", partition="natural(minimum=10)", clients=8, evaluation="personal")
    pooled = data_of(setting)
    assert torch.equal(pooled.owner, torch.cat([data.owner, data.owner_test])) and len(pooled.owner) == 750
    parts = clients_of(setting, 0, pooled)
    for part in parts:
        (owner,) = pooled.owner[part].unique().tolist()
        assert len(part) == int((data.owner == owner).sum() + (data.owner_test == owner).sum())
    train, own = own_split(setting, 0, parts)
    assert all(set(a).isdisjoint(b) and len(a) + len(b) == len(p) for a, b, p in zip(train, own, parts, strict=True))
    problem = problem_of(setting, 0)
    assert problem.sizes.tolist() == [len(p) for p in train] and len(problem.test[1]) == sum(map(len, own))


def test_pooled_data_without_test_owners_has_none():
    from fednb.engines.problem import _pooled

    assert _pooled(replace(load("femnist-light-made"), owner_test=None)).owner is None


def test_natural_clients_of_other_data_are_refused():
    with pytest.raises(PartitionFailed, match="does not know natural clients"):
        problem_of(Setting(partition="natural"), 0)
    with pytest.raises(PartitionFailed, match="clients=30; the data has 20 natural clients"):
        problem_of(Setting(data="femnist-light-made", partition="natural", clients=30), 0)


def test_the_split_is_exact_and_disjoint_for_fedfsas_partitions():
    """specs 3.6 with FedFSA's 70 to 30 split: equal sizes, each sample at one client, train and test disjoint."""
    for partition in ("pathological-shards(2)", "dirichlet-equal(0.5, quirk=true)"):
        setting = Setting(data="bloodmnist-made", partition=partition, clients=10, evaluation="personal")
        parts = clients_of(setting, 0, data_of(setting))
        train, own = own_split(setting, 0, parts)
        everything = np.concatenate([*train, *own])
        assert len({len(p) for p in parts}) == 1 == len({len(p) for p in train}) == len({len(p) for p in own})
        assert len(set(everything.tolist())) == len(everything) == sum(map(len, parts))
