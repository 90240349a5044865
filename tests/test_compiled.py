"""Compiled work is kept in a folder, found again by what it computes, and made anew where its file is damaged."""

import subprocess
import threading
import weakref

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.engines import captured, compiled, compiler
from fednb.engines.captured import Launched
from fednb.engines.compiled import Traced

Thread = threading.Thread  # a real one, where tests have put another in its place


class Standing:
    """In place of a compiler: it computes what was traced, and writes down that it was asked."""

    made = 0

    def __init__(self, graph):
        type(self).made += 1
        self.graph = graph

    def __call__(self, *inputs):
        return self.graph(*inputs)

    def save(self, path, format):
        torch.save(self.graph.code, path)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """The folder for what is kept; the compiler's process is this one, and what was loaded adds 100."""

    def here(command, **how):
        try:
            compiler.main(command[-1])
        except ValueError as error:
            return subprocess.CompletedProcess(command, 1, "", f"Traceback\n{error}\n")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv(compiled.FOLDER, str(tmp_path))
    monkeypatch.setattr("torch._inductor.standalone_compile", lambda graph, inputs, dynamic_shapes: Standing(graph))
    monkeypatch.setattr(compiled, "_read", lambda path: lambda *inputs: inputs[0].add_(100))
    monkeypatch.setattr(subprocess, "run", here)
    Standing.made = 0
    return tmp_path / "steps"


def buffers():
    return {"w": torch.arange(3.0), "x": torch.ones(3), "step": torch.zeros(())}


def listed(factor=2.0, precision="fp32"):
    held = torch.full((3,), factor)

    def work(b):
        b["w"].copy_(b["w"] + b["x"] * held + b["x"] * held)
        b["step"].add_(1)

    return Traced(make_fx(work)(buffers()), precision)


def test_what_was_traced_is_a_list_of_tensors_in_and_nothing_out():
    """A tensor from outside is an input, once, however often it is read."""
    work, b = listed(), buffers()
    work(b)
    assert b["w"].tolist() == [4.0, 5.0, 6.0] and b["step"] == 1
    assert len(work.inputs(b)) == 4 and not list(work.graph.buffers())


def test_tensors_from_outside_are_told_apart_from_operations_of_any_name():
    """Two operations are named `held`, and three tensors come from outside: none is mixed up with another."""
    one, two, three = (torch.full((3,), x) for x in (1.0, 10.0, 100.0))

    def work(b):
        seen = torch.ops.fednb.held(b["x"] * one) + torch.ops.fednb.held(b["x"] * two)
        b["w"].copy_(seen + three)

    traced, b = Traced(make_fx(work)(buffers()), "fp32"), buffers()
    traced(b)
    assert b["w"].tolist() == [111.0] * 3


def test_another_process_compiles_and_what_it_made_is_found_by_all(folder):
    b = buffers()
    assert listed().loaded(b) is None
    listed().compiled_elsewhere(b)(b)
    assert b["w"].tolist() == [100.0, 101.0, 102.0], "loaded, and the trial was another's"
    listed().loaded(b)(b)
    assert b["w"].tolist() == [200.0, 201.0, 202.0] and len(list(folder.iterdir())) == Standing.made == 1


def test_an_order_has_the_very_graph():
    work, b = listed(), buffers()
    graph, inputs, precision, path = compiled.ordered(compiled.as_order(work, b, "there"))
    assert graph.code == work.graph.code and (precision, path) == ("fp32", "there")
    assert [(x.shape, x.dtype) for x in inputs] == [(x.shape, x.dtype) for x in work.inputs(b)]
    graph(*work.inputs(b))
    assert b["w"].tolist() == [4.0, 5.0, 6.0]


def test_a_compiler_that_fails_is_quoted(monkeypatch):
    def refused(graph, inputs, dynamic_shapes):
        raise ValueError("no such kernel")

    monkeypatch.setattr("torch._inductor.standalone_compile", refused)
    with pytest.raises(RuntimeError, match=r"^no such kernel$"):
        listed().compiled_elsewhere(buffers())


def test_other_operations_shapes_or_arithmetic_are_other_work():
    key = listed().key(buffers())
    assert listed(factor=3.0).key(buffers()) == key, "the value of an input decides nothing"
    other = Traced(make_fx(lambda b: [b["w"].mul_(2)])(buffers()), "fp32")
    assert other.key(buffers()) != key
    assert listed().key(buffers() | {"w": torch.zeros(4)}) != key
    assert listed(precision="tf32").key(buffers()) != key


@pytest.mark.parametrize("cut", [0, 10])
def test_a_file_that_was_cut_short_is_removed(folder, cut):
    listed().compiled_elsewhere(buffers())
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:cut])
    assert listed().loaded(buffers()) is None and not path.exists()


