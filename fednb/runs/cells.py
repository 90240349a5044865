"""The runs of a grid as its file describes them: settings x methods x seeds, checked before anything is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from itertools import product
from math import prod
from typing import Any

from fednb.algorithms.catalogue import method, sums
from fednb.base.checks import MOST_SEED, is_number, is_text, is_whole
from fednb.base.inputs import shown
from fednb.core.rounds import Method
from fednb.data.sources import title
from fednb.data.split import Partition
from fednb.engines.setting import Setting
from fednb.runs.probes import Probe

SCALES = ("smoke", "laptop", "paper")
RULES = ("test", "held-out", "validation")  # on which data values are chosen; the last two are training data
SHARED = tuple(f.name for f in fields(Setting))  # what methods share; any other parameter is a method's own


class BadGrid(ValueError):
    """A grid that cannot be made from what was given."""


@dataclass(frozen=True)
class Cell:
    """One run of a grid, and the values that tell it from the others.

    label: the name that the paper's table has for the method. tune: values to try, by parameter, for a method that is
    tuned. tuned: which of them was chosen, in words. waits: True as long as none is chosen.
    """

    setting: Setting
    method: Method
    seed: int
    tags: dict[str, Any]
    label: str = ""
    tune: dict[str, list[Any]] = field(default_factory=dict)
    tuned: str = ""
    waits: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.method.name)


def cells_of(where: str, scale: str, described: dict[str, Any], seeds: list[int] | None = None) -> tuple[Cell, ...]:
    """The cells that a grid's description has at one scale (see `Grid.of`); BadGrid where it is not of that form."""
    _check(where, described)
    described = _at_scale(where, scale, _summed(described))
    seeds = seeds or described.get("seeds", [0])
    _count(where, described, seeds)
    base = Setting().but(**described.get("setting", {}))
    return tuple(
        cell
        for case in described.get("cases", [{}])
        for cell in _cells(where, base, described | case, _own_tags(case), seeds)
    )


PROBE = tuple(f.name for f in fields(Probe))


def _lists(value: Any) -> bool:
    return all(isinstance(each, list) and each for each in value.values())


def _is_method(value: Any) -> bool:
    """A name; or a table with a name, where label, setting, tune and scales are what they should be."""
    if isinstance(value, str):
        return True
    named = isinstance(value.get("name"), str | Method) and isinstance(value.get("label", ""), str)
    scales = value.get("scales", [])
    return (
        named
        and isinstance(value.get("setting", {}), dict)
        and _lists(value.get("tune", {}))
        and isinstance(scales, list)
        and set(scales) <= set(SCALES)
    )


def _are_seeds(value: Any) -> bool:
    whole = isinstance(value, list) and len(value) > 0 and all(is_whole(seed, 0, MOST_SEED) for seed in value)
    return whole and len(set(value)) == len(value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool) or is_number(value) or is_text(value)


def _are_tags(value: Any) -> bool:
    lists = [each if isinstance(each, list) else [each] for each in value.values()]
    return all(each and all(map(_is_plain, each)) for each in lists)


FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "setting": ("a table of settings", lambda v: isinstance(v, dict)),
    "vary": ("a table of lists, none of them empty", _lists),
    "cases": ("a list of tables", lambda v: isinstance(v, list) and all(isinstance(case, dict) for case in v)),
    "methods": ("a list of names, or of tables with a name", lambda v: isinstance(v, list) and all(map(_is_method, v))),
    "sweep": ("a table of lists, none of them empty", _lists),
    "tune": ("a table of lists, none of them empty", _lists),
    "tune_by": (" | ".join(RULES), lambda v: v in RULES),
    "tune_seeds": ("a list of whole numbers of at least 0, none twice", _are_seeds),
    "tune_where": ("a table of values, or of lists of them", _are_tags),
    "seeds": ("a list of whole numbers of at least 0, none twice", _are_seeds),
    "probe": (f"a table of {', '.join(PROBE)}", lambda v: isinstance(v, dict) and set(v) <= set(PROBE)),
    "sums": ("a table of tables of texts",
             lambda v: all(isinstance(text, str) for axis in v.values() for text in axis.values())),
}  # fmt: skip
KNOWN = tuple(name for name in FORMS if name != "sums")  # sums become cases
MOST_RUNS = 100_000


