"""What a graph becomes for a target that this machine need not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zefuse import _native, tuning
from zefuse.options import Options

if TYPE_CHECKING:
    import torch


def graph_key(
    graph_module: torch.fx.GraphModule, parameters: Sequence[int], options: Options, family: str
) -> dict[str, Any]:
    """By which torch.compile finds the plan of this graph in an attached package."""
    own = of_graph(graph_module, options)
    wanted = for_host(own).to_dict() if family == "cpu" else for_product(own, family)
    return _native.load().graph_key(graph_module, list(parameters), wanted)


NOT_KEPT = "zefuse_weights_not_kept"
"""In a graph's ``meta``: it is one of training, whose parameters change."""


def of_graph(graph_module: torch.fx.GraphModule, options: Options) -> Options:
    """As the graph is compiled with them."""
    return dataclasses.replace(options, kept_weights=options.kept_weights and NOT_KEPT not in graph_module.meta)


def for_host(options: Options) -> Options:
    """A package is made by compiling, never out of another."""
    return dataclasses.replace(options, device="cpu", package="", package_only=False)


def for_product(options: Options, product: str) -> dict[str, Any]:
    return {**for_host(options).to_dict(), "device": "gpu", "target": product}


class PlanOnly:
    """A plan for a GPU that need not be here, with the methods of a compiled graph that say what it is."""

    def __init__(
        self, graph_module: torch.fx.GraphModule, weights: Sequence[int], options: Options, product: str
    ) -> None:
        self._made: dict[str, Any] = _native.load().compile_plan(
            graph_module,
            list(weights),
            tuning.applied(for_product(of_graph(graph_module, options), product), product),
        )

    def plan_bytes(self) -> bytes:
        return self._made["plan"]

    def constants(self) -> list[torch.Tensor]:
        return self._made["constants"]

    def report(self) -> dict[str, Any]:
        return self._made["report"]

    def counters(self) -> dict[str, Any]:
        return {}

    def step_times(self) -> list[Any]:
        return []
