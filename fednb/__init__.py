"""fednb: federated learning papers, reproduced notebook by notebook.

What needs plotting, notebooks or files of papers is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fednb import filters
from fednb.algorithms import parts
from fednb.algorithms.catalogue import card, method, methods, spec_grad_filter
from fednb.base.version import __version__
from fednb.core.cost import cost
from fednb.core.record import L, P
from fednb.core.rounds import Method, Part, part
from fednb.data.partition import add_partition
from fednb.data.sources import add_data
from fednb.engines.federation import Federation
from fednb.engines.losses import add_loss
from fednb.engines.measures import add_metric
from fednb.engines.problem import class_counts
from fednb.engines.replay import replay
from fednb.engines.setting import Setting
from fednb.models import add_model
from fednb.runs.experiment import run
from fednb.runs.probes import Probe

__all__ = [
    "Claim",
    "Federation",
    "L",
    "Method",
    "P",
    "Part",
    "Probe",
    "Setting",
    "__version__",
    "add_data",
    "add_loss",
    "add_metric",
    "add_model",
    "add_partition",
    "callbacks",
    "card",
    "cka",
    "class_counts",
    "compare",
    "cost",
    "drift",
    "embed",
    "features",
    "filters",
    "gains",
    "grid",
    "hessian",
    "histories",
    "landscape",
    "list_runs",
    "method",
    "methods",
    "page",
    "papers",
    "part",
    "parts",
    "plots",
    "replay",
    "run",
    "skew",
    "spec_grad_filter",
    "spectra",
    "to_target",
    "tune",
    "verdict",
]  # fmt: skip

_LATER = {
    "papers": ("fednb.study.paper", "papers"),
    "Claim": ("fednb.study.claims", "Claim"),
    "verdict": ("fednb.study.claims", "verdict"),
    "compare": ("fednb.study.page", "compare"),
    "gains": ("fednb.metrics.tidy", "gains"),
    "spectra": ("fednb.metrics.spectra", None),
    "embed": ("fednb.metrics.embed", None),
    "drift": ("fednb.metrics.drift", None),
    "features": ("fednb.metrics.features", None),
    "cka": ("fednb.metrics.cka", None),
    "hessian": ("fednb.metrics.hessian", None),
    "landscape": ("fednb.metrics.landscape", None),
    "skew": ("fednb.metrics.skew", None),
    "to_target": ("fednb.metrics.cost", "to_target"),
    "histories": ("fednb.runs.grid", "histories"),
    "callbacks": ("fednb.runs.callbacks", None),
    "list_runs": ("fednb.runs.listing", "list_runs"),
    "page": ("fednb.study.page", "Page"),
    "grid": ("fednb.show.grids", "grid"),
    "tune": ("fednb.show.grids", "tune"),
    "plots": ("fednb.show.plots", None),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'fednb' has no attribute {name!r}")
    module, inside = _LATER[name]
    found = import_module(module)
    value = found if inside is None else getattr(found, inside)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
