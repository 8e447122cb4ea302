"""Tensors of zeros that have no memory (``torch._efficientzerotensor``): some of torch's derivatives begin with one, that of ``sgn`` say.

Eager's products and quotients of such a tensor are one again, whatever the other factor is. Zeros in memory would give -0.0 beside
a negative factor, and NaN beside an infinite one.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

_aten = torch.ops.aten
_PRODUCTS = {_aten.mul.Tensor, _aten.mul.Scalar}
_QUOTIENTS = {_aten.div.Tensor, _aten.div.Scalar}


def fill(gm: GraphModule) -> None:
    """In place: each becomes plain zeros. For graphs whose nodes have ``meta["val"]``."""
    made = gm.graph.find_nodes(op="call_function", target=_aten._efficientzerotensor.default)
    if not made:
        return
    for node in made:
        value = node.meta["val"]
        node.target, node.args = _aten.full.default, (node.args[0], 0)
        node.kwargs = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
    zeros = set(made)
    for node in list(gm.graph.nodes):
        if not _stays_zero(node, zeros):
            continue
        zeros.add(node)
        if node.target in _PRODUCTS | _QUOTIENTS:
            with gm.graph.inserting_after(node):
                full = gm.graph.call_function(_aten.full_like.default, (node, 0))
            full.meta = dict(node.meta)
            node.replace_all_uses_with(full, delete_user_cb=lambda user, full=full: user is not full)
            zeros.add(full)
    gm.recompile()


def _stays_zero(node: Node, zeros: set[Node]) -> bool:
    if node.target in _PRODUCTS:
        return any(each in zeros for each in node.all_input_nodes)
    if node.target in _QUOTIENTS or (isinstance(node.target, torch._ops.OpOverload) and node.target.is_view):
        return node.args[0] in zeros
    return False
