"""Every figure draws a small table, names its axes and its series, and is left to the caller to show."""

from math import nan

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
LAYERS = pd.DataFrame(
    {"measure": measure, "draw": draw, "layer": layer, "value": value * depth + draw}
    for measure, value, draws in (("before", 4.0, 1), ("after", 2.0, 1), ("random", 3.0, 3)) for draw in range(draws)
    for depth, layer in enumerate(("conv1.weight", "conv1.bias", "fc.weight", "all layers"), 1)
)  # fmt: skip
PLACED = pd.DataFrame(
    {"method": method, "seed": 0, "round": t, "key": method, "client": i, "x": scale * i, "y": scale * (i - 1)}
    for t in (3, 9) for method, scale in (("FedSAM", 2.0), ("FedFFT", 1.0)) for i in range(3)
)  # fmt: skip
SPREADS = pd.DataFrame(
    {"method": method, "seed": 0, "round": t, "key": method, "measure": measure, "value": value + t + more}
    for t in (3, 9) for method, value in (("FedSAM", 2.0), ("FedFFT", 0.5))
    for measure, more in (("spread", 0), ("relative spread", 99))
)  # fmt: skip
CLIENTS = pd.DataFrame(
    {"method": name, "measure": "CKA", "layer": "@penultimate", "client": j, "other": k, "value": 1.0 if j == k else v}
    for name, v in (("FedAvg", 0.2), ("filtered", 0.9)) for j in (10, 9, 3) for k in (10, 9, 3)
)  # fmt: skip
DEPTHS = pd.DataFrame(
    {"method": "FedAvg", "measure": "CKA", "layer": a, "other": b, "value": 0.8 if a == b else 0.1}
    for a in ("z", "a", "m") for b in ("z", "a", "m")
)  # fmt: skip
PLANE = pd.DataFrame(
    {"method": method, "seed": seed, "key": f"{method}{seed}", "measure": "loss", "a": a, "b": b,
     "value": 1 + seed + sharp * (a**2 + 2 * b**2)}
    for method, sharp in (("FedSAM", 4.0), ("FedFFT-D", 1.0)) for seed in (0, 2) for a in (-1.0, 0.0, 1.0)
    for b in (-1.0, 0.0, 1.0)
)  # fmt: skip
LINE = PLANE[PLANE["b"] == 0]
SHARES = pd.DataFrame([[1.0, 3.0], [6.0, 2.0]], index=["conv1.weight", "fc1.weight"], columns=[1, 2])

SEEN = pd.DataFrame(
    {"method": method, "key": key, "class": c, "x": c + float(far), "y": float(c)}
    for method, key, far in (("FedAvg", "a", 0), ("FedWMSAM", "b", 9)) for c in (3, 1, 3)
)  # fmt: skip
SILHOUETTES = pd.DataFrame(
    {"key": key, "measure": measure, "value": value}
    for key, value in (("a", 0.25), ("b", 0.5)) for measure in ("silhouette", "accuracy")
)  # fmt: skip
SQUARES = pd.DataFrame(
    {"ascent": a, "filter": f, "correction": c, "method": a + f + c, "seed": seed, "measure": "accuracy",
     "value": nan if (a, f, c, seed) == ("SAM", "g", "dual", 1) else 40.0 + 10 * seed + 5 * (a == "SAM") + (f == "g")}
    for c in ("none", "dual") for a in ("no", "SAM") for f in ("-", "g", "p") for seed in (0, 1)
    if (a, f) != ("no", "p")
)  # fmt: skip
CHANGES = pd.DataFrame(
    {"method": name, "seed": seed, "measure": "gain", "value": value + seed}
    for name, value in (("coin", 1.0), ("rounds", 9.0), ("rate", -6.0)) for seed in (0, 1)
)  # fmt: skip

JUDGED = pd.DataFrame(
    {"verdict": ["not decided", "does not hold", "holds where run (2 of 6 settings)"], "effect": [0.1, -2.0, 3.0],
     "low": [-90.0, -3.0, 2.0], "high": [90.0, -1.0, 4.0], "bound": [1.0, 0.0, 0.0], "printed": [0.0, 2.0, np.nan],
     "reading": ["inside", "above", "above"], "n": 3}, index=["c", "b", "a"])  # fmt: skip
