"""Vision transformers: timm's ViT-Tiny, FedAWA's, and a very small one for the smoke scale.

Filters that act on the patch embedding alone (SpecGradFilter) say `where="patch_embed.*"`: in all three it is the
convolution `patch_embed.proj`, whose weight is [dim, channels, patch, patch].

None has dropout: randomness inside a model would make its gradient another one on every engine.
"""

import torch
from torch import Tensor, nn

from fednb.models.small import Input, WrongInput

PATCHES = (16, 8, 4, 2)


class NeedsTimm(ImportError):
    """The model is timm's, and timm is not installed."""


def patch_side(name: str, input: Input) -> int:
    """The side of a patch: the largest of 16, 8, 4 and 2 that divides the image and leaves 7 or more a side, or else 2.

    >>> [patch_side("vit-tiny", (3, side, side)) for side in (224, 64, 32, 28, 8)]
    [16, 8, 4, 4, 2]
    """
    _, rows, columns = input
    if rows % 2 or columns % 2 or min(rows, columns) < 4:
        raise WrongInput(
            f"{name!r} cuts images into patches of 2x2 or more and needs even sides from 4, not {rows}x{columns}. "
            "Pad the images, or use 'cnn-small' or a ResNet."
        )
    fit = (p for p in PATCHES if rows % p == columns % p == 0 and min(rows, columns) >= 7 * p)
    return next(fit, 2)


class PatchEmbedding(nn.Module):
    """One vector per patch, `[n, patches, dim]`: a linear map of its pixels, written as a convolution."""

    def __init__(self, channels: int, side: int, dim: int):
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, side, stride=side)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(-2).transpose(-1, -2)


class Attention(nn.Module):
    """softmax(q kᵀ / √d) v for each head, side by side (Vaswani et al. 2017, Eq. 1)."""

    def __init__(self, dim: int, heads: int, each: int):
        super().__init__()
        self.heads, self.scale = heads, each**-0.5
        self.qkv = nn.Linear(dim, 3 * heads * each, bias=False)
        self.proj = nn.Linear(heads * each, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = (self.scale * q @ k.transpose(-1, -2)).softmax(-1) @ v
        return self.proj(mixed.transpose(1, 2).flatten(-2))


class Mlp(nn.Module):
    """Two linear layers with GELU between them."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class Block(nn.Module):
    """Attention, then two linear layers, each behind a LayerNorm and added to what came in."""

    def __init__(self, dim: int, heads: int, each: int, hidden: int):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), Attention(dim, heads, each)
        self.norm2, self.mlp = nn.LayerNorm(dim), Mlp(dim, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    """A vision transformer (Dosovitskiy et al. 2021): patches, a class token, positions, blocks, a linear layer.

    dim: width. depth: blocks. heads, each: attention heads and the width of one. hidden: width between the two linear
    layers of a block. std: of the positions and the class token at the start; the rest starts as PyTorch starts it.
    Parameters have timm's names.
    """

    def __init__(
        self,
        name: str,
        classes: int,
        input: Input,
        dim: int,
        depth: int,
        heads: int,
        each: int,
        hidden: int,
        std: float,
    ):
        super().__init__()
        channels, rows, columns = input
        side = patch_side(name, input)
        self.cls_token = nn.Parameter(std * torch.randn(1, 1, dim))
        self.pos_embed = nn.Parameter(std * torch.randn(1, 1 + (rows // side) * (columns // side), dim))
        self.patch_embed = PatchEmbedding(channels, side, dim)
        self.blocks = nn.Sequential(*(Block(dim, heads, each, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


def vit_awa(classes: int, input: Input) -> Vit:
    """FedAWA's ViT (assumed for SpecGradFilter, which does not say): 512 wide, 6 blocks, 8 heads of 64, hidden 512.

    9,523,722 parameters for CIFAR-10, with patches of 4x4. The released code has a dropout of 0.1. Positions that start
    with a standard deviation of 1 are assumed, after the usual code for these numbers.
    """
    return Vit("vit-awa", classes, input, dim=512, depth=6, heads=8, each=64, hidden=512, std=1.0)


def vit_nano(classes: int, input: Input) -> Vit:
    """The transformer of the smoke scale, for 8x8 digits in patches of 2x2; no paper has it.

    Positions start as small as timm's: those of FedAWA's size would drown the image for the first rounds.
    """
    return Vit("vit-nano", classes, input, dim=32, depth=2, heads=2, each=16, hidden=64, std=0.02)


def vit_tiny(classes: int, input: Input) -> nn.Module:
    """timm's vit_tiny_patch16_224 (FedFFT, Table 2), untrained: 192 wide, 12 blocks, 3 heads.

    It is built for the data's own size, with smaller patches (4x4 for CIFAR). The paper's name implies images blown up
    to 224x224 in patches of 16x16, but says nothing of resizing: that would cost 50 times the pixels and show each
    patch of 16x16 little more than 2x2 of CIFAR's. 5,362,762 parameters for CIFAR-10 (5,526,346 at 224x224).
    """
    side = patch_side("vit-tiny", input)
    channels, *size = input
    net = timm().create_model(
        "vit_tiny_patch16_224",
        pretrained=False,
        img_size=tuple(size),
        patch_size=side,
        in_chans=channels,
        num_classes=classes,
    )
    for layer in net.modules():
        if hasattr(layer, "fused_attn"):
            layer.fused_attn = False  # vmap would take the fused kernel one client at a time
    return net


def timm():
    """The library, imported where it is needed."""
    import fednb.base.compat  # noqa: F401  (torchvision, which timm imports, must be mended first)

    try:
        import timm
    except ImportError as error:
        raise NeedsTimm(
            "'vit-tiny' is timm's, and timm cannot be imported: `pip install timm`. "
            "'vit-awa' and 'vit-nano' do without it."
        ) from error
    return timm


VITS = {"vit-tiny": vit_tiny, "vit-awa": vit_awa, "vit-nano": vit_nano}
