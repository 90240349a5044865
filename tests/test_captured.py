"""A captured step is the step, for every method. Without a GPU what was traced is replayed in place of the graph."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses import fake_tensor

from fednb.algorithms.catalogue import CATALOGUE, method
from fednb.core.record import Table
from fednb.core.rounds import observed_server
from fednb.engines import captured, choose, expected
from fednb.engines.lane_step import alike
from fednb.engines.loop import Loop
from fednb.engines.problem import participants, problem_of
from fednb.engines.setting import Setting
from fednb.engines.stacked import PAYS, SharedSteps, Stacked, mode_of
from fednb.models import MODELS
from fednb.models.resnet import ResNet
from fednb.runs.evaluate import tuning
from fednb.runs.experiment import fitted

SMALL = Setting(data="digits", model="cnn-small", partition="dirichlet(alpha=0.5)", clients=6, participation=0.5,
                epochs=1, batch=10, samples=120, precision="fp64")  # fmt: skip


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch):
    """Replay what was traced in place of a CUDA graph of it."""

    def replayed(self, compiled):
        graph = captured.traced(self.work, {name: x.clone() for name, x in self.buffers.items()})
        return lambda: graph(self.buffers)

    monkeypatch.setattr(captured.Launched, "_captured", replayed)
    monkeypatch.setattr(fake_tensor, "traceback", Untold)


class Untold:
    """In place of `traceback`: every value that is traced has its stack written down, which takes half of the time."""

    @staticmethod
    def extract_stack():
        return []


def rounds(m, mode, room=0, setting=SMALL):
    """Two rounds of clients with unequal numbers of steps: the model, and what each round has counted."""
    problem = problem_of(fitted(setting, m), 0)
    engine = Stacked(problem, mode, room)
    w, b = problem.objective.start(torch.float64, torch.device("cpu"))
    s, table = problem.server(m, w, b), Table(m.buffers("per_client", problem.objective.layout, w))
    counted = []
    for t in range(2):
        ids = participants(setting, 0, t)
        k, down = engine.train(m, s, ids, table.gather(ids, m.declared("per_client")))
        counted.append((down, observed_server(m, k, s), k.evaluations.view(-1).tolist()))
        table.scatter(ids, k.values(m.declared("per_client")))
    return engine, s.w, counted


@pytest.mark.parametrize("m", [entry.method for entry in CATALOGUE.values()], ids=str)
def test_every_method_can_be_captured(m):
    """The same weights, gradients and traffic; finished clients stand still; spare room changes nothing."""
    _, wanted, counted = rounds(m, "eager")
    engine, w, seen = rounds(m, "compiled", room=4)
    torch.testing.assert_close(w, wanted, rtol=0, atol=1e-12)
    assert seen == counted
    assert len(engine.shared.known) == 1, "captured once, for both rounds"


@pytest.mark.parametrize("name", ["FedAvg-FT", "FedFSA", "FedCR", "FedALA"])
def test_tuned_classifiers_are_those_of_the_loop(name):
    """Tuning has a decay for the classifier's weights alone, one vector for all clients."""
    setting = fitted(SMALL.but(evaluation="personal", weight_decay=0.05, epochs=2), method(name))

    def models(made):
        w, b = made.problem.objective.start(torch.float64, torch.device("cpu"))
        s, table = made.problem.server(m, w, b), Table(m.buffers("per_client", made.problem.objective.layout, w))
        k, _ = made.train(m, s, [0, 1, 2, 3], table.gather([0, 1, 2, 3], m.declared("per_client")))
        return w, k.w

    m = tuning(method(name))
    start, wanted = models(Loop(problem_of(setting, 0)))
    _, found = models(Stacked(problem_of(setting, 0), "compiled"))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    assert (wanted - start).norm() > 0.1


def test_looks_are_captured_once_for_each_choice_of_layers():
    """FedALA asks for its two last layers, in pass after pass, q-FedAvg for all."""
    setting = SMALL.but(participation=1.0)
    engine, _, _ = rounds(method("FedALA"), "graph", setting=setting)
    assert list(engine.looks) == [(2,)]
    engine, _, _ = rounds(method("q-FedAvg"), "graph", setting=setting)
    assert list(engine.looks) == [(None,)]


