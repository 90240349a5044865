"""Who stands where: mean, spread, interval and n of each method, paired gains over a base, and both as LaTeX."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite, nan, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from fednb.base.checks import is_number
from fednb.base.inputs import closest, shown
from fednb.metrics.tidy import NOT_A_SETTING, gains
from fednb.study.claims.intervals import bounds

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.95  # of intervals
ESCAPES = {c: f"\\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
                                              "\\": r"\textbackslash{}"}  # fmt: skip


class UnknownBase(ValueError):
    """A method to compare with that is not among those that were run."""


def interval(values: Any, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a mean from a few numbers, by Student's t; not numbers where there are fewer than two.

    >>> from fednb.study.standings import interval
    >>> [round(x, 2) for x in interval([1.0, 2.0, 3.0])]            # 2 ± 4.303 / √3
    [-0.48, 4.48]
    """
    values = np.asarray(values, float)
    if len(values) < 2 or not np.isfinite(values).all():
        return nan, nan
    return bounds(float(values.mean()), float(values.std(ddof=1)) / sqrt(len(values)), len(values) - 1, (1 - level) / 2)


def standings(scores: pd.DataFrame, base: str = "", level: float = LEVEL) -> pd.DataFrame:
    """One row per setting and method: mean, std (over seeds), low and high (the interval of the mean), n, diverged.

    scores: tidy, with columns method, seed, measure and value, as `page.measure` gives them; a run that diverged has no
    value, and a method with such a run has no mean. base: a method; gain, gain_low and gain_high are what the others
    gain over it seed by seed, with the interval of these differences. Values that all rows share are left out.

    >>> from fednb.study.standings import standings
    >>> scores = pd.DataFrame({"method": ["A", "B"] * 3, "seed": [0, 0, 1, 1, 2, 2], "measure": "accuracy",
    ...                        "value": [70.0, 71.0, 72.0, 73.5, 74.0, 74.5]})
    >>> standings(scores, base="A")[["mean", "n", "gain"]]
            mean  n  gain
    method
    A       72.0  3   NaN
    B       73.0  3   1.0
    """
    if not is_number(level) or not 0 < level < 1:
        raise ValueError(f"level = {shown(level)}: must be above 0 and below 1, such as {LEVEL}")
    keys = [*settings_of(scores), "method"]
    told = {"mean": _mean, "std": _std, "low": lambda x: interval(x, level)[0], "high": lambda x: interval(x, level)[1],
            "n": "size", "diverged": lambda x: int((~np.isfinite(x.astype(float))).sum())}  # fmt: skip
    table = scores.groupby(keys, sort=False, dropna=False)["value"].agg(**told)
    if not base:
        return table
    found = _gains(scores, base).groupby(keys, sort=False, dropna=False)["value"]
    more = found.agg(gain=_mean, gain_low=lambda x: interval(x, level)[0], gain_high=lambda x: interval(x, level)[1])
    return table.join(more) if len(more) else table.assign(gain=nan, gain_low=nan, gain_high=nan)


def settings_of(scores: pd.DataFrame) -> list[str]:
    """The columns of a tidy table that tell its settings apart."""
    return [c for c in scores if c not in NOT_A_SETTING and scores[c].nunique(dropna=False) > 1]


def check_base(base: str, names: Iterable[str]) -> None:
    """Refuse a base that is not among the methods; '' is no base."""
    if base and base not in names:
        raise UnknownBase(f"base = {shown(base)}: no such method; closest: {closest(base, names)}")


def _gains(scores: pd.DataFrame, base: str) -> pd.DataFrame:
    names = dict.fromkeys(scores["method"])
    check_base(base, names)
    over = {name: base for name in names if name != base}
    return gains(scores, over, str(scores["measure"].iloc[0]))


def _mean(values: pd.Series) -> float:
    return float(values.astype(float).mean(skipna=False))


def _std(values: pd.Series) -> float:
    return float(values.astype(float).std(skipna=False))


