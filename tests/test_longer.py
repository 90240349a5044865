"""A run of more rounds goes on from a finished run of fewer, with the same bits as one that was made whole."""

import pytest

from fednb.cli.commands import main
from fednb.engines.setting import Setting
from fednb.runs.archive import export_runs
from fednb.runs.experiment import run
from fednb.runs.merging import import_runs
from fednb.runs.probes import Probe

SMALL = Setting(samples=100, clients=4, participation=0.5, rounds=2, epochs=1, batch=25)
PERSONAL = dict(evaluation="personal", tune_epochs=1)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "one"))
    return tmp_path


def made_whole(store, monkeypatch, *asked, **how):
    """The run in a store where nothing else is."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("FEDNB_STORE", str(store / "other"))
        return run(*asked, progress=False, **how).summary()


def rounds_trained(setting, name, **how):
    """The rounds that are trained now, and the run."""
    trained = []
    with pytest.MonkeyPatch.context() as patch:
        from fednb.runs import experiment

        one = experiment._one_round
        patch.setattr(experiment, "_one_round", lambda *a: trained.append(a[3].t) or one(*a))
        return run(setting, name, progress=False, **how), trained


@pytest.mark.parametrize(
    "name, more", [("SCAFFOLD", {}), ("FedDyn", {}), ("FedAvg", PERSONAL), ("FedSAM", {"validation": 0.2})]
)
def test_the_bits_are_those_of_a_whole_run(name, more, store, monkeypatch):
    """State of server and clients, and the history but for its seconds."""
    whole = made_whole(store, monkeypatch, SMALL.but(rounds=5, **more), name)
    first = run(SMALL.but(**more), name, progress=False)
    done, trained = rounds_trained(SMALL.but(rounds=5, **more), name)
    assert trained == [2, 3, 4] and done.about["went_on_from"] == first.key
    seen = done.summary()
    apart = ("seconds_per_round",)
    assert {k: v for k, v in seen.items() if k not in apart} == {k: v for k, v in whole.items() if k not in apart}
    assert [row.get("tuned", 0) for row in done.rows] == [0] * 5 + [1] * bool(more == PERSONAL)  # once, at the end
    assert first.entry.about()["status"] == "finished" and first.weights_sha256 != done.weights_sha256


def test_the_longest_is_gone_on_from_and_it_can_be_interrupted(store, monkeypatch):
    whole = made_whole(store, monkeypatch, SMALL.but(rounds=6), "SCAFFOLD")
    for rounds in (1, 4, 3):
        run(SMALL.but(rounds=rounds), "SCAFFOLD", progress=False)

    def stop(row):
        if row["round"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(SMALL.but(rounds=6), "SCAFFOLD", progress=stop)
    done, trained = rounds_trained(SMALL.but(rounds=6), "SCAFFOLD")
    assert trained == [5] and done.weights_sha256 == whole["weights_sha256"]


def test_what_cannot_be_gone_on_from_is_made_whole(monkeypatch, tmp_path):
    """Another seed or method, a probe, --again, a round that the longer run does not test, another engine."""
    run(SMALL.but(evaluate_every=4), "FedAvg", progress=False)
    assert rounds_trained(SMALL.but(rounds=4, evaluate_every=4), "FedAvg")[1] == [0, 1, 2, 3]
    run(SMALL, "FedAvg", progress=False)
    assert rounds_trained(SMALL.but(rounds=3), "FedAvg", seed=1)[1] == [0, 1, 2]
    assert rounds_trained(SMALL.but(rounds=3), "FedProx")[1] == [0, 1, 2]
    assert rounds_trained(SMALL.but(rounds=3), "FedAvg", probe=Probe(what=["move"], rounds=[2]))[1] == [0, 1, 2]
    assert rounds_trained(SMALL.but(rounds=3), "FedAvg", engine="stacked")[1] == [0, 1, 2]
    assert rounds_trained(SMALL.but(rounds=3), "FedAvg")[1] == []
    assert rounds_trained(SMALL.but(rounds=3), "FedAvg", again=True)[1] == [0, 1, 2]


def test_a_diverged_run_is_not_gone_on_from():
    wild = SMALL.but(lr=1e20, clip_norm=None)
    assert run(wild, "FedAvg", progress=False).status == "diverged"
    assert rounds_trained(wild.but(rounds=3), "FedAvg")[1][:1] == [0]


def test_a_run_without_weights_is_passed_over(store, monkeypatch):
    export_runs([run(SMALL, "FedAvg", progress=False).entry], store / "runs.zip", False, False)
    monkeypatch.setenv("FEDNB_STORE", str(store / "two"))
    import_runs(store / "runs.zip")
    assert rounds_trained(SMALL.but(rounds=3), "FedAvg")[1] == [0, 1, 2]


def test_a_damaged_run_is_passed_over_and_named(capsys):
    first = run(SMALL, "SCAFFOLD", progress=False)
    next((first.entry.folder / "clients").iterdir()).write_bytes(b"damaged")
    assert rounds_trained(SMALL.but(rounds=3), "SCAFFOLD")[1] == [0, 1, 2]
    assert f"run {first.key} is not gone on from: " in capsys.readouterr().err


def test_pool_goes_on_from_loop():
    run(SMALL, "FedAvg", progress=False, engine="loop")
    assert rounds_trained(SMALL.but(rounds=3), "FedAvg", engine="pool", workers=1)[1] == [2]


def test_the_command_says_where_it_went_on(capsys):
    asked = ["run", "fedavg", "--samples", "300", "--epochs", "1", "--quiet", "--rounds"]
    assert main([*asked, "1"]) == 0 and "went_on_from" not in capsys.readouterr().out
    assert main([*asked, "2"]) == 0
    assert "went_on_from" in capsys.readouterr().out
