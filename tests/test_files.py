"""Files that are whole or not there, their digests, and folders that take each other's place."""

import json
import os
import pickle
from contextlib import suppress

import pytest
import torch

from fednb.base import files
from fednb.base.files import Contents, DamagedFile


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_file_is_replaced_whole(tmp_path):
    file = tmp_path / "a.txt"
    files.atomically(file, "old")
    files.atomically(file, b"new \xff")
    assert file.read_bytes() == b"new \xff"
    assert names(tmp_path) == ["a.txt"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "a.txt"
    files.atomically(file, "old")
    with pytest.raises(KeyError), files.replacing(file) as fresh:
        fresh.write_text("half")
        raise KeyError
    assert file.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "a.txt"
    files.atomically(file, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        files.atomically(file, "new")
    assert file.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_files_have_the_rights_that_the_user_gives(tmp_path, umask, mask, mode):
    os.umask(mask)
    files.atomically(tmp_path / "a.txt", "x")
    files.save_tensors(tmp_path / "a.safetensors", {"w": torch.zeros(2)}, {})
    assert {(tmp_path / n).stat().st_mode & 0o777 for n in names(tmp_path)} == {mode}


def test_what_is_written_is_synced_before_it_has_its_name(tmp_path, monkeypatch):
    """The file's bytes, then its name, then the folder that holds the name."""
    seen = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda d: (seen.append(os.readlink(f"/proc/self/fd/{d}")), fsync(d)))
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append("replace"), replace(a, b)))
    files.atomically(tmp_path / "a.txt", "x")
    assert [s if s in ("replace", str(tmp_path)) else "file" for s in seen] == ["file", "replace", str(tmp_path)]


def test_json_comes_back_and_is_checked(tmp_path):
    file = tmp_path / "a.json"
    what = {"b": [1, 2.5, None, {"c": "ü"}], "a": {"10": 1, "9": 2}}
    files.write_json(file, what)
    assert files.read_json(file) == what
    file.write_text(file.read_text().replace("2.5", "2.6"))
    with pytest.raises(DamagedFile, match=r"a\.json: is not what was written"):
        files.read_json(file)


def test_every_damaged_byte_of_a_json_file_is_noticed_or_says_the_same(tmp_path):
    file = tmp_path / "a.json"
    what = {"a": [1, 2.5], "b": "text"}
    files.write_json(file, what)
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with suppress(DamagedFile):
            assert files.read_json(file) == what  # a space that became something else that is a space


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, "\x00" * 10])
def test_what_is_no_json_object_is_damaged(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DamagedFile, match=r"a\.json: is not"):
        files.read_json(tmp_path / "a.json")


def test_json_without_a_digest_is_read_and_marked(tmp_path):
    (tmp_path / "a.json").write_text('{"status": "finished"}')
    assert files.read_json(tmp_path / "a.json") == {"status": "finished", "unchecked": True}


def some_tensors():
    w = torch.arange(6.0)
    return {
        "w": w,
        "part": w[2:4],
        "again": w,
        "n": torch.tensor(3),
        "none": torch.zeros(0),
        "b": torch.ones(2).bfloat16(),
    }


def test_tensors_come_back_with_their_words(tmp_path):
    file = tmp_path / "a.safetensors"
    files.save_tensors(file, some_tensors(), {"key": "k", "round": "3"})
    found, about = files.load_tensors(file, key="k")
    assert about == {"key": "k", "round": "3"}
    assert found.keys() == some_tensors().keys()
    assert all(torch.equal(found[name], x) and found[name].dtype == x.dtype for name, x in some_tensors().items())


def test_the_digest_is_the_one_that_was_returned(tmp_path):
    file = tmp_path / "a.safetensors"
    assert files.save_tensors(file, some_tensors(), {}) == files.metadata(file)["sha256"]


def test_every_damaged_byte_of_a_tensor_file_is_noticed(tmp_path):
    file = tmp_path / "a.safetensors"
    files.save_tensors(file, some_tensors(), {"key": "k"})
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedFile):
            files.load_tensors(file)


def test_every_truncation_of_a_tensor_file_is_noticed(tmp_path):
    file = tmp_path / "a.safetensors"
    files.save_tensors(file, some_tensors(), {"key": "k"})
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(DamagedFile):
            files.load_tensors(file)