def best_of(scores: pd.DataFrame, level: float = LEVEL, lowest: bool = False) -> set[tuple[Any, ...]]:
    """The rows of `standings` that are best, or not told apart from the best: (settings..., method).

    The best of a setting has the highest mean (the lowest, if asked). Another is not told apart where the interval of
    its differences to it, seed by seed, has 0 in it. A method with a run that diverged is never best.
    """
    sign, keys = -1.0 if lowest else 1.0, settings_of(scores)
    found: set[tuple[Any, ...]] = set()
    for values, part in scores.groupby(keys, sort=False, dropna=False) if keys else [((), scores)]:
        means = sign * part.groupby("method", sort=False)["value"].agg(_mean)
        if not means.notna().any():
            continue
        first = str(means.idxmax())
        behind = _gains(part.assign(value=sign * part["value"].astype(float)), first)
        for name, each in behind.groupby("method"):
            low, high = interval(each["value"], level)
            if low <= 0 <= high or (len(each) and (each["value"] == 0).all()):
                found.add((*values, name))
        found.add((*values, first))
    return found


def as_latex(scores: pd.DataFrame, level: float = LEVEL, lowest: bool = False, digits: int = 2) -> str:
    r"""A table for a paper: methods down, settings across, mean ± standard deviation, the best in bold.

    Needs \usepackage{booktabs}. Bold are the best of each column and all that are not told apart from it (`best_of`);
    the first line is a comment that says so.
    """
    keys = settings_of(scores)
    scores = scores.assign(**{key: scores[key].astype(object).where(scores[key].notna(), "") for key in keys})
    table = standings(scores, level=level)
    best = best_of(scores, level, lowest)
    columns = list(dict.fromkeys(row[:-1] for row in _rows(table)))
    cells = {row: _cell(seen, row in best, digits) for row, seen in zip(_rows(table), table.itertuples(), strict=True)}
    lines = [_header(columns, keys, str(scores["measure"].iloc[0]))] + [
        " & ".join([escaped(name), *(cells.get((*column, name), "--") for column in columns)]) + r" \\"
        for name in dict.fromkeys(scores["method"])
    ]
    n = sorted({int(x) for x in table["n"]})
    what, seeds = scores["measure"].iloc[0], " or ".join(map(str, n))
    said = (f"% {what}, mean and standard deviation over n = {seeds} seeds; bold: the best, and those whose paired "
            f"difference to it has 0 in its {100 * level:g}% interval")  # fmt: skip
    begin, end = rf"\begin{{tabular}}{{l{'c' * len(columns)}}}", r"\end{tabular}"
    return "\n".join([said, begin, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", end]) + "\n"


def _rows(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    """The index of `standings` as tuples, also where no setting varies."""
    return [row if isinstance(row, tuple) else (row,) for row in table.index]


def _header(columns: list[tuple[Any, ...]], keys: list[str], measure: str) -> str:
    """The names of all columns; a value that a method does not have is left out."""
    told = [[f"{key} {value}" for key, value in zip(keys, column, strict=True) if value != ""] for column in columns]
    return " & ".join(["method", *(escaped(", ".join(each) or measure) for each in told)]) + r" \\"


def _cell(seen: Any, bold: bool, digits: int) -> str:
    if seen.diverged:
        return f"diverged ({seen.diverged} of {seen.n})"
    number = f"{seen.mean:.{digits}f}" if isfinite(seen.mean) else "--"
    number = rf"\textbf{{{number}}}" if bold else number
    return number + (rf" $\pm$ {seen.std:.{digits}f}" if isfinite(seen.std) else "")


def escaped(text: str) -> str:
    """A text for LaTeX.

    >>> from fednb.study.standings import escaped
    >>> escaped("FedSAM_D & 5%")
    'FedSAM\\\\_D \\\\& 5\\\\%'
    """
    return "".join(ESCAPES.get(letter, letter) for letter in text)
