"""FedSCAM: each client's radius from its gradient norms, weights from heterogeneity and alignment, conflicts damped."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from fednb.base.streams import joint_seed, stream
from fednb.core.readings import in_turn, nothing, when
from fednb.core.record import Cohort, Server
from fednb.core.rounds import AT_LEAST_0, SHARE, Part, part
from fednb.core.vectors import cos, direction, norm, unit


@lru_cache(maxsize=4)
def _hash(seed: int, P: int, d: int) -> tuple[Tensor, Tensor]:
    rng = stream(seed, "sketch", P, d)
    return torch.from_numpy(rng.integers(d, size=P)), torch.from_numpy(rng.integers(2, size=P) * 2.0 - 1.0)


def sketch(x: Tensor, d: int, seed: int = 0) -> Tensor:
    """R x: every coordinate goes with a random sign into one of d cells. Linear; keeps inner products on average.

    The paper's dense Gaussian projection would be d x P numbers, 11 GB for ResNet-18; the error of a cosine is about
    1/√d either way.
    """
    cell, sign = _hash(seed, x.shape[-1], d)
    out = x.new_zeros(*x.shape[:-1], d)
    return out.index_add(-1, cell.to(x.device), x * sign.to(x))


SHARED = (*Part.shared, "rho_max", "alpha_rho", "d", "seed")  # one number of the paper, whichever parts need it


@part
class ScamPilot(Part):
    """How strange is this client, and does it pull with the others? (FedSCAM, Alg. 1 lines 3-9)

    rho_max 0.05, batches 3, d 256 (512 for ResNet-18) in the paper; alpha_rho 1, kappa 0.5 assumed. h is the mean
    gradient norm at the received model, c the cosine of a pilot step with the last global step, both in d numbers.
    sam: False makes the pilot a plain gradient (the WA variant).
    pilot: the direction compared with the last step, the "update" −∇L.
    """

    rho_max: float = 0.05
    alpha_rho: float = 1.0
    kappa: float = 0.5
    batches: int = 3
    d: int = 256
    seed: int = 0
    sam: bool = True
    pilot: str = "update"
    ranges = {"rho_max": AT_LEAST_0, "alpha_rho": AT_LEAST_0, "kappa": AT_LEAST_0,
              "batches": ("at least 1", lambda v: v >= 1), "d": ("at least 1", lambda v: v >= 1)}  # fmt: skip
    shared = SHARED
    this_round = {"het": 1, "c": 1, "h_adj": 1}  # h is FedDyn's dual

    @property
    def on_server(self) -> dict[str, int]:  # type: ignore[override]
        return {"u": self.d}

    start = in_turn("strangeness", "alignment", "adjustment")

    def strangeness(self, k: Cohort, s: Server) -> None:
        """h ← mean ‖∇L(w)‖ over B batches"""
        looks = [k.look(k.w0, step) for step in range(min(self.batches, k.max_steps))]
        there = torch.cat([(count > 0).to(k.het) for _, _, count in looks], dim=-1)
        norms = torch.cat([norm(g) for g, _, _ in looks], dim=-1)
        k.het = (norms * there).sum(-1, keepdim=True) / there.sum(-1, keepdim=True)

    def alignment(self, k: Cohort, s: Server) -> None:
        """c ← cos(R(−∇L(w + δ_pilot)), u)"""
        k.c = cos(sketch(direction(-self.pilot_gradient(k)), self.d, joint_seed(s.seed, self.seed)), s.u)

    def adjustment(self, k: Cohort, s: Server) -> None:
        """h_adj ← h max(0, 1 − κ c)"""
        k.h_adj = k.het * (1 - self.kappa * k.c).clamp_min(0)

    def server(self, k: Cohort, s: Server) -> None:
        """u ← R(step / ‖step‖)"""
        s.u = sketch(direction(s.step), self.d, joint_seed(s.seed, self.seed))

    def pilot_gradient(self, k: Cohort) -> Tensor:
        """∇L(w + δ_pilot) on the first batch, δ_pilot = ½ ρ_max / (1 + α_ρ h) unit(∇L(w)); 0 without `sam`."""
        g, _, _ = k.look(k.w0, 0)
        if self.sam:
            radius = 0.5 * self.rho_max / (1 + self.alpha_rho * k.het)
            g, _, _ = k.look(k.w0 + radius * unit(g), 0)
        return g


@when(pilot="gradient")
class ScamPilotGradient(ScamPilot):
    """Alg. 1 allows the gradient too, which turns the sign of c around, so that opposed clients are rewarded."""

    def alignment(self, k: Cohort, s: Server) -> None:
        """c ← cos(R(∇L(w + δ_pilot)), u)"""
        k.c = cos(sketch(direction(self.pilot_gradient(k)), self.d, joint_seed(s.seed, self.seed)), s.u)


@part
class ScamRadius(Part):
    """A smaller radius for stranger clients (FedSCAM, Eq. for ρ_i): ρ_k = ρ_max / (1 + α_ρ h_adj)."""

    rho_max: float = 0.05
    alpha_rho: float = 1.0
    ascends = True
    ranges = {"rho_max": AT_LEAST_0, "alpha_rho": AT_LEAST_0}
    shared = SHARED
    this_round = {"h_adj": 1, "rho_k": 1}

    def start(self, k: Cohort, s: Server) -> None:
        """ρ_k ← ρ_max / (1 + α_ρ h_adj)"""
        k.rho_k = self.rho_max / (1 + self.alpha_rho * k.h_adj)

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ_k unit(∇L(w_k))"""
        return k.rho_k * unit(k.grad(k.w))


