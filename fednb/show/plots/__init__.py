"""One function per kind of figure, all in one style: labelled, colour-blind safe, readable at a glance."""

from fednb.show.plots.clients import classes_of_clients, clients_by_class, sizes
from fednb.show.plots.explained import shares
from fednb.show.plots.geometry import (
    along_layers,
    classes,
    contours,
    embedding,
    profiles,
    scatter,
    similarity,
    surfaces,
)
from fednb.show.plots.matrices import effects, matrix
from fednb.show.plots.rounds import curves
from fednb.show.plots.scores import bars, compare, intervals, sweep
from fednb.show.plots.spectra import bands, layers
from fednb.show.plots.verdicts import forest

__all__ = [
    "along_layers",
    "bands",
    "bars",
    "classes",
    "classes_of_clients",
    "clients_by_class",
    "compare",
    "contours",
    "curves",
    "effects",
    "embedding",
    "forest",
    "intervals",
    "layers",
    "matrix",
    "profiles",
    "scatter",
    "shares",
    "similarity",
    "sizes",
    "surfaces",
    "sweep",
]
