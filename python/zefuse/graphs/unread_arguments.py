"""Arguments that an operator is given and does not read: the joint graph forgets them, so that forward does not save them for backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def forget(graph: torch.fx.Graph) -> None:
    """A batch norm's derivative in training goes by the batch's statistics. Autograd gives it the running ones as well, whose new values
    would be two results more of forward for each norm."""
    import torch

    backward = torch.ops.aten.native_batch_norm_backward.default
    for node in graph.find_nodes(op="call_function", target=backward):
        if node.args[7] is True:
            node.args = (*node.args[:3], None, None, *node.args[5:])
