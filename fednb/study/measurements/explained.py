"""Shares of a gain: how much of what one method gains others gain too, with intervals that a ratio can have."""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.metrics.tidy import gains
from fednb.study.claims.intervals import bounds, ratio_bounds
from fednb.study.claims.tables import by_setting
from fednb.study.measurements.accuracy import accuracy
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

SHARE = "share of the gain"  # of all seeds together
OF_A_SEED = "share of the gain, one seed"


class NothingToShare(ValueError):
    """Gains without those of the method whose gain is shared."""


@measurement("explained")
def explained(results: Results, of: str, over: str) -> pd.DataFrame:
    """What each method gains over `over` as a share of what the method `of` gains, in percent (notebooks/across/06).

    The rows are those of `shares_of`.
    """
    seen = accuracy(results)
    return shares_of(gains(seen, {name: over for name in dict.fromkeys(seen["method"]) if name != over}), of)


def shares_of(gained: pd.DataFrame, of: str) -> pd.DataFrame:
    """What each method gains as a share of what `of` gains, in percent. gained: tidy, from `fn.gains`.

    For each setting and method a row per seed that both have, measure "share of the gain, one seed"; and a row of all
    these seeds, measure "share of the gain", seed "all": value is the ratio of the mean gains, low and high its 90%
    interval by Fieller's theorem, n the number of seeds; gain, gain_low and gain_high are in points. The interval is
    unbounded where the gain of `of` is not clearly above 0. No share where `of` gains nothing, or where a run diverged.
    """
    import pandas as pd

    if of not in set(gained["method"]):
        raise NothingToShare(f"no gain of {of!r} is there, and without it nobody has a share; run it and its base")
    rows: list[dict[str, Any]] = []
    for where, part in by_setting(gained):
        by_seed = {method: own.set_index("seed")["value"] for method, own in part.groupby("method", sort=False)}
        for method, own in by_seed.items() if of in by_seed else ():  # in this setting it may not have been run
            seeds = own.index.intersection(by_seed[of].index)
            rows += _rows(where | {"method": method}, own[seeds], by_seed[of][seeds])
    return pd.DataFrame(rows)


def _rows(about: dict[str, Any], gain: pd.Series, whole: pd.Series) -> list[dict[str, Any]]:
    """The rows of one method in one setting. gain, whole: what it and the other method gain, with the same seeds."""
    if gain.empty:
        return []
    a, b = gain.to_numpy(float), whole.to_numpy(float)
    known = bool(np.isfinite(a).all() and np.isfinite(b).all())
    low, high = ratio_bounds(a, b) if known else (nan, nan)
    gain_low, gain_high = _interval(a) if known else (nan, nan)
    each = [about | {"seed": seed, "measure": OF_A_SEED, "value": _percent(x, y), "gain": x}
            for seed, x, y in zip(gain.index, a, b, strict=True)]  # fmt: skip
    return [*each, about | {"seed": "all", "measure": SHARE, "value": _percent(a.mean(), b.mean()), "gain": a.mean(),
                            "low": 100 * low, "high": 100 * high, "n": len(a), "gain_low": gain_low,
                            "gain_high": gain_high}]  # fmt: skip


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole > 0 else nan


def _interval(sample: np.ndarray) -> tuple[float, float]:
    """The 90% interval of a mean; unbounded for one number."""
    if len(sample) < 2:
        return -inf, inf
    return bounds(float(sample.mean()), float(sample.std(ddof=1)) / len(sample) ** 0.5, len(sample) - 1)
