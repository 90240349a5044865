"""Tiny ImageNet and BloodMNIST are read from the files their makers publish, checked, and decoded once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from real_data import real

from fednb.data import sources
from fednb.data.files import md5
from fednb.data.pictures import Blood, TinyImageNet
from fednb.data.sources import DataNotFound, load

WORDS = [f"n{i:08d}" for i in range(200)]


def flat(shade: int, size: int = 64, mode: str = "RGB") -> Image.Image:
    """A picture of one shade: what JPEG keeps exactly, up to a step or two."""
    return Image.new(mode, (size, size), shade if mode == "L" else (shade, 0, 0))


def write_tiny(root, named=WORDS, classes=(0, 7, 199)):
    """Two training and one validation image of some classes; the red of class c is c, the second image is grey."""
    place = root / "tiny-imagenet-200"
    lines = []
    (place / "val" / "images").mkdir(parents=True)
    (place / "wnids.txt").write_text("\n".join(reversed(named)) + "\n")
    for c in classes:
        at = place / "train" / WORDS[c] / "images"
        at.mkdir(parents=True)
        flat(c).save(at / f"{WORDS[c]}_0.JPEG", quality=100)
        flat(c, mode="L").save(at / f"{WORDS[c]}_1.JPEG", quality=100)
        flat(c).save(place / "val" / "images" / f"val_{c}.JPEG", quality=100)
        lines.append(f"val_{c}.JPEG\t{WORDS[c]}\t0\t0\t9\t9")
    (place / "val" / "val_annotations.txt").write_text("\n".join(lines[::-1]) + "\n")
    return place


def test_tiny_imagenet_is_read_by_class_and_file_name(folder):
    """Classes are numbered by the order of their words (not of wnids.txt), grey images get three channels."""
    write_tiny(folder)
    data = load("tiny-imagenet")
    assert (data.input, data.classes, data.pad, data.flip) == ((3, 64, 64), 200, 4, True)
    assert (data.mean, data.std) == ((0.5,) * 3, (0.5,) * 3)
    assert data.y.tolist() == [0, 0, 7, 7, 199, 199]
    assert sorted(data.y_test.tolist()) == [0, 7, 199]
    red = data.x[:, 0, 5, 5].int() - torch.tensor([0, 0, 7, 7, 199, 199])
    assert red.abs().max() <= 3  # JPEG is nearly exact on one shade
    assert (data.x[1::2, 0] == data.x[1::2, 2]).all() and int(data.x[4, 2].max()) <= 3
    assert (data.x_test[:, 0, 5, 5].int() - data.y_test).abs().max() <= 3
    assert data.note == "subset: 6 of 100000 training, 3 of 10000 test samples"


def test_tiny_imagenet_is_decoded_once(folder, monkeypatch):
    """The second time no image file is opened; one more training file, and everything is decoded again."""
    place = write_tiny(folder)
    first = load("tiny-imagenet")
    assert {p.name for p in place.glob("*.npz")} == {"fednb-train.npz", "fednb-test.npz"}
    assert not list(place.glob(".part*"))
    sources.held.cache_clear()
    with monkeypatch.context() as closed:
        closed.setattr(Image, "open", lambda *a: pytest.fail("an image was decoded again"))
        again = load("tiny-imagenet")
    assert torch.equal(first.x, again.x) and torch.equal(first.y_test, again.y_test) and again is not first
    flat(9).save(place / "train" / WORDS[7] / "images" / "z.JPEG")
    sources.held.cache_clear()
    assert load("tiny-imagenet").y.tolist() == [0, 0, 7, 7, 7, 199, 199]


DAMAGE = {
    "wnids.txt names 3 classes, expected 200": lambda at: (at / "wnids.txt").write_text("a\nb\nc"),
    "val_annotations.txt is absent": lambda at: (at / "val/val_annotations.txt").unlink(),
    "the class 'n9', which wnids.txt does not": lambda at: (at / "val/val_annotations.txt").write_text("a\tn9\t0\n"),
    "has (32, 32) pixels": lambda at: flat(0, 32).save(at / "train" / WORDS[7] / "images" / "a.JPEG"),
    "cannot identify image file": lambda at: (at / "train" / WORDS[7] / "images" / "a.JPEG").write_text("no"),
    "val_0.JPEG": lambda at: (at / "val/images/val_0.JPEG").unlink(),
}


@pytest.mark.parametrize("says", DAMAGE)
def test_damaged_tiny_imagenet_is_explained(folder, says):
    DAMAGE[says](write_tiny(folder))
    with pytest.raises(
        DataNotFound, match=r"the files of 'tiny-imagenet' in .*tiny-imagenet-200 are damaged"
    ) as raised:
        load("tiny-imagenet")
    assert says in str(raised.value)


def test_a_folder_without_training_images_is_damaged(folder):
    place = write_tiny(folder, classes=())
    (place / "train").mkdir()
    with pytest.raises(DataNotFound, match="no train images"):
        load("tiny-imagenet")


def test_absent_tiny_imagenet_is_explained(folder):
    with pytest.raises(DataNotFound, match=r"looked for tiny-imagenet-200 in .*; downloads are off"):
        load("tiny-imagenet")


def test_tiny_imagenet_is_fetched_whole(folder, tmp_path_factory, monkeypatch):
    """The zip file of a made set, by its url and sum: unpacked where the loader looks."""
    import shutil

    monkeypatch.delenv("FEDNB_OFFLINE")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_tiny(elsewhere)
    packed = shutil.make_archive(str(elsewhere / "tiny"), "zip", elsewhere, "tiny-imagenet-200")
    there = (elsewhere / "tiny.zip").as_uri()
    reader = TinyImageNet(url=there, sum=md5(elsewhere / "tiny.zip"))
    found = reader.read(sources.find("tiny-imagenet"), folder)
    assert packed and found.y.tolist() == [0, 0, 7, 7, 199, 199]
    assert [p.name for p in folder.iterdir()] == ["tiny-imagenet-200"]


def pixels(n: int) -> np.ndarray:
    """Image i has red i, green 2 i, blue 3 i."""
    return np.broadcast_to(np.arange(n)[:, None, None, None] * np.array([1, 2, 3]), (n, 28, 28, 3)).astype(np.uint8)


def write_blood(root):
    """MedMNIST's layout: labels [n, 1], a validation split that must not be used."""
    arrays = {}
    for split, n in (("train", 8), ("val", 3), ("test", 5)):
        arrays |= {f"{split}_images": pixels(n), f"{split}_labels": np.arange(n)[:, None].astype(np.uint8) % 8}
    np.savez(root / "bloodmnist.npz", **arrays)
    return root / "bloodmnist.npz"


