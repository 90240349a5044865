"""What can be measured on the runs of a grid, by name: each a function from results to a tidy table.

A tidy table has the columns that tell settings apart, then method, seed, key, measure and value; claims are judged on
it, figures are drawn from it, and it is what is kept of a run that was made elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby, pairwise
from math import inf, nan
from typing import TYPE_CHECKING, Any

from fednb.data.sources import find as find_data
from fednb.engines.problem import class_counts
from fednb.metrics import (
    align,
    alike,
    composed,
    cost,
    echo,
    fairness,
    layers,
    local,
    reach,
    readouts,
    removed,
    sensitivity,
    separate,
    sharpness,
    skew,
    spectra,
    theory,
)
from fednb.metrics.tidy import gains

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Results


class UnknownEvidence(KeyError):
    """A name that no measurement has."""

    def __str__(self) -> str:
        return str(self.args[0])


def accuracy(results: Results, best_of: dict[str, list[str]] | None = None) -> pd.DataFrame:
    """The accuracy that the setting reports (best, last, or mean of the last ten), in percent: one row per run.

    best_of: a line that a table has for several methods together, such as {"FedLESAM(-S/-D)": ["FedLESAM-S", ...]}: in
    each setting the runs of the one whose mean over seeds is highest, under that name; the others are left out.
    """
    import pandas as pd

    rows = [
        {**c.tags, "method": c.label, "seed": r.seed, "key": r.key, "measure": "accuracy", "value": r.accuracy}
        for c, r in results
    ]
    table = pd.DataFrame(rows).astype({"value": float})
    for line, among in (best_of or {}).items():
        rest = table[~table["method"].isin(among)]
        table = pd.concat([rest, _best(table, line, among)]).sort_index(ignore_index=True)
    return table


def _best(table: pd.DataFrame, line: str, among: list[str]) -> pd.DataFrame:
    """The rows of the best of some methods, setting by setting, under the name that they share."""
    settings = [c for c in table if c not in ("method", "seed", "key", "measure", "value")]
    rivals = table[table["method"].isin(among)]
    known = rivals.assign(value=rivals["value"].fillna(-inf))  # who diverged is behind all
    means = known.groupby([*settings, "method"], dropna=False)["value"].transform("mean")
    highest = means.groupby([rivals[c] for c in settings], dropna=False).transform("max") if settings else means.max()
    return rivals[means == highest].drop_duplicates([*settings, "seed"]).assign(method=line)


def gained(results: Results, over: str) -> pd.DataFrame:
    """What each method gains over one of them in the same setting with the same seed, in points of accuracy."""
    seen = accuracy(results)
    return gains(seen, {name: over for name in dict.fromkeys(seen["method"]) if name != over}, how="left")


def curves(results: Results, most: int | None = None) -> pd.DataFrame:
    """The test accuracy of every evaluated round, in percent; of `most` rounds of each run, evenly, if it has more."""
    import pandas as pd

    rows = [
        {**c.tags, "method": c.label, "seed": r.seed, "key": r.key, "measure": "accuracy by round",
         "round": row["round"], "value": row["accuracy"]}
        for c, r in results for row in thinned(_evaluated(r), most)
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"value": float})


def _evaluated(run: Run) -> list[dict[str, Any]]:
    return [row for row in run.rows if row["accuracy"] is not None and not row.get("tuned")]


def thinned(rows: list[Any], most: int | None) -> list[Any]:
    """At most so many of a list, evenly spread, the last always among them.

    >>> thinned([1, 2, 3, 4, 5, 6, 7, 8], 4)
    [2, 4, 6, 8]
    """
    if most is None or len(rows) <= most:
        return rows
    return [rows[(i + 1) * len(rows) // most - 1] for i in range(most)]


def last_round(results: Results) -> pd.DataFrame:
    """The test accuracy of the last round of training, before any tuning, in percent: where a learning curve ends."""
    return _mean_where(results, "accuracy", lambda t, T: t == T - 1)


def early(results: Results, share: float = 0.25) -> pd.DataFrame:
    """The mean test accuracy over the first `share` of the rounds, in percent: how fast a run starts."""
    return _mean_where(results, "early accuracy", lambda t, T: t < max(1, share * T))


def late(results: Results, share: float = 0.5) -> pd.DataFrame:
    """The mean test accuracy over the last `share` of the rounds, in percent; nan where a run never got there."""
    return _mean_where(results, "late accuracy", lambda t, T: t >= min(T - 1, (1 - share) * T))


def _mean_where(results: Results, measure: str, holds: Callable[[int, int], bool]) -> pd.DataFrame:
    """The mean test accuracy over the rounds t of T for which something holds."""
    import pandas as pd

    rows = []
    for c, r in results:
        seen = [row["accuracy"] for row in _evaluated(r) if holds(row["round"], c.setting.rounds)]
        value = sum(seen) / len(seen) if seen else nan
        rows.append({**c.tags, "method": c.label, "seed": r.seed, "key": r.key, "measure": measure, "value": value})
    return pd.DataFrame(rows).astype({"value": float})


def setbacks(results: Results) -> pd.DataFrame:
    """How much test accuracy is lost from one evaluated round to the next, in percent, on average; 0 if it only rises.

    Smoothness of a learning curve as a number (FedFFT App. E.4); compare runs that are evaluated equally often.
    """
    import pandas as pd

    rows = []
    for c, r in results:
        seen = [row["accuracy"] for row in _evaluated(r)]
        lost = [max(0.0, before - after) for before, after in pairwise(seen)]
        value = sum(lost) / len(lost) if lost else nan
        rows.append({**c.tags, "method": c.label, "seed": r.seed, "key": r.key, "measure": "setback", "value": value})
    return pd.DataFrame(rows).astype({"value": float})


LOSSES = {"test_loss": "test loss", "train_loss": "training loss"}  # as the history has them, and in words


def losses(results: Results, most: int | None = None) -> pd.DataFrame:
    """Test and training loss of every evaluated round (FedSCAM Fig. 15), thinned like the curves.

    The training loss is the mean over clients of what they saw while training, each at its own moving model.
    """
    import pandas as pd

    rows = [
        {**c.tags, "method": c.label, "seed": r.seed, "key": r.key, "measure": f"{said} by round",
         "round": row["round"], "value": row[name]}
        for c, r in results for name, said in LOSSES.items() for row in thinned(_evaluated(r), most)
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"value": float})


def final_losses(results: Results) -> pd.DataFrame:
    """Test and training loss of the last round; nan where the run diverged."""
    import pandas as pd

    rows = [
        {**c.tags, "method": c.label, "seed": r.seed, "key": r.key, "measure": said,
         "value": _evaluated(r)[-1][name] if r.status == "finished" else nan}
        for c, r in results for name, said in LOSSES.items()
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"value": float})


def at_chance(results: Results, margin: float = 2.0) -> pd.DataFrame:
    """For how many evaluated rounds on end a run is back at guessing: the longest such stretch after it was above.

    Guessing is 100 / classes percent, give or take `margin` points (FedSCAM section 5.3: FedAvgM at about 10% in rounds
    6 to 13). A diverged run guesses to its end.
    """
    import pandas as pd

    rows = []
    for c, r in results:
        if not (classes := find_data(c.setting.data).classes):
            raise ValueError(f"at_chance: how many classes {c.setting.data!r} has is not known before it is read")
        guess = 100 / classes + margin
        low = [row["accuracy"] <= guess for row in _evaluated(r)]
        low += [True] * (c.setting.rounds - len(r.rows)) if r.status == "diverged" else []
        value = _longest(low[low.index(False) :]) if False in low else len(low)
        rows.append({**c.tags, "method": c.label, "seed": r.seed, "key": r.key, "measure": "rounds at chance",
                     "value": value})  # fmt: skip
    return pd.DataFrame(rows).astype({"value": float})


def _longest(low: list[bool]) -> int:
    """The longest stretch of true ones."""
    return max(len(list(same)) if is_low else 0 for is_low, same in groupby(low))


def spread_over_seeds(results: Results) -> pd.DataFrame:
    """The standard deviation of the reported accuracy over the seeds of a setting; nan of one seed or a diverged run.

    A seed changes the split of the data, the first model and the order of batches (FedSCAM section 5.4, Fig. 7).
    """
    seen = accuracy(results).drop(columns=["seed", "key"])
    same = [name for name in seen if name != "value"]
    found = seen.groupby(same, sort=False, dropna=False)["value"].agg(lambda each: each.std(skipna=False))
    return found.reset_index().assign(seed="all", measure="spread over seeds")


def client_sizes(results: Results) -> pd.DataFrame:
    """How many samples each client has: one row per client of every split, which the methods of a setting share."""
    import pandas as pd

    rows, seen = [], set()
    for c, r in results:
        split = (c.setting.data, str(c.setting.partition), c.setting.clients, c.setting.samples, r.seed)
        if split not in seen:
            seen.add(split)
            held = class_counts(c.setting, r.seed).sum(1).tolist()
            head = {**c.tags, "method": "all", "seed": r.seed, "measure": "samples"}
            rows += [{**head, "client": i, "value": float(n)} for i, n in enumerate(held)]
    return pd.DataFrame(rows)


def variance_by_layer(results: Results, what: str = "perturbation", bands: int = 10) -> pd.DataFrame:
    """The variance of each band in every layer, averaged over runs and rounds."""
    wide = spectra.by_layer(results, what, bands).rename_axis("layer").reset_index()
    return wide.melt("layer", var_name="band").assign(measure="variance by layer", seed="mean")


EVIDENCE: dict[str, Callable[..., Any]] = {
    "accuracy": accuracy,
    "gained": gained,
    "curves": curves,
    "last_round": last_round,
    "early": early,
    "late": late,
    "setbacks": setbacks,
    "losses": losses,
    "final_losses": final_losses,
    "at_chance": at_chance,
    "spread_over_seeds": spread_over_seeds,
    "by_client": fairness.by_client,
    "client_sizes": client_sizes,
    "class_skew": skew.class_skew,
    "size_skew": skew.size_skew,
    "variance_by_band": spectra.variance_by_band,
    "variance_by_layer": variance_by_layer,
    "distance_by_band": spectra.distance_by_band,
    "to_target": cost.to_target,
    "to_targets": cost.to_targets,
    "per_round": cost.per_round,
    "drifts": local.drifts,
    "radii": local.radii,
    "spreads": alike.spreads,
    "places": alike.places,
    "neighbours": alike.neighbours,
    "eigenvalues": sharpness.eigenvalues,
    "surface": sharpness.surface,
    "random_plane": sharpness.random_plane,
    "left_by_filter": layers.left_by_filter,
    "likeness": layers.likeness,
    "removed": removed.removed,
    "lengths": reach.lengths,
    "flat_index": reach.flat_index,
    "theorem": theory.theorem,
    "alignment": align.alignment,
    "echo": echo.echo,
    "echoes": echo.echoes,
    "separation": separate.separation,
    "class_points": separate.class_points,
    "discrepancy": separate.discrepancy,
    "composed": composed.composed,
    "compositions": composed.of_runs,
    "readouts": readouts.readouts,
    "sensitivity": sensitivity.of_layers,
}


def measurement(what: str) -> Callable[..., Any]:
    """A measurement by its name."""
    if what not in EVIDENCE:
        raise UnknownEvidence(f"no evidence {what!r}; there is {', '.join(EVIDENCE)}")
    return EVIDENCE[what]