PARTS = pd.DataFrame(
    {"method": name, "seed": seed, "measure": "share of the gain" + ", one seed" * (seed != "all"), "value": share,
     "low": share - 5, "high": share + 5, "n": 1, "gain": share / 5}
    for name, share in (("filter", 100.0), ("mean", 96.0)) for seed in (0, "all")
)  # fmt: skip
FIGURES = {
    "matrix": lambda: plots.matrix(SQUARES, "ascent", "filter", "correction", label="accuracy", title="Made"),
    "effects": lambda: plots.effects(CHANGES, pd.DataFrame({"value": [70.0, 74.0]}), title="Made"),
    "bands": lambda: plots.bands(BANDS, title="Made"),
    "layers": lambda: plots.layers(SHARES, title="Made"),
    "clients_by_class": lambda: plots.clients_by_class(COUNTS),
    "sizes": lambda: plots.sizes(COUNTS),
    "classes_of_clients": lambda: plots.classes_of_clients(COUNTS),
    "along_layers": lambda: plots.along_layers(LAYERS, ylabel="divergence", title="Made"),
    "classes": lambda: plots.classes(SEEN, SILHOUETTES, title="Made"),
    "embedding": lambda: plots.embedding(PLACED, SPREADS, axis="principal axis", title="Made"),
    "similarity": lambda: plots.similarity(CLIENTS, title="Made"),
    "profiles": lambda: plots.profiles(LINE, title="Made"),
    "contours": lambda: plots.contours(PLANE, title="Made"),
    "surfaces": lambda: plots.surfaces(PLANE, title="Made"),
    "scatter": lambda: plots.scatter(POINTS, {"FedSAM": 2.0, "FedFFT": 0.1}),
    "curves": lambda: plots.curves(HISTORY, ylabel="test accuracy (%)"),
    "forest": lambda: plots.forest(JUDGED, title="Made"),
    "shares": lambda: plots.shares(PARTS, of="filter", rows=["filter", "mean", "norm"], title="Made"),
}


def panels(figure):
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


def legend(ax):
    """The names of the series, in the panel or beside all of them."""
    return [text.get_text() for text in (ax.get_legend() or ax.figure.legends[0]).get_texts()]


def test_every_function_is_tested():
    """All that the package promises; the other figures of scores have tests of their own."""
    public = {
        n for n, f in vars(plots).items() if getattr(f, "__module__", "").startswith(plots.__name__) and n[0] != "_"
    }
    assert public == set(plots.__all__)
    others = {n for n in public if getattr(plots, n).__module__ == "fednb.show.plots.scores"} - {"curves"}
    assert public - others == set(FIGURES)


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


def test_bars_of_clients_are_cut_by_class():
    """Clients (1, 0), (0, 6), (5, 0): class 0 from the ground up, class 1 on top of it."""
    _, ax = panels(plots.classes_of_clients(COUNTS))
    ends = [[(bar.get_y(), bar.get_y() + bar.get_height()) for bar in bars] for bars in ax.containers]
    assert ends == [[(0, 1), (0, 0), (0, 5)], [(1, 1), (0, 6), (5, 5)]]
    assert ax.get_title() == "alpha = 0.1" and legend(ax) == ["1", "0"]  # as they lie, the first at the bottom


def test_many_classes_have_colours_of_their_own():
    (ax,) = panels(plots.classes_of_clients({"many": np.ones((2, 23), int)}))
    assert len({bars[0].get_facecolor() for bars in ax.containers}) == 23


def test_partitions_are_named_and_on_one_colour_scale():
    drawn = panels(plots.clients_by_class(COUNTS))
    assert [ax.get_title() for ax in drawn] == ["iid: samples", "alpha = 0.1: samples"]
    assert {ax.collections[0].get_clim() for ax in drawn} == {(0, 6)}


