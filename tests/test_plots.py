"""Every figure draws a small table, names its axes and its series, and is left to the caller to show."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from fednb import plots

BANDS = pd.DataFrame(
    {"alpha": alpha, "seed": seed, "round": 0, "measure": measure, "band": band, "value": (seed + 1) / band / alpha}
    for measure in ("Dist", "Std") for alpha in (0.1, 0.6) for seed in (0, 1) for band in (1, 2, 3)
)  # fmt: skip
HISTORY = pd.DataFrame(
    {"method": name, "seed": seed, "round": t, "accuracy": 10.0 * t + seed + len(name) if t != 1 else None}
    for name in ("FedSAM", "FedAvg", "FedFFT-D") for seed in (0, 2) for t in range(4)
)  # fmt: skip
COUNTS = {"iid": np.array([[2, 2], [2, 2], [2, 2]]), "alpha = 0.1": np.array([[1, 0], [0, 6], [5, 0]])}
POINTS = {"FedSAM": np.array([[1.0, 2.0], [3.0, -1.0]]), "FedFFT": np.array([[0.5, 1.0], [1.0, 0.0]])}
SHARES = pd.DataFrame([[1.0, 3.0], [6.0, 2.0]], index=["conv1.weight", "fc1.weight"], columns=[1, 2])

FIGURES = {
    "bands": lambda: plots.bands(BANDS, title="Made"),
    "layers": lambda: plots.layers(SHARES, title="Made"),
    "clients_by_class": lambda: plots.clients_by_class(COUNTS),
    "sizes": lambda: plots.sizes(COUNTS),
    "scatter": lambda: plots.scatter(POINTS, {"FedSAM": 2.0, "FedFFT": 0.1}),
    "curves": lambda: plots.curves(HISTORY, ylabel="test accuracy (%)"),
}


def panels(figure):
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_every_function_is_tested():
    public = {n for n, f in vars(plots).items() if getattr(f, "__module__", "") == plots.__name__ and n[0] != "_"}
    assert public == set(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_figures_draw_and_are_closed(name, tmp_path):
    """A closed figure is shown once, by the cell that returns it; the style of other figures is left alone."""
    before, style = plt.get_fignums(), dict(plt.rcParams)
    figure = FIGURES[name]()
    assert isinstance(figure, Figure)
    assert plt.get_fignums() == before and dict(plt.rcParams) == style
    figure.savefig(tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 0


@pytest.mark.parametrize("name", FIGURES)
def test_axes_are_labelled(name):
    """Every x axis has a name, and the y axis of every row; panels with the same y axis may share it."""
    first, *others = panels(FIGURES[name]())
    assert all(ax.get_xlabel() for ax in (first, *others))
    assert first.get_ylabel()
    assert all(ax.get_ylabel() or ax.get_shared_y_axes().joined(first, ax) for ax in others)


def test_bands_have_a_panel_per_measure_and_a_curve_per_alpha():
    """Seeds give (1, 2) / (band · alpha): the point is the mean 1.5 / (band · alpha)."""
    figure = plots.bands(BANDS, title="Made")
    assert [ax.get_ylabel() for ax in panels(figure)] == ["Dist across clients", "Std across clients"]
    assert figure.get_suptitle() == "Made"
    for ax in panels(figure):
        assert legend(ax) == ["alpha = 0.1", "alpha = 0.6"] and ax.get_yscale() == "log"
        for (line, *_), alpha in zip(ax.containers, (0.1, 0.6), strict=True):
            assert list(line.get_xdata()) == [1, 2, 3]
            assert list(line.get_ydata()) == pytest.approx([1.5 / alpha, 1.5 / alpha / 2, 1.5 / alpha / 3])


def test_layers_show_shares_that_add_up_to_one():
    """(1, 3) is a quarter and three quarters, (6, 2) the other way round."""
    (ax,) = panels(plots.layers(SHARES))
    assert [t.get_text() for t in ax.texts] == ["0.25", "0.75", "0.75", "0.25"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["conv1.weight", "fc1.weight"]


def test_partitions_are_named_and_on_one_colour_scale():
    drawn = panels(plots.clients_by_class(COUNTS))
    assert [ax.get_title() for ax in drawn] == ["iid: samples", "alpha = 0.1: samples"]
    assert {ax.collections[0].get_clim() for ax in drawn} == {(0, 6)}


def test_sizes_are_sorted():
    """Clients have 4, 4, 4 and 1, 6, 5 samples: largest first."""
    (ax,) = panels(plots.sizes(COUNTS))
    assert legend(ax) == ["iid", "alpha = 0.1"]
    assert [list(line.get_ydata()) for line in ax.lines] == [[4, 4, 4], [6, 5, 1]]


def test_scatter_has_a_panel_per_group_on_one_scale():
    left, right = panels(plots.scatter(POINTS, {"FedSAM": 2.0, "FedFFT": 0.1}))
    assert [ax.get_title() for ax in (left, right)] == ["FedSAM\nspread 2", "FedFFT\nspread 0.1"]
    assert legend(left) == ["clients after training", "global model"]
    assert (left.get_xlim(), left.get_ylim()) == (right.get_xlim(), right.get_ylim())
    np.testing.assert_allclose(right.collections[0].get_offsets(), POINTS["FedFFT"])


def test_curves_are_means_over_seeds_counted_from_round_one():
    """Seeds 0 and 2 give 10 t + 1 + the length of the name; round t = 1 was not evaluated and is not drawn."""
    (ax,) = panels(plots.curves(HISTORY, ylabel="test accuracy (%)"))
    assert legend(ax) == ["FedSAM", "FedAvg", "FedFFT-D"] and ax.get_legend().get_title().get_text() == "method"
    assert ax.get_ylabel() == "test accuracy (%)"
    assert list(ax.lines[0].get_xdata()) == [1, 3, 4] and list(ax.lines[0].get_ydata()) == [7, 27, 37]


def test_all_methods_of_a_paper_fit_into_one_figure():
    """FedFFT's Table 1 compares 16 methods: as many curves, each named and each with a look of its own."""
    names = [f"method {i}" for i in range(16)]
    many = pd.DataFrame({"method": n, "round": t, "accuracy": float(t)} for n in names for t in range(3))
    (ax,) = panels(plots.curves(many))
    assert legend(ax) == names
    assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in ax.lines}) == 16
