"""What comes out of a run: its model, its weights in a file, its clients; and what `help` and `dir` tell."""

import inspect
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import fednb as fn
from fednb.cli.commands import main
from fednb.core.rounds import STAGES
from fednb.engines.problem import participants, problem_of
from fednb.runs.store import NoWeights

SMALL = fn.Setting(samples=200, clients=4, participation=0.5, rounds=2, epochs=1, batch=25)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))


@pytest.mark.parametrize("model, precision", [("cnn-small", "fp32"), ("small-cnn-bn", "fp32"), ("cnn-small", "fp64")])
def test_the_model_is_the_one_that_was_tested(model, precision):
    """On the test set it has the accuracy that the history ends with, BatchNorm's statistics and all."""
    setting = SMALL.but(model=model, precision=precision)
    run = fn.run(setting, "FedAvg", progress=False)
    problem = problem_of(setting, 0)
    x, y = problem.test
    answers = run.model()(problem.inputs(x)).argmax(1)
    assert 100 * float((answers == y).double().mean()) == pytest.approx(run.accuracy_last)


def test_weights_are_by_name_and_in_a_file(tmp_path):
    run = fn.run(SMALL, "FedSAM", progress=False)
    state = run.state_dict()
    assert torch.equal(torch.cat([x.reshape(-1) for x in state.values()]), run.w)
    path = run.export(tmp_path / "model.safetensors")
    assert all(torch.equal(x, state[name]) for name, x in load_file(path).items())
    with safe_open(path, "pt") as file:
        about = file.metadata()
    assert (about["run"], about["method"], about["rounds"], about["seed"]) == (run.key, "FedSAM", "2", "0")
    run.model().load_state_dict(load_file(path))


def test_where_weights_cannot_go_is_said_in_one_line(tmp_path):
    run = fn.run(SMALL, "FedSAM", progress=False)
    with pytest.raises(ValueError, match=r"export: .*m.pt must end with .safetensors"):
        run.export(tmp_path / "m.pt")
    with pytest.raises(ValueError, match=r"export: .*m.safetensors cannot be written \(No such file or directory\)"):
        run.export(tmp_path / "no" / "m.safetensors")
    run.entry.describe(run.entry.about() | {"weights": "left out"})
    with pytest.raises(NoWeights, match="its weights were left out"):
        run.model()


@pytest.mark.usefixtures("own_names")
def test_a_run_whose_models_name_is_now_another_s_says_so():
    fn.add_model("mine", lambda classes: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes)))
    run = fn.run(SMALL.but(model="mine"), "FedAvg", progress=False)
    fn.add_model("mine", lambda classes: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes, False)))
    with pytest.raises(ValueError, match="has 650 weights, and model 'mine' has now 640: another took its name"):
        run.model()


def test_the_command_line_writes_weights_or_refuses_before_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    asked = ["run", "fedavg", "--samples", "100", "--clients", "4", "--rounds", "1", "--epochs", "1", "--quiet"]
    assert main([*asked, "--export", str(tmp_path / "w.pt")]) == 2
    assert "w.pt must end with .safetensors" in capsys.readouterr().err and not (tmp_path / "store").exists()
    assert main([*asked, "--export", str(tmp_path / "new" / "w.safetensors")]) == 0
    assert "weights written to" in capsys.readouterr().out
    assert sum(x.numel() for x in load_file(tmp_path / "new" / "w.safetensors").values()) == 22602


def test_clients_have_samples_classes_and_rounds():
    run = fn.run(SMALL, "FedAvg", seed=1, progress=False)
    counts = fn.class_counts(SMALL, seed=1)
    came = [i for t in (0, 1) for i in participants(SMALL, 1, t)]
    assert run.clients["samples"].tolist() == counts.sum(1).tolist() and run.clients.index.name == "client"
    assert run.clients["classes"].tolist() == (counts > 0).sum(1).tolist()
    assert run.clients["rounds"].tolist() == [came.count(i) for i in range(4)]


def test_dir_lists_every_public_name():
    assert {name for name in dir(fn) if not name.startswith("__")} == set(fn.__all__) - {"__version__"}


def test_help_of_a_part_explains_every_stage_and_class_variable():
    text = inspect.getdoc(fn.Part)
    variables = [name for name, kind in fn.Part.__annotations__.items() if "ClassVar" in str(kind)]
    assert len(variables) == 12
    lines = [line.split("  ")[0].split("(")[0] for line in text.splitlines()]
    assert [name for name in (*STAGES, *variables) if name not in lines] == []


def test_make_and_the_bare_command_have_one_store():
    """`make` names no store of its own: whoever sets FEDNB_STORE sets it for both."""
    lines = (Path(__file__).parent.parent / "Makefile").read_text().splitlines()
    assert lines and not [line for line in lines if line.startswith(("FEDNB_STORE", "export FEDNB_STORE"))]
