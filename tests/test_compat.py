"""torchvision imports through fednb.base.compat, and only through it, whether or not its compiled operators load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fednb.base import compat

ROOT = Path(__file__).resolve().parents[1]

FRESH = """
from fednb.base.compat import torchvision
import torch
from torchvision.transforms import v2
net = torchvision.models.resnet18(num_classes=10).eval()
assert net(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
assert v2.functional.horizontal_flip(torch.arange(4).view(1, 2, 2)).tolist() == [[[1, 0], [3, 2]]]
"""


def forbid(*_args, **_kwargs):
    raise AssertionError("the schemas must not be defined here")


def test_fresh_process_imports_and_runs():
    done = subprocess.run([sys.executable, "-c", FRESH], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_nothing_is_declared_where_the_operators_load(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "torchvision")
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    monkeypatch.setattr(torch.library, "Library", forbid)
    assert compat.declare(tmp_path / "_C.so") is None


def test_nothing_is_declared_twice(monkeypatch, tmp_path):
    """With torchvision imported already, or with its operators known, there is nothing left to declare."""
    monkeypatch.setattr(torch.library, "Library", forbid)
    assert compat.declare(tmp_path / "_C.so") is None
    monkeypatch.delitem(sys.modules, "torchvision")
    assert compat.declare(tmp_path / "_C.so") is None


def test_both_schemas_are_declared_where_the_operators_do_not_load(monkeypatch, tmp_path):
    class Recorder:
        def __init__(self, *where):
            self.where, self.schemas = where, []

        def define(self, schema):
            self.schemas.append(schema.split("(")[0])

    monkeypatch.delitem(sys.modules, "torchvision")
    monkeypatch.setattr(torch.ops, "torchvision", object(), raising=False)
    monkeypatch.setattr(torch.library, "Library", Recorder)
    library = compat.declare(tmp_path / "_C.so")
    assert (library.where, library.schemas) == (("torchvision", "FRAGMENT"), ["nms", "qnms"])


def test_other_errors_are_not_hidden(monkeypatch, tmp_path):
    def broken(path):
        raise RuntimeError("wrong ABI")

    monkeypatch.setattr(torch.ops, "load_library", broken)
    with pytest.raises(RuntimeError, match="wrong ABI"):
        compat.loads(tmp_path / "_C.so")


def test_absent_torchvision_is_left_to_the_import(monkeypatch):
    monkeypatch.setattr(compat.importlib.util, "find_spec", lambda name: None)
    assert compat.operators() is None
    assert compat.declare(None) is None


def imported(path: Path) -> set[str]:
    """Top-level names of the packages a source file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_nobody_else_imports_torchvision():
    guilty = [p.name for p in (ROOT / "fednb").rglob("*.py") if "torchvision" in imported(p)]
    assert guilty == ["compat.py"]
