"""Saving: a round more costs what a round costs, nobody writes over another's work, a failing disk tears nothing."""

import errno
import os
import shutil

import pytest
import torch
from interrupts import Stop, stop_after

from fednb.algorithms.catalogue import method
from fednb.base import files
from fednb.base.files import DamagedFile
from fednb.base.locks import NotAlone
from fednb.cli.commands import main
from fednb.core.record import Server, Table
from fednb.engines.setting import Setting
from fednb.runs import checkpoints, history_csv
from fednb.runs.checkpoints import Session
from fednb.runs.experiment import run, run_of
from fednb.runs.history_csv import Extent, Growing, rows_of, written
from fednb.runs.store import Entry, OtherWriter, StoreError

SMALL = Setting(
    clients=4, participation=0.5, rounds=4, epochs=1, batch=50, samples=300, partition="dirichlet(alpha=0.5)"
)
ONE = torch.ones(1)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    return tmp_path


def scaffold(**how):
    return run(SMALL, "SCAFFOLD", engine="loop", device="cpu", **{"progress": False} | how)


def row(t):
    return {"round": t, "accuracy": 50.123456789, "train_loss": 0.5, "drift": 0.25, "seconds": 0.001}


class Work:
    """A run of one weight, by hand."""

    def __init__(self, key="0" * 16, **changes):
        self.entry = Entry.of(key)
        self.s = Server(ONE, torch.zeros(0), {"c": torch.zeros(1)}, t=0, N=9, lr=1.0)
        self.table, self.history = Table({"c_k": torch.zeros(1)}), []

    def begin(self, held):
        self.session = Session(self.entry, held)
        self.history = self.session.load(self.s, self.table)
        self.session.describe({"key": self.entry.key, "status": "running"})
        return self

    def rounds(self, count, changed=(0,)):
        """Finish so many rounds and save the last."""
        for _ in range(count):
            self.history.append(row(self.s.t))
            self.s.t += 1
        self.table.scatter(list(changed), {"c_k": torch.full((len(changed), 1), float(self.s.t))})
        self.session.save(self.s, self.table, list(changed), self.history)


