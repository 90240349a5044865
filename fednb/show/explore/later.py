"""Work that a picture does not wait for."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread


class Later:
    """Work in a thread: one at a time, then the last that was asked for meanwhile; what lay between is forgotten."""

    def __init__(self) -> None:
        self._next: Callable[[], object] | None = None
        self._lock = Lock()
        self._thread: Thread | None = None

    def do(self, work: Callable[[], object]) -> None:
        with self._lock:
            self._next = work
            if self._thread is None:
                self._thread = Thread(target=self._work, daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Wait until all work that was asked for is done."""
        if thread := self._thread:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                work, self._next = self._next, None
                if work is None:
                    self._thread = None
                    return
            try:
                work()
            except BaseException:
                with self._lock:
                    self._thread = None  # the next work starts anew; the error is told by the thread
                raise
