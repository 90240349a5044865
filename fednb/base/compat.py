"""torchvision, also where its compiled operators cannot be loaded: `from fednb.base.compat import torchvision`."""

import importlib.util
import sys
from pathlib import Path

import torch

# torchvision registers shape rules for these two operators on import and fails if nobody has declared them.
MISSING = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def operators() -> Path | None:
    """The file of torchvision's compiled operators, found without importing it; None where it is not installed."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    built = (path for path in sorted(folder.glob("_C.*")) if path.suffix in {".so", ".pyd"})
    return next(built, folder / "_C.so")


def loads(file: Path) -> bool:
    """Whether the compiled operators load beside this torch (a CUDA build beside a CPU-only torch does not)."""
    try:
        torch.ops.load_library(str(file))
    except OSError:
        return False
    return True


def declare(file: Path | None) -> "torch.library.Library | None":
    """Declare the missing operators if, and only if, the compiled ones cannot be loaded; None when nothing was done.

    The declarations live as long as the returned library does, so the caller keeps it. Models, transforms and data
    sets then work; `torchvision.io` and `torchvision.ops.nms` still do not.
    """
    if file is None or "torchvision" in sys.modules or loads(file) or hasattr(torch.ops.torchvision, "nms"):
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in MISSING:
        library.define(schema)
    return library


KEPT = declare(operators())

import torchvision  # noqa: E402  (the operators must be declared first)

__all__ = ["torchvision"]
