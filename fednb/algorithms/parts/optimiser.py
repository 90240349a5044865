"""How clients step: Adam in place of SGD, and schedules of the rate over rounds. `LocalMomentum` is SGD's momentum.

These parts stand behind all others of a method: they turn a finished direction into a step.

>>> fn.method("fedsam + adamw(beta2=0.99) + warmup(5) + cosinerate(300)").parameters()["beta2"]
0.99
"""

from __future__ import annotations

from math import cos, inf, pi, prod
from typing import Any

from torch import Tensor

from fednb.base.checks import is_whole
from fednb.core.record import Cohort, P, Server
from fednb.core.rounds import ABOVE_0, AT_LEAST_0, SHARE, Method, Part, Range, part
from fednb.core.vectors import clip

BELOW_1: Range = ("at least 0 and below 1", lambda v: 0 <= v < 1)
AT_LEAST_ONE_ROUND: Range = ("a whole number of at least 1", lambda v: is_whole(v, 1))


@part
class AdamW(Part):
    """Clients step by Adam with decoupled weight decay, from rest in every round (Loshchilov and Hutter 2019).

    beta1, beta2, eps: 0.9, 0.999 and 1e-8 as in PyTorch, whose `torch.optim.AdamW` it is. Both moments begin at zero in
    every round, so that nothing more is sent or kept between rounds. It works on what the parts before it make of the
    gradient, so it stands behind them. The setting's `clip_norm` acts on that, not on Adam's direction, whose length
    grows with the model. Rates of about 0.001 suit it. Control variates and client momentum, which divide a client's
    move by its rate and steps, see Adam's mean direction in place of a mean gradient.

    >>> fn.method("scaffold + adamw").parts[-1]
    AdamW(beta1=0.9, beta2=0.999, eps=1e-08)
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    ranges = {"beta1": BELOW_1, "beta2": BELOW_1, "eps": ABOVE_0}
    this_round = {"adam_m": P, "adam_v": P, "adam_m_share": 1, "adam_v_share": 1, "longest": 1}

    def start(self, k: Cohort, s: Server) -> None:
        """m, u ← 0;  clip acts on g below, and not on v"""
        k.longest = inf if k.clip_norm is None else k.clip_norm
        k.clip_norm = None

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← m̂ / (√û + ε);  m, u: means of g, g²,  g = clip(v)"""
        return self._direction(k, clip(v, k.longest))

    def _direction(self, k: Cohort, g: Tensor) -> Tensor:
        """The mean of gradients over the root of the mean of their squares, each over the share that it has seen."""
        k.adam_m = self.beta1 * k.adam_m + (1 - self.beta1) * g
        k.adam_v = self.beta2 * k.adam_v + (1 - self.beta2) * g * g
        k.adam_m_share = self.beta1 * k.adam_m_share + (1 - self.beta1)  # 1 − β₁ⁱ without cancellation
        k.adam_v_share = self.beta2 * k.adam_v_share + (1 - self.beta2)
        u = (k.adam_v / k.adam_v_share).abs()  # negative only where lanes try a step from any numbers
        return k.adam_m / k.adam_m_share / (u.sqrt() + self.eps)


@part
class Adam(AdamW):
    """Clients step by Adam, from rest in every round (Kingma and Ba 2015): `torch.optim.Adam`, weight decay included.

    beta1, beta2, eps: 0.9, 0.999 and 1e-8 as in PyTorch. Weight decay is added to the gradient that the moments see;
    `AdamW` takes it out of them. Moments, clip and place among the parts are those of `AdamW`.

    >>> fn.cost(fn.method("fedavg + adam")) == fn.cost(fn.method("fedavg"))      # one gradient a step, nothing sent
    True
    """

    def correct(self, k: Cohort, s: Server, v: Tensor) -> Tensor:
        """v ← m̂ / (√û + ε) − wd w_k;  m, u: means of g, g²,  g = clip(v) + wd w_k"""
        decay = k.weight_decay * k.w
        return self._direction(k, clip(v, k.longest) + decay) - decay


class RateSchedule(Part):
    """A factor on the clients' learning rate that depends on the round.

    Factors multiply: with each other, and with the setting's `lr_decay`, which a run without it sets to 1.
    """

    def factor(self, t: int) -> float:
        """The factor of round t, counted from 0."""
        raise NotImplementedError


@part
class CosineRate(RateSchedule):
    """The rate falls along half a cosine over the rounds (Loshchilov and Hutter 2017).

    over: the rounds of the fall, usually all that the setting has from round `after` on; rounds behind them keep the
    rate of its last. A number of its own, so that a run that goes on to more rounds has the same beginning.
    low: what it falls towards, as a share of the first rate. after: the round from which it falls; with
    `WarmUp(5)` before it, 5.

    >>> [round(fn.parts.CosineRate(over=4).factor(t), 3) for t in range(6)]
    [1.0, 0.854, 0.5, 0.146, 0.146, 0.146]
    """

    over: int = 100
    low: float = 0.0
    after: int = 0
    ranges = {"over": AT_LEAST_ONE_ROUND, "low": SHARE, "after": AT_LEAST_0}

    def factor(self, t: int) -> float:
        i = min(max(t - self.after, 0), self.over - 1)  # never quite at the end, where the rate would be 0
        return self.low + (1 - self.low) * (1 + cos(pi * i / self.over)) / 2

    def start(self, k: Cohort, s: Server) -> None:
        """η ← η (low + (1 − low) (1 + cos(π t/T)) / 2),  T = over"""
        k.lr = self.factor(s.t) * k.lr


@part
class StepRate(RateSchedule):
    """The rate is multiplied by a factor at some rounds.

    at: the rounds, counted from 0. by: the factor, once for each of them that has come.

    >>> [fn.parts.StepRate(at=(2, 4), by=0.5).factor(t) for t in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """

    at: tuple[int, ...] = (50, 75)
    by: float = 0.1
    ranges = {
        "at": ("rounds, such as (50, 75)", lambda v: len(v) > 0 and all(is_whole(t) for t in v)),
        "by": ("above 0 and at most 1", lambda v: 0 < v <= 1),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "at", tuple(int(t) for t in self.at))  # a list, from a file, makes the same key

    def factor(self, t: int) -> float:
        return self.by ** sum(t >= each for each in self.at)

    def start(self, k: Cohort, s: Server) -> None:
        """η ← η byⁿ, n the rounds of `at` that have come"""
        k.lr = self.factor(s.t) * k.lr


@part
class WarmUp(RateSchedule):
    """The rate grows in equal steps over the first rounds (Goyal et al. 2017).

    over: the rounds that it takes; the one behind them has the whole rate. first: the share of the rate in round 0.

    >>> [round(fn.parts.WarmUp(over=2, first=0.5).factor(t), 3) for t in range(4)]
    [0.5, 0.75, 1.0, 1.0]
    """

    over: int = 5
    first: float = 0.1
    ranges = {"over": AT_LEAST_ONE_ROUND, "first": ("above 0 and at most 1", lambda v: 0 < v <= 1)}

    def factor(self, t: int) -> float:
        return self.first + (1 - self.first) * min(t / self.over, 1.0)

    def start(self, k: Cohort, s: Server) -> None:
        """η ← η (first + (1 − first) min(t/T, 1)),  T = over"""
        k.lr = self.factor(s.t) * k.lr


def rate_factor(method: Method, t: int) -> float:
    """What the schedules of a method make of the setting's learning rate in round t: 1 where it has none."""
    schedules: list[Any] = [p for p in method.parts if isinstance(p, RateSchedule)]
    return prod((p.factor(t) for p in schedules), start=1.0)
