"""The command `dask` in a process that tells every round that it really makes, and that can be slow or held up.

FEDNB_TEST_ROUNDS: a file that gets a line "key round process" for every round. FEDNB_TEST_SLOW: the seconds that each
of them takes longer. FEDNB_TEST_GATE: a file with a number; while it is there, no run gets past the round it names.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path


def plug() -> None:
    from fednb.runs import experiment

    plain, slow = experiment._one_round, float(os.environ.get("FEDNB_TEST_SLOW", 0))

    def one_round(engine, judge, method, s, table, ids, setting, probe, entry):
        t = s.t
        row = plain(engine, judge, method, s, table, ids, setting, probe, entry)
        with open(os.environ["FEDNB_TEST_ROUNDS"], "a") as file:
            file.write(f"{entry.key} {t} {os.getpid()}\n")
        time.sleep(slow)
        while t >= _gate():
            time.sleep(0.02)
        return row

    experiment._one_round = one_round


def _gate() -> float:
    """The round behind which all runs wait."""
    try:
        return int(Path(os.environ["FEDNB_TEST_GATE"]).read_text())
    except FileNotFoundError:
        return float("inf")


def die_with(parent: int) -> None:
    """End as soon as whoever started this process has ended, however that was."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


if __name__ == "__main__":
    import sys

    from dask.cli import run_cli

    threading.Thread(target=die_with, args=(os.getppid(),), daemon=True).start()

    if "worker" in sys.argv:
        plug()
    run_cli()
