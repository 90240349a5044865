"""What holds for every method of the catalogue, whichever it is: a new one is found by itself."""

from functools import cache

import numpy as np
import pytest
import torch
from quadratics import QuadraticRounds, heterogeneous
from torch import Tensor, nn

from fednb.algorithms.catalogue import CATALOGUE
from fednb.core.cost import cost
from fednb.core.record import Table
from fednb.core.rounds import Method, observed_server
from fednb.core.vectors import Layout
from fednb.engines.loop import Loop
from fednb.engines.problem import Problem, problem_of
from fednb.engines.replay import Replay, replay
from fednb.engines.setting import Setting
from fednb.engines.stacked import Stacked
from fednb.models.bottleneck import Bottleneck

MASK = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)
STEPS = 4
seen_cost = cache(cost)
FAR_APART = heterogeneous(P=240)
each = pytest.mark.parametrize("m", [entry.method for entry in CATALOGUE.values()], ids=str)


class Counting(Bottleneck):
    """A network of 20 → 12 → 2 · 4 → 3 that counts its passes; its first layer is long enough for every filter."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(nn.Linear(20, 12), nn.Tanh(), nn.Linear(12, 8)), latent=4, classes=3)
        self.passes = 0

    def forward(self, x: Tensor, draws: Tensor | None = None):
        self.passes += 1
        return super().forward(x, draws)


@cache
def batches() -> tuple[Tensor, Tensor, Tensor]:
    """Three rounds, four clients with means of their own, two epochs of two batches of four samples."""
    rng = torch.Generator().manual_seed(1)
    X = torch.randn(3, 4, 2, 2, 4, 20, dtype=torch.float64, generator=rng)
    X += torch.randn(1, 4, 1, 1, 1, 20, dtype=torch.float64, generator=rng)
    Y = torch.randint(0, 3, X.shape[:-1], generator=rng)
    return 0.3 * torch.randn(371, dtype=torch.float64, generator=rng), X, Y


def run(m: Method, engine: str = "loop", model: nn.Module | None = None) -> Replay:
    """Clients of unequal size, some of whom stay away."""
    model = (model or Counting()).double()
    sizes = torch.tensor([8, 7, 30, 20])
    rates = dict(lr=0.2, lr_decay=0.9, weight_decay=0.01, clip_norm=1.0)
    return replay(m, model, *batches(), MASK, n=sizes, engine=engine, **rates)


@cache
def first(m: Method) -> Replay:
    """The run that the others are held against."""
    return run(m)


def same(left: Replay, right: Replay, atol: float) -> None:
    """Weights, local weights and all declared state."""
    for a, b in (
        (left.w, right.w), (left.local[MASK], right.local[MASK]), (left.gradients, right.gradients),
        *((left.clients[name], right.clients[name]) for name in left.clients),
        *((left.server[name], right.server[name]) for name in left.server),
    ):  # fmt: skip
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


@each
def test_runs_and_moves(m):
    """Finite, and every round and every client that came has moved."""
    r = first(m)
    assert r.w.isfinite().all()
    assert r.local[MASK].isfinite().all()
    assert r.local[~MASK].isnan().all()
    assert ((r.w[1:] - r.w[:-1]).norm(dim=1) > 1e-4).all()
    assert ((r.local - r.w[:-1, None])[MASK].norm(dim=1) > 1e-4).all()


@each
def test_deterministic(m):
    """The same run twice gives the same bits."""
    same(first(m), run(m), atol=0.0)


@each
def test_engines_agree_on_given_batches(m):
    same(first(m), run(m, "stacked"), atol=1e-12)


def expected(m: Method, counted: Tensor, steps: Tensor) -> bool:
    """The passes per step seen on a quadratic, and no more, unless the method looks at data beside its steps."""
    seen = seen_cost(m)
    beside = counted - (seen.passes * steps).long()
    return bool((beside >= 0).all() if seen.extra else (beside == 0).all())


@each
def test_cost_is_the_count_of_network_passes(m):
    """Passes through the network, the oracle's own count, and the passes per step that the catalogue shows agree."""
    model = Counting()
    r = run(m, model=model)
    assert r.gradients.sum().item() == model.passes
    assert (r.gradients[~MASK] == 0).all()
    assert expected(m, r.gradients[MASK], torch.tensor(STEPS))


@each
def test_a_stack_of_unequal_clients_is_each_client_by_itself(m):
    """Quadratics with 3, 1, 4 and 2 steps, padded with 1e9: clients together or one by one move alike, to 1e-12."""
    clients, layout = FAR_APART, Layout(("a", "b"), ((20, 10), (40,)))
    together = QuadraticRounds(m, clients, w=1.0, steps=(3, 1, 4, 2), layout=layout, weight_decay=0.01)
    together.round([0, 2])
    begun = together.table.gather(range(4)), together.s.values(together.s.names)
    k = together.round()
    for i in range(4):
        alone = QuadraticRounds(m, clients, w=1.0, steps=(3, 1, 4, 2), layout=layout, weight_decay=0.01)
        alone.table.scatter(range(4), begun[0])
        for name, value in {**begun[1], "t": 1}.items():
            setattr(alone.s, name, value)
        assert torch.allclose(alone.round([i]).w[0], k.values(["w"])["w"][i], atol=1e-12, rtol=0)


SETTING = Setting(data="digits", model="cnn-small-cr", clients=5, epochs=1, batch=8, precision="fp64")
PRESENT = ([0, 3, 4], [0, 1, 4])


@pytest.fixture(scope="module")
def digits() -> Problem:
    """Clients of 14, 16, 24, 9 and 30 images: 2, 2, 3, 2 and 4 steps, most with a short batch behind the others."""
    parts = np.split(np.random.default_rng(0).permutation(93), np.cumsum([14, 16, 24, 9]))
    problem = problem_of(SETTING, seed=0, parts=parts)
    assert problem.steps.tolist() == [2, 2, 3, 2, 4]
    return problem


def two_rounds(engine: Loop, m: Method) -> tuple[dict[str, Tensor], Tensor]:
    """The server after two rounds, and the gradients counted beside the steps made."""
    problem = engine.problem
    w, b = problem.objective.start(torch.float64, torch.device("cpu"))
    s = problem.server(m, w, b)
    table = Table(m.buffers("per_client", problem.objective.layout, w))
    counted = []
    for ids in PRESENT:
        k, _ = engine.train(m, s, ids, table.gather(ids))
        observed_server(m, k, s)
        table.scatter(ids, k.values(table.start))
        counted.append(torch.stack([k.evaluations.view(-1), problem.steps[ids]]))
    state = {**s.values(["w", *m.declared("on_server")]), **table.gather(range(problem.clients))}
    return state, torch.cat(counted, dim=1)


@each
def test_engines_agree_on_unequal_clients(m, digits):
    """Short last batches and unequal numbers of steps: one at a time and stacked give the same model and state."""
    (loop, counted), (stacked, other) = (two_rounds(kind(digits), m) for kind in (Loop, Stacked))
    assert loop["w"].isfinite().all()
    assert (loop["w"] - digits.objective.start(torch.float64, torch.device("cpu"))[0]).norm() > 1e-2
    for name in loop:
        torch.testing.assert_close(loop[name], stacked[name], rtol=0, atol=1e-12)
    assert torch.equal(counted, other)
    assert expected(m, *counted)
