"""Setting: all that the methods of one experiment share. Validated when it is made, frozen afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, replace
from math import inf, isfinite
from typing import Any

from fednb.base.checks import MOST_WHOLE
from fednb.base.inputs import shown
from fednb.core.record import LocalTraining
from fednb.data.partition import Dirichlet, Partition
from fednb.data.partition import parse as parse_partition
from fednb.data.sources import find as find_data
from fednb.engines.losses import CROSS_ENTROPY, LOSSES
from fednb.engines.measures import find_all
from fednb.models import find as find_model

MOST_EPOCHS = 1000  # a round's batches are drawn before it begins, one order of the samples for each epoch
MOST_SAMPLES = 1_000_000_000
FEWEST = 0.01  # clients that a coin lets in on average: rounds without anybody are drawn again


class BadSetting(ValueError):
    """A field whose value is not allowed."""


def _number(default: Any, allowed: str, test: Callable[[Any], bool], help: str) -> Any:
    return field(default=default, metadata={"allowed": allowed, "test": test, "help": help})


def _choice(default: str, options: tuple[str, ...], help: str) -> Any:
    return field(
        default=default,
        metadata={"allowed": " | ".join(options), "test": lambda v: v in options, "help": help},
    )


def _label(made: Any) -> Any:
    """A field that changes no number of a run, and so has no part in its key."""
    made.metadata = made.metadata | {"label": True}
    return made


def _quiet(made: Any) -> Any:
    """A field that has a part in a run's key only where it is not the default: keys from before it was added stay."""
    made.metadata = made.metadata | {"quiet": True}
    return made


def _whole(default: int | None, help: str, least: int = 1, most: int = MOST_WHOLE) -> Any:
    def test(v: Any) -> bool:
        return isinstance(v, int) and not isinstance(v, bool) and v >= least

    counted = _number(default, f"a whole number of at least {least}", test, help)
    return field(default=default, metadata=counted.metadata | {"most": most})


def _positive(default: float, help: str) -> Any:
    return _number(default, "above 0", lambda v: 0 < v < inf, help)