def test_bloodmnist_is_read_without_its_validation_images(folder):
    source = sources.find("bloodmnist")
    reader = Blood(sum=md5(write_blood(folder)))
    found = reader.read(source, folder)
    assert (found.x.shape, found.x_test.shape) == ((8, 3, 28, 28), (5, 3, 28, 28))
    assert found.x[:, :, 0, 0].tolist() == [[i, 2 * i, 3 * i] for i in range(8)]
    assert found.y.tolist() == list(range(8)) and found.y_test.tolist() == list(range(5))


def test_bloodmnist_must_have_medmnists_sum(folder):
    write_blood(folder)
    with pytest.raises(DataNotFound, match=r"bloodmnist.npz has the md5 sum \w+, expected 7053d0359d879ad8a5505303e11"):
        load("bloodmnist")


def test_bloodmnist_is_fetched(folder, tmp_path_factory, monkeypatch):
    monkeypatch.delenv("FEDNB_OFFLINE")
    there = write_blood(tmp_path_factory.mktemp("there"))
    reader = Blood(url=there.as_uri(), sum=md5(there))
    assert len(reader.read(sources.find("bloodmnist"), folder).y) == 8
    with pytest.raises(DataNotFound, match="the download failed"):
        replace(reader, sum="0").read(sources.find("bloodmnist"), folder / "other")


def write_blood_subset(root, **changes):
    split = np.array(["train", "test", "train", "train"])
    arrays = {"images": pixels(4), "labels": np.array([0, 7, 3, 1], np.uint8), "split": split} | changes
    np.savez(root / "bloodmnist_subset.npz", **{name: x for name, x in arrays.items() if x is not None})


def test_a_subset_of_bloodmnist_says_that_it_is_one(folder):
    write_blood_subset(folder)
    data = load("bloodmnist")
    assert (data.y.tolist(), data.y_test.tolist()) == ([0, 3, 1], [7])
    assert data.x[:, 0, 0, 0].tolist() == [0, 2, 3] and data.x_test[0, 2, 0, 0] == 3
    assert data.note == "subset: 4 of 17092 images"
    assert next(row for row in sources.table() if row["name"] == "bloodmnist")["note"] == data.note


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"split": None}, "split is not a file in the archive"),
        ({"labels": np.zeros(3, np.uint8)}, "4 images, 3 labels, 4 splits"),
        ({"labels": np.array([0, 8, 1, 2], np.uint8)}, r"test labels 8\.\.8, expected 0\.\.7"),
        ({"images": pixels(4)[:, :27]}, r"shape \(3, 27, 28\), expected \(3, 28, 28\)"),
        ({"images": pixels(4).astype(np.float32)}, "images are float32"),
        ({"split": np.array(["train"] * 4)}, "0 test samples"),
    ],
)
def test_a_damaged_subset_is_explained(folder, changes, says):
    write_blood_subset(folder, **changes)
    with pytest.raises(DataNotFound, match=says):
        load("bloodmnist")


def test_a_file_cut_short_is_explained(folder):
    write_blood_subset(folder)
    file = folder / "bloodmnist_subset.npz"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(DataNotFound, match=r"bloodmnist_subset\.npz cannot be read"):
        load("bloodmnist")
    assert next(row for row in sources.table() if row["name"] == "bloodmnist")["note"].startswith("damaged")


@pytest.mark.data
@real("bloodmnist")
def test_real_bloodmnist():
    data = load("bloodmnist")
    assert (data.input, data.classes) == ((3, 28, 28), 8)
    assert set(data.y.tolist()) == set(range(8)) == set(data.y_test.tolist())
    full = (len(data.y), len(data.y_test)) == (11959, 3421)
    assert full == (data.note == "")
    assert 0.5 < float(data.x.double().mean() / 255) < 0.9  # cells on a bright ground


@pytest.mark.data
@real("tiny-imagenet")
def test_real_tiny_imagenet():
    data = load("tiny-imagenet")
    assert set(data.y.bincount().tolist()) == {500} and set(data.y_test.bincount().tolist()) == {50}
