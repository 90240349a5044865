"""Data sets are found by name, read from the layout torchvision knows, and their absence is explained."""

import hashlib
import os
import pickle
import socket
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fednb.data import dataset, files, sources
from fednb.data.sources import DataNotFound, UnknownData, available, load, names

ROOT = Path(__file__).resolve().parents[1]


def real(name: str) -> pytest.MarkDecorator:
    """Skip unless the folder of FEDNB_DATA holds the set."""
    return pytest.mark.skipif(
        not os.environ.get("FEDNB_DATA") or not available(name), reason=f"FEDNB_DATA has no {name}"
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder, and no network."""
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path))
    monkeypatch.setenv("FEDNB_OFFLINE", "1")
    return tmp_path


def write_idx(path: Path, values: np.ndarray):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    path.write_bytes(header + values.astype(np.uint8).tobytes())


def write_fashion(root: Path, train: int = 20, test: int = 10):
    """A made Fashion-MNIST: image i is filled with the value i, its label is i modulo 10."""
    for part, n in (("train", train), ("t10k", test)):
        images = np.broadcast_to(np.arange(n)[:, None, None], (n, 28, 28))
        write_idx(root / f"FashionMNIST/raw/{part}-images-idx3-ubyte", images)
        write_idx(root / f"FashionMNIST/raw/{part}-labels-idx1-ubyte", np.arange(n) % 10)


def test_digits_are_split_within_every_class():
    data = load("digits")
    assert (data.x.shape, data.x_test.shape, data.input) == ((1438, 1, 8, 8), (359, 1, 8, 8), (1, 8, 8))
    assert (data.x.dtype, data.y.dtype, data.pad, data.flip) == (torch.uint8, torch.int64, 0, False)
    total = data.y.bincount() + data.y_test.bincount()
    assert ((data.y_test.bincount() / total - 0.2).abs() < 0.005).all()
    assert int(data.x.max()) == 16 == data.scale


def test_digits_constants_are_those_of_the_training_split():
    data = load("digits")
    pixels = data.x.double() / data.scale
    assert data.mean == (pytest.approx(pixels.mean().item(), abs=5e-5),)
    assert data.std == (pytest.approx(pixels.std().item(), abs=5e-5),)


def test_digits_use_every_image_once():
    from sklearn.datasets import load_digits

    data = load("digits")
    ours = torch.cat([data.x, data.x_test]).view(1797, 64).numpy()
    theirs = load_digits().data.astype(np.uint8)
    assert sorted(map(bytes, ours)) == sorted(map(bytes, theirs))


def test_stratified_is_a_pure_function():
    labels = np.repeat([0, 1, 2], [10, 20, 5])
    rest, part = dataset.stratified(labels, 0.2)
    assert np.bincount(labels[part]).tolist() == [2, 4, 1]
    assert sorted([*rest, *part]) == list(range(35))
    np.testing.assert_array_equal(part, dataset.stratified(labels, 0.2)[1])


def test_loaded_once():
    assert load("digits") is load("DIGITS")


@pytest.mark.parametrize(
    "text, name",
    [
        ("fashionmnist", "fashion-mnist"),
        ("Fashion_MNIST", "fashion-mnist"),
        ("CIFAR-10", "cifar10"),
        ("cifar_100", "cifar100"),
        (" Digits ", "digits"),
        ("TinyImageNet", "tiny-imagenet"),
        ("yahoo_answers", "yahoo-answers"),
    ],
)
def test_names_are_forgiving(text, name):
    assert sources.find(text).name == name


def test_unknown_name_lists_the_closest():
    with pytest.raises(UnknownData, match=r"no data set 'cifar11'; closest: cifar10.*`fednb ls data` lists all 19"):
        load("cifar11")
    with pytest.raises(UnknownData, match="closest: digits, fashion-mnist, cifar10, cifar100, tiny-imagenet, femnist"):
        load("?")


def test_made_fashion_mnist_is_read(folder):
    write_fashion(folder)
    data = load("fashion-mnist")
    assert (data.input, len(data.x), len(data.x_test)) == ((1, 28, 28), 20, 10)
    assert data.x[:, 0, 0, 0].tolist() == list(range(20))
    assert data.y.tolist() == [i % 10 for i in range(20)]
    assert (data.scale, data.mean, data.std, data.pad) == (255.0, (0.5,), (0.5,), 0)
    assert available("fashion-mnist") == str(folder / "FashionMNIST" / "raw")
    assert data.note == "subset: 20 of 60000 training, 10 of 10000 test samples"
    assert data.owner is None and data.vocabulary == 0


def test_another_folder_is_another_set(folder, tmp_path_factory, monkeypatch):
    write_fashion(folder)
    other = tmp_path_factory.mktemp("other")
    write_fashion(other, train=30)
    first = load("fashion-mnist")
    monkeypatch.setenv("FEDNB_DATA", str(other))
    assert (len(first.x), len(load("fashion-mnist").x)) == (20, 30)


@pytest.mark.parametrize(
    "name, file",
    [
        ("fashion-mnist", "train-images-idx3-ubyte and 3 more"),
        ("cifar10", "data_batch_1 and 6 more"),
        ("cifar100", "train and 2 more"),
    ],
)
def test_absent_files_are_explained(folder, name, file):
    inside = sources.find(name).reader.folder
    with pytest.raises(DataNotFound) as raised:
        load(name)
    text = str(raised.value)
    assert f"looked for {file} in {folder / inside}" in text
    assert "FEDNB_OFFLINE is set" in text
    assert f"Set FEDNB_DATA to a folder that holds {Path(inside).name}, or connect" in text
    assert not available(name)
    assert not list(folder.iterdir())


def test_one_absent_file_is_named(folder):
    write_fashion(folder)
    (folder / "FashionMNIST/raw/t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataNotFound, match="looked for t10k-labels-idx1-ubyte in"):
        load("fashion-mnist")


DAMAGE = {
    "cut": ("train-images-idx3-ubyte", lambda file: file.write_bytes(file.read_bytes()[:1000])),
    "empty": ("train-labels-idx1-ubyte", lambda file: file.write_bytes(b"")),
    "not idx": ("t10k-labels-idx1-ubyte", lambda file: file.write_bytes(b"\x7fELF" + bytes(40))),
    "too few": ("t10k-labels-idx1-ubyte", lambda file: write_idx(file, np.arange(7))),
    "too many classes": ("t10k-labels-idx1-ubyte", lambda file: write_idx(file, np.arange(10) + 5)),
    "wrong shape": ("train-images-idx3-ubyte", lambda file: write_idx(file, np.zeros((20, 27, 27)))),
}


@pytest.mark.parametrize("file, damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_idx_files_are_reported(folder, file, damage):
    write_fashion(folder)
    damage(folder / "FashionMNIST" / "raw" / file)
    with pytest.raises(DataNotFound, match=r"'fashion-mnist' in .* are damaged: .*Delete them"):
        load("fashion-mnist")


def test_a_cifar_file_is_not_read_unless_its_sum_is_the_published_one(folder):
    """Pickled files can do anything when they are read."""
    made = folder / "cifar-10-batches-py"
    made.mkdir()
    batch = pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [0]})
    for file in sources.find("cifar10").reader.files:
        (made / file).write_bytes(batch)
    with pytest.raises(
        DataNotFound, match=r"'cifar10' in .* are damaged: data_batch_1 has the md5 sum .*, expected c99c"
    ):
        load("cifar10")


def test_cifar_files_become_images_and_labels(folder):
    """Five files for training and one for testing: red before green before blue, row by row."""
    made = folder / "cifar-10-batches-py"
    made.mkdir()
    x = np.arange(6 * 3072, dtype=np.int64).reshape(6, 1, 3072) % 251
    named = sources.find("cifar10").reader.files
    for i, file in enumerate(named[:-1]):
        (made / file).write_bytes(pickle.dumps({"data": x[i].astype(np.uint8), "labels": [i]}))
    (made / named[-1]).write_bytes(b"")
    reader = replace(sources.find("cifar10").reader, sums=tuple(files.md5(made / file) for file in named[:-1]))
    found = reader.present(folder)
    assert found.y.tolist() == [0, 1, 2, 3, 4] and found.y_test.tolist() == [5]
    assert found.x.shape == (5, 3, 32, 32) and found.x_test[0, 1, 2, 3] == (5 * 3072 + 1024 + 2 * 32 + 3) % 251


class Interrupted:
    """A reader that writes some files and then loses the connection."""

    def __init__(self, root, download=False):
        self.timeout = socket.getdefaulttimeout()
        write_idx(Path(root) / "FashionMNIST/raw/train-images-idx3-ubyte", np.zeros((1, 28, 28)))
        raise TimeoutError(f"timed out after {self.timeout}")


class Finished:
    """A reader that downloads everything, and more than is needed."""

    def __init__(self, root, download=False):
        write_fashion(Path(root))
        (Path(root) / "FashionMNIST/raw/train-images-idx3-ubyte.gz").write_bytes(b"packed")


def fashion(folder, reader):
    """Download Fashion-MNIST with a reader of ours."""
    files.download("fashion-mnist", folder, "FashionMNIST/raw", sources.IDX, partial(reader, download=True))


def test_broken_download_leaves_nothing(folder, monkeypatch):
    monkeypatch.delenv("FEDNB_OFFLINE")
    with pytest.raises(DataNotFound, match=rf"the download failed: timed out after {files.TIMEOUT}\. Set FEDNB_DATA"):
        fashion(folder, Interrupted)
    assert not list(folder.iterdir())
    assert socket.getdefaulttimeout() is None


def test_finished_download_completes_what_was_there(folder, monkeypatch):
    monkeypatch.setenv("FEDNB_OFFLINE", "0")
    write_idx(folder / "FashionMNIST/raw/t10k-labels-idx1-ubyte", np.zeros(3))
    fashion(folder / "new", Finished)
    fashion(folder, Finished)
    assert sorted(p.name for p in (folder / "FashionMNIST/raw").iterdir()) == sorted(sources.IDX)
    assert not list(folder.glob(".download-*"))
    assert len(load("fashion-mnist").y_test) == 10


def test_folder_that_cannot_be_made_is_explained(folder, monkeypatch):
    monkeypatch.delenv("FEDNB_OFFLINE")
    (folder / "file").write_text("in the way")
    with pytest.raises(DataNotFound, match=r"the download failed: .*file"):
        fashion(folder / "file" / "data", Finished)


def test_root_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDNB_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert sources.root() == tmp_path / "fednb" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert sources.root() == Path.home() / ".cache" / "fednb" / "data"
    monkeypatch.setenv("FEDNB_DATA", "~/here")
    assert sources.root() == Path.home() / "here"


def test_table_says_what_is_here(folder):
    write_fashion(folder)
    rows = {row["name"]: row for row in sources.table()}
    assert list(rows) == names()
    assert rows["digits"] == {
        "name": "digits",
        "classes": 10,
        "shape": "1x8x8",
        "train": 1438,
        "test": 359,
        "natural": "",
        "where": "scikit-learn",
        "note": "",
    }
    assert {row["where"] for name, row in rows.items() if name.endswith("-made")} == {"made"}
    assert (rows["shakespeare"]["shape"], rows["femnist"]["natural"]) == ("80 of 81 tokens", "writer")
    assert rows["fashion-mnist"]["where"].endswith("raw")
    assert rows["cifar100"]["where"] == "not here"


def test_import_is_light():
    code = "import sys, fednb.data.sources; assert not {'torchvision', 'sklearn', 'PIL'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def test_a_fetched_file_must_have_its_sum(tmp_path):
    """Any url that Python opens will do; the bytes arrive unchanged, or the sum is named."""
    there = tmp_path / "there"
    there.write_bytes(bytes(range(256)) * 9)
    files.fetched(there.as_uri(), md5(there), tmp_path / "here")
    assert (tmp_path / "here").read_bytes() == there.read_bytes()
    assert files.md5(there) == md5(there)
    with pytest.raises(RuntimeError, match=f"has the md5 sum {md5(there)}, expected 123"):
        files.fetched(there.as_uri(), "123", tmp_path / "here")


def test_a_zip_file_is_unpacked_whole_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDNB_OFFLINE", raising=False)
    packed, folder = tmp_path / "set.zip", tmp_path / "data"
    with zipfile.ZipFile(packed, "w") as out:
        out.writestr("set/inner/file.txt", "held")
    fetch = partial(files.unzipped, packed.as_uri(), "0" * 32)
    with pytest.raises(DataNotFound, match=r"'set' is not here: looked for set in .*expected 000"):
        files.download("set", folder, ".", ["set"], fetch)
    assert not list(folder.iterdir())
    files.download("set", folder, ".", ["set"], partial(files.unzipped, packed.as_uri(), md5(packed)))
    assert [p.name for p in folder.iterdir()] == ["set"]
    assert (folder / "set/inner/file.txt").read_text() == "held"
    packed.write_bytes(b"no zip")
    with pytest.raises(DataNotFound, match="not a zip file"):
        files.download("other", folder, ".", ["other"], partial(files.unzipped, packed.as_uri(), md5(packed)))


def test_kept_arrays_are_made_once_for_a_fingerprint(tmp_path):
    made = []

    def make():
        made.append(1)
        return {"x": np.arange(3) + len(made), "y": np.array("text")}

    first = files.kept(tmp_path / "kept.npz", "a", make)
    again = files.kept(tmp_path / "kept.npz", "a", make)
    assert len(made) == 1 and again.keys() == {"x", "y"} and (again["x"] == first["x"]).all() and again["y"] == "text"
    assert files.kept(tmp_path / "kept.npz", "b", make)["x"].tolist() == [2, 3, 4]
    whole = (tmp_path / "kept.npz").read_bytes()
    (tmp_path / "kept.npz").write_bytes(whole[: len(whole) // 2])
    assert files.kept(tmp_path / "kept.npz", "b", make)["x"].tolist() == [3, 4, 5]
    assert [p.name for p in tmp_path.iterdir()] == ["kept.npz"]


def test_arrays_that_cannot_be_kept_are_made_each_time(tmp_path):
    for _ in range(2):
        assert files.kept(tmp_path / "no folder" / "kept.npz", "a", lambda: {"x": np.ones(1)})["x"] == 1


def test_marks_change_with_the_files(tmp_path):
    (tmp_path / "a").write_text("one")
    before = files.marks(1, files=[tmp_path / "a"])
    assert before == files.marks(1, files=[tmp_path / "a"]) != files.marks(2, files=[tmp_path / "a"])
    (tmp_path / "a").write_text("longer")
    assert files.marks(1, files=[tmp_path / "a"]) != before


@pytest.mark.data
@pytest.mark.parametrize("name", [pytest.param(n, marks=real(n)) for n in ("fashion-mnist", "cifar10", "cifar100")])
def test_real_data_matches_the_catalogue(name):
    source, data = sources.find(name), load(name)
    assert (data.input, len(data.x), len(data.x_test)) == (source.shape, source.train, source.test)
    assert set(data.y.bincount().tolist()) == {source.train // source.classes} and data.note == ""
    pixels = data.x[::10].double() / data.scale
    if data.pad:
        assert pixels.mean((0, 2, 3)).tolist() == pytest.approx(data.mean, abs=0.01)
        assert pixels.std((0, 2, 3)).tolist() == pytest.approx(data.std, abs=0.01)
