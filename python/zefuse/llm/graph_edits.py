"""Changes to a traced graph: a layer's graph in the place of its call, results in the memory of inputs, and nothing that is not needed."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch


def copied(
    graph: torch.fx.GraphModule, body: torch.fx.GraphModule, inputs: Sequence[Any], before: torch.fx.Node
) -> list[Any]:
    """The body's nodes in front of ``before``, on these inputs; gives its results."""
    known: dict[torch.fx.Node, Any] = {}
    remaining = iter(inputs)
    results: list[Any] = []
    with graph.graph.inserting_before(before):
        for node in body.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(remaining)
            elif node.op == "output":
                results = [known[each] for each in node.args[0]]
            else:
                if node.op == "get_attr":
                    constant = f"{before.name}{node.target}"
                    graph.register_buffer(constant, getattr(body, node.target))
                    known[node] = graph.graph.get_attr(constant)
                else:
                    known[node] = graph.graph.node_copy(node, lambda each: known[each])
                known[node].meta = dict(node.meta)
    return results


def write_back(graph: torch.fx.GraphModule, first: int, layers: int, each: int) -> None:
    """The graph's last results, ``each`` of every layer in turn, become the memory of the inputs from ``first`` on: those of the first
    kind, one for each layer, then those of the second."""
    nodes = list(graph.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    output = nodes[-1]
    results = list(output.args[0])
    count = layers * each
    kept, written = results[: len(results) - count], results[len(results) - count :]
    with graph.graph.inserting_before(output):
        for number, value in enumerate(written):
            target = placeholders[first + number // each + (number % each) * layers]
            copy = graph.graph.call_function(torch.ops.aten.copy_.default, (target, value))
            copy.meta["val"] = target.meta["val"]
    output.args = (tuple(kept),)
    graph.recompile()


def without_given(graph: torch.fx.GraphModule, first: int, count: int) -> dict[int, int]:
    """Takes out of the results those that are one of ``count`` inputs from ``first`` on: the number of each, and of which input."""
    nodes = list(graph.graph.nodes)
    inputs = {node: number for number, node in enumerate(nodes[first : first + count])}
    results = nodes[-1].args[0]
    nodes[-1].args = (tuple(node for node in results if node not in inputs),)
    graph.recompile()
    return {number: inputs[node] for number, node in enumerate(results) if node in inputs}


def without_unread_items(graph: torch.fx.GraphModule) -> None:
    """Results of an operator that nobody reads are not asked for: attention need not keep its rows' sums."""
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and node.target is operator.getitem and not node.users:
            graph.graph.erase_node(node)


def without_unused(graph: torch.fx.GraphModule, names: Sequence[str]) -> list[str]:
    """The parameters that the graph reads; the others (of an encoder, for its decoder) are no inputs any more."""
    kept = []
    for name, node in zip(names, list(graph.graph.nodes), strict=False):
        if node.users:
            kept.append(name)
        else:
            graph.graph.erase_node(node)
    graph.recompile()
    return kept
