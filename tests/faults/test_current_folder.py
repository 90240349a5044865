"""Files in the current folder that are called like modules: no command runs them, nor do its child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from faults.processes import options

pytestmark = pytest.mark.faults
NAMES = ("json", "pickle", "signal", "socket", "struct", "runpy", "ctypes", "multiprocessing", "typing_extensions",
         "torch", "numpy", "pandas", "tqdm", "safetensors", "fednb", "sitecustomize", "usercustomize")  # fmt: skip


@pytest.fixture
def hostile(tmp_path):
    """A folder full of modules, each of which writes its name into `run.txt` beside the folder."""
    folder, seen = tmp_path / "here", tmp_path / "run.txt"
    folder.mkdir()
    seen.touch()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(seen)!r}, 'a').write('{name} ')\nraise SystemExit(99)\n")
    return folder


def command(*arguments: str) -> list[str]:
    """The installed command; of a checkout on PYTHONPATH if there is one."""
    return [str(Path(sys.executable).parent / "fednb"), *arguments]


@pytest.mark.parametrize(
    "arguments, until",
    [
        (options(3, "pool"), "runs/*/state.safetensors"),
        (["grid", "run", "fedfft", "table8", "--jobs", "2", "--device", "cpu"], "runs/*/lock"),
        (["notebook", "00", "--plain"], "runs/*/lock"),
        (["notebook", "--all"], "runs/*/lock"),
    ],
    ids=["pool", "grid", "plain notebook", "notebooks"],
)
def test_nothing_that_lies_in_the_current_folder_is_run(arguments, until, hostile, tmp_path):
    """Each command comes so far that its processes work, and is then ended."""
    store = tmp_path / "store"
    env = os.environ | {"FEDNB_STORE": str(store), "OMP_NUM_THREADS": "1"}
    with open(tmp_path / "said.txt", "w") as said:
        process = subprocess.Popen(command(*arguments), cwd=hostile, env=env, stdout=said, stderr=said)
        end = time.monotonic() + 300
        while not any(store.glob(until)) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert (tmp_path / "run.txt").read_text() == "", "modules of the current folder were run"
    assert any(store.glob(until)), (tmp_path / "said.txt").read_text()


def test_a_module_beside_a_script_is_found_by_the_workers(tmp_path):
    """`python folder/script.py` and `python -m script` may use their own parts on several processes."""
    (tmp_path / "own_parts.py").write_text(
        "from fednb.core.rounds import Part, part\n\n\n@part\nclass Half(Part):\n    '''Half of it.'''\n\n"
        "    def correct(self, k, s, v):\n        '''v ← v / 2'''\n        return v / 2\n"
    )
    (tmp_path / "script.py").write_text(
        "import fednb as fn\nfrom faults.cases import SHORT\nfrom own_parts import Half\n\n"
        "done = fn.run(fn.Setting(**SHORT, rounds=1), fn.Method('half', Half()), engine='pool', workers=1)\n"
        "print(done.status)\n"
    )
    tests = str(Path(__file__).parents[1])
    env = os.environ | {"PYTHONPATH": os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])}
    ways = [([str(tmp_path / "script.py")], None), (["-m", "script"], tmp_path)]
    for i, (arguments, cwd) in enumerate(ways):
        env["FEDNB_STORE"] = str(tmp_path / str(i))
        done = subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True)
        assert done.stdout.strip() == "finished", done.stderr


def test_the_folder_that_python_puts_first_is_not_given_to_children(tmp_path, monkeypatch):
    """`python -m` puts it there as an absolute path, `python -c` as an empty one; somebody else's stays where it is."""
    from fednb.base.processes import child

    monkeypatch.chdir(tmp_path)
    here = str(tmp_path)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pytest.__main__", None), raising=False)
    monkeypatch.setattr(sys, "path", [here, "", "/somewhere"])
    assert child.folders() == ["/somewhere"]
    monkeypatch.setattr(sys, "path", ["/somewhere", here])
    assert child.folders() == ["/somewhere", here]
