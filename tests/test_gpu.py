"""On a GPU: the same numbers as on a CPU, in every way of taking a step. Run with `pytest -m gpu tests/test_gpu.py`."""

import gc
from contextlib import nullcontext

import pytest
import torch

from fednb.algorithms.catalogue import CATALOGUE, method
from fednb.core.record import Table
from fednb.core.rounds import Method, Part, observed_server, part
from fednb.engines import captured, objective, pieces
from fednb.engines.loop import Loop
from fednb.engines.objective import arithmetic
from fednb.engines.problem import participants, problem_of
from fednb.engines.setting import Setting
from fednb.engines.stacked import Stacked
from fednb.metrics.features import PENULTIMATE, activations
from fednb.metrics.hessian import product_of
from fednb.metrics.landscape import line, random_direction, steps
from fednb.metrics.sample import Sample
from fednb.runs.experiment import fitted
from fednb.runs.probes import Probe, before_training

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")]
SMALL = Setting(data="digits", model="cnn-small", partition="dirichlet(alpha=0.5)", clients=6, participation=0.5,
                epochs=1, batch=20, samples=200)  # fmt: skip


def one_round(m, device, mode=None, setting=SMALL, rounds=1):
    """The model after one round, or more, on the CPU in double."""
    setting = fitted(setting, m)
    problem = problem_of(setting, 0, device)
    engine = Loop(problem) if mode is None else Stacked(problem, mode)
    dtype = torch.float64 if setting.precision == "fp64" else torch.float32
    w, b = problem.objective.start(dtype, torch.device(device))
    s, table = problem.server(m, w, b), Table(m.buffers("per_client", problem.objective.layout, w))
    for t in range(rounds):
        ids = participants(setting, 0, t)
        k, _ = engine.train(m, s, ids, table.gather(ids, m.declared("per_client")))
        table.scatter(ids, k.values(m.declared("per_client")))
        observed_server(m, k, s)
    assert mode != "graph" or not engine.shared.refused, "its step was not captured"
    return s.w.double().cpu(), k.evaluations.tolist(), engine.evaluate(*s.values(("w", "b")).values())


@pytest.mark.parametrize("m", [entry.method for entry in CATALOGUE.values()], ids=str)
def test_every_method_gives_the_weights_of_the_cpu(m):
    """fp32 after one round within 1e-4, as many gradients, the same accuracy; launched, and as one graph."""
    wanted, counted, score = one_round(m, "cpu")
    for mode in ("eager", "graph"):
        w, seen, found = one_round(m, "cuda", mode)
        torch.testing.assert_close(w, wanted, rtol=0, atol=1e-4)
        assert seen == counted
        assert found == pytest.approx(score, abs=0.6)  # two of 359 images


def test_looks_at_the_last_layers_give_the_weights_of_the_cpu():
    """Two rounds of everyone: FedALA learns its weights in the second, by gradients of the last layers alone."""
    setting = SMALL.but(participation=1.0)
    wanted, counted, _ = one_round(method("FedALA"), "cpu", setting=setting, rounds=2)
    for mode in ("eager", "graph"):
        w, seen, _ = one_round(method("FedALA"), "cuda", mode, setting, rounds=2)
        torch.testing.assert_close(w, wanted, rtol=0, atol=3e-4)
        assert seen == counted


@pytest.mark.parametrize("name", ["FedAvg", "FedFFT", "SCAFFOLD", "SpecGradFilter-FedDyn"])
def test_compiled_steps_give_the_weights_of_the_cpu(name):
    wanted, counted, _ = one_round(method(name), "cpu")
    w, seen, _ = one_round(method(name), "cuda", "compiled")
    torch.testing.assert_close(w, wanted, rtol=0, atol=1e-4)
    assert seen == counted


@pytest.mark.parametrize("name", ["FedSAM", "FedFFT-D", "FedSMOO"])
def test_steps_compiled_in_pieces_give_the_weights_of_the_cpu(name, monkeypatch):
    """The second convolution and the hidden layer are pieces by themselves, written straight into the model."""
    monkeypatch.setattr(pieces, "LARGE", 4000)
    wanted, counted, _ = one_round(method(name), "cpu")
    w, seen, _ = one_round(method(name), "cuda", "compiled")
    torch.testing.assert_close(w, wanted, rtol=0, atol=1e-4)
    assert seen == counted


