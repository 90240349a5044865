"""The command `fednb flower`: interrupted, with processes as a user has them, and gone on with, with quick ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import torch
from faults import census

import fednb as fn
from flower.runs import facts, weights

pytestmark = pytest.mark.flower

WARM = """
import sys, sysconfig
from fednb.cli import main
where = sysconfig.get_path
sysconfig.get_path = lambda name: sys.argv[1] if name == "scripts" else where(name)
sys.exit(main(sys.argv[2:]))
"""
COMMAND = ["flower", "SCAFFOLD", "--clients", "2", "--rounds", "2", "--timeout", "300"]
SET = {"samples": 100, "epochs": 1, "batch": 25, "partition": "iid"}


def test_interrupted_and_gone_on_with(quick, store, tmp_path):
    """Ctrl-C behind the first round leaves no process; the same command makes the second, to the weights of one run."""
    typed = [word for name, value in SET.items() for word in ("--set", name, str(value))]
    command = [*COMMAND, *typed, "--state", str(tmp_path / "state")]
    first = subprocess.Popen(
        [sys.executable, "-m", "fednb", *command], stdout=subprocess.PIPE, text=True, preexec_fn=_hears_ctrl_c
    )
    for line in first.stdout:
        if line.startswith("fednb: round 1 of 2: accuracy"):
            first.send_signal(signal.SIGINT)
            break
    first.stdout.read()
    assert first.wait() == 130
    assert not census.left(lambda: [text for text in census.marked(os.environ[census.MARK]) if "flwr" in text.lower()])
    warm = [sys.executable, "-c", WARM, quick["PATH"].split(os.pathsep)[0], *command]
    second = subprocess.run(warm, capture_output=True, text=True, timeout=400, check=False, env=os.environ | quick)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "goes on after 1 of 2 rounds" in second.stdout and "fednb: round 2 of 2: accuracy" in second.stdout
    alone = fn.run(fn.Setting(clients=2, participation=1.0, rounds=2, **SET), "SCAFFOLD", engine="loop", progress=False)
    expected = alone.entry.load_state()[0]["w"]
    torch.testing.assert_close(weights(tmp_path / "state" / "server"), expected, rtol=0, atol=1e-5)
    assert [row["clients"] for row in facts(tmp_path / "state" / "server")["history"]] == [[0, 1]] * 2


def _hears_ctrl_c() -> None:
    """Tests that run in the background of a shell are deaf to it, and so would be their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
