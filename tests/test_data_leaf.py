"""FEMNIST and Shakespeare by author: LEAF's json files, the subset in one file, and the text of each role."""

import json

import numpy as np
import pytest
import torch
from real_data import real

from fednb.data import sources
from fednb.data.leaf import json_files
from fednb.data.resident import Resident
from fednb.data.sources import DataNotFound, available, load
from fednb.data.text import ALPHABET, UNKNOWN, apart, characters, letters, spoken, windows
from fednb.data.writers import held_out


def write_json(place, name: str, users: dict[str, tuple[list, list]]):
    place.mkdir(parents=True, exist_ok=True)
    data = {who: {"x": x, "y": y} for who, (x, y) in users.items()}
    held = {"users": list(users), "num_samples": [len(y) for _, y in users.values()], "user_data": data}
    (place / name).write_text(json.dumps(held))


def grey(*values: float) -> list[list[float]]:
    """Images of one shade each, as LEAF has them: 784 numbers in [0, 1]."""
    return [[v] * 784 for v in values]


def write_femnist(root, inside="femnist"):
    """Writers b (two files, three images), a (one image) and, in the test files only, c."""
    write_json(root / inside / "train", "all_data_1.json", {"b": (grey(0.0, 1.0), [5, 61])})
    write_json(root / inside / "train", "all_data_2.json", {"a": (grey(0.1999), [10]), "empty": ([], [])})
    write_json(root / inside / "test", "all_data_1.json", {"c": (grey(0.4), [0]), "b": (grey(0.6), [1])})


@pytest.mark.parametrize("inside", ["femnist", "femnist/data"])
def test_femnist_json_is_read_by_writer(folder, inside):
    """Pixels are 255 times LEAF's numbers; writers a, b, c are 0, 1, 2 in both splits."""
    write_femnist(folder, inside)
    data = load("femnist")
    assert (data.input, data.classes, data.x.dtype) == ((1, 28, 28), 62, torch.uint8)
    assert data.x[:, 0, 3, 3].tolist() == [0, 255, 51] and data.x_test[:, 0, 3, 3].tolist() == [102, 153]
    assert (data.y.tolist(), data.y_test.tolist()) == ([5, 61, 10], [0, 1])
    assert (data.owner.tolist(), data.owner_test.tolist()) == ([1, 1, 0], [2, 1])
    assert data.note == "subset: 3 of 3550 writers"


def test_femnist_ink_is_positive(folder):
    """(0.5 − x) / 0.5: white paper (255) is −1, black ink (0) is +1; the catalogue says so with a negative std."""
    write_femnist(folder)
    data = load("femnist")
    assert (data.mean, data.std, data.scale) == ((0.5,), (-0.5,), 255.0)
    seen = Resident.of(data, [np.arange(3)], torch.float64, True, "cpu").inputs(data.x)
    torch.testing.assert_close(seen[:, 0, 0, 0], torch.tensor([1.0, -1.0, 0.6], dtype=torch.float64))


def test_json_files_are_parsed_once(folder, monkeypatch):
    write_femnist(folder)
    first = load("femnist")
    sources.held.cache_clear()
    with monkeypatch.context() as closed:
        closed.setattr(json, "loads", lambda *a: pytest.fail("parsed again"))
        again = load("femnist")
    assert torch.equal(first.x, again.x) and torch.equal(first.owner_test, again.owner_test)
    write_json(folder / "femnist" / "train", "all_data_3.json", {"d": (grey(0.0), [7])})
    sources.held.cache_clear()
    assert load("femnist").y.tolist() == [5, 61, 10, 7]


BAD = {
    "images of 783 values": {"a": ([[0.0] * 783], [1])},
    r"expected 784 in \[0, 1\]": {"a": (grey(1.5), [1])},
    "a has 1 samples with 2 labels": {"a": (grey(0.5), [1, 2])},
    r"training labels 62\.\.62, expected 0\.\.61": {"a": (grey(0.5), [62])},
    "the files of train hold no samples": {"a": ([], [])},
}


@pytest.mark.parametrize("says", BAD)
def test_damaged_femnist_is_explained(folder, says):
    write_json(folder / "femnist" / "test", "a.json", {"a": (grey(0.5), [1])})
    write_json(folder / "femnist" / "train", "a.json", BAD[says])
    with pytest.raises(DataNotFound, match=rf"'femnist' in .*femnist are damaged: .*{says}"):
        load("femnist")