def test_clients_with_few_samples_of_a_class_are_seen_beside_one_with_many():
    """Four of 400: a hundredth of the samples, a tenth of the way through the colours."""
    (ax,) = panels(plots.clients_by_class({"a": np.array([[0, 4], [100, 400]])}))
    assert ax.collections[0].norm([0, 4, 100, 400]).tolist() == pytest.approx([0, 0.1, 0.5, 1])


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
    assert [text.get_text() for text in ax.texts] == names  # where the curves end
    assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in ax.lines}) == 16


def curves_of(ax):
    """Series with error bars: name -> heights."""
    return {c.get_label(): list(c.lines[0].get_ydata()) for c in ax.containers}


def test_layers_stand_in_their_order_and_the_whole_model_apart():
    """Draws give 3, 4, 5 times the depth, their mean is drawn; an empty place cuts the line before the whole model."""
    (ax,) = panels(plots.along_layers(LAYERS, ylabel="divergence"))
    assert legend(ax) == ["before", "after", "random"] and ax.get_ylabel() == "divergence"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["conv1.weight", "conv1.bias", "fc.weight", "all layers"]
    assert list(ax.get_xticks()) == [0, 1, 2, 4]
    seen = curves_of(ax)
    assert seen["before"] == pytest.approx([4, 8, 12, np.nan, 16], nan_ok=True)
    assert seen["random"] == pytest.approx([4, 7, 10, np.nan, 13], nan_ok=True)


def test_layers_can_be_chosen_and_series_be_methods():
    table = pd.DataFrame(
        {"measure": "cosine", "method": m, "layer": n, "value": 0.5} for m in ("b", "a") for n in ("x.weight", "x.bias")
    )
    (ax,) = panels(plots.along_layers(table, by="method", where="*.weight", log=True))
    assert [t.get_text() for t in ax.get_xticklabels()] == ["x.weight"] and legend(ax) == ["b", "a"]
    assert ax.get_ylabel() == "cosine" and ax.get_yscale() == "log"


def test_many_series_along_layers_are_named_beside_the_panel():
    """Five names inside would hide points."""
    table = pd.DataFrame({"measure": "score", "method": m, "layer": n, "value": 0.5} for m in "abcde" for n in "xy")
    figure = plots.along_layers(table, by="method")
    assert [t.get_text() for t in figure.legends[0].get_texts()] == list("abcde")
    assert panels(figure)[0].get_legend() is None


def test_embedding_has_a_panel_per_round_with_its_spreads():
    """Both methods in each panel; 2 + round and 0.5 + round above it, and no relative spread. Rounds from 1."""
    left, right = panels(FIGURES["embedding"]())
    assert left.get_title() == "round 4\nspread of FedSAM: 5\nspread of FedFFT: 3.5"
    assert right.get_title() == "round 10\nspread of FedSAM: 11\nspread of FedFFT: 9.5"
    assert legend(left) == ["FedSAM", "FedFFT"] and left.get_ylabel() == "second principal axis"
    np.testing.assert_allclose(left.collections[0].get_offsets(), [[0, -2], [2, 0], [4, 2]])
    np.testing.assert_allclose(left.collections[1].get_offsets(), [[0, -1], [1, 0], [2, 1]])


def test_embedding_tells_spreads_apart_by_all_that_tells_panels_apart():
    """The same runs and round in two panels, weights and features: each has its own spreads above it."""
    both = [table.assign(panel=name) for table in (PLACED, SPREADS) for name in ("weights", "features")]
    one_round = pd.concat(both[:2]).query("round == 3")
    spreads = pd.concat([both[2], both[3].assign(value=7.0)])
    left, right = panels(plots.embedding(one_round, spreads))
    assert left.get_title() == "panel weights\nspread of FedSAM: 5\nspread of FedFFT: 3.5"
    assert right.get_title() == "panel features\nspread of FedSAM: 7\nspread of FedFFT: 7"


def test_embedding_without_spreads_and_with_one_round():
    (ax,) = panels(plots.embedding(PLACED[PLACED["round"] == 3]))
    assert ax.get_title() == "" and len(ax.collections) == 2


