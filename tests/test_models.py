"""Models have the published sizes, torchvision's outputs, and first weights that depend on the seed alone."""

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from fednb import models
from fednb.models import FOR_IMAGES, FOR_TEXT, InputTooSmall, UnknownModel, WrongInput, build

FASHION, CIFAR, TINY, DIGITS = (1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 8, 8)
BLOOD, FEMNIST, SHAKESPEARE, YAHOO = (3, 28, 28), (1, 28, 28), (80, 80), (98_635, 200)
DEEP = (
    "wrn56-2-gn",
    "wrn56-2-bn",
    "densenet121-gn",
    "densenet121-bn",
    "vit-awa",
)  # built at 8x8 in test_models_stacked


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def size(net):
    return sum(p.numel() for p in net.parameters())


def shapes(net):
    return [(key, tuple(value.shape)) for key, value in net.state_dict().items()]


@pytest.mark.parametrize(
    "name, classes, input, count",
    [
        ("cnn5", 10, FASHION, 1_258_798),
        ("cnn5", 10, CIFAR, 2_806_602),
        ("cnn5", 100, CIFAR, 2_898_852),
        ("cnn5", 200, TINY, 3_527_784),
        ("lenet", 10, CIFAR, 797_962),
        ("resnet20-gn", 10, CIFAR, 272_474),
        ("resnet20-bn", 10, CIFAR, 272_474),
        ("resnet20-gn", 100, CIFAR, 278_324),
        ("resnet20-gn", 200, TINY, 284_824),
        ("resnet18-gn", 10, CIFAR, 11_181_642),
        ("resnet18-bn", 10, CIFAR, 11_181_642),
        ("resnet18-gn", 100, CIFAR, 11_227_812),
        ("resnet18-gn", 200, TINY, 11_279_112),
        ("resnet18-gn-s3", 10, CIFAR, 11_173_962),
        ("resnet18-bn-s3", 100, CIFAR, 11_220_132),
        ("wrn56-2-gn", 10, CIFAR, 3_412_394),
        ("wrn56-2-bn", 100, CIFAR, 3_424_004),
        ("densenet121-gn", 10, CIFAR, 6_956_298),
        ("densenet121-bn", 100, CIFAR, 7_048_548),
        ("lstm", 80, SHAKESPEARE, 819_920),
    ],
)
def test_parameter_counts_of_the_papers(name, classes, input, count):
    assert size(build(name, classes, input)) == count


def test_cnn_small_counts():
    """28x28: 160 + 4640 + (32*7*7 + 1)*128 + 129*10; 8x8 leaves 2x2 of the image."""
    assert size(build("cnn-small", 10, FASHION)) == 160 + 4640 + (32 * 49 + 1) * 128 + 129 * 10
    assert size(build("cnn-small", 10, DIGITS)) == 160 + 4640 + (32 * 4 + 1) * 128 + 129 * 10


@pytest.mark.parametrize(
    "name, input, count",
    [
        ("small-cnn-bn", CIFAR, 896 + 64 + 18_496 + 128 + 73_856 + 256 + (2048 + 1) * 256 + 257 * 10),
        ("small-cnn-gn", FASHION, 320 + 64 + 18_496 + 128 + 73_856 + 256 + (1152 + 1) * 256 + 257 * 10),
        ("fasttext", YAHOO, 98_635 * 32 + 33 * 32 + 33 * 10),
        ("textcnn", YAHOO, 98_635 * 32 + 100 * ((3 + 4 + 5) * 32 + 3) + 301 * 10),
        ("lstm-small", SHAKESPEARE, 80 * 8 + 128 * (8 + 32 + 2) + 128 * (32 + 32 + 2) + 33 * 10),
        ("vit-awa", CIFAR, 49 * 512 + (65 + 1) * 512 + 6 * (4 * 512 + 512 * 1536 + 3 * 513 * 512) + 1024 + 5130),
        ("vit-nano", DIGITS, 5 * 32 + (17 + 1) * 32 + 2 * (4 * 32 + 32 * 96 + 33 * 32 + 33 * 64 + 65 * 32) + 64 + 330),
    ],
)
def test_counts_by_hand(name, input, count):
    """Weights and biases layer by layer, ten classes; the docstrings print four of these totals."""
    assert size(build(name, 10, input)) == count


