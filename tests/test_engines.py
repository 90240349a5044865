"""All engines give the same weights: bit for bit between loop and pool, to 1e-12 in float64 with stacked."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from fednb.algorithms.catalogue import method
from fednb.base.processes.member import WorkerFailed
from fednb.core.record import Table
from fednb.core.rounds import Method, Part, observed_server, part
from fednb.engines import BadEngine, choose, pool
from fednb.engines.crew import LOSSES
from fednb.engines.loop import Loop, single_oracle
from fednb.engines.problem import participants, problem_of
from fednb.engines.setting import Setting
from fednb.engines.stacked import NeedsGroupNorm, Stacked, stacked_oracle
from fednb.runs.experiment import run

SMALL = Setting(clients=6, participation=0.5, rounds=2, epochs=1, batch=32, partition="dirichlet(alpha=0.3)")


def weights(engine, setting, chosen, rounds=2, seed=0):
    """The global weights after some rounds on unequal clients, some of whom stay away."""
    dtype = torch.float64 if setting.precision == "fp64" else torch.float32
    w, b = engine.problem.objective.start(dtype, torch.device("cpu"))
    s = engine.problem.server(chosen, w, b)
    table = Table(chosen.buffers("per_client", engine.problem.objective.layout, w))
    for t in range(rounds):
        ids = participants(setting, seed, t)
        k, _ = engine.train(chosen, s, ids, table.gather(ids))
        observed_server(chosen, k, s)
        table.scatter(ids, k.values(table.start))
    return torch.cat([s.w, s.b])


@pytest.mark.parametrize("workers", [1, 3, 2])
def test_pool_equals_loop_bit_for_bit_with_any_number_of_workers(workers):
    for chosen in map(method, ("FedAvg", "FedFFT-D", "FedFFT-S", "SpecGradFilter-FedCM")):
        looped = weights(Loop(problem_of(SMALL, 0)), SMALL, chosen)
        pooled = weights(choose("pool", SMALL, chosen, 0, workers=workers), SMALL, chosen)
        assert torch.equal(looped, pooled), chosen.name


@pytest.mark.parametrize("oracle_of", [single_oracle, stacked_oracle])
@pytest.mark.parametrize("last", [1, 2, 99])
def test_a_gradient_of_the_last_layers_is_part_of_the_whole_one(oracle_of, last):
    """To the bit; and the layers before it are not differentiated at all."""
    problem = problem_of(SMALL, 0)
    w, b = problem.objective.start(torch.float32, torch.device("cpu"))
    asked = [oracle_of(problem.objective, problem.plan(0, [0])) for _ in range(2)]
    with problem.objective.arithmetic():
        whole, loss, *_ = asked[0](w[None], b[None], 0)
    below = sum(problem.objective.layout.sizes[:-last])
    with problem.objective.arithmetic(), profile(activities=[ProfilerActivity.CPU]) as watched:
        g, same, *_ = asked[1](w[None], b[None], 0, last=last)
    assert torch.equal(g[:, -(w.numel() - below) :], whole[:, below:])
    assert torch.equal(loss, same)
    assert any("convolution_backward" in event.key for event in watched.key_averages()) == (last == 99)


@pytest.mark.parametrize("model", ["resnet20-bn"])
def test_batchnorm_statistics_travel_and_are_averaged(model):
    """BatchNorm runs on loop and pool alike; its running statistics move away from (0, 1) and stay finite."""
    setting = SMALL.but(model=model, samples=60, clients=3, participation=1.0, partition="iid", batch=10)
    chosen = method("FedSAM")
    engine = Loop(problem_of(setting, 0))
    looped = weights(engine, setting, chosen, rounds=1)
    assert torch.equal(looped, weights(choose("pool", setting, chosen, 0, workers=2), setting, chosen, rounds=1))
    start, statistics = engine.problem.objective.start(torch.float32, torch.device("cpu"))[1], looped[-192:]
    assert torch.isfinite(looped).all() and not torch.equal(start[-192:], statistics)


def test_only_the_first_pass_of_a_step_moves_batchnorm_statistics():
    """FedSAM at radius 0 looks twice at the same point; its buffers must equal FedAvg's."""
    setting = SMALL.but(model="resnet20-bn", samples=40, clients=2, participation=1.0, partition="iid", batch=20)
    once = weights(Loop(problem_of(setting, 0)), setting, method("FedAvg"), rounds=1)
    twice = weights(Loop(problem_of(setting, 0)), setting, method("FedSAM", rho=0.0), rounds=1)
    assert torch.equal(once, twice)


def test_batchnorm_cannot_be_stacked():
    with pytest.raises(NeedsGroupNorm, match=r"-gn"):
        Stacked(problem_of(SMALL.but(model="resnet20-bn"), 0))


def test_augmented_batches_agree_between_loop_and_stacked(monkeypatch):
    """Flip and crop drawn per sample: the same weights when clients are stacked and padded."""
    from dataclasses import replace

    from fednb.data.sources import load

    data = replace(load("digits"), pad=1, flip=True)
    setting = SMALL.but(precision="fp64", samples=200)
    chosen = method("FedFFT")
    left = weights(Loop(problem_of(setting, 0, data=data)), setting, chosen)
    right = weights(Stacked(problem_of(setting, 0, data=data)), setting, chosen)
    plain = weights(Loop(problem_of(setting.but(augment=False), 0, data=data)), setting, chosen)
    assert (left - right).abs().max() < 1e-12
    assert (left - plain).abs().max() > 1e-6
    every = weights(Loop(problem_of(setting.but(crop="every"), 0, data=data)), setting, chosen)
    assert (left - every).abs().max() > 1e-6


