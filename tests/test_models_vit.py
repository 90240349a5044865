"""Vision transformers: blocks are PyTorch's, patches have one name, and ViT-Tiny is timm's where timm is installed."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.func import grad_and_value, vmap

import fednb.base.compat  # noqa: F401  (timm imports torchvision, which must be mended first)
from fednb.core.vectors import Layout
from fednb.engines.objective import Objective
from fednb.filters import HighPass
from fednb.models import NeedsTimm, WrongInput, build
from fednb.models.vit import Block, Vit, patch_side

CIFAR, DIGITS = (3, 32, 32), (1, 8, 8)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def size(net):
    return sum(p.numel() for p in net.parameters())


def test_a_block_is_pytorchs_encoder_layer():
    """Normalisation first, GELU, no dropout, no bias on queries, keys and values; heads of 6 in a width of 12."""
    theirs = nn.TransformerEncoderLayer(12, 2, 20, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    theirs, ours = theirs.double(), Block(12, heads=2, each=6, hidden=20).double()
    same = {"self_attn.in_proj_weight": "attn.qkv.weight", "self_attn.out_proj.": "attn.proj.", "linear": "mlp.fc"}
    state = theirs.state_dict()
    for theirs_name, our_name in same.items():
        state = {key.replace(theirs_name, our_name): value for key, value in state.items()}
    assert state.pop("self_attn.in_proj_bias").abs().max() == 0
    ours.load_state_dict(state)
    x = noise(3, 5, 12)
    torch.testing.assert_close(ours(x), theirs(x))


def test_patches_are_cut_row_by_row():
    """Each patch's vector is the kernel times its own pixels: patch (i, j) of 4 x 4 is number 4 i + j."""
    embed = build("vit-nano", 10, DIGITS).double().patch_embed
    x = noise(1, *DIGITS)
    patch = x[0, :, 2:4, 6:8]  # i = 1, j = 3
    by_hand = (embed.proj.weight * patch).sum((1, 2, 3)) + embed.proj.bias
    torch.testing.assert_close(embed(x)[0, 7], by_hand)


