"""Callbacks: every round is told once and in order; event files can be read; nothing is asked of anybody."""

import os
import struct
import sys
from types import ModuleType, SimpleNamespace

import pytest

import fednb as fn
from fednb.base.imports import NotInstalled
from fednb.engines.setting import Setting
from fednb.runs.callbacks.tensorboard import _checksum, crc32c

SMALL = Setting(samples=100, clients=4, participation=0.5, rounds=3, epochs=1, batch=25, evaluate_every=3)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))


class Heard(fn.callbacks.Callback):
    """Writes down what it is told."""

    def __init__(self):
        self.said = []

    def start(self, run):
        self.said.append(f"start {run.method}")

    def __call__(self, row):
        self.said.append(row["round"])

    def end(self, run):
        self.said.append(f"end {run.status}")


WHOLE = ["start FedAvg", 0, 1, 2, "end finished"]


def test_every_round_is_told_while_a_run_is_made_and_when_it_is_there():
    heard, rows, watched = Heard(), [], []
    fn.run(SMALL, "FedAvg", progress=watched.append, on_round=[heard, rows.append])
    assert heard.said == WHOLE and [row["round"] for row in rows] == [row["round"] for row in watched] == [0, 1, 2]
    again = Heard()
    fn.run(SMALL, "FedAvg", progress=False, on_round=again)
    assert again.said == WHOLE


def test_an_error_ends_the_run_and_loses_no_round():
    heard = Heard()

    def fail(row):
        if row["round"] == 1:
            raise RuntimeError("the disk of the log is full")

    with pytest.raises(RuntimeError, match="the log is full"):
        fn.run(SMALL, "FedAvg", progress=False, on_round=[heard, fail])
    assert heard.said == ["start FedAvg", 0, 1, "end running"]
    made = []
    fn.run(SMALL, "FedAvg", progress=made.append, on_round=(whole := Heard()))
    assert whole.said == WHOLE


@pytest.mark.parametrize("given", [3, [3]])
def test_what_cannot_be_called_is_refused(given):
    with pytest.raises(TypeError, match="on_round = 3: must be a function of one row, or a Callback"):
        fn.run(SMALL, "FedAvg", progress=False, on_round=given)


# TensorBoard


def fields_of(data):
    """The fields of a protocol buffer: pairs of number and value; checked to the last byte."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        kind = tag & 7
        size = {1: 8, 5: 4}.get(kind)
        if kind == 0:
            found.append((tag >> 3, varint()))
        else:
            size = varint() if size is None else size
            found.append((tag >> 3, data[at : at + size]))
            at += size
    return found


def records(path):
    """The events of a file, their lengths and checksums checked."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        length = data[at : at + 8]
        assert data[at + 8 : at + 12] == _checksum(length)
        n = struct.unpack("<Q", length)[0]
        event = data[at + 12 : at + 12 + n]
        assert data[at + 12 + n : at + 16 + n] == _checksum(event)
        at += 16 + n
        yield dict(fields_of(event))


def test_checksums_are_those_of_the_format():
    """CRC-32C of "123456789" is 0xe3069283 (RFC 3720 has the polynomial); a record's is rotated by 15 and shifted."""
    assert crc32c(b"123456789") == 0xE3069283 and crc32c(b"") == 0
    crc = 0xE3069283
    assert _checksum(b"123456789") == struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)


def test_event_files_have_every_number_of_every_round(tmp_path):
    log = fn.callbacks.TensorBoard(tmp_path / "logs")
    run = fn.run(SMALL, "FedAvg", seed=2, progress=False, on_round=log)
    assert log.path.parent.name == f"FedAvg-seed2-{run.key[:8]}" and "tfevents" in log.path.name
    first, *events = records(log.path)
    assert first[3] == b"brain.Event:2" and [event[2] for event in events] == [1, 2, 3]
    scalars = [{v[1].decode(): struct.unpack("<f", v[2])[0] for v in map(dict, map(fields_of, several))}
               for several in ([value for _, value in fields_of(event[5])] for event in events)]  # fmt: skip
    assert scalars[0]["train_loss"] == pytest.approx(run.rows[0]["train_loss"], rel=1e-6)
    assert "accuracy" not in scalars[0] and scalars[2]["accuracy"] == pytest.approx(run.accuracy, rel=1e-6)
    fn.run(SMALL, "FedAvg", seed=2, progress=False, on_round=fn.callbacks.TensorBoard(tmp_path / "logs"))
    assert len(list(log.path.parent.iterdir())) == 1 and len(list(records(log.path))) == 4  # written anew, not twice


