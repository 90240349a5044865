"""Clients with quadratic losses L_k(w) = ½ (w − a_k)ᵀ H_k (w − a_k): rounds that can be worked out by hand."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fednb.core.federation import Population, Rounds
from fednb.core.record import Cohort, LocalTraining, Oracle, Server
from fednb.core.rounds import Method
from fednb.core.vectors import Layout


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@dataclass(frozen=True)
class Quadratics:
    """N clients: curvatures H `[N, P, P]` and minima a `[N, P]`."""

    H: Tensor
    a: Tensor

    @property
    def optimum(self) -> Tensor:
        """The minimum of Σ L_k: (Σ H_k)⁻¹ Σ H_k a_k."""
        return torch.linalg.solve(self.H.sum(0), (self.H @ self.a[..., None]).sum(0)).squeeze(-1)

    def gradient(self, w: Tensor, ids: Sequence[int]) -> Tensor:
        """H_k (w_k − a_k), one row per client."""
        return (self.H[ids] @ (w - self.a[ids])[..., None]).squeeze(-1)


def quadratic(*at: float | Sequence[float], curvature: float | Sequence[float] = 1.0) -> Quadratics:
    """One client per minimum in `at` (numbers or vectors), all with the same curvature, one number or a diagonal."""
    a = torch.stack([torch.as_tensor(x, dtype=torch.float64).reshape(-1) for x in at])
    diagonal = torch.as_tensor(curvature, dtype=torch.float64).expand(a.shape[1])
    return Quadratics(torch.diag(diagonal).expand(len(a), -1, -1), a)


def heterogeneous(clients: int = 4, P: int = 3, seed: int = 0) -> Quadratics:
    """Clients that disagree about everything: minima far apart, eigenvalues from ½ to 2 along different axes."""
    rng = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(clients, P, P, dtype=torch.float64, generator=rng)).Q
    values = 0.5 + 1.5 * torch.rand(clients, P, dtype=torch.float64, generator=rng)
    a = 3 * torch.randn(clients, P, dtype=torch.float64, generator=rng)
    return Quadratics(turn @ torch.diag_embed(values) @ turn.mT, a)


@dataclass(frozen=True)
class SteadyRate(LocalTraining):
    """Local training at one rate in every round, whatever its decay and first rate are: easy to work out by hand."""

    now: float = 0.1

    def rate(self, t: int) -> float:
        return self.now


class QuadraticRounds(Rounds):
    """A server and its clients; `round(ids)` runs one round of a method and returns the cohort `k`.

    steps: one number, or one per client. A client that has no batch left gets a gradient of 1e9 on zero samples, so
    that only masked writes keep its row whole. Clients count alike unless `n` gives their sizes.
    """

    def __init__(
        self, method: Method, clients: Quadratics, *, w: float | Sequence[float] | Tensor = 0.0,
        steps: int | Sequence[int] = 1, n: Sequence[float] | None = None, layout: Layout | None = None,
        nominal_steps: float | None = None, server_lr: float = 1.0, lr: float = 0.1, first_lr: float | None = None,
        **numbers: float | None,
    ) -> None:  # fmt: skip
        N, P = clients.a.shape
        self.clients, self.steps = clients, torch.as_tensor(steps).expand(N)
        self.n = torch.ones(N, dtype=torch.int64) if n is None else torch.tensor(n)
        nominal_steps = float(self.steps[0]) if nominal_steps is None else nominal_steps
        first_lr = lr if first_lr is None else first_lr
        population = Population(
            layout=layout or Layout(("w",), ((P,),)), sizes=self.n, steps=self.steps, server_lr=server_lr,
            labels=1 + torch.arange(2 * N).view(N, 2),  # samples of each of two classes
            training=SteadyRate(lr=first_lr, nominal_steps=nominal_steps, now=lr, **numbers),
        )  # fmt: skip
        w = torch.as_tensor(w, dtype=torch.float64).expand(P).clone()
        super().__init__(method, population, w, w[:0], self.oracle)

    def oracle(self, t: int, ids: Sequence[int]) -> Oracle:
        steps = self.steps[ids]

        def ask(w, b, step, *told, **fewer):
            on = (step < steps).view(-1, 1)
            g = torch.where(on, self.clients.gradient(w, ids), 1e9)
            loss = 0.5 * (g * (w - self.clients.a[ids])).sum(-1, keepdim=True)
            return g, loss, on.to(w), b

        return ask

    def round(self, ids: Sequence[int] | None = None) -> Cohort:
        return self.next(ids).cohort

    def kept(self, name: str) -> Tensor:
        """What all N clients remember under a name, `[N, dim]`."""
        return self.table.gather(range(self.s.N))[name]


def one_round(method: Method, clients: Quadratics, **numbers) -> tuple[Cohort, Server]:
    """The clients and the server after a first round in which everyone takes part."""
    f = QuadraticRounds(method, clients, **numbers)
    return f.round(), f.s