def test_printed_totals_of_assumed_models():
    printed = {"small-cnn-gn": (CIFAR, 620_810), "vit-awa": (CIFAR, 9_523_722), "fasttext": (YAHOO, 3_157_706)}
    for name, (input, count) in printed.items():
        assert size(build(name, 10, input)) == count


@pytest.mark.parametrize("name", [name for name in FOR_IMAGES if name not in (*DEEP, "vit-tiny")])
@pytest.mark.parametrize("input", [FASHION, CIFAR], ids=str)
def test_forward_gives_one_score_per_class(name, input):
    net = build(name, 7, input).eval()
    assert net(torch.zeros(2, *input)).shape == (2, 7)


@pytest.mark.parametrize("name", ["resnet20-gn", "resnet18-gn", "resnet18-gn-s3", "wrn56-2-gn", "densenet121-gn"])
@pytest.mark.parametrize("classes, input", [(8, BLOOD), (62, FEMNIST)], ids=["bloodmnist", "femnist"])
def test_blood_cells_and_handwriting_fit(name, classes, input):
    with torch.no_grad():
        assert build(name, classes, input)(torch.zeros(1, *input)).shape == (1, classes)


@pytest.mark.parametrize("name", FOR_TEXT)
def test_text_gives_one_score_per_class(name):
    net = build(name, 7, (11, 6))
    assert net(torch.randint(11, (2, 6), generator=torch.Generator().manual_seed(0))).shape == (2, 7)


@pytest.mark.parametrize(
    "name", ["cnn-small", "small-cnn-gn", "small-cnn-bn", "resnet20-gn", "resnet18-gn", "vit-nano"]
)
def test_digits_fit(name):
    assert build(name, 10, DIGITS)(torch.zeros(2, *DIGITS)).shape == (2, 10)


def test_first_weights_of_resnet18_have_the_norm_that_makes_clipping_bite():
    """specs 0.4: |w0| is about 111.7, so that 0.1 w0 is already longer than the clip of 10."""
    w0 = torch.nn.utils.parameters_to_vector(build("resnet18-gn", 10, CIFAR).parameters())
    assert w0.norm().item() == pytest.approx(111.7, abs=0.3)


@pytest.mark.parametrize("kind", ["gn", "bn"])
def test_resnet18_is_torchvisions(kind):
    from fednb.base.compat import torchvision

    layer = (lambda channels: torch.nn.GroupNorm(2, channels)) if kind == "gn" else None
    theirs = torchvision.models.resnet18(num_classes=10, norm_layer=layer).eval()
    ours = build(f"resnet18-{kind}", 10, CIFAR).eval()
    assert shapes(ours) == shapes(theirs)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, *CIFAR, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(x), theirs(x))


def test_first_weights_are_torchvisions_under_the_same_generator():
    from fednb.base.compat import torchvision
    from fednb.models.resnet import resnet18

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        theirs = torchvision.models.resnet18(num_classes=10)
        torch.manual_seed(3)
        ours = resnet18(10, CIFAR, kind="bn", imagenet=True)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_group_norm_has_two_groups_and_no_buffers():
    net = build("resnet20-gn", 10, CIFAR)
    assert {m.num_groups for m in net.modules() if isinstance(m, torch.nn.GroupNorm)} == {2}
    assert not list(net.buffers())
    assert len(list(build("resnet18-gn", 10, CIFAR).parameters())) == 62


@pytest.mark.parametrize("name", ["cnn-small", "resnet20-bn", "lenet"])
def test_the_seed_decides_the_weights(name):
    first, again, other = (build(name, 10, CIFAR, seed=s).state_dict() for s in (1, 1, 2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])


def test_global_generator_is_neither_read_nor_moved():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        one = build("cnn-small", 10, DIGITS)
        drawn = torch.rand(3)
        torch.manual_seed(5)
        assert torch.equal(torch.rand(3), drawn)
        assert torch.equal(build("cnn-small", 10, DIGITS).fc1.weight, one.fc1.weight)


@pytest.mark.parametrize(
    "name, input",
    [
        ("cnn-small", DIGITS),
        ("lenet", FASHION),
        ("cnn5", FASHION),
        ("resnet20-gn", DIGITS),
        ("resnet18-gn", DIGITS),
        ("resnet18-gn-s3", DIGITS),
    ],
)
def test_clients_can_be_stacked(name, input):
    """Three models side by side under vmap give what each gives alone."""
    nets = [build(name, 10, input, seed=s) for s in range(3)]
    weights, buffers = stack_module_state(nets)
    x = torch.randn(3, 2, *input, generator=torch.Generator().manual_seed(0))
    stacked = vmap(lambda w, b, x: functional_call(nets[0], (w, b), (x,)))(weights, buffers, x)
    alone = torch.stack([net(batch) for net, batch in zip(nets, x, strict=True)])
    torch.testing.assert_close(stacked, alone, atol=1e-4, rtol=1e-4)


