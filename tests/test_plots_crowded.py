"""Many curves in one figure: names where they end, small panels of differences, nothing hidden under anything else."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from fednb import plots
from fednb.show.plots.panels import _apart

NAMES = ("FedAvg", "FedSAM", "FedFFT", "SCAFFOLD", "FedDyn", "SpecGradFilter (FedAvg+FFT)")
CROWD = pd.DataFrame(
    {"method": name, "alpha": alpha, "seed": seed, "round": t, "value": 80 - 60 / (t + 1) + i / 100 + seed * (1 + i)}
    for i, name in enumerate(NAMES) for alpha in (0.6, 0.1) for seed in (0, 3) for t in range(20)
)  # fmt: skip
SWEPT = pd.DataFrame(
    {"method": f"method {i}", "measure": "accuracy", "rho": rho, "seed": seed, "value": 70 + i / 100 + seed}
    for i in range(9) for rho in (0.05, 0.1, 0.2) for seed in (0, 1)
)  # fmt: skip


def drawn(figure):
    """The figure as it is saved: with a caption, its panels and texts in their places."""
    figure.supxlabel("a caption of a page\nin two lines", fontsize=6)
    figure.draw_without_rendering()
    return figure


def boxes(texts):
    """Where the letters are; an annotation's own box has its line in it."""
    return [Text.get_window_extent(text) for text in texts]


@pytest.mark.parametrize("figure", [plots.curves(CROWD, "value", panel="alpha"), plots.sweep(SWEPT, x="rho")],
                         ids=["curves", "sweep"])  # fmt: skip
def test_crowded_curves_are_named_at_their_ends(figure):
    """Every curve once, below one another in the order of the ends; no name over a name, a panel or the edge."""
    figure = drawn(figure)
    assert figure.legends == [] and all(ax.get_legend() is None for ax in figure.axes)
    for ax in figure.axes:
        names = [text.get_text() for text in ax.texts]
        assert names == list(NAMES if len(names) == len(NAMES) else dict.fromkeys(SWEPT["method"]))  # lowest first
        places = boxes(ax.texts)
        assert all(below.y1 <= above.y0 + 1 for below, above in pairwise(places))
        panels = [other.get_window_extent() for other in figure.axes]
        assert not any(place.overlaps(panel) for place in places for panel in panels)
        assert all(place.x1 <= figure.bbox.x1 and place.y1 <= figure.bbox.y1 for place in places)


def test_few_curves_keep_their_legend_and_their_range():
    few = CROWD[CROWD["method"].isin(NAMES[:3])]
    figure = plots.curves(few, "value", panel="alpha")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(NAMES[:3])
    assert [len(ax.collections) for ax in figure.axes] == [3, 3] and not any(ax.texts for ax in figure.axes)
    assert [len(ax.collections) for ax in plots.curves(CROWD, "value", panel="alpha").axes] == [0, 0]


@pytest.mark.parametrize(
    "wanted, placed",
    [([0.1, 0.5], [0.1, 0.5]), ([0.5, 0.5], [0.45, 0.55]), ([0.5, 0.52, 0.9], [0.46, 0.56, 0.9]),
     ([1.0, 1.0, 1.0], [0.8, 0.9, 1.0]), ([0.0, 0.0], [0.0, 0.1]), ([-3.0, 9.0], [0.0, 1.0])],
)  # fmt: skip
def test_names_move_no_further_than_they_must(wanted, placed):
    """A tenth of the height from one to the next, around their mean, inside the panel."""
    assert _apart(np.array(wanted), 0.1) == pytest.approx(placed)


