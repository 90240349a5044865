"""The arrows of the design: imports point down, and the core needs neither Jupyter nor plotting."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "fednb"

# From the bottom up. A folder may import what stands in a line below its own.
FLOORS = [
    ("base",),
    ("core",),
    ("filters",),
    ("algorithms",),
    ("data", "models"),
    ("engines",),
    ("runs",),
    ("metrics",),
    ("study", "flower"),
    ("show",),
    ("cli",),
    ("__main__",),
]
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}
MATHEMATICS = ("core", "filters", "algorithms")
ALLOWED = {
    "torch",
    "numpy",
    "pandas",
    "sklearn",
    "scipy",
    "tqdm",
    "safetensors",
    "cloudpickle",
    "fednb",
    "torchvision",
    *sys.stdlib_module_names,
}
OPTIONAL = {  # by folder or file: extras, loaded when they are asked for
    "show/plots": {"matplotlib", "seaborn"},
    "show/explore": {"ipywidgets", "IPython", "PIL", "matplotlib"},
    "study/notebooks.py": {"papermill"},
    "study/page.py": {"PIL"},  # comes with matplotlib; loaded when a figure is kept
    "models/vit.py": {"timm"},  # an extra: loaded when the model is asked for
    "data/pictures.py": {"PIL"},  # torchvision and matplotlib bring Pillow; loaded when images are decoded
    "data/corrupt.py": {"PIL"},
    "data/domains.py": {"PIL"},
    "data/own_folder.py": {"PIL"},
    "data/own_samples.py": {"PIL"},
    "show/site/text.py": {"nbconvert", "latex2mathml"},  # an extra: loaded when the site is published
    "show/site/reference.py": {"griffe"},
    "show/site/notebook.py": {"nbconvert", "nbformat", "traitlets"},
    "runs/cluster": {"distributed", "IPython"},  # an extra: loaded when a cluster is named
    "flower": {"flwr"},  # an extra: loaded when an app is asked for
    "runs/bench/peers.py": {"pfl"},  # an extra: loaded when peers are timed
    "filters/fast/kernels.py": {"triton"},  # comes with torch where there is a GPU; loaded when a vector lies on one
}

MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_of(p): p for p in PACKAGE.rglob("*.py")}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path, types: bool = False) -> set[str]:
    """The modules that a file names; what only a type checker imports is left out unless asked for."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING" and not types
        for inner in ast.walk(node)
    }
    nodes = [n for n in ast.walk(tree) if id(n) not in hidden]
    names = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
    for n in nodes:
        if isinstance(n, ast.ImportFrom) and n.level == 0:
            inside = {f"{n.module}.{a.name}" for a in n.names}
            modules = {name for name in inside if name in FILES}
            names |= modules | ({n.module or ""} if inside - modules else set())
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path):
    mine = LEVEL[room(path)]
    for name in imported(path):
        if name.startswith("fednb."):
            other = name.split(".")[1]
            if other == room(path):
                continue
            assert LEVEL[other] < mine, f"{path.name} imports {name}, which stands beside or above it"


def test_no_files_import_each_other_in_a_circle():
    """Not even for their types."""
    above: dict[str, set[str]] = {m: {n for n in imported(p, types=True) if n in FILES} for m, p in FILES.items()}
    while bottom := {m for m, below in above.items() if not below & (set(above) - {m})}:
        above = {m: below for m, below in above.items() if m not in bottom}
    assert sorted(above) == ["fednb"] or not above, f"a circle among {sorted(above)}"


def test_the_ground_floor_is_seen_at_a_glance():
    """At most 14 entries beside the two files that Python asks for; each folder says in a line what it may import."""
    entries = [p for p in PACKAGE.iterdir() if not p.name.startswith(("__", "."))]
    assert len(entries) <= 14
    for folder in (p for p in entries if p.is_dir() and p.name[0] != "_"):
        says = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
        assert "Imports " in says.splitlines()[0], folder.name


def test_no_module_is_hidden_by_another_thing_of_its_name():
    code = """
import importlib, pkgutil, fednb, types
for found in pkgutil.walk_packages(fednb.__path__, "fednb."):
    if found.name.endswith(("__main__", "fast.kernels")):
        continue
    module = importlib.import_module(found.name)
for found in pkgutil.walk_packages(fednb.__path__, "fednb."):
    above, _, name = found.name.rpartition(".")
    if not found.name.endswith(("__main__", "fast.kernels")):
        assert isinstance(getattr(importlib.import_module(above), name), types.ModuleType), found.name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_room_is_in_the_plan():
    assert {room(p) for p in MODULES} == set(LEVEL)


def test_a_part_never_imports_another():
    paths = [p for p in MODULES if module_of(p).startswith("fednb.algorithms.parts.")]
    assert paths
    for path in paths:
        assert not [name for name in imported(path) if name.startswith("fednb.algorithms.parts")], path.name


def test_mathematics_knows_no_data_models_or_files():
    for path in (p for p in MODULES if room(p) in MATHEMATICS):
        assert not imported(path) & {"pathlib", "os", "io", "json", "csv", "safetensors"}, path.name


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_third_parties_are_the_declared_ones(path):
    roots = {name.split(".")[0] for name in imported(path)} - {"__future__"}
    here = path.relative_to(PACKAGE)
    assert roots <= ALLOWED | OPTIONAL.get(here.as_posix(), set()) | OPTIONAL.get(here.parent.as_posix(), set())


def test_import_is_light():
    """`import fednb` loads neither Jupyter nor plotting nor torchvision."""
    heavy = ["IPython", "papermill", "ipywidgets", "matplotlib", "seaborn", "torchvision", "nbformat", "jupyter_client"]
    code = f"import fednb, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_everything_promised_is_there():
    import fednb

    assert [name for name in fednb.__all__ if not hasattr(fednb, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'methodz'"):
        fednb.methodz  # noqa: B018
