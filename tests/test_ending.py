"""How a command ends: signals save, errors of the machine are one line."""

import os
import signal
import threading

import pytest

from fednb.base.processes.ending import DeviceFailed, Ended, device_failed, exit_status, farewell, saving_signals
from fednb.base.processes.member import WorkerFailed
from fednb.cli import commands as cli


def test_a_signal_is_an_interrupt_with_a_number():
    with pytest.raises(KeyboardInterrupt) as caught, saving_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    assert isinstance(caught.value, Ended) and exit_status(caught.value) == 143
    assert farewell(caught.value) == "ended by SIGTERM; the same command goes on after the last finished round"
    assert exit_status(KeyboardInterrupt()) == 130 and farewell(KeyboardInterrupt()).startswith("interrupted; ")


@pytest.fixture
def heard():
    """SIGHUP as a terminal sends it: under nohup it is ignored from the start."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_second_signal_waits_until_all_is_saved(heard):
    saved = []
    with pytest.raises(Ended), saving_signals():
        try:
            os.kill(os.getpid(), signal.SIGHUP)
        finally:
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                os.kill(os.getpid(), number)
            saved.append("all")
    assert saved == ["all"]


def test_what_was_ignored_stays_ignored_and_handlers_come_back():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with saving_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_leaves_signals_alone():
    seen = []

    def work():
        with saving_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


@pytest.mark.parametrize(
    "error, says",
    [
        (OSError(28, "No space left on device", "/store/run.json"), "/store/run.json: No space left on device"),
        (PermissionError(13, "Permission denied", "/store"), "/store: Permission denied"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("CUDA error: misaligned address\nmore"), "the GPU has failed (CUDA error: misaligned address); "),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "not enough memory"),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
        (WorkerFailed("worker process 7 was ended by SIGKILL"), "worker process 7 was ended"),
    ],
)
def test_errors_of_the_machine_are_one_line(error, says, monkeypatch, capsys):
    def fail(asked):
        raise error

    monkeypatch.setattr("fednb.cli.lists.do_ls", fail)
    assert cli.main(["ls", "data"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fednb: {says}") and said.count("\n") == 1
    monkeypatch.setenv("FEDNB_DEBUG", "1")
    with pytest.raises(type(error)):
        cli.main(["ls", "data"])


def test_errors_of_the_program_are_shown_whole(monkeypatch):
    def fail(asked):
        raise RuntimeError("a slip")

    monkeypatch.setattr("fednb.cli.lists.do_ls", fail)
    with pytest.raises(RuntimeError, match="a slip"):
        cli.main(["ls", "data"])


ADVICE = "\nFor debugging consider this\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"


@pytest.mark.parametrize(
    "said, lasts",
    [
        ("an illegal memory access was encountered", True), ("device-side assert triggered", True),
        ("operation failed due to a previous error during capture", False),
        ("operation not permitted when stream is capturing", False), ("out of memory", False),
    ],
)  # fmt: skip
def test_what_torch_advises_below_an_error_is_not_the_error(said, lasts):
    """It names device-side assertions whatever has happened."""
    assert device_failed(RuntimeError(f"CUDA error: {said}{ADVICE}")) is lasts
    assert not device_failed(ValueError(said))


def masked(first, then):
    """As a capture that an error ends: its own error is raised while the first one is on its way."""
    try:
        try:
            raise first
        finally:
            raise then
    except Exception as error:
        return error


def test_an_error_that_a_capture_hides_is_told():
    lasting = masked(RuntimeError(f"CUDA error: an illegal memory access{ADVICE}"), RuntimeError("CUDA error: capture"))
    assert device_failed(lasting)
    told = "CUDA error: capture; it began with RuntimeError: CUDA error: an illegal memory access"
    assert str(DeviceFailed(lasting)).startswith(f"the GPU has failed ({told}); the same command goes on")
    assert not device_failed(masked(KeyError("x"), RuntimeError("CUDA error: capture")))