def _check(where: str, described: dict[str, Any]) -> None:
    """Refuse a description that is not of the form that `Grid.of` tells, before anything is made of it."""
    if unknown := [entry for entry in described if entry not in FORMS]:
        raise BadGrid(f"{where}: unknown entry {shown(unknown[0])}; known are {', '.join(FORMS)}")
    for entry, value in described.items():
        _fit(where, entry, value)
    for number, case in enumerate(described.get("cases", []), 1):
        for entry, value in case.items():
            if entry in KNOWN:
                _fit(f"{where}, case {number}", entry, value)
            elif not _is_plain(value):
                raise BadGrid(f"{where}, case {number}: {shown(entry)} = {shown(value)} must be a text or a number")
    for case in described.get("cases", [{}]):
        if "sums" not in described and not (case.get("methods") or described.get("methods")):
            raise BadGrid(f"{where}: `methods` must be a list of names")


def _fit(where: str, entry: str, value: Any) -> None:
    allowed, test = FORMS[entry]
    try:
        fine = test(value)
    except (AttributeError, TypeError):
        fine = False
    if not fine:
        raise BadGrid(f"{where}: `{entry}` must be {allowed}, not {shown(value)}")


def _at_scale(where: str, scale: str, described: dict[str, Any]) -> dict[str, Any]:
    """The description without methods whose `scales` do not have this one."""

    def listed(methods: list[Any]) -> list[Any]:
        kept = [m for m in methods if isinstance(m, str) or "scales" not in m or scale in m["scales"]]
        if methods and not kept:
            raise BadGrid(f"{where}: no method has this scale among its `scales`")
        return kept

    cases = [case | ({"methods": listed(case["methods"])} if "methods" in case else {})
             for case in described.get("cases", [{}])]  # fmt: skip
    return described | {"methods": listed(described.get("methods", [])), "cases": cases}


def _count(where: str, described: dict[str, Any], seeds: list[int]) -> None:
    """Refuse a grid with more runs than anybody can want, before they are made."""
    total = 0
    for case in described["cases"]:
        own = described | case
        lists = [*own.get("vary", {}).values(), *own.get("sweep", {}).values(), own["methods"], seeds]
        total += prod(map(len, lists))
    if total > MOST_RUNS:
        raise BadGrid(f"{where}: {shown(total)} runs; a grid has at most {MOST_RUNS}")


def _summed(described: dict[str, Any]) -> dict[str, Any]:
    """Sums written out: a case for each, told apart by the names of its ideas."""
    if "sums" not in described:
        return described
    if (total := prod(map(len, described["sums"].values()))) > MOST_RUNS:
        raise BadGrid(f"`sums` make {shown(total)} methods; a grid has at most {MOST_RUNS} runs")
    cases = [{**names, "methods": [{"name": m}]} for names, m in sums(described["sums"]) if isinstance(m, Method)]
    return {entry: value for entry, value in described.items() if entry != "sums"} | {"cases": cases}


def _own_tags(case: dict[str, Any]) -> dict[str, Any]:
    return {tag: value for tag, value in case.items() if tag not in KNOWN}


def _cells(
    where: str, base: Setting, described: dict[str, Any], tags: dict[str, Any], seeds: list[int]
) -> Iterator[Cell]:
    """The runs of one case: its settings times its methods times the seeds."""
    base = base.but(**described.get("setting", {}))
    for name, values in described.get("sweep", {}).items():
        _each_once(where, name, [*filter(_is_plain, values)])
    settings = list(_varied(where, base, described.get("vary", {})))
    rows = [row for entry in described["methods"] for row in _rows(where, entry, described)]
    for setting, varied in settings:
        for row in rows:
            found = {"dataset": title(setting.data), **tags, **varied, **row.swept}
            own = setting.but(**row.own)
            yield from (Cell(own, row.method, seed, found, row.label, row.tune) for seed in seeds)