@pytest.mark.parametrize("text", ["{", '{"users": []}', "[1]", '{"user_data": {"a": 3}}'])
def test_files_that_are_no_leaf_files_are_named(folder, text):
    write_femnist(folder)
    (folder / "femnist" / "test" / "all_data_1.json").write_text(text)
    with pytest.raises(DataNotFound, match=r"all_data_1\.json is not as LEAF writes it"):
        load("femnist")


@pytest.mark.parametrize("name", ["femnist", "shakespeare"])
def test_absent_leaf_data_says_how_to_make_it(folder, name):
    (folder / name / "train").mkdir(parents=True)  # one split alone is not enough
    write_json(folder / name / "train", "a.json", {})
    assert not available(name) and json_files(folder / name) == {}
    with pytest.raises(DataNotFound, match=rf"looked for train/\*\.json and 2 more in .*{name}; .*preprocess\.sh"):
        load(name)


def write_subset(root, **changes):
    """Writer w0 has 1 image, w1 2, w2 10, w3 25."""
    writer = np.repeat(["w1", "w0", "w3", "w2"], [2, 1, 25, 10])
    arrays = {"images": np.zeros((38, 28, 28), np.uint8), "labels": np.arange(38).astype(np.uint8), "writer": writer}
    np.savez(root / "femnist_leaf_subset.npz", **{k: v for k, v in (arrays | changes).items() if v is not None})


def test_the_subset_keeps_a_tenth_of_every_writer_for_testing(folder):
    """LEAF: ⌊0.9 n⌋ of n train, at least one: 1 of 1, 1 of 2, 9 of 10, 22 of 25. Each image once."""
    write_subset(folder)
    data = load("femnist")
    assert data.owner.bincount().tolist() == [1, 1, 9, 22]
    assert data.owner_test.bincount(minlength=4).tolist() == [0, 1, 1, 3]
    assert sorted([*data.y.tolist(), *data.y_test.tolist()]) == list(range(38))
    assert data.note == "subset: 4 of 3550 writers"
    assert next(row for row in sources.table() if row["name"] == "femnist")["note"] == data.note


def test_held_out_samples_are_drawn_not_cut_off():
    train, test = held_out(np.zeros(100, int))
    assert len(test) == 10 and test.tolist() != list(range(90, 100))
    np.testing.assert_array_equal(train, held_out(np.zeros(100, int))[0])


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"writer": None}, "writer is not a file in the archive"),
        ({"writer": np.array(["a"])}, "38 images, 38 labels, 1 writers"),
    ],
)
def test_a_damaged_subset_is_explained(folder, changes, says):
    write_subset(folder, **changes)
    assert available("femnist")
    with pytest.raises(DataNotFound, match=says):
        load("femnist")


def test_json_files_go_before_the_subset(folder):
    write_subset(folder)
    write_femnist(folder)
    assert len(load("femnist").y) == 3 and available("femnist") == str(folder / "femnist")


def test_letters_are_leafs_and_others_have_a_number_of_their_own():
    """80 letters, each its place; é, ÿ, €, š (whose low byte is an a), a tab, and a smiley are all the 81st."""
    assert len(ALPHABET) == 80 == len(set(ALPHABET)) == UNKNOWN
    assert letters(ALPHABET).tolist() == list(range(80))
    assert letters("aé\tÿ€š\U0001f600b").tolist() == [ALPHABET.index("a"), *[80] * 6, ALPHABET.index("b")]
    assert letters("").tolist() == [] and letters("a").dtype == np.uint8


def test_windows_slide_by_one_character():
    x, y = windows("abcde", 3)
    assert ["".join(ALPHABET[i] for i in row) for row in x] == ["abc", "bcd"]
    assert "".join(ALPHABET[i] for i in y) == "de"
    assert [len(part) for part in windows("abc", 3)] == [0, 0]


@pytest.mark.parametrize("n", [0, 1, 80, 799, 800, 1000])
def test_no_character_is_in_training_and_in_testing(n):
    """Window i is characters i..i+79, and i+80 follows it: the last of training and the first of testing are apart."""
    train, test = (range(n)[part] for part in apart(n))
    assert len(train) == int(0.9 * n)
    if len(test):
        assert test[0] == train[-1] + 81 and test[-1] == n - 1
    else:
        assert n <= int(0.9 * n) + 80


