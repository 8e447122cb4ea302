"""Seeds of the random numbers that a graph's kernels make: one input more, drawn from torch's generator when it is called.

So ``torch.manual_seed``, ``fork_rng``, a checkpoint that keeps the generator's state and torch's graph capture do what they do with
eager's draws. A recorded graph reads the seeds of the call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._inductor import config
from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from zefuse.decompositions import random_numbers


def merge(graph: Graph) -> None:
    """In place: all draws on a device have elements of one tensor of seeds, drawn first. Of a joint graph that tensor is kept for the
    backward, where a checkpoint makes its numbers again."""
    draws: dict[torch.device, list[Node]] = defaultdict(list)
    for node in graph.find_nodes(op="call_function", target=random_numbers.seed):
        draws[node.meta["val"].device].append(node)
    for device, nodes in draws.items():
        value = nodes[0].meta["val"]
        first = next(node for node in graph.nodes if node.op != "placeholder")
        with graph.inserting_before(first):
            drawn = graph.call_function(random_numbers.seeds, (len(nodes), device))
        with value.fake_mode:
            drawn.meta = {"val": value.new_empty((len(nodes),))}
        if any("recompute" in node.meta for node in nodes):
            drawn.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        for number, node in enumerate(nodes):
            with graph.inserting_before(node):
                one = graph.call_function(torch.ops.aten.select.int, (drawn, 0, number))
            with value.fake_mode:
                one.meta = node.meta | {"val": drawn.meta["val"].select(0, number)}
            node.replace_all_uses_with(one)
            graph.erase_node(node)


def taken(gm: GraphModule, place: torch.device | None) -> tuple[GraphModule, int]:
    """The same graph with its seeds as one more input, the last, and how many they are; 0: it is itself, without such an input."""
    merge(gm.graph)
    drawn = [
        node for node in gm.graph.find_nodes(op="call_function", target=random_numbers.seeds) if node.args[1] == place
    ]
    if not drawn:
        return gm, 0
    graph, made = Graph(), dict[Node, Node]()
    output = graph.graph_copy(gm.graph, made)
    graph.output(output).meta = dict(gm.graph.output_node().meta)  # marks of which outputs are whose
    for node, copy in made.items():
        copy.meta = dict(node.meta)
    draw = made[drawn[0]]
    *_, last = graph.find_nodes(op="placeholder") or [None]
    with graph.inserting_after(last) if last is not None else graph.inserting_before(draw):
        given = graph.placeholder("random_seeds")
    given.meta = {"val": draw.meta["val"]}
    draw.replace_all_uses_with(given)
    graph.erase_node(draw)
    return GraphModule(gm, graph), int(drawn[0].args[0])


class Seeded:
    """A compiled graph with such an input, called without it. All else is the graph's own."""

    _boxed_call = True

    def __init__(self, compiled: Callable[[list[Any]], Any], count: int, place: torch.device) -> None:
        self._compiled, self._count, self._place = compiled, count, place

    def __call__(self, arguments: list[Any]) -> Any:
        arguments.append(self.draw())
        return self._compiled(arguments)

    def draw(self) -> torch.Tensor:
        """The seeds of a call."""
        seeds: torch.Tensor = random_numbers.seeds(self._count, self._place)
        return seeds

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = self._compiled.report()  # type: ignore[attr-defined]
        return report | {"random": {"draws": self._count, "generator": str(self._place)}}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)


def unread_draws_kept(kept: bool) -> AbstractContextManager[Any]:
    """Where draws are eager's, those that nothing reads are done too, so that what is drawn after them is as in eager. AOTAutograd asks
    Inductor's setting whether it may leave them out."""
    return config.patch(fallback_random=True) if kept else nullcontext()
