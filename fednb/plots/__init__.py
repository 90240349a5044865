"""One function per kind of figure, all in one style: labelled, colour-blind safe, readable at a glance."""

from fednb.plots.clients import classes_of_clients, clients_by_class, sizes
from fednb.plots.geometry import along_layers, classes, contours, embedding, profiles, scatter, similarity, surfaces
from fednb.plots.matrix import effects, matrix
from fednb.plots.scores import bars, compare, curves, sweep
from fednb.plots.spectra import bands, layers

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
    "layers",
    "matrix",
    "profiles",
    "scatter",
    "similarity",
    "sizes",
    "surfaces",
    "sweep",
]
