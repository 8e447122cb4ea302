"""Outputs that AOTAutograd rebuilds as views of an input, and where the view begins.

Functionalisation returns such an output as a view of the value that the input is overwritten with, whose memory is another. Where
the view was taken with symbolic sizes, AOTAutograd rebuilds it by ``as_strided`` with the storage offset of the tensor that the
graph returned at run time (``gen_alias_from_base``), which says where in the *input's* storage it begins. So such an output is a
real view of the input, and the importer is told which outputs they are: ``y = x + 1; x.copy_(y); return y`` looks alike and is none.
"""

from __future__ import annotations

import torch
from torch._functorch._aot_autograd.schemas import OutputType, PlainTensorMeta
from torch._guards import TracingContext

ALIASES = "zefuse_aliases"  # of a graph's output node: the numbers of outputs


def numbers() -> list[int]:
    """Of the outputs of the forward or inference graph that is being compiled."""
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return []
    metadata = context.fw_metadata
    if not all(isinstance(meta, PlainTensorMeta) for meta in metadata.subclass_fw_graph_out_meta):
        return []  # a subclass's tensors are several outputs each
    first = metadata.num_mutated_inp_runtime_indices
    return [
        first + number
        for number, info in enumerate(metadata.output_info)
        if info.output_type == OutputType.alias_of_input
    ]


def is_base_returned(inputs: int) -> bool:
    """Whether an input is returned of a graph of which AOTAutograd made one with fewer inputs, since some share memory."""
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None or len(context.fw_metadata.input_info) >= inputs:
        return False
    return any(info.output_type == OutputType.is_input for info in context.fw_metadata.output_info)


def note(gm: torch.fx.GraphModule) -> None:
    """Marks the outputs of ``gm``, a forward or inference graph that is being compiled."""
    if aliases := numbers():
        gm.graph.output_node().meta[ALIASES] = aliases
