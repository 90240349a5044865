"""The command line as a person uses it: lists, one run, one mistake at a time."""

import json
import subprocess
import sys

import pytest

import fednb
from fednb.cli.commands import main

RUN = ["run", "fedfft", "--clients", "3", "--participation", "1", "--rounds", "2", "--epochs", "1", "--batch", "50",
       "--samples", "120", "--partition", "iid", "--quiet"]  # fmt: skip


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.setenv("FEDNB_OFFLINE", "1")
    return tmp_path


def test_run_ends_with_one_line_of_json(capsys):
    assert main([*RUN, "--json", "-p", "rho", "0.05"]) == 0
    seen = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(seen) == ["key", "status", "method", "rounds", "accuracy_last", "accuracy_best", "seconds_per_round",
                          "weights_sha256", "engine", "device"]  # fmt: skip
    assert (seen["status"], seen["method"], seen["rounds"], seen["device"]) == ("finished", "FedFFT", 2, "cpu")


def test_show_finds_a_run_by_the_beginning_of_its_key(capsys):
    main([*RUN, "--json"])
    key = json.loads(capsys.readouterr().out)["key"]
    assert main(["show", key[:6]]) == 0
    out = capsys.readouterr().out
    assert "FilterPerturbation" in out and "2 finished rounds" in out


def test_what_a_round_s_participants_had_is_kept_beside_the_run(store, capsys):
    assert main([*RUN, "--probe", "perturbation, model", "--probe-rounds", "1", "--probe-batches", "2"]) == 0
    out = capsys.readouterr().out
    (run,) = (store / "runs").iterdir()
    assert out.splitlines()[-1].split() == ["probes", str(run / "probes")]
    assert [path.name for path in (run / "probes").iterdir()] == ["round-000001.safetensors"]
    assert json.loads((run / "run.json").read_text())["probe"] == {
        "what": ["perturbation", "model"], "rounds": [1], "batches": 2}  # fmt: skip


KINDS = "must be one of gradient, perturbation, move, model, global, or k.NAME or s.NAME for what a part declares"


@pytest.mark.parametrize("given, said", [
    (["--probe-rounds", "1"], "fednb: --probe-rounds: comes with --probe, such as --probe gradient"),
    (["--probe-batches", "2"], "fednb: --probe-batches: comes with --probe, such as --probe gradient"),
    (["--probe", "gradients"], f"fednb: probe 'gradients': {KINDS}"),
    (["--probe", ""], f"fednb: probe '': {KINDS}"),
    (["--probe", "model", "--probe-rounds", "2"], "fednb: probe rounds = (2,): the run has rounds 0 to 1"),
    (["--probe", "model", "--probe-batches", "0"],
     "fednb: batches = 0, rounds = (0,): at least 1 batch, rounds from 0"),
])  # fmt: skip
def test_a_probe_that_cannot_be_is_one_line(given, said, store, capsys):
    assert main([*RUN, *given]) == 2
    assert capsys.readouterr().err.splitlines() == [said] and not list(store.glob("runs/*"))