# Packages that may be missing


@pytest.mark.parametrize("kind, name", [(fn.callbacks.MLflow, "mlflow"), (fn.callbacks.WandB, "wandb")])
def test_a_missing_package_is_one_line_before_anything_is_trained(kind, name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(NotInstalled, match=rf"needs the package {name}, which is not installed: `pip install {name}`"):
        fn.run(SMALL, "FedAvg", progress=False, on_round=kind(tmp_path / "logs"))
    assert not (tmp_path / "store" / "runs").exists()


class FakeClient:
    """What MLflow's client does, written down."""

    def __init__(self, tracking_uri):
        self.uri, self.params, self.metrics, self.ended = tracking_uri, {}, [], None
        self.told_nobody = os.environ.get("MLFLOW_DISABLE_TELEMETRY")
        FakeClient.last = self

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name, place):
        self.experiment = name, place
        return "7"

    def create_run(self, number, run_name):
        self.name = number, run_name
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))

    def log_param(self, id, name, value):
        self.params[name] = value

    def log_metric(self, id, name, value, step):
        self.metrics.append((name, step, value))

    def set_terminated(self, id, status):
        self.ended = id, status


def test_mlflow_writes_to_a_database_of_ones_own(tmp_path, monkeypatch):
    package = ModuleType("mlflow")
    package.MlflowClient = FakeClient
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    run = fn.run(SMALL, "FedSAM", progress=False, on_round=fn.callbacks.MLflow(tmp_path / "logs"))
    seen = FakeClient.last
    assert seen.told_nobody == "true"  # the package is asked not to tell its makers before it is imported
    assert seen.uri == f"sqlite:///{tmp_path / 'logs' / 'mlflow.db'}" and seen.experiment[0] == "fednb"
    assert seen.params["lr"] == "0.1" and seen.params["method.rho"] == "0.1" and seen.params["key"] == run.key
    assert ("accuracy", 3, run.accuracy) in seen.metrics and seen.ended == ("r1", "FINISHED")
    assert [step for name, step, _ in seen.metrics if name == "train_loss"] == [1, 2, 3]


def test_wandb_stays_offline(tmp_path, monkeypatch):
    package, told, logged, ended = ModuleType("wandb"), {}, [], []
    log = SimpleNamespace(
        log=lambda row, step: logged.append((step, row)), finish=lambda exit_code: ended.append(exit_code)
    )
    package.init = lambda **how: told.update(how) or log
    monkeypatch.setitem(sys.modules, "wandb", package)
    run = fn.run(SMALL, "FedSAM", progress=False, on_round=fn.callbacks.WandB(tmp_path / "logs", project="mine"))
    assert told["mode"] == "offline" and told["project"] == "mine" and told["dir"] == str(tmp_path / "logs")
    assert told["config"]["key"] == run.key and told["config"]["method.rho"] == "0.1"
    assert [step for step, _ in logged] == [1, 2, 3] and logged[2][1]["accuracy"] == run.accuracy and ended == [0]


def test_a_diverged_run_has_failed(tmp_path, monkeypatch):
    package = ModuleType("mlflow")
    package.MlflowClient = FakeClient
    monkeypatch.setitem(sys.modules, "mlflow", package)
    wild = SMALL.but(lr=1e20, clip_norm=None)
    fn.run(wild, "FedAvg", progress=False, on_round=fn.callbacks.MLflow(tmp_path / "logs"))
    assert FakeClient.last.ended == ("r1", "FAILED")


def test_the_command_writes_logs(tmp_path, capsys):
    from fednb.cli.commands import main

    asked = ["run", "fedavg", "--samples", "300", "--rounds", "1", "--epochs", "1", "--quiet", "--log"]
    assert main([*asked, f"tensorboard={tmp_path / 'logs'}"]) == 0
    assert len(list((tmp_path / "logs").rglob("*tfevents*"))) == 1
    assert main([*asked, "paper=x"]) == 2
    assert (
        "--log 'paper=x': must be tensorboard, mlflow or wandb, and a folder: tensorboard=logs"
        in capsys.readouterr().err
    )