def test_a_file_that_the_compiler_refuses_is_removed(folder, monkeypatch):
    def refused(path):
        raise ValueError("of another make")

    listed().compiled_elsewhere(buffers())
    monkeypatch.setattr(compiled, "_read", refused)
    with pytest.warns(UserWarning, match="compiled again: of another make"):
        assert listed().loaded(buffers()) is None
    assert not list(folder.iterdir())


def launched(monkeypatch):
    """Work in mode "compiled", and its buffers; what would be a CUDA graph is called as it is."""
    monkeypatch.setattr(captured, "recorded", lambda work, buffers, trial: lambda: work(buffers))
    b = buffers()

    def work(b):
        b["w"].copy_(b["w"] + b["x"])

    return Launched(work, b, "compiled", "a sum", "fp32"), b


def test_work_is_launched_as_it_is_until_it_is_compiled(monkeypatch, capsys):
    """The first launch after that is of what was compiled; a second start loads it at once."""
    monkeypatch.setattr(captured.threading, "Thread", Waiting)
    launch, b = launched(monkeypatch)
    launch()
    assert b["w"].tolist() == [1.0, 2.0, 3.0]
    Waiting.last.run()
    launch.renew()
    launch()
    assert b["w"].tolist() == [101.0, 102.0, 103.0] and launch.coming is None
    again, b = launched(monkeypatch)
    again()
    assert b["w"].tolist() == [100.0, 101.0, 102.0] and again.coming is None and Standing.made == 1
    assert capsys.readouterr().err.count("compiles it meanwhile") == 1


def test_while_it_is_compiled_the_buffers_for_trying_out_are_gone(monkeypatch):
    """They take as much as the buffers themselves, and go back to the device: the compiler may need it."""
    trials, plain, emptied = [], Launched._trial, []

    def trial(self):
        made = plain(self)
        trials.extend(map(weakref.ref, made.values()))
        return made

    monkeypatch.setattr(captured.threading, "Thread", Waiting)
    monkeypatch.setattr(Launched, "_trial", trial)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append([alive() for alive in trials]))
    launch, _ = launched(monkeypatch)
    assert launch.coming is not None and emptied == [[None] * 3]


def test_nobody_changes_over_while_another_is_captured(monkeypatch):
    monkeypatch.setattr(captured.threading, "Thread", Waiting)
    launch, b = launched(monkeypatch)
    Waiting.last.run()
    with captured._one_at_a_time:
        launch.renew()
        launch()
        assert b["w"].tolist() == [1.0, 2.0, 3.0] and captured.busy()
    launch.renew()
    launch()
    assert b["w"].tolist() == [101.0, 102.0, 103.0]


def test_work_that_cannot_be_compiled_goes_on_as_it_is(monkeypatch, capsys):
    def refused(graph, inputs, dynamic_shapes):
        raise ValueError("no such kernel")

    monkeypatch.setattr("torch._inductor.standalone_compile", refused)
    monkeypatch.setattr(captured.threading, "Thread", Waiting)
    launch, b = launched(monkeypatch)
    Waiting.last.run()
    for _ in range(2):
        launch.renew()
        launch()
    assert b["w"].tolist() == [2.0, 3.0, 4.0]
    assert capsys.readouterr().err.count("a sum is not compiled, and is slower: no such kernel") == 1


FULL = "InductorError: RuntimeError: Failed to run autotuning code block: CUDA out of memory. Tried to allocate 2 GiB"


@pytest.fixture
def full(monkeypatch):
    """A device on which the first tries to compile find no room: as many as stand here. Threads begin when told to."""
    tries = [2]

    def compile_it(graph, inputs, dynamic_shapes):
        tries[0] -= 1
        if tries[0] >= 0:
            raise ValueError(FULL)
        return Standing(graph)

    monkeypatch.setattr("torch._inductor.standalone_compile", compile_it)
    monkeypatch.setattr(captured.threading, "Thread", Waiting)
    monkeypatch.setattr(captured, "LATER", (0.01, 0.01))
    return tries


def test_what_had_no_room_to_be_compiled_is_compiled_later(monkeypatch, capsys, full):
    """Memory that is free within this process is given back to the device before each try."""
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(captured.busy()))
    launch, b = launched(monkeypatch)
    Waiting.last.run()
    launch.renew()
    launch()
    assert b["w"].tolist() == [100.0, 101.0, 102.0] and Standing.made == 1
    assert emptied == [True] * 3, "while no graph is captured"
    said = capsys.readouterr().err
    assert said.count("a sum is slower for now: the device has no room to compile it") == 2
    assert said.count("compiled a sum in") == 1 and "not compiled" not in said


def test_what_never_has_room_goes_on_as_it_is(monkeypatch, capsys, full):
    full[0] = 9
    launch, b = launched(monkeypatch)
    Waiting.last.run()
    launch.renew()
    launch()
    assert b["w"].tolist() == [1.0, 2.0, 3.0] and full == [6]
    assert f"a sum is not compiled, and is slower: {FULL}" in capsys.readouterr().err


