"""FedFSA (Xing et al. 2025): a larger radius on the layers that moved most, and the released code's local rate."""

from __future__ import annotations

import torch
from torch import Tensor

from fednb.base.streams import joint_seed, stream
from fednb.core.readings import in_turn, when
from fednb.core.record import Cohort, L, Server
from fednb.core.rounds import AT_LEAST_0, Part, part
from fednb.core.vectors import Layout, clip, unit

NO_WEIGHTS = ("bn", "norm", "bias")  # names that the released code never selects
SHORTCUTS = ("downsample", "shortcut")  # and neither these, though they have weights


def weights_only(layout: Layout, shortcuts: bool = False) -> list[bool]:
    """The layers that can be selected: weights of convolutions and linear layers, shortcuts left out or not."""
    excluded = NO_WEIGHTS if shortcuts else NO_WEIGHTS + SHORTCUTS
    plain = [not any(word in name.lower() for word in excluded) for name in layout.names]
    return [ok and len(shape) > 1 for ok, shape in zip(plain, layout.shapes, strict=True)]


def _scaled(x: Tensor) -> Tensor:
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low).clamp_min(torch.finfo(x.dtype).tiny)


def _as_it_is(x: Tensor) -> Tensor:
    return x


def layer_moves(layout: Layout, w: Tensor, w0: Tensor, reading: str = "paper", layer_score: str = "mean") -> Tensor:
    """How much each layer changed from w0 to w, `[..., L]` (Eq. 11): the "mean" or the "sum" of squared differences.

    reading: "released" scales each layer to [0, 1] first, before and after by themselves; "paper" takes raw weights.
    """
    seen = _scaled if reading == "released" else _as_it_is
    pairs = zip(layout.layers(w).values(), layout.layers(w0).values(), strict=True)
    squares = [(seen(after) - seen(before)).square() for after, before in pairs]
    return torch.stack([x.mean(-1) if layer_score == "mean" else x.sum(-1) for x in squares], dim=-1)


@part
class FlexibleRadius(Part):
    """A larger radius on the `top` most sensitive layers of each client's last round (FedFSA, Alg. 1; FSA elsewhere).

    rho, rho_larger, top: 0.1, 0.2, 2 on CIFAR-10; 0.05, 0.9, 2 on CIFAR-100; 0.05, 1.0, 5 with ResNet-18. The norm is
    that of the whole gradient. At a client's first participation no layer is larger.
    scheme: "fsa" takes the most sensitive, "reverse" the least, "random" any (by run, `seed`, round and
    client).
    layer_score: how the changes of a layer become one number. "released", the code's, is the mean squared change of
    weights that were scaled to [0, 1]; "sum" is Eq. 11 as derived, where Eq. 8 and 10 are inner products, so that it
    is a squared norm; "mean" is ours, in neither paper nor code. With reading="released", the latter two are scaled.
    shortcuts: True lets convolutions in shortcuts be selected too; the code leaves them out by name.
    """

    rho: float = 0.1
    rho_larger: float = 0.2
    top: int = 2
    scheme: str = "fsa"
    reading: str = "paper"
    seed: int = 0
    layer_score: str = "released"
    shortcuts: bool = False
    ascends = True
    ranges = {
        "rho": AT_LEAST_0,
        "rho_larger": AT_LEAST_0,
        "top": ("a whole number of at least 0", lambda v: v == int(v) >= 0),
        "scheme": ("fsa, reverse or random", lambda v: v in ("fsa", "reverse", "random")),
    }
    per_client = {"large": L}
    this_round = {"sensitivity": L}

    def perturb(self, k: Cohort, s: Server, delta: Tensor | None) -> Tensor:
        """δ ← ρ_l ∇L(w_k) / ‖∇L(w_k)‖,  ρ_l = ρ_larger on the selected layers, ρ elsewhere"""
        radius = self.rho + (self.rho_larger - self.rho) * k.large
        return k.layout.spread(radius) * unit(clip(k.grad(k.w), k.clip_norm))

    finish = in_turn("measure", "select")

    def measure(self, k: Cohort, s: Server) -> None:
        """S_l ← mean (scaled(w_k) − scaled(w))²"""
        k.sensitivity = layer_moves(k.layout, k.w, k.w0, "released")

    def select(self, k: Cohort, s: Server) -> None:
        """select the layers with the largest S_l, for this client's next round"""
        score = k.sensitivity
        allowed = torch.tensor(weights_only(k.layout, self.shortcuts), device=score.device).expand_as(score)
        if self.scheme == "random":
            score = torch.stack([self._drawn(s, i, score.shape[-1]) for i in k.ids]).to(score)
        if self.scheme == "reverse":
            allowed, score = allowed & (score > 0), -score
        score = torch.where(allowed, score, -torch.inf)
        rank = score.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        k.large = ((rank < self.top) & allowed).to(k.large.dtype)

    def _drawn(self, s: Server, client: int, layers: int) -> Tensor:
        return torch.from_numpy(stream(joint_seed(s.seed, self.seed), "fsa", s.t, client).random(layers))


@when(layer_score="sum")
class FlexibleRadiusSum(FlexibleRadius):
    """The sum of the raw squares, Eq. 11 as derived: large layers count more."""

    def measure(self, k: Cohort, s: Server) -> None:
        """S_l ← Σ (w_k − w)²"""
        k.sensitivity = layer_moves(k.layout, k.w, k.w0, layer_score="sum")


@when(layer_score="mean")
class FlexibleRadiusMean(FlexibleRadius):
    """The mean of the raw squares, which is ours: neither the paper nor its code has it."""

    def measure(self, k: Cohort, s: Server) -> None:
        """S_l ← mean (w_k − w)²"""
        k.sensitivity = layer_moves(k.layout, k.w, k.w0)


@when(reading="released", layer_score="sum")
class FlexibleRadiusScaledSum(FlexibleRadius):
    """The sum instead of the mean over weights scaled to [0, 1]."""

    def measure(self, k: Cohort, s: Server) -> None:
        """S_l ← Σ (scaled(w_k) − scaled(w))²"""
        k.sensitivity = layer_moves(k.layout, k.w, k.w0, "released", "sum")


@when(reading="released", layer_score="mean")
class FlexibleRadiusScaledMean(FlexibleRadius):
    """The mean over weights scaled to [0, 1], which is layer_score="released"."""

    def measure(self, k: Cohort, s: Server) -> None:
        """S_l ← mean (scaled(w_k) − scaled(w))²"""
        k.sensitivity = layer_moves(k.layout, k.w, k.w0, "released")


@part
class ClientRate(Part):
    """Whose learning rate decays: the round's for everyone, or in FedFSA's code each client's own, epoch by epoch."""

    reading: str = "paper"
    per_client = {"epochs_done": 1}

    def finish(self, k: Cohort, s: Server) -> None:
        """e ← e + E"""
        k.epochs_done = k.epochs_done + k.epochs


@when(reading="released")
class ClientRateReleased(ClientRate):
    """Each client's own rate, which decays with the epochs that it has trained."""

    tunes = {"own_rate": True}

    def start(self, k: Cohort, s: Server) -> None:
        """η_k ← η_0 γ^e, e the epochs that this client has trained"""
        k.lr = k.first_lr * k.lr_decay**k.epochs_done

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """η_k ← γ η_k at each new epoch"""
        turn = (k.step > 0) & (k.step % (k.steps / k.epochs) == 0)
        k.lr = torch.where(turn, k.lr * k.lr_decay, k.lr)
        return v
