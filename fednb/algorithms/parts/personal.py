"""Personalised learning: heads that never leave their client, and models mixed before they are trained."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from fednb.core.readings import in_turn, when
from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import AT_LEAST_0, FIRST_MODEL, Method, Part, part
from fednb.core.vectors import Layout


def over(layout: Layout, layers: Sequence[bool], like: Tensor) -> Tensor:
    """A mask `[P]` over the parameters of some layers."""
    return _mask(layout, tuple(layers), like.device)


@lru_cache(maxsize=16)
def _mask(layout: Layout, layers: tuple[bool, ...], device: torch.device) -> Tensor:
    return layout.spread(torch.tensor(layers, device=device))


@part
class OnlyHead(Part):
    """Train the classifier alone: the last round of the personalised evaluation (FedFSA, after FedCR's code).

    clipped: False takes steps of any length, as FedFSA's code does for FedFSA and MoFedSAM, and for no other method.
    own_rate: True takes the rate that each client's own has reached, as that code does.
    """

    clipped: bool = True
    own_rate: bool = False
    start = in_turn("spare", "take_rate")

    @classmethod
    def after(cls, method: Method) -> OnlyHead:
        """How classifiers are tuned after a method: as its parts declare in `tunes`, True where they disagree."""
        asked = [p.tunes for p in method.parts]
        return cls(**{name: any(each.get(name) for each in asked) for each in asked for name in each})

    def spare(self, k: Cohort, s: Server) -> None:
        """wd ← 0 outside the classifier"""
        k.weight_decay = k.weight_decay * over(k.layout, k.layout.select("@head"), k.w).to(k.w.dtype)
        if not self.clipped:
            k.clip_norm = None

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← 0 outside the classifier"""
        return torch.where(over(k.layout, k.layout.select("@head"), v), v, 0.0)

    def finish(self, k: Cohort, s: Server) -> None:
        """b_k ← b, BatchNorm's statistics of the body"""
        k.b = s.b


@when(own_rate=True)
class OnlyHeadOwnRate(OnlyHead):
    """Each client's own rate (see `ClientRate`), which stays as it is."""

    per_client = {"epochs_done": 1}

    def take_rate(self, k: Cohort, s: Server) -> None:
        """η_k ← η_0 γ^e, e the epochs that this client has trained"""
        k.lr = k.first_lr * k.lr_decay**k.epochs_done


@part
class PrivateHead(Part):
    """The classifier stays with its client and is never averaged (FedPer, Arivazhagan et al. 2019).

    layers: which are private, by name; "@head" is the last module. Every head starts from the common first model.
    """

    layers: str = "@head"
    owns_model = True
    per_client = {"own": P}

    def initial(self) -> dict[str, float | str]:
        return {"own": FIRST_MODEL}

    def private(self, layout: Layout) -> list[bool]:
        return list(layout.select(self.layers))

    def start(self, k: Cohort, s: Server) -> None:
        """w_k ← (w body, own head)"""
        k.w0 = k.w = torch.where(over(k.layout, self.private(k.layout), k.w), k.own, k.w0)

    def finish(self, k: Cohort, s: Server) -> None:
        """own ← w_k;  Δ_k ← (Δ_k body, 0)"""
        k.own = k.w
        k.delta = torch.where(over(k.layout, self.private(k.layout), k.w), 0.0, k.delta)


@part
class LocalAggregation(Part):
    """Mix the received model into one's own, weight by weight, before training (FedALA, Zhang et al. 2023).

    share 80, tensors 2, eta 1, threshold 0.1, window 10: the released code, whose p counts tensors, not layers.
    most: passes of the first phase at the most, 50 (assumed). The weights A are learned on the first `share` percent
    of the round's batches; later rounds make one pass.
    newcomers: who comes for the first time can "take" the received model as it is; where that is not the first model,
    the released code has them "mix" it with the first, which is what their own model is.
    """

    share: float = 80.0
    tensors: int = 2
    eta: float = 1.0
    threshold: float = 0.1
    window: int = 10
    most: int = 50
    newcomers: str = "take"
    ranges = {"share": ("above 0 and at most 100", lambda v: 0 < v <= 100), "eta": AT_LEAST_0,
              "threshold": AT_LEAST_0, "tensors": ("at least 1", lambda v: v >= 1),
              "window": ("at least 2", lambda v: v >= 2), "most": ("from 1 to 10000", lambda v: 1 <= v <= 10_000),
              "newcomers": ("take or mix", lambda v: v in ("take", "mix"))}  # fmt: skip
    per_client = {"theta": P, "A": P, "rounds_in": 1}
    tunes = {"clipped": True}  # with FSA, too

    def initial(self) -> dict[str, float | str]:
        return {"theta": FIRST_MODEL, "A": 1.0}

    def start(self, k: Cohort, s: Server) -> None:
        """w_k ← θ_k + (w − θ_k) A on the top tensors, w below;  A ← clip(A − η_A ∇L(w_k) (w − θ_k), 0, 1)"""
        top = k.layout.top(self.tensors)
        apart, A = (k.w0 - k.theta)[:, -top:], k.A[:, -top:]
        met = k.rounds_in > 0 if self.newcomers == "take" else (k.w0 != k.theta).any(-1, keepdim=True)
        passes, losses = torch.where(k.rounds_in <= 1, self.most, 1), list[Tensor]()
        going = met
        for turn in range(int(torch.where(met, passes, 0).max())):
            going = going & (turn < passes) & ~self._settled(losses, k.rounds_in)
            if not going.any():
                break
            A, loss = self._one_pass(k, apart, A, going)
            losses.append(loss)
        k.A = torch.cat([k.A[:, :-top], A], dim=-1)
        k.w = torch.where(met, torch.cat([k.w0[:, :-top], _mixed(k.w0[:, -top:], apart, A)], dim=-1), k.w0)
        k.rounds_in = k.rounds_in.clamp_min(1) + met.to(k.rounds_in)  # 1: has trained; 2 and more: has mixed

    def _one_pass(self, k: Cohort, apart: Tensor, A: Tensor, going: Tensor) -> tuple[Tensor, Tensor]:
        """Learn A over the client's batches once; returns it with the loss of the last batch."""
        w, top, last = k.w0.clone(), apart.shape[1], torch.zeros_like(k.loss)
        batches = (self.share / 100 * k.steps / k.epochs).ceil()
        for step in range(int(batches.max())):
            used = going & (step < batches)
            w[:, -top:] = _mixed(k.w0[:, -top:], apart, A)
            g, loss, _ = k.look(w, step, who=used, last=self.tensors)
            A = torch.where(used, (A - self.eta * g * apart).clamp(0, 1), A)
            last = torch.where(used, loss, last)
        return A, last

    def _settled(self, losses: list[Tensor], rounds_in: Tensor) -> Tensor:
        """Whether the last passes' losses have come to rest."""
        if len(losses) < self.window:
            return torch.zeros_like(rounds_in, dtype=torch.bool)
        return torch.stack(losses[-self.window :]).std(0, correction=0) < self.threshold

    def finish(self, k: Cohort, s: Server) -> None:
        """θ_k ← w_k"""
        k.theta = k.w


def _mixed(w: Tensor, apart: Tensor, A: Tensor) -> Tensor:
    """θ + (w − θ) A, where w and θ are so far apart."""
    return w - apart * (1 - A)
