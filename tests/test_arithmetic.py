"""A run's precision holds wherever its model is called: switches are set for both passes, and put back."""

import pytest
import torch
from small_grid import small_results
from torch.func import grad, vmap

from fednb import engines
from fednb.engines import objective
from fednb.engines.objective import Objective, OutsideArithmetic, arithmetic
from fednb.engines.problem import problem_of
from fednb.engines.setting import Setting
from fednb.metrics import cka, features, hessian, landscape
from fednb.models import build
from fednb.study.measurements import alignment, echo, fairness, sensitivity, separate

HOW = dict(samples=20, device="cpu", progress=False)
PROBE = ["gradient", "perturbation", "move", "model", "global"]
TORCH = (False, True, 2)  # as torch is by itself: whole products, TF32 in convolutions; and more than one thread
WHOLE, SHORT = (False, False, 1), (True, True, 1)


def now():
    """TF32 in products, in convolutions; and the number of threads."""
    switches = torch.backends.cuda.matmul, torch.backends.cudnn
    return *(switch.allow_tf32 for switch in switches), torch.get_num_threads()


def put(values):
    """Set what `now` tells."""
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = values[:2]
    torch.set_num_threads(values[2])


@pytest.fixture
def passes(monkeypatch):
    """What holds in each forward and each backward pass of a model, with torch as it is by itself around it."""
    seen, before, called = [], now(), Objective._called

    def noted(self, state, inputs):
        seen.append(("forward", now()))
        out = called(self, state, inputs)
        if out.requires_grad:
            out.register_hook(lambda g: seen.append(("backward", now())))
        return out

    monkeypatch.setattr(Objective, "_called", noted)
    put(TORCH)
    yield seen
    put(before)


def anywhere(setting, where):
    """Lets a CPU take the precisions that are for GPUs, to see that their switches are set."""


@pytest.fixture(scope="module")
def results_in(tmp_path_factory):
    """The finished runs of a precision; each is made when it is first asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        patch.setattr(engines, "suits", anywhere)
        made = {}
        yield lambda precision: made.setdefault(precision, small_results(["FedSAM"], PROBE, precision=precision))


MEASUREMENTS = {
    "Hessian": (lambda r: hessian.of_runs(r, count=1, most=3, **HOW), ("forward", "backward")),
    "line": (lambda r: landscape.lines(r, points=3, **HOW), ("forward",)),
    "plane": (lambda r: landscape.surfaces(r, points=3, **HOW), ("forward",)),
    "features": (lambda r: features.clouds(r, **HOW), ("forward",)),
    "CKA": (lambda r: cka.between_clients(r, **HOW), ("forward",)),
    "alignment": (lambda r: alignment.alignment(r, device="cpu"), ("forward", "backward")),
    "echo": (lambda r: echo.echo(r, device="cpu"), ("forward", "backward")),
    "fairness": (lambda r: fairness.by_client(r, samples=20, device="cpu"), ("forward",)),
    "separation": (lambda r: separate.separation(r, samples=40, device="cpu"), ("forward",)),
}


@pytest.mark.parametrize("precision, wanted", [("fp32", WHOLE), ("tf32", SHORT)])
@pytest.mark.parametrize("name", MEASUREMENTS)
def test_measurements_compute_in_the_precision_of_the_run(name, precision, wanted, results_in, passes):
    results = results_in(precision)
    passes.clear()
    measure, kinds = MEASUREMENTS[name]
    measure(results)
    assert set(passes) == {(kind, wanted) for kind in kinds}
    assert now() == TORCH


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_sensitivity_is_measured_in_double_precision_whatever_the_run_has(precision, results_in, passes):
    results = results_in(precision)
    passes.clear()
    sensitivity.of_layers(results, radii=(0.1,), samples=20, device="cpu")
    assert set(passes) == {("forward", WHOLE), ("backward", WHOLE)}
    assert now() == TORCH


@pytest.mark.parametrize("precision, wanted", [("fp32", WHOLE), ("fp64", WHOLE), ("tf32", SHORT), ("bf16", SHORT)])
@pytest.mark.parametrize("changes", [{}, {"evaluation": "personal"}], ids=["global", "personal"])
def test_training_probing_and_judging_compute_in_the_precision_of_the_run(
    precision, wanted, changes, passes, tmp_path, monkeypatch
):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.setattr(engines, "suits", anywhere)
    small_results(["FedSAM"], PROBE, precision=precision, **changes)
    assert set(passes) == {("forward", wanted), ("backward", wanted)}
    assert now() == TORCH


def small(precision="fp32"):
    """A network, its weights and buffers, and a batch."""
    setting = Setting(data="digits", samples=60, clients=2, precision=precision)
    problem = problem_of(setting, 0)
    x, y, _ = problem.plan(0, [0]).at(0)
    dtype = torch.float64 if precision == "fp64" else torch.float32
    return problem.objective, *problem.objective.start(dtype, torch.device("cpu")), x[0], y[0]


@pytest.mark.parametrize("precision", ["fp32", "fp64", "bf16"])
def test_derivatives_outside_are_refused(precision):
    """By backward passes and by transforms; also inside the arithmetic of another precision. Answers are given."""
    f, w, b, x, y = small(precision)
    for take in (lambda: f.loss(w.clone().requires_grad_(), b, x, y), lambda: grad(f.loss)(w, b, x, y),
                 lambda: vmap(grad(f.loss))(w[None], b[None], x[None], y[None])):  # fmt: skip
        with pytest.raises(OutsideArithmetic, match=f"a {precision} model outside of its arithmetic"):
            take()
        with pytest.raises(OutsideArithmetic), arithmetic("fp32" if precision == "bf16" else "tf32"):
            take()
        with f.arithmetic():
            take()
    assert not f.outputs(w, b, x).requires_grad
    with torch.no_grad():
        f.loss(w.clone().requires_grad_(), b, x, y)


def test_blocks_inside_blocks_put_back_what_they_found(passes):
    with arithmetic("fp32"):
        with arithmetic("bf16"):
            with arithmetic("tf32"):
                assert now() == SHORT
            assert now() == SHORT
            with pytest.raises(ZeroDivisionError), arithmetic("fp64"):
                assert now() == WHOLE
                raise ZeroDivisionError
            assert now() == SHORT
        assert now() == WHOLE and objective.holds("fp64") and not objective.holds("tf32")
    assert now() == TORCH and not objective.holds("fp32")


@pytest.mark.parametrize("precision", ["fp32", "fp64", "bf16"])
def test_on_a_cpu_a_model_answers_as_the_module_does(precision):
    """Bit for bit, on one thread; with bf16 as under torch's autocast."""
    f, w, b, x, y = small(precision)
    module = build("cnn-small", 10, (1, 8, 8), seed=0).to(w.dtype)
    with objective.one_thread(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        wanted = module(x)
    assert torch.equal(f.outputs(w, b, x), wanted.to(w.dtype))
    with objective.one_thread():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
            out = module(x)
        torch.nn.functional.cross_entropy(out.to(w.dtype), y).backward()
    assert torch.equal(f.gradient(w, b, x, y)[0], torch.cat([p.grad.flatten() for p in module.parameters()]))
