"""`fednb store ls | show | size | rm` and `fn.list_runs`: what the store has, damaged or not, and what can go."""

import io
import shutil
from contextlib import contextmanager

import pandas as pd
import pytest
from interrupts import Stop, stop_after

import fednb as fn
from fednb.algorithms.catalogue import method
from fednb.cli.choosing import readable, size_of
from fednb.cli.commands import main
from fednb.engines.setting import Setting
from fednb.runs import listing
from fednb.runs.experiment import run, run_of
from fednb.runs.listing import bytes_of, list_runs, size_by_kind
from fednb.runs.probes import Probe
from fednb.runs.store import entries

SMALL = Setting(clients=3, participation=1, rounds=2, epochs=1, batch=50, samples=200, report="last")
PROBE = Probe(("global",), rounds=(0,))


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """SCAFFOLD with seeds 0 and 1, finished, and FedAvg after one of two rounds."""
    folder = tmp_path_factory.mktemp("original")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(folder))
        for name, seed, watch in (("SCAFFOLD", 0, False), ("SCAFFOLD", 1, False), ("FedAvg", 0, stop_after(1))):
            try:
                run(SMALL, name, seed, engine="loop", device="cpu", probe=PROBE, progress=watch)
            except Stop:
                continue
    return folder


@pytest.fixture(autouse=True)
def store(original, tmp_path, monkeypatch):
    shutil.copytree(original, tmp_path / "store")
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


def wanted(name="SCAFFOLD", seed=0):
    return run_of(SMALL, method(name), seed, PROBE)


def keys(**filters):
    return set(list_runs(**filters).index)


SCAFFOLD, FEDAVG = [("SCAFFOLD", 0), ("SCAFFOLD", 1)], ("FedAvg", 0)


def of(*which):
    return {wanted(*each).key for each in which}


def test_a_row_says_what_the_run_is_and_how_it_went():
    row = fn.list_runs().loc[wanted().key].to_dict()
    days, size = row.pop("days"), row.pop("bytes")
    assert row == {
        "method": "SCAFFOLD", "data": "digits", "model": "cnn-small", "partition": str(SMALL.partition), "seed": 0,
        "rounds": 2, "planned": 2, "status": "finished", "accuracy": wanted().accuracy_last, "weights": "yes",
    }  # fmt: skip
    assert 0 <= days < 1 and size == sum(p.stat().st_size for p in wanted().entry.folder.rglob("*") if p.is_file())
    assert list_runs().loc[wanted("FedAvg").key, ["status", "rounds", "planned"]].tolist() == ["running", 1, 2]


def test_an_empty_store_is_an_empty_table(store, capsys):
    shutil.rmtree(store)
    assert list(list_runs().columns) == list(listing.COLUMNS) and len(list_runs()) == 0
    assert main(["store", "ls"]) == 0 and capsys.readouterr().out == f"{store}: 0 runs, 0 B\n"
    assert main(["store", "size"]) == 0


def test_filters_choose_runs():
    assert keys() == of(*SCAFFOLD, FEDAVG)
    assert keys(method="scaffold") == keys(method="SCAF*") == keys(status="finished") == of(*SCAFFOLD)
    assert keys(seed=0) == of(("SCAFFOLD", 0), FEDAVG) and keys(seed=[0, 1]) == keys(data="dig*") == keys()
    assert keys(method=["FedAvg", "FedSAM"]) == keys(status=["running", "diverged"]) == of(FEDAVG)
    assert keys(method="FedAvg", seed=1) == keys(data="cifar10") == set()


def test_an_age_is_counted_from_the_end():
    entry = wanted().entry
    entry.describe(entry.about() | {"ended": "2020-02-01T00:00:00Z"})
    assert keys(older_than=30) == of(("SCAFFOLD", 0)) and keys(older_than=0) == keys()
    assert main(["store", "rm", "--older-than", "30d", "--yes"]) == 0 and wanted().key not in keys()
    assert len(keys()) == 2


def test_a_status_that_no_run_can_have_is_refused():
    with pytest.raises(ValueError, match="must be one of finished, diverged, running, damaged"):
        list_runs(status="done")


@pytest.mark.parametrize("file, known", [("run.json", False), ("history.csv", True)])
@pytest.mark.parametrize("how", ["nonsense", "missing", "[]", "{}"])
def test_a_damaged_run_is_listed_as_damaged(capsys, file, known, how):
    path = wanted().entry.folder / file
    path.unlink() if how == "missing" else path.write_text(how)
    row = list_runs().loc[wanted().key]
    assert row["status"] == "damaged" and row["bytes"] > 0 and pd.isna(row["accuracy"])
    assert row["method"] == "SCAFFOLD" if known else pd.isna(row["method"])
    assert keys(status="damaged") == of(("SCAFFOLD", 0)) and len(keys()) == 3
    assert main(["store", "ls"]) == 0 and " damaged " in capsys.readouterr().out