def test_classes_have_a_panel_per_run_and_a_colour_each():
    """Class 1 before class 3 in both panels, in one colour; the silhouette above, and no other number."""
    left, right = panels(FIGURES["classes"]())
    assert [ax.get_title() for ax in (left, right)] == ["FedAvg\nsilhouette 0.250", "FedWMSAM\nsilhouette 0.500"]
    assert legend(left) == ["1", "3"]
    np.testing.assert_allclose(right.collections[1].get_offsets(), [[12, 3], [12, 3]])
    for one, other in zip(left.collections, right.collections, strict=True):
        np.testing.assert_allclose(one.get_facecolor(), other.get_facecolor())
    assert panels(plots.classes(SEEN))[0].get_title() == "FedAvg"


def test_similarities_share_a_scale_and_say_their_mean():
    """From the lowest of all to 1; the mean leaves a client's likeness to itself out. Clients are in their order."""
    left, right = drawn = panels(plots.similarity(CLIENTS))
    assert [ax.get_title() for ax in drawn] == ["FedAvg\nmean 0.200", "filtered\nmean 0.900"]
    assert {ax.collections[0].get_clim() for ax in drawn} == {(0.2, 1.0)}
    assert [t.get_text() for t in left.get_yticklabels()] == ["3", "9", "10"]
    np.testing.assert_allclose(np.diag(np.array(right.collections[0].get_array()).reshape(3, 3)), 1)