def test_what_nobody_needs_any_more_is_not_compiled_again(monkeypatch, full):
    launch, _ = launched(monkeypatch)
    launch.over = True
    Waiting.last.run()
    assert full == [1] and isinstance(launch.coming.exception(), torch.OutOfMemoryError)


class Watched(threading.Condition):
    """Says when somebody waits."""

    def __init__(self):
        super().__init__()
        self.waiting = threading.Event()

    def wait(self, timeout):
        self.waiting.set()
        return super().wait(timeout)


def test_what_had_no_room_is_compiled_as_soon_as_other_graphs_have_gone(monkeypatch, full):
    full[0] = 1
    monkeypatch.setattr(captured, "LATER", (600,))
    monkeypatch.setattr(captured, "_room", Watched())
    launch, _ = launched(monkeypatch)
    other = Thread(target=Waiting.last.run, daemon=True)
    other.start()
    assert captured._room.waiting.wait(60)
    with captured.letting_go():
        assert captured.busy() and not launch.coming.done()
    other.join(60)
    assert launch.coming.done() and Standing.made == 1


def test_the_old_graph_goes_before_the_new_one_is_recorded(monkeypatch, capsys):
    """There may be no room for both. Where the new one fails, the old one is recorded again."""
    monkeypatch.setattr(captured.threading, "Thread", Waiting)
    launch, b = launched(monkeypatch)
    old, held = launch.launch, []

    def recorded(work, buffers, trial):
        held.append(launch.launch is old)
        if work is not before:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return lambda: work(buffers)

    before = launch.work
    monkeypatch.setattr(captured, "recorded", recorded)
    Waiting.last.run()
    launch.renew()
    launch()
    assert b["w"].tolist() == [1.0, 2.0, 3.0] and held == [False, False] and launch.work is before
    assert "a sum is not compiled, and is slower: CUDA out of memory" in capsys.readouterr().err


def test_without_a_folder_it_is_compiled_here_and_now(monkeypatch):
    monkeypatch.delenv(compiled.FOLDER)
    launch, b = launched(monkeypatch)
    launch()
    assert b["w"].tolist() == [1.0, 2.0, 3.0] and launch.coming is None and Standing.made == 1
    assert listed().loaded(buffers()) is None


class Waiting:
    """A thread that begins when the test says so."""

    def __init__(self, target, name, daemon):
        self.run = target
        type(self).last = self

    def start(self):
        pass


def test_what_can_wait_is_compiled_when_nobody_else_is():
    turns, order = compiled.Turns(2), []
    began = threading.Event()

    def wait():
        with turns.one(can_wait=True):
            order.append("what can wait")

    with turns.one(can_wait=False):
        late = threading.Thread(target=wait)
        late.start()
        with turns.one(can_wait=False):
            began.wait(0.05)
            order.append("two steps")
    late.join()
    assert order == ["two steps", "what can wait"]


def test_who_needs_a_device_for_itself_waits_for_launches_and_they_for_it():
    order, ready = [], threading.Event()

    def capture():
        ready.set()
        with captured.alone():
            order.append("alone")

    with captured.launching():
        one = threading.Thread(target=capture)
        one.start()
        ready.wait()
        order.append("launched")
    one.join()
    with captured.alone():
        other = threading.Thread(target=lambda: launch_once(order))
        other.start()
        other.join(0.05)
        order.append("still alone")
    other.join()
    assert order == ["launched", "alone", "still alone", "launched again"]


def launch_once(order):
    with captured.launching():
        order.append("launched again")


def test_graphs_have_streams_of_their_own_while_they_live(monkeypatch):
    class Stream:
        given = 0

        def __init__(self, priority):
            self.cuda_stream = Stream.given % 3
            Stream.given += 1

    monkeypatch.setattr(captured, "STREAMS", 3)
    monkeypatch.setattr(captured, "_streams", set())
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    assert [captured.stream_of_its_own().cuda_stream for _ in range(3)] == [0, 1, 2]
    captured._streams.discard(1)
    assert captured.stream_of_its_own().cuda_stream == 1
    with pytest.raises(RuntimeError, match="more than 3 graphs"):
        captured.stream_of_its_own()


def test_the_compiler_is_told_to_be_quick(monkeypatch):
    from torch._inductor import config

    seen = {}

    def compile_it(graph, inputs, dynamic_shapes):
        seen.update({name: getattr(config, name) for name in compiled.QUICK})
        return Standing(graph)

    monkeypatch.setattr("torch._inductor.standalone_compile", compile_it)
    before = {name: getattr(config, name) for name in compiled.QUICK}
    work, own = listed(), buffers()
    work.compiled(own)
    assert seen == compiled.QUICK != before == {name: getattr(config, name) for name in compiled.QUICK}
