"""The command `dask` in a process that tells every round that it really makes, and that can be slow.

FEDNB_TEST_ROUNDS: a file that gets a line "key round process" for every round. FEDNB_TEST_SLOW: the seconds that each
of them takes longer.
"""

from __future__ import annotations

import os
import threading
import time


def plug() -> None:
    from fednb.runs import experiment

    plain, slow = experiment._one_round, float(os.environ.get("FEDNB_TEST_SLOW", 0))

    def one_round(engine, judge, method, s, table, ids, setting, probe, entry):
        t = s.t
        row = plain(engine, judge, method, s, table, ids, setting, probe, entry)
        with open(os.environ["FEDNB_TEST_ROUNDS"], "a") as file:
            file.write(f"{entry.key} {t} {os.getpid()}\n")
        time.sleep(slow)
        return row

    experiment._one_round = one_round


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
