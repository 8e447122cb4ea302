"""Arguments that an operator is given and does not read: the joint graph forgets them, so that forward does not save them for backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def forget(graph: torch.fx.Graph) -> None:
    """A batch norm's derivative in training goes by the batch's statistics. Autograd gives it the running ones as well, whose new values
    would be two results more of forward for each norm. Of a layer norm's bias the derivative asks what it is like: as the weight."""
    import torch

    aten = torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.native_batch_norm_backward.default):
        if node.args[7] is True:
            node.args = (*node.args[:3], None, None, *node.args[5:])
    for node in graph.find_nodes(op="call_function", target=aten.native_layer_norm_backward.default):
        weight, bias = node.args[5:7]
        if weight is not None and bias is not None and weight.meta["val"].dtype == bias.meta["val"].dtype:
            node.update_arg(6, weight)
