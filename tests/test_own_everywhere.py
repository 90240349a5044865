"""Own data, model, partition and method together: by import path, on the command line, in scripts and notebooks."""

import json
import os
import subprocess
import sys
import tomllib

import nbformat
import pytest

from fednb.algorithms.catalogue import UnknownMethod
from fednb.base.imports import BadImport, imported
from fednb.cli.commands import main
from fednb.data.sources import BadData, find
from fednb.engines.setting import Setting
from fednb.models import BadModel
from fednb.runs.grid import Grid
from fednb.runs.own_grid import method_of

pytestmark = pytest.mark.usefixtures("own_names")
THINGS = """
import numpy as np
import torch
from torch import nn
import fednb as fn

def flowers():
    rng = np.random.default_rng(0)
    y = np.arange(80) % 4
    x = rng.integers(0, 100, (80, 6, 6)) + 30 * y[:, None, None]
    return {"train": (x.astype(np.uint8), y), "test": 0.25, "augment": "flip"}

class Net(nn.Module):
    def __init__(self, classes, input):
        super().__init__()
        self.body, self.head = nn.Linear(input[1] * input[2], 7), nn.Linear(7, classes)

    def forward(self, x):
        return self.head(scaled(torch.relu(self.body(x.flatten(1)))))

def scaled(x):
    return 1.5 * x

def doubled(logits, labels):
    return 2 * nn.functional.cross_entropy(logits, labels, reduction="none")

def top2(logits, labels):
    return (logits.topk(2).indices == labels[:, None]).any(1).double().mean()

def by_turns(labels, clients, seed):
    return (np.arange(len(labels)) + seed) % clients

@fn.part
class Pull(fn.Part):
    mu: float = 0.1

    def correct(self, k, s, v):
        "v ← v + μ (w − w0)"
        return v + self.mu * (k.w - k.w0)

not_there = None
few, broken = lambda: 1 / 0, {"train": 3, "colour": "red"}
"""
GRID = """
methods = ["fedavg", "fedsam"]
seeds = [0, 1]
[setting]
data = "my_things:flowers"
model = "my_things:Net"
partition = "my_things:by_turns"
loss = "my_things:doubled"
metrics = ["macro_f1", "my_things:top2"]
clients = 4
rounds = 2
"""
SCRIPT = (
    THINGS
    + """
fn.add_data("flowers", **flowers())
fn.add_model("net", Net)
fn.add_loss("doubled", doubled)
fn.add_metric("worst2", top2, per_client="min")
setting = fn.Setting(data="flowers", model="net", partition=by_turns, clients=4, participation=1.0, rounds=2,
                     loss="doubled", metrics=["worst2"])
for engine in ENGINES:
    done = fn.run(setting, fn.Method("pull", Pull()), engine=engine, workers=2, again=True, progress=False)
    print(done.key, done.weights_sha256, engine)
"""
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a user's module, which is the current one."""
    (tmp_path / "my_things.py").write_text(THINGS)
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("my_things", None)


def output(*command, **more):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env={**os.environ, **more})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_grid_of_a_toml_file_by_import_path(place):
    grid = Grid.of("mine", "smoke", tomllib.loads(GRID))
    table = grid.run(engine="loop").table()
    assert len(table) == 4 and set(table.dataset) == {"my_things:flowers"} and set(table.status) == {"finished"}
    assert str(place) not in sys.path


