"""`fednb store check` finds all damage, names each file, and sets aside what is damaged without losing a byte."""

import shutil

import pytest
import torch

from fednb.algorithms.catalogue import method
from fednb.base import files
from fednb.cli import store as store_command
from fednb.cli.commands import main
from fednb.engines.setting import Setting
from fednb.metrics import cache as once
from fednb.runs.experiment import run, run_of
from fednb.runs.probes import Probe
from fednb.runs.store import entries

SMALL = Setting(clients=3, participation=1, rounds=2, epochs=1, batch=50, samples=200, partition="dirichlet(alpha=0.5)")
PROBE = Probe(("global",), rounds=(0, 1))


def made(seed):
    return run(SMALL, "SCAFFOLD", seed, engine="loop", device="cpu", probe=PROBE, progress=False)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Two finished runs, each with client rows, probes and a measurement."""
    folder = tmp_path_factory.mktemp("original")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(folder))
        for seed in (0, 1):
            once.Question(made(seed), "made", 1, {}).answer(lambda: {"value": torch.tensor(3.0)})
    return folder


@pytest.fixture(autouse=True)
def store(original, tmp_path, monkeypatch):
    shutil.copytree(original, tmp_path / "store")
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(store_command, "check_pages", list)
    return tmp_path / "store"


def entry(seed):
    return run_of(SMALL, method("SCAFFOLD"), seed, PROBE).entry


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def check(capsys, *more):
    code = main(["store", "check", *more])
    return code, capsys.readouterr().out.splitlines()


def test_a_sound_store_is_said_to_be_sound(store, capsys):
    assert check(capsys) == (0, [f"{store}: 2 runs, 2 sound, 0 unchecked, 0 damaged"])


KINDS = ["run.json", "state.safetensors", "history.csv", "clients/*", "probes/round-000001*"]


@pytest.mark.parametrize("how", ["flipped", "missing"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_is_looked_at_and_its_run_set_aside(kind, how, store, capsys):
    folder = entry(0).folder
    path = sorted(folder.glob(kind))[0]
    flip(path) if how == "flipped" else path.unlink()
    before = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    code, said = check(capsys)
    assert code == 1 and said[-1].endswith("2 runs, 1 sound, 0 unchecked, 1 damaged")
    assert said[0].startswith(f"{path}: is ") and f"--repair {entry(0).key}`" in said[0]
    code, said = check(capsys, "--repair")
    aside = store / "set-aside" / f"{entry(0).key}-1"
    assert code == 0 and f"{folder}: set aside as {aside}" in said
    assert {p.relative_to(aside): p.read_bytes() for p in aside.rglob("*") if p.is_file()} == before
    assert check(capsys)[0] == 0 and [e.key for e in entries()] == [entry(1).key]
    assert made(0).status == "finished" and check(capsys)[0] == 0


def test_a_damaged_measurement_is_set_aside_alone(store, capsys):
    (path,) = (entry(0).folder / "measured").iterdir()
    flip(path)
    damaged = path.read_bytes()
    code, said = check(capsys, "--repair", entry(0).key[:8])
    aside = store / "set-aside" / f"{entry(0).key}-1" / path.name
    assert code == 0 and f"{path}: set aside as {aside}" in said
    assert aside.read_bytes() == damaged and not path.exists() and entry(0).ended
    assert check(capsys)[0] == 0


def test_all_problems_of_all_runs_are_named(capsys):
    flip(entry(0).state)
    flip(entry(0).folder / "history.csv")
    flip(entry(1).folder / "run.json")
    code, said = check(capsys)
    assert code == 1 and len(said) == 4 and said[-1].endswith("2 runs, 0 sound, 0 unchecked, 2 damaged")
    code, said = check(capsys, "--repair")
    assert code == 0 and sum("set aside as" in line for line in said) == 2 and not entries()


def test_only_the_named_runs_are_looked_at(capsys):
    flip(entry(0).state)
    assert check(capsys, entry(1).key)[0] == 0
    assert check(capsys, entry(1).key, entry(0).key)[0] == 1
    assert main(["store", "check", "zz"]) == 2 and "no run 'zz' among 2" in capsys.readouterr().err


def test_runs_of_an_older_version_are_unchecked_here_and_in_show(capsys):
    folder = entry(0).folder
    about = {name: value for name, value in entry(0).about().items() if name not in ("history", "saved", "round")}
    for path in folder.rglob("*.safetensors"):
        tensors, words = files.load_tensors(path)
        kept = {name: value for name, value in words.items() if name in ("round", "clients", "layout")}
        path.write_bytes(files.bytes_of(tensors, metadata=kept))
    (folder / "run.json").write_text(files.json.dumps(about))
    code, said = check(capsys)
    assert code == 0 and said == [f"{folder}: unchecked, an older version wrote it without digests", said[-1]]
    assert said[-1].endswith("2 runs, 1 sound, 1 unchecked, 0 damaged")
    assert main(["show", entry(0).key]) == 0
    shown = capsys.readouterr().out
    assert "unchecked: an older version wrote it without digests" in shown and "2 finished rounds" in shown


def test_pages_are_looked_at_too(monkeypatch, capsys):
    monkeypatch.setattr(store_command, "check_pages", lambda: ["page.html: is cut short"])
    code, said = check(capsys)
    assert code == 1 and "page.html: is cut short" in said and said[-1].endswith("; 1 problem with pages")


def test_a_run_at_work_is_not_taken_for_a_damaged_one(monkeypatch, capsys):
    """Its files change while they are looked at: what seems wrong then is looked at again."""
    real, looks = store_command._problems, []

    def changing(one):
        looks.append(one)
        if len(looks) == 1:  # a save between reading the state and reading the rows
            (entry(0).folder / "writer").write_text("another moment")
            return [store_command.DamagedRun(one.key, one.state, "seems wrong", "nothing")]
        return real(one)

    monkeypatch.setattr(store_command, "_problems", changing)
    assert check(capsys, entry(0).key)[0] == 0 and len(looks) == 2


def test_a_bare_run_is_sound(capsys):
    bare = entry(0)
    for name in ("state.safetensors", "writer", "lock"):
        (bare.folder / name).unlink()
    for name in ("clients", "probes", "measured"):
        shutil.rmtree(bare.folder / name)
    bare.describe(bare.about() | {"weights": "left out"})
    assert check(capsys)[0] == 0
    flip(bare.folder / "history.csv")
    assert check(capsys)[0] == 1


def test_the_command_makes_a_run_again(store, capsys):
    argv = ["run", "fedavg", "--clients", "3", "--samples", "100", "--rounds", "1", "--epochs", "1", "--engine", "loop",
            "--device", "cpu", "--quiet", "--partition", "iid", "--json"]  # fmt: skip
    assert main(argv) == main([*argv, "--again"]) == 0
    assert len(list((store / "set-aside").iterdir())) == 1
    first, second = (files.json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["weights_sha256"] == second["weights_sha256"] and first["key"] == second["key"]


@pytest.fixture
def papers(store, tmp_path, monkeypatch):
    """A paper that has a run whole and results that name the same and another run, none of which is in the store."""
    folder = tmp_path / "papers" / "made"
    whole, results = folder / "runs" / entry(0).key, folder / "results" / "01_x_laptop"
    results.mkdir(parents=True)
    shutil.copytree(entry(0).folder, whole)
    shutil.rmtree(entry(0).folder)
    about = {"key": "abcd1234abcd1234", "method": "FedAvg", "seed": 7, "computed_in": "tf32"}
    (results / "runs.json").write_text(files.json.dumps({about["key"]: about, entry(0).key: about}))
    row = "grid,method,seed,key,measure,value,round\n0,t,FedAvg,7,{},accuracy by round,61.25,{}\n"
    (results / "t_curves.csv").write_text("," + row.format(about["key"], 4))
    (results / "notes.csv").write_text("text\nabcd1234abcd1234\n")
    monkeypatch.setenv("FEDNB_PAPERS", str(tmp_path / "papers"))
    return folder


def test_a_run_that_only_a_paper_has_is_shown(papers, capsys):
    """By the beginning of its key, as captions have it: whole, or what results tell of it; rounds count from 1."""
    assert main(["show", entry(0).key[:8]]) == 0
    out = capsys.readouterr().out.splitlines()
    whole = papers / "runs" / entry(0).key
    assert out[-2] == f"2 finished rounds in {whole}, kept with a paper; the store does not have it"
    assert [line.split()[0] for line in out[-4:-2]] == ["1", "2"] and max(map(len, out[-7:-2])) <= 100
    said, _, command = out[-1].partition(" by: ")
    assert said == "made again" and "--clients 3 " in command and command.endswith(" --probe global --probe-rounds 0,1")
    assert command.startswith("fednb run SCAFFOLD --seed 0 --partition 'dirichlet(")
    assert main(["show", "abcd1234"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert ' "computed_in": "tf32"' in out and out[-2].split() == ["accuracy", "by", "round", "61.25", "5", "t_curves"]
    where = papers / "results" / "01_x_laptop" / "runs.json"
    assert out[-1] == f"the store does not have it; kept without its rounds in {where}"


def test_a_run_of_the_store_comes_first_and_what_nobody_has_is_refused(papers, capsys):
    assert main(["show", entry(1).key[:8]]) == 0
    assert f"2 finished rounds in {entry(1).folder}" in capsys.readouterr().out.splitlines()
    assert main(["show", "nope"]) == 2
    assert capsys.readouterr().err.startswith("fednb: no run 'nope' among 1. The store is ")
    (papers / "runs" / "abcd9999abcd9999").mkdir()
    assert main(["show", "abcd"]) == 2
    assert capsys.readouterr().err == "fednb: several runs begin with 'abcd': abcd9999abcd9999, abcd1234abcd1234\n"
