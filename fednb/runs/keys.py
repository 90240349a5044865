"""A run's identity: its mathematics as plain data, and the key that names it in the store."""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from typing import Any

from fednb import models
from fednb.algorithms.parts import OnlyHead
from fednb.base.codetext import Unreadable, describe, is_outside
from fednb.base.streams import whole_seed
from fednb.core.rounds import Method
from fednb.data.dataset import Given, Source
from fednb.data.sources import find as find_data
from fednb.data.sources import load
from fednb.engines.losses import LOSSES
from fednb.engines.measures import METRICS
from fednb.engines.setting import Setting

RESULTS = 3  # part of every key; raise it when a change makes the same setting give other numbers

_said: set[str] = set()


def identify(setting: Setting, method: Method, seed: int, probe: Any = None) -> dict[str, Any]:
    """All that decides a run's numbers: fields of the setting and of the method's parts, the seed, the probe.

    Names and reporting are labels and no part of it. Code from outside the package is described by what it does; a
    run whose code cannot be read gets a mark of its own every time, so that it is never taken for another one.
    """
    described: dict[str, Any] = {"results": RESULTS, "seed": whole_seed(seed)}
    if changed := _changed(setting, method):
        described["changed"] = changed
    try:
        described["run"] = describe([setting, method] + ([probe] if probe is not None else []) + _registered(setting))
    except Unreadable as error:
        if str(error) not in _said:
            print(f"fednb: run is not reused: the code of {error} cannot be read", file=sys.stderr)
        _said.add(str(error))
        described["once"] = uuid.uuid4().hex
    return described


def _changed(setting: Setting, method: Method) -> list[str]:
    """What has given other numbers since `RESULTS` was raised last, in a few runs, which alone have other keys."""
    if setting.evaluation != "personal" or not setting.tune_epochs:
        return []
    normalised = "-bn" in setting.model or models.own_of(setting.model) is not None
    released = OnlyHead.after(method) != OnlyHead()
    return ["tuning keeps statistics"] * normalised + ["tuning as released"] * released


def own_model(setting: Setting) -> str:
    """A short name for what is a user's own model now; '' for one of the catalogue, or where code cannot be read."""
    own, source = models.own_of(models.find(setting.model)), find_data(setting.data)
    try:
        return key_of(own.identity(*_shape(source), source.text)) if own else ""
    except Unreadable:
        return ""


def key_of(description: Any) -> str:
    """A short name for a description of numbers, texts, lists and dictionaries: 16 hexadecimal digits."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _registered(setting: Setting) -> list[Any]:
    """The setting's model, data, loss and metrics where somebody else has entered them under a name of their own."""
    source, own = find_data(setting.data), models.own_of(setting.model)
    outside = [each for each in (models.MODELS[setting.model], source.reader) if is_outside(each)]
    given = [source.reader] if isinstance(source.reader, Given) else []
    loss, metrics = LOSSES.own(setting.loss), [METRICS.own(name) for name in setting.metrics]
    functions = [each.code() for each in (loss, *metrics) if each is not None]
    return outside + given + ([own.identity(*_shape(source), source.text)] if own else []) + functions


def _shape(source: Source) -> tuple[int, tuple[int, ...]]:
    """The number of classes of a data set and the shape of its samples; read from the data where nobody else knows."""
    return (source.classes, source.shape) if source.classes else (load(source.name).classes, load(source.name).input)
