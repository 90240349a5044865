"""Work on a GPU that is launched again and again: captured as one CUDA graph, and compiled before that where it pays.

Everything that such work reads or writes lies in buffers that never move.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.base.processes.ending import causes
from fednb.core.record import Answer, Oracle
from fednb.data.resident import ResidentPlan
from fednb.engines.compiled import Buffers, Traced, kept_in
from fednb.engines.convolve import FORMS, channels_last
from fednb.engines.objective import arithmetic
from fednb.engines.repeats import without_repeats

OracleOf = Callable[[ResidentPlan], Oracle]
Work = Callable[[Buffers], None]
FIXED = "data."  # names of buffers that are only read begin with it
STREAMS = 32  # that torch has of one priority
LATER = (30, 60, 120, 240, 480)  # seconds, at most, after which what had no room to be compiled is tried again

_one_at_a_time = threading.Lock()  # tracing has a global flag, and a capture ends where another thread compiles


class Launched:
    """A function of buffers as something to launch: call by call ("eager"), as a graph, or "compiled" before that.

    What was never compiled before is launched as a graph at first, and changes over when a process has compiled it;
    where there is no folder to keep it in it is compiled here and now. can_wait: other work is compiled first.
    over: set where nobody will launch it again.
    """

    def __init__(
        self, work: Work, buffers: Buffers, mode: str, what: str, precision: str, can_wait: bool = False
    ) -> None:
        self.work, self.buffers, self.what, self.precision, self.can_wait = work, buffers, what, precision, can_wait
        self.launch: Callable[[], None] = lambda: work(buffers)
        self.coming: Future[Work] | None = None
        self.over = False
        if mode == "eager":
            return
        with _one_at_a_time, arithmetic(precision):
            began = time.perf_counter()
            self.launch = self._captured(mode == "compiled")
        if self.coming:
            give_back()  # what the trial took, which the compiler may need
        more = " and compiles it meanwhile" if self.coming else ""
        _say(f"captured {what} in {time.perf_counter() - began:.1f} s{more}")

    def __call__(self) -> None:
        self.launch()

    def renew(self) -> None:
        """Change over to what was compiled meanwhile, if it is ready; not inside of `launching`."""
        if self.coming is not None and self.coming.done():
            self._change_over(self.coming)

    def _captured(self, compiled: bool) -> Callable[[], None]:
        trial = self._trial()
        self.work(trial)  # what is made once and kept is made now, not inside the graph
        if compiled:
            listed = Traced(traced(self.work, trial), self.precision)
            if (made := listed.loaded(trial)) is None and kept_in() is not None:
                self.coming = self._compiling(listed)
            else:
                self.work = made or listed.compiled(trial)
        return recorded(self.work, self.buffers, trial)

    def _trial(self) -> Buffers:
        """Buffers to try things on; those that are only read are the very same."""
        return {name: x if name.startswith(FIXED) else x.clone() for name, x in self.buffers.items()}

    def _compiling(self, listed: Traced) -> Future[Work]:
        """What the work will be when another process has compiled it."""
        coming: Future[Work] = Future()

        def wait() -> None:
            try:
                coming.set_result(self._compiled_elsewhere(listed))
            except BaseException as error:
                coming.set_exception(error)

        threading.Thread(target=wait, name=f"fednb compiles {self.what}", daemon=True).start()
        return coming

    def _compiled_elsewhere(self, listed: Traced) -> Work:
        """Let another process compile this; where the device has no room for that, try again later."""
        waits = iter(LATER)
        while True:
            began = time.perf_counter()
            try:
                made = listed.compiled_elsewhere(self.buffers, self.can_wait)
                _say(f"compiled {self.what} in {time.perf_counter() - began:.1f} s")
                return made
            except torch.OutOfMemoryError:
                if (seconds := next(waits, None)) is None:
                    raise
                _say(f"{self.what} is slower for now: the device has no room to compile it")
                with _room:
                    _room.wait(seconds)
                if self.over:
                    raise
            give_back()

    def _change_over(self, coming: Future[Work]) -> None:
        """Go on with what was compiled; if that failed, with what there is."""
        if not _one_at_a_time.acquire(blocking=False):
            return  # another is being made: at a later launch
        try:
            self.coming = None
            self._take_up(coming.result())
        except Exception as error:
            _say(f"{self.what} is not compiled, and is slower: {str(error).splitlines()[0]}")
        finally:
            _one_at_a_time.release()

    def _take_up(self, made: Work) -> None:
        """Launch this from now on. The graph of what was launched so far goes first: there may be no room for both."""
        before = self.work
        if any(x.is_cuda for x in self.buffers.values()):
            torch.cuda.synchronize()  # it may be under way
        self.launch = partial(before, self.buffers)
        with arithmetic(self.precision):
            try:
                self.launch, self.work = recorded(made, self.buffers, self._trial()), made
            except Exception:
                self.launch = recorded(before, self.buffers, self._trial())
                raise


_room = threading.Condition()  # told when graphs have gone


@contextmanager
def letting_go() -> Iterator[None]:
    """A block in which graphs are forgotten that nobody needs any more; then their memory goes back to the device.

    What lacked room to be compiled is tried again. A graph that went while another is captured would end the capture.
    """
    with _one_at_a_time:
        yield
    give_back()
    with _room:
        _room.notify_all()


def give_back() -> None:
    """Give memory that is free within this process back to the device, for others; not while a graph is captured."""
    with _one_at_a_time:
        torch.cuda.empty_cache()


def busy() -> bool:
    """Whether work is being captured or compiled just now: who asks for more has to wait."""
    return _one_at_a_time.locked()


def recorded(work: Work, buffers: Buffers, trial: Buffers) -> Callable[[], None]:
    """The work on these buffers as a CUDA graph; others like them are for trying out what must not be in it.

    A capture that an error ends has an error of its own, which would hide the first: the first is raised.
    """
    fault: BaseException | None = None
    with alone():
        with fastest_convolutions():
            _warm(work, trial)
        graph, stream = torch.cuda.CUDAGraph(), stream_of_its_own()
        weakref.finalize(graph, _streams.discard, stream.cuda_stream)
        try:
            with nothing_collected(), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                work(buffers)
        except RuntimeError as error:
            *_, fault = causes(error)
    if fault is not None:
        raise fault
    return graph.replay


_streams: set[int] = set()  # on which graphs were captured that are still there


def stream_of_its_own() -> torch.cuda.Stream:
    """A stream for one graph: those captured on the same one share memory, which goes when the first of them goes."""
    for _ in range(STREAMS):  # torch gives the same ones again, in turns
        stream = torch.cuda.Stream(priority=-1)
        if stream.cuda_stream not in _streams:
            _streams.add(stream.cuda_stream)
            return stream
    raise RuntimeError(f"more than {STREAMS} graphs at a time")


_quiet = threading.Condition()
_launching: list[int] = []  # a one for each thread that gives work to a device just now
_wanted: list[int] = []  # a one for each thread that wants it for itself


@contextmanager
def launching() -> Iterator[None]:
    """A block in which work is given to a device; waits while another thread needs it for itself.

    Convolutions of new shapes belong inside. While a thread has `fastest_convolutions` on, those of all threads try
    algorithms and then free memory; in the middle of a capture that would end it.
    """
    with _quiet:
        _quiet.wait_for(lambda: not _wanted)
        _launching.append(1)
    try:
        yield
    finally:
        with _quiet:
            _launching.pop()
            _quiet.notify_all()


@contextmanager
def alone() -> Iterator[None]:
    """A block in which no thread is `launching`: an algorithm that is timed beside others seems slow, for minutes."""
    with _quiet:
        _wanted.append(1)
        _quiet.wait_for(lambda: not _launching)
    try:
        yield
    finally:
        with _quiet:
            _wanted.pop()
            _quiet.notify_all()


def _say(what: str) -> None:
    print(f"fednb: {what}", file=sys.stderr)


class CapturedOracle:
    """The gradients of a cohort where a method looks outside of its steps: a pilot, a loss before training."""

    def __init__(
        self, w: Tensor, b: Tensor, g: Tensor, plan: ResidentPlan, size: tuple[int, int], oracle_of: OracleOf,
        last: int | None, precision: str,
    ) -> None:  # fmt: skip
        clients, most = size
        self.buffers = room_for_batches(plan, clients, most)
        self.buffers |= {name: x.new_zeros(clients, x.shape[-1]) for name, x in (("w", w), ("b", b), ("g", g))}
        self.buffers |= {name: w.new_zeros(clients, 1) for name in ("loss", "count")}

        def ask(buffers: Buffers) -> None:
            oracle = oracle_of(plan_of(plan, buffers))
            g, loss, count, _ = oracle(buffers["w"], buffers["b"], buffers["step"], last=last)
            for name, x in (("g", g), ("loss", loss), ("count", count)):
                buffers[name].copy_(x)

        self.launch = Launched(ask, self.buffers, "graph", f"a gradient of {clients} clients", precision)

    def turn_to(self, plan: ResidentPlan) -> None:
        """Copy a round's batches into the buffers that the captured gradient reads."""
        C, S, _ = plan.index.shape
        self.buffers["index"].fill_(-1)
        self.buffers["index"][:C, :S].copy_(plan.index)
        if plan.how is not None:
            self.buffers["how"][:C, :S].copy_(plan.how)

    def __call__(self, w: Tensor, b: Tensor, step: int | Tensor) -> Answer:
        own, C = self.buffers, len(w)
        own["w"][:C].copy_(w)
        own["b"][:C].copy_(b)
        own["step"].fill_(step)
        self.launch()
        return own["g"][:C].clone(), own["loss"][:C].clone(), own["count"][:C].clone(), b


