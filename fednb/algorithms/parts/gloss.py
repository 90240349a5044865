"""FedGloSS (Caldarola et al. 2025): the server looks uphill, and duals keep clients together."""

from __future__ import annotations

from torch import Tensor

from fednb.core.readings import in_turn, when
from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import ABOVE_0, AT_LEAST_0, FIRST_MODEL, Part, part
from fednb.core.vectors import direction, unit

EPSILON = 1e-16  # of the clients in the released code; its server has none


@part
class Gloss(Part):
    """The server looks uphill and clients follow duals (FedGloSS, Caldarola et al. 2025, Alg. 1).

    rho, rho_l: radii of server and clients; beta: 1/λ of the duals; rho0, warmup: both radii rise linearly from rho0
    over the first `warmup` rounds. CIFAR-10 in the paper: 0.15, 0.15, 10, 0.001, 2000.
    Parts that set the server's step stand before it: w̃ is made from the step that it finds.
    sizes_of: a client's weight is its share of the "participants" samples, as released.
    """

    rho: float = 0.15
    rho_l: float = 0.15
    beta: float = 10.0
    rho0: float = 0.001
    warmup: int = 0
    reading: str = "paper"
    prox_in_clip: bool = True
    sizes_of: str = "participants"
    ascends = True
    ranges = {"rho": AT_LEAST_0, "rho_l": AT_LEAST_0, "beta": ABOVE_0, "rho0": AT_LEAST_0, "warmup": AT_LEAST_0}
    per_client = {"sigma": P}
    this_round = {"rho_t": 1}
    on_server = {"sigma": P, "w_sent": P}
    bundled = {"w_sent": "w"}  # it goes down in place of w

    def initial(self) -> dict[str, float | str]:
        return {"w_sent": FIRST_MODEL}

    def start(self, k: Cohort, s: Server) -> None:
        """w_k ← w̃"""
        k.w0 = k.w = s.w_sent
        k.rho_t = self.ramp(s.t, self.rho_l)

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ_l unit(∇L(w_k))"""
        return k.rho_t * unit(k.grad(k.w), EPSILON)

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v − σ_k + (w_k − w̃)/β"""
        return v - k.sigma + (k.w - k.w0) / self.beta

    def finish(self, k: Cohort, s: Server) -> None:
        """σ_k ← σ_k − Δ_k/β"""
        k.sigma = k.sigma - k.delta / self.beta

    server = in_turn("server_dual", "server_model")

    def server_dual(self, k: Cohort, s: Server) -> None:
        """σ ← σ − Σ Δ_k / (β N)"""
        s.sigma = s.sigma - k.delta.sum(0) / (self.beta * s.N)

    def server_model(self, k: Cohort, s: Server) -> None:
        """step ← η_g Σ p_k Δ_k − β σ;  w̃ ← w + step − ρ_t unit(Σ p_k Δ_k)"""
        s.step = s.lr * s.delta - self.beta * s.sigma
        s.w_sent = s.w + s.step - self.server_radius(s.t + 1) * direction(s.delta)

    def server_radius(self, t: int) -> float:
        """ρ_t of the server"""
        return self.ramp(t, self.rho)

    def ramp(self, t: int, top: float) -> float:
        """ρ_0 + (ρ − ρ_0) t / warmup, then ρ; a warm-up of one round is none."""
        warm = self.warmup <= 1 or t >= self.warmup
        return top if warm else self.rho0 + (top - self.rho0) * t / self.warmup


@when(reading="released")
class GlossReleased(Gloss):
    """The dual is divided by |S| once more; the radius stands at rho_l + one rise during the warm-up."""

    def server_dual(self, k: Cohort, s: Server) -> None:
        """σ ← σ − Σ Δ_k / (β N |S|)"""
        s.sigma = s.sigma - k.delta.sum(0) / (self.beta * (s.N * len(k.ids)))

    def server_radius(self, t: int) -> float:
        """ρ_t of the server"""
        rises = self.warmup > 1 and 1 <= t <= self.warmup
        return self.rho_l + (self.rho - self.rho0) / self.warmup if rises else self.ramp(t, self.rho)


@when(prox_in_clip=False)
class GlossSplit(Gloss):
    """The pull to w̃ is split as FL-Simulator does for `Prox`; neither paper nor code has a clip."""

    def start(self, k: Cohort, s: Server) -> None:
        """w_k ← w̃;  wd ← wd + 1/β   (+ w_k/β, behind the clip)"""
        k.w0 = k.w = s.w_sent
        k.rho_t = self.ramp(s.t, self.rho_l)
        k.weight_decay = k.weight_decay + 1.0 / self.beta

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v − σ_k − w̃/β"""
        return v - k.sigma + -k.w0 / self.beta


@when(sizes_of="all")
class GlossAllSizes(Gloss):
    """A weight is a share of all clients' samples (Alg. 1: N_k/N), so few participants make a short step."""

    def server_model(self, k: Cohort, s: Server) -> None:
        """p_k ← p_k Σ n_k / n;  step ← η_g Σ p_k Δ_k − β σ;  w̃ ← w + step − ρ_t unit(Σ p_k Δ_k)"""
        s.delta = s.delta * (k.n.sum() / s.samples)
        s.step = s.lr * s.delta - self.beta * s.sigma
        s.w_sent = s.w + s.step - self.server_radius(s.t + 1) * direction(s.delta)
