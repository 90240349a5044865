"""Grids on clusters without a cluster: parts of a grid, orders and their sizes, who is admitted, what is refused."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_grid import SETTING

from fednb.base.processes.shared import packed
from fednb.cli.commands import main, parser
from fednb.core.rounds import Method, Part, part
from fednb.data.identity import identity
from fednb.engines.setting import Setting
from fednb.runs.callbacks import NotInstalled
from fednb.runs.cluster import failures, status
from fednb.runs.cluster.admission import Admission
from fednb.runs.cluster.connection import Connection, NoCluster
from fednb.runs.cluster.orders import MOST_TOGETHER, Order, bundles, bytes_of, task_of
from fednb.runs.cluster.shards import BadShard, Shard
from fednb.runs.cluster.worker import MEMORY, _report, make
from fednb.runs.experiment import run_of
from fednb.runs.grid import Grid
from fednb.runs.merging import import_runs
from fednb.runs.store import Entry
from fednb.runs.together import Wanted
from fednb.study.jobs import follow

EXAMPLES = Path(__file__).parent.parent / "examples"


def wanted_of(methods=("FedAvg", "SCAFFOLD"), seeds=(0, 1, 2), **changes) -> dict[str, Wanted]:
    grid = Grid.of("small", "smoke", dict(setting=SETTING | changes, methods=list(methods), seeds=list(seeds)))
    return {run.key: Wanted(c.setting, c.method, c.seed) for c, run in zip(grid.cells, grid.runs(), strict=True)}


@pytest.mark.parametrize("count", [1, 2, 4, 5, 9])
def test_shards_are_disjoint_even_and_whole(count):
    wanted = wanted_of()
    parts = [Shard(n, count).keys(wanted) for n in range(1, count + 1)]
    assert sorted(key for part in parts for key in part) == sorted(wanted)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_shards_keep_runs_together_that_share_lanes():
    """Six runs of two kinds in turns: each half has one kind."""
    both = wanted_of()
    turns = dict(sorted(both.items(), key=lambda item: item[1].seed))
    assert len({each.method.name for each in list(turns.values())[:3]}) == 2
    for n in (1, 2):
        assert len({both[key].method.name for key in Shard(n, 2).keys(turns)}) == 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "3", "a/b", "1/0", "-1/4", "1/4/2", "²/4"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(BadShard, match="such as 3/16"):
        Shard.of(text)


def test_bundles_on_a_gpu_are_alike_and_the_same_for_everybody():
    wanted = wanted_of(seeds=range(20))
    found = bundles(list(wanted.values()), list(wanted), gpu=True)
    assert sorted(key for keys in found for key in keys) == sorted(wanted)
    assert all(len({wanted[key].method.name for key in keys}) == 1 and len(keys) <= MOST_TOGETHER for keys in found)
    assert task_of(found[0]) == task_of(found[0][::-1]) != task_of(found[1])
    assert bundles(list(wanted.values()), list(wanted), gpu=False) == [[key] for key in wanted]


def test_sending_a_part_of_ones_own_leaves_its_key():
    """Python notes the slots of a class when an object of it is copied; that is no part of the run."""

    @part
    class Own(Part):
        """Nothing of its own."""

        def server(self, k, s):
            """w"""

    setting, method = Setting(**SETTING), Method("own", Own())
    before = run_of(setting, method, 0).key
    packed(Wanted(setting, method, 0))
    copy(method.parts[0])
    assert "__slotnames__" in vars(Own) and run_of(setting, method, 0).key == before


def test_what_clients_keep_counts_as_memory():
    few, many = (next(iter(wanted_of(["SCAFFOLD"], [0], clients=n).values())) for n in (4, 104))
    none = replace(many, method=next(iter(wanted_of(["FedAvg"], [0]).values())).method)
    numbers = (bytes_of(many) - bytes_of(few)) / 100 / 4  # a control variate for each client, of 4 bytes a number
    assert numbers == int(numbers) > 500 and bytes_of(none) < bytes_of(few)


class Worker:
    """What `make` needs of a worker: whether its task is wanted is told by the state of the task."""

    def __init__(self, state):
        self.name = self.address = "tcp://a"
        self.status = SimpleNamespace(name="running")
        self.state = SimpleNamespace(tasks={"task": SimpleNamespace(state=state)})

    def get_current_task(self):
        return "task"


def answers(order, monkeypatch, state="executing"):
    fake = SimpleNamespace(get_worker=lambda: Worker(state))
    monkeypatch.setitem(sys.modules, "distributed", fake)
    return make(packed(order))


def test_an_order_of_several_runs_answers_for_each(tmp_path, monkeypatch):
    """Two are made and come back as archives that another store takes; one would be another run here."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "worker"))
    wanted = wanted_of(["FedAvg"], [0, 1, 2])
    *good, bad = wanted
    order = Order(tuple(wanted.values()), (*good, "0" * 16), "cpu", "loop", "no-such-token")
    found = {each.key: each for each in answers(order, monkeypatch)}
    assert "put it into a module" in found["0" * 16].why and bad not in found
    digests = [Entry.of(key).weights_sha256() for key in good]
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "client"))
    for key in good:
        assert found[key].status == "finished"
        (tmp_path / "run.zip").write_bytes(found[key].archive)
        assert import_runs(tmp_path / "run.zip").new == [key]
    assert [Entry.of(key).weights_sha256() for key in good] == digests


