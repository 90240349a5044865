"""Child processes: started without the current folder on their path, ended when their parent ends.

As a program this file is the first thing that a child runs: `child.py START -m MODULE ARGUMENTS`. It needs nothing but
the standard library, so that a parent which dies while its child still loads torch is noticed as well.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # what a terminal or a manager of jobs ends processes with
PULSE = 0.5  # seconds between two looks at the parent, and between two beats
GRACE = 60.0  # seconds that a child without a parent has for saving
PR_SET_PDEATHSIG = 1


def python(
    *arguments: str, dies_by: int = signal.SIGTERM, deaf: Iterable[int] = (), beat: int | None = None
) -> list[str]:
    """The command of a Python child, such as `python("-m", "fednb", "ls", "data")`.

    dies_by: the signal that the child gets when this process is no more. deaf: signals that it ignores.
    beat: a file descriptor on which a counter goes up twice a second for as long as the child runs.
    """
    start = {
        "parent": os.getpid(),
        "by_kernel": threading.current_thread() is threading.main_thread(),  # the kernel goes by the thread that starts
        "dies_by": int(dies_by),
        "deaf": [int(number) for number in deaf],
        "beat": beat,
        "path": folders(),
    }
    return [sys.executable, "-P", os.path.abspath(__file__), json.dumps(start), *arguments]


def folders() -> list[str]:
    """Where a child looks for modules: where this process does, but not in the current folder unless somebody named it.

    `python -m` and `python -c` put the current folder first by themselves. It comes last in the child, and only where
    this process has a module from there.
    """
    kept = [folder for folder in sys.path if os.path.isabs(folder)]
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was removed
        return kept
    by_module = getattr(sys.modules.get("__main__"), "__spec__", None) is not None
    if by_module and not sys.flags.safe_path and kept[:1] == [here]:
        del kept[0]
    return kept if here in kept or here not in _sources() else [*kept, here]


def _sources() -> set[str]:
    """The folders from which the modules and packages of this process were loaded."""
    found = set()
    for name, module in list(sys.modules.items()):
        if "." in name or name == "__main__":
            continue
        if places := list(getattr(module, "__path__", [])):  # a package; without __init__.py it has no file
            found |= {os.path.dirname(os.path.abspath(place)) for place in places}
        elif file := getattr(module, "__file__", None):
            found.add(os.path.dirname(os.path.abspath(file)))
    return found


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that end a process come after this block; a child started in it does not hear them before it can."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main() -> None:
    """In the child: bind its life to the parent's, then run the module."""
    start, flag, module, *arguments = sys.argv[1:]
    told = json.loads(start)
    if told["by_kernel"] and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, told["dies_by"], 0, 0, 0)
    if os.getppid() != told["parent"]:  # it ended before the line above
        os._exit(1)
    for number in told["deaf"]:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    threading.Thread(target=_live, args=(told["parent"], told["dies_by"], told["beat"]), daemon=True).start()
    sys.path[:] = told["path"]
    sys.argv[1:] = arguments
    assert flag == "-m"
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _live(parent: int, dies_by: int, beat: int | None) -> None:
    """Count on `beat` while the parent lives; then send this process its signal, and after a while SIGKILL."""
    count = 0
    while os.getppid() == parent:
        count += 1
        if beat is not None:
            os.pwrite(beat, count.to_bytes(8, "little"), 0)
        time.sleep(PULSE)
    os.kill(os.getpid(), dies_by)
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