def test_differences_to_a_base_have_a_small_panel_each():
    """Paired by seed: i / 100 + seed · i, whose mean over the seeds 0 and 3 is 1.51 i."""
    figure = plots.curves(CROWD, "value", panel="alpha", base="FedAvg", ylabel="points")
    assert [ax.get_title() for ax in figure.axes if ax.get_visible()] == list(NAMES[1:])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["alpha = 0.6", "alpha = 0.1"]
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in figure.axes}) == 1
    for i, ax in enumerate(figure.axes[: len(NAMES) - 1], 1):
        mild, skewed, zero = ax.lines
        assert list(mild.get_xdata()) == list(range(1, 21)) and list(zero.get_ydata()) == [0, 0]
        for line in (mild, skewed):
            assert np.asarray(line.get_ydata()) == pytest.approx(1.51 * i)
        for spread in ax.collections:  # from seed 0 to seed 3
            heights = spread.get_paths()[0].vertices[:, 1]
            assert (heights.min(), heights.max()) == pytest.approx((i / 100, i / 100 + 3 * i))
        assert len(ax.collections) == 2


def test_differences_leave_no_row_half_empty():
    """Nine others are three rows of three, seven two of four, and ten two of five."""
    for n, shape in ((9, (3, 3)), (7, (2, 4)), (10, (2, 5)), (3, (1, 3))):
        made = pd.DataFrame({"method": f"m{i}", "round": [0, 1], "value": 1.0} for i in range(n + 1)).explode("round")
        figure = plots.curves(made.astype({"round": int}), "value", base="m0")
        assert figure.axes[0].get_gridspec().get_geometry() == shape
        assert sum(ax.get_visible() for ax in figure.axes) == n and figure.legends == []


def test_a_base_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"base 'FedAwg': must be one of FedAvg, FedSAM"):
        plots.curves(CROWD, "value", base="FedAwg")


def test_a_base_without_others_is_a_figure_that_says_so():
    """Of a table that is run in parts the base may be there alone."""
    figure = plots.curves(CROWD[CROWD["method"] == "FedAvg"], "value", panel="alpha", base="FedAvg", ylabel="points")
    (panel,) = figure.axes
    assert panel.get_title() == "nothing yet to set beside FedAvg"
    assert not panel.lines


def test_a_curve_under_another_is_wider():
    """The first two run through the same points, the third does not; widths are told apart on paper."""
    same = pd.DataFrame({"method": m, "round": t, "value": t + 5.0 * (m == "c")} for m in "abc" for t in range(9))
    (ax,) = plots.curves(same, "value").axes
    under, over, apart = (line.get_linewidth() for line in ax.lines)
    assert under > over + 1 and over == apart
    swept = same.assign(measure="accuracy").rename(columns={"round": "rho"})
    (ax,) = plots.sweep(swept, x="rho").axes
    under, over, apart = (each.lines[0].get_linewidth() for each in ax.containers)
    assert under > over + 1 and over == apart


def test_markers_of_long_curves_are_in_other_rounds():
    (ax,) = plots.curves(CROWD[CROWD["alpha"] == 0.1], "value").axes
    first, second = (line.get_markevery() for line in ax.lines[:2])
    assert first[0] != second[0] and first[1] == second[1] > 1


def test_error_bars_stand_beside_one_another():
    """All at one radius and of one height: moved by some points on the picture, while their numbers stay."""
    two = SWEPT[SWEPT["method"].isin(["method 0", "method 1"])]
    figure = drawn(plots.sweep(two, x="rho"))
    left, right = figure.axes[0].containers
    for series in (left, right):
        assert list(series.lines[0].get_xdata()) == [0.05, 0.1, 0.2]
    at = [series.lines[0].get_transform().transform((0.1, 70))[0] for series in (left, right)]
    bar = [series.lines[2][0].get_transform().transform((0.1, 70))[0] for series in (left, right)]
    assert at[1] - at[0] == pytest.approx(3.5 * figure.dpi / 72) and bar == pytest.approx(at)


def test_single_points_of_a_sweep_stay_where_they_were_tried():
    """One seed has no bar that another could hide, and a rate of 0.01 is not to be read as 0.009."""
    figure = drawn(plots.sweep(SWEPT[SWEPT["seed"] == 0], x="rho"))
    at = {series.lines[0].get_transform().transform((0.1, 70))[0] for series in figure.axes[0].containers}
    assert len(figure.axes[0].containers) == 9 and len(at) == 1


