"""Clients in lanes: the weights of a loop over clients, whoever is beside them, in however many lanes."""

import threading
from dataclasses import dataclass
from math import ceil
from types import SimpleNamespace

import pytest
import torch

from fednb.algorithms.catalogue import method
from fednb.core.record import Table
from fednb.core.rounds import Method, Part, observed_server, part
from fednb.engines import Company, choose, stacked
from fednb.engines.captured import Launched
from fednb.engines.lane_step import alike
from fednb.engines.lanes import Lanes
from fednb.engines.loop import Loop
from fednb.engines.problem import participants, problem_of
from fednb.engines.setting import Setting
from fednb.engines.stacked import LOOKS, SharedSteps, Stacked, numbers_of_rows, taken
from fednb.runs.experiment import fitted

SMALL = Setting(data="digits", model="cnn-small", partition="dirichlet(alpha=0.3, minimum=4)", clients=6,
                participation=0.5, epochs=1, batch=20, samples=200, precision="fp64")  # fmt: skip


def trained(engine, setting, m, seed, rounds=2):
    """The model after some rounds."""
    problem = engine.problem
    w, b = problem.objective.start(torch.float64, torch.device("cpu"))
    s, table = problem.server(m, w, b), Table(m.buffers("per_client", problem.objective.layout, w))
    for t in range(rounds):
        ids = participants(setting, seed, t)
        k, _ = engine.train(m, s, ids, table.gather(ids, m.declared("per_client")))
        table.scatter(ids, k.values(m.declared("per_client")))
        observed_server(m, k, s)
    return s.values(["w"])["w"], k.evaluations.tolist(), float(k.values(["loss"])["loss"].sum())


def alone(setting, m, seed):
    setting = fitted(setting, m)
    return trained(Loop(problem_of(setting, seed)), setting, m, seed)


def together(runs):
    """Each of (setting, method, seed) in a thread of its own, all in the same lanes; with the lanes."""
    shared = SharedSteps()
    found, failed = {}, []
    meet = threading.Barrier(len(runs))

    def work(at, setting, m, seed):
        try:
            setting = fitted(setting, m)
            engine = Stacked(problem_of(setting, seed), shared=shared, runs=2)
            meet.wait()
            found[at] = trained(engine, setting, m, seed)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(at, *run)) for at, run in enumerate(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [found[at] for at in range(len(runs))], shared


def same(found, wanted):
    torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=1e-12)
    assert found[1] == wanted[1]
    assert found[2] == pytest.approx(wanted[2], rel=1e-12)


CHANGE_THE_DECAY = ("FedProx", "FedDyn", "FedSMOO")  # half of their pull goes into the weight decay, a constant
NAMES = ["FedAvg", "SCAFFOLD", "FedSMOO", "FedCM", "FedWMSAM", "SpecGradFilter-FedDyn", "q-FedAvg", "FedCR"]