@part
class Collecting(Part):
    """Collects garbage in the midst of a step."""

    def correct(self, k, s, v):
        """v ← v"""
        gc.collect()
        return v


def test_an_old_graph_does_not_spoil_a_new_one(monkeypatch):
    """A dead graph that only a collection finds, and a collection while the next is captured."""
    collected_before = captured.nothing_collected

    def with_a_dead_graph():
        circle = [torch.cuda.CUDAGraph()]
        with torch.cuda.graph(circle[0]):
            torch.zeros(1, device="cuda")
        circle.append(circle)
        return collected_before()

    monkeypatch.setattr(captured, "nothing_collected", with_a_dead_graph)
    one_round(Method("collecting", Collecting()), "cuda", "graph")  # which says if its step was not captured


def test_residual_networks_and_augmentation():
    setting = SMALL.but(data="tiny-imagenet-made", model="resnet20-gn", samples=90)
    wanted, _, _ = one_round(method("FedAvg"), "cpu", setting=setting)
    for mode in ("graph", "compiled"):
        w, _, _ = one_round(method("FedAvg"), "cuda", mode, setting)
        torch.testing.assert_close(w, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_shorter_numbers_are_near(precision):
    """The same direction: a cosine of the moves above 0.99. For products as small as these tf32 may not be used."""
    wanted, _, _ = one_round(method("FedAvg"), "cuda", "graph")
    w, _, _ = one_round(method("FedAvg"), "cuda", "graph", SMALL.but(precision=precision))
    first = problem_of(SMALL, 0).objective.start(torch.float64, torch.device("cpu"))[0]
    assert torch.cosine_similarity(w - first, wanted - first, dim=0) > 0.99
    assert precision == "tf32" or not torch.equal(w, wanted)


def test_products_are_whole_unless_they_may_be_short():
    x = torch.randn(256, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    exact = (x.double() @ x.double()).float()
    with arithmetic("fp32"):
        assert (x @ x - exact).abs().max() < 1e-3
    with arithmetic("tf32"):
        assert (x @ x - exact).abs().max() > 1e-3


# 5x5 convolutions of 64 channels: wide enough that products with 10 bits after the point are seen in the result.
WIDE = Setting(data="bloodmnist-made", model="lenet", clients=4, participation=0.5, epochs=1, batch=20, samples=200)


def looked(what, device):
    """What is measured of a first model on a few test samples, on the CPU in double."""
    problem = problem_of(WIDE, 0, device)
    w, b = problem.objective.start(torch.float32, torch.device(device))
    x, y = (part[:40] for part in problem.test)
    sample, layout = Sample(problem.objective, problem.inputs(x), y, b), problem.objective.layout
    v = random_direction(w.cpu(), layout, seed=1).to(w)
    if what == "probe":
        m = method("FedSAM")
        s, table = problem.server(m, w, b), Table(m.buffers("per_client", layout, w))
        found = before_training(Probe(("gradient", "perturbation")), problem, m, s, [0, 1], table)
        out = torch.cat([x.flatten() for x in found.values()])
    elif what == "Hessian":
        out = product_of(sample, w)(v.double())
    elif what == "landscape":
        losses = line(sample, w, v, steps(3.0, 5))
        out = losses - losses[2]  # how much the loss rises
    else:
        out = activations(problem.objective, w, b, sample.x, [PENULTIMATE])[PENULTIMATE]
    return out.double().cpu()


def away(a, b):
    """‖a − b‖ / ‖b‖"""
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("what", ["probe", "Hessian", "landscape", "features"])
def test_measurements_of_an_fp32_run_are_those_of_the_cpu(what, monkeypatch):
    """Within 3e-5, though torch has TF32 convolutions by itself; and outside of the arithmetic this would be seen."""
    assert torch.backends.cudnn.allow_tf32
    wanted = looked(what, "cpu")
    assert away(looked(what, "cuda"), wanted) < 3e-5
    monkeypatch.setattr(objective, "arithmetic", lambda precision: nullcontext())
    monkeypatch.setattr(objective, "holds", lambda precision: True)
    assert away(looked(what, "cuda"), wanted) > 3e-5