def test_what_cannot_be_captured_is_taken_step_by_step(monkeypatch, capsys):
    """Nothing is lost but time, and the reader is told once."""

    def refused(self, compiled):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    _, wanted, counted = rounds(method("SCAFFOLD"), "eager")
    monkeypatch.setattr(captured.Launched, "_captured", refused)
    _, w, seen = rounds(method("SCAFFOLD"), "graph")
    assert torch.equal(w, wanted) and seen == counted
    said = capsys.readouterr().err
    assert said.count("a step of SCAFFOLD cannot be captured, and is slower: operation not permitted") == 1


def test_a_device_that_failed_while_a_step_was_captured_is_not_asked_again(monkeypatch, capsys):
    def failed(self, compiled):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    monkeypatch.setattr(captured.Launched, "_captured", failed)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        rounds(method("SCAFFOLD"), "graph")
    assert "slower" not in capsys.readouterr().err


def test_a_model_is_tested_by_a_captured_graph_that_runs_share():
    """Another seed's model through the same graph, with the loop's numbers."""
    shared = SharedSteps()
    for seed in (0, 1):
        problem = problem_of(SMALL, seed)
        w, b = problem.objective.start(torch.float64, torch.device("cpu"))
        found = Stacked(problem, "graph", shared=shared).evaluate(w, b)
        assert found == pytest.approx(Loop(problem).evaluate(w, b), rel=1e-12) and len(shared.scores) == 1


def test_a_test_that_cannot_be_captured_is_launched_piece_by_piece(monkeypatch, capsys):
    def refused(self, compiled):
        raise RuntimeError("CUDA out of memory\nmore")

    monkeypatch.setattr(captured.Launched, "_captured", refused)
    problem = problem_of(SMALL, 0)
    engine, (w, b) = Stacked(problem, "graph"), problem.objective.start(torch.float64, torch.device("cpu"))
    for _ in range(2):
        assert engine.evaluate(w, b) == Loop(problem).evaluate(w, b)
    assert capsys.readouterr().err.count("a test cannot be captured, and is slower: CUDA out of memory") == 1


@pytest.mark.parametrize("name, looks", [("FedAvg", 0), ("FedSCAM", 1), ("q-FedAvg", 1), ("FedALA", 1)])
def test_looks_before_training_are_captured_too(name, looks):
    """Once for all rounds and steps, in a wave of two and one of one; only where a method looks at all."""
    _, wanted, counted = rounds(method(name), "eager")
    engine, w, seen = rounds(method(name), "graph", room=2)
    torch.testing.assert_close(w, wanted, rtol=0, atol=1e-12)
    assert (len(engine.looks), seen) == (looks, counted)


def test_looks_are_not_captured_where_the_steps_would_have_no_room(monkeypatch, capsys):
    _, wanted, counted = rounds(method("FedSCAM"), "eager")
    monkeypatch.setattr("fednb.engines.stacked.free_bytes", lambda device: -1)
    engine, w, seen = rounds(method("FedSCAM"), "graph")
    torch.testing.assert_close(w, wanted, rtol=0, atol=1e-12)
    assert engine.looks == {(None,): None} and len(engine.shared.known) == 1 and seen == counted
    assert capsys.readouterr().err.count("a gradient cannot be captured, and is slower: the GPU has no room") == 1


def test_waves_are_one_cohort():
    """Three clients with room for two."""
    m = method("FedFFT-S")
    _, wanted, counted = rounds(m, "eager")
    for mode in ("eager", "compiled"):
        engine, w, seen = rounds(m, mode, room=2)
        assert engine.room == 2 and seen == counted
        torch.testing.assert_close(w, wanted, rtol=0, atol=1e-12)


def test_convolutions_and_augmentation_are_traced_too(monkeypatch):
    """ResNet-20 with one block a stage in place of three: every kind of layer that it has, in a third of the time."""
    monkeypatch.setitem(MODELS, "resnet20-gn", lambda classes, input: ResNet(classes, 3, (16, 32, 64), 1, "gn", False))
    setting = SMALL.but(data="tiny-imagenet-made", model="resnet20-gn", samples=60, clients=3, participation=1.0)
    m = method("FedFFT")
    _, wanted, _ = rounds(m, "eager", setting=setting)
    _, w, _ = rounds(m, "compiled", setting=setting)
    torch.testing.assert_close(w, wanted, rtol=0, atol=1e-10)


