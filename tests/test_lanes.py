"""Clients in lanes: the weights of a loop over clients, whoever is beside them, in however many lanes."""

import threading

import pytest
import torch

from fednb.algorithms.catalogue import CATALOGUE, method
from fednb.core.record import Table
from fednb.core.rounds import Method, Part, observed_server, part
from fednb.engines.loop import Loop
from fednb.engines.problem import participants, problem_of
from fednb.engines.setting import Setting
from fednb.engines.stacked import Roads, Stacked
from fednb.runs.experiment import fitted

SMALL = Setting(data="digits", model="cnn-small", partition="dirichlet(alpha=0.3, minimum=4)", clients=6, participation=0.5,
                epochs=1, batch=20, samples=200, precision="fp64")  # fmt: skip


def trained(engine, setting, m, seed, rounds=2, after_round=lambda: None):
    """The model after some rounds."""
    problem = engine.problem
    w, b = problem.objective.start(torch.float64, torch.device("cpu"))
    s, table = problem.server(m, w, b), Table(m.buffers("per_client", problem.objective.layout, w))
    for t in range(rounds):
        ids = participants(setting, seed, t)
        k, _ = engine.train(m, s, ids, table.gather(ids, m.declared("per_client")))
        table.scatter(ids, k.values(m.declared("per_client")))
        observed_server(m, k, s)
        after_round()
    return s.values(["w"])["w"], k.evaluations.tolist(), float(k.values(["loss"])["loss"].sum())


def alone(setting, m, seed):
    setting = fitted(setting, m)
    return trained(Loop(problem_of(setting, seed)), setting, m, seed)


def together(runs):
    """Each of (setting, method, seed) in a thread of its own, all in the same lanes; with the lanes."""
    roads = Roads()
    found, failed = {}, []
    meet = threading.Barrier(len(runs))

    def work(at, setting, m, seed):
        try:
            setting = fitted(setting, m)
            engine = Stacked(problem_of(setting, seed), roads=roads, runs=2)
            meet.wait()
            found[at] = trained(engine, setting, m, seed)
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(at, *run)) for at, run in enumerate(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [found[at] for at in range(len(runs))], roads


def same(found, wanted):
    torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=1e-12)
    assert found[1] == wanted[1]
    assert found[2] == pytest.approx(wanted[2], rel=1e-12)


@pytest.mark.parametrize("m", [entry.method for entry in CATALOGUE.values()], ids=str)
def test_every_method_has_the_weights_of_the_loop_beside_other_seeds(m):
    runs = [(SMALL, m, 0), (SMALL, m, 1)]
    found, roads = together(runs)
    for each, run in zip(found, runs, strict=True):
        same(each, alone(*run))
