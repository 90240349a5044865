"""ReLUs that are masked by short copies of their outputs have the same gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.engines.convolve import FORMS, channels_last
from fednb.engines.masks import short_masks
from fednb.engines.repeats import without_repeats

aten = torch.ops.aten


def step(dtype, stride=1):
    """The gradient of a residual network of three convolutions, for each client."""

    def loss(w, v, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16, cache_enabled=False):
            h = F.relu(F.group_norm(F.conv2d(x, w, padding=1).float(), 2))
            h = F.relu(F.conv2d(h, v, padding=1).float() + h)
            out = F.conv2d(h, v, padding=1, stride=stride)
        return (F.relu(out) * torch.arange(1.0, 1 + out.shape[-1])).float().square().mean()

    return vmap(grad(loss, argnums=(0, 1)))


def inputs():
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=rng) for shape in ((3, 8, 8, 3, 3), (3, 8, 8, 3, 3), (3, 4, 8, 6, 6))]


def traced(function):
    return without_repeats(channels_last(make_fx(function, decomposition_table=FORMS)(*inputs())))


def count(graph, target):
    return [node.target for node in graph.graph.nodes].count(target)


def test_gradients_are_the_same_bit_for_bit():
    before, after = traced(step(torch.bfloat16)), short_masks(traced(step(torch.bfloat16)))
    assert count(before, aten.threshold_backward.default) == 3
    assert count(after, aten.threshold_backward.default) == 1  # no convolution reads the last
    for a, b in zip(before(*inputs()), after(*inputs()), strict=True):
        assert torch.equal(a, b) and a.abs().sum() > 0


def test_masks_read_what_lies_in_memory_for_a_convolution():
    """A view of the image that a convolution is given, in 16 bits."""
    graph = short_masks(traced(step(torch.bfloat16))).graph
    given = {node.args[0] for node in graph.nodes if node.target is aten.convolution.default}
    masks = [node.args[0] for node in graph.nodes if node.target is aten.le.Scalar]
    assert len(masks) == 2 and all(mask.args[0].args[0] in given for mask in masks)


@pytest.mark.parametrize("dtype, stride, short", [(torch.float32, 1, 0), (torch.bfloat16, 2, 1)])
def test_others_stay_as_they_are(dtype, stride, short):
    """In 32 bits there is no shorter copy; an image in tiles shows the output in another order."""
    before, after = traced(step(dtype, stride)), short_masks(traced(step(dtype, stride)))
    assert count(after, aten.le.Scalar) == short
    for a, b in zip(before(*inputs()), after(*inputs()), strict=True):
        assert torch.equal(a, b)