@dataclass(frozen=True)
class Setting:
    """Data, model, rounds and local training of one experiment. The defaults are the smoke scale, on digits.

    The numbers of local training (rate 0.1, decay 0.998 a round, weight decay 1e-3, clip 10, one server step of 1)
    are those of FL-Simulator, which the papers follow; papers/<id>/paper.toml has each paper's own.

    >>> setting = fn.Setting(clients=4, rounds=2, partition="dirichlet(alpha=0.1)")
    >>> setting.partition
    Dirichlet(alpha=0.1, minimum=10)
    >>> setting.but(rounds=100).rounds
    100
    """

    data: str = field(default="digits", metadata={"help": "data set, see `fednb ls data`; or an import path"})
    partition: Partition = field(
        default_factory=lambda: Dirichlet(alpha=0.6),
        metadata={"help": "how samples go to clients, such as 'dirichlet(alpha=0.1)', 'iid', 'natural'"},
    )
    model: str = field(default="cnn-small", metadata={"help": "model, see `fednb ls models`; or an import path"})
    clients: int = _whole(10, "number of clients")
    participation: float = _number(0.5, "above 0 and at most 1", lambda v: 0 < v <= 1, "share of clients in a round")
    sampling: str = _choice(
        "fixed",
        ("fixed", "coin", "coin-released"),
        "a fixed count each round, a coin per client, or FL-Simulator's own",
    )
    rounds: int = _whole(5, "communication rounds")
    epochs: int = _whole(2, "local epochs", most=MOST_EPOCHS)
    batch: int = _whole(10, "local batch size")
    lr: float = _positive(0.1, "local learning rate")
    lr_decay: float = _number(0.998, "above 0 and at most 1", lambda v: 0 < v <= 1, "factor on the rate, per round")
    server_lr: float = _positive(1.0, "server learning rate")
    weight_decay: float = _number(1e-3, "at least 0", lambda v: 0 <= v < inf, "added behind the clip, never filtered")
    clip_norm: float | None = _number(
        10.0, "above 0, or none", lambda v: 0 < v < inf, "clip each step to this norm; or none"
    )
    weighting: str = _choice("size", ("size", "uniform"), "how clients count in the mean")
    augment: bool = field(default=True, metadata={"help": "flip and crop as the data set's papers do"})
    samples: int | None = _whole(None, "use only so many training samples; none for all", most=MOST_SAMPLES)
    evaluate_every: int = _whole(1, "test the global model every so many rounds")
    evaluation: str = _choice("global", ("global", "personal"), "the server's model, or each client's own")
    train_share: float = _number(
        0.7, "above 0 and below 1", lambda v: 0 < v < 1, "personal: to train on, of a client's"
    )
    tune_epochs: int = _whole(10, "personal: epochs of the classifier alone after the last round", 0, MOST_EPOCHS)
    report: str = _label(_choice("best", ("best", "last", "mean_last_10"), "which accuracy counts"))
    precision: str = _choice("fp32", ("fp32", "tf32", "bf16", "fp64"), "numbers of the model; tf32 and bf16 on a GPU")
    held_out: float = _quiet(
        _number(0.0, "at least 0 and below 1", lambda v: 0 <= v < 1, "share of the training data to test on instead")
    )
    validation: float = _quiet(
        _number(0.0, "at least 0 and below 1", lambda v: 0 <= v < 1, "share of the training data to choose by")
    )
    validation_on: str = _quiet(
        _choice(
            "clients", ("clients", "server"), "whose the validation data are: a share of each client's, or no one's"
        )
    )
    crop: str = _quiet(
        _choice("half", ("half", "every"), "augmentation crops half of the images, as FL-Simulator does, or every one")
    )
    loss: str = _quiet(
        field(default=CROSS_ENTROPY, metadata={"help": "loss of the local steps, see `fn.add_loss`; or an import path"})
    )
    metrics: tuple[str, ...] = _quiet(
        field(default=(), metadata={"help": "extra metrics in the history, see `fn.add_metric`; or import paths"})
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", find_data(self.data).name)  # one spelling, one key
        object.__setattr__(self, "model", find_model(self.model))
        object.__setattr__(self, "partition", parse_partition(self.partition))
        object.__setattr__(self, "loss", LOSSES.find(self.loss))
        object.__setattr__(self, "metrics", find_all(self.metrics))
        for f in fields(self):
            object.__setattr__(self, f.name, _checked(f, getattr(self, f.name)))
        if not isinstance(self.augment, bool):
            raise BadSetting(f"augment = {shown(self.augment)}: must be true or false")
        if self.validation and self.evaluation == "personal":
            raise BadSetting(f"validation = {self.validation}: clients with a test split of their own have none; "
                             f"held_out = {self.validation} holds samples out of their training splits")  # fmt: skip
        if self.sampling != "fixed" and self.participation * self.clients < FEWEST:
            raise BadSetting(
                f"participation = {self.participation}: with a coin for each of {self.clients} clients hardly anybody "
                f"would ever come; participation times clients must be at least {FEWEST}"
            )

    def but(self, **changes: Any) -> Setting:
        """A copy of this setting with other values in the named fields."""
        known = [f.name for f in fields(self)]
        if unknown := [name for name in changes if name not in known]:
            raise BadSetting(f"no setting {shown(unknown[0])}; the settings are {', '.join(known)}")
        return replace(self, **changes)

    def training(self, samples: int) -> LocalTraining:
        """The numbers of local training; samples: those of client 0, which FL-Simulator counts its steps by."""
        return LocalTraining(
            lr=self.lr,
            lr_decay=self.lr_decay,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            epochs=self.epochs,
            nominal_steps=self.epochs * samples / self.batch,
        )

    def plain(self) -> dict[str, Any]:
        """All fields by name, as numbers and strings that JSON can hold."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return own | {"partition": str(self.partition), "metrics": ", ".join(self.metrics)}

    def __str__(self) -> str:
        return json.dumps(self.plain())


def checked(**values: Any) -> dict[str, Any]:
    """Values for fields of a setting, by name, as a setting would hold them; BadSetting where one is not allowed.

    >>> checked(lr=1, clip_norm="none")
    {'lr': 1.0, 'clip_norm': None}
    """
    known = {f.name: f for f in fields(Setting)}
    return {name: _checked(known[name], value) for name, value in values.items()}


def _checked(f: Field, value: Any) -> Any:
    """The value of one field in the field's own kind."""
    if f.name in ("clip_norm", "samples") and value in (None, "none"):  # TOML has no word for it
        return None
    if "test" in f.metadata and not _passes(f.metadata["test"], value):
        raise BadSetting(f"{f.name} = {shown(value)}: must be {f.metadata['allowed']}")
    if "most" in f.metadata and value > f.metadata["most"]:
        raise BadSetting(f"{f.name} = {shown(value)}: must be at most {f.metadata['most']}")
    return float(value) + 0.0 if isinstance(f.default, float) else value  # numpy's floats and -0.0 make another key


def _passes(test: Callable[[Any], bool], value: Any) -> bool:
    try:
        return not isinstance(value, bool) and bool(test(value)) and (isinstance(value, str) or isfinite(value))
    except (TypeError, ValueError, OverflowError):
        return False
