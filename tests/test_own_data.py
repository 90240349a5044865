"""Data of a user: every way in, every error in one line that names the array, and the content in the key."""

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import fednb as fn
from fednb.algorithms.catalogue import method
from fednb.data.identity import OtherSamples
from fednb.data.sources import BadData, find, load, names
from fednb.engines.problem import class_counts, clients_of, data_of, problem_of
from fednb.engines.setting import Setting
from fednb.runs.keys import identify, key_of

pytestmark = pytest.mark.usefixtures("own_names")
RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, size=(30, 6, 5), dtype=np.uint8)
Y = np.arange(30) % 3
TEST = X[:6] + 1, Y[:6]


def key(**others):
    setting = Setting(data="mine", partition="iid", clients=2, **others)
    return key_of(identify(setting, method("fedavg"), 0))


# Ways in


def test_arrays_tensors_and_lists_are_one_data_set():
    """Grey images get a channel; labels of any kind are int64; the content is copied."""
    x = X.copy()
    prints = []
    for given in (x, torch.from_numpy(x), x.tolist()):
        kind = np.asarray(given, dtype=np.uint8) if isinstance(given, list) else given
        fn.add_data("mine", train=(kind, Y.astype(np.int32)), test=(X[:6], torch.tensor(Y[:6])))
        prints.append(load("mine").fingerprint)
    assert len(set(prints)) == 1
    data = load("MINE")
    assert data.x.shape == (30, 1, 6, 5) and data.x.dtype == torch.uint8 and data.y.dtype == torch.int64
    assert (data.classes, data.scale, data.input) == (3, 255.0, (1, 6, 5))
    x[:] = 0
    assert load("mine").x.float().mean() > 0


@pytest.mark.parametrize(
    "shape, channels, expected",
    [((30, 6, 5), "", (1, 6, 5)), ((30, 3, 6, 5), "", (3, 6, 5)), ((30, 6, 5, 3), "", (3, 6, 5)),
     ((30, 3, 6, 3), "last", (3, 3, 6)), ((30, 3, 6, 3), "first", (3, 6, 3)), ((30, 7), "", (7,)),
     ((30, 4, 9), "first", (4, 9))],
)  # fmt: skip
def test_channels_are_found_or_told(shape, channels, expected):
    fn.add_data("mine", train=(RNG.random(shape), Y), test=0.2, channels=channels)
    assert load("mine").input == expected and load("mine").x.dtype == torch.float32


def test_a_share_is_held_out_of_every_class_in_the_same_way_each_time():
    fn.add_data("mine", train=(X, Y), test=0.2)
    first = load("mine")
    assert first.y_test.bincount().tolist() == [2, 2, 2] and len(first.y) == 24
    fn.add_data("mine", train=(X, Y), test=0.2)
    assert load("mine") is first


def test_labels_may_be_names():
    fn.add_data("mine", train=(X, np.array(["cat", "ant", "bee"])[Y]), test=(X[:3], ["ant", "bee", "cat"]))
    assert load("mine").y[:3].tolist() == [2, 0, 1] and load("mine").y_test.tolist() == [0, 1, 2]


def test_a_torch_data_set_is_read_once():
    items = torch.utils.data.TensorDataset(torch.rand(30, 3, 4, 4), torch.tensor(Y))
    fn.add_data("mine", train=items, test=torch.utils.data.Subset(items, range(6)))
    data = load("mine")
    assert data.input == (3, 4, 4) and torch.equal(data.x_test, data.x[:6])


