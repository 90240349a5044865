"""`fednb bench table` times the real commands in a store of its own, and its columns add up. No times are judged."""

import json
import subprocess

import pytest

from fednb.cli.commands import main
from fednb.runs.bench import kept
from fednb.runs.bench import table as whole

TINY = [
    "--device",
    "cpu",
    "--rounds",
    "1",
    "--clients",
    "4",
    "--batch",
    "200",
    "--seeds",
    "2",
    "--methods",
    "fedavg,fedsam",
]


@pytest.fixture
def told(monkeypatch):
    """The commands of the benchmark, carried out in this process instead of a fresh one each."""
    seen = []

    def ended(words, variables):
        seen.append(words)
        with monkeypatch.context() as inside:
            for name in ("FEDNB_STORE", "FEDNB_PAPERS"):
                inside.setenv(name, variables[name])
            return subprocess.CompletedProcess(words, main(words), "", "why\n")

    monkeypatch.setattr(whole, "ended", ended)
    return seen


def test_cold_and_warm_runs_seeds_and_a_table(told, capsys):
    assert main(["bench", "table", *TINY, "--json"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    cold, warm, seeds, table = found["rows"]
    assert [row["case"] for row in found["rows"]] == list(whole.CASES)
    assert [row["runs"] for row in found["rows"]] == [1, 1, 2, 4]
    assert [words[0] for words in told] == ["run", "run", "grid", "grid"]
    for row in found["rows"]:
        assert row["seconds_per_run"] == pytest.approx(row["seconds"] / row["runs"]) and row["status"] == ""
    for row in (cold, warm):
        assert row["seconds_rounds"] > 0 and row["seconds_else"] > 0
        assert row["seconds_rounds"] + row["seconds_else"] == pytest.approx(row["seconds"])
    assert seeds["seconds_further"] == pytest.approx(seeds["seconds"] - warm["seconds"])
    assert "seconds_rounds" not in table and "seconds_further" not in table
    assert cold["command"].startswith("fednb run fedavg --seed 0 --data=digits") and "--rounds=1" in cold["command"]
    assert table["command"] == "fednb grid run bench table --scale laptop --seeds 4,5"
    assert (found["workload"]["methods"], found["workload"]["rounds"]) == (["fedavg", "fedsam"], 1)
    assert kept.in_table(found).splitlines()[0] == kept.workload(found) and kept.workload(found) in out


def test_a_command_that_fails_is_named(monkeypatch, capsys):
    monkeypatch.setattr(whole, "ended", lambda words, variables: subprocess.CompletedProcess(words, 2, "", "a\nwhy\n"))
    assert main(["bench", "table", *TINY, "--cases", "warm", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [(row["case"], row["status"]) for row in rows] == [("cold", "failed: why"), ("warm", "failed: why")]


@pytest.mark.parametrize(
    "asked, says",
    [
        (["--cases", "cold,hot"], "cases = 'hot': must be of cold, warm, seeds, table"),
        (["--seeds", "1"], "a further seed needs at least 2"),
        (["--methods", "fedavgg"], "fedavgg"),
        (["--precision", "bf16"], "is for a GPU"),
    ],
)
def test_what_cannot_be_timed_is_refused_at_once(asked, says, capsys, monkeypatch):
    monkeypatch.setattr(whole, "rows", lambda *given: pytest.fail("nothing is to be made"))
    assert main(["bench", "table", *TINY, *asked]) == 2
    assert says in capsys.readouterr().err


def test_a_gpu_is_timed_on_what_papers_train():
    setting = whole.usual("cuda")
    assert (setting.data, setting.model, setting.rounds, setting.precision) == ("cifar10", "resnet20-gn", 300, "bf16")
    work = whole.Work(setting, ("fedavg",), 3, "cuda")
    assert whole.words("cold", work)[-3:] == ["--device", "cuda", "--quiet"]
    assert whole.words("warm", work)[3] == "1" and whole.words("seeds", work)[-1] == "2,3,4"


def test_a_store_and_compiler_caches_of_its_own(tmp_path):
    work = whole.Work(whole.usual("cpu"), ("fedavg",), 2, "cpu")
    own = whole.environment(work, tmp_path)
    assert own.pop("CUDA_VISIBLE_DEVICES") == "" and all(path.startswith(str(tmp_path)) for path in own.values())
    assert set(own) == {"FEDNB_STORE", "FEDNB_PAPERS", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