def everything_in(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# History


def test_a_history_is_what_was_appended(tmp_path):
    growing = Growing(tmp_path / "history.csv")
    for t in range(5):
        growing.append([row(t)])
    growing.append([row(5), row(6) | {"accuracy": None, "train_loss": float("inf")}])
    data = written(growing.path, growing.extent)
    assert data == growing.path.read_bytes() == history_csv.as_csv([row(t) for t in range(6)]) + b"6,,inf,0.25,0.001\n"
    assert rows_of(growing.path, data, 7)[4:] == [
        row(4),
        row(5),
        row(6) | {"accuracy": None, "train_loss": float("inf")},
    ]


def test_what_lies_behind_a_history_does_not_belong_to_it(tmp_path):
    growing = Growing(tmp_path / "history.csv")
    extent = growing.append([row(0)])
    with open(growing.path, "ab") as f:
        f.write(b"1,50.1")
    assert rows_of(growing.path, written(growing.path, extent), 1) == [row(0)]
    history_csv.cut(growing.path, extent.bytes)
    assert growing.path.read_bytes() == history_csv.as_csv([row(0)])


@pytest.mark.parametrize("damage, said", [
    (lambda data: data[:-1], "is cut short"),
    (lambda data: data[:-2] + b"9\n", "is not what was written"),
    (lambda data: None, "is missing"),
])  # fmt: skip
def test_a_history_with_other_bytes_is_damaged(tmp_path, damage, said):
    growing = Growing(tmp_path / "history.csv")
    extent = growing.append([row(0), row(1)])
    data = damage(growing.path.read_bytes())
    growing.path.unlink() if data is None else growing.path.write_bytes(data)
    with pytest.raises(DamagedFile, match=f"history.csv: {said}"):
        written(growing.path, extent)


@pytest.mark.parametrize("plain", [None, "{", "[]", '{"rows": 1}', '{"rows": -1, "bytes": 0, "sha256": ""}', "7"])
def test_an_extent_that_says_nothing_is_damage(tmp_path, plain):
    with pytest.raises(DamagedFile, match="state: does not say how long its history is"):
        Extent.of(tmp_path / "state", plain)


def test_a_row_that_was_half_written_is_written_over(tmp_path, monkeypatch):
    """The disk is full in the middle of a row; the next save of the same history is whole."""
    growing = Growing(tmp_path / "history.csv")
    growing.append([row(0)])

    def half(descriptor, data):
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(history_csv, "write_all", half)
        with pytest.raises(OSError):
            growing.append([row(1) | {"seconds": 0.123456789}])
    extent = growing.append([row(1)])
    assert growing.path.read_bytes() == history_csv.as_csv([row(0), row(1)]) == written(growing.path, extent)


def test_a_save_of_round_10000_writes_what_one_of_round_10_does(monkeypatch):
    """All bytes that a save writes are counted: only numbers that have more digits are longer."""
    count = []

    def counted(descriptor, data):
        count.append(len(data))
        os.write(descriptor, data)

    monkeypatch.setattr(files, "write_all", counted)
    monkeypatch.setattr(history_csv, "write_all", counted)
    work = Work()
    with work.entry.lock() as held:
        work.begin(held).rounds(9)
        sizes = []
        for rounds in (0, 9_989):
            if rounds:
                work.rounds(rounds)
            count.clear()
            work.rounds(1)
            sizes.append(sum(count))
    assert work.s.t == 10_000 and len(work.entry.history()) == 10_000
    assert sizes[0] < sizes[1] <= sizes[0] + 48


# Rounds that are loaded are those that were saved


def test_a_session_goes_on_where_the_last_one_stopped():
    work = Work()
    with work.entry.lock() as held:
        work.begin(held).rounds(3, changed=(0, 5))
        work.rounds(1, changed=(5,))
    again = Work()
    with again.entry.lock() as held:
        again.begin(held)
        assert again.s.t == 4 and again.history == [row(t) for t in range(4)]
        assert {i: r["c_k"].item() for i, r in again.table.clients.items()} == {0: 3.0, 5: 4.0}
        assert sorted(p.name for p in (again.entry.folder / "clients").iterdir()) == [
            "00000-000003.safetensors", "00005-000004.safetensors",
        ]  # fmt: skip
        again.rounds(1)
    assert again.entry.history() == [row(t) for t in range(5)]


def test_what_a_kill_left_behind_is_cut_off_and_swept():
    """A row of the history, a client's row and temporary files of a save whose state was never written."""
    whole = scaffold()
    shutil.rmtree(whole.entry.folder)
    with pytest.raises(Stop):
        scaffold(progress=stop_after(2))
    folder = whole.entry.folder
    with open(folder / "history.csv", "ab") as f:
        f.write(b"2,11.1,0.5")
    left = [folder / "clients" / "00000-000003.safetensors", folder / ".run.json.7-0123abcd.new",
            folder / "clients" / ".00000-000003.safetensors.7-0123abcd.new"]  # fmt: skip
    for path in left:
        path.write_bytes(b"half")
    again = scaffold()
    assert again.weights_sha256 == whole.weights_sha256 and [r["round"] for r in again.rows] == [0, 1, 2, 3]
    assert not list(folder.rglob(".*")) and all(path.stat().st_size > 4 for path in folder.glob("clients/*"))


def test_going_on_hashes_the_state_once(monkeypatch):
    """The file's digest covers the model; its own is for whoever asks for the weights of an ended run."""
    work = Work()
    with work.entry.lock() as held:
        work.begin(held).rounds(1)
        monkeypatch.setattr("fednb.runs.store.weights_digest", None)
        monkeypatch.setattr("fednb.runs.checkpoints.weights_digest", None)
        assert len(Work().begin(held).history) == 1


def test_a_state_that_is_missing_is_missed():
    """Before the first save there is none; afterwards run.json says that there must be one."""
    work = Work()
    with work.entry.lock() as held:
        work.begin(held)
        assert Work().begin(held).history == []
        work = Work().begin(held)
        work.rounds(1)
    work.entry.state.unlink()
    with work.entry.lock() as held, pytest.raises(StoreError, match=r"state.safetensors: is missing"):
        Work().begin(held)


def test_an_interrupt_behind_the_last_step_of_a_save_is_no_other_writer(monkeypatch):
    """The state is there, and the session does not know it yet; saving once more finds that nothing is to be done."""
    work = Work()
    with work.entry.lock() as held:
        work.begin(held).rounds(1)
        seen = checkpoints._identity

        def interrupted(path):
            if int(files.metadata(path)["round"]) == 2:
                raise KeyboardInterrupt
            return seen(path)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(checkpoints, "_identity", interrupted)
            work.rounds(1)
        before = work.entry.state.read_bytes()
        work.session.save(work.s, work.table, [0], work.history)
        assert work.entry.state.read_bytes() == before
        work.rounds(1)
        assert len(Work().begin(held).history) == 3


# Nobody else


def test_a_session_stops_where_another_one_has_begun(monkeypatch):
    """Without locks, two processes are at work on one run: the one that came first stops and changes nothing."""
    monkeypatch.setenv("FEDNB_LOCKS", "off")
    first, second = Work(), Work()
    with first.entry.lock() as held:
        first.begin(held).rounds(2)
        second.begin(held)
        before = everything_in(first.entry.folder)
        with pytest.raises(OtherWriter, match=r"was written by another process meanwhile .*writer names process"):
            first.rounds(1)
        with pytest.raises(OtherWriter):
            first.session.end({"status": "finished"})
        assert everything_in(first.entry.folder) == before
        second.rounds(1)
    assert len(second.entry.history()) == 3 and second.entry.about()["status"] == "running"


def test_a_session_stops_where_another_state_lies(tmp_path):
    """Put there by hand or by a process that knows no marks: it is not overwritten."""
    work = Work()
    with work.entry.lock() as held:
        work.begin(held).rounds(1)
        shutil.copy(work.entry.state, tmp_path / "old")
        work.rounds(1)
        state, about = files.load_tensors(tmp_path / "old")
        files.save_tensors(work.entry.state, state, about | {"writer": "somebody"})
        before = everything_in(work.entry.folder)
        with pytest.raises(OtherWriter, match="is not the one that this process saved"):
            work.rounds(1)
        assert everything_in(work.entry.folder) == before


def test_a_session_stops_where_its_lock_is_gone():
    work = Work()
    with work.entry.lock() as held:
        work.begin(held).rounds(1)
        (work.entry.folder / "lock").unlink()
        before = everything_in(work.entry.folder)
        with pytest.raises(NotAlone, match="was removed or replaced"):
            work.rounds(1)
        assert everything_in(work.entry.folder) == before


def test_two_runs_without_locks_end_with_one_right_result(monkeypatch):
    """The second begins in the middle of the first: the first stops, the second ends with the weights of one alone."""
    whole = scaffold()
    shutil.rmtree(whole.entry.folder)
    monkeypatch.setenv("FEDNB_LOCKS", "off")
    seen = []

    def meanwhile(r):
        if r["round"] == 1 and not seen:
            seen.append(scaffold())

    with pytest.raises(OtherWriter):
        scaffold(progress=meanwhile)
    assert seen[0].weights_sha256 == whole.weights_sha256 and seen[0].status == "finished"
    assert torch.equal(run_of(SMALL, method("SCAFFOLD"), 0).w, whole.w)


# Disks


@pytest.mark.parametrize("module, number", [
    (files, errno.ENOSPC), (files, errno.EROFS), (files, errno.EIO), (files, errno.EACCES),
    (history_csv, errno.ENOSPC), (history_csv, errno.EIO),
])  # fmt: skip
def test_a_failing_disk_is_one_line_and_the_run_goes_on_later(module, number, monkeypatch):
    whole = scaffold()
    shutil.rmtree(whole.entry.folder)
    calls = []
    real = files.write_all

    def fail(descriptor, data):
        calls.append(1)
        if len(calls) > (12 if module is files else 1):
            os.write(descriptor, data[: len(data) // 2])
            raise OSError(number, os.strerror(number))
        real(descriptor, data)

    with monkeypatch.context() as patch, pytest.raises(StoreError) as error:
        patch.setattr(module, "write_all", fail)
        scaffold()
    said = str(error.value)
    assert os.strerror(number) in said and str(whole.entry.folder) in said and "\n" not in said
    assert said.endswith("the same command goes on after the last saved round")
    assert len(whole.entry.history()) >= 1, "nothing was saved before: this proves nothing"
    assert not list(whole.entry.folder.rglob(".*"))
    again = scaffold()
    assert again.weights_sha256 == whole.weights_sha256 and [r["round"] for r in again.rows] == [0, 1, 2, 3]


def test_a_folder_that_is_removed_in_mid_run_is_one_line():
    folder = run_of(SMALL, method("SCAFFOLD"), 0).entry.folder

    def remove(r):
        if r["round"] == 1:
            shutil.rmtree(folder)

    with pytest.raises(StoreError, match="the run's folder is gone"):
        scaffold(progress=remove)
    assert not folder.exists()


def test_the_command_says_it_in_one_line_and_ends_with_2(monkeypatch, capsys):
    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_all", full)
    argv = ["run", "fedavg", "--clients", "3", "--samples", "100", "--rounds", "1", "--epochs", "1", "--engine", "loop"]
    assert main([*argv, "--device", "cpu", "--quiet", "--partition", "iid"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "No space left on device" in said and said.startswith("fednb: /")
