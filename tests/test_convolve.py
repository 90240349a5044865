"""Convolutions in other forms are the same convolutions."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.engines.convolve import FORMS, STRIDE, _summed, channels_last

aten = torch.ops.aten
# channels in, out, kernel, stride, padding, side
TINY, HALVED = (16, 32, 3, 1, 1, 1), (16, 32, 3, 2, 1, 2)
POINTWISE, SHORTCUT, IMAGE = (16, 32, 1, 1, 0, 6), (16, 32, 1, 2, 0, 6), (3, 16, 3, 1, 1, 6)
CASES = [
    (16, 16, 3, 1, 1, 6),  # the library's own, channels last
    (16, 32, 3, 2, 1, 6),  # in strides
    (16, 32, 3, 2, 1, 7),
    (8, 16, 3, 3, 0, 8),
    (8, 16, 2, 2, 0, 6),
    POINTWISE,
    SHORTCUT,
    (16, 32, 1, 2, 0, 7),
    IMAGE,
    (1, 8, 5, 1, 0, 8),
    (3, 8, 7, 2, 3, 9),
    TINY,  # only the middle of the kernel sees the image
    HALVED,  # only two rows and columns do, which are as many as the image has
    (8, 16, 3, 2, 1, 1),
    (8, 16, 5, 1, 2, 2),  # three of five: still a kernel larger than its image
    (8, 16, 5, 1, 2, 1),
    (8, 16, 3, 1, 2, 1),  # all see it, from some place
    (3, 16, 3, 1, 0, 3),  # as large as the image, from the start
    (3, 8, 1, 1, 1, 5),  # one by one, but with a rim of zeros
    (8, 8, 1, 2, 1, 5),
    (8, 8, 3, 2, 3, 5),  # a rim beyond the kernel's reach
]


def given(case, groups, bias):
    c, o, k, stride, padding, side = case
    rng = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)  # noqa: E731
    x, w = make(4, groups * c, side, side), make(groups * o, c, k, k)
    how = [[stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups]
    return x, w, make(groups * o) if bias else None, how


def traced(function, *inputs):
    """The function with the forms put in, and the operations it then has."""
    graph = channels_last(make_fx(function, decomposition_table=FORMS)(*inputs))
    return graph, [node.target for node in graph.graph.nodes]


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_forms_are_the_convolution(case, groups, bias):
    x, w, b, how = given(case, groups, bias)
    run, _ = traced(lambda x, w: aten.convolution(x, w, b, *how), x, w)
    torch.testing.assert_close(run(x, w), aten.convolution(x, w, b, *how), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mask", [(True, True, True), (False, True, False), (True, False, False)])
@pytest.mark.parametrize("case", CASES)
def test_forms_have_its_gradients(case, mask):
    x, w, b, how = given(case, 3, True)
    g = torch.randn_like(aten.convolution(x, w, b, *how))
    back = lambda g, x, w: aten.convolution_backward(g, x, w, [len(b)], *how, mask)  # noqa: E731
    run, _ = traced(back, g, x, w)
    for ours, wanted in zip(run(g, x, w), back(g, x, w), strict=True):
        assert (ours is None) == (wanted is None)
        if ours is not None:
            torch.testing.assert_close(ours, wanted, rtol=1e-11, atol=1e-11)


def test_small_kernels_and_few_channels_become_products_and_the_library_has_the_rest():
    """1x1 kernels, 3 channels to 16: no convolution is left. Others, also one to one: one, with the channels last."""
    for case, left in ((SHORTCUT, 0), (IMAGE, 0), (CASES[0], 1), ((1, 1, 3, 1, 1, 6), 1)):
        x, w, _, how = given(case, 3, False)
        targets = traced(lambda x, w: aten.convolution(x, w, None, *how), x, w)[1]  # noqa: B023
        assert targets.count(aten.convolution.default) == left
        assert targets.count(aten.clone.default) >= 2 * left


def test_places_of_a_kernel_that_never_see_the_image_are_left_out():
    """3x3 kernels on 1x1 images: 16 products a number, not 144; on 2x2 in strides: 64. No convolution is left."""
    for case, products in ((TINY, 16), (HALVED, 64)):
        x, w, _, how = given(case, 3, False)
        g = aten.convolution(x, w, None, *how)
        run, targets = traced(lambda x, w: aten.convolution(x, w, None, *how), x, w)  # noqa: B023
        back = lambda g, x, w: aten.convolution_backward(g, x, w, None, *how, (True, True, False))[:2]  # noqa: B023, E731
        backward, others = traced(back, g, x, w)
        assert not {aten.convolution.default, aten.convolution_backward.default} & {*targets, *others}
        (node,) = [node for node in run.graph.nodes if node.target == aten.bmm.default]
        assert node.args[0].meta["tensor_meta"].shape[-1] == products
        assert int((backward(g, x, w)[1] != 0).sum()) == w[:, :, 0, 0].numel() * products // 16


@pytest.mark.parametrize("shape", [(1, 4), (3, 1), (2, 5)])
def test_kernels_on_small_oblong_images_are_the_convolution(shape):
    rng = torch.Generator().manual_seed(1)
    x, w = (torch.randn(*size, generator=rng, dtype=torch.float64) for size in ((2, 12, *shape), (18, 4, 3, 5)))
    how = [[1, 2], [1, 2], [1, 1], False, [0, 0], 3]
    wanted = aten.convolution(x, w, None, *how)
    run, _ = traced(lambda x, w: aten.convolution(x, w, None, *how), x, w)
    torch.testing.assert_close(run(x, w), wanted, rtol=1e-12, atol=1e-12)
    back = lambda g, x, w: aten.convolution_backward(g, x, w, None, *how, (True, True, False))[:2]  # noqa: E731
    run, _ = traced(back, wanted, x, w)
    for ours, theirs in zip(run(wanted, x, w), back(wanted, x, w), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def test_a_convolution_in_strides_is_one_without_forward_and_backward():
    """Of several groups: on tiles whose places are channels. One group is left to the library."""
    for groups in (3, 1):
        x, w, _, how = given(CASES[1], groups, False)
        g = aten.convolution(x, w, None, *how)
        forward = lambda x, w: aten.convolution(x, w, None, *how)  # noqa: B023, E731
        back = lambda g, x, w: aten.convolution_backward(g, x, w, None, *how, (True, True, False))[:2]  # noqa: B023, E731
        nodes = [*traced(forward, x, w)[0].graph.nodes, *traced(back, g, x, w)[0].graph.nodes]
        strides = [node.args[STRIDE[node.target]] for node in nodes if node.target in STRIDE]
        assert strides == ([[1, 1]] * 2 if groups == 3 else [[2, 2]] * 2)


def test_what_patches_are_taken_of_is_in_memory():
    """Once for each time that patches are taken; a 1x1 kernel sees every number once."""
    for case, times in ((IMAGE, 1), (POINTWISE, 0)):
        x, w, _, how = given(case, 3, False)
        targets = traced(lambda x, w: aten.convolution(2 * x, w, None, *how), x, w)[1]  # noqa: B023
        assert targets.count(torch.ops.fednb.held.default) == times


def test_other_convolutions_stay_as_they_are():
    """Dilated, transposed, and those of another number of axes."""
    x, w, _, how = given(CASES[0], 1, False)
    wide = [how[0], [2, 2], [2, 2], *how[3:]]
    run, _ = traced(lambda x, w: aten.convolution(x, w, None, *wide), x, w)
    torch.testing.assert_close(run(x, w), aten.convolution(x, w, None, *wide), rtol=1e-12, atol=1e-12)
    along = [[1], [1], [1], False, [0], 1]
    run, _ = traced(lambda x, w: aten.convolution(x, w, None, *along), x[:, 0], w[:, :6, 0])
    assert torch.equal(run(x[:, 0], w[:, :6, 0]), aten.convolution(x[:, 0], w[:, :6, 0], None, *along))


def test_long_sums_in_pieces_are_the_sum():
    """M = 1200 rows of 4 and 6: 1200 · 10 / (4 · 24) = 125, so 60 pieces, the most up to 64 that divide; 7: one."""
    for many in (1200, 7):
        x, y = torch.randn(2, 3, many, 6, dtype=torch.float64).unbind()
        parts = make_fx(lambda x, y: _summed(x[..., :4], y))(x, y)
        torch.testing.assert_close(parts(x, y), x[..., :4].transpose(1, 2) @ y, rtol=1e-12, atol=1e-12)
        pieces = next(node.args[1][0] // 3 for node in parts.graph.nodes if node.target == aten.view.default)
        assert pieces == (60 if many == 1200 else 1)
