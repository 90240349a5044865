"""A partition of a user: lists, functions and files, checked to be partitions, and told apart by the key."""

import json

import numpy as np
import pytest
import torch

import fednb as fn
from fednb.algorithms.catalogue import method
from fednb.base.inputs import BadFile
from fednb.data.partition import PartitionFailed, UnknownPartition, parse
from fednb.engines.problem import clients_of, data_of
from fednb.engines.setting import Setting
from fednb.runs.keys import identify, key_of

pytestmark = pytest.mark.usefixtures("own_names")
PARTS = [[0, 3, 5], [4, 1], [2]]
CLIENT = [0, 1, 2, 0, 1, 0]  # of each sample: the same partition


def key(partition, **others):
    return key_of(identify(Setting(partition=partition, clients=3, **others), method("fedavg"), 0))


def split(partition, n=6, clients=3, seed=0):
    return [p.tolist() for p in parse(partition).split(np.zeros(n, dtype=np.int64), clients, seed)]


def by_hand(labels, clients, seed):
    return [np.arange(len(labels))[i::clients] for i in range(clients)]


def mixed(labels, clients, seed):
    return np.random.default_rng(seed).permutation(len(labels)) % clients


# Ways in


def ways(folder):
    (folder / "a.json").write_text(json.dumps(PARTS))
    (folder / "b.json").write_text(json.dumps({"ann": PARTS[0], "bob": PARTS[1], "eve": PARTS[2]}))
    (folder / "c.json").write_text(json.dumps(CLIENT))
    (folder / "a.csv").write_text("sample,client\n0,0\n3,0\n5,0\n4,1\n1,1\n2,2\n")
    (folder / "b.csv").write_text("client\n" + "\n".join(map(str, CLIENT)))
    (folder / "c.csv").write_text("client,sample\nann,0\nann,3\nann,5\nbob,4\nbob,1\neve,2\n")
    np.savez(folder / "a.npz", *map(np.array, PARTS))
    np.savez(folder / "b.npz", client=np.array(CLIENT))
    files = [folder / f"{name}" for name in ("a.json", "b.json", "c.json", "a.csv", "b.csv", "c.csv", "a.npz", "b.npz")]
    return [PARTS, tuple(map(np.array, PARTS)), [torch.tensor(p) for p in PARTS], CLIENT, np.array(CLIENT),
            torch.tensor(CLIENT), {"x": PARTS[0], "y": PARTS[1], "z": PARTS[2]}, *files, *map(str, files)]  # fmt: skip


def test_lists_tables_arrays_and_files_are_one_partition_and_one_key(tmp_path):
    for way in ways(tmp_path):
        assert split(way) == [[0, 3, 5], [1, 4], [2]]
    assert len({key(way) for way in ways(tmp_path)}) == 1
    fn.add_partition("mine", PARTS)
    assert split("mine") == split(PARTS) and key("mine") == key(PARTS)


def test_clients_called_by_their_numbers_have_these_numbers_in_any_order(tmp_path):
    """Other names, of which some may be numbers, are numbered as they stand there."""
    (tmp_path / "a.json").write_text(json.dumps({"2": PARTS[2], "0": PARTS[0], "1": PARTS[1]}))
    np.savez(tmp_path / "a.npz", **{"1": np.array(PARTS[1]), "0": np.array(PARTS[0]), "2": np.array(PARTS[2])})
    table = {1: PARTS[1], 2: PARTS[2], 0: PARTS[0]}
    for way in (tmp_path / "a.json", str(tmp_path / "a.npz"), table):
        assert split(way) == [[0, 3, 5], [1, 4], [2]] and key(way) == key(PARTS)
    for names in ("cba", "132", ("1", "0", "x")):
        assert split(dict(zip(names, PARTS, strict=True))) == [[0, 3, 5], [1, 4], [2]]
    many = {str(i): [i] for i in (*range(1, 12), 0)}
    assert split(many, 12, 12) == [[i] for i in range(12)]


def test_a_function_deals_by_labels_clients_and_seed():
    assert split(by_hand) == [[0, 3], [1, 4], [2, 5]]
    assert split(mixed, 40, seed=1) != split(mixed, 40, seed=2) == split(mixed, 40, seed=2)
    setting = Setting(partition=by_hand, clients=5, samples=100)
    assert [len(p) for p in clients_of(setting, 0, data_of(setting))] == [20] * 5


def test_a_text_names_it_in_this_process():
    """Settings are stored by the text of their partition."""
    for given in (PARTS, by_hand):
        made = Setting(partition=given, clients=3)
        assert Setting(**made.plain()).partition == made.partition
    assert str(parse(by_hand)) == f"{__name__}:by_hand" and str(parse(PARTS)).startswith("listed-")
    with pytest.raises(UnknownPartition):
        parse("listed-0123456789ab")


# Checks