def test_the_answer_is_read_from_the_class_token():
    """Without blocks it knows nothing of the image: every image gets the answer of class token plus first position."""
    net = build("vit-nano", 10, DIGITS).double()
    blocks, net.blocks = net.blocks, nn.Sequential()
    alone = net.head(net.norm(net.cls_token + net.pos_embed[:, :1]))[:, 0]
    torch.testing.assert_close(net(noise(2, *DIGITS)), alone.expand(2, -1))
    net.blocks = blocks
    first, second = net(noise(2, *DIGITS))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize(
    "input, side", [((3, 224, 224), 16), ((3, 64, 64), 8), (CIFAR, 4), ((1, 28, 28), 4), ((1, 16, 16), 2), (DIGITS, 2)]
)
def test_patch_side_goes_with_the_image(input, side):
    assert patch_side("vit-nano", input) == side
    net = build("vit-nano", 10, input)
    assert net.patch_embed.proj.weight.shape == (32, input[0], side, side)
    assert net.pos_embed.shape == (1, 1 + (input[1] // side) * (input[2] // side), 32)


def test_oblong_images_fit():
    assert build("vit-nano", 10, (1, 8, 12))(torch.zeros(2, 1, 8, 12)).shape == (2, 10)


@pytest.mark.parametrize("input", [(1, 7, 8), (1, 8, 9), (1, 2, 8)])
def test_images_that_cannot_be_cut_are_refused(input):
    with pytest.raises(WrongInput, match=f"'vit-nano' cuts images .* even sides from 4, not {input[1]}x{input[2]}"):
        build("vit-nano", 10, input)


@pytest.mark.parametrize("name", ["vit-nano", "vit-awa"])
def test_a_filter_can_choose_the_patch_embedding(name):
    """SpecGradFilter filters nothing else of a transformer; everything outside `patch_embed.*` stays as it is."""
    layout = Layout.of_parameters(build(name, 10, DIGITS))
    assert [n for n, yes in zip(layout.names, layout.select("patch_embed.*"), strict=True) if yes] == [
        "patch_embed.proj.weight",
        "patch_embed.proj.bias",
    ]
    filter = HighPass(ratio=0.5, where="patch_embed.proj.weight")
    ones = torch.ones(layout.total)
    done = layout.layers(layout.map(filter, ones))
    assert done.pop("patch_embed.proj.weight").mean().abs() < 1e-6  # a constant is all lowest frequency
    assert all((piece == 1).all() for piece in done.values())


def test_positions_start_large_or_small():
    """Standard deviation 1 in FedAWA's, 0.02 in the one for digits."""
    assert build("vit-awa", 10, CIFAR).pos_embed.std().item() == pytest.approx(1.0, rel=0.05)
    assert build("vit-nano", 10, DIGITS).pos_embed.std().item() == pytest.approx(0.02, rel=0.15)


def test_without_timm_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)  # as if it were not installed
    with pytest.raises(NeedsTimm, match=r"`pip install timm`. 'vit-awa' and 'vit-nano' do without it"):
        build("vit-tiny", 10, CIFAR)


def test_timm_is_asked_for_the_papers_model_at_the_datas_size(monkeypatch):
    """Untrained, for 28x28 in patches of 4, with the fused attention switched off in every block."""
    asked = {}

    def create_model(name, **how):
        asked.update(how, name=name)
        net = build("vit-nano", how["num_classes"], (how["in_chans"], *how["img_size"]))
        for block in net.blocks:
            block.attn.fused_attn = True
        return net

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    net = build("vit-tiny", 62, (1, 28, 28))
    assert asked == dict(
        name="vit_tiny_patch16_224", pretrained=False, img_size=(28, 28), patch_size=4, in_chans=1, num_classes=62
    )
    assert [block.attn.fused_attn for block in net.blocks] == [False, False]


@pytest.fixture(scope="module")
def tiny():
    """timm's network, where timm is installed."""
    pytest.importorskip("timm")
    return build("vit-tiny", 10, DIGITS).double()


def test_vit_tiny_counts(tiny):
    """5.5 million, as the paper's name promises: less in positions and patches at CIFAR's size."""
    assert size(build("vit-tiny", 10, CIFAR)) == 5_362_762
    assert size(build("vit-tiny", 10, (3, 224, 224))) == 5_526_346


def test_vit_tiny_has_our_names_and_no_randomness(tiny):
    layout = Layout.of_parameters(tiny)
    assert "patch_embed.proj.weight" in layout.names and not list(tiny.buffers())
    head = [name for name, yes in zip(layout.names, layout.select("@head"), strict=True) if yes]
    assert head == ["head.weight", "head.bias"]
    assert [block.attn.fused_attn for block in tiny.blocks] == [False] * 12
    assert not [m for m in tiny.modules() if isinstance(m, nn.Dropout) and m.p > 0]


def test_vit_tiny_is_our_own_with_its_numbers(tiny):
    """192 wide, 12 blocks, 3 heads of 64, hidden 768: with the same weights, the same answers."""
    ours = Vit("vit-tiny", 10, DIGITS, dim=192, depth=12, heads=3, each=64, hidden=768, std=0.02).double()
    state = dict(tiny.state_dict())
    biases = [state.pop(f"blocks.{i}.attn.qkv.bias") for i in range(12)]
    assert all(bias.abs().max() == 0 for bias in biases)  # ours has none; at the start neither has timm's
    ours.load_state_dict(state)
    for layer in ours.modules():
        if isinstance(layer, nn.LayerNorm):
            layer.eps = 1e-6
    x = noise(2, *DIGITS)
    torch.testing.assert_close(ours(x), tiny(x))


def test_the_seed_decides_vit_tinys_weights(tiny):
    again, other = (build("vit-tiny", 10, DIGITS, seed=s).double().state_dict() for s in (0, 1))
    assert all(torch.equal(value, again[key]) for key, value in tiny.state_dict().items())
    assert not torch.equal(other["head.weight"], again["head.weight"])


@pytest.mark.filterwarnings("error")
def test_stacked_gradient_of_vit_tiny(tiny):
    f = Objective(tiny)
    w, b = f.start(torch.float64, torch.device("cpu"))
    w = torch.stack([w, w + 0.01 * torch.sin(torch.arange(len(w)))])
    x, y = noise(2, 2, *DIGITS), torch.tensor([[1, 2], [3, 4]])
    with f.arithmetic():
        stacked, _ = vmap(grad_and_value(f.masked_loss))(w, b.expand(2, -1), x, y, torch.ones(2, 2).double())
    for k in range(2):
        torch.testing.assert_close(stacked[k], f.gradient(w[k], b, x[k], y[k])[0], atol=1e-10, rtol=0)