def room_for_batches(plan: ResidentPlan, clients: int, most: int) -> Buffers:
    """Buffers for the batches of so many clients and steps, the number of a step, and the samples themselves."""
    b = {"index": plan.index.new_full((clients, most, plan.index.shape[2]), -1)}
    if plan.how is not None:
        b["how"] = plan.how.new_zeros((*b["index"].shape, 3))
    b["step"] = torch.zeros((), dtype=torch.int64, device=plan.index.device)
    return b | {f"{FIXED}x": plan.home.data.x, f"{FIXED}y": plan.home.data.y}


def plan_of(plan: ResidentPlan, b: Buffers) -> ResidentPlan:
    """The batches that lie in buffers."""
    return ResidentPlan(plan.home.holding(b[f"{FIXED}x"], b[f"{FIXED}y"]), b["index"], b.get("how"))


def traced(work: Work, buffers: Buffers) -> torch.fx.GraphModule:
    """The work as a list of operations: convolutions in forms that suit a GPU, no copy made twice."""
    return without_repeats(channels_last(make_fx(work, decomposition_table=FORMS)(buffers)))


def _warm(work: Work, trial: Buffers) -> None:
    """Let the work compile, try algorithms and make plans of transforms: none of it may be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            if "step" in trial:
                trial["step"].zero_()
            work(trial)
    torch.cuda.current_stream().wait_stream(side)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Collect garbage now, not while a graph is captured: an old graph that goes then takes the new one with it."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def fastest_convolutions() -> Iterator[None]:
    """Let the library try all its algorithms for each new shape and keep the fastest; for use before a capture."""
    cudnn = torch.backends.cudnn
    was = cudnn.benchmark, cudnn.benchmark_limit
    cudnn.benchmark, cudnn.benchmark_limit = True, 0
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.benchmark_limit = was
