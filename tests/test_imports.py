"""The arrows of the design: imports point down, and the core needs neither Jupyter nor plotting."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "fednb"

# From the bottom up. A module may import what stands in a line below its own, or beside it where the line says so.
FLOORS = [
    ("vectors", "lowest", "compat", "version", "progress", "files", "inputs", "declared"),
    ("streams", "locks", "checks", "codetext"),
    ("filters", "record"),
    ("rounds",),
    ("parts",),
    ("compose", "card"),
    ("methods",),
    ("data", "models"),
    ("setting",),
    ("engines", "keys"),
    ("history_csv", "ending"),
    ("store",),
    ("checkpoints",),
    ("probes",),
    ("evaluate",),
    ("experiment",),
    ("grid",),
    ("metrics",),
    ("evidence", "rules", "plots"),
    ("claims",),
    ("report",),
    ("paper",),
    ("parameters",),
    ("execution",),
    ("notebooks", "verify", "jobs", "bench", "widgets"),
    ("store_command", "site"),
    ("cli",),
    ("__main__",),
]
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}
MATHEMATICS = ("streams", "vectors", "lowest", "filters", "record", "rounds", "parts", "compose", "methods")
ALLOWED = {
    "torch",
    "numpy",
    "pandas",
    "sklearn",
    "tqdm",
    "safetensors",
    "fednb",
    "torchvision",
    *sys.stdlib_module_names,
}
LATER = {"matplotlib", "seaborn", "papermill"}  # plots.py, notebooks.py: loaded when asked for
JUPYTER = {"ipywidgets", "IPython", "PIL", "matplotlib"}  # widgets: an extra, loaded when an explorer is
OPTIONAL = {
    "models/vit.py": {"timm"},  # an extra: loaded when the model is asked for
    "data/pictures.py": {"PIL"},  # torchvision and matplotlib bring Pillow; loaded when images are decoded
    "data/corrupt.py": {"PIL"},
    "data/domains.py": {"PIL"},
    "site/text.py": {"nbconvert", "latex2mathml"},  # an extra: loaded when the site is published
    "site/notebook.py": {"nbconvert", "nbformat", "traitlets"},
    "bench/peers.py": {"pfl"},  # an extra: loaded when peers are timed
    "lowest/kernels.py": {"triton"},  # comes with torch where there is a GPU; loaded when a vector lies on one
}

MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path, top_level_only: bool = False) -> set[str]:
    """The modules that a file names; type-checking imports do not count, they never run."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    nodes = [n for n in (tree.body if top_level_only else ast.walk(tree)) if id(n) not in hidden]
    names = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
    for n in nodes:
        if isinstance(n, ast.ImportFrom) and n.level == 0:
            names |= {f"{n.module}.{a.name}" for a in n.names} if n.module == "fednb" else {n.module or ""}
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


def test_every_room_is_in_the_plan():
    assert {room(p) for p in MODULES} == set(LEVEL)


def test_a_part_never_imports_another():
    for path in (PACKAGE / "parts").glob("*.py"):
        if path.name != "__init__.py":
            assert not [name for name in imported(path) if name.startswith("fednb.parts")], path.name


def test_mathematics_knows_no_data_models_or_files():
    for path in (p for p in MODULES if room(p) in MATHEMATICS):
        assert not imported(path) & {"pathlib", "os", "io", "json", "csv", "safetensors"}, path.name


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_third_parties_are_the_declared_ones(path):
    roots = {name.split(".")[0] for name in imported(path)} - {"__future__"}
    extra = {"plots": LATER, "notebooks": LATER, "widgets": JUPYTER}.get(room(path), set())
    assert roots <= ALLOWED | extra | OPTIONAL.get(path.relative_to(PACKAGE).as_posix(), set())


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


def test_names_stay_what_they_are_whatever_was_imported_before():
    """A module of the name of a function would take its place in the package."""
    code = (
        "import fednb.cli, fednb.verify, fednb.notebooks, fednb as fn; assert callable(fn.papers) and callable(fn.card)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
