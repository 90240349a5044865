"""Every model is a function of a vector: stacked clients get their own gradients; the seed alone decides the start."""

from functools import cache

import pytest
import torch
from torch.func import grad_and_value, vmap

from fednb.engines.objective import Objective
from fednb.models import FOR_IMAGES, FOR_TEXT, build, names

DIGITS, WORDS, CLASSES = (1, 8, 8), (11, 6), 3
SMALLEST = {
    "lenet": (1, 16, 16),
    "lenet-cr": (1, 16, 16),
    "cnn5": (1, 16, 16),
    "cnn5-cr": (1, 16, 16),
    "vit-awa": (1, 4, 4),
}
FROM_TIMM = [name for name in names() if name == "vit-tiny"]  # tests/test_models_vit.py
TESTED_BEFORE = [name for name in names() if name.startswith("resnet18")]  # tests/test_models.py, in single precision
OURS = [name for name in names() if name not in (*FROM_TIMM, *TESTED_BEFORE)]
NORM_FREE = [name for name in OURS if not name.endswith("-bn")]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def shape(name):
    """The smallest input that a model takes."""
    return SMALLEST.get(name, WORDS if name in FOR_TEXT else DIGITS)


@cache
def objective(name):
    """A model in double precision; the large ones are built once."""
    return Objective(build(name, CLASSES, shape(name)).double())


def samples(name, clients, n=2):
    g = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (clients, n), generator=g)
    if name in FOR_TEXT:
        return torch.randint(WORDS[0], (clients, n, WORDS[1]), generator=g), y
    return torch.randn(clients, n, *shape(name), generator=g, dtype=torch.float64), y


@pytest.mark.filterwarnings("error")  # vmap warns where it has to fall back to a loop over clients
@pytest.mark.parametrize("name", NORM_FREE)
def test_stacked_gradient_is_each_clients_own(name):
    """Two clients with other weights, data and a padded batch: vmap(∇L)[k] = ∇L(w_k), in double precision."""
    f = objective(name)
    w, b = f.start(torch.float64, torch.device("cpu"))
    w = torch.stack([w, w + 0.01 * torch.sin(torch.arange(len(w)))])
    x, y = samples(name, clients=2)
    valid = torch.tensor([[1, 0], [1, 1]], dtype=torch.float64)
    with f.arithmetic():
        stacked, losses = vmap(grad_and_value(f.masked_loss))(w, b.expand(2, -1), x, y, valid)
    for k, there in enumerate(valid.bool()):
        alone, loss = f.gradient(w[k], b, x[k][there], y[k][there])
        torch.testing.assert_close(stacked[k], alone, atol=1e-10, rtol=0)
        torch.testing.assert_close(losses[k], loss, atol=1e-10, rtol=0)
        assert alone.abs().max() > 1e-3


@pytest.mark.parametrize("name", OURS)
def test_the_head_is_the_classifier(name):
    """`@head` is the last linear layer: as many rows as there are classes, and its bias."""
    layout = objective(name).layout
    head = [shape for shape, yes in zip(layout.shapes, layout.select("@head"), strict=True) if yes]
    assert [len(shape) for shape in head] == [2, 1] and all(shape[0] == CLASSES for shape in head)


@pytest.mark.parametrize("name", OURS)
def test_scores_and_buffers(name):
    """Only BatchNorm has buffers, the score counts answers, and a model without noise answers twice alike."""
    f = objective(name)
    w, b = f.start(torch.float64, torch.device("cpu"))
    (x,), (y,) = samples(name, clients=1)
    assert bool(len(b)) == name.endswith("-bn")
    right, loss = f.score(w, b, x, y)
    assert 0 <= right <= 2 and 0 < loss < float("inf")
    assert torch.equal(f.outputs(w, b.clone(), x), f.outputs(w, b.clone(), x))


@pytest.mark.parametrize("name", OURS)
def test_first_weights_are_a_function_of_the_seed(name):
    held = dict(objective(name).model.named_parameters())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        again, other = (build(name, CLASSES, shape(name), seed=s).double() for s in (0, 1))
        drawn = torch.rand(1)
        torch.manual_seed(5)
        assert torch.equal(torch.rand(1), drawn)
    assert all(torch.equal(value, held[key]) for key, value in again.named_parameters())
    last = objective(name).layout.names[-2]
    assert not torch.equal(dict(other.named_parameters())[last], held[last])


def test_two_names_start_differently():
    """The name is part of the seed: GroupNorm's and BatchNorm's form of a network do not share their first weights."""
    gn, bn = (objective(f"small-cnn-{kind}").model for kind in ("gn", "bn"))
    assert not torch.equal(gn.conv1.weight, bn.conv1.weight)


def test_batchnorm_moves_its_statistics_in_training_only():
    f = objective("small-cnn-bn")
    w, b = f.start(torch.float64, torch.device("cpu"))
    (x,), (y,) = samples("small-cnn-bn", clients=1)
    for call, moves in ((f.score, False), (f.gradient, True)):
        moved = b.clone()
        call(w, moved, x, y)
        assert torch.equal(moved, b) != moves


def test_dense_layers_are_torchvisions_with_the_new_channels_in_front():
    from fednb.base.compat import torchvision
    from fednb.models.densenet import GROWTH, Layer

    theirs = torchvision.models.densenet._DenseLayer(64, GROWTH, bn_size=4, drop_rate=0.0).double()
    ours = Layer(64, kind="bn").double()
    ours.load_state_dict(
        {
            key.replace("norm", "bn"): value + 0.1 * torch.rand_like(value) if value.is_floating_point() else value
            for key, value in theirs.state_dict().items()
        }
    )
    theirs.load_state_dict({key.replace("bn", "norm"): value for key, value in ours.state_dict().items()})
    x = torch.randn(2, 64, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    out = ours(x)
    torch.testing.assert_close(out[:, :GROWTH], theirs(x))
    assert torch.equal(out[:, GROWTH:], x)


def test_transitions_halve_channels_and_sides():
    """With scale 1, bias 0 and a kernel that picks channel 1 everywhere, what is left is the mean of 2x2 pixels."""
    from fednb.models.densenet import Transition

    layer = Transition(4, kind="bn").eval()
    layer.conv.weight.data = torch.zeros(2, 4, 1, 1).index_fill(1, torch.tensor(1), 1.0)
    x = torch.zeros(1, 4, 4, 4)
    x[0, 1, :2, :2] = torch.tensor([[4.0, 8.0], [-5.0, 0.0]])
    out = layer(x)
    assert out.shape == (1, 2, 2, 2)
    assert out[0, :, 0, 0].tolist() == pytest.approx([3.0, 3.0], rel=1e-4) and out[0, :, 1].abs().max() == 0


def test_dense_blocks_have_the_printed_widths():
    """64 + 6·32 = 256, halved; 128 + 12·32 = 512, halved; 256 + 24·32 = 1024, halved; 512 + 16·32 = 1024."""
    net = objective("densenet121-gn").model
    assert [net.trans1.bn.num_channels, net.trans2.bn.num_channels, net.trans3.bn.num_channels] == [256, 512, 1024]
    assert net.bn.num_channels == net.fc.in_features == 1024
    assert {m.num_groups for m in net.modules() if isinstance(m, torch.nn.GroupNorm)} == {2}


def test_names_cover_images_and_text():
    assert set(names()) == {*FOR_IMAGES, *FOR_TEXT} and not {*FOR_IMAGES} & {*FOR_TEXT}
