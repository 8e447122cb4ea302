"""Graphs that were quantized by export (PT2E): what multiplies codes takes the place of what multiplies numbers made of them.

Convolutions are in ``quantized_convolutions``, linear layers in ``quantized_linear``.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zefuse.decompositions import quantized_convolutions, quantized_linear
from zefuse.decompositions.quantized_patterns import is_call, shapes_of
from zefuse.graphs.dynamo_graphs import with_graph


def taken(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> torch.fx.GraphModule:
    """A graph of Dynamo's with our operator in the place of such convolutions and linear layers; without any, the graph itself."""
    if not any(is_call(node, *_takers()) for node in gm.graph.nodes):
        return gm
    if torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in example_inputs):
        return gm
    known = dict(zip((node.name for node in gm.graph.nodes if node.op == "placeholder"), example_inputs, strict=False))
    graph = copy.deepcopy(gm.graph)
    # Copying keeps no examples of values; names are the same.
    return with_graph(gm, graph) if _take_each(graph, known, shapes_of(gm.graph)) else gm


def decomposed(program: torch.export.ExportedProgram, table: dict[Any, Any]) -> torch.export.ExportedProgram:
    """A program of torch.export's by ``table``, with our operator in the place of such convolutions and linear layers; for the CPU."""
    from zefuse.decompositions import decomposed_quantization

    quantizers = decomposed_quantization.decompositions()
    if any(node.target in quantizers for node in program.graph.nodes):
        kept = {*quantizers, *_takers()}  # which are looked for in the graph that comes of it
        program = program.run_decompositions({op: made for op, made in table.items() if op not in kept})
        known = {
            spec.arg.name: program.constants.get(spec.target, program.state_dict.get(spec.target))
            for spec in program.graph_signature.input_specs
            if spec.target is not None
        }
        if _take_each(program.graph, known, shapes_of(program.graph)):
            program.graph_module.recompile()
    return program.run_decompositions(table)


def _take_each(graph: torch.fx.Graph, known: dict[str, Any], shapes: dict[str, Any]) -> bool:
    """``known``: the tensors that placeholders stand for, where they are."""
    found, takers = False, _takers()
    for node in list(graph.nodes):
        if is_call(node, *takers):
            found |= takers[node.target](graph, node, known, shapes)
    if found:
        graph.eliminate_dead_code()
        graph.lint()
    return found


def _takers() -> dict[Any, Any]:
    """By operator: what puts another one in the place of a node, or gives False and leaves it."""
    return {
        **dict.fromkeys(quantized_convolutions.operators(), quantized_convolutions.take),
        **dict.fromkeys(quantized_linear.operators(), quantized_linear.take),
    }