def test_another_runs_tensors_are_refused(tmp_path):
    files.save_tensors(tmp_path / "a.safetensors", some_tensors(), {"key": "mine"})
    with pytest.raises(DamagedFile, match="belongs to run mine"):
        files.load_tensors(tmp_path / "a.safetensors", key="yours")


def test_tensors_without_a_digest_are_read_and_marked(tmp_path):
    from safetensors.torch import save_file

    save_file({"w": torch.ones(3)}, tmp_path / "a.safetensors", metadata={"round": "1"})
    found, about = files.load_tensors(tmp_path / "a.safetensors", key="any")
    assert torch.equal(found["w"], torch.ones(3))
    assert about == {"round": "1", "unchecked": "yes"}


def test_a_folder_takes_anothers_place(tmp_path):
    target = files.new_folder(tmp_path / "deep" / "page")
    (target / "old.txt").write_text("old")
    fresh = files.beside(target)
    (fresh / "sub").mkdir(parents=True)
    (fresh / "sub" / "new.txt").write_text("new")
    (fresh / "sub" / "link").symlink_to("nowhere")
    files.swap(fresh, target)
    assert names(target) == ["sub"]
    assert names(target.parent) == ["page"]


def test_a_swap_cut_short_is_put_right(tmp_path, monkeypatch):
    """Killed between taking the old folder away and putting the new one in place: the old one comes back."""
    target = files.new_folder(tmp_path / "page")
    (target / "old.txt").write_text("old")
    fresh = files.new_folder(files.beside(target))
    rename = os.rename

    def killed(a, b):
        if a == fresh:
            raise SystemExit
        rename(a, b)

    monkeypatch.setattr(os, "rename", killed)
    with pytest.raises(SystemExit):
        files.swap(fresh, target)
    monkeypatch.undo()
    assert not target.exists()
    files.sweep(tmp_path)
    assert names(tmp_path) == ["page"]
    assert names(target) == ["old.txt"]


def test_only_leftovers_are_swept(tmp_path):
    for name in ("a.txt", ".hidden", ".a.txt.new", ".a.txt.12-0123456.new", "a.txt.12-01234567.new"):
        (tmp_path / name).write_text("x")
    kept = names(tmp_path)
    files.beside(tmp_path / "a.txt").write_text("x")
    (files.new_folder(files.beside(tmp_path / "b")) / "inside").write_text("x")
    assert len(files.sweep(tmp_path)) == 2
    assert names(tmp_path) == kept


def test_a_list_names_what_was_added(tmp_path):
    (tmp_path / "mine.csv").write_text("1")
    (tmp_path / "theirs.csv").write_text("2")
    contents = Contents.of(tmp_path)
    assert not contents.listed
    contents.add("mine.csv")
    contents.save()
    found = Contents.of(tmp_path)
    found.check()
    assert found.listed and list(found.files) == ["mine.csv"]


@pytest.mark.parametrize("spoil", [lambda p: p.unlink(), lambda p: p.write_text("2"), lambda p: p.write_text("")])
def test_a_list_notices_what_is_not_as_written(tmp_path, spoil):
    (tmp_path / "a.csv").write_text("1")
    contents = Contents(tmp_path)
    contents.add("a.csv")
    contents.save()
    spoil(tmp_path / "a.csv")
    with pytest.raises(DamagedFile, match=r"a\.csv"):
        Contents.of(tmp_path).check()


@pytest.mark.parametrize("name", ["../a.csv", "/etc/passwd", "..", ""])
def test_a_list_never_leads_out_of_its_folder(tmp_path, name):
    files.write_json(tmp_path / "contents.json", {"files": {name: "0"}})
    with pytest.raises(DamagedFile, match="not a list of files"):
        Contents.of(tmp_path)


def test_a_damaged_file_survives_pickling(tmp_path):
    error = pickle.loads(pickle.dumps(DamagedFile(tmp_path / "a", "is missing")))
    assert str(error) == f"{tmp_path / 'a'}: is missing"
    assert error.what == "is missing"


def test_json_on_disk_is_plain(tmp_path):
    files.write_json(tmp_path / "a.json", {"a": 1})
    assert json.loads((tmp_path / "a.json").read_text()).keys() == {"a", "has_digest", "sha256"}