def test_ls_shows_the_table_for_people_and_for_programs(store, capsys):
    assert main(["store", "ls", "--method", "scaffold", "--seed", "1"]) == 0
    head, line, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["key", "method", "data", "partition", "seed", "rounds", "status", "accuracy", "weights",
                            "size", "age"]  # fmt: skip
    assert line.split()[:2] == [wanted(seed=1).key, "SCAFFOLD"] and " 2/2 finished " in line
    assert total == f"{store}: 1 run, {size_of(list_runs(seed=1)['bytes'].sum())}"
    assert main(["store", "ls", "--csv", wanted().key[:8]]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out), index_col="key")
    assert table.to_dict("records")[0]["accuracy"] == wanted().accuracy_last and len(table) == 1


def test_show_is_that_of_the_store(capsys):
    assert main(["show", wanted().key]) == 0
    once = capsys.readouterr().out
    assert main(["store", "show", wanted().key[:10]]) == 0 and capsys.readouterr().out == once
    assert "2 finished rounds" in once


def test_size_is_counted_by_kind(store, capsys):
    for name in ("set-aside/x-1/state.safetensors", "notebooks/a/smoke/executed.ipynb", "compiled/step", "bench/x"):
        (store / name).parent.mkdir(parents=True)
        (store / name).write_bytes(b"1234567")
    (store / "link").symlink_to("/")
    found = size_by_kind()
    state = sum(e.state.stat().st_size for e in entries())
    assert found.loc["weights"].tolist() == [3, state] and found.loc["clients' rows", "files"] == 6
    assert found.loc["probes", "files"] == 3
    assert [found.loc[kind, "bytes"] for kind in ("set aside", "notebooks' pages", "compiled steps")] == [7, 7, 7]
    assert found["bytes"].sum() == bytes_of(store)
    assert main(["store", "size"]) == 0 and "clients' rows" in capsys.readouterr().out


def test_rm_removes_what_is_named_and_says_what_was_freed(store, capsys):
    size = bytes_of(wanted().entry.folder)
    assert main(["store", "rm", wanted().key, "--yes"]) == 0
    assert capsys.readouterr().out.endswith(f"1 run removed, {size_of(size)} freed\n")
    assert keys() == of(("SCAFFOLD", 1), FEDAVG) and bytes_of(store / "transit") == 0
    assert main(["store", "rm", "--status", "finished", "--yes"]) == 0 and keys() == of(FEDAVG)


def test_rm_of_nothing_in_particular_is_refused(capsys):
    assert main(["store", "rm", "--yes"]) == 2 and "rm: which runs?" in capsys.readouterr().err
    assert main(["store", "rm", "--seed", "7"]) == 0 and "0 runs removed" in capsys.readouterr().out
    assert len(keys()) == 3


@contextmanager
def answering(monkeypatch, answer):
    """Somebody at a terminal who is asked and answers."""
    asked = []

    def ask(question):
        asked.append(question)
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr("builtins.input", ask)
    yield
    assert len(asked) == 1 and asked[0].startswith("remove 2 runs (")


@pytest.mark.parametrize("answer, left", [("y", 1), ("YES", 1), ("", 3), ("n", 3), (None, 3)])
def test_rm_asks_on_a_terminal(monkeypatch, answer, left):
    with answering(monkeypatch, answer):
        assert main(["store", "rm", "--method", "scaffold"]) == (0 if left == 1 else 1)
    assert len(keys()) == left


def test_rm_needs_a_yes_where_nobody_can_be_asked(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["store", "rm", "--method", "scaffold"]) == 2
    assert "2 runs (" in (said := capsys.readouterr().err) and "say --yes" in said and len(keys()) == 3


def test_a_run_at_work_stays(capsys):
    with wanted().entry.lock():
        assert main(["store", "rm", "--method", "scaffold", "--yes"]) == 1
    seen = capsys.readouterr()
    assert f"run {wanted().key} is at work in another process; it stays" in seen.err and "1 run removed" in seen.out
    assert keys() == of(("SCAFFOLD", 0), FEDAVG) and wanted().w.numel()


def test_an_interrupted_rm_leaves_no_half_of_a_run(monkeypatch, store):
    def stopped(*paths, **how):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(listing.shutil, "rmtree", stopped)
        assert main(["store", "rm", wanted().key, "--yes"]) == 130
    assert keys() == of(("SCAFFOLD", 1), FEDAVG) and bytes_of(store / "transit") > 0
    assert main(["store", "rm", wanted(seed=1).key, "--yes"]) == 0 and bytes_of(store / "transit") == 0


def test_rm_clears_what_was_set_aside(store, capsys):
    size = bytes_of(wanted().entry.folder)
    wanted().entry.set_aside()
    assert main(["store", "rm", "--set-aside", "--yes"]) == 0
    assert f"0 runs removed, {size_of(size)} freed" in capsys.readouterr().out
    assert not list((store / "set-aside").iterdir()) and len(keys()) == 2


def test_what_is_not_known_is_a_dash():
    wanted().entry.folder.joinpath("run.json").write_text("?")
    (line,) = (line for line in readable(list_runs()).splitlines() if "damaged" in line)
    assert line.split()[1:6] == ["-", "-", "-", "-", "-/-"]


def test_a_run_is_one_line_of_at_most_100_letters():
    lines = readable(list_runs().assign(partition="dirichlet(alpha=0.6, minimum=10)", data="a data set of somebody's"))
    assert max(map(len, lines.splitlines())) <= 100 and "…" in lines