@pytest.mark.parametrize("name", NAMES)
def test_runs_beside_each_other_have_the_weights_of_the_loop(name):
    """Two seeds, told apart by nothing but their data and models: values of each one's server, looks, a told loss."""
    m = method(name)
    runs = [(SMALL, m, 0), (SMALL, m, 1)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert len(shared.known) == 1, "one set of lanes for both"


def test_a_told_loss_with_other_numbers_needs_lanes_of_its_own():
    """FedCR's β is in its loss: each run is trained on its own."""
    runs = [(SMALL, method("FedCR", beta=beta), 0) for beta in (0.001, 1.0)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert not torch.equal(found[0][0], found[1][0])
    assert len(shared.known) == 2


@dataclass(frozen=True)
class Scaled:
    """A share of the cross entropy, as much as a run has in common."""

    def __call__(self, answer, y, row, step, common):
        return common * torch.nn.functional.cross_entropy(answer(), y, reduction="none")[:, None], row.expand(len(y), 1)


@part
class OwnScale(Part):
    """Trains on a share of the cross entropy that depends on the run, and keeps state that is called "told"."""

    on_server = {"told": 1}

    def start(self, k, s):
        """L ← L (1 + seed)"""
        k.tell(Scaled(), k.w.new_ones(len(k.ids), 1), k.w.new_full((1,), 1.0 + s.seed))

    def correct(self, k, s, v):
        """v ← v + told"""
        return v + s.told

    def server(self, k, s):
        """told ← told + 0.01"""
        s.told = s.told + 0.01


def test_what_a_loss_is_told_is_nobodys_state():
    runs = [(SMALL, Method("OwnScale", OwnScale()), seed) for seed in (0, 1)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert len(shared.known) == 1


@part
class Halved(Part):
    """Trains on half of the cross entropy, by a function made anew in each round."""

    def start(self, k, s):
        """L ← L / 2"""

        def loss(answer, y, row, step, common):
            return torch.nn.functional.cross_entropy(answer(), y, reduction="none")[:, None] / 2, row.expand(len(y), 1)

        k.tell(loss, k.w.new_ones(len(k.ids), 1), k.w.new_zeros(0))


def test_a_told_loss_that_cannot_be_compared_goes_step_by_step():
    """Two functions are never known to be the same loss, so that no lanes are made, round for round, for each."""
    runs = [(SMALL, Method("Halved", Halved()), seed) for seed in (0, 1)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert not shared.known


@pytest.mark.parametrize("free, made_before", [(10, 0), (60, 1)])
def test_lanes_are_made_after_their_turn_where_memory_is_short(monkeypatch, free, made_before):
    """Before it as a rule, so that they are compiled by then; but few lanes, made while others fill a GPU, stay few."""
    monkeypatch.setattr(stacked, "free_bytes", lambda device: free)
    monkeypatch.setattr(Stacked, "_share", lambda self, device: 100)
    shared, there = SharedSteps(), []
    engine = Stacked(problem_of(SMALL, 0), shared=shared, turn=lambda: there.append(len(shared.known)))
    same(trained(engine, SMALL, method("FedAvg"), 0), alone(SMALL, method("FedAvg"), 0))
    assert there[0] == made_before and there[-1] == 1


def test_other_partitions_rates_and_rounds_share_lanes():
    m = method("FedSAM")
    runs = [(SMALL, m, 0), (SMALL.but(partition="iid", lr=0.02, lr_decay=0.5, participation=0.9), m, 0)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert len(shared.known) == 1


@pytest.mark.parametrize("other, m", [
    ({"weight_decay": 0.1}, "FedAvg"), ({"batch": 7}, "FedAvg"), ({"clip_norm": 1.0}, "FedAvg"),
    ({}, "fedavg + gradient(randomband(0.1))"),
], ids=str)  # fmt: skip
def test_what_is_a_constant_of_the_step_needs_lanes_of_its_own(other, m):
    """Another decay, batch or clip, bands drawn by another seed."""
    m = method(m)
    runs = [(SMALL, m, 0), (SMALL.but(**other), m, 1)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert len(shared.known) == 2


@pytest.mark.parametrize("name, other", [
    ("FedSAM", {"rho": 0.3}), ("FedProx", {"mu": 0.5}), ("FedCM", {"alpha": 0.4}), ("FedDyn", {"beta": 3.0}),
    ("FedFSA", {"rho": 0.2}), ("FedSMOO", {"rho": 0.3, "beta": 5.0}), ("FedLESAM-D", {"rho": 0.3}),
])  # fmt: skip
def test_runs_with_other_numbers_of_their_parts_share_lanes(name, other):
    """A radius, a pull, a share of momentum: each client's step has those of its own run."""
    runs = [(SMALL, method(name), 0), (SMALL, method(name, **other), 0)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert not torch.equal(found[0][0], found[1][0])
    assert len(shared.known) == (2 if name in CHANGE_THE_DECAY else 1)


@part
class Branching(Part):
    """Compares its number in Python."""

    by: float = 2.0

    def correct(self, k, s, v):
        """v ← by · v, where by > 1"""
        return self.by * v if self.by > 1 else v


@part
class Mixing(Part):
    """Has its number meet other rows than its own, if it is one by lane."""

    by: float = 2.0

    def correct(self, k, s, v):
        """v ← by · v"""
        return (self.by * v[:, None].expand(-1, len(v), -1))[:, -1]


@pytest.mark.parametrize("part", [Branching, Mixing])
def test_numbers_that_cannot_be_given_by_lane_are_constants(part):
    runs = [(SMALL, Method("numbered", part(by)), 0) for by in (2.0, 0.5)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert len(shared.known) == 2


@part
class ByRound(Part):
    """Reads the number of the round in a step."""

    def correct(self, k, s, v):
        """v ← v / (1 + t)"""
        return v / (1 + s.t)


@part
class ByCount(Part):
    """Reads a number of the run in a step."""

    def correct(self, k, s, v):
        """v ← v / N"""
        return v / s.N


def test_a_step_that_reads_the_number_of_the_round_is_not_captured(capsys):
    m = Method("by round", ByRound())
    (found, _), shared = together([(SMALL, m, 0), (SMALL, m, 1)])
    same(found, alone(SMALL, m, 0))
    assert not shared.known and capsys.readouterr().err.count("its steps read s.t, which differs from round") == 1


def test_a_step_that_reads_a_number_of_the_run_is_shared_by_runs_that_have_it():
    m = Method("by count", ByCount())
    runs = [(SMALL, m, 0), (SMALL, m, 1), (SMALL.but(clients=5), m, 0)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert len(shared.known) == 2 and all(lanes.constants == ["s.N"] for lanes in shared.known)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_number_of_lanes_gives_the_same_weights(monkeypatch, count):
    monkeypatch.setattr(Stacked, "_lanes", lambda self, clients: count)
    m = method("FedDyn")
    runs = [(SMALL, m, 0), (SMALL, m, 1)]
    found, shared = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
    assert shared.known[0].count == min(count, 6)


def test_models_of_one_layout_and_another_form_have_lanes_of_their_own():
    """Weights of the same names and shapes, and convolutions that meet something else at the border."""
    m, shared = method("FedAvg"), SharedSteps()
    trained(Stacked(problem_of(SMALL, 0), shared=shared), SMALL, m, 0)
    engines = [Loop(problem_of(SMALL, 0)), Stacked(problem_of(SMALL, 0), shared=shared)]
    for engine in engines:
        engine.problem.objective.model.conv1.padding_mode = "circular"
    same(*(trained(engine, SMALL, m, 0) for engine in reversed(engines)))
    assert len(shared.known) == 2


def test_a_failure_in_the_lanes_is_everyones_and_ends_nobody_silently(monkeypatch):
    """Whoever drives meets it; those who wait must not wait for ever."""
    launched = Launched.__call__

    def breaks(self, calls=[]):  # noqa: B006
        calls.append(self)
        if len(calls) > 3:
            raise RuntimeError("the device is gone")
        launched(self)

    monkeypatch.setattr(Launched, "__call__", breaks)
    with pytest.raises(RuntimeError, match="the device is gone"):
        together([(SMALL, method("FedAvg"), 0), (SMALL, method("FedAvg"), 1)])


def test_lanes_are_fewer_where_there_is_no_room_for_all(monkeypatch):
    """Half of them, and half of those; the weights are the same."""
    tried = []

    class Full(Lanes):
        def __init__(self, trip, count, *rest):
            tried.append(count)
            if count > 2:
                raise torch.OutOfMemoryError("full")
            super().__init__(trip, count, *rest)

    monkeypatch.setattr("fednb.engines.stacked.Lanes", Full)
    setting = SMALL.but(partition="iid", participation=1.0)
    found, shared = together([(setting, method("SCAFFOLD"), 0)])
    same(found[0], alone(setting, method("SCAFFOLD"), 0))
    assert tried == [12, 6, 3, 2] and shared.known[0].count == 2


def test_lanes_take_the_place_of_others_where_there_is_no_room():
    shared, made = SharedSteps(), object()
    step, launch = SimpleNamespace(method=method("FedDyn")), SimpleNamespace(over=False)
    shared.known.append(SimpleNamespace(fits=lambda *asked: False, step=step, launch=launch))
    answers = [torch.OutOfMemoryError("full"), made]

    def make():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert shared.lanes_for(SimpleNamespace(method=method("FedAvg")), 64, "fp64", make) is made
    assert list(shared.known) == [made] and launch.over


def test_lanes_that_no_run_to_come_needs_are_forgotten():
    """By method, whatever the numbers of its parts."""
    shared = SharedSteps()
    for m in (method("FedAvg"), method("FedProx"), method("FedDyn")):
        trained(Stacked(problem_of(SMALL, 0), shared=shared), SMALL, m, 0)
    avg, prox, dyn = shared.known
    shared.keep_only({alike(method(name)) for name in ("FedAvg", "FedProx", "FedDyn")})
    assert list(shared.known) == [avg, prox, dyn]
    shared.keep_only({alike(method("FedProx", mu=0.5))})
    assert list(shared.known) == [prox] and [x.launch.over for x in (avg, prox, dyn)] == [True, False, True]


def test_lanes_are_made_for_a_mean_round_whoever_comes_to_the_first():
    """By coin of 20 clients, one in four: five on average, and other numbers in the first rounds of these seeds."""
    setting = SMALL.but(clients=20, participation=0.25, sampling="coin", partition="iid")
    first = [len(participants(setting, seed, 0)) for seed in range(4)]
    assert len(set(first)) > 2
    for seed in range(4):
        shared = SharedSteps()
        engine = choose("stacked", setting, method("FedAvg"), seed, device="cpu", beside=Company(shared, runs=2))
        trained(engine, setting, method("FedAvg"), seed)
        assert [lanes.count for lanes in shared.known] == [10]


def test_lanes_are_as_many_as_clients_keep_busy():
    """Equal clients all at a time; of unequal ones as many as the others need while the longest is at work.

    Of three runs one is between two rounds, so that the lanes are for two.
    """
    equal = problem_of(SMALL.but(partition="iid"), 0)
    assert [Stacked(equal, runs=runs)._lanes(6) for runs in (1, 2, 3, 6)] == [6, 12, 12, 24]
    skewed = problem_of(SMALL, 0)
    longest = int(skewed.steps.max()) / float(skewed.steps.float().mean())
    assert longest > 1.3 and Stacked(skewed, runs=3)._lanes(6) == ceil(1.1 * 2 * 6 / longest)


@pytest.mark.parametrize("name, kept", [("FedAvg", 0), ("FedSAM", 0), ("FedDyn", 1)])
def test_room_for_a_client_is_counted_from_its_vectors(name, kept):
    """Where it began, where it is, what it moved: three, and one more that FedDyn keeps between rounds."""
    problem = problem_of(SMALL, 0)
    w, b = problem.objective.start(torch.float32, torch.device("cpu"))
    vectors, numbers = divmod(numbers_of_rows(method(name), problem.objective.layout, w, b), len(w))
    assert vectors == 3 + kept and numbers < 10


def test_memory_of_a_gradient_is_told_though_others_take_and_give_some(monkeypatch):
    """Two of five looks are spoilt: another run's table came, and another's went."""
    looks = iter([(100, 130), (100, 4600), (4600, 4630), (4600, 4600), (100, 130)])
    seen = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: seen.append(next(looks)))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: seen[-1][0])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: seen[-1][1])
    assert taken(lambda: None, torch.device("cuda")) == 30 and len(seen) == LOOKS
