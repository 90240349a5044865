"""Momentum in what clients do: their steps follow the last global one, or their own last steps."""

from __future__ import annotations

from torch import Tensor

from fednb.core.readings import when
from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import SHARE, Part, part


@part
class ClientMomentum(Part):
    """Every local step follows the last global one (FedCM, Xu et al. 2021, Alg. 1).

    alpha: weight of the client's own gradient; 0.1 in FL-Simulator. Weight decay is not scaled by it.
    reading: "corrected" divides by each client's own number of steps.
    """

    alpha: float = 0.1
    reading: str = "corrected"
    lost_alpha: bool = False
    ranges = {"alpha": SHARE}
    on_server = {"m": P}

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← α v + (1 − α) m"""
        return self.alpha * v + (1 - self.alpha) * s.m

    def server(self, k: Cohort, s: Server) -> None:
        """m ← −Σ p_k Δ_k / (K_k η)"""
        s.m = -(k.p * k.delta / (k.steps * k.lr)).sum(0)


@when(reading="released")
class ClientMomentumReleased(ClientMomentum):
    """FL-Simulator divides by epochs · n_0 / batch, as for `Scaffold`."""

    def server(self, k: Cohort, s: Server) -> None:
        """m ← −Σ p_k Δ_k / (E n_0/b · η)"""
        s.m = -(k.p * k.delta / (k.nominal_steps * k.lr)).sum(0)


@when(lost_alpha=True)
class ClientMomentumLostAlpha(ClientMomentum):
    """The gradient stays whole, as in FedLESAM's copy of MoFedSAM; its steps are much longer."""

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← v + (1 − α) m"""
        return v + (1 - self.alpha) * s.m


@part
class FsaMomentum(ClientMomentum):
    """FedFSA's momentum (Alg. 1), in FedCM's form.

    alpha: 0.1 in the paper.
    """

    reading: str = "paper"

    def server(self, k: Cohort, s: Server) -> None:
        """m ← −Σ p_k Δ_k / (K_k η)"""
        s.m = -(k.p * k.delta / (k.steps * k.lr)).sum(0)


@when(reading="released")
class FsaMomentumReleased(FsaMomentum):
    """The code divides by the first rate over the decay, whatever the client's rate is by now."""

    tunes = {"clipped": False}

    def server(self, k: Cohort, s: Server) -> None:
        """m ← −γ Σ p_k Δ_k / (K_k η_0)"""
        s.m = -(k.p * k.delta / (k.steps * (k.first_lr / k.lr_decay))).sum(0)


@when(reading="printed")
class FsaMomentumPrinted(FsaMomentum):
    """The + Σ Δ_k of Alg. 1, which with v subtracted walks back."""

    def server(self, k: Cohort, s: Server) -> None:
        """m ← +Σ p_k Δ_k / (K_k η)"""
        s.m = (k.p * k.delta / (k.steps * k.lr)).sum(0)


@part
class LocalMomentum(Part):
    """The clients' own SGD has momentum, from rest in every round (FedAWA's code; as PyTorch has it).

    momentum: 0.9 there. It carries along what the parts before it add, and weight decay too, so it stands last.
    """

    momentum: float = 0.9
    ranges = {"momentum": ("at least 0 and below 1", lambda v: 0 <= v < 1)}
    this_round = {"u": P}

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """u ← μ u + v + wd w_k;  v ← u − wd w_k   (wd is added behind the clip)"""
        decay = k.weight_decay * k.w
        k.u = self.momentum * k.u + v + decay
        return k.u - decay