def test_runs_that_nobody_wants_stop_after_their_present_round(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    wanted = wanted_of(["FedAvg"], [0], rounds=5)
    order = Order(tuple(wanted.values()), tuple(wanted), "cpu", "loop", "no-such-token")
    [answer] = answers(order, monkeypatch, state="cancelled")
    assert answer.stopped and len(Entry.of(*wanted).history()) == 1
    with Entry.of(*wanted).lock():
        [answer] = answers(order, monkeypatch, state="cancelled")  # at work elsewhere: not waited for
    assert answer.stopped
    [answer] = answers(order, monkeypatch)
    assert answer.status == "finished" and len(Entry.of(*wanted).history()) == 5


class Cluster:
    """A connection to workers that answer at once."""

    def __init__(self, reports):
        self.reports, self.client, self.offered = reports, self, {}

    def workers(self):
        return {address: {"name": address, "nthreads": 2} for address in self.reports}

    def run(self, function, *given, workers, on_error):
        if function.__name__ == "admit":
            self.offered[workers[0]] = given[0]
            return {workers[0]: None}
        return {workers[0]: self.reports[workers[0]]}

    def run_on_scheduler(self, function):
        pass


def admitted(reports) -> tuple[Admission, list[str]]:
    said: list[str] = []
    found = Admission(Cluster(reports), "token", ["digits"], said.append)
    while not reports.keys() <= {*found.offers, *found.refused}:
        found._next = 0.0
        found.look_around()
    return found, said


def test_only_workers_with_our_version_and_samples_are_admitted():
    same = _report("token", ("digits",), {MEMORY: 1e9})
    assert same.samples == {"digits": identity("digits")["sha256"]} and not same.shared
    others = {
        "data": replace(same, samples={"digits": "0" * 32}),
        "version": replace(same, version="0.0.1"),
        "without": replace(same, samples={}, missing={"digits": "not here"}),
        "lost": OSError("gone"),
    }
    found, said = admitted({"good": same} | others)
    assert set(found.offers) == {"good"} and set(found.refused) == set(others)
    assert found.connection.offered["good"][found.resource] > 0 and found.slots(gpu=False) == 2
    assert found.slots(gpu=True) == 0
    by_name = {line.split()[1]: line for line in said}
    assert f"another 'digits' (fingerprint {'0' * 32})" in by_name["data"]
    assert "has fednb 0.0.1" in by_name["version"] and "has no 'digits': not here" in by_name["without"]


def test_failures_are_kept_until_the_run_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    key = "0123456789abcdef"
    failures.note(key, "no disk")
    assert failures.reason(key) == "no disk"
    failures.forget([key])
    assert failures.reason(key) == ""


def test_status_says_where_why_and_how_long(tmp_path, monkeypatch):
    """Two of ten rounds in 4 s on one worker, 8 and 10 rounds to do: 36 s."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    grid = Grid.of("small", "smoke", dict(setting=SETTING | {"rounds": 10}, methods=["FedAvg"], seeds=[0, 1, 2]))
    running, failed, _ = (run.key for run in grid.runs())
    failures.note(failed, "no disk")
    known = {"round": 2, "first": 0, "rounds": 10, "seconds": 4.0, "since": 0.0}

    class Told:
        def workers(self):
            return {
                "tcp://a": {"name": "a", "metrics": {"fednb": {running: known}}},
                "tcp://b": {"name": "b", "metrics": {}},
            }

    found = status.standing(grid.status(), Told())
    assert found[["status", "rounds", "where", "why"]].to_numpy().tolist() == [
        ["running", "2/10", "a", ""], ["failed", "0/10", "", "no disk"], ["missing", "0/10", "", ""],
    ]  # fmt: skip
    assert status.summary(found) == "0 done, 1 running, 1 failed, 1 missing; about 36 s left"


def test_without_dask_one_line_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(NotInstalled, match=r"pip install 'fednb\[cluster\]'"):
        Connection("tcp://127.0.0.1:1")
    assert main(["grid", "status", "fedfft", "table1", "--on", "tcp://127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_address_that_is_none_is_refused():
    with pytest.raises(NoCluster, match="name its scheduler"):
        Connection("somewhere")


def test_it_is_refused_also_where_no_run_is_missing():
    grid = Grid.of("small", "smoke", dict(setting=SETTING, methods=["FedAvg"], seeds=[0]))
    grid.run()
    with pytest.raises(NoCluster, match="name its scheduler"):
        grid.run(on="somewhere")
    with pytest.raises(NoCluster, match="name its scheduler"):
        list(follow([], [], "small", on="somewhere"))


@pytest.mark.parametrize(
    "words, why",
    [
        ("run fedfft table1 --on tcp://a:1 --jobs 2", "do not go together"),
        ("run fedfft table1 --on tcp://a:1 --shard 1/2", "do not go together"),
        ("run fedfft table1 --on tcp://a:1 --together 2", "in its own process"),
        ("run fedfft table1 --jobs 2 --together 2", "in its own process"),
        ("status fedfft table1 --together 2", "in its own process"),
        ("run fedfft table1 --shard 3/2", "must be such as 3/16"),
        ("status fedfft table1 --shard 1/2", "belongs to `fednb grid run`"),
        ("status fedfft table1 --watch", "--on ADDRESS"),
        ("run fedfft table1 --watch --on tcp://a:1", "--on ADDRESS"),
    ],
)
def test_mixtures_are_refused_in_one_line(words, why, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    assert main(["grid", *words.split()]) == 2
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1


OWN = """
methods = ["FedAvg", "FedProx"]
seeds = [0, 1, 2]
{tune}
[setting]
data = "digits"
samples = 100
clients = 2
rounds = 1
epochs = 1
batch = 50
"""


def test_all_shards_of_a_file_make_every_run_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    file = tmp_path / "mine.toml"
    file.write_text(OWN.format(tune=""))
    counted = []
    for n in range(1, 5):
        assert main(["grid", "run", str(file), "--shard", f"{n}/4"]) == 0
        counted.append(len(list((tmp_path / "store" / "runs").iterdir())))
    assert counted == [1, 3, 4, 6]
    assert "FedProx" in capsys.readouterr().out.split("mean")[-1]  # the last one shows the table


def test_a_shard_of_a_tuned_grid_tunes_first_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    file = tmp_path / "mine.toml"
    file.write_text(OWN.format(tune="tune = {lr = [0.05, 0.1]}"))
    assert main(["grid", "run", str(file), "--shard", "1/2"]) == 0
    assert "mine is tuned first: shard 1/2 has made its part of the tuning" in capsys.readouterr().out
    assert len(list((tmp_path / "store" / "runs").iterdir())) == 2
    assert main(["grid", "run", str(file), "--shard", "2/2"]) == 0
    assert "tuned first" not in capsys.readouterr().out
    assert main(["grid", "run", str(file), "--shard", "1/2"]) == 0
    assert "mean" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_examples_compile_and_run_grids_with_our_arguments(path):
    """Each makes a grid that there is and runs it on its cluster, by an argument that `run` has."""
    import inspect

    import fednb as fn

    tree = ast.parse(path.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    runs = [node for node in calls if node.func.attr == "run"]
    assert len(runs) == 1 and "on" in {word.arg for word in runs[0].keywords}
    known = inspect.signature(Grid.run).parameters
    assert {word.arg for word in runs[0].keywords} <= set(known)
    named = re.findall(r'papers\("(\w+)"\)\.grid\("(\w+)"', path.read_text())
    assert all(fn.papers(paper).grid(name, scale="smoke").cells for paper, name in named)
    settings = [node for node in calls if node.func.attr == "Setting"]
    assert all(fn.Setting(**{w.arg: ast.literal_eval(w.value) for w in node.keywords}) for node in settings)


def test_commands_of_examples_have_our_options():
    text = "\n".join(path.read_text() for path in EXAMPLES.iterdir() if path.suffix in (".sh", ".py"))
    commands = re.findall(r'^(?:.*?[: ])?fednb (grid (?:run|status) [^\n"]*(?:"[^"]*")?)', text, re.MULTILINE)
    assert len(commands) >= 2
    for words in commands:
        asked = parser().parse_args(shlex.split(words.replace('")', "").rstrip('"') if words.count('"') % 2 else words))
        assert asked.paper == "fedfft" and asked.names[:1] == ["table1"]