def test_a_sweep_has_ticks_where_something_was_tried():
    """Two counts of clients are no scale with 6.5 clients on it; near ones share a text."""
    tried = pd.DataFrame({"method": "A", "measure": "m", "clients": [6, 10], "value": 1.0})
    (ax,) = plots.sweep(tried, x="clients").axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["6", "10"]
    ratios = [0.01, 0.03, 0.05, 0.07, 0.1, 0.2, 0.5]
    near = pd.DataFrame({"method": "A", "measure": "m", "ratio": ratios, "value": 1.0})
    (ax,) = plots.sweep(near, x="ratio").axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0.01", "", "0.05", "", "0.1", "0.2", "0.5"]


def test_bars_say_their_mean_and_have_room_for_long_names():
    """Means 2 and −40 above all dots; the panel is as high as with short names, though the names below are long."""
    scores = pd.DataFrame({"method": ["short", "long", "long"], "measure": "gain", "value": [2.0, -30.0, -50.0]})
    long = {"long": "FedWMSAM, the poster's variates, as printed"}
    heights = []
    for names in ({}, long):
        (ax,) = drawn(plots.bars(scores.replace(names))).axes
        assert [text.get_text() for text in ax.texts] == ["2", "-40"]
        top = ax.transData.transform([(0, 2.0)])[0, 1]
        assert all(box.y0 > top for box in boxes(ax.texts))
        heights.append(ax.get_window_extent().height)
    assert heights[1] > 0.9 * heights[0]


def test_rows_of_a_comparison_are_in_one_order_in_all_panels():
    index = pd.MultiIndex.from_tuples([("d1", "A"), ("d1", "B"), ("d2", "B"), ("d2", "A")], names=["dataset", "method"])
    table = pd.DataFrame({"paper": [1.0, 2.0, 3.0, 4.0], "ours": 0.0, "std": 0.0, "n": 3}, index=index)
    left, right = plots.compare(table).axes
    for ax, printed in ((left, [2, 1]), (right, [3, 4])):
        assert [text.get_text() for text in ax.get_yticklabels()] == ["B", "A"]
        assert ax.collections[1].get_offsets()[:, 0].tolist() == printed


def test_the_legend_of_a_comparison_takes_nothing_from_its_panel():
    """However long the name of the data set is that ours stands in for."""
    table = pd.DataFrame({"paper": 1.0, "ours": 2.0, "std": 0.1, "n": 3}, index=pd.Index(list("ABCDE"), name="method"))
    widths = [
        drawn(plots.compare(table.assign(**{"paper on": "C", "ours on": name}))).axes[0].get_window_extent().width
        for name in ("C", "CIFAR-10, 6,000 images, corrupted, at half of their size")
    ]
    assert widths[1] == pytest.approx(widths[0], rel=0.1)


def test_gains_of_nothing_are_no_scale_of_rounding_errors():
    none = pd.DataFrame({"method": "A", "measure": "gain", "ratio": [0.1, 0.2], "value": [0.0, 1.7e-17]})
    (ax,) = plots.sweep(none, x="ratio").axes
    assert ax.get_ylim() == (-1, 1)


def test_a_legend_moves_out_of_a_panel_whose_curves_it_would_hide():
    rates = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2]
    tried = pd.DataFrame(
        {"method": f"Method {i}", "lr": lr, "measure": "accuracy", "value": 50.0 + 5 * i + 9 * (j % 2)}
        for i in range(4) for j, lr in enumerate(rates)
    )  # fmt: skip
    full, alone = drawn(plots.sweep(tried, x="lr", log=True)), drawn(plots.sweep(tried[:6], x="lr", log=True))
    assert full.axes[0].get_legend() is None and alone.legends == []
    assert [text.get_text() for text in full.legends[0].get_texts()] == [f"Method {i}" for i in range(4)]
    assert not full.legends[0].get_window_extent().overlaps(full.axes[0].get_window_extent())
    kept = alone.axes[0].get_legend().get_window_extent()
    line = alone.axes[0].lines[0]
    assert not line.get_transform().transform_path(line.get_path()).intersects_bbox(kept, False)
