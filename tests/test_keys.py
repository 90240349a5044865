"""A run's key is its mathematics: pinned, blind to spelling, and aware of all code that comes from outside."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

import fednb as fn
from fednb import models, parts
from fednb.algorithms.catalogue import CATALOGUE, method
from fednb.algorithms.parts import Sam, Scaffold
from fednb.algorithms.sums import NAMES
from fednb.base.codetext import describe
from fednb.base.streams import BadSeed
from fednb.core.rounds import Method
from fednb.data.labels import Iid
from fednb.engines.problem import participants, problem_of
from fednb.engines.setting import Setting
from fednb.runs import keys
from fednb.runs.experiment import run_of
from fednb.runs.grid import Grid
from fednb.runs.keys import identify, key_of
from fednb.runs.probes import Probe

PAPER = Setting(data="cifar10", partition="dirichlet(0.1)", model="resnet18-gn", clients=100, participation=0.1,
                sampling="coin", rounds=800, epochs=5, batch=50)  # fmt: skip
PINNED = {
    "fedavg": "38bea1dde7e03609",
    "fedavg, seed 1": "fdf29fc078aebff1",
    "fedfft, paper": "ffebb72ed99684ff",
    "fedfft-d, paper": "aa87b14c43a9ec6b",
    "fedscam, probed": "df3eb45f5590920c",
    "specgradfilter, shuffled": "66d8e71b78e9dd71",
    "fedfsa, personal": "dcbdceb153296cd1",
    "fedcr": "209c654e0bea38ab",
    "feddyn, printed": "982bb6ab91417e02",
    "fedlesam-s, released": "cf5eb1bb5df7f729",
}


def key(setting: Setting, name: str | Method, seed: int = 0, probe: Probe | None = None, **parameters: Any) -> str:
    return key_of(identify(setting, method(name, **parameters), seed, probe))


def of_part(part: Any) -> str:
    return key(Setting(), Method("mine", part))


# One run, one key


def pinned() -> dict[str, str]:
    probe = Probe(("move", "k.rho_k"), (0, 4), 2)
    return {
        "fedavg": key(Setting(), "fedavg"),
        "fedavg, seed 1": key(Setting(), "fedavg", 1),
        "fedfft, paper": key(PAPER, "fedfft"),
        "fedfft-d, paper": key(PAPER.but(clip_norm=None, weighting="uniform"), "fedfft-d", rho=0.05, ratio=0.02),
        "fedscam, probed": key(Setting(), "fedscam", 3, probe),
        "specgradfilter, shuffled": key(PAPER, "fedavg + gradient(permuted(highpass(0.05), 'random'))"),
        "fedfsa, personal": key(
            Setting(evaluation="personal", partition="pathological-shards(5)"), "fedfsa", layer_score="mean"
        ),
        "fedcr": key(Setting(model="cnn5-cr"), "fedcr"),
        "feddyn, printed": key(PAPER.but(partition="dirichlet-equal(0.3)"), "feddyn", reading="printed"),
        "fedlesam-s, released": key(PAPER.but(sampling="coin-released"), "fedlesam-s", reading="released"),
    }


def test_the_keys_of_ten_runs_stay_what_they_are():
    """What is stored under them would be lost; where numbers must change, RESULTS says so and this table follows."""
    assert keys.RESULTS == 3
    assert pinned() == PINNED


@pytest.mark.parametrize(
    "setting, parameters, changed",
    [
        ({"model": "small-cnn-bn"}, {}, True),
        ({}, {"reading": "released"}, True),
        ({}, {}, False),
        ({"model": "small-cnn-bn", "tune_epochs": 0}, {"reading": "released"}, False),
        ({"model": "small-cnn-bn", "evaluation": "global"}, {"reading": "released"}, False),
    ],
)
def test_only_runs_with_other_numbers_have_other_keys(setting, parameters, changed):
    """Classifiers are tuned in another way than before in these runs."""
    described = identify(Setting().but(**{"evaluation": "personal", **setting}), method("fedfsa", **parameters), 0)
    assert ("changed" in described) is changed
    gloss = identify(Setting(evaluation="personal"), method("fedgloss", reading="released"), 0)
    assert "changed" not in gloss  # another code's reading, which says nothing of tuning


@pytest.mark.parametrize(
    "spelling",
    ["FedFFT", "FED-FFT", "fedfft-a", "fedsam + highpass(0.01)", "FedSAM+HighPass( ratio = 1e-2 )",
     "fedavg + sam + perturbation(highpass)", "fedsam + HIGHPASS(0.010)"],
)  # fmt: skip
def test_two_spellings_of_one_method_are_one_run(spelling):
    assert key(Setting(), spelling) == key(Setting(), "fedfft")


def test_the_name_is_a_label_and_so_is_the_reported_number():
    assert key(Setting(), Method("anything", Sam(0.1))) == key(Setting(), "fedsam")
    assert key(Setting(report="last"), "fedsam") == key(Setting(report="best"), "fedsam")


@pytest.mark.parametrize("one", [1, np.float64(1), np.float32(1), np.int64(1), torch.tensor(1.0).item()])
def test_equal_numbers_are_one_key_and_one_card(one):
    assert key(Setting(), "fedsam", rho=one) == key(Setting(), "fedsam", rho=1.0) == of_part(Sam(one))
    assert Sam(one) == Sam(1.0) and repr(Sam(one)) == repr(Sam(1.0))
    assert str(fn.card(Method("m", Scaffold(strength=one)))) == str(fn.card(Method("m", Scaffold(strength=1.0))))
    assert "v ← v − c_k + c " in str(fn.card(Method("m", Scaffold(strength=one))))


def test_zero_has_no_sign_and_whole_numbers_no_point():
    assert of_part(Sam(-0.0)) == of_part(Sam(0.0)) == of_part(Sam(0))
    assert key(Setting(), "fedfsa", top=2.0) == key(Setting(), "fedfsa", top=2) == key(Setting(), "fedfsa")
    assert key(Setting(), "fedavg", np.int64(3)) == key(Setting(), "fedavg", 3)


def test_all_that_changes_numbers_changes_the_key():
    several = [
        key(Setting(), "fedfft"), key(Setting(), "fedfft", 1), key(Setting(), "fedfft", rho=0.2),
        key(Setting(), "fedfft", ratio=0.02), key(Setting(), "fedfft", where="fc.*"), key(Setting(), "fedfft-s"),
        key(Setting(), "fedsam + gradient(highpass(0.01))"), key(Setting(), "fedfft", probe=Probe()),
        key(Setting(), "fedfft", probe=Probe(batches=2)), key(Setting(lr=0.2), "fedfft"), key(Setting(), "fedavg"),
        key(Setting(partition="iid"), "fedfft"), key(Setting(sampling="coin"), "fedfft"),
        key(Setting(sampling="coin-released"), "fedfft"),
    ]  # fmt: skip
    assert len(set(several)) == len(several)


def test_parts_in_another_order_are_another_run():
    first, second = method("feddyn + prox(0.1)").parts
    assert key(Setting(), Method("m", first, second)) != key(Setting(), Method("m", second, first))


def test_every_method_of_the_catalogue_has_the_key_of_its_parts():
    """Equal keys, equal parts: the FedAvg that FedFSA tunes is Uniform, and no other two are the same."""
    found: dict[str, list[Method]] = {}
    for entry in CATALOGUE.values():
        found.setdefault(key(Setting(), entry.method), []).append(entry.method)
    for same in found.values():
        assert len({m.parts for m in same}) == 1
    assert len(found) == len({entry.method.parts for entry in CATALOGUE.values()})


def test_names_of_the_package_are_unique():
    """Modules are no part of a key, so that files can move; no two classes that stand in one may share a name."""
    kinds = {*(getattr(parts, name) for name in parts.__all__), *NAMES.values()}
    assert len({kind.__qualname__ for kind in kinds}) == len(kinds)


def test_quiet_fields_count_where_they_are_not_the_default_and_labels_never():
    @dataclass(frozen=True)
    class Thing:
        size: float = 1.0

    bare = describe(Thing(2))

    def with_field(**about):
        @dataclass(frozen=True)
        class Thing:
            size: float = 1.0
            extra: int = field(default=0, metadata=about)

        return Thing

    without_code = lambda x: {name: value for name, value in describe(x).items() if name != "is"}  # noqa: E731
    quiet, label = with_field(quiet=True), with_field(label=True)
    assert without_code(quiet(2)) == without_code(Thing(2)) != without_code(quiet(2, extra=1))
    assert without_code(label(2, extra=7)) == without_code(Thing(2))
    assert bare == describe(Thing(2.0))


def test_a_key_says_no_path():
    """Nothing of a package's class but its name and its fields."""
    described = identify(Setting(), method("fedfft"), 0)
    assert described["run"][1] == {"is": {"of": "Method"}, "parts": [
        {"is": {"of": "Sam"}, "rho": 0.1},
        {"is": {"of": "FilterPerturbation"}, "filter": {"is": {"of": "HighPass"}, "where": "*", "ratio": 0.01}},
    ]}  # fmt: skip
    assert "fednb" not in json.dumps(described)


# Seeds


@pytest.mark.parametrize("seed", [[0, 1], 1.5, 1.0, -1, "a", "1", None, True, np.float64(2), float("nan"), (0,), 1j])
def test_a_seed_is_a_whole_number_of_at_least_0(seed):
    for made in (lambda: key(Setting(), "fedavg", seed), lambda: fn.run(Setting(), "fedavg", seed, progress=False)):
        with pytest.raises(BadSeed, match=r"^seed = .*: must be a whole number of at least 0$"):
            made()


@pytest.mark.parametrize("seed", [-1, 1.5, "a", [0]])
def test_seeds_are_checked_wherever_they_enter(seed):
    for made in (
        lambda: run_of(Setting(), method("fedavg"), seed),
        lambda: problem_of(Setting(), seed),
        lambda: participants(Setting(), seed, 0),
        lambda: participants(Setting(sampling="coin-released"), seed, 0),
        lambda: Iid().split(np.arange(10) % 2, 2, seed),
        lambda: models.build("lenet", 10, (1, 28, 28), seed=seed),
    ):
        with pytest.raises(BadSeed):
            made()
    with pytest.raises(ValueError, match="seed"):
        Grid.of("g", "smoke", {"methods": ["fedavg"], "seeds": [seed]})