def test_gradients_of_stacked_clients():
    """vmap of the gradient is each client's own gradient."""
    nets = [build("resnet20-gn", 10, DIGITS, seed=s).double() for s in range(2)]
    x = torch.randn(2, 3, *DIGITS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss(w, x):
        return functional_call(nets[0], w, (x,)).square().mean()

    stacked = vmap(grad(loss))(stack_module_state(nets)[0], x)
    for i, net in enumerate(nets):
        net(x[i]).square().mean().backward()
        torch.testing.assert_close(stacked["layer2.0.bn1.weight"][i], net.layer2[0].bn1.weight.grad)
        torch.testing.assert_close(stacked["conv1.weight"][i], net.conv1.weight.grad)


def test_names_are_forgiving():
    assert size(build("ResNet20_GN", 10, CIFAR)) == 272_474
    assert torch.equal(build("LeNet", 10, CIFAR).fc1.weight, build("lenet", 10, CIFAR).fc1.weight)


def test_unknown_model_names_the_closest():
    with pytest.raises(
        UnknownModel, match=rf"no model 'resnet-19-gn'; closest: .*resnet18-gn.*all {len(models.names())}\."
    ):
        build("resnet-19-gn", 10, CIFAR)
    with pytest.raises(UnknownModel, match=r"closest: .*small-cnn-gn"):
        build("small-cnn", 10, CIFAR)
    with pytest.raises(UnknownModel, match="closest: cnn-small, lenet"):
        build("?", 10, CIFAR)


@pytest.mark.parametrize(
    "name, input, says",
    [
        ("cnn5", DIGITS, r"'cnn5' needs images of at least 16x16, not 8x8. Use 'cnn-small'"),
        ("lenet", (3, 32, 15), r"'lenet' needs images of at least 16x16, not 32x15"),
        ("cnn-small", (1, 3, 3), r"'cnn-small' needs images of at least 4x4"),
        ("small-cnn-bn", (1, 7, 8), r"'small-cnn-bn' needs images of at least 8x8, not 7x8"),
        ("densenet121-gn", (1, 8, 7), r"'densenet121-gn' halves the image 3 times and needs at least 8x8, not 8x7"),
        ("textcnn", (11, 4), r"'textcnn' needs texts of at least 5 tokens, not 4. Use 'fasttext'"),
    ],
)
def test_too_small_inputs_are_refused(name, input, says):
    with pytest.raises(InputTooSmall, match=says):
        build(name, 10, input)


def test_smallest_inputs_work():
    assert build("cnn5", 10, (3, 16, 16))(torch.zeros(1, 3, 16, 16)).shape == (1, 10)
    assert build("cnn-small", 10, (1, 4, 4))(torch.zeros(1, 1, 4, 4)).shape == (1, 10)


@pytest.mark.parametrize(
    "name, classes, input",
    [("cnn-small", 0, CIFAR), ("cnn-small", 10, (3, 0, 32)), ("cnn-small", 10, (32,)), ("lstm", 80, (80, 0))],
)
def test_bad_shapes_are_named(name, classes, input):
    with pytest.raises(WrongInput, match=f"{name}: classes={classes}, input=.*wanted is classes from 1 and an input"):
        build(name, classes, input)


def test_an_image_is_not_a_text():
    with pytest.raises(
        WrongInput, match=r"'lstm' reads text, input \(vocabulary, length\).*\(3, 32, 32\) is the shape of images"
    ):
        build("lstm", 10, CIFAR)
    with pytest.raises(
        WrongInput, match=r"'resnet20-gn' reads images, .*\(80, 80\) is the shape of text. Models for text: lstm"
    ):
        build("resnet20-gn", 10, SHAKESPEARE)


def test_what_a_model_reads():
    assert [models.reads(name) for name in ("LSTM", "fasttext", "vit-nano", "resnet20-gn")] == ["text"] * 2 + [
        "images"
    ] * 2
    assert models.names() == [*FOR_IMAGES, *FOR_TEXT]
