"""The fifteen standard image corruptions (Hendrycks and Dietterich 2019, CIFAR form) at severities 1 to 5.

Each is a function of images `[n, c, h, w]` with values in [0, 1], the constants of its severity, and a generator.
The constants are those of the code that made CIFAR-10-C, for 32x32 images; of the steps, these are ours: frost is a
drawn texture (theirs are photographs), motion blur follows ImageMagick's kernel, and interpolation has full precision.
Written with numpy, and Pillow for JPEG and pixelation.
"""

import io
from collections.abc import Callable, Sequence
from math import ceil

import numpy as np

from fednb.base.progress import bar_of
from fednb.base.streams import stream

SEVERITIES = 5
AT_ONCE = 500  # images corrupted together
Images = np.ndarray  # float32 [n, c, h, w] in [0, 1]
Rng = np.random.Generator


def corrupted(images: np.ndarray, kind: str, severity: int, rng: Rng) -> np.ndarray:
    """Images uint8 `[n, c, h, w]` behind one corruption, as uint8. Severity 0 leaves them as they are."""
    if kind not in CORRUPTIONS or not 0 <= severity <= SEVERITIES:
        raise ValueError(f"corruption {kind!r} at {severity}; known are {', '.join(KINDS)} at 0 to {SEVERITIES}.")
    if severity == 0:
        return images.copy()
    change, constants = CORRUPTIONS[kind]
    x = change(images.astype(np.float32) / 255, constants[severity - 1], rng)
    return (np.clip(x, 0, 1) * 255 + 1e-3).astype(np.uint8)  # rounded down as the released files are, errors aside


def corrupted_by(images: np.ndarray, kind: np.ndarray, severity: int, seed: int) -> np.ndarray:
    """Images uint8, each behind the corruption that `kind` names for it; '' leaves one as it is."""
    out = images.copy()
    with bar_of(int((kind != "").sum()), "corrupting", unit="image") as bar:
        for each in KINDS:
            index = np.flatnonzero(kind == each)
            for at in range(0, len(index), AT_ONCE):
                some = index[at : at + AT_ONCE]
                out[some] = corrupted(images[some], each, severity, stream(seed, "corrupted", each, severity, at))
                bar.update(len(some))
    return out


# Noise


def gaussian_noise(x: Images, std: float, rng: Rng) -> Images:
    """x + N(0, std²)"""
    return x + std * rng.standard_normal(x.shape, dtype=np.float32)


def shot_noise(x: Images, rate: float, rng: Rng) -> Images:
    """Poisson(rate x) / rate"""
    return (rng.poisson(x * rate) / rate).astype(np.float32)


def impulse_noise(x: Images, share: float, rng: Rng) -> Images:
    """A share of all values becomes 0 or 1, each with chance a half."""
    hit, salt = rng.random(x.shape) < share, rng.random(x.shape) < 0.5
    return np.where(hit, salt, x).astype(np.float32)


# Blur


def defocus_blur(x: Images, how: tuple[float, float], rng: Rng) -> Images:
    """A disk of that radius, its edge softened by a Gaussian of three taps."""
    radius, soft = how
    reach = ceil(radius) + 1
    at = np.arange(-reach, reach + 1)
    disk = (at[:, None] ** 2 + at**2 <= radius**2).astype(np.float64)
    disk = blurred((disk / disk.sum())[None, None], soft, reach=1)[0, 0]
    taps = [(int(dy), int(dx), float(disk[dy + reach, dx + reach])) for dy in at for dx in at]
    return weighted(x, [tap for tap in taps if tap[2] > 0], "reflect")


def glass_blur(x: Images, how: tuple[float, int, int], rng: Rng) -> Images:
    """Blur, move every pixel's content by up to `far` (`times` over), blur again.

    The original means to swap neighbours, but its swap of array views copies: a pixel takes what stands at most `far`
    above and left of it, and nothing moves down. The outer rows and columns at the top and left stay.
    """
    sigma, far, times = how
    x = np.floor(blurred(x, sigma) * 255 + 1e-3) / np.float32(255)
    n, _, h, w = x.shape
    for _ in range(times):
        dy, dx = rng.integers(-far, far, size=(2, n, h, w))
        inner = (np.arange(h) > far)[:, None] & (np.arange(w) > far)
        rows = np.arange(h)[:, None] + dy * inner
        x = picked(x, rows, np.arange(w) + dx * inner)
    return blurred(x, sigma)