@pytest.mark.parametrize("rounds", ["", "last", "1,", "-1", "1.5", "1 2"])
def test_rounds_that_are_none_are_one_line(rounds, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([*RUN, "--probe", "model", f"--probe-rounds={rounds}"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fednb: argument --probe-rounds: {rounds!r}: must be rounds, counted from 0, such as 0,9;")


@pytest.mark.parametrize("what", ["methods", "papers", "notebooks", "data", "models", "partitions", "grids"])
def test_lists(what, capsys):
    expected = {"methods": "FedFFT-D", "papers": "specgradfilter", "notebooks": "fedfft/01_fig1", "data": "cifar100",
                "models": "resnet18-gn-s3", "partitions": "dirichlet(alpha=0.1, minimum=10)",
                "grids": "Table 3: filtering strategies inside FedSAM"}  # fmt: skip
    assert main(["ls", what]) == 0
    assert expected[what] in (out := capsys.readouterr().out)
    assert max(map(len, out.splitlines())) <= 100


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0 and capsys.readouterr().out == f"fednb {fednb.__version__}\n"


@pytest.mark.parametrize(
    "argv, says",
    [
        (["run", "fedftt"], "no method 'fedftt'; closest: FedFFT"),
        (["run", "--lr", "-1"], "lr = -1: must be above 0"),
        (["run", "--rounds", "two"], "rounds = 'two': must be a whole number of at least 1"),
        (["run", "--participation", "1.5"], "participation = 1.5: must be above 0 and at most 1"),
        (["run", "--sampling", "dice"], "sampling = 'dice': must be fixed | coin"),
        (["run", "--augment", "maybe"], "augment = 'maybe': must be true or false"),
        (["run", "--data", "cifar11"], "no data set 'cifar11'; closest: cifar10"),
        (["run", "--model", "resnet21-gn"], "closest: resnet20-gn"),
        (["run", "--partition", "dirichlet(alpha=-1)"], "alpha=-1"),
        (["run", "--partition", "pathologic"], "closest: pathological"),
        (["run", "fedsam", "-p", "rho", "-0.1"], "Sam.rho = -0.1: must be at least 0"),
        (["run", "fedfft", "-p", "ratio", "2"], "ratio = 2.0: must lie between 0 and 1"),
        (["run", "feddyn", "-p", "reading", "literal"], "must be one of corrected, printed"),
        (["run", "fedavg", "-p", "rho", "0.1"], "FedAvg has no parameter 'rho'"),
        (["run", "fedsam", "--method", "fedprox"], "run 'fedsam' --method 'fedprox': name one method"),
        (["run", "fedsam", "-p", "rho", "0.1", "-p", "rho", "0.2"], "-p 'rho' is given 2 times; give it once"),
        (["notebook", "fedfft/01", "-p", "bands", "3", "-p", "bands", "4"], "-p 'bands' is given 2 times"),
        (["flower", "fedsam", "--method", "fedprox"], "flower fedsam --method fedprox: name one method"),
        (["flower", "new", "there", "--set", "lr", "1", "--set", "lr", "2"], "--set 'lr' is given 2 times"),
        (["run", "--engine", "turbo"], "engine = 'turbo': must be one of auto, loop, pool, stacked"),
        (["run", "--device", "cuda:9"], "device = 'cuda:9'"),
        (["run", "--clients", "5000"], "clients=5000"),
        (["run", "--model", "cnn5"], "needs images of at least 16x16"),
        (["run", "--data", "cifar100", "--model", "resnet20-gn"], "'cifar100' is not here: looked for"),
        (["show", "nosuchkey"], "no run 'nosuchkey'"),
        (["notebook", "fedfft/99"], "no notebook 'fedfft/99'; closest: fedfft/"),
        (["notebook", "fedfft/01", "--scale", "huge"], "scale = 'huge': must be one of smoke, laptop, paper"),
        (
            ["notebook", "fedfft/01", "-p", "band", "3"],
            "no parameter 'band'; it has: scale, seeds, only, bands, device",
        ),
    ],
)
def test_mistakes_are_named_cost_nothing_and_exit_2(argv, says, capsys, store, monkeypatch):
    monkeypatch.setenv("FEDNB_DATA", str(store.parent / "no-data"))
    assert main(argv) == 2
    assert says in capsys.readouterr().err
    assert list(store.iterdir()) == [], "something was left behind"


def test_words_that_the_parser_does_not_know_exit_2(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", "--learning-rate", "0.1"])
    assert ended.value.code == 2
    assert "--learning-rate" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv, says",
    [
        (
            ["fly"],
            "'fly': must be one of ls, run, lab, notebook, grid, plan, verify, publish, show, store, bench, flower",
        ),
        (["ls", "fish"], "'fish': must be one of data, grids, methods, models, notebooks, papers, partitions"),
        (["run", "--seed", "x"], "--seed 'x': must be a whole number"),
        (["run", "--workers", "x"], "--workers 'x': must be a whole number"),
        (["bench", "scale", "--clients", "x"], "--clients 'x': must be whole numbers, such as 10,100"),
        (["bench", "scale", "--limit", "x"], "--limit 'x': must be a number"),
        (
            ["verify", "fedfft", "--seeds", "x"],
            "argument --seeds: 'x': must be whole numbers of at least 0, such as 0,1,2",
        ),
        (["store", "ls", "--status", "x"], "--status 'x': must be one of finished, diverged, running, damaged"),
    ],
)
def test_a_wrong_value_is_one_line_without_names_of_functions(argv, says, capsys):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith(f"fednb: {says}; see `fednb ") and said.count("\n") == 1


def test_every_setting_field_is_an_option(capsys):
    from dataclasses import fields

    from fednb.engines.setting import Setting

    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    assert [f.name for f in fields(Setting) if f"--{f.name.replace('_', '-')}" not in text] == []


def test_a_reader_that_has_enough_is_no_error():
    """`fednb ls methods | head -1`: status 141, as other tools have it, and no traceback."""
    ask = [sys.executable, "-m", "fednb", "ls", "methods"]
    closed = subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    closed.stdout.close()
    assert closed.wait() == 141 and closed.stderr.read() == ""