def test_similarities_of_layers_keep_the_models_order():
    """The mean is that of layers with themselves."""
    (ax,) = panels(plots.similarity(DEPTHS, rows="layer"))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["z", "a", "m"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["z", "a", "m"]
    assert ax.get_title() == "FedAvg\nmean 0.800"


def test_clients_of_several_layers_are_refused():
    both = pd.concat([CLIENTS, CLIENTS.assign(layer="fc")])
    with pytest.raises(ValueError, match="the table has several layers; choose one"):
        plots.similarity(both)


def test_profiles_are_means_over_seeds():
    """Seeds add 0 and 2: 1 + 1 + sharp · a²."""
    (ax,) = panels(plots.profiles(LINE))
    assert legend(ax) == ["FedSAM", "FedFFT-D"] and ax.get_ylabel() == "loss"
    assert [list(line.get_ydata()) for line in ax.lines[:2]] == [[6, 2, 6], [3, 2, 3]]


def test_contours_share_their_levels():
    """From the lowest mean, 2, to the highest, 2 + 4 · 3: squares, so that an even bowl has even lines."""
    left, right = panels(plots.contours(PLANE, levels=5))
    assert [ax.get_title() for ax in (left, right)] == ["FedSAM", "FedFFT-D"]
    for ax in (left, right):
        np.testing.assert_allclose(ax.collections[0].levels, [2 + 12 * (i / 4) ** 2 for i in range(5)])
    assert left.get_xlabel() == "first direction"


def test_contours_have_the_first_direction_across():
    """b counts twice: at the right edge the loss is 2 + 4, at the top 2 + 8."""
    (ax,) = panels(plots.contours(PLANE[PLANE["method"] == "FedSAM"], levels=7))
    widest = max(np.abs(p.vertices).max(0)[0] for p in ax.collections[1].get_paths() if len(p.vertices))
    inner = ax.collections[1].get_paths()[2].vertices  # 2 + 12 / 9: an ellipse, longer along a
    assert widest == 1 and np.abs(inner[:, 0]).max() > 1.2 * np.abs(inner[:, 1]).max()


def test_surfaces_share_height_and_colour():
    left, right = panels(plots.surfaces(PLANE))
    assert left.get_zlim() == right.get_zlim() == (2, 14)
    assert {ax.collections[0].get_clim() for ax in (left, right)} == {(2, 14)}


def test_a_flat_loss_is_drawn_too():
    flat = PLANE.assign(value=3.0, measure="rise")
    assert panels(plots.contours(flat)) and panels(plots.surfaces(flat))
    assert panels(plots.profiles(flat[flat["b"] == 0]))[0].get_ylabel() == "rise of the loss"


def test_gains_are_drawn_with_their_zero():
    """A gain of 20 points alone would leave zero out of sight; an accuracy of 20 percent is no gain."""
    swept = pd.DataFrame({"ratio": [0.01, 0.05], "method": "FedFFT", "measure": "gain", "value": [20.0, 21.0]})
    (ax,) = panels(plots.sweep(swept, x="ratio"))
    assert ax.get_ylim()[0] <= 0
    (ax,) = panels(plots.sweep(swept.assign(measure="accuracy"), x="ratio"))
    assert ax.get_ylim()[0] > 0


def test_panels_of_a_sweep_share_what_was_varied():
    """One point in one panel, three in the other: both go from the smallest to the largest."""
    swept = pd.DataFrame({"dataset": ["a", "b", "b", "b"], "ratio": [0.05, 0.01, 0.05, 0.1], "method": "FedFFT",
                          "measure": "gain", "value": 1.0})  # fmt: skip
    left, right = panels(plots.sweep(swept, x="ratio", panel="dataset"))
    assert left.get_xlim() == right.get_xlim() and left.get_xlim()[1] >= 0.1


def test_long_names_of_partitions_do_not_run_into_one_another():
    few = np.array([[5, 5], [5, 5]])
    figure = plots.clients_by_class({"Fashion-MNIST, pathological-shards(classes=5)": few, "iid": few})
    figure.draw_without_rendering()
    boxes = [ax.title.get_window_extent() for ax in figure.axes[:2]]
    assert boxes[0].x0 > 0 and boxes[0].x1 < boxes[1].x0


def test_rows_of_partitions_have_colour_scales_of_their_own():
    """Ten classes in the first row, a hundred in the second: what is bright there would be dark beside the others."""
    few, many = np.full((2, 2), 50), np.full((2, 8), 5)
    drawn = panels(plots.clients_by_class({"a": few, "b": 2 * few, "c": many, "d": 2 * many}, row=2))
    assert [ax.collections[0].get_clim() for ax in drawn] == [(0, 100), (0, 100), (0, 10), (0, 10)]


def test_panels_by_several_columns():
    """Data sets times alphas; a column that a scale does not have, or that does not vary, makes no panel."""
    seen = pd.DataFrame({"dataset": d, "alpha": a, "method": "FedAvg", "round": t, "value": 1.0}
                        for d in "AB" for a in (0.1, 0.6) for t in range(2))  # fmt: skip
    titles = [ax.get_title() for ax in panels(plots.curves(seen, "value", panel=("dataset", "alpha")))]
    assert titles == ["A, alpha = 0.1", "A, alpha = 0.6", "B, alpha = 0.1", "B, alpha = 0.6"]
    smaller = seen[seen["dataset"] == "A"].drop(columns="dataset")
    assert len(panels(plots.curves(smaller, "value", panel=("dataset", "alpha")))) == 2


def test_values_too_near_to_each_other_share_a_text():
    """FedFFT Fig. 2: 6, 7 and 8 percent on one axis with 0.1 percent; every value has its tick, the last its text."""
    ratios = [0.01, 0.04, 0.06, 0.07, 0.08]
    swept = pd.DataFrame({"ratio": ratios, "method": "FedFFT", "measure": "accuracy", "value": 1.0})
    (ax,) = panels(plots.sweep(swept, x="ratio", log=True))
    assert list(ax.get_xticks()) == ratios
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0.01", "0.04", "", "", "0.08"]


def test_comparisons_say_what_is_compared():
    table = pd.DataFrame({"paper": [1.0], "ours": [2.0], "std": [nan], "n": [1]}, index=pd.Index(["A"], name="method"))
    (ax,) = panels(plots.compare(table, xlabel="rounds"))
    assert ax.get_xlabel() == "rounds" and legend(ax) == ["paper", "ours, n = 1"]


def test_a_paper_that_prints_no_such_number_is_not_in_the_legend():
    index = pd.MultiIndex.from_product([["d1", "d2"], ["A", "B"]], names=["dataset", "method"])
    table = pd.DataFrame({"paper": nan, "ours": 2.0, "std": nan, "n": 1}, index=index)
    assert legend(panels(plots.compare(table))[0]) == ["ours, n = 1"]
    table["paper"] = [nan, nan, nan, 1.0]  # one is enough, in whatever panel
    assert legend(panels(plots.compare(table))[0]) == ["paper", "ours, n = 1"]


@pytest.mark.parametrize("n, said", [
    ([3.0, 3.0], "ours,\nmean ± std, n = 3"), ([2.0, 3.0], "ours,\nmean ± std, n = 2 to 3"),
    ([1.0, 3.0], "ours,\nmean ± std, n = 1 to 3"), ([nan, 3.0], "ours,\nmean ± std, n = 3"),
    ([0.0, 3.0], "ours,\nmean ± std, n = 3"), ([nan, nan], "ours, not run yet"),
])  # fmt: skip
def test_comparisons_give_no_number_more_seeds_than_it_has(n, said):
    table = pd.DataFrame({"paper": 1.0, "ours": 2.0, "std": 0.5, "n": n}, index=pd.Index(["A", "B"], name="method"))
    (ax,) = panels(plots.compare(table))
    assert legend(ax) == ["paper", said]


def test_a_comparison_says_where_no_seed_has_a_number():
    """B ran, and never got to the target; C did not run."""
    numbers = {"paper": [1.0, 2.0, 3.0], "ours": [1.5, nan, nan], "std": [0.1, nan, nan], "n": [3.0, 0.0, nan]}
    table = pd.DataFrame(numbers, index=pd.Index(list("ABC"), name="method"))
    (ax,) = panels(plots.compare(table))
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert [(each.get_text(), names[each.get_position()[1]]) for each in ax.texts] == [("none of our seeds", "B")]
    assert legend(panels(plots.compare(table[1:]))[0]) == ["paper", "ours"]


def test_pairs_of_curves_share_a_colour_and_one_is_dashed():
    """A and "A + F" look alike but for the line; B has a look of its own; logarithms only where asked for."""
    pair = pd.DataFrame({"method": m, "round": t, "value": 10.0**t} for m in ("A", "A + F", "B") for t in range(3))
    (ax,) = panels(plots.curves(pair, y="value", dashed=" + F", log=True))
    a, with_f, b = ((line.get_color(), line.get_marker()) for line in ax.lines)
    assert a == with_f != b
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--", "-"]
    assert legend(ax) == ["A", "A + F", "B"] and ax.get_yscale() == "log"
    (ax,) = panels(plots.curves(pair, y="value"))
    assert {line.get_linestyle() for line in ax.lines} == {"-"} and ax.get_yscale() == "linear"


def test_settings_can_go_down_instead_of_methods():
    """A panel per method in one scale, a line per setting; a column that the table does not have is passed over."""
    index = pd.MultiIndex.from_product([["d1", "d2"], [0.1, 0.6], ["A", "B"]], names=["dataset", "alpha", "method"])
    table = pd.DataFrame({"paper": range(8), "ours": range(8), "std": nan, "n": 1.0, "difference": 0.0}, index=index)
    figure = plots.compare(table, down=("dataset", "alpha", "severity"), xlabel="gain, points")
    left, right = panels(figure)
    assert [left.get_title(), right.get_title()] == ["A", "B"] and left.get_xlim() == right.get_xlim()
    assert [t.get_text() for t in left.get_yticklabels()] == ["d2, 0.6", "d2, 0.1", "d1, 0.6", "d1, 0.1"]
    assert any(list(line.get_xdata()) == [0, 0] for line in right.lines)


@pytest.mark.parametrize("log, scales", [(False, "linear linear"), (True, "log linear"), ("xy", "log log")])
def test_a_sweep_in_logarithms_shows_the_values_that_were_tried(log, scales):
    tried = pd.DataFrame({"method": "A", "measure": "m", "T": [4, 16, 64], "value": [4.0, 2.0, 1.0]})
    (ax,) = panels(plots.sweep(tried, x="T", log=log))
    assert f"{ax.get_xscale()} {ax.get_yscale()}" == scales
    if log:
        assert [t.get_text() for t in ax.get_xticklabels()] == ["4", "16", "64"] and not len(ax.get_xticks(minor=True))


def test_four_panels_make_a_square():
    tried = pd.DataFrame({"method": "A", "measure": "m", "p": p, "x": [1, 2], "value": 1.0} for p in "abcd")
    tried = tried.explode("x")
    places = {tuple(ax.get_subplotspec().get_geometry()[:2]) for ax in panels(plots.sweep(tried, x="x", panel="p"))}
    assert places == {(2, 2)}


def written(ax):
    """What stands in the cells of a heat map."""
    return [t.get_text() for t in ax.texts]


def test_a_matrix_writes_every_number_or_why_there_is_none():
    """Means of two seeds: 45, with g 46, SAM 5 more; SAM with g and dual diverged once; without an ascent no p."""
    figure = plots.matrix(
        SQUARES, "ascent", "filter", "correction", beside={"SAM": "2 gradients"}, above={"dual": "free"}
    )
    left, right = panels(figure)
    assert sorted(written(left)) == ["45.0", "46.0", "50.0", "50.0", "51.0", "–"]
    assert sorted(written(right)) == ["45.0", "46.0", "50.0", "50.0", "div.", "–"]
    assert [left.get_title(), right.get_title()] == ["none", "dual\nfree"]
    assert [t.get_text() for t in left.get_yticklabels()] == ["no", "SAM\n2 gradients"]
    assert [t.get_text() for t in right.get_xticklabels()] == ["-", "g", "p"]
    clims = [ax.collections[0].get_clim() for ax in (left, right)]
    assert clims == [(40, 56), (40, 56)]


def test_a_matrix_of_gains_has_its_zero_in_the_middle():
    (ax,) = panels(plots.matrix(SQUARES.assign(value=SQUARES["value"] - 45), "ascent", "filter", signed=True))
    assert ax.collections[0].get_clim() == (-11, 11) and ax.collections[0].get_cmap().name == "PuOr"


def test_effects_go_down_by_their_means_with_every_seed():
    """Means 9.5, 1.5, −5.5 from the top; the base varies by 2 around its mean."""
    (ax,) = panels(plots.effects(CHANGES, pd.DataFrame({"value": [70.0, 74.0]})))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["rate (n = 2)", "coin (n = 2)", "rounds (n = 2)"]
    assert [bar.get_width() for bar in ax.containers[0]] == [-5.5, 1.5, 9.5]
    assert sorted(map(tuple, ax.collections[0].get_offsets().tolist())) == [
        (-6, 0),
        (-5, 0),
        (1, 1),
        (2, 1),
        (9, 2),
        (10, 2),
    ]
    band = ax.patches[0].get_bbox()
    assert (band.x0, band.x1) == (-2, 2)


def test_forest_groups_claims_by_verdict():
    """What holds is on top; an interval of ±90 is cut where the effects, from -2 to 3, and as much around them end."""
    (ax,) = plots.forest(JUDGED).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "a: holds (n = 3)", "b: does not hold (n = 3)", "c: not decided (n = 3)"]  # fmt: skip
    assert -8 < ax.get_xlim()[0] < -6 and 7 < ax.get_xlim()[1] < 9
    assert legend(ax) == ["ours, 90% interval", "printed", "bound of the claim"]


def test_forest_in_units_of_what_is_printed():
    """-2 of 2 is -1; a claim without a printed effect is left out."""
    (ax,) = plots.forest(JUDGED, relative=True).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b: does not hold (n = 3)"]
    assert [list(line.get_xdata()) for line in ax.lines if line.get_marker() == "o"] == [[-1.0]]


def test_forest_of_factors_in_units_of_what_is_printed():
    """0.5 times where 2 times is printed is -1: of logarithms."""
    factors = JUDGED.loc[["b"]].assign(effect=0.5, low=0.25, high=1.0, bound=1.0, printed=2.0, ratio=-1.0)
    (ax,) = plots.forest(factors, relative=True).axes
    assert [list(line.get_xdata()) for line in ax.lines if line.get_marker() in "oD|"] == [[-1.0], [1.0], [0.0]]
    nothing = factors.assign(printed=1.0, ratio=np.nan)
    assert plots.forest(nothing, relative=True).axes[0].get_yticklabels() == []