WRONG = [
    ([[0, 1], [2, 3]], "has 2 clients, the setting 3; expected the same number"),
    ([[0, 1, 2], [3, 4, 5], []], "leaves client 2 without samples; expected at least one"),
    ([[0, 1, 2], [3, 4], [9]], "names sample 9; expected positions 0 to 5 in 6 samples"),
    ([[0, 1, 2], [3, 4], [-1]], "names sample -1; expected positions 0 to 5"),
    ([[0, 1, 2], [2, 3, 4], [5, 4]], "names sample 2 2 times and 1 others more than once; .*repeated=True"),
    ([[0, 1], [3, 4], [5]], "leaves out 1 of 6 samples, the first is 2; expected none. .*unused=True"),
    ([[0.5], [1], [2]], "client 0 has float64 .*expected a list of whole numbers"),
    ([[[0]], [[1]], [[2]]], "client 0 has int64 .*expected a list of whole numbers"),
    (lambda labels, clients, seed: 3, "is 3; expected one client for each sample"),
    (lambda labels, clients, seed: 1 / 0, "fails: ZeroDivisionError: division by zero"),
    (lambda labels, clients, seed: np.random.default_rng().permutation(6) % 3, "deals otherwise each time"),
    (lambda labels, clients, seed: np.zeros(6, dtype=int), "leaves client 1 without samples"),
]


@pytest.mark.parametrize("given, said", WRONG, ids=[said[:40] for _, said in WRONG])
def test_what_is_no_partition_is_refused_in_one_line(given, said):
    with pytest.raises(PartitionFailed, match=said) as error:
        split(given)
    assert "\n" not in str(error.value)


def test_what_is_neither_list_function_nor_file_is_refused():
    with pytest.raises(PartitionFailed, match="mine is 3; expected one client for each sample, a list"):
        fn.add_partition("mine", 3)
    with pytest.raises(ValueError, match=r"partition 'a.txt': expected a file that ends with .csv, .json, .npz"):
        fn.add_partition("mine", "a.txt")
    for wrong in (None, 3, dict):
        with pytest.raises(UnknownPartition, match="closest: "):
            parse(wrong)


def test_what_is_meant_can_be_said():
    fn.add_partition("twice", [[0, 1, 2], [2, 3, 4], [5, 4]], repeated=True)
    fn.add_partition("fewer", [0, 1, 2, -1, -1, -1], unused=True)
    assert split("twice")[1] == [2, 3, 4] and split("fewer") == [[0], [1], [2]]
    fn.add_partition("both", lambda labels, clients, seed: [[0], [0], [1]], repeated=True, unused=True)
    assert split("both") == [[0], [0], [1]]


def test_wrong_files(tmp_path):
    for name, text, said in [("a.json", "{", "not JSON"), ("a.csv", "who\n1\n", r"columns \['who'\]; expected sample"),
                             ("b.csv", "client,sample\n1,\n", "in every row"), ("a.npz", "x", "File is not a zip"),
                             ("c.csv", "", "not a table")]:  # fmt: skip
        (tmp_path / name).write_text(text)
        with pytest.raises(BadFile, match=f"{name}: .*{said}"):
            parse(tmp_path / name)
    with pytest.raises(BadFile, match="No such file"):
        parse("absent.json")


def test_names_of_the_package_are_taken_and_others_can_be_used_again(capsys):
    for name in ("iid", "Dirichlet_Client", "", "a b", 3):
        with pytest.raises(ValueError, match=r"take another name|must be a name"):
            fn.add_partition(name, PARTS)
    for _ in range(2):
        fn.add_partition("mine", PARTS)
        fn.add_partition("dealt", lambda labels, clients, seed: by_hand(labels, clients, seed))
    assert capsys.readouterr().err == ""
    fn.add_partition("mine", PARTS[::-1])
    fn.add_partition("dealt", lambda labels, clients, seed: mixed(labels, clients, seed))
    assert capsys.readouterr().err == "".join(
        f"fednb: partition {name!r} is replaced by another\n" for name in ("mine", "dealt")
    )


def test_another_split_is_another_key():
    one = [[0, 1], [2, 3], [4, 5]]
    seen = [key(each) for each in (one, [[0, 2], [1, 3], [4, 5]], one[::-1], by_hand, mixed, "iid")]
    assert len(set(seen)) == len(seen)
    assert key([[1, 0], [2, 3], [5, 4]]) == seen[0]  # order within a client is nobody's business


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.npz"])
def test_a_file_that_is_changed_is_read_again(name, tmp_path, capsys):
    """Its samples, and so its key, are others at once; a setting that was made before stays what it was."""
    first, other = [0, 1, 2, 0, 1, 0], [0, 1, 2, 0, 0, 1]

    def write(client):
        if name == "a.npz":
            np.savez(tmp_path / name, client=np.array(client))
        else:
            (tmp_path / name).write_text(
                json.dumps(client) if name == "a.json" else "client\n" + "\n".join(map(str, client))
            )

    seen, text = [], str(tmp_path / name)
    for client in (first, first, other, first):
        write(client)
        before = Setting(partition=text, clients=3)
        seen.append(key(text))
        assert split(text) == [np.flatnonzero(np.array(client) == i).tolist() for i in range(3)]
    assert seen[0] == seen[1] == seen[3] != seen[2]
    assert capsys.readouterr().err == 2 * f"fednb: partition {text!r} has changed since it was read; it is read again\n"
    write(other)
    assert key(before.partition) == key(first) != key(text)


def test_settings_with_own_partitions_are_compared_and_hashed():
    one, two = (Setting(partition=[[0, 1], [2]], clients=2) for _ in range(2))
    assert one == two and hash(one) == hash(two) and one != Setting(partition=[[0], [1, 2]], clients=2)
