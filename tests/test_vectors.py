"""Norms, clipping, and the layout that knows the layers inside a flat vector."""

from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from quadratics import vector
from torch import nn

from fednb.core.vectors import TINY, TOGETHER, Layout, NoSuchLayer, clip, cos, dot, norm, unit
from fednb.filters import HighPass
from fednb.models import build

LAYOUT = Layout(("conv.weight", "conv.bias", "fc.weight", "fc.bias"), ((2, 1, 2, 2), (2,), (3, 2), (3,)))
X = torch.arange(19, dtype=torch.float64)

numbers = st.floats(-1e3, 1e3).filter(lambda x: x == 0 or abs(x) > 1e-3)
some_vectors = st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=4)


def test_norm_keeps_the_last_axis():
    """‖(3, 4)‖ = 5 and ‖(0, −2)‖ = 2, as a column."""
    assert norm(torch.tensor([[3.0, 4.0], [0.0, -2.0]])).tolist() == [[5.0], [2.0]]


def test_dot_of_each_client():
    """⟨(1, 2), (3, 4)⟩ = 11 and ⟨(1, 0), (0, 1)⟩ = 0."""
    x, y = torch.tensor([[1.0, 2.0], [1.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    assert dot(x, y).tolist() == [[11.0], [0.0]]


def test_unit_has_the_epsilon_of_fl_simulator():
    """x / (‖x‖ + 1e-7): length 5 / (5 + 1e-7) for (3, 4), one half for a vector of length 1e-7, zero for zero."""
    assert TINY == 1e-7
    assert norm(unit(vector(3, 4))).item() == approx(5 / (5 + 1e-7), rel=1e-15)
    assert unit(vector(3, 4)).tolist() == approx([0.6, 0.8], rel=1e-7)
    assert unit(vector(1e-7, 0)).tolist() == approx([0.5, 0.0])
    assert unit(vector(0, 0)).tolist() == [0.0, 0.0]


def test_cos_of_known_angles():
    """(1, 1) makes 45° with (1, 0), 90° with (1, −1), 180° with (−2, −2); a zero vector has no angle: 0."""
    others = torch.stack([vector(1, 0), vector(1, -1), vector(-2, -2), vector(0, 0)])
    assert cos(vector(1, 1).expand(4, 2), others).view(-1).tolist() == approx([1 / sqrt(2), 0.0, -1.0, 0.0], abs=1e-6)


def test_clip_is_pytorchs_global_norm_clipping():
    """v · min(1, c / (‖v‖ + 1e-6)): (3, 4) at c = 1 becomes (3, 4) / 5.000001, the number that PyTorch has."""
    v = vector(3, 4)
    assert clip(v, 1.0).tolist() == approx([3 / 5.000001, 4 / 5.000001], rel=1e-14)
    p = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    p.grad = v.clone()
    nn.utils.clip_grad_norm_([p], 1.0)
    assert clip(v, 1.0).tolist() == approx(p.grad.tolist(), rel=1e-14)


def test_clip_leaves_short_vectors_alone():
    """Nothing happens below c, nor with c = none; at ‖v‖ = c the epsilon already shortens, by 1e-6 / c."""
    v = vector(3, 4)
    assert torch.equal(clip(v, 5.1), v)
    assert torch.equal(clip(v, None), v)
    assert norm(clip(v, 5.0)).item() == approx(5 / (1 + 2e-7), rel=1e-14)


@settings(max_examples=50, deadline=None)
@given(some_vectors, st.floats(0.1, 100.0))
def test_batched_equals_one_by_one(rows, most):
    """A stack of clients gives what each client gives alone."""
    x = torch.tensor(rows, dtype=torch.float64)
    y = x.roll(1, -1) + 1
    for f in (norm, unit, lambda v: clip(v, most)):
        torch.testing.assert_close(f(x), torch.stack([f(row) for row in x]), rtol=1e-12, atol=1e-9)
    for f in (dot, cos):
        alone = torch.stack([f(a, b) for a, b in zip(x, y, strict=True)])
        torch.testing.assert_close(f(x, y), alone, rtol=1e-12, atol=1e-9)


def test_sizes_and_totals():
    """2·1·2·2 + 2 + 3·2 + 3 = 19 numbers in 4 layers."""
    assert (LAYOUT.sizes, LAYOUT.total, len(LAYOUT)) == ((8, 2, 6, 3), 19, 4)


def test_layers_lie_one_behind_the_other():
    layers = LAYOUT.layers(X)
    assert list(layers) == list(LAYOUT.names)
    assert layers["conv.bias"].tolist() == [8, 9]
    assert layers["fc.bias"].tolist() == [16, 17, 18]
    assert LAYOUT.layers(X.expand(5, 19))["fc.weight"].shape == (5, 6)


def test_layers_are_views():
    x = X.clone()
    LAYOUT.layers(x)["conv.bias"].zero_()
    assert x[8:10].tolist() == [0, 0]
    assert x[10] == 10


def test_tensors_have_the_layers_shapes_in_memory_order():
    tensors = LAYOUT.tensors(X)
    assert tensors["fc.weight"].tolist() == [[10, 11], [12, 13], [14, 15]]
    assert tensors["conv.weight"].shape == (2, 1, 2, 2)


def test_flat_is_the_inverse_of_tensors():
    """Also when the tensors come in another order: names decide."""
    assert torch.equal(LAYOUT.flat(LAYOUT.tensors(X)), X)
    assert torch.equal(LAYOUT.flat(dict(reversed(LAYOUT.tensors(X).items()))), X)


def test_layout_of_a_module_follows_its_parameters():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    layout = Layout.of_parameters(model)
    assert layout.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert layout.shapes == ((2, 1, 3, 3), (2,), (3, 8), (3,))
    assert torch.equal(
        layout.flat(dict(model.named_parameters())), nn.utils.parameters_to_vector(model.parameters()).detach()
    )


@pytest.mark.parametrize(
    "where, picked",
    [
        ("*", (True, True, True, True)),
        ("fc.*", (False, False, True, True)),
        ("!fc.*", (True, True, False, False)),
        ("*.bias", (False, True, False, True)),
        ("*.weight, fc.bias", (True, False, True, True)),
        ("*.weight, !conv.*", (False, False, True, False)),
        ("!*.bias, !fc.*", (True, False, False, False)),
    ],
)
def test_select_by_name(where, picked):
    assert LAYOUT.select(where) == picked


@pytest.mark.parametrize("where", ["head.*", "FC.*", "!*", "fc"])
def test_a_where_that_fits_nothing_names_the_layers(where):
    with pytest.raises(NoSuchLayer, match=r"conv\.weight, conv\.bias, fc\.weight, fc\.bias") as error:
        LAYOUT.select(where)
    assert repr(where) in str(error.value)


def test_spread_repeats_a_number_over_its_layer():
    """Sizes 8, 2, 6, 3."""
    once = LAYOUT.spread(vector(1, 2, 3, 4))
    assert once.tolist() == 8 * [1] + 2 * [2] + 6 * [3] + 3 * [4]
    batch = LAYOUT.spread(torch.stack([vector(1, 2, 3, 4), vector(5, 6, 7, 8)]))
    assert batch.shape == (2, 19)
    assert batch[1].tolist() == 8 * [5] + 2 * [6] + 6 * [7] + 3 * [8]


class Minus:
    """Take the mean away; note the shapes seen."""

    def __init__(self, where="*", whole=False):
        self.where, self.whole, self.seen = where, whole, []

    def __call__(self, x, shape=None):
        self.seen.append(shape)
        return x - x.mean(-1, keepdim=True)


class MinusLong(Minus):
    """The same, but two numbers or fewer pass as they are."""

    def idle(self, n):
        return n <= 2


def test_map_goes_layer_by_layer():
    """Layers 0..7, 8..9, 10..15, 16..18 have means 3.5, 8.5, 12.5, 17; the filter is told each layer's shape."""
    filter = Minus()
    assert torch.equal(LAYOUT.map(filter, X), X - LAYOUT.spread(vector(3.5, 8.5, 12.5, 17)))
    assert filter.seen == list(LAYOUT.shapes)


def test_map_touches_only_the_chosen_layers():
    filter = Minus(where="fc.*")
    out = LAYOUT.map(filter, X)
    assert torch.equal(out[:10], X[:10])
    assert torch.equal(out[10:], (X - LAYOUT.spread(vector(0, 0, 12.5, 17)))[10:])
    assert filter.seen == [(3, 2), (3,)]


def test_a_whole_filter_sees_the_chosen_layers_as_one():
    """conv.weight and fc.bias together hold 0..7 and 16..18, whose mean is (28 + 51) / 11 = 79 / 11."""
    out = LAYOUT.map(Minus(where="conv.weight, fc.bias", whole=True), X)
    shift = 79 / 11
    assert torch.allclose(out, X - LAYOUT.spread(vector(shift, 0, 0, shift)), atol=1e-14, rtol=0)


@pytest.mark.parametrize("whole", [False, True])
def test_map_of_a_stack_is_the_stack_of_maps(whole):
    x = torch.stack([X, X.flip(0), X**2])
    filter = Minus(where="!conv.bias", whole=whole)
    assert torch.allclose(LAYOUT.map(filter, x), torch.stack([LAYOUT.map(filter, row) for row in x]), atol=1e-13)


def test_layers_of_one_shape_are_filtered_together():
    """Layers 0..1, 2..5, 6..7, 8..11 have means 0.5, 3.5, 6.5, 9.5. The shape (2,) has one call, (2, 2) and (4,) two.

    Each number comes back to its place, alone or in a stack of clients.
    """
    layout = Layout(("a", "b", "c", "d"), ((2,), (2, 2), (2,), (4,)))
    filter, x = Minus(), X[:12]
    wanted = x - layout.spread(vector(0.5, 3.5, 6.5, 9.5))
    assert torch.equal(layout.map(filter, x), wanted)
    assert filter.seen == [(2,), (2, 2), (4,)]
    assert torch.equal(layout.map(filter, torch.stack([x, 2 * x])), torch.stack([wanted, 2 * wanted]))


def test_large_layers_are_filtered_alone():
    """Two layers of the largest size that is small share a call; with one number more each has its own."""
    for size, calls in ((TOGETHER, 1), (TOGETHER + 1, 2)):
        filter = Minus()
        y = Layout(("a", "b"), ((size,), (size,))).map(filter, torch.arange(2 * size).double())
        assert len(filter.seen) == calls
        assert torch.equal(y[:size], y[size:])


def test_a_filter_is_not_asked_about_layers_that_it_leaves_alone():
    """conv.bias has two numbers."""
    filter = MinusLong()
    assert torch.equal(LAYOUT.map(filter, X), X - LAYOUT.spread(vector(3.5, 0, 12.5, 17)))
    assert filter.seen == [(2, 1, 2, 2), (3, 2), (3,)]


def test_map_refuses_a_where_that_fits_nothing():
    with pytest.raises(NoSuchLayer, match=r"head\.\*"):
        LAYOUT.map(Minus(where="head.*"), X)


def test_a_filter_of_the_whole_gradient_is_near_that_of_each_layer():
    """A ratio is a period, 200 weights for 1%, of whatever is flattened: it matters to layers that are shorter alone.

    A first gradient of ResNet-18, as in FedFFT's Table 13, where it is not said what is flattened.
    """
    torch.manual_seed(0)
    model, filter = build("resnet18-gn", 10, (3, 8, 8)), HighPass(0.01)
    loss = nn.functional.cross_entropy(model(torch.randn(8, 3, 8, 8)), torch.randint(3, (8,)))
    g = nn.utils.parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))[None]
    by_layer, whole = Layout.of_parameters(model).map(filter, g), filter(g)
    assert (g - whole).norm() > 0.2 * g.norm(), "there is something to remove"
    assert (by_layer - whole).norm() < 0.1 * whole.norm()
