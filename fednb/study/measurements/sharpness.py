"""How sharp a model is: the largest curvatures of its loss, and the loss on planes, theirs or a random one."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

from fednb.metrics import hessian, landscape
from fednb.metrics.hessian import Eigen
from fednb.metrics.tidy import about, finished
from fednb.study.measurements.registry import measurement

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

_held: dict[tuple, dict[str, Eigen]] = {}  # the last directions: a figure and a table want the same ones


@measurement("eigenvalues")
def eigenvalues(
    results: Results, samples: int | None = None, tolerance: float = 1e-2, most: int = 200
) -> pd.DataFrame:  # fmt: skip
    """The two eigenvalues of largest magnitude of each run's Hessian (FedFFT App. D.2): order 1 and 2, nan if diverged.

    As "eigenvalue" with its sign, and as "sharpness" without: a direction that bends down is as far from flat.
    samples: test samples, the same for all runs; 500 as in the paper, at smoke scale 50, if nothing is said.
    tolerance, most: see `hessian.top`; residuals of 1% leave an error in the values of about its square.
    """
    import pandas as pd

    sound = finished(results)
    lost = [
        {**about(cell, run, run.rounds_done - 1), "measure": "eigenvalue", "order": order, "value": nan}
        for cell, run in results if run.status != "finished" for order in (1, 2)
    ]  # fmt: skip
    seen = hessian.table(sound, _directions(sound, samples, tolerance, most))
    both = pd.concat([seen, pd.DataFrame(lost)], ignore_index=True) if lost else seen
    return pd.concat([both, both.assign(measure="sharpness", value=both["value"].abs())], ignore_index=True)


@measurement("surface")
def surface(
    results: Results, points: int | None = None, radius: float = 0.5, samples: int | None = None,
    tolerance: float = 1e-2, most: int = 200,
) -> pd.DataFrame:  # fmt: skip
    """The loss on the plane of the two sharpest directions of each run's model (FedFFT Fig. 7 and 8).

    At `points` x `points` places up to `radius`. points: 21, at smoke scale 7, if nothing is said. radius: five times
    the papers' ρ; their axes are not known.
    """
    sound = finished(results)
    directions = _directions(sound, samples, tolerance, most)
    points = points or _by_scale(results, 7, 21)
    return landscape.surfaces(sound, directions, radius, points, samples or _by_scale(results, 50, 500))


@measurement("random_plane")
def random_plane(
    results: Results, points: int | None = None, radius: float = 1.0, samples: int | None = None
) -> pd.DataFrame:  # fmt: skip
    """The loss on a random plane through each run's model, and how rough it is there (FedSCAM Fig. 12 to 14).

    As "loss" with its place, a and b, and of the whole plane as "roughness" and "extremes" (see `landscape`). The two
    directions are filter-normalised, from the same draw for all runs. points, samples: as in `surface`. A run that
    diverged has no plane, and nan for the other two.
    """
    import pandas as pd

    points, samples = points or _by_scale(results, 7, 21), samples or _by_scale(results, 50, 500)
    plane = landscape.surfaces(finished(results), None, radius, points, samples)
    lost = [
        {**about(cell, run, run.rounds_done - 1), "measure": measure, "value": nan}
        for cell, run in results if run.status != "finished" for measure in ("roughness", "extremes")
    ]  # fmt: skip
    tables = [plane, *([landscape.shapes(plane)] if len(plane) else []), *([pd.DataFrame(lost)] if lost else [])]
    return pd.concat(tables, ignore_index=True)


def _directions(results: Results, samples: int | None, tolerance: float, most: int) -> dict[str, Eigen]:
    samples = samples or _by_scale(results, 50, 500)
    key = (samples, tolerance, most, *(run.key for run in results.runs))  # a run's key says all about its model
    if key not in _held:
        _held.clear()
        _held[key] = hessian.of_runs(results, 2, samples, tolerance=tolerance, most=most)
    return _held[key]


def _by_scale(results: Results, smoke: int, else_: int) -> int:
    return smoke if results.grid.scale == "smoke" else else_
