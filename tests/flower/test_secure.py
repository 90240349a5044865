"""TLS and authentication of nodes as Flower provides them, with certificates that examples/flower makes on the spot."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
import torch

from fednb.flower.local import NAME, LocalFederation
from fednb.flower.project import write_project
from flower.runs import CLIENTS, alone, config, facts, finished, weights

pytestmark = [
    pytest.mark.flower,
    pytest.mark.skipif(not all(map(shutil.which, ("openssl", "ssh-keygen"))), reason="needs openssl and ssh-keygen"),
]
SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "flower" / "certificates.sh"


def test_a_federation_with_certificates_and_keys(quick, store, tmp_path):
    """Three nodes with registered keys train; one with a key that nobody registered is not let in."""
    keys = tmp_path / "keys"
    subprocess.run([SCRIPT, keys, "127.0.0.1", str(CLIENTS + 1)], check=True, capture_output=True)
    federation = LocalFederation(tmp_path / "flower", **quick)
    try:
        federation.start_link(
            "--ssl-ca-certfile", str(keys / "ca.crt"), "--ssl-certfile", str(keys / "server.pem"),
            "--ssl-keyfile", str(keys / "server.key"), "--enable-supernode-auth",
        )  # fmt: skip
        for i in range(CLIENTS):
            command = ["flwr", "supernode", "register", str(keys / f"node-{i}.pub"), NAME]
            subprocess.run(command, check=True, capture_output=True, env=federation.environment)
        for i in range(CLIENTS + 1):
            mine = (
                "--root-certificates",
                str(keys / "ca.crt"),
                "--auth-supernode-private-key",
                str(keys / f"node-{i}"),
            )
            federation.start_node(i, CLIENTS, *mine)
        folder = tmp_path / "server"
        project = write_project(tmp_path / "secure", config("FedAvg", folder, participation=1.0, rounds=1), own=False)
        finished(federation.submit(project))
        stranger, until = f"node-{CLIENTS}", time.monotonic() + 180
        while federation.processes[stranger].poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        assert federation.processes[stranger].poll() not in (None, 0), federation.log(stranger).read_text()
    finally:
        federation.stop()
    assert facts(folder)["history"][0]["clients"] == [0, 1, 2]
    expected = alone("FedAvg", participation=1.0, rounds=1).entry.load_state()[0]["w"]
    torch.testing.assert_close(weights(folder), expected, rtol=0, atol=1e-5)