@part
class ScamWeights(Part):
    """Strange clients count less, aligned ones more (FedSCAM, aggregation).

    gamma: 1.0, the best of the paper's sweep; beta: 0.8, the middle of its sweep {0, 0.8, 2}, of which 0 was best.
    """

    gamma: float = 1.0
    beta: float = 0.8
    ranges = {"gamma": AT_LEAST_0, "beta": AT_LEAST_0}
    this_round = {"h_adj": 1, "c": 1}

    def weigh(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ∝ n_k / (1 + γ h_adj) · max(0, 1 + β c)"""
        score = p / (1 + self.gamma * k.h_adj) * (1 + self.beta * k.c).clamp_min(0)
        return score / score.sum() if score.sum() > 0 else p


@part
class ScamConflict(Part):
    """Damp the shorter of two updates that point apart within a cluster (FedSCAM, conflict dampening).

    lam, clusters: 0.5, 3, assumed. dampen: "weight" lowers the client's weight and renormalises.
    cosine_of: whether two point apart is seen in their "summaries" z, as the clusters are, or in the whole "updates".
    """

    lam: float = 0.5
    clusters: int = 3
    dampen: str = "weight"
    d: int = 256
    seed: int = 0
    per_conflict: bool = False
    cosine_of: str = "summaries"
    shared = SHARED
    ranges = {"lam": SHARE, "clusters": ("at least 1", lambda v: v >= 1),
              "cosine_of": ("summaries or updates", lambda v: v in ("summaries", "updates"))}  # fmt: skip

    @property
    def this_round(self) -> dict[str, int]:  # type: ignore[override]
        return {"z": self.d}

    def finish(self, k: Cohort, s: Server) -> None:
        """z_k ← R(Δ_k / ‖Δ_k‖)"""
        k.z = sketch(direction(k.delta), self.d, joint_seed(s.seed, self.seed))

    weigh = in_turn("damp", "renormalise")

    def damp(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ← λ p_k for the shorter of two updates of one cluster that point apart"""
        lost = self.conflicts(k.z, k.delta, joint_seed(s.seed, self.seed))
        return p * torch.ones_like(p).masked_fill(lost > 0, self.lam)

    def renormalise(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p ← p / Σ p_k"""
        return p / p.sum().clamp_min(torch.finfo(p.dtype).tiny)

    def conflicts(self, z: Tensor, move: Tensor, seed: int = 0) -> Tensor:
        """In how many conflicting pairs each client has the shorter update, `[C, 1]`."""
        from sklearn.cluster import KMeans

        z = direction(z)
        means = KMeans(min(self.clusters, len(z)), n_init=10, random_state=seed % 2**32)
        label = torch.from_numpy(means.fit_predict(z.double().cpu().numpy())).to(z.device)
        seen, length = z if self.cosine_of == "summaries" else direction(move), norm(move)
        apart = (seen @ seen.T < 0) & (label[:, None] == label[None, :])
        return (apart & (length < length.T)).sum(-1, keepdim=True)


@when(per_conflict=True)
class ScamConflictEach(ScamConflict):
    """Damps by lam for each conflict that a client loses, not once for all of them."""

    def damp(self, k: Cohort, s: Server, p: Tensor) -> Tensor:
        """p_k ← λ^m p_k, m the updates of its cluster that are longer and point apart from it"""
        return p * self.lam ** self.conflicts(k.z, k.delta, joint_seed(s.seed, self.seed)).to(p)


@when(dampen="update")
class ScamConflictUpdate(ScamConflict):
    """The other reading of "downweight the update" shortens its move, so that the whole step is shorter."""

    renormalise = nothing
