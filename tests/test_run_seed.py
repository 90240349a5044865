"""Random choices inside parts and filters are the run's own: the same in the same run, others under another seed."""

from dataclasses import replace

import pytest
import torch
from quadratics import QuadraticRounds, heterogeneous

from fednb.algorithms.catalogue import method
from fednb.algorithms.parts import ScamPilot
from fednb.base.streams import BadSeed, joint_seed, whole_seed, whole_seeds
from fednb.core.record import Table
from fednb.core.rounds import Method, observed_server
from fednb.engines import choose
from fednb.engines.problem import participants
from fednb.engines.setting import Setting
from fednb.filters import HighPass, NormMatched, Permuted, RandomBand
from fednb.metrics.drift import Turned

FEW = Setting(rounds=2, epochs=1, clients=3, samples=300, participation=1.0, partition="iid", precision="fp64")
RANDOM = {
    "random layers": ("fedfsa", {"scheme": "random", "rho_larger": 0.9}),
    "random frequencies": ("fedsam + randomband(0.3)", {}),
    "random frequencies of the gradient": ("fedavg + gradient(randomband(0.3))", {}),
    "random order": ("fedavg + gradient(permuted(highpass(0.3), 'random'))", {}),
    "random order within": ("fedavg + normmatched(permuted(highpass(0.3), 'random'))", {}),
    "sketches": ("fedscam", {"d": 2, "kappa": 0.9}),
}


def weights(m: Method, engine: str, seed: int, run: int | None = None) -> torch.Tensor:
    """Two rounds of the problem of one seed, with the choices of a run of another (by default, of the same)."""
    made = choose(engine, FEW, m, seed, device="cpu", workers=1 if engine == "pool" else None)
    w, b = made.problem.objective.start(torch.float64, torch.device("cpu"))
    problem = made.problem if run is None else replace(made.problem, seed=run)
    s, table = problem.server(m, w, b), Table(m.buffers("per_client", problem.objective.layout, w))
    for t in range(2):
        ids = participants(FEW, seed, t)
        k, _ = made.train(m, s, ids, table.gather(ids))
        observed_server(m, k, s)
        table.scatter(ids, k.values(table.start))
    return s.w


@pytest.mark.parametrize("what", RANDOM)
def test_choices_follow_the_seed_of_the_run(what):
    """Data, first model and batches of seed 0: only what the parts choose is another under the run's seed 1."""
    name, numbers = RANDOM[what]
    m = method(name, **numbers)
    first, again, other = (weights(m, "loop", 0, run) for run in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, rtol=0, atol=1e-9)


def test_a_method_without_choices_does_not_see_it():
    assert torch.equal(weights(method("fedfft-d"), "loop", 0, 0), weights(method("fedfft-d"), "loop", 0, 1))


@pytest.mark.parametrize("what", ["random layers", "random frequencies", "sketches"])
def test_engines_choose_alike(what):
    """A worker's clients choose as the loop's do, under a seed that is not 0."""
    name, numbers = RANDOM[what]
    m = method(name, **numbers)
    assert torch.allclose(weights(m, "loop", 5), weights(m, "stacked", 5), rtol=0, atol=1e-12)


def test_filters_of_a_run():
    """Seed 0 is the filter itself; in other runs both seeds count; filters without choices stay as they are."""
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    for made in (
        RandomBand(0.5),
        Permuted(HighPass(0.3), "random"),
        NormMatched(RandomBand(0.5)),
        Turned(HighPass(0.3)),
    ):
        assert made.of_run(0) == made and made.of_run(1) == made.of_run(1)
        assert not torch.equal(made.of_run(1)(x), made(x))
        assert not torch.equal(made.of_run(1)(x), made.of_run(2)(x))
    assert RandomBand(0.5, seed=1) != RandomBand(0.5).of_run(1) != RandomBand(0.5, seed=1).of_run(1)
    assert HighPass(0.3).of_run(7) is not None and HighPass(0.3).of_run(7) == HighPass(0.3)


def test_the_draws_of_fedcr_follow_it():
    from fednb.algorithms.parts.cr import bank

    first, other = (bank(4, torch.float64, torch.device("cpu"), seed) for seed in (0, 1))
    assert torch.equal(first, bank(4, torch.float64, torch.device("cpu"))) and not torch.equal(first, other)


def test_the_server_knows_the_seed_and_nobody_sends_it():
    f = QuadraticRounds(Method("m", ScamPilot(d=4)), heterogeneous())
    assert f.s.seed == 0
    f.round()
    assert "seed" not in f.s.sent


def test_a_joint_seed_is_its_own():
    found = [joint_seed(run, own) for run in range(20) for own in range(20)]
    assert len(set(found)) == 400
    assert found[:20] == list(range(20))


@pytest.mark.parametrize("seed", [0, 7, 2**70])
def test_whole_numbers_are_seeds(seed):
    assert whole_seed(seed) == seed


@pytest.mark.parametrize("seeds", ["012", 3, None, [], [0, 0], [0, -1], [[0]], [0.5], b"01"])
def test_seeds_are_a_list_of_different_ones(seeds):
    with pytest.raises(BadSeed) as told:
        whole_seeds(seeds)
    assert "\n" not in str(told.value) and len(str(told.value)) < 200
