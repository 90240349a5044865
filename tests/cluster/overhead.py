"""What a cluster costs: 200 tiny runs in one process, on one worker and on two; printed, and never asserted.

Called as `OMP_NUM_THREADS=1 PYTHONPATH=tests python -m cluster.overhead [RUNS [SECONDS]]`. SECONDS is what every run
waits beside its work, without a core: so two workers can be compared with one on a machine whose cores are busy.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from cluster.machines import Machines, wait_until
from fednb.runs import together
from fednb.runs.cluster.dispatch import run_all
from fednb.runs.grid import Grid
from fednb.runs.together import Wanted

SETTING = dict(data="digits", samples=100, clients=2, participation=1.0, rounds=1, epochs=1, batch=50)


def wanted(count: int, first: int) -> list[Wanted]:
    grid = Grid.of("tiny", "smoke", dict(setting=SETTING, methods=["FedAvg"], seeds=list(range(first, first + count))))
    return [Wanted(cell.setting, cell.method, cell.seed) for cell in grid.cells]


def timed(runs) -> float:
    """Seconds from the first run that is made to the last: workers have loaded what they need by then."""
    times = [time.perf_counter() for _, made in runs if made.status == "finished"]
    return (times[-1] - times[0]) / (len(times) - 1)


def on_workers(count: int, number: int, folder: Path, shared: bool, wait: float, first: int) -> float:
    """Seconds a run on so many workers."""
    folder.mkdir()
    machines = Machines(folder)
    try:
        for n in range(number):
            machines.start_worker(f"w{n}", None if shared else folder / f"store{n}", FEDNB_TEST_SLOW=str(wait))
        wait_until(lambda: len(machines.at_work()) == number, "workers")
        list(run_all(wanted(2 * number, first + count), machines.address, device="cpu"))  # warm up
        return timed(run_all(wanted(count, first), machines.address, device="cpu"))
    finally:
        machines.end()


def main(count: int, wait: float) -> None:
    folder = Path(tempfile.mkdtemp())
    os.environ["FEDNB_STORE"] = str(folder / "store")
    here = timed(together.run_all(wanted(count, 0), device="cpu", engine="loop")) + wait
    print(f"one process: {here:.3f} s a run, {count} runs", flush=True)
    for at, kind in enumerate(("shared", "separate")):
        one, two = (
            on_workers(count, n, folder / f"{kind}{n}", kind == "shared", wait, 10 * count * (2 * at + n))
            for n in (1, 2)
        )
        print(f"{kind} store: one worker {one:.3f} s a run (overhead {one - here:.3f} s), two workers {two:.3f} s, "
              f"{one / two:.2f} times as fast", flush=True)  # fmt: skip


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 200, float(given[1]) if given[1:] else 0.0)