def _each_once(where: str, name: str, values: list[Any]) -> None:
    """Refuse a list in which a value stands twice."""
    if twice := [value for at, value in enumerate(values) if values.index(value) < at]:
        raise BadGrid(f"{where}: {name} has {shown(twice[0])} twice; leave one of them out")


def _varied(where: str, base: Setting, vary: dict[str, list[Any]]) -> Iterator[tuple[Setting, dict[str, Any]]]:
    """The settings that `vary` makes of a base, all values with all, each with its tags."""
    settings = [base.but(**dict(zip(vary, values, strict=True))) for values in product(*vary.values())]
    used, step = {}, len(settings)
    for name, values in vary.items():
        step //= len(values)
        used[name] = [getattr(setting, name) for setting in settings[::step][: len(values)]]  # nothing else differs
        _each_once(where, name, used[name])
    partitions = used.pop("partition", [])
    told = _partition_tags(partitions)
    for setting in settings:
        tags = {name: getattr(setting, name) for name in used}
        yield setting, tags | (told[partitions.index(setting.partition)] if partitions else {})


def _partition_tags(partitions: list[Partition]) -> list[dict[str, Any]]:
    """The tag of each of several partitions: alpha where they are of one kind and no two share it, else the text.

    Equal texts, such as those of two lambdas, are followed by their place in the list.
    """
    alphas = [getattr(partition, "alpha", None) for partition in partitions]
    if None not in alphas and len({*map(type, partitions)}) == 1 and len({*alphas}) == len(alphas):
        return [{"alpha": alpha} for alpha in alphas]
    texts = [str(partition) for partition in partitions]
    return [{"partition": text if texts.count(text) == 1 else f"{text} ({at})"} for at, text in enumerate(texts, 1)]


@dataclass(frozen=True)
class Row:
    """A line of a table: a method with its label, its own settings, its values of a sweep, and what is tuned for it."""

    label: str
    method: Method
    own: dict[str, Any]
    swept: dict[str, Any]
    tune: dict[str, list[Any]]


def _rows(where: str, entry: str | dict[str, Any], described: dict[str, Any]) -> Iterator[Row]:
    """A method of a grid's list, once for each value of the sweep that it stands for."""
    about: dict[str, Any] = {"name": entry} if isinstance(entry, str) else dict(entry)
    label, own, tune = about.pop("label", ""), about.pop("setting", {}), about.pop("tune", None)
    about.pop("scales", None)
    made, sweep = method(**about), described.get("sweep", {})
    label, parameters = label or made.name, made.parameters()
    names = [name for name in sweep if name in parameters and name not in about]
    open_to = {*SHARED, *parameters} - {*about, *own, *names}
    tuned = _tuned(f"{where}: {label}", tune, described, open_to)
    for values in product(*(sweep[name] for name in names)):
        swept = dict(zip(names, values, strict=True))
        yield Row(label, made.but(**swept), own, swept, tuned)


def _tuned(
    where: str, own: dict[str, list[Any]] | None, described: dict[str, Any], open_to: set[str]
) -> dict[str, list[Any]]:
    """What is tuned for a method: its own `tune`, all of it, or what the method is open to of the grid's."""
    tune = described.get("tune", {}) if own is None else own
    if both := [name for name in tune if name in {**described.get("vary", {}), **described.get("sweep", {})}]:
        raise BadGrid(f"{where}: {shown(both[0])} is both varied and tuned; leave it out of one of them")
    if own and (unknown := [name for name in own if name not in open_to]):
        raise BadGrid(f"{where} has no {shown(unknown[0])} to tune, or it is given")
    for name, values in tune.items():
        _each_once(where, f"tune {name}", [*filter(_is_plain, values)])
    return {name: values for name, values in tune.items() if name in open_to}