def test_roles_are_read_from_their_text(folder):
    """Line breaks become spaces and runs of spaces one; sonnets have no role; a short role has no windows."""
    place = folder / "shakespeare" / "leaf_by_character" / "by_play_and_character"
    place.mkdir(parents=True)
    (place / "PLAY_LONG.txt").write_text("0123456789\n" * 100)
    (place / "PLAY_SHORT.txt").write_text("hello")
    (place / "THE_SONNETS_I.txt").write_text("x" * 2000)
    (place / "PLAY_WIDE.txt").write_text("a   b\n" * 300)
    data = load("shakespeare")
    assert (data.input, data.classes, data.x.dtype, data.vocabulary) == ((81, 80), 80, torch.uint8, 81)
    line = "0123456789 " * 100  # 1100 characters, 1020 windows: 918 train, those from 998 on test
    assert data.owner.bincount().tolist() == [918, 0, 1008]  # "a b " 300 times: 1120 windows
    first = data.x[data.owner == 0]
    assert "".join(ALPHABET[i] for i in first[17]) == line[17:97] and ALPHABET[data.y[17]] == line[97]
    tested = data.x_test[data.owner_test == 0]
    assert len(tested) == 1020 - 998 and "".join(ALPHABET[i] for i in tested[0]) == line[998:1078]
    assert data.note == "subset: 2 of 1129 roles"


def test_an_unknown_character_is_read_but_never_asked_for(folder):
    """200 characters with one é at place 100: 120 windows, of which the one that é follows is left out."""
    file = folder / "role.txt"
    file.write_text("a" * 100 + "é" + "b" * 99, encoding="utf-8")
    held = spoken([file])
    assert len(held["train_y"]) == 108 - 1 and UNKNOWN not in held["train_y"] and UNKNOWN in held["train_x"]


def test_shakespeare_json_is_read_by_role(folder):
    long = "To be, or not to be: that is the question whether it is nobler in mind to suffer "[:80]
    write_json(folder / "shakespeare" / "train", "a.json", {"HAMLET": ([long, long], ["x", "é"])})
    write_json(folder / "shakespeare" / "test", "a.json", {"GHOST": (["é" + long[1:]], ["y"])})
    data = load("shakespeare")
    assert "".join(ALPHABET[i] for i in data.x[0]) == long and len(data.y) == 1  # é is never asked for
    assert (ALPHABET[data.y[0]], int(data.x_test[0, 0]), ALPHABET[data.y_test[0]]) == ("x", UNKNOWN, "y")
    assert (data.owner.tolist(), data.owner_test.tolist()) == ([1], [0])
    assert data.note == "subset: 2 of 1129 roles"


@pytest.mark.parametrize("x, y", [(["short"], ["a"]), (["a" * 80], ["ab"]), (["a" * 80], [""])])
def test_other_text_is_no_shakespeare(folder, x, y):
    write_json(folder / "shakespeare" / "train", "a.json", {"R": (x, y)})
    write_json(folder / "shakespeare" / "test", "a.json", {"R": (["a" * 80], ["a"])})
    with pytest.raises(DataNotFound, match="a sample is 80 characters and the next one"):
        load("shakespeare")
    assert [len(part) for part in characters(["a" * 80], ["a", "b"])] == [1, 2]  # the caller names the author


@pytest.mark.data
@real("femnist")
def test_real_femnist():
    data = load("femnist")
    assert (data.input, data.classes) == ((1, 28, 28), 62)
    assert set(data.owner_test.tolist()) <= set(data.owner.tolist())
    assert float(data.x.double().mean()) > 160  # white paper, little ink
    share = len(data.y_test) / (len(data.y) + len(data.y_test))
    assert 0.08 < share < 0.22
    assert ("subset" in data.note) == (len(data.owner.unique()) < 3550)


@pytest.mark.data
@real("shakespeare")
def test_real_shakespeare():
    """From LEAF's text files: 1130 roles with 4,226,206 windows (LEAF's paper: 1129 with 4,226,158)."""
    data = load("shakespeare")
    assert (data.input, data.classes) == ((81, 80), 80)
    assert int(data.y.max()) < 80 and int(data.x.max()) <= 80
    if available("shakespeare").endswith("by_play_and_character"):
        assert len(data.owner.unique()) == 1130 and data.note == ""
        assert len(data.y) == pytest.approx(0.9 * 4_226_206, rel=1e-3)
    same = data.owner[1:] == data.owner[:-1]  # windows of a role follow one another
    assert (data.x[1:, :-1][same] == data.x[:-1, 1:][same]).all()
    assert (data.x[1:, -1][same] == data.y[:-1][same]).all()
