"""After three rounds between real processes the weights are those of `fn.run`, and what travelled was declared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import fednb as fn
from fednb.flower.local import LocalFederation
from fednb.flower.project import write_project
from flower.runs import alone, config, facts, finished, nodes, weights

pytestmark = pytest.mark.flower

METHODS = ("FedAvg", "SCAFFOLD", "FedSAM", "FedFFT-D", "FedSMOO", "FedWMSAM", "FedSCAM", "FedPer")
AT_A_TIME = 3  # runs: a node that waits for one has another to work on
OWN = "a project with a data loader"


@pytest.fixture(scope="module")
def folders(quick, tmp_path_factory):
    """The server's folder of each method, after its run; all runs share one link and three nodes."""
    top = tmp_path_factory.mktemp("methods")
    federation = LocalFederation(top / "flower", **quick)
    try:
        federation.start_link()
        nodes(federation)
        projects = [
            write_project(top / f"run-{at}", config(name, top / f"server-{at}"), own=False)
            for at, name in enumerate(METHODS)
        ]
        loader = config("FedFFT-D", top / "server-own", participation=1.0, rounds=1)
        projects.append(write_project(top / "own-data", loader))
        with ThreadPoolExecutor(AT_A_TIME) as threads:
            list(threads.map(lambda project: finished(federation.submit(project)), projects))
    finally:
        federation.stop()
    return {name: top / f"server-{at}" for at, name in enumerate(METHODS)} | {OWN: top / "server-own"}


@pytest.mark.parametrize("name", METHODS)
def test_weights_are_those_of_one_process(name, folders, store):
    expected = alone(name).entry.load_state()[0]["w"]
    torch.testing.assert_close(weights(folders[name]), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_bytes_of_arrays_are_the_declared_ones(name, folders, store):
    """Each client keeps its c_k, so FedWMSAM sends what its reading with variates at the client declares."""
    method = fn.method(name, variates_at="client") if name == "FedWMSAM" else fn.method(name)
    declared = [(row["bytes_down"], row["bytes_up"]) for row in alone(method).rows]
    assert [(row["bytes_down"], row["bytes_up"]) for row in facts(folders[name])["history"]] == declared


def test_a_project_with_a_loader_of_its_own(folders):
    """As `fednb flower new` writes it: 1497 digits dealt out to three clients."""
    assert facts(folders[OWN])["sizes"] == {"0": 499, "1": 499, "2": 499}
    assert [row["clients"] for row in facts(folders[OWN])["history"]] == [[0, 1, 2]]


def test_accuracy_is_that_of_one_process(folders, store):
    told = [row["accuracy"] for row in facts(folders["SCAFFOLD"])["history"]]
    assert told == pytest.approx([row["accuracy"] for row in alone("SCAFFOLD").rows], abs=1.0)
