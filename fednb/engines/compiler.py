"""As a program: `python -m fednb.engines.compiler ORDER` compiles what a file describes, and keeps it."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import torch

import fednb.engines.convolve  # its operators may be in the graph
import fednb.filters  # noqa: F401  (and those of filters)
from fednb.engines.compiled import compiled, keep, ordered
from fednb.engines.objective import arithmetic


def main(order: str) -> None:
    """Compile, let it choose among kernels by a first call, and keep it; without room for a call it chooses later."""
    graph, inputs, precision, path = ordered(Path(order).read_bytes())
    with arithmetic(precision), torch.no_grad():
        made = compiled(graph, inputs)
        with suppress(torch.OutOfMemoryError):
            made(*inputs)
        keep(made, path)


if __name__ == "__main__":
    main(sys.argv[1])
