"""How far the runs of a grid are on a cluster: done, running and where, failed and why, missing, and the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from fednb.base.progress import duration
from fednb.runs.cluster import failures
from fednb.runs.cluster.connection import Connection
from fednb.runs.store import ENDED

if TYPE_CHECKING:
    import pandas as pd

EVERY = 2.0  # seconds between two looks
CLEAR = "\x1b[H\x1b[2J"  # a terminal's own: empty it, and begin at its top
MISSING = ("missing", "begun")


def standing(table: pd.DataFrame, connection: Connection) -> pd.DataFrame:
    """The table of `Grid.status` with what the cluster knows: columns where and why, and `rounds` as they are now.

    status: finished or diverged, running (on the worker in `where`), failed (`why` tells), begun (saved, and on no
    worker now), missing, or "waits for tuning". Its attribute "left" is the seconds that the rest will take, or None.
    """
    work = _at_work(connection)
    rows = [_told(row, work.get(row["key"])) for row in table.to_dict("records")]
    found = table.assign(**{name: [row[name] for row in rows] for name in ("status", "rounds", "where", "why")})
    found.attrs["left"] = _left(rows, work)
    return found


def _at_work(connection: Connection) -> dict[str, dict[str, Any]]:
    """By key, what workers told of runs in their last heartbeats: where, round, rounds, first, seconds."""
    return {
        key: {**known, "where": str(about["name"])}
        for about in connection.workers().values()
        for key, known in about["metrics"].get("fednb", {}).items()
    }


def _told(row: dict[str, Any], known: dict[str, Any] | None) -> dict[str, Any]:
    row = row | {"where": "", "why": ""}
    if row["status"] in ENDED or row["status"] == "waits for tuning":
        return row
    if known:
        done = max(int(known["round"]), _rounds(row)[0])
        return row | {"status": "running", "where": known["where"], "rounds": f"{done}/{int(known['rounds'])}"}
    if why := failures.reason(row["key"]):
        return row | {"status": "failed", "why": why}
    return row | {"status": {"absent": "missing", "running": "begun"}.get(row["status"], row["status"])}


def _rounds(row: dict[str, Any]) -> tuple[int, int]:
    """The finished rounds of a row and all of them, from its text such as 3/10."""
    done, _, of = row["rounds"].partition("/")
    return int(done) if done.isdecimal() else 0, int(of)


def _left(rows: list[dict[str, Any]], work: dict[str, dict[str, Any]]) -> float | None:
    """The seconds that the rest will take at the pace of the runs at work; None where nothing can be said."""
    pace = sum((known["round"] - known["first"]) / known["seconds"] for known in work.values() if known["seconds"] > 0)
    rest = [_rounds(row) for row in rows if row["status"] in ("running", "waits for tuning", *MISSING)]
    return sum(of - done for done, of in rest) / pace if pace > 0 and rest else None


def summary(found: pd.DataFrame) -> str:
    """A line about a table of `standing`: how many runs are done, running, failed and missing, and the time left."""
    counts = found["status"].value_counts()
    done, missing = sum(counts.get(name, 0) for name in ENDED), sum(counts.get(name, 0) for name in MISSING)
    said = [f"{done} done", f"{counts.get('running', 0)} running", f"{counts.get('failed', 0)} failed"]
    said.append(f"{missing + counts.get('waits for tuning', 0)} missing")
    left = found.attrs.get("left")
    return ", ".join(said) + (f"; about {duration(left)} left" if left else "")


def look_at(status: Callable[[], pd.DataFrame], on: str, watch: bool = False) -> pd.DataFrame:
    """The standing of runs on the cluster at `on`; watch: shown again and again until nothing is running or missing.

    status: gives the table of `Grid.status` as it is now. In a notebook one table is renewed in its place, on a
    terminal the screen, and elsewhere there is a line for every change.
    """
    with closing(Connection(on)) as connection:
        found = standing(status(), connection)
        show = _display() if watch else None
        while show is not None:
            show(found)
            if not {"running", "waits for tuning", *MISSING} & set(found["status"]):
                break
            time.sleep(EVERY)
            if connection.is_lost():
                connection.restore()
            found = standing(status(), connection)
        return found


def _display() -> Callable[[pd.DataFrame], None]:
    """How a table is shown that changes."""
    if "ipykernel" in sys.modules:
        return _in_notebook()
    return _on_terminal if sys.stdout.isatty() else _in_lines()


def _in_notebook() -> Callable[[pd.DataFrame], None]:
    from IPython.display import display

    shown: list[Any] = []

    def show(found: pd.DataFrame) -> None:
        picture = found.style.set_caption(summary(found))
        if shown:
            shown[0].update(picture)
        else:
            shown.append(display(picture, display_id=True))

    return show


def _on_terminal(found: pd.DataFrame) -> None:
    rest = found[~found["status"].isin(ENDED)]
    print(f"{CLEAR}{rest.to_string()}\n{summary(found)}", flush=True)


def _in_lines() -> Callable[[pd.DataFrame], None]:
    said: list[str] = []

    def show(found: pd.DataFrame) -> None:
        line = summary(found)
        if line.partition(";")[0] not in said[-1:]:
            print(line, flush=True)
            said.append(line.partition(";")[0])

    return show