def motion_blur(x: Images, how: tuple[int, float], rng: Rng) -> Images:
    """A streak to one side, at −45 to 45 degrees."""
    return streaked(x, *how, rng.uniform(-45, 45, size=len(x)))


def zoom_blur(x: Images, furthest: float, rng: Rng) -> Images:
    """The mean of the image and of itself enlarged by 1.00, 1.01, ... up to `furthest`."""
    factors = np.arange(1, furthest + 0.005, 0.01)
    return (x + sum(enlarged(x, each) for each in factors)) / np.float32(len(factors) + 1)


# Weather


def snow(x: Images, how: tuple[float, ...], rng: Rng) -> Images:
    """Bright flakes, enlarged and blown to one side, over a whitened image; the same flakes upside down as well."""
    mean, std, size, floor, radius, sigma, keep = how
    n, _, h, w = x.shape
    flakes = enlarged((mean + std * rng.standard_normal((n, 1, h, w))).astype(np.float32), size)
    flakes = np.clip(np.where(flakes < floor, 0, flakes), 0, 1)
    flakes = streaked(flakes, int(radius), sigma, rng.uniform(-135, -45, size=len(x)))
    grey = x if x.shape[1] != 3 else 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    x = keep * x + (1 - keep) * np.maximum(x, grey * 1.5 + 0.5)
    return x + flakes + flakes[:, :, ::-1, ::-1]


def frost(x: Images, how: tuple[float, float], rng: Rng) -> Images:
    """The image dimmed, and a texture of ice on top: rough clouds with bright ridges, bluish where there is colour."""
    keep, ice = how
    n, c, h, w = x.shape
    ridges = 1 - np.abs(2 * clouds(n, h, w, 1.4, rng) - 1)
    texture = 0.3 + 0.7 * ridges * clouds(n, h, w, 1.2, rng)
    tint = np.array([0.85, 0.95, 1.0] if c == 3 else [1.0] * c, dtype=np.float32).reshape(1, c, 1, 1)
    return keep * x + ice * texture[:, None] * tint


def fog(x: Images, how: tuple[float, float], rng: Rng) -> Images:
    """Clouds added, and the brightest point of the image kept where it was."""
    thick, decay = how
    n, _, h, w = x.shape
    top = x.max(axis=(1, 2, 3), keepdims=True)
    return (x + thick * clouds(n, h, w, decay, rng)[:, None]) * top / (top + thick)


# Light and shape


def brightness(x: Images, more: float, rng: Rng) -> Images:
    """The value V = max(R, G, B) raised, hue and saturation kept: all channels grow by one factor."""
    top = x.max(axis=1, keepdims=True)
    raised = np.minimum(top + more, 1)
    return np.where(top > 0, x * (raised / np.where(top > 0, top, 1)), raised)


def contrast(x: Images, less: float, rng: Rng) -> Images:
    """Each channel drawn towards its mean."""
    mean = x.mean(axis=(2, 3), keepdims=True)
    return (x - mean) * less + mean


def elastic(x: Images, how: tuple[float, float, float], rng: Rng) -> Images:
    """A random affine map, then a smooth random displacement; all lengths in shares of the image's side."""
    n, _, h, w = x.shape
    far, sigma, corner = (min(h, w) * each for each in how)
    x = sampled(x, *affine(n, h, w, corner, rng), "reflect")
    noise = rng.uniform(-1, 1, size=(2, n, h, w)).astype(np.float32)
    dy, dx = far * blurred(noise, sigma, reach=int(3 * sigma + 0.5), edge="symmetric")
    return sampled(x, np.arange(h, dtype=np.float32)[:, None] + dy, np.arange(w, dtype=np.float32) + dx, "symmetric")


