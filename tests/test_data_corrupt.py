"""Corruptions: what each does to pixels, and the clients that see their images through some of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fednb.data import corrupt, shift
from fednb.data.corrupt import CORRUPTIONS, KINDS, corrupted, corrupted_by
from fednb.data.dataset import Dataset
from fednb.data.partition import FeatureShift, PartitionFailed, counts
from fednb.engines.problem import data_of, dealt
from fednb.engines.setting import Setting

FIFTEEN = (
    "gaussian-noise shot-noise impulse-noise defocus-blur glass-blur motion-blur zoom-blur snow frost fog brightness "
    "contrast elastic pixelate jpeg"
)
GREY = np.full((200, 3, 16, 16), 128, np.uint8)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def scenes(n: int = 12, c: int = 3, size: int = 32) -> np.ndarray:
    """Smooth pictures with some detail."""
    coarse = rng(1).integers(20, 230, (n, c, 8, 8)).repeat(size // 8, 2).repeat(size // 8, 3)
    return np.clip(coarse + rng(2).integers(-10, 10, coarse.shape), 0, 255).astype(np.uint8)


def spot(size: int = 17) -> np.ndarray:
    """One white pixel in the middle of black: a linear blur shows its kernel."""
    x = np.zeros((1, 1, size, size), np.float32)
    x[0, 0, size // 2, size // 2] = 1
    return x


def test_there_are_fifteen_with_five_severities():
    assert set(KINDS) == set(FIFTEEN.split()) and len(KINDS) == 15
    assert {len(constants) for _, constants in CORRUPTIONS.values()} == {5}


@pytest.mark.parametrize("kind", KINDS)
def test_severity_zero_is_clean(kind):
    images = scenes(2)
    assert np.array_equal(corrupted(images, kind, 0, rng()), images)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 3, 32, 32), (3, 1, 8, 8), (3, 3, 28, 28), (2, 2, 12, 20)])
def test_every_corruption_is_a_function_of_images_and_generator(kind, shape):
    """Any image size and channel count; the input is not touched; the same generator gives the same pixels."""
    images = rng(3).integers(0, 256, shape).astype(np.uint8)
    before = images.copy()
    for severity in (1, 3, 5):
        out = corrupted(images, kind, severity, rng(5))
        assert out.shape == images.shape and out.dtype == np.uint8
        assert np.array_equal(out, corrupted(images, kind, severity, rng(5))) and np.array_equal(images, before)


@pytest.mark.parametrize("kind", KINDS)
def test_more_severe_is_further_from_the_clean_image(kind):
    """The mean square error at severity 5 is larger than at 1, and at 3 it is neither nothing nor everything.

    Elastic is the exception by its constants: from 1 to 5 its affine motion falls from 0.08 to 0.03 while ripples grow.
    """
    images = scenes()
    far = [np.square(corrupted(images, kind, s, rng()).astype(float) - images).mean() for s in (1, 3, 5)]
    assert far[2] > far[0] or kind == "elastic"
    assert 1 < far[1] < 10_000


def test_unknown_corruptions_are_refused():
    for kind, severity in (("rain", 3), ("fog", 6), ("fog", -1)):
        with pytest.raises(ValueError, match=rf"corruption '{kind}' at {severity}; known are gaussian-noise, .*0 to 5"):
            corrupted(GREY, kind, severity, rng())


def test_gaussian_noise_has_its_standard_deviation():
    """Severity 3: 0.08 · 255 = 20.4; 150,000 pixels at 128, far from the ends, rounded down: mean 127.5."""
    out = corrupted(GREY, "gaussian-noise", 3, rng()).astype(float)
    assert out.std() == pytest.approx(20.4, rel=0.02) and out.mean() == pytest.approx(127.5, abs=0.3)


def test_shot_noise_has_poissons_variance():
    """Severity 3, rate 100: x = 128/255 has variance x / 100, so 255 · √(0.502 / 100) = 18.07."""
    assert corrupted(GREY, "shot-noise", 3, rng()).std() == pytest.approx(18.07, rel=0.02)


def test_impulse_noise_hits_its_share_with_black_and_white():
    out = corrupted(GREY, "impulse-noise", 3, rng())
    assert set(np.unique(out)) == {0, 128, 255}
    assert (out == 0).mean() == pytest.approx(0.015, rel=0.1) and (out == 255).mean() == pytest.approx(0.015, rel=0.1)


def test_defocus_at_severity_three_is_a_gaussian_of_three_taps():
    """Radius 0.5 holds only the middle, so the kernel is the softening: a = e^(−1/(2 · 0.6²)), (a, 1, a) / (1 + 2a)."""
    a = np.exp(-1 / (2 * 0.6**2))
    taps = np.array([a, 1, a]) / (1 + 2 * a)
    out = corrupt.defocus_blur(spot(), (0.5, 0.6), rng())[0, 0]
    np.testing.assert_allclose(out[7:10, 7:10], np.outer(taps, taps), atol=1e-6)
    assert out.sum() == pytest.approx(1, abs=1e-5)


def test_glass_takes_pixels_from_above_and_left():
    """Without blur (sigma 0) and far 1: every pixel shows one of its four upper left neighbours, itself included."""
    x = np.arange(16 * 16, dtype=np.float32).reshape(1, 1, 16, 16) / 255
    out = np.rint(corrupt.glass_blur(x, (0, 1, 1), rng())[0, 0] * 255).astype(int)
    rows, columns = out // 16, out % 16
    dy, dx = rows - np.arange(16)[:, None], columns - np.arange(16)
    assert set(np.unique(dy)) == {-1, 0} == set(np.unique(dx))
    assert not dy[:2].any() and not dx[:, :2].any()
    assert dy[2:, 2:].mean() == pytest.approx(-0.5, abs=0.15)


@pytest.mark.parametrize("angle, step", [(0, (0, -1)), (90, (-1, 0)), (-90, (1, 0)), (45, None)])
def test_motion_streaks_to_one_side(angle, step):
    """Half a Gaussian along the angle: the share of step k is e^(−k²/2σ²) over the sum of 2r + 1 of them."""
    out = corrupt.streaked(spot(), 3, 2.0, np.array([angle]))[0, 0]
    bell = np.exp(-(np.arange(7) ** 2) / 8)
    bell /= bell.sum()
    if step is None:
        assert (np.diag(out)[1:9] > 0).sum() > 3 and out.sum() == pytest.approx(1, abs=1e-5)
    else:
        line = [out[8 + k * step[0], 8 + k * step[1]] for k in range(7)]
        np.testing.assert_allclose(line, bell, atol=1e-6)


def test_zoom_keeps_the_middle_and_flat_images():
    flat = np.full((1, 3, 32, 32), 0.4, np.float32)
    np.testing.assert_allclose(corrupt.zoom_blur(flat, 1.15, rng()), flat, atol=1e-6)
    ramp = np.broadcast_to(np.linspace(0, 1, 32, dtype=np.float32), (1, 1, 32, 32))
    out = corrupt.enlarged(ramp, 2.0)[0, 0, 0]
    assert out[0] == pytest.approx(8 / 31, abs=0.01) and out[-1] == pytest.approx(23 / 31, abs=0.01)


def test_brightness_raises_the_value_and_keeps_hue_and_saturation():
    """(0.2, 0.4, 0.1) has V = 0.4; + 0.15 makes every channel 0.55 / 0.4 times as large. Black becomes grey."""
    x = np.array([0.2, 0.4, 0.1], np.float32).reshape(1, 3, 1, 1)
    np.testing.assert_allclose(corrupt.brightness(x, 0.15, rng()), x * (0.55 / 0.4), rtol=1e-6)
    np.testing.assert_allclose(corrupt.brightness(0 * x, 0.15, rng()), 0 * x + 0.15, rtol=1e-6)
    assert corrupt.brightness(x * 2, 0.3, rng()).max() == pytest.approx(1.0)


def test_contrast_shrinks_deviations_and_keeps_means():
    x = scenes(2).astype(np.float32) / 255
    out = corrupt.contrast(x, 0.4, rng())
    mean = x.mean((2, 3), keepdims=True)
    np.testing.assert_allclose(out - mean, 0.4 * (x - mean), atol=1e-5)


def test_fog_keeps_the_brightest_point():
    """(x + f) m / (m + t) with f in [0, t] and m the largest x: never above m, and black is lifted."""
    x = scenes(4).astype(np.float32) / 255
    out = corrupt.fog(x, (0.75, 2.5), rng())
    assert (out.max((1, 2, 3)) <= x.max((1, 2, 3)) + 1e-6).all()
    assert corrupt.fog(np.zeros_like(x) + np.eye(32, dtype=np.float32), (0.75, 2.5), rng()).mean() > 0.05


def test_clouds_fill_zero_to_one_and_differ():
    field = corrupt.clouds(3, 32, 32, 2.5, rng())
    assert field.shape == (3, 32, 32) and field.min() == 0 and field.max() == 1
    assert not np.allclose(field[0], field[1])
    near = np.abs(np.diff(field, axis=2)).mean()
    assert near < 0.3 * np.abs(field - field[:, :, rng().permutation(32)]).mean()  # neighbours are alike


def test_elastic_without_motion_is_the_image():
    x = scenes(2).astype(np.float32) / 255
    np.testing.assert_allclose(corrupt.elastic(x, (0, 0, 0), rng()), x, atol=1e-5)


@pytest.mark.parametrize("edge, seen", [("reflect", [2, 1, 0, 1, 2, 3, 2, 1]), ("symmetric", [1, 0, 0, 1, 2, 3, 3, 2])])
def test_positions_outside_are_mirrored(edge, seen):
    assert corrupt.mirrored(np.arange(-2, 6), 4, edge).tolist() == seen


def test_pixelate_and_jpeg_leave_flat_images_alone():
    for kind in ("pixelate", "jpeg"):
        out = corrupted(np.full((2, 3, 32, 32), 90, np.uint8), kind, 3, rng())
        assert np.abs(out.astype(int) - 90).max() <= 1


def test_each_image_gets_the_corruption_that_is_named_for_it():
    images = scenes(6)
    kind = np.array(["", "contrast", "", "brightness", "contrast", ""], dtype=object)
    out = corrupted_by(images, kind, 3, seed=0)
    assert [np.array_equal(a, b) for a, b in zip(out, images, strict=True)] == [True, False, True, False, False, True]
    assert np.array_equal(out[[1, 4]], corrupted(images[[1, 4]], "contrast", 3, rng()))


# The partition


def made(n: int = 600, c: int = 3) -> Dataset:
    x, y = torch.from_numpy(np.resize(scenes(20, c, 8), (n, c, 8, 8))), torch.arange(n) % 10
    return Dataset("made", x, y, x[:150].clone(), y[:150], 10, 255.0, (0.5,) * c, (0.5,) * c)


def parts_of(kind, data, clients=10, seed=0):
    return kind.split(data.y.numpy(), clients, seed)


def test_clients_draw_two_or_three_corruptions():
    """1000 clients: 2 or 3 distinct ones, each number about half of the time, each corruption about as often."""
    drawn = [FeatureShift().kinds(0, client) for client in range(1000)]
    assert {len(k) for k in drawn} == {2, 3} and all(len(set(k)) == len(k) for k in drawn)
    assert np.mean([len(k) == 2 for k in drawn]) == pytest.approx(0.5, abs=0.06)
    often = [sum(kind in k for k in drawn) for kind in KINDS]
    assert min(often) > 0.7 * np.mean(often) and max(often) < 1.3 * np.mean(often)
    assert (
        drawn[:20] == [FeatureShift().kinds(0, c) for c in range(20)] != [FeatureShift().kinds(1, c) for c in range(20)]
    )


def test_labels_are_iid_and_sizes_equal():
    """specs 3.7: the label histogram of each client is near uniform; 60 samples each."""
    data = made()
    parts = parts_of(FeatureShift(), data)
    assert {len(p) for p in parts} == {60} and sorted(np.concatenate(parts)) == list(range(600))
    assert counts(data.y.numpy(), parts, 10).max() < 6 + 5 * np.sqrt(6)


def test_a_client_sees_its_images_through_its_own_corruptions_only(monkeypatch):
    """Corruption k paints the image with the number k: each client shows two or three numbers, those it drew."""
    painted = {k: (lambda x, c, rng, v=i + 1: x * 0 + v / 255, [0] * 5) for i, k in enumerate(KINDS)}
    monkeypatch.setattr(corrupt, "CORRUPTIONS", painted)
    kind, data = FeatureShift(severity=2), made()
    parts = parts_of(kind, data, seed=4)
    seen = kind.changed(data, parts, seed=4)
    for client, part in enumerate(parts):
        shown = seen.x[part].flatten(1).unique(dim=1)
        assert shown.shape[1] == 1  # the whole image got one corruption
        assert {KINDS[int(v) - 1] for v in shown.flatten()} == set(kind.kinds(4, client))
    assert torch.equal(seen.y, data.y) and seen.scale == 255 and "severity 2" in seen.note


def test_the_test_set_meets_every_corruption_equally_and_apart_from_labels(monkeypatch):
    """150 test images, 15 corruptions: ten of each; the same ones for every seed; the class says nothing about them."""
    painted = {k: (lambda x, c, rng, v=i: x * 0 + v / 255, [0] * 5) for i, k in enumerate(KINDS)}
    monkeypatch.setattr(corrupt, "CORRUPTIONS", painted)
    data, kind = made(), FeatureShift()
    seen = [kind.changed(data, parts_of(kind, data, seed=s), s).x_test for s in (0, 1)]
    which = seen[0][:, 0, 0, 0].long()
    assert which.bincount().tolist() == [10] * 15 and torch.equal(*seen)
    met = torch.zeros(10, 15).index_put((data.y_test, which), torch.ones(150), accumulate=True)
    assert (met > 0).sum(1).min() > 5  # label i % 10 and corruption i % 15 would meet in three ways only


def test_severity_zero_is_the_data_itself():
    data = made()
    assert FeatureShift(0).changed(data, parts_of(FeatureShift(0), data), 0) is data


def test_images_are_corrupted_once_for_a_seed(monkeypatch):
    """The same object comes back, whoever asks; another seed, severity or split is another one."""
    data, kind = made(), FeatureShift()
    parts = parts_of(kind, data)
    first = kind.changed(data, parts, 0)
    monkeypatch.setattr(shift, "corrupted_by", lambda *a, **k: pytest.fail("corrupted again"))
    assert kind.changed(data, [p.copy() for p in parts], 0) is first
    monkeypatch.undo()
    assert not torch.equal(kind.changed(data, parts, 1).x, first.x)
    assert not torch.equal(FeatureShift(5).changed(data, parts, 0).x, first.x)


def test_images_that_nobody_holds_stay_clean():
    data, kind = made(), FeatureShift(5)
    seen = kind.changed(data, [np.arange(0, 50), np.arange(50, 100)], 0)
    assert torch.equal(seen.x[100:], data.x[100:]) and not torch.equal(seen.x[:100], data.x[:100])


def test_pixels_of_another_scale_become_bytes():
    """Digits go from 0 to 16: v becomes 255 v / 16, and the new scale says so, so that a clean image stays the same."""
    data = replace(made(c=1), scale=16.0)
    data = replace(data, x=data.x % 17, x_test=data.x_test % 17)
    seen = FeatureShift().changed(data, [np.arange(10)], 0)
    np.testing.assert_allclose(seen.x[10:] / seen.scale, data.x[10:] / 16.0, atol=0.5 / 255)
    assert seen.scale == 255.0


def test_text_has_no_corruptions():
    words = replace(made(), x=torch.zeros(600, 5, dtype=torch.int32), vocabulary=9)
    with pytest.raises(PartitionFailed, match="made is text; corruptions are for images"):
        FeatureShift().changed(words, [np.arange(9)], 0)


@pytest.mark.parametrize("evaluation", ["global", "personal"])
def test_a_setting_deals_the_changed_data(evaluation):
    """`dealt` corrupts what the clients hold, pooled or not, and gives the same object again."""
    setting = Setting(partition="feature-shift(severity=4)", samples=200, clients=5, evaluation=evaluation)
    clean = data_of(setting)
    data, parts = dealt(setting, 0)
    index = np.concatenate(parts)
    assert dealt(setting, 0)[0] is data and len(index) == 200
    changed = (data.x.double() / data.scale - clean.x.double() / clean.scale).abs().amax((1, 2, 3)) > 0.01
    assert changed[index].double().mean() > 0.9 and not np.delete(changed.numpy(), index).any()
