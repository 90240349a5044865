"""How often the rule of verdicts errs: made numbers with a known truth, put through the statistics that judge claims.

The first rule ("true in every setting and seed", "false in some setting for every seed") is here for comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.study.claims import intervals as stat
from fednb.study.claims.evidence import QUARTER

if TYPE_CHECKING:
    import pandas as pd

RIVALS, LEVELS = 5, 4  # of a sentence "first of all", and of one along a column
FAR = 9.0  # standard deviations that rivals are behind who do not matter
OUTCOMES = ("holds", "average", "fails", "open")
Tests = tuple[np.ndarray, np.ndarray, np.ndarray]  # p-values for and against (settings, then their mean); old votes


def rates(
    kind: str = "above", n: int = 3, settings: int = 6, effect: float = 0.0, draws: int = 2000, seed: int = 0,
    bound: float = 0.0, printed: float = nan, rule: str = "new",
) -> dict[str, float]:  # fmt: skip
    """The shares of outcomes among `draws` made experiments whose true effect is known.

    kind: "above" (left above right), "inside" (within `bound`), "first" (above each of 5 rivals), "top" (at most one of
    5 rivals above), "trend" (grows over 4 levels, no step back), "peak" (one of 2 inner levels above both ends).
    n: seeds. effect: the true effect in every setting, in standard deviations of a paired difference. printed: what the
    paper prints. rule: "new", or "old" for the one that counted seeds.

    >>> from fednb.study.claims.simulation import rates
    >>> old, new = (rates("above", n=3, settings=6, draws=2000, rule=rule)["fails"] for rule in ("old", "new"))
    >>> old > 0.5, new < 0.06                                        # no true difference: "does not hold" by chance
    (True, True)
    """
    runs = made_runs(kind, np.random.default_rng(seed), draws, settings, n, effect)
    found = outcomes(kind, runs, bound, printed, rule)
    return {outcome: float((found == outcome).mean()) for outcome in OUTCOMES}


def made_runs(kind: str, rng: np.random.Generator, draws: int, settings: int, n: int, effect: float) -> np.ndarray:
    """Numbers of runs [draws, settings, runs, n] with a true effect; a difference of two runs has the deviation 1.

    Runs: left, then right or the rivals; for "trend" left at each level, then right; for "peak" each level. Of several
    rivals one is as near as the effect says (two for "top"), the hardest case; the others are far behind.
    """
    truth = {
        "above": [effect, 0.0],
        "inside": [effect, 0.0],
        "first": [effect, 0.0] + [effect - FAR] * (RIVALS - 1),
        "top": [effect, 0.0, 0.0] + [effect - FAR] * (RIVALS - 2),
        "trend": [*np.linspace(0, effect, LEVELS), *np.zeros(LEVELS)],
        "peak": [0.0, effect, 0.0, 0.0],
    }[kind]
    return np.array(truth)[:, None] + rng.normal(0, np.sqrt(0.5), (draws, settings, len(truth), n))


def with_noisy_rival(runs: np.ndarray, rival: int, ratio: float) -> np.ndarray:
    """Made runs with one rival (1 is the first after left) that scatters `ratio` times as much about its mean."""
    middle = runs[:, :, [rival]].mean()
    scattered = middle + ratio * (runs[:, :, [rival]] - middle)
    return np.concatenate([runs[:, :, :rival], scattered, runs[:, :, rival + 1 :]], axis=2)


def outcomes(kind: str, runs: np.ndarray, bound: float = 0.0, printed: float = nan, rule: str = "new") -> np.ndarray:
    """The outcome of each experiment by the new rule or the old."""
    holds, fails, old = KINDS[kind](runs, bound, printed)
    if rule == "old":
        return np.where(old.all((-1, -2)), "holds", np.where((~old.any(-1)).any(-1), "fails", "open"))
    mean_holds, mean_fails = (p[:, -1] if runs.shape[1] > 1 else np.ones(len(p)) for p in (holds, fails))
    return stat.decide(holds[:, :-1], fails[:, :-1], mean_holds, mean_fails)


def _estimates(d: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
    """Means, standard errors and degrees of freedom of numbers [draws, settings, comparisons, n].

    The mean over settings stands at the end of the second axis. Comparisons share runs, and what is noisier has its own
    deviation, as in `intervals.Noise`.
    """
    settings, n = d.shape[1], d.shape[-1]
    each, df = d.var(-1, ddof=1), n - 1
    noisy = np.broadcast_to(stat.noisier(each.mean(1), settings * df)[:, None], each.shape)
    alone = np.zeros(each.shape, bool)
    if settings > 1:
        alone = stat.noisier(np.where(noisy, 0.0, each), np.where(noisy, 0.0, df), stat.UNLIKE / settings) & ~noisy
    rest = (~noisy & ~alone).sum(2, keepdims=True)
    own = np.where(noisy | alone, 0.0, each).sum(2, keepdims=True) / rest
    shared = 1 + (rest - 1) * stat.SHARED
    of_noisy = stat.noisier(np.moveaxis(each, 1, 2), df)
    apart = np.where(
        noisy, np.moveaxis(of_noisy, 1, 2), stat.noisier(own[..., 0], (rest * df / shared)[..., 0])[..., None]
    )
    cell, cell_df = np.where(noisy | alone, each, own), np.where(noisy | alone, df, rest * df / shared)
    pooled = np.where(
        noisy, each.mean(1, keepdims=True), (rest * own).sum(1, keepdims=True) / rest.sum(1, keepdims=True)
    )
    usual = (rest.sum(1, keepdims=True) * df) ** 2 / (rest * df * shared).sum(1, keepdims=True)
    all_df = np.where(noisy, settings * df, usual)
    unlike = apart | alone
    some = unlike.any(1, keepdims=True)
    total = cell.sum(1, keepdims=True)
    of_mean = np.where(some, total / settings**2, pooled[:, :1] / settings)
    welch = np.where(some, total**2 / (cell**2 / cell_df).sum(1, keepdims=True), all_df[:, :1])
    means = np.concatenate([d.mean(-1), d.mean((1, 3))[:, None]], axis=1)
    variances = np.concatenate([np.where(unlike, cell, pooled), of_mean], axis=1)
    return means, np.sqrt(variances / n), np.concatenate([np.where(unlike, cell_df, all_df), welch], axis=1)


def _beyond(bound: float, printed: float) -> float:
    """The bound that has to be missed before a sentence fails."""
    return bound + (QUARTER * max(0.0, printed - bound) if np.isfinite(printed) else 0.0)


def _above(runs: np.ndarray, bound: float, printed: float) -> Tests:
    d = runs[:, :, :1] - runs[:, :, 1:]
    at = _estimates(d)
    return stat.p_above(*at, bound)[..., 0], stat.p_below(*at, _beyond(bound, printed))[..., 0], d[:, :, 0] > bound


def _inside(runs: np.ndarray, bound: float, printed: float) -> Tests:
    d = runs[:, :, :1] - runs[:, :, 1:]
    at = _estimates(d)
    return stat.p_inside(*at, bound)[..., 0], stat.p_outside(*at, bound)[..., 0], np.abs(d[:, :, 0]) <= bound


def _first(runs: np.ndarray, bound: float, printed: float) -> Tests:
    d = runs[:, :, :1] - runs[:, :, 1:]
    at = _estimates(d)
    return stat.all_hold(stat.p_above(*at, bound)), stat.some_fails(stat.p_below(*at, bound)), d.min(2) > bound


def _top(runs: np.ndarray, bound: float, printed: float) -> Tests:
    d = runs[:, :, :1] - runs[:, :, 1:]
    at = _estimates(d)
    holds, fails = stat.all_hold(stat.p_above(*at, -bound), 1), stat.some_fails(stat.p_below(*at, -bound), 1)
    return holds, fails, (d <= -bound).sum(2) < 2


def _trend(runs: np.ndarray, bound: float, printed: float) -> Tests:
    """A straight line through the gains, which no step may contradict."""
    gains = runs[:, :, :LEVELS] - runs[:, :, LEVELS:]
    at = np.arange(LEVELS) - (LEVELS - 1) / 2
    trend = (at[:, None] * gains).sum(2, keepdims=True) / (at**2).sum() * (LEVELS - 1)
    line, steps = _estimates(trend), np.diff(gains, axis=2)
    back = stat.p_below(*_estimates(steps), -bound)[:, :-1]
    against = stat.p_below(*line, _beyond(0.0, printed))
    fails = stat.some_fails(np.concatenate([against[:, :-1], back], axis=-1))
    holds = stat.p_above(*line, 0.0)[..., 0]
    holds[:, :-1][stat.some_fails(back) <= stat.LEVEL] = 1.0
    return holds, np.concatenate([fails, against[:, -1:, 0]], 1), (steps > -bound).all(2)


def _peak(runs: np.ndarray, bound: float, printed: float) -> Tests:
    """Some inner level above both ends."""
    pairs = np.stack([runs[:, :, i] - runs[:, :, j] for i in (1, 2) for j in (0, 3)], axis=2)
    at = _estimates(pairs)
    holds, fails = stat.p_above(*at, bound), stat.p_below(*at, _beyond(bound, printed))
    inner = [slice(0, 2), slice(2, 4)]
    some = np.minimum(1.0, 2 * np.min([stat.all_hold(holds[..., i]) for i in inner], axis=0))
    none = np.max([stat.some_fails(fails[..., i]) for i in inner], axis=0)
    return some, none, runs[:, :, 1:3].max(2) > runs[:, :, [0, 3]].max(2) + bound


KINDS: dict[str, Callable[[np.ndarray, float, float], Tests]] = {
    "above": _above, "inside": _inside, "first": _first, "top": _top, "trend": _trend, "peak": _peak,
}  # fmt: skip
LIMITS = {"inside": (2.0, nan)}  # bound and printed effect, where they are not 0 and 2


def grid_of_rates(draws: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Error rates and power of the old rule and the new, for every kind, n and number of settings: a tidy table.

    Columns kind, n, settings, rule, truth, and the share of each outcome. truth: "no effect", or "as printed", which is
    2 standard deviations; for "inside" a difference of 2, the bound, or none.
    """
    import pandas as pd

    return pd.DataFrame(
        {"kind": kind, "n": n, "settings": settings, "rule": rule, "truth": truth}
        | rates(kind, n, settings, effect, draws, seed, *LIMITS.get(kind, (0.0, 2.0)), rule=rule)
        for kind in KINDS
        for n in (3, 5, 10)
        for settings in (1, 6, 12)
        for rule in ("old", "new")
        for truth, effect in _truths(kind).items()
    )