def pixelate(x: Images, size: float, rng: Rng) -> Images:
    """Made smaller and large again with hard pixels."""
    from PIL import Image

    def change(image):
        small = image.resize((int(image.width * size), int(image.height * size)), Image.Resampling.BOX)
        return small.resize(image.size, Image.Resampling.BOX)

    return pictured(x, change)


def jpeg(x: Images, quality: int, rng: Rng) -> Images:
    """Written as JPEG of that quality and read again."""
    from PIL import Image

    def change(image):
        held = io.BytesIO()
        image.save(held, "JPEG", quality=quality)
        return Image.open(held)

    return pictured(x, change)


# Tools


def weighted(x: Images, taps: Sequence[tuple[int, int, float]], edge: str) -> Images:
    """Σ weight · x shifted by (dy, dx)."""
    reach = max(max(abs(dy), abs(dx)) for dy, dx, _ in taps)
    h, w = x.shape[2:]
    wide = np.pad(x, ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode=edge)  # type: ignore[call-overload]
    return sum(
        np.float32(weight) * wide[:, :, reach + dy : reach + dy + h, reach + dx : reach + dx + w]
        for dy, dx, weight in taps
    )


def blurred(x: Images, sigma: float, reach: int | None = None, edge: str = "edge") -> Images:
    """A Gaussian blur, as far as 4 sigma unless a reach is given."""
    reach = int(4 * sigma + 0.5) if reach is None else reach
    if sigma == 0 or reach == 0:
        return x
    at = np.arange(-reach, reach + 1)
    bell = np.exp(-(at**2) / (2 * sigma**2))
    bell /= bell.sum()
    x = weighted(x, [(int(d), 0, b) for d, b in zip(at, bell, strict=True)], edge)
    return weighted(x, [(0, int(d), b) for d, b in zip(at, bell, strict=True)], edge)


def streaked(x: Images, radius: int, sigma: float, angle: np.ndarray) -> Images:
    """Each image blurred along its angle (in degrees) to one side, by half a Gaussian of 2 radius + 1 whole steps."""
    steps = np.arange(2 * radius + 1)
    bell = np.exp(-(steps**2) / (2 * sigma**2))
    h, w = x.shape[2:]
    turn = np.deg2rad(angle)[:, None]
    dy, dx = (np.ceil(steps * to - 0.5).astype(int) for to in (np.sin(turn), np.cos(turn)))
    out = np.zeros_like(x)
    for step, share in enumerate(bell / bell.sum()):
        rows = np.clip(np.arange(h) + dy[:, step, None], 0, h - 1)[:, :, None]
        columns = np.clip(np.arange(w) + dx[:, step, None], 0, w - 1)[:, None, :]
        out += np.float32(share) * picked(x, rows, columns)
    return out


def picked(x: Images, rows: np.ndarray, columns: np.ndarray) -> Images:
    """The pixels at whole positions `[n, h, w]` of each image."""
    n, _, h, w = x.shape
    flat = np.broadcast_to(rows * w + columns, (n, h, w)).reshape(n, 1, h * w)
    return np.take_along_axis(x.reshape(n, -1, h * w), flat, axis=2).reshape(x.shape)


def sampled(x: Images, rows: np.ndarray, columns: np.ndarray, edge: str) -> Images:
    """The images at real positions `[n, h, w]`, linear between pixels, mirrored outside."""
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    down, right = (rows - top)[:, None].astype(np.float32), (columns - left)[:, None].astype(np.float32)
    ys = [mirrored(top + d, x.shape[2], edge) for d in (0, 1)]
    xs = [mirrored(left + d, x.shape[3], edge) for d in (0, 1)]
    above, below = ((1 - right) * picked(x, y, xs[0]) + right * picked(x, y, xs[1]) for y in ys)
    return (1 - down) * above + down * below


def mirrored(at: np.ndarray, size: int, edge: str) -> np.ndarray:
    """Positions outside 0..size−1 mirrored inside; "reflect" does not repeat the outermost pixel, "symmetric" does."""
    twice = edge == "symmetric"
    period = max(2 * size - (0 if twice else 2), 1)
    at = at % period
    return np.where(at < size, at, period - (1 if twice else 0) - at)


