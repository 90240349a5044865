"""FedGloSS (Caldarola et al. 2025): the server looks uphill, and duals keep clients together."""

from __future__ import annotations

from torch import Tensor

from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import ABOVE_0, AT_LEAST_0, FIRST_MODEL, Part, part
from fednb.core.vectors import unit


@part
class Gloss(Part):
    """The server looks uphill and clients follow duals (FedGloSS, Caldarola et al. 2025, Alg. 1).

    rho, rho_l: radii of server and clients; beta: 1/λ of the duals; rho0, warmup: both radii rise linearly from rho0
    over the first `warmup` rounds. CIFAR-10 in the paper: 0.15, 0.15, 10, 0.001, 2000.
    Parts that set the server's step stand before it: w̃ is made from the step that it finds.
    reading: "released" divides the server's dual by |S| once more, and its server's radius stands at rho_l + one rise
    during the warm-up.
    prox_in_clip: False splits the pull to w̃ as FL-Simulator does, see `Prox`; neither paper nor code has a clip.
    sizes_of: whose samples a client's weight is a share of, the participants' as released, or those of "all" (Alg. 1:
    N_k/N), so that the step is as short as the participants are few.
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
    ranges = {"rho": AT_LEAST_0, "rho_l": AT_LEAST_0, "beta": ABOVE_0, "rho0": AT_LEAST_0, "warmup": AT_LEAST_0,
              "sizes_of": ("participants or all", lambda v: v in ("participants", "all"))}  # fmt: skip
    readings = ("paper", "released")
    per_client = {"sigma": P}
    this_round = {"rho_t": 1}
    on_server = {"sigma": P, "w_sent": P}
    bundled = {"w_sent": "w"}  # it goes down in place of w

    def initial(self) -> dict[str, float | str]:
        return {"w_sent": FIRST_MODEL}

    def ramp(self, t: int, top: float) -> float:
        """A radius in round t of the warm-up (a warm-up of one round is none)."""
        warm = self.warmup <= 1 or t >= self.warmup
        return top if warm else self.rho0 + (top - self.rho0) * t / self.warmup

    def server_radius(self, t: int) -> float:
        if self.reading == "released" and self.warmup > 1 and 1 <= t <= self.warmup:
            return self.rho_l + (self.rho - self.rho0) / self.warmup
        return self.ramp(t, self.rho)

    def start(self, k: Cohort, s: Server) -> None:
        """w_k ← w̃;  wd ← wd + 1/β   (+ w_k/β, behind the clip)
        prox_in_clip: w_k ← w̃
        """
        k.w0 = k.w = s.w_sent
        k.rho_t = self.ramp(s.t, self.rho_l)
        if not self.prox_in_clip:
            k.weight_decay = k.weight_decay + 1.0 / self.beta

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ_l unit(∇L(w_k))"""
        return k.rho_t * unit(k.grad(k.w))

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v − σ_k − w̃/β
        prox_in_clip: v ← v − σ_k + (w_k − w̃)/β
        """
        anchor = k.w - k.w0 if self.prox_in_clip else -k.w0
        return v - k.sigma + anchor / self.beta

    def finish(self, k: Cohort, s: Server) -> None:
        """σ_k ← σ_k − Δ_k/β"""
        k.sigma = k.sigma - k.delta / self.beta

    def server(self, k: Cohort, s: Server) -> None:
        """σ ← σ − Σ Δ_k / (β N);  step ← η_g Σ p_k Δ_k − β σ;  w̃ ← w + step − ρ_t unit(Σ p_k Δ_k)
        released: σ ← σ − Σ Δ_k / (β N |S|);  step ← η_g Σ p_k Δ_k − β σ;  w̃ ← w + step − ρ_t unit(Σ p_k Δ_k)
        all: p_k ← p_k Σ n_k / n;  σ ← σ − Σ Δ_k / (β N);  step, w̃ as with the participants' p_k
        released all: p_k ← p_k Σ n_k / n;  σ ← σ − Σ Δ_k / (β N |S|);  step, w̃ as with the participants' p_k
        """
        many = s.N * (len(k.ids) if self.reading == "released" else 1)
        s.sigma = s.sigma - k.delta.sum(0) / (self.beta * many)
        if self.sizes_of == "all":
            s.delta = s.delta * (k.n.sum() / s.samples)
        s.step = s.lr * s.delta - self.beta * s.sigma
        s.w_sent = s.w + s.step - self.server_radius(s.t + 1) * unit(s.delta)