def test_numbers_that_a_method_changes_are_part_of_the_step():
    """FedProx's split pull adds to the weight decay, which is no tensor: another number is another step."""
    engine, *_ = rounds(method("FedProx"), "compiled")
    (lanes,) = engine.shared.known
    assert lanes.method == alike(method("FedProx")) and SMALL.weight_decay + 0.1 in lanes.numbers


def test_steps_are_captured_where_that_pays():
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert mode_of(cpu, 10**9) == "eager"
    assert [mode_of(gpu, n) for n in (1, PAYS["graph"], PAYS["compiled"])] == ["eager", "graph", "compiled"]


def test_fewer_steps_pay_with_larger_batches():
    """FedSCAM's Table 1: ten rounds of 275 steps of 256 samples are as much work as 14,080 steps of 50."""
    gpu = torch.device("cuda")
    assert mode_of(gpu, 2750) == mode_of(gpu, 2750, batch=50) == mode_of(gpu, 2750, batch=10) == "graph"
    assert mode_of(gpu, 2750, batch=256) == "compiled"
    with pytest.raises(ValueError, match="captured on a GPU"):
        choose("stacked:graph", SMALL, method("FedAvg"), 0, device="cpu")


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_short_numbers_need_a_gpu(precision):
    """On a CPU they would be other numbers under the same name, or the same under another."""
    with pytest.raises(ValueError, match=f"precision = '{precision}' is for a GPU; on a CPU use fp32 or fp64"):
        choose("auto", SMALL.but(precision=precision), method("FedAvg"), 0, device="cpu")


def test_room_for_most_rounds():
    """A fixed count; by coin the mean and a standard deviation: 10 + 3 of 100 at 0.1."""
    many = SMALL.but(clients=100, participation=0.1)
    assert expected(many) == 10 and expected(many.but(sampling="coin")) == 13


def test_garbage_is_collected_before_a_capture_and_not_during_it():
    class Circle:
        def __init__(self):
            self.own = self

    gone = weakref.ref(Circle())
    with captured.nothing_collected():
        assert gone() is None
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with captured.nothing_collected():
            pass
        assert not gc.isenabled(), "as it was"
    finally:
        gc.enable()


@pytest.mark.parametrize("work", ["test", "own tests", "gradients"])
def test_what_is_not_captured_waits_while_a_graph_is(work):
    """Eager convolutions of another thread would free memory in the middle of the capture, which ends it."""
    setting = SMALL.but(evaluation="personal") if work == "own tests" else SMALL
    problem, m = problem_of(fitted(setting, method("fedavg")), 0), method("fedavg")
    engine = Stacked(problem, "eager", shared=SharedSteps())
    w, b = problem.objective.start(torch.float64, torch.device("cpu"))
    ids = participants(setting, 0, 0)
    k, _ = engine.train(m, problem.server(m, w, b), ids, {})

    def gradients():
        with problem.objective.arithmetic():
            return engine._oracle(problem.plan(0, list(ids)))(k.w, b.expand(len(ids), -1), 0)

    each = {"test": lambda: engine.evaluate(w, b), "own tests": lambda: engine.evaluate_own(k), "gradients": gradients}
    with ThreadPoolExecutor(1) as pool:
        with captured.alone():
            other = pool.submit(each[work])
            assert not wait([other], timeout=0.3).done
        assert other.result(timeout=60)


@pytest.mark.parametrize("first", [torch.OutOfMemoryError("CUDA out of memory"), KeyError("x"), None])
def test_an_error_inside_of_a_capture_is_not_hidden_by_that_of_its_end(monkeypatch, first):
    ends = RuntimeError("CUDA error: operation failed due to a previous error during capture")

    @contextmanager
    def graph(*given, **how):
        try:
            yield
        finally:
            raise ends

    def work(buffers):
        if first is not None:
            raise first

    stream = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", type("Graph", (), {}))
    monkeypatch.setattr(captured, "stream_of_its_own", lambda: stream)
    monkeypatch.setattr(captured, "_warm", lambda work, trial: None)
    with pytest.raises((RuntimeError, KeyError)) as caught:
        captured.recorded(work, {}, {})
    assert caught.value is (first or ends)
