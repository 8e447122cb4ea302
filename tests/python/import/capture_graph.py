"""Functions as the FX graphs that AOTAutograd hands to a backend, and the importer alone on them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd

from zefuse.decompositions.table import decompositions

ROOT = Path(__file__).resolve().parents[3]


def native() -> Any:
    """The module zefuse_import_test, from the build tree."""
    built = sorted(ROOT.glob("build/**/zefuse_import_test*.so"), key=lambda path: path.stat().st_mtime)
    if not built:
        pytest.skip("zefuse_import_test is not built")
    folder = str(built[-1].parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import zefuse_import_test

    return zefuse_import_test


def graph_of(function: Callable[..., Any], inputs: list[Any], dynamic: bool = False) -> torch.fx.GraphModule:
    graphs: list[torch.fx.GraphModule] = []

    def keep(gm: torch.fx.GraphModule, _: Any) -> torch.fx.GraphModule:
        graphs.append(gm)
        return gm

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=keep, decompositions=decompositions())
    with torch.no_grad():
        torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)(*inputs)
    assert len(graphs) == 1
    return graphs[0]


def imported(function: Callable[..., Any], inputs: list[Any], dynamic: bool = False) -> str:
    return native().import_to_text(graph_of(function, inputs, dynamic))
