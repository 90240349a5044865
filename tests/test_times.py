"""What a run takes: from histories of the device, or scaled from the nearest that is known."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

import fednb as fn
from fednb.engines.setting import Setting
from fednb.runs.bench import kept
from fednb.study import times
from fednb.study.times import KEPT, Times, Timing, device_name, gradients, operations


class Made:
    """A run of a store: what is known of it, and its history."""

    def __init__(self, key, seconds, minute=0, method="FedAvg", device="made GPU", gradients=500, **changes):
        setting = Setting(data="cifar10", model="resnet20-gn", clients=100, participation=0.1, rounds=3, epochs=5,
                          batch=50, precision="bf16").but(**changes)  # fmt: skip
        began, ended = (datetime(2026, 1, 1, 12, minute, second, tzinfo=UTC).isoformat() for second in (0, 30))
        self.key = key
        self.seconds = seconds
        self.gradients = gradients
        self.known = {
            "device_name": device,
            "method": method,
            "setting": setting.plain(),
            "started": began,
            "ended": ended,
        }

    def about(self):
        return self.known

    def history(self):
        return [{"round": t, "seconds": s, "gradient_evaluations": self.gradients} for t, s in enumerate(self.seconds)]


SETTING = Setting(data="cifar10", model="resnet20-gn", clients=100, participation=0.1, rounds=300, epochs=5, batch=50,
                  precision="bf16")  # fmt: skip


def known(monkeypatch, *runs) -> Times:
    monkeypatch.setattr(times, "entries", lambda: list(runs))
    return Times("made GPU")


def test_a_history_tells_what_a_run_takes(monkeypatch):
    """22 s for the first round and 2 s for each of two: 30 s less 26 s of training are 4 / 3 s a round beside it."""
    told = known(monkeypatch, Made("a" * 16, [22.0, 2.0, 2.0]))
    seen = told.of(SETTING, fn.method("FedAvg"))
    assert (seen.round, seen.start, seen.measured) == (pytest.approx(2 + 4 / 3), 20.0, True)
    twice = told.of(SETTING, fn.method("FedSAM"))  # two gradients a step
    assert twice.round == pytest.approx(2 * 2 + 4 / 3) and twice.measured
    longer = told.of(SETTING.but(epochs=10), fn.method("FedAvg"))
    assert longer.round == pytest.approx(2 * 2 + 4 / 3)


def test_runs_that_shared_the_device_are_not_taken_for_slow(monkeypatch):
    """Two at a time all the while: each round of 2 s is 1 s of the device's; beside training a 3rd of 4 s, halved."""
    told = known(monkeypatch, Made("a" * 16, [22.0, 2.0, 2.0]), Made("b" * 16, [22.0, 2.0, 2.0], method="FedProx"))
    assert told.of(SETTING, fn.method("FedAvg")).round == pytest.approx(1 + 2 / 3)
    apart = known(monkeypatch, Made("a" * 16, [22.0, 2.0, 2.0]), Made("b" * 16, [22.0, 2.0, 2.0], minute=5, lr=0.5))
    assert apart.of(SETTING, fn.method("FedAvg")).round == pytest.approx(2 + 4 / 3)


def test_a_run_that_is_kept_and_in_the_store_too_was_made_once(monkeypatch):
    """It did not share the device with itself: its seconds are not halved. Whoever brings kept runs has both."""
    monkeypatch.setattr(times, "Entry", lambda key, folder: Made(key, [22.0, 2.0, 2.0]))
    monkeypatch.setattr(times, "entries", lambda: [Made("a" * 16, [22.0, 2.0, 2.0])])
    told = Times("made GPU", [Path("runs") / ("a" * 16)])
    assert told.of(SETTING, fn.method("FedAvg")).round == pytest.approx(2 + 4 / 3)


def test_what_fits_best_is_taken(monkeypatch):
    """The same method before another, this device before others, this precision before others; else it is estimated."""
    told = known(
        monkeypatch,
        Made("a" * 16, [9.0, 2.0, 2.0]),
        Made("b" * 16, [9.0, 3.0, 3.0], minute=1, method="FedProx"),
        Made("c" * 16, [9.0, 5.0, 5.0], minute=2, precision="fp32"),
        Made("d" * 16, [9.0, 7.0, 7.0], minute=3, device="another GPU"),
    )
    assert told.of(SETTING, fn.method("FedProx")).source == "run bbbbbbbb"
    assert told.of(SETTING.but(precision="fp32"), fn.method("FedProx")).source == "run cccccccc"
    assert told.of(SETTING, fn.method("FedAvg")).source == "run aaaaaaaa"
    other = told.of(SETTING.but(data="cifar100"), fn.method("FedAvg"))
    assert (other.measured, other.source) == (False, "run aaaaaaaa")


def test_other_models_scale_with_their_multiplications(monkeypatch):
    """ResNet-20 on 32x32 has 41 million, as its paper says."""
    assert operations("resnet20-gn", "cifar10") == pytest.approx(40.8e6, rel=0.01)
    assert operations("lstm", "shakespeare") > 1e6
    told = known(monkeypatch, Made("a" * 16, [9.0, 2.0, 2.0]))
    seen = told.of(SETTING.but(model="resnet18-gn"), fn.method("FedAvg"))
    beside = told.of(SETTING, fn.method("FedAvg")).round - 2
    ratio = operations("resnet18-gn", "cifar10") / operations("resnet20-gn", "cifar10")
    assert seen.round == pytest.approx(2 * ratio + beside) and not seen.measured


def test_gradients_are_counted_from_the_setting():
    """100 samples of 4 clients: 3 batches of 10 in an epoch, 2 epochs, 2 clients: 12, and twice as many with SAM."""
    setting = Setting(samples=100, clients=4, participation=0.5, epochs=2, batch=10)
    assert gradients(setting, fn.method("FedAvg")) == 12 and gradients(setting, fn.method("FedSAM")) == 24


@pytest.mark.parametrize("timing", KEPT, ids=lambda t: f"{t.model} {t.precision} {t.method}")
def test_constants_are_those_of_the_kept_benchmarks(timing: Timing):
    file = kept.results()[timing.source.removeprefix("benchmark ")]
    row = next(r for r in file["rows"] if r["method"] == timing.method and r["engine"] in ("stacked", "pool"))
    assert timing.seconds == pytest.approx(row["seconds_per_round"], abs=6e-4)
    assert timing.beside == pytest.approx(row["seconds_evaluation"], abs=6e-4)
    work = file["workload"]
    steps = work["participants"] * work["epochs"] * work["samples"] / work["batch"]
    assert (timing.data, timing.model, timing.precision) == (work["data"], work["model"], work["precision"])
    assert timing.gradients == steps * fn.cost(fn.method(timing.method)).passes and timing.batch == work["batch"]
    assert timing.device == file["machine"]["gpu"] or timing.device.endswith("CPU")


def test_a_plan_for_a_gpu_that_is_not_here(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_name("cuda", "smoke") == device_name("auto", "paper") == "NVIDIA H200"
    assert device_name("cpu", "paper").endswith(" CPU") and device_name("auto", "laptop").endswith(" CPU")
