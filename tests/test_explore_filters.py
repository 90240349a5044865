"""What the filter explorer shows is what the filter does; every filter and every field of one has a control."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from moving import check, through_controls
from small_store import VIEW, store  # noqa: F401

from fednb import filters
from fednb.filters import HighPass, LocalAverage, LowPass, MeanOnly, Permuted, Plane, RandomBand
from fednb.show.explore.filters import LAYER, Filters, built, kinds, linear, look, parameters, response, sees_shape
from fednb.show.explore.signals import HAND, PRESETS, SHAPES, N, drawn, preset

CONV = SHAPES["kernels 8 x 8 x 3 x 3"]


@pytest.fixture(scope="module")
def one():
    return Filters(device="cpu")


@pytest.fixture
def explorer(one):
    """The same for all tests, with its controls as they were at first."""
    with one.together():
        for control, value in zip(one.controls.values(), one.at_first.values(), strict=True):
            control.value = value
    return one


@pytest.fixture(autouse=True, scope="module")
def remember(one):
    one.at_first = one.values


def test_all_filters_are_there():
    """Every public class under fednb.filters that is a filter, however it was written."""
    by_hand = {
        c.__name__ for c in _all(filters.Filter) if c.__module__.startswith("fednb.filters.") and c.__name__[0] != "_"
    }
    assert set(kinds()) == by_hand and len(by_hand) >= 12


def _all(cls):
    return {cls}.union(*map(_all, cls.__subclasses__())) - {filters.Filter}


@pytest.mark.parametrize("kind", kinds())
def test_every_field_has_a_control_and_takes_what_it_says(explorer, kind):
    """A filter with all its controls moved away from their defaults is that filter with these values."""
    values = explorer.values | {"ratio": 0.25, "kernel": 5, "sigma": 2.0, "truncate": 3.0, "order": "1032", "seed": 7,
                                "radius": 0.5, "per": "layer", "factor": 1.5, "filter": "LocalAverage"}  # fmt: skip
    made = built(kind, values)
    assert type(made).__name__ == kind
    for f in fields(made):
        if f.name == "filter":
            assert made.filter == LocalAverage(5)
        elif f.name != "where":
            assert getattr(made, f.name) == values[f.name] and f.name in explorer.controls


def test_defaults_are_the_librarys(explorer):
    """Opened as it is, a control says what the filter's own default is; a ratio says 0.05 for all."""
    for kind in kinds():
        for f in fields(made := built(kind, explorer.values)):
            if f.name not in ("where", "ratio"):
                assert getattr(made, f.name) == getattr(kinds()[kind](), f.name), (kind, f.name)


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("shape", SHAPES.values(), ids=str)
def test_input_and_output_are_the_filters(explorer, kind, shape):
    x, filter = torch.from_numpy(preset("trend and noise")), built(kind, explorer.values)
    seen = look(filter, x, shape)
    assert seen.x.tolist() == x.tolist()
    assert torch.allclose(torch.from_numpy(seen.y), filter(x, shape))
    assert np.square(seen.before).sum() <= float(x.square().sum()) + 1e-9  # half of a unitary transform


def test_spectra_are_in_the_filters_own_order():
    """HighPass(r) in order 3210 removes ⌊r · 289⌋ frequencies of the weights in that order, and of no other."""
    x = torch.from_numpy(preset("noise"))
    gone = int(0.1 * 289)
    permuted = look(Permuted(HighPass(0.1), "3210"), x, CONV)
    assert permuted.after[:gone].max() < 1e-9 < permuted.before[:gone].min()
    plain = look(HighPass(0.1), x, CONV)
    assert plain.after[:gone].max() < 1e-9 and not np.allclose(plain.before, permuted.before)
    order = torch.arange(N).reshape(CONV).permute(3, 2, 1, 0).reshape(-1)
    assert permuted.before == pytest.approx(torch.fft.rfft(x[order], norm="ortho").abs().numpy())


def test_gain_of_band_filters_is_zero_where_they_cut():
    """1 where a frequency stays, 0 where it goes; of MeanOnly all but the first stay."""
    n, gone = 289, int(0.1 * 289)
    for filter, cut in ((HighPass(0.1), range(gone)), (LowPass(0.1), range(n - gone, n)), (MeanOnly(0.1), [0])):
        _, gain = response(filter, N, (N,))
        wanted = np.ones(n)
        wanted[list(cut)] = 0
        assert gain == pytest.approx(wanted, abs=1e-9)
    assert (response(RandomBand(0.1), N, (N,))[1] < 1e-6).sum() == gone


