"""A JupyterLab of the test's own: loopback, its own port, token and folders, and nothing left running."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

START_S = 300  # a server starts in 8 s; much longer only where everything else runs at the same time
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"autoStartDefaultKernel": True},  # else it may ask which one
}
OPTIONS = [
    "--no-browser",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port=0",  # any free one; the server writes which into its runtime folder
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.news_url=None",
    "--LabApp.extension_manager=readonly",
]


class LabFailed(RuntimeError):
    """The server did not come up; the text ends with what it said."""


class Lab:
    """JupyterLab on `home/notebooks`, with settings, store and runtime files beside it; its log goes to a file."""

    def __init__(self, home: Path, log: Path) -> None:
        self.home, self.log = home, log
        self.notebooks = home / "notebooks"
        self.token = secrets.token_hex(16)
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        """Up and answering when this returns."""
        settings = self.home / "config" / "labconfig" / "default_setting_overrides.json"
        for folder in (self.notebooks, self.home / "runtime", settings.parent):
            folder.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(SETTINGS))
        root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command = [sys.executable, "-m", "jupyterlab", *OPTIONS, f"--ServerApp.root_dir={self.notebooks}", *root]
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(command, env=self._environment(), stdout=file, stderr=subprocess.STDOUT)
        if not waited(self._answers, START_S):
            self.stop()
            raise LabFailed(f"JupyterLab did not start; {self.log} ends:\n{self.log.read_text()[-2000:]}")

    def _environment(self) -> dict[str, str]:
        """Nothing of the user's Jupyter, store or data; the token where no list of processes shows it."""
        mine = ("JUPYTER", "IPYTHON", "FEDNB")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "IPYTHONDIR": "ipython",
            "FEDNB_STORE": "store",
            "FEDNB_DATA": "sets",
        }
        own = {name: str(self.home / folder) for name, folder in folders.items()}
        return inherited | own | {"JUPYTER_TOKEN": self.token, "FEDNB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            self.stop()
            raise LabFailed(f"JupyterLab ended at once; {self.log} ends:\n{self.log.read_text()[-2000:]}")
        for file in (self.home / "runtime").glob(f"jpserver-{self.process.pid}.json"):
            try:
                self.url = json.loads(file.read_text())["url"].rstrip("/")
                return bool(self.ask("/api/status"))
            except (OSError, ValueError):  # half written, or not listening yet
                return False
        return False

    def ask(self, path: str, method: str = "GET") -> Any:
        """The server's answer to one request."""
        request = Request(self.url + path, method=method, headers={"Authorization": f"token {self.token}"})
        with urlopen(request, timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def address(self, notebook: str) -> str:
        """Where a browser opens a notebook, in a workspace that remembers nothing."""
        return f"{self.url}/lab/tree/{notebook}?token={self.token}&reset"

    def shut_kernels(self) -> None:
        """End every kernel, so that the next notebook has the machine for itself."""
        for session in self.ask("/api/sessions"):
            self.ask(f"/api/sessions/{session['id']}", "DELETE")

    def stop(self) -> None:
        """The server, its kernels and their workers end, politely first."""
        import psutil  # comes with Jupyter

        if self.process is None:
            return
        try:
            family = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        left = psutil.wait_procs(family, timeout=3)[1]
        for each in left:
            each.kill()
        psutil.wait_procs(left, timeout=3)
        self.process.wait(10)
        self.process = None


def waited(condition: Callable[[], Any], seconds: float, every: float = 0.1) -> bool:
    """Whether something came true within some seconds."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(every)
    return True
