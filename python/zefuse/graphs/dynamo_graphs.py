"""Graphs of Dynamo's that are changed before AOTAutograd sees them."""

from __future__ import annotations

import torch


def with_graph(gm: torch.fx.GraphModule, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """``gm`` with a changed copy of its graph, and with what Dynamo says of its inputs, which copying loses: by it AOTAutograd tells
    a module's own tensors, whose packed copies are kept, from a call's."""
    made = torch.fx.GraphModule(gm, graph)
    made.meta = dict(gm.meta)
    if hasattr(gm, "_param_name_to_source"):
        made._param_name_to_source = gm._param_name_to_source
    before, after = (each.find_nodes(op="placeholder") for each in (gm.graph, graph))
    for old, new in zip(before, after, strict=True):
        new.meta.update(old.meta)
        if hasattr(old, "_dynamo_source"):
            new._dynamo_source = old._dynamo_source
    return made
