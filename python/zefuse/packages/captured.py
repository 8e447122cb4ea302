"""Graphs as ``torch.compile`` hands them over, kept for a package: training's, those between graph breaks, those that change an
input, and those that ``torch.export`` traces differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zefuse import _native, tuning
from zefuse.errors import InvalidArgumentError
from zefuse.graphs import observers
from zefuse.graphs.for_target import PlanOnly, for_host, graph_key, of_graph
from zefuse.options import Options

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class CapturedGraph:
    """One functional ATen graph. ``parameters``: which inputs are parameters or buffers of modules."""

    graph_module: torch.fx.GraphModule = field(repr=False)
    parameters: Sequence[int] = field(repr=False)

    @property
    def num_inputs(self) -> int:
        """Without the constants that the graph holds."""
        return sum(node.op == "placeholder" for node in self.graph_module.graph.nodes)

    def compile(self, options: Options, family: str) -> Any:
        """For "cpu" or a GPU product, with the methods of a compiled graph that say what it is."""
        if family == "cpu":
            wanted = for_host(of_graph(self.graph_module, options)).to_dict()
            return _native.load().compile(self.graph_module, list(self.parameters), tuning.applied(wanted))
        return PlanOnly(self.graph_module, self.parameters, options, family)

    def key(self, options: Options, family: str) -> dict[str, Any]:
        """By which ``torch.compile`` finds the plan again."""
        return graph_key(self.graph_module, self.parameters, options, family)


def capture(function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[CapturedGraph]:
    """Calls ``function(*args, **kwargs)`` and returns the graphs that ``torch.compile(..., backend="zefuse")`` made in it.

    ``zefuse.compile_package`` and the factories of ``zefuse compile`` take them, beside programs of ``torch.export`` or alone;
    ``options={"package": ...}`` then finds them in a process that does the same: same grad mode, same marks of dynamic
    dimensions. ``function`` is a compiled model, or a step that calls some (with its ``backward()``: the graphs of training).
    It really runs, once. Only what this thread compiles is taken. Raises what ``function`` raises, and InvalidArgumentError where
    nothing was compiled.

    .. code-block:: python

        def factory():
            model = torch.compile(Model().eval(), backend="zefuse")
            with torch.no_grad():
                return zefuse.capture(model, torch.randn(4, 8))
    """
    graphs: list[CapturedGraph] = []
    token = observers.captured_graphs.set(
        lambda module, parameters: graphs.append(CapturedGraph(module, tuple(parameters)))
    )
    try:
        function(*args, **kwargs)
    finally:
        observers.captured_graphs.reset(token)
    if not graphs:
        raise InvalidArgumentError(
            'zefuse.capture: nothing was compiled in this call: it must call torch.compile(..., backend="zefuse"), for the first '
            "time in this process (torch._dynamo.reset() forgets earlier times)"
        )
    return graphs
