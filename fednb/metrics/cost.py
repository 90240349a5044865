"""What a round costs, and what it takes to reach an accuracy: rounds, traffic, gradients, seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite, nan
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from fednb.core.cost import cost

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Results

History = Iterable[dict[str, Any]]
BEST = "'s best"


class NoTarget(ValueError):
    """A target that names a method whose run is not among the results."""


def rounds_to(history: Run | pd.DataFrame | History, target: float) -> int | None:
    """How many rounds until the test accuracy first reaches `target` percent; None if it never does.

    Rounds that were not evaluated do not count, so that a run tested every 10 rounds answers in tens. The line of a
    personalised run that is tuned after its last round is no round.
    """
    reached = (row["round"] for row in _rounds(history) if _is_number(row["accuracy"]) and row["accuracy"] >= target)
    first = next(reached, None)
    return None if first is None else int(first) + 1


def relative_communication(rounds: int | None, of: int, traffic: float = 1.0) -> float:
    """What was sent until then, FedAvg's T = `of` rounds being 1: rounds / T times the traffic of a round."""
    return nan if rounds is None else rounds / of * traffic


def seconds_per_round(history: Run | pd.DataFrame | History) -> float:
    """The median over rounds, without evaluation: first rounds load and compile, and machines have other users."""
    return median(row["seconds"] for row in _rounds(history))


def per_round(results: Results, pairs: Sequence[Sequence[str]] = ()) -> pd.DataFrame:
    """What a round costs, all clients together: one row per run and measure (FedSCAM Fig. 4).

    Measures: seconds_per_round, the median, which belongs to its device; gradients_per_round and bytes_per_round (down
    and up), means over rounds, counted; kept_per_client, what a client keeps between rounds, in models.
    Runs that shared a GPU with others of the table have no seconds.
    pairs: methods [a, b] whose seconds are compared in the same setting with the same seed. The method "a vs b" has the
    measure relative_speed, seconds(b) / seconds(a) − 1: 0.12 where b takes 12% longer, or a is 12% faster.
    """
    import pandas as pd

    rows = []
    for cell, run in results:
        head = {**cell.tags, "method": cell.label, "seed": run.seed, "key": run.key}
        where = {"device": run.about["device_name"], "engine": run.about["engine"]}
        rows += [{**head, **where, "measure": name, "value": value} for name, value in _spends(run).items()]
    rows = _timed_alone(rows, results)
    for pair in pairs:
        rows += _faster(rows, *pair)
    return pd.DataFrame(rows).astype({"value": float})


def _timed_alone(rows: list[dict[str, Any]], results: Results) -> list[dict[str, Any]]:
    """All rows but the seconds of runs that were on a GPU at the same time as another run of the table.

    Their seconds depend on what the other run did. On a CPU each process has a core to itself.
    """
    on_gpus = [run for _, run in results if str(run.about.get("device", "")).startswith("cuda")]
    spans = {run.key: (run.about["device_name"], run.about["started"], run.about["ended"]) for run in on_gpus}
    shared = {
        key for key, (device, began, ended) in spans.items()
        if any(key != other and device == where and began < until and since < ended
               for other, (where, since, until) in spans.items())
    }  # fmt: skip
    return [row for row in rows if row["key"] not in shared or "seconds" not in row["measure"]]


def _spends(run: Run) -> dict[str, float]:
    rounds = _rounds(run)
    return {
        "seconds_per_round": seconds_per_round(rounds),
        "gradients_per_round": mean(row["gradient_evaluations"] for row in rounds),
        "bytes_per_round": mean(row["bytes_down"] + row["bytes_up"] for row in rounds),
        "kept_per_client": cost(run.method).kept,
    }


def _faster(rows: list[dict[str, Any]], a: str, b: str) -> list[dict[str, Any]]:
    """How much longer b takes than a, wherever both were run."""
    timed = [row for row in rows if row["measure"] == "seconds_per_round"]
    of_a, of_b = ([row for row in timed if row["method"] == name] for name in (a, b))
    return [
        {**left, "method": f"{a} vs {b}", "measure": "relative_speed", "value": right["value"] / left["value"] - 1}
        for left in of_a for right in of_b if _setting(left) == _setting(right)
    ]  # fmt: skip


def _setting(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("method", "key", "value", "device", "engine")}


