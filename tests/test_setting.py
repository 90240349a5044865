"""Settings: one spelling and one key for one experiment, and a refusal that names field, value and allowed range."""

import json
from dataclasses import FrozenInstanceError, fields
from math import inf, nan

import numpy as np
import pytest

from fednb.core.rounds import Method
from fednb.data.partition import Dirichlet, DirichletClient, Pathological
from fednb.engines.setting import BadSetting, Setting
from fednb.runs.keys import identify, key_of


def key(setting: Setting) -> str:
    return key_of(identify(setting, Method("FedAvg"), 0))


WHOLE = "a whole number of at least 1"
SHARE = "above 0 and at most 1"
BAD = {
    **{name: (WHOLE, [0, -1, 2.5, 5.0, "5", True, nan, inf, [3], None])
       for name in ("clients", "rounds", "epochs", "batch", "evaluate_every")},
    "samples": (WHOLE, [0, -1, 2.5, "all", True, nan, inf]),
    "participation": (SHARE, [0, -0.1, 1.1, nan, inf, "half", None, [0.5]]),
    "lr_decay": (SHARE, [0.0, -1, 1.0001, nan, inf, "0.9", None]),
    "lr": ("above 0", [0, -0.1, nan, inf, -inf, "0.1", None, [0.1], 1j]),
    "server_lr": ("above 0", [0.0, -1, nan, inf, "1", None]),
    "weight_decay": ("at least 0", [-1e-9, nan, inf, "1e-3", None]),
    "clip_norm": ("above 0, or none", [0, -10, nan, -inf, "10", [10]]),
    "sampling": ("fixed | coin | coin-released", ["Fixed", "", None, 3, ["fixed"]]),
    "weighting": ("size | uniform", ["sizes", None, True]),
    "report": ("best | last | mean_last_10", ["first", None, 10]),
    "precision": ("fp32 | tf32 | bf16 | fp64", ["fp16", 32, None]),
    "evaluation": ("global | personal", ["Global", None, 1]),
    "train_share": ("above 0 and below 1", [0, 1, 1.5, nan, "0.7", None]),
    "tune_epochs": ("a whole number of at least 0", [-1, 1.5, "10", True, None]),
    "held_out": ("at least 0 and below 1", [-0.1, 1, nan, inf, "0.1", None]),
    "validation": ("at least 0 and below 1", [-0.1, 1, nan, inf, "0.1", None]),
    "validation_on": ("clients | server", ["client", None, True]),
    "augment": ("true or false", [1, 0, "yes", None, 1.0]),
    "crop": ("half | every", ["all", None, True]),
}  # fmt: skip
NAMED = ("data", "partition", "model", "loss", "metrics")


def test_every_field_is_tested_for_bad_values():
    assert {f.name for f in fields(Setting)} == {*BAD, *NAMED}


@pytest.mark.parametrize("name, allowed, value", [(n, a, v) for n, (a, bad) in BAD.items() for v in bad])
def test_a_bad_value_is_refused_with_field_value_and_range(name, allowed, value):
    with pytest.raises(BadSetting) as refused:
        Setting(**{name: value})
    assert str(refused.value) == f"{name} = {value!r}: must be {allowed}"


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("data", "cifr10", r"no data set 'cifr10'; closest: cifar10"),
        ("model", "resnet18gm", r"no model 'resnet18gm'; closest: .*resnet18-gn"),
        ("partition", "dirchlet", r"no partition 'dirchlet'; closest: dirichlet"),
        ("partition", "dirichlet(alpha=-1)", r"alpha=-1; allowed is a number greater than 0"),
        ("partition", "dirichlet(alpha=nan)", r"alpha=nan; allowed is a number greater than 0"),
        ("partition", "dirichlet(beta=1)", r"argument 'beta' is unknown"),
        ("loss", "cros-entropy", r"no loss 'cros-entropy'; closest: cross-entropy\. Yours: what fn.add_loss entered"),
        ("loss", 3, r"no loss 3; closest: cross-entropy"),
        ("metrics", "f1", r"no metric 'f1'; closest: macro_f1\. Yours: what fn.add_metric entered"),
        ("metrics", ["macro_f1", None], r"no metric None; closest: macro_f1, calibration_error"),
        ("metrics", 3, r"metrics = 3: must be names, such as \['macro_f1', 'calibration_error'\]"),
    ],
)
def test_names_that_are_not_there_are_refused_with_the_closest(name, value, said):
    with pytest.raises(ValueError, match=said):
        Setting(**{name: value})