def enlarged(x: Images, factor: float) -> Images:
    """The middle of the images enlarged to their full size, linear between pixels."""
    for axis in (2, 3):
        size = x.shape[axis]
        inner = ceil(size / factor)
        outer = round(inner * factor)
        at = (np.arange(size) + (outer - size) // 2) * ((inner - 1) / max(outer - 1, 1)) + (size - inner) // 2
        low = np.minimum(at.astype(int), size - 1)
        share = (at - low).astype(np.float32).reshape([-1 if a == axis else 1 for a in range(4)])
        x = (1 - share) * x.take(low, axis) + share * x.take(np.minimum(low + 1, size - 1), axis)
    return x


def clouds(n: int, h: int, w: int, decay: float, rng: Rng) -> np.ndarray:
    """Fractal heights in [0, 1], `[n, h, w]`: midpoints on a torus, displaced less by `decay` at each halving."""
    side = 1 << (max(h, w, 2) - 1).bit_length()
    field = np.zeros((n, side, side), dtype=np.float32)
    step, rough = side, 100.0**2  # the original draws from ±100 and multiplies by 100 again

    def middle(*corners: np.ndarray) -> np.ndarray:
        return sum(corners) / 4 + rng.uniform(-rough, rough, size=corners[0].shape)

    while step >= 2:
        half, corner = step // 2, field[:, ::step, ::step]
        right, below = np.roll(corner, -1, 2), np.roll(corner, -1, 1)
        centre = middle(corner, right, below, np.roll(right, -1, 1)).astype(np.float32)
        field[:, half::step, half::step] = centre
        field[:, ::step, half::step] = middle(corner, right, centre, np.roll(centre, 1, 1))
        field[:, half::step, ::step] = middle(corner, below, centre, np.roll(centre, 1, 2))
        step, rough = half, rough / decay**2
    field -= field.min(axis=(1, 2), keepdims=True)
    return (field / field.max(axis=(1, 2), keepdims=True))[:, :h, :w]


def affine(n: int, h: int, w: int, corner: float, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Where each pixel comes from when three points of the image are moved by up to `corner`: rows, columns."""
    middle, third = np.array([h // 2, w // 2]), min(h, w) // 3
    fixed = middle + third * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = fixed + rng.uniform(-corner, corner, size=(n, 3, 2))
    back = np.linalg.solve(np.concatenate([moved, np.ones((n, 3, 1))], axis=2), np.broadcast_to(fixed, moved.shape))
    here = np.stack([*np.meshgrid(np.arange(h), np.arange(w), indexing="ij"), np.ones((h, w))], axis=-1)
    there = np.einsum("hwk,nkj->njhw", here, back)
    return there[:, 0], there[:, 1]


def pictured(x: Images, change: Callable) -> Images:
    """Each image as Pillow's, changed, and back; in colour where there are three channels, else channel by channel."""
    from PIL import Image

    n, c, h, w = x.shape
    pixels = np.rint(x * 255).astype(np.uint8)
    pixels = pixels.transpose(0, 2, 3, 1) if c == 3 else pixels.reshape(n * c, h, w)
    seen = np.stack([np.asarray(change(Image.fromarray(each))) for each in pixels])
    seen = seen.transpose(0, 3, 1, 2) if c == 3 else seen.reshape(x.shape)
    return seen.astype(np.float32) / 255


# The name of each, its function, and the constants at severities 1 to 5.
CORRUPTIONS: dict[str, tuple[Callable, Sequence]] = {
    "gaussian-noise": (gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot-noise": (shot_noise, (500, 250, 100, 75, 50)),
    "impulse-noise": (impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus-blur": (defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass-blur": (glass_blur, ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))),
    "motion-blur": (motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom-blur": (zoom_blur, (1.05, 1.10, 1.15, 1.20, 1.25)),
    "snow": (
        snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "frost": (frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": (fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": (brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic": (
        elastic,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": (pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg": (jpeg, (80, 65, 58, 50, 40)),
}
KINDS = tuple(CORRUPTIONS)