class Pictures(torch.utils.data.Dataset):
    """Images as torchvision's data sets have them: Pillow's, with a number."""

    def __init__(self, mode="L", sizes=((5, 6),)):
        self.rows = [(Image.fromarray(X[i]).convert(mode).resize(sizes[i % len(sizes)]), int(Y[i])) for i in range(30)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def test_pictures_keep_their_channels_and_can_be_resized():
    fn.add_data("mine", train=Pictures(), test=0.2)
    assert load("mine").input == (1, 6, 5)
    assert sorted(x.tobytes() for x in load("mine").x[:, 0].numpy())[0] in {x.tobytes() for x in X}
    fn.add_data("mine", train=Pictures("RGB", ((5, 6), (8, 8))), test=0.2, size=(4, 7))
    assert load("mine").input == (3, 4, 7)
    with pytest.raises(BadData, match=r"train\[1\] has shape \(1, 8, 8\), expected \(1, 6, 5\) as the first; size="):
        fn.add_data("mine", train=Pictures(sizes=((5, 6), (8, 8))), test=0.2)


def made_folder(place, mode="RGB", sizes=((5, 6),), classes=("ant", "bee")):
    for part, count in (("train", 4), ("test", 2)):
        for c in classes:
            (place / part / c).mkdir(parents=True)
            for i in range(count):
                pixels = np.random.default_rng([i, ord(c[0])]).integers(0, 256, (6, 5, 3), dtype=np.uint8)
                image = Image.fromarray(pixels).convert(mode).resize(sizes[i % len(sizes)])
                image.save(place / part / c / f"{i}.png")
    return place


def test_a_folder_has_train_and_test_and_classes_by_folder(tmp_path):
    fn.add_data("mine", made_folder(tmp_path))
    data = load("mine")
    assert data.input == (3, 6, 5) and data.y.tolist() == [0] * 4 + [1] * 4 and data.y_test.tolist() == [0, 0, 1, 1]
    again = np.asarray(Image.open(tmp_path / "train/bee/1.png")).transpose(2, 0, 1)
    assert np.array_equal(data.x[5].numpy(), again)
    fn.add_data("mine", tmp_path / "train", tmp_path / "test")  # read from the file that was kept
    assert load("mine").fingerprint == data.fingerprint
    fn.add_data("small", str(tmp_path), size=4)
    assert load("small").input == (3, 4, 4)
    fn.add_data("held", tmp_path / "train", 0.25)
    assert len(load("held").y_test) == 2


def test_a_folder_without_colour_has_one_channel(tmp_path):
    fn.add_data("mine", made_folder(tmp_path, "L"))
    assert load("mine").input == (1, 6, 5)


class Table(list):
    """As a table of Hugging Face's `datasets`: rows are dictionaries."""

    @property
    def column_names(self):
        return list(self[0])


def test_a_table_of_hugging_face():
    rows = Table({"image": Image.fromarray(X[i]), "label": int(Y[i]), "id": i} for i in range(30))
    fn.add_data("mine", {"train": rows, "test": Table(rows[:6])})
    assert load("mine").input == (1, 6, 5) and load("mine").y_test.tolist() == Y[:6].tolist()
    named = Table({"a": [1.0, i], "b": int(Y[i])} for i in range(30))
    fn.add_data("mine", named, 0.2, columns=("a", "b"))
    assert load("mine").input == (2,)
    with pytest.raises(BadData, match=r"train has no column 'image' among \['a', 'b'\]; say columns="):
        fn.add_data("mine", named, 0.2)


def test_texts_are_tokens_below_the_vocabulary():
    tokens = RNG.integers(0, 9, size=(30, 4))
    fn.add_data("mine", (tokens, Y), 0.2, vocabulary=9)
    assert load("mine").input == (9, 4) and find("mine").text
    with pytest.raises(BadData, match="x of train has tokens 0 to 8, expected 0 to 4"):
        fn.add_data("mine", (tokens, Y), 0.2, vocabulary=5)


def test_owners_are_natural_clients():
    owners = np.array(["eve", "bob", "ann"]).repeat(10)
    fn.add_data("mine", (X, Y), TEST, owners=owners)
    setting = Setting(data="mine", partition="natural", clients=3)
    parts = clients_of(setting, 0, data_of(setting))
    assert [p.tolist() for p in parts] == [list(range(20, 30)), list(range(10, 20)), list(range(10))]
    fn.add_data("mine", (X, Y), TEST, owners=(owners, ["ann", "bob", "eve"] * 2))
    assert load("mine").owner_test.tolist() == [0, 1, 2, 0, 1, 2]


# Scaling and augmentation


def test_statistics_are_those_of_the_training_samples():
    """Inputs then have mean 0 and deviation 1 per channel; a channel that never changes stays."""
    x = RNG.random((30, 3, 4, 4))
    x[:, 2] = 7.0
    fn.add_data("mine", (x, Y), (x[:6] + 1, Y[:6]))
    data = load("mine")
    assert data.mean == tuple(float(f"{m:.6g}") for m in x.astype(np.float32).mean((0, 2, 3), dtype=np.float64))
    assert data.std[2] == 1.0
    problem = problem_of(Setting(data="mine", partition="iid", clients=2), 0)
    inputs = problem.inputs(problem.samples[0])
    assert inputs.mean((0, 2, 3)).abs().max() < 1e-5
    assert torch.allclose(inputs[:, :2].std((0, 2, 3), correction=0), torch.ones(2), atol=1e-4)


def test_statistics_scale_and_augmentation_as_given():
    fn.add_data("mine", (X, Y), TEST, mean=0.5, std=[0.25], scale=100, augment="flip + crop(2)")
    data = load("mine")
    assert (data.mean, data.std, data.scale, data.pad, data.flip) == ((0.5,), (0.25,), 100.0, 2, True)
    fn.add_data("mine", (X, Y), TEST, augment="crop")
    assert (load("mine").pad, load("mine").flip) == (4, False)


def test_features_are_scaled_one_by_one():
    x = RNG.random((30, 2)) * [1, 100]
    fn.add_data("mine", (x, Y), 0.2)
    fn.add_model("line", lambda classes, input: torch.nn.Linear(input[0], classes))
    problem = problem_of(Setting(data="mine", model="line", partition="iid", clients=2), 0)
    assert problem.inputs(problem.samples[0]).std(0, correction=0).tolist() == pytest.approx([1, 1], rel=1e-4)


# Errors


def holed():
    x = RNG.random((30, 4))
    x[7, 2] = np.nan
    return x


WRONG = [
    (dict(train=(X, Y[:29]), test=TEST), r"'mine': y of train has shape \(29,\), expected \(30,\)"),
    (dict(train=(X, np.eye(3)[Y]), test=TEST), r"y of train has shape \(30, 3\), expected \(30,\)"),
    (dict(train=(X, Y + 0.5), test=TEST), "y of train is float64, expected whole numbers"),
    (dict(train=(X, Y - 1), test=TEST), "y of train has labels -1 to 1, expected 0 to 1"),
    (dict(train=(X, Y), test=TEST, classes=2), "y of train has labels 0 to 2, expected 0 to 1"),
    (dict(train=(X, Y), test=(X[:6], Y[:6] + 1)), "y of test has labels 1 to 3, expected 0 to 2"),
    (dict(train=(X, 2 * Y), test=TEST), "y of train has no sample of class 1, expected some of each of 0 to 4"),
    (dict(train=(X, np.where(Y == 1, np.nan, Y)), test=0.2), r"y of train has \d+ labels that are NaN or infinite"),
    (dict(train=(holed(), Y), test=0.2), "x of train has 1 numbers that are NaN or infinite, expected none; .*row 7"),
    (dict(train=(X, Y), test=(X[:6, :5], Y[:6])), r"x of test has samples of shape \(1, 5, 5\) .*expected .*1, 6, 5"),
    (dict(train=(X, Y), test=(X[:6] / 255, Y[:6])), r"x of test has .*float32\), expected .*uint8\) as in train"),
    (dict(train=(Y, Y), test=0.2), r"x of train has shape \(30,\), expected \[n, ...\]"),
    (dict(train=(X[:0], Y[:0]), test=TEST), r"x of train has shape \(0, 6, 5\), expected"),
    (dict(train=([[1], [1, 2]], [0, 1]), test=0.5), "x of train is object .*expected one array of numbers"),
    (dict(train=(RNG.random((30, 3, 6, 3)), Y), test=0.2), "expected samples with channels: say channels='first'"),
    (dict(train=(RNG.random((30, 8, 6, 7)), Y), test=0.2), "expected samples with channels: say channels='first'"),
    (dict(train=(X, Y)), "test is missing, expected"),
    (dict(train=(X, Y), test=1.5), r"test = 1.5, expected a pair \(x, y\), or a share"),
    (dict(train=X, test=TEST), "train is array.*expected \\(x, y\\), a torch Dataset"),
    (dict(train={"train": 1}), "no 'test' among"),
    (dict(train=iter([]), test=TEST), "train is .*expected"),
    (dict(train=[1, 2, 3], test=TEST), r"train\[0\] is 1, expected a pair \(sample, label\)"),
    (dict(train=(X, Y), test=TEST, owners=np.arange(9)), r"owners have shape \(9,\), expected \(30,\)"),
    (dict(train=(X, Y), test=TEST, owners=np.full(30, 0.5)), "owners are float64, expected whole numbers or names"),
    (dict(train=(X, Y), test=TEST, mean=[0.1, 0.2]), r"mean = \[0.1, 0.2\], expected one number, or 1"),
    (dict(train=(X, Y), test=TEST, std=0.0), "std = 0.0, expected numbers other than 0"),
    (dict(train=(X, Y), test=TEST, scale=0), "scale = 0, expected a number above 0"),
    (dict(train=(X, Y), test=TEST, augment="mixup"), "augment = 'mixup', expected 'none', 'flip'"),
    (dict(train=(X, Y), test=TEST, augment="crop(9)"), "expected a crop of at most 5 pixels"),
    (dict(train=(X.reshape(30, 30), Y), test=0.2, augment="flip"), "is for images, and samples of shape"),
    (dict(train=(X, Y), test=TEST, channels="middle"), "channels = 'middle', expected 'first' or 'last'"),
    (dict(train=(X, Y), test=TEST, classes=1), "classes = 1, expected a whole number of at least 2"),
    (dict(train=(X, Y), test=TEST, size="big"), r"size = 'big', expected \(height, width\)"),
    (dict(train=(X, Y), test=(X[:3], ["a", "b", "c"])), "y of test has the class 'a', expected .*whole numbers"),
    (dict(train=(X, list("abc" * 10)), test=TEST), "y of test is int64, expected names of classes"),
    (dict(train="nowhere"), "there is no folder nowhere/train, expected train/ and test/ in nowhere"),
]  # fmt: skip


@pytest.mark.parametrize("given, said", WRONG, ids=[said[:40] for _, said in WRONG])
def test_an_error_names_the_array_and_what_was_expected(given, said):
    with pytest.raises(BadData, match=said) as error:
        fn.add_data("mine", **given)
    assert "\n" not in str(error.value) and "'mine'" in str(error.value)
    assert "mine" not in names()


def test_wrong_folders(tmp_path):
    made_folder(tmp_path / "a", classes=("ant",))
    made_folder(tmp_path / "b", sizes=((5, 6), (7, 7)))
    made_folder(tmp_path / "c")
    (tmp_path / "c/test/cow").mkdir()
    made_folder(tmp_path / "d")
    (tmp_path / "d/train/bee/1.png").write_bytes(b"no image")
    made_folder(tmp_path / "e")
    (tmp_path / "e/train/empty").mkdir()
    for name, said in [("a", "has 1 folders, expected one for each of at least two"), ("c", "has the class 'cow'"),
                       ("b", "1.png is 7x7, expected 6x5 as the first; size="), ("d", "1.png cannot be read"),
                       ("e", "empty has no images, expected some")]:  # fmt: skip
        with pytest.raises(BadData, match=said):
            fn.add_data("mine", tmp_path / name)


def test_names_of_the_catalogue_are_taken_and_others_can_be_used_again(capsys):
    for name in ("cifar10", "CIFAR-10", "", "a:b", 3):
        with pytest.raises(BadData, match=r"take another name|must be a name"):
            fn.add_data(name, (X, Y), TEST)
    fn.add_data("mine", (X, Y), TEST)
    fn.add_data("mine", (X, Y), TEST)
    assert capsys.readouterr().err == ""
    fn.add_data("Mine", (X + 1, Y), TEST)
    assert capsys.readouterr().err == "fednb: data 'mine' are replaced by others\n"
    assert Setting(data="mine").data == "Mine"


def test_an_empty_class_where_it_is_meant():
    fn.add_data("mine", (X, 2 * Y), (X[:6], Y[:6]), classes=6)
    assert load("mine").classes == 6 and class_counts(Setting(data="mine", partition="iid", clients=2)).shape == (2, 6)


# Key


def test_the_content_is_in_the_key():
    """One pixel, one label, the scaling and the augmentation; not the way by which the same numbers came."""
    seen = []
    changed = X.copy()
    changed[3, 2, 1] ^= 1
    swapped = Y.copy()
    swapped[:2] = Y[1::-1]
    for given in (dict(train=(changed, Y)), dict(train=(X, swapped)), dict(train=(X, Y), mean=0.5),
                  dict(train=(X, Y), std=2), dict(train=(X, Y), augment="flip"), dict(train=(X, Y), scale=100),
                  dict(train=(X, Y), owners=Y), dict(train=(X, Y), classes=4), dict(train=(X, Y))):  # fmt: skip
        fn.add_data("mine", **given, test=TEST)
        seen.append(key())
    assert len(set(seen)) == len(seen)
    fn.add_data("mine", train=(pd.DataFrame(X.reshape(30, 30)), Y), test=(X[:6].reshape(6, 30), Y[:6]))
    assert key() not in seen
    fn.add_data("mine", train=(torch.from_numpy(X), Y.tolist()), test=TEST)
    assert key() == seen[-1]


def test_a_run_tells_of_the_clients_that_it_had(tmp_path, monkeypatch):
    """Not of those that other data under the same name would make."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    fn.add_data("mine", (X, Y), TEST)
    setting = Setting(data="mine", partition="iid", clients=2, participation=1.0, rounds=1, epochs=1)
    held, asked = (fn.run(setting, "FedAvg", progress=False) for _ in range(2))
    classes = asked.clients["classes"].tolist()
    fn.add_data("mine", (X, np.sort(Y)), TEST)
    with pytest.raises(OtherSamples, match=f"run {held.key} .*'mine'.* has the name now .*fn.add_data"):
        held.clients  # noqa: B018
    assert asked.clients["classes"].tolist() == classes
    fn.add_data("mine", (X, Y), TEST)
    assert held.clients["classes"].tolist() == classes


def test_corruptions_are_for_images_of_whole_numbers():
    from fednb.data.partition import PartitionFailed

    fn.add_data("mine", (X / 255, Y), 0.2)
    with pytest.raises(PartitionFailed, match="corruptions are for images of uint8"):
        problem_of(Setting(data="mine", partition="feature-shift", clients=2), 0)
