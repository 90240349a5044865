"""Runs of the store as a command line names them: by key and by filters; and as a terminal shows them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fednb.base.progress import duration
from fednb.cli.options import seconds_of
from fednb.runs.listing import STATUSES, table_of
from fednb.runs.store import Entry, entries, find
from fednb.study.columns import WIDTH

if TYPE_CHECKING:
    import pandas as pd

FILTERS = ("method", "data", "seed", "status", "older_than")
SHOWN = ["method", "data", "partition", "seed", "rounds", "status", "accuracy", "weights", "size", "age"]


def add_keys(verb: argparse.ArgumentParser) -> None:
    """Arguments for single runs."""
    verb.add_argument("keys", nargs="*", metavar="KEY", help="only these runs; the beginning of a key is enough")


def add_filters(verb: argparse.ArgumentParser) -> None:
    """Options for runs by what they are."""
    verb.add_argument("--method", action="append", help="of this method; * is any letters; may be repeated")
    verb.add_argument("--data", action="append", help="on these data; may be repeated")
    verb.add_argument("--seed", action="append", type=int, help="with this seed; may be repeated")
    verb.add_argument("--status", action="append", choices=STATUSES, help="may be repeated")
    verb.add_argument("--older-than", type=days_of, metavar="AGE", help="ended longer ago than this: 12h, 30d")


def days_of(text: str) -> float:
    """A time as typed, such as 30d, in days."""
    return seconds_of(text) / 86400


def named_runs(asked: argparse.Namespace) -> list[Entry]:
    """The runs whose keys a command line names; all of the store where it names none."""
    return list(dict.fromkeys(map(find, asked.keys))) if asked.keys else entries()


def is_filtered(asked: argparse.Namespace) -> bool:
    """Whether a command line has filters."""
    return any(getattr(asked, name) is not None for name in FILTERS)


def filtered(asked: argparse.Namespace, runs: list[Entry]) -> pd.DataFrame:
    """The table of those runs that a command line's filters let through."""
    return table_of(runs, **{name: value for name in FILTERS if (value := getattr(asked, name)) is not None})


def readable(found: pd.DataFrame) -> str:
    """A table of runs for a terminal: rounds of how many, sizes and ages for people, a dash for what is not known.

    Partitions, then data and methods, are cut where a line would have more than 100 letters.
    """
    numbers = found.astype(object).where(found.notna(), None)
    texts = numbers.assign(
        rounds=[f"{_text(done)}/{_text(of)}" for done, of in zip(numbers["rounds"], numbers["planned"], strict=True)],
        accuracy=[_text(x, "{:.2f}") for x in numbers["accuracy"]],
        size=[size_of(x) for x in found["bytes"]],
        age=[duration(86400 * x) for x in found["days"]],
    )
    shown = texts[SHOWN].map(_text).reset_index()
    for column in ("partition", "data", "method"):  # a run stays on one line; `--csv` has all of it
        over = max(map(len, shown.to_string(index=False).splitlines())) - WIDTH
        room = max(len(column), int(shown[column].str.len().max()) - max(0, over))
        shown[column] = [text if len(text) <= room else f"{text[: room - 1]}…" for text in shown[column]]
    return shown.to_string(index=False)


def _text(value: Any, form: str = "{}") -> str:
    return "-" if value is None else form.format(value)


def size_of(count: float) -> str:
    """Bytes for people.

    >>> size_of(900), size_of(34_220), size_of(2_500_000_000)
    ('900 B', '34.2 kB', '2.5 GB')
    """
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 999.95 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.1f} {units[0]}"


def runs_of(count: int) -> str:
    """A number of runs in words: "1 run", "12 runs"."""
    return f"{count} run{'s' * (count != 1)}"