@part
class Exploding(Part):
    """Raises in the client's stage."""

    def correct(self, k, s, v):
        """v ← ?"""
        raise ZeroDivisionError("no such step")


def test_a_failing_client_names_its_error_and_the_next_run_works():
    with pytest.raises(WorkerFailed, match="no such step"):
        weights(choose("pool", SMALL, Method("bad", Exploding()), 0, workers=2), SMALL, Method("bad", Exploding()))
    assert torch.isfinite(weights(choose("pool", SMALL, method("FedAvg"), 0, workers=2), SMALL, method("FedAvg"))).all()


@pytest.mark.parametrize("name", ["FedAvg", "FedFFT-S"])
def test_a_killed_worker_is_replaced_and_the_bits_stay(name, capsys):
    """Also where clients keep rows from round to round, which a worker may have written over when it was killed."""
    chosen = method(name)
    engine = choose("pool", SMALL, chosen, 0, workers=2)
    pid = engine.crew.pids[0]
    os.kill(pid, signal.SIGKILL)
    assert torch.equal(weights(engine, SMALL, chosen), weights(Loop(problem_of(SMALL, 0)), SMALL, chosen))
    assert f"worker process {pid} was ended by SIGKILL while " in capsys.readouterr().err
    assert len(set(engine.crew.pids)) == 2 and pid not in engine.crew.pids


def test_a_lost_client_is_trained_anew_from_the_rows_that_it_had():
    chosen = method("FedFFT-S")
    engine, looped = choose("pool", SMALL, chosen, 0, workers=2), weights(Loop(problem_of(SMALL, 0)), SMALL, chosen)
    deal = engine.crew.deal

    def torn(messages, again=lambda at: None):
        """Every client is trained twice, as if the first worker had died after writing its rows."""
        if messages[0][0] == "train":
            deal(messages)
            for at in range(len(messages)):
                again(at)
        return deal(messages, again)

    engine.crew.deal = torn
    assert torch.equal(weights(engine, SMALL, chosen), looped)


def test_a_run_that_loses_worker_after_worker_ends_in_one_line():
    engine = choose("pool", SMALL, method("FedAvg"), 0, workers=1)
    with pytest.raises(
        WorkerFailed, match=r"worker process \d+ was ended by SIGKILL while .*; was there not enough mem"
    ):
        for _ in range(LOSSES + 1):
            os.kill(engine.crew.pids[0], signal.SIGKILL)
            weights(engine, SMALL, method("FedAvg"), rounds=1)
    assert engine.crew.losses == LOSSES + 1 and not engine.crew.pids


def test_a_timeout_that_is_no_number_is_refused(monkeypatch):
    pool.dismiss()
    monkeypatch.setenv("FEDNB_WORKER_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="FEDNB_WORKER_TIMEOUT = 'soon': must be a number of seconds"):
        choose("pool", SMALL, method("FedAvg"), 0, workers=1)


def test_the_crew_is_started_once():
    first = choose("pool", SMALL, method("FedAvg"), 0, workers=2).crew
    assert choose("pool", SMALL.but(lr=0.2), method("FedSAM"), 1, workers=2).crew is first
    assert pool.crew(2) is first


def test_workers_end_with_their_parent():
    """A parent that is killed leaves no worker behind."""
    code = "from fednb.engines import pool; import sys, time\nprint(*pool.crew(2).pids, flush=True); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pids = [int(p) for p in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    for pid in pids:
        assert _gone(pid)


def _gone(pid: int, seconds: float = 120.0) -> bool:
    import time

    for _ in range(int(seconds / 0.1)):
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().split()[2] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.1)
    return False


def test_choosing():
    chosen = method("FedAvg")
    assert choose("auto", SMALL, chosen, 0, device="cpu").name == "loop"  # too small for workers
    with pytest.raises(BadEngine, match="engine = 'lop': must be one of auto, loop, pool, stacked"):
        choose("lop", SMALL, chosen, 0)
    with pytest.raises(BadEngine, match="workers = 0: must be at least 1"):
        choose("pool", SMALL, chosen, 0, workers=0)
    with pytest.raises(BadEngine, match="device = 'tpu9'"):
        choose("loop", SMALL, chosen, 0, device="tpu9")


def test_engines_write_the_same_history(tmp_path, monkeypatch):
    """Accuracy, losses, drift, gradients and bytes are the same numbers whoever trained."""
    seen = {}
    for engine in ("loop", "pool"):
        monkeypatch.setenv("FEDNB_STORE", str(tmp_path / engine))
        rows = run(SMALL, "FedFFT-S", engine=engine, workers=2, progress=False).rows
        seen[engine] = json.dumps([{k: v for k, v in row.items() if k != "seconds"} for row in rows])
    assert seen["loop"] == seen["pool"]


def test_workers_see_another_data_set_of_the_same_name():
    """The pool compares data sets, not names: halved pixels give other weights, the same as in the loop."""
    from dataclasses import replace

    from fednb.data.sources import load
    from fednb.engines.pool import Pool
    from fednb.engines.problem import clients_of

    chosen, seen = method("FedAvg"), []
    for data in (load("digits"), replace(load("digits"), x=load("digits").x // 2)):
        parts = clients_of(SMALL, 0, data)
        problem = problem_of(SMALL, 0, data=data, parts=parts)
        seen.append(weights(Pool(problem, SMALL, 0, data, parts, workers=2), SMALL, chosen))
        assert torch.equal(seen[-1], weights(Loop(problem), SMALL, chosen))
    assert not torch.equal(*seen)