def test_gain_of_a_moving_average():
    """x − mean of 17 neighbours: 1 − sin(17 π f) / (17 sin(π f)) at frequency f; nothing at 0."""
    impulse, gain = response(LocalAverage(17), N, (N,))
    f = np.arange(1, 289) / N
    assert gain[0] == pytest.approx(0, abs=1e-9)
    assert gain[1:] == pytest.approx(np.abs(1 - np.sin(17 * np.pi * f) / (17 * np.sin(np.pi * f))), abs=1e-9)
    assert impulse[N // 2] == pytest.approx(16 / 17) and impulse[N // 2 + 8] == pytest.approx(-1 / 17)


def test_a_filter_of_kernels_has_a_response_but_no_gain():
    """Plane takes a 3x3 kernel's mean: a 1 becomes 8/9, its eight neighbours −1/9. Elsewhere the kernel is another."""
    impulse, gain = response(Plane(0.05), N, CONV)
    assert gain is None and sorted(np.unique(impulse.round(9))) == pytest.approx([-1 / 9, 0, 8 / 9])
    assert response(Permuted(HighPass(0.1), "random"), N, CONV)[1] is None
    assert response(Permuted(HighPass(0.1), "0123"), N, CONV)[1] is not None


def test_three_filters_are_not_linear(explorer):
    """Those whose factor depends on the signal."""
    crooked = {kind for kind in kinds() if not linear(built(kind, explorer.values), N, (N,))}
    assert crooked == {"Rescale", "NormMatched", "ClipToMedian"}
    assert look(built("Rescale", explorer.values), torch.ones(N), (N,)).impulse is None


def test_points_are_on_the_drawn_line():
    """Nine points, 575 / 8 weights apart: the line passes through each of them and never beyond."""
    points = [0.2, 0.8, 0.5, -0.3, -0.6, 0.1, 0.9, 0.4, -0.2]
    y = drawn(points)
    at = np.linspace(0, N - 1, len(points))
    assert np.interp(at, np.arange(N), y) == pytest.approx(points, abs=0.01)
    assert len(y) == N and y.min() >= -0.6 and y.max() <= 0.9


@pytest.mark.parametrize("name", PRESETS)
def test_made_signals_are_finite_and_always_the_same(name):
    x = preset(name)
    assert x.shape == (N,) and np.isfinite(x).all() and x.std() > 0 and (preset(name) == x).all()


def changes(explorer, **values):
    before = explorer.picture.value
    with explorer.together():
        for name, value in values.items():
            explorer.controls[name].value = value
    return explorer.picture.value != before and "role='alert'" not in explorer.words.value


def test_controls_change_the_picture(explorer):
    assert changes(explorer, ratio=0.2) and "HighPass(ratio=0.2)" in explorer.words.value
    assert changes(explorer, kind="LocalAverage")
    assert changes(explorer, kernel=51) and "LocalAverage(kernel=51)" in explorer.words.value
    assert changes(explorer, kind="Permuted", filter="HighPass", shape="kernels 8 x 8 x 3 x 3")
    assert changes(explorer, order="random") and changes(explorer, seed=3)
    assert changes(explorer, source=HAND) and changes(explorer, point3=-1.0)
    assert changes(explorer, source="step")


def test_a_layer_of_a_probe_is_the_probes(explorer):
    kept = explorer.first[0].probed(1)
    assert changes(explorer, source=LAYER, round=1, client=2, what="gradient", layer="fc2.weight")
    x, shape, _ = explorer.signal(explorer.values)
    assert torch.equal(x, kept.layout.layers(kept.vectors["gradient"][2])["fc2.weight"]) and shape == (10, 128)
    assert changes(explorer, what="global")
    x, _, name = explorer.signal(explorer.values)
    assert torch.equal(x, kept.layout.layers(kept.vectors["global"][0])["fc2.weight"]) and "client" not in name


def test_only_controls_that_matter_are_shown(explorer):
    def shown():
        names = (name for name in explorer.controls if not name.startswith("point"))
        return {name for name in names if explorer.controls[name].layout.display != "none"}

    assert shown() == {"source", "kind", "ratio"} and explorer.points.layout.display == "none"
    explorer.controls["kind"].value = "Plane"
    assert shown() == {"source", "shape", "kind", "ratio"}
    explorer.controls["source"].value = HAND
    assert explorer.points.layout.display != "none"
    with explorer.together():
        explorer.controls["source"].value = LAYER
        explorer.controls["kind"].value, explorer.controls["filter"].value = "Permuted", "GaussianDetrend"
        explorer._fit()
    assert shown() == {"source", "kind", "run", "round", "what", "client", "layer", "filter", "order", "seed", "sigma",
                       "truncate"}  # fmt: skip
    assert parameters(kinds()["Permuted"], "GaussianDetrend") == ["filter", "order", "seed", "sigma", "truncate"]


@pytest.mark.parametrize("kind", kinds())
def test_the_shape_is_asked_for_where_it_matters(explorer, kind):
    """As a vector, a matrix and kernels: the same output of all three where nobody is asked, else not."""
    x, filter = torch.from_numpy(preset("noise")), built(kind, explorer.values | {"filter": "HighPass"})
    outputs = [filter(x, shape) for shape in SHAPES.values()]
    assert sees_shape(kind) != all(torch.allclose(outputs[0], each) for each in outputs)


def test_a_flat_drawing_says_what_to_do(explorer):
    explorer.controls["source"].value = HAND
    before = explorer.picture.value
    with explorer.together():
        for name in (name for name in explorer.controls if name.startswith("point")):
            explorer.controls[name].value = 0
    assert "zero everywhere" in explorer.words.value and explorer.picture.value == before


def test_headless_and_live(explorer, monkeypatch):
    bundle = explorer._repr_mimebundle_()
    assert VIEW not in bundle and "image/png" in bundle
    monkeypatch.setenv("FEDNB_WIDGETS", "live")
    assert {VIEW, "image/png"} <= set(explorer._repr_mimebundle_())


def test_without_a_kernel_every_state_has_its_picture(explorer):
    at = {move.name: move.options[move.start][1] for move in explorer.moves()}
    assert at == {name: explorer.at_first[name] for name in at}
    check(explorer, through_controls(explorer))