@pytest.mark.parametrize(
    "given",
    [
        dict(participation=1e-9), dict(participation=1), dict(lr_decay=1), dict(weight_decay=0), dict(clip_norm=None),
        dict(samples=None), dict(samples=1), dict(clients=1, rounds=1, epochs=1, batch=1, evaluate_every=1),
        dict(sampling="coin", weighting="uniform", report="mean_last_10", precision="fp64", augment=False),
    ],
)  # fmt: skip
def test_the_ends_of_the_ranges_are_allowed(given):
    made = Setting(**given)
    assert {name: getattr(made, name) for name in given} == given


@pytest.mark.parametrize("spelling", ["cifar10", "CIFAR-10", "Cifar_10", " cifar10 "])
def test_data_sets_have_one_spelling(spelling):
    assert Setting(data=spelling).data == "cifar10"


@pytest.mark.parametrize("spelling", ["resnet18-gn", "ResNet18_GN", "RESNET-18-GN", "resnet18gn"])
def test_models_have_one_spelling(spelling):
    assert Setting(model=spelling).model == "resnet18-gn"


@pytest.mark.parametrize(
    "text, made",
    [
        ("dirichlet(alpha=0.1)", Dirichlet(alpha=0.1)),
        ("Dirichlet(0.1, 10)", Dirichlet(alpha=0.1, minimum=10)),
        ("dirichlet-client(alpha=1)", DirichletClient(alpha=1.0)),
        ("pathological(3)", Pathological(classes=3)),
    ],
)
def test_a_partition_may_be_text_or_object(text, made):
    assert Setting(partition=text) == Setting(partition=made)
    assert key(Setting(partition=text)) == key(Setting(partition=made))


@pytest.mark.parametrize(
    "name, left, right",
    [
        ("lr", 1, 1.0),
        ("server_lr", 2, 2.0),
        ("participation", 1, 1.0),
        ("lr_decay", 1, 1.0),
        ("weight_decay", 0, 0.0),
        ("clip_norm", 10, 10.0),
        ("lr", np.float64(0.1), 0.1),
    ],
)
def test_equal_numbers_give_one_key(name, left, right):
    """1 and 1.0 are one rate, and so is a number out of numpy: equal settings have one repr, hence one key."""
    a, b = Setting(**{name: left}), Setting(**{name: right})
    assert a == b
    assert repr(a) == repr(b)
    assert key(a) == key(b)


@pytest.mark.usefixtures("own_names")
def test_other_values_give_other_keys():
    """A key for every field but the reported number, which is read from the same run: change one and it is another."""
    other = dict(
        data="cifar10", partition="iid", model="lenet", clients=11, participation=0.6, sampling="coin", rounds=6,
        epochs=3, batch=11, lr=0.2, lr_decay=0.9, server_lr=0.5, weight_decay=0.1, clip_norm=None, weighting="uniform",
        augment=False, samples=100, evaluate_every=2, report="last", precision="fp64", evaluation="personal",
        train_share=0.5, tune_epochs=0, held_out=0.1, validation=0.1, validation_on="server",
        crop="every", loss="math:fsum", metrics=["macro_f1"],
    )  # fmt: skip
    assert set(other) == {f.name for f in fields(Setting)}
    keys = {key(Setting().but(**{name: value})) for name, value in other.items() if name != "report"}
    assert len(keys | {key(Setting())}) == len(other)
    assert key(Setting(report="last")) == key(Setting(report="best"))


def test_a_setting_is_frozen():
    with pytest.raises(FrozenInstanceError):
        Setting().lr = 0.2


def test_but_changes_only_what_is_named_and_validates_again():
    made = Setting().but(rounds=7, data="CIFAR-10")
    changed = {f.name for f in fields(Setting) if getattr(made, f.name) != getattr(Setting(), f.name)}
    assert changed == {"rounds", "data"} and (made.rounds, made.data) == (7, "cifar10")
    with pytest.raises(BadSetting, match=r"lr = -1: must be above 0"):
        Setting().but(lr=-1)


def test_but_refuses_an_unknown_name_and_lists_the_known():
    with pytest.raises(BadSetting, match=r"no setting 'learning_rate'; the settings are data, partition, .*, lr, "):
        Setting().but(rounds=3, learning_rate=0.1)


@pytest.mark.parametrize(
    "made",
    [
        Setting(),
        Setting(clip_norm=None, samples=100, partition="pathological(3)", lr=1, weight_decay=1e-12),
        Setting(partition=Dirichlet(alpha=1 / 3, minimum=0), participation=1 / 3, augment=False),
        Setting(partition="iid", data="CIFAR-10", model="ResNet18_GN", sampling="coin"),
    ],
)
def test_plain_goes_through_a_file_and_back(made):
    """What JSON keeps of a setting is the setting."""
    back = Setting(**json.loads(json.dumps(made.plain(), allow_nan=False)))
    assert back == made and repr(back) == repr(made)
    assert json.loads(str(made)) == made.plain()