def _truths(kind: str) -> dict[str, float]:
    """The true effects at which a kind is tried: where the sentence is just false, and where it is as printed."""
    return {"no effect": 2.0, "as printed": 0.0} if kind == "inside" else {"no effect": 0.0, "as printed": 2.0}


def noisy_rivals(draws: int = 2000, seed: int = 0) -> pd.DataFrame:
    """How often "first of all" is judged wrongly, in percent, when one rival is noisier; left and rival 1 are level.

    Rows: who is the noisier one, the verdict, settings, seeds. Columns: its standard deviation beside the others'.
    """
    import pandas as pd

    rows = []
    for n, settings in product((3, 5), (1, 6)):
        runs = made_runs("first", np.random.default_rng(seed), draws, settings, n, 0.0)
        for (who, rival), ratio in product({"far behind": 2, "level": 1}.items(), (1.0, 2.0, 4.0, 8.0, 40.0)):
            said = outcomes("first", with_noisy_rival(runs, rival, ratio))
            spoken = {"holds": np.isin(said, ["holds", "average"]), "does not hold": said == "fails"}
            rows += [(who, verdict, settings, n, ratio, 100 * each.mean()) for verdict, each in spoken.items()]
    named = ["noisy rival", "verdict", "settings", "seeds", "sd, noisy rival / others", "percent"]
    return pd.DataFrame(rows, columns=named).set_index(named[:5])["percent"].unstack()
