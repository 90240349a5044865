"""The command that `fednb show` gives for a run leads to that run: its setting, its method in numbers, its seed."""

import json
import shlex
from dataclasses import asdict
from itertools import islice

import pytest

from fednb.algorithms.catalogue import method
from fednb.cli import commands
from fednb.cli.again import command_of
from fednb.core.rounds import Method
from fednb.engines.setting import Setting
from fednb.runs.experiment import run_of
from fednb.runs.probes import Probe
from fednb.study.paper import shelf


@pytest.fixture
def typed(monkeypatch):
    """The key of the run that a typed command would make."""

    class Asked(Exception):
        pass

    def asked(setting, chosen, seed, **how):
        raise Asked(run_of(setting, chosen, seed, how["probe"]).key)

    def key_of(text):
        with pytest.raises(Asked) as seen:
            commands.main(shlex.split(text)[1:])
        return str(seen.value)

    monkeypatch.setattr(commands, "run", asked)
    return key_of


def about_of(setting, chosen, seed=3, probe=None):
    """run.json, as far as it matters here, through JSON and back."""
    found = run_of(setting, chosen, seed, probe)
    kept = {"probe": asdict(probe)} if probe else {}
    told = kept | {"key": found.key, "setting": found.setting.plain(), "method": chosen.name, "parts": repr(chosen)}
    return json.loads(json.dumps(told | {"seed": seed}))


SETTINGS = [
    Setting(),
    Setting(data="cifar100", partition="dirichlet-client(alpha=0.1)", model="resnet18-gn", rounds=800, lr_decay=0.9995),
    Setting(clip_norm=None, augment=False, samples=9, metrics=["macro_f1", "calibration_error"], report="last"),
    Setting(precision="bf16", partition="pathological-shards(classes=5)", weight_decay=1e-3, crop="every"),
]
METHODS = [
    method("FedAvg"),
    method("FedSAM", rho=0.05),
    method("FedFFT-D", ratio=0.02, beta=1.0),
    method("FedFSA", rho=0.05, rho_larger=0.9, layer_score="sum"),
    method("FedGloSS", rho=0.1, rho_l=0.1),
    method("fedsam + normmatched(highpass(0.01))"),
    method("feddyn + gradient(permuted(highpass(0.05), 'random'))", ratio=0.01),
    method("fedavg + gradient(highpass(0.05, where='@head'))"),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("chosen", METHODS, ids=repr)
def test_the_command_leads_to_the_same_run(typed, setting, chosen):
    about = about_of(setting, chosen)
    found = command_of(about)
    assert found.key == about["key"] == typed(found.text)


@pytest.mark.parametrize("probe", [
    Probe("model", rounds=299), Probe(["gradient", "perturbation"], rounds=(0, 9)),
    Probe(("k.rho_k", "global"), batches=4),
])  # fmt: skip
def test_what_a_run_keeps_beside_itself_is_in_its_command(typed, probe):
    about = about_of(SETTINGS[1], METHODS[0], probe=probe)
    found = command_of(about)
    assert found.key == about["key"] == typed(found.text) != run_of(SETTINGS[1], METHODS[0], 3).key


def test_every_run_kept_at_paper_scale_has_its_command(typed):
    paths = sorted(shelf("papers").glob("*/runs/*/run.json"))
    assert len(paths) > 100
    for path in islice(paths, 0, None, 5):
        about = json.loads(path.read_text())
        found = command_of(about)
        assert found and found.key == about["key"] == path.parent.name == typed(found.text), path


@pytest.mark.parametrize("change", [
    {"method": "my own"}, {"parts": "Method('FedSAM', Sam(rho=0.05), Mine())"}, {"parts": "<no text of parts>"},
    {"setting": {"data": "digits", "unheard_of": 1}}, {"setting": {"model": "nobody's"}}, {"setting": "digits"},
    {"probe": {"what": ["everything"]}}, {"probe": {"when": [0]}}, {"probe": 3},
    {"probe": {"rounds": []}}, {"probe": {"what": []}},
    {"parts": None}, {"parts": "(" * 10_000}, {"parts": "-" * 10_000 + "1"}, {"seed": -1},
])  # fmt: skip
def test_what_cannot_be_typed_has_no_command(change):
    assert command_of(about_of(Setting(), METHODS[1]) | {"key": "0" * 16} | change) is None


@pytest.mark.parametrize("where", ["method", "model", "data", "loss", "metrics"])
def test_a_run_from_elsewhere_makes_nobody_import_what_it_names(tmp_path, monkeypatch, where):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'was_imported')!r}, 'w')\n")
    about = about_of(Setting(), METHODS[1])
    if where == "method":
        about |= {"method": "theirs:Mine"}
    else:
        about["setting"] |= {where: "theirs:Mine"}
    assert command_of(about) is None and not (tmp_path / "was_imported").exists()


def test_a_method_of_the_same_name_and_other_parts_is_not_taken_for_it():
    own = Method("FedSAM", *METHODS[2].parts)
    assert command_of(about_of(Setting(), own)) is None


def test_an_older_key_has_the_command_of_the_same_run_now():
    """An older version's key; what it did not say yet stands for the default."""
    about = about_of(Setting(lr=0.05), METHODS[1])
    del about["setting"]["crop"]
    found = command_of(about | {"key": "0" * 16})
    assert found.key == about["key"] and found.text == "fednb run FedSAM -p rho 0.05 --seed 3 --lr 0.05"