def to_target(results: Results, target: float | str = f"FedAvg{BEST}") -> pd.DataFrame:
    """What every run needs to reach an accuracy: one row per run and measure, nan if it never gets there.

    FedFFT Tables 4 and 5, SpecGradFilter Table VII.

    target: percent, or "<method>'s best": the best accuracy of that method's run with the same seed in the same setting
    (with the same tags; it need not have those of a sweep that the others go through). A case of the grid that has a
    `target` of its own, as SpecGradFilter's Table VII has for each data set, goes before.
    Measures: rounds; relative_comm, rounds / T times what the method sends each round, counted by `fednb.cost`;
    relative_passes, rounds / T times the gradients of a local step, the same whatever the device;
    seconds_per_round, the median; seconds_total, the two multiplied, as the papers do. A time belongs to its device.
    Runs that shared a GPU with others of the table have no seconds.
    The papers print T rounds for FedAvg itself; here it needs as many as it took to its best. Column `end`: how many
    rounds the run had, so that a claim can count who never gets there as one round past it.

    >>> table = fn.to_target(results, target=1.0)
    >>> table.loc[table["measure"] == "rounds", ["method", "target", "value"]]
       method  target  value
    0  FedAvg     1.0    1.0
    5  FedSAM     1.0    1.0
    """
    import pandas as pd

    rows = []
    for cell, run in results:
        aim = _aim(results, cell.tags, run.seed, cell.tags.get("target", target))
        head = {**cell.tags, "method": cell.label, "seed": run.seed, "key": run.key, "target": aim}
        where = {"device": run.about["device_name"], "engine": run.about["engine"], "end": run.setting.rounds}
        rows += [{**head, **where, "measure": name, "value": value} for name, value in _needs(run, aim).items()]
    return pd.DataFrame(_timed_alone(rows, results))


def to_targets(results: Results, accuracies: Sequence[float], best: float) -> pd.DataFrame:
    """What every run needs to reach each of several accuracies, nan if it never gets there (FedWMSAM Table 3).

    accuracies: fractions, as printed, and the targets at paper scale. At the smaller scales, whose levels are others, a
    stands for a / `best` of the best accuracy of FedAvg's run with the same seed in the same setting; `best` is about
    what the paper's FedAvg has. The column `accuracy` has a, `target` what was asked for, in percent, `end` how many
    rounds the run had.
    Measures: rounds and gradients, counted over all clients until then; without an accuracy, since they belong to the
    whole run, gradients_per_step and client_seconds_per_round, the median over rounds of seconds by participant.
    Runs that shared a GPU with others of the table have no seconds.
    """
    import pandas as pd

    as_printed = results.grid.scale == "paper"
    rows = []
    for cell, run in results:
        whole, of = (100.0, 1.0) if as_printed else (_aim(results, cell.tags, run.seed, f"FedAvg{BEST}"), best)
        head = {**cell.tags, "method": cell.label, "seed": run.seed, "key": run.key}
        head |= {"device": run.about["device_name"], "engine": run.about["engine"], "end": run.setting.rounds}
        for a in accuracies:
            until = {**head, "accuracy": a, "target": (aim := a / of * whole)}
            rows += [{**until, "measure": name, "value": value} for name, value in _until(run, aim).items()]
        rows += [{**head, "measure": name, "value": value} for name, value in _throughout(run).items()]
    return pd.DataFrame(_timed_alone(rows, results)).astype({"value": float})


def _until(run: Run, target: float) -> dict[str, float]:
    rounds = rounds_to(run, target)
    if rounds is None:
        return {"rounds": nan, "gradients": nan}
    return {"rounds": rounds, "gradients": sum(row["gradient_evaluations"] for row in _rounds(run)[:rounds])}


def _throughout(run: Run) -> dict[str, float]:
    by_client = median(row["seconds"] / row["clients"] for row in _rounds(run))
    return {"gradients_per_step": cost(run.method).passes, "client_seconds_per_round": by_client}


def _needs(run: Run, target: float) -> dict[str, float]:
    rounds, seconds, per_round = rounds_to(run, target), seconds_per_round(run), cost(run.method)
    return {
        "rounds": nan if rounds is None else rounds,
        "relative_comm": relative_communication(rounds, run.setting.rounds, per_round.traffic),
        "relative_passes": relative_communication(rounds, run.setting.rounds, per_round.passes),
        "seconds_per_round": seconds,
        "seconds_total": nan if rounds is None else rounds * seconds,
    }


def _aim(results: Results, tags: dict[str, Any], seed: int, target: float | str) -> float:
    if not isinstance(target, str):
        return float(target)
    if not target.endswith(BEST):
        raise NoTarget(f"target = {target!r}: must be a number of percent, or a method's, such as \"FedAvg's best\"")
    name = target.removesuffix(BEST)
    for cell, run in results:
        known = name.lower() in (cell.label.lower(), run.method.name.lower())
        if known and run.seed == seed and cell.tags.items() <= tags.items():
            return nan if run.accuracy_best is None else run.accuracy_best
    raise NoTarget(f"target = {target!r}: no run of {name} with {tags} and seed {seed}; put it into the grid")


def _rounds(history: Run | pd.DataFrame | History) -> list[dict[str, Any]]:
    rows: Any = getattr(history, "rows", history)
    if hasattr(rows, "to_dict"):
        rows = rows.to_dict("records")
    return [row for row in rows if row.get("tuned") != 1]


def _is_number(x: Any) -> bool:
    return x is not None and isfinite(x)