def test_a_file_s_grid_on_processes_by_import_path(place, capsys):
    """What tunes is made first, then the rest, which is then there for a command without processes."""
    own = GRID.replace('"fedsam"]', '{ name = "my_things:Pull", tune = { mu = [0.1, 0.2] } }]').replace("[0, 1]", "[0]")
    (place / "mine.toml").write_text(own)
    assert main(["grid", "run", "mine.toml", "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert {f"mine tuning {i}: finished" for i in (0, 1)} | {"mine 0: finished"} <= set(said.splitlines())
    assert main(["grid", "run", "mine.toml"]) == 0
    assert said.endswith(capsys.readouterr().out)


def test_workers_find_a_package_without_init_in_the_current_folder(place):
    """A part travels by its name, which the worker imports; such a package is a folder and has no file of its own."""
    (place / "my_package").mkdir()
    (place / "my_package" / "ideas.py").write_text((place / "my_things.py").read_text())
    given = ["--clients", "4", "--rounds", "1", "--samples", "100", "--quiet", "--engine", "pool", "--workers", "2"]
    assert "finished" in output("-P", "-m", "fednb", "run", "my_package.ideas:Pull", *given)


def test_names_of_another_process_are_refused_with_the_way_out(place, capsys):
    for name, said in (("data", "my_package.sets:flowers"), ("model", "my_package.nets:Net")):
        (place / "mine.toml").write_text(f'methods = ["fedavg"]\nsetting = {{ {name} = "elsewhere" }}\n')
        assert main(["grid", "run", "mine.toml", "--jobs", "2"]) == 2
        assert f"import path, such as {said}" in (err := capsys.readouterr().err) and err.count("\n") == 1


def test_a_part_by_import_path_in_a_sum(place):
    assert method_of("fedsam + my_things:Pull").parameters() == {"rho": 0.1, "mu": 0.1}
    for wrong, said in (("few", "ZeroDivision"), ("by_turns", "arguments: TypeErr"), ("broken", "expected a filter")):
        with pytest.raises(ValueError, match=said):
            method_of(f"fedsam + my_things:{wrong}")
    with pytest.raises(UnknownMethod, match="must make a method without arguments: ZeroDivisionError"):
        method_of("my_things:few")


def test_the_command_line_twice_and_on_other_engines(place):
    """Two processes have one key, and the same bits on the pool; a store of their own each."""
    given = ["--data", "my_things:flowers", "--model", "my_things:Net", "--partition", "my_things:by_turns",
             "--clients", "4", "--rounds", "2", "--json", "--quiet", "--workers", "2"]  # fmt: skip
    seen = [json.loads(output("-P", "-m", "fednb", "run", "fedsam", *given, "--engine", engine, FEDNB_STORE=engine))
            for engine in ("loop", "pool")]  # fmt: skip
    assert len({each["key"] for each in seen}) == len({each["weights_sha256"] for each in seen}) == 1
    assert [each["engine"] for each in seen] == ["loop", "pool"]


def test_a_script_and_a_notebook_send_their_code_to_workers(place):
    """Classes and functions of `__main__`, which no worker can import.

    A notebook's key is its own: Python compiles a cell line by line, and what it makes of `np.sort` is not the same.
    """
    (place / "mine.py").write_text(SCRIPT.replace("ENGINES", "['loop', 'pool']"))
    (one, two) = (line.split() for line in output("mine.py").splitlines())
    assert one[:2] == two[:2] and [one[2], two[2]] == ["loop", "pool"]
    cells = [nbformat.v4.new_code_cell(SCRIPT.replace("ENGINES", "['pool']"))]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), "mine.ipynb")
    output("-m", "papermill", "mine.ipynb", "done.ipynb", "-k", "python3", FEDNB_STORE="other")
    (shown,) = nbformat.read("done.ipynb", 4).cells[-1].outputs
    assert shown.text.split()[1:] == [one[1], "pool"]


def test_wrong_import_paths(place):
    for given, said, kind in [
        (dict(model="my_things:Nets"), "my_things has no 'Nets'; closest: .*Net", BadImport),
        (dict(model="nowhere.nets:Net"), "cannot be imported: ModuleNotFoundError: .*'nowhere'", BadImport),
        (dict(model="my_things:not_there"), "'my_things:not_there' is None, expected a torch.nn.Module", BadModel),
        (dict(data="my_things:few"), "'my_things:few': ZeroDivisionError: division by zero", BadData),
        (dict(data="my_things:broken"), "unexpected keyword argument 'colour'; see `help", BadData),
        (dict(data="my_things:Nothing"), "my_things has no 'Nothing'", BadImport),
        (dict(partition="my_things:nobody"), "my_things has no 'nobody'", BadImport),
    ]:  # fmt: skip
        with pytest.raises(kind, match=said) as error:
            Setting(**given)
        assert isinstance(error.value, ValueError) and "\n" not in str(error.value)
    (place / "bad.py").write_text("1 / 0")
    with pytest.raises(BadImport, match="'bad:x' cannot be imported: ZeroDivisionError"):
        imported("bad:x")


def test_data_by_import_path_are_read_once(place):
    assert find("my_things:flowers") is find("my_things:flowers")
    assert Setting(data="my_things:flowers").data == "my_things:flowers"


def test_stored_runs_with_things_that_are_gone_are_left_out(place, monkeypatch):
    """An explorer in another process lists what it can."""
    from fednb.data import sources
    from fednb.runs.experiment import run
    from fednb.show.explore.stored import on_disk

    setting = Setting(data="my_things:flowers", model="my_things:Net", clients=2, rounds=1, partition="iid")
    run(setting, "fedavg", engine="loop", progress=False)
    assert [found.setting for found, _ in on_disk("run.json")] == [setting]
    (place / "my_things.py").unlink()
    monkeypatch.delitem(sys.modules, "my_things")
    sources.SOURCES.pop("my_things:flowers")
    assert list(on_disk("run.json")) == []


def test_an_explorer_offers_own_data(place):
    import fednb as fn
    from fednb.data.sources import available, names

    fn.add_data("mine", [[[1.0], [2.0], [3.0], [4.0]], [0, 1, 0, 1]], 0.5)
    assert "mine" in names() and available("mine")
