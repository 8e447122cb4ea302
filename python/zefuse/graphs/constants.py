"""What a graph makes of constants alone.

Swin's mask of shifted windows is one: nine writes into a tensor of zeros, of sizes that the model knows. In a kernel each element
would ask nine times whether it is written, in every call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node

_aten = torch.ops.aten

# Only what is the same number on every device. The first input of those that make tensors tells no more than dtype and place.
_MADE_LIKE = {_aten.new_zeros, _aten.new_ones, _aten.new_full, _aten.zeros_like, _aten.ones_like, _aten.full_like}
_MADE = {_aten.full, _aten.zeros, _aten.ones, _aten.arange, _aten.scalar_tensor, _aten.eye}
_VIEWS = {
    _aten.alias, _aten.view, _aten._unsafe_view, _aten.reshape, _aten.permute, _aten.transpose, _aten.t, _aten.slice, _aten.select,
    _aten.unsqueeze, _aten.squeeze, _aten.expand, _aten.detach,
}  # fmt: skip
_WRITES = {
    _aten.slice_scatter, _aten.select_scatter, _aten.diagonal_scatter, _aten.index_put, _aten.index_copy, _aten.index_fill,
    _aten.scatter,
}  # fmt: skip
_POINTWISE = {
    _aten.add, _aten.sub, _aten.mul, _aten.neg, _aten.abs, _aten.eq, _aten.ne, _aten.lt, _aten.le, _aten.gt, _aten.ge, _aten.where,
    _aten.logical_not, _aten.logical_and, _aten.logical_or, _aten.bitwise_not, _aten.bitwise_and, _aten.bitwise_or,
    _aten.masked_fill, _aten.fill, _aten.copy, _aten.clone, _aten._to_copy, _aten.lift_fresh_copy, _aten.tril, _aten.triu, _aten.cat,
    _aten.roll, _aten.floor_divide, _aten.remainder,
}  # fmt: skip
_FOLDED = _MADE | _MADE_LIKE | _VIEWS | _WRITES | _POINTWISE

_MOST_ELEMENTS = 1 << 22  # of a tensor that is made while compiling


def fold(gm: GraphModule) -> None:
    """In place. Single numbers become literals of the graph, which no device waits for; what is written piece by piece
    (``slice_scatter`` and its like) becomes a constant. The rest stays: a kernel makes an ``arange`` or a triangle sooner than it
    reads one, and attention knows its masks by how they are made.

    For graphs whose nodes have ``meta["val"]``. Results of the graph are never constants: each call's are its own.
    """
    constants = _constants(gm)
    if not any(_packet(node) in _WRITES or _packet(node) is _aten.lift_fresh_copy for node in constants):
        return
    values: dict[Node, torch.Tensor] = {}
    with torch.no_grad(), unset_fake_temporarily():
        for node in _literals(gm, constants):
            _become_full(gm, node, _value(gm, node, values))
        for number, node in enumerate(_frontier(constants)):
            _become_constant(gm, node, _value(gm, node, values), number)
    gm.graph.eliminate_dead_code()
    gm.recompile()


def _packet(node: Node) -> Any:
    return node.target._overloadpacket if isinstance(node.target, torch._ops.OpOverload) else None


def _inputs(node: Node) -> list[Node]:
    """Those whose numbers it reads."""
    found = node.all_input_nodes
    if _packet(node) in _MADE_LIKE:
        return [each for each in found if each is not node.args[0]]
    return found


def _constants(gm: GraphModule) -> dict[Node, bool]:
    """The nodes that depend on no input, in their order, and whether one of those before them is a write."""
    found: dict[Node, bool] = {}
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            value = _attribute(gm, node)
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter) and value.dim() == 0:
                found[node] = False
        elif (
            node.op == "call_function"
            and _packet(node) in _FOLDED
            and all(each in found for each in _inputs(node))
            and _has_known_size(node.meta.get("val"))
        ):
            found[node] = _packet(node) in _WRITES or any(found[each] for each in _inputs(node))
    return found


def _has_known_size(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and all(type(size) is int for size in (*value.shape, *value.stride(), value.storage_offset()))
        and value.numel() <= _MOST_ELEMENTS
    )


def _literals(gm: GraphModule, constants: dict[Node, bool]) -> list[Node]:
    return [
        node
        for node in constants
        if _packet(node) is _aten.lift_fresh_copy
        and node.args[0].op == "get_attr"  # type: ignore[union-attr]
        and not node.meta["val"].dtype.is_complex
    ]


def _frontier(constants: dict[Node, bool]) -> list[Node]:
    """What others read of the tensors that were written in pieces: views stay, of what they are views of."""
    found: dict[Node, None] = {}
    for node, written in constants.items():
        if not written or all(user in constants for user in node.users):
            continue
        while _packet(node) in _VIEWS:
            node = _inputs(node)[0]
        if constants[node] and not _reaches_output(node):
            found[node] = None
    return list(found)


def _reaches_output(node: Node) -> bool:
    """Itself, or a view of it that is returned."""
    if node.op == "output":
        return True
    return any(user.op == "output" or (_packet(user) in _VIEWS and _reaches_output(user)) for user in node.users)


def _attribute(gm: GraphModule, node: Node) -> Any:
    value: Any = gm
    for name in str(node.target).split("."):
        value = getattr(value, name, None)
    return value


def _value(gm: GraphModule, node: Node, values: dict[Node, torch.Tensor]) -> torch.Tensor:
    """In eager, on the CPU."""
    order, waiting = [], [node]
    while waiting:  # deep chains: not by recursion
        each = waiting.pop()
        if each not in values:
            order.append(each)
            waiting += _inputs(each)
    for each in reversed(order):
        if each in values:
            continue
        if each.op == "get_attr":
            values[each] = _attribute(gm, each).cpu()
            continue
        args = list(each.args)
        if _packet(each) in _MADE_LIKE:
            made = each.meta["val"]
            args[0] = torch.empty_strided(made.shape, made.stride(), dtype=made.dtype)
        kwargs = {key: value for key, value in each.kwargs.items() if key not in ("device", "pin_memory")}
        given = torch.fx.node.map_arg((tuple(args), kwargs), values.__getitem__)
        values[each] = each.target(*given[0], **given[1])  # type: ignore[operator]
    return values[node]


def _become_full(gm: GraphModule, node: Node, value: torch.Tensor) -> None:
    """Where its users compute: numbers of the CPU go with tensors of any device in eager."""
    made = node.meta["val"]
    devices = {user.meta["val"].device for user in node.users if isinstance(user.meta.get("val"), torch.Tensor)}
    if made.device.type == "cpu" and len(devices) == 1:
        made = made.to(*devices)
    with gm.graph.inserting_before(node):
        full = gm.graph.call_function(
            _aten.full.default, ([], value.item()), {"dtype": made.dtype, "device": made.device, "pin_memory": False}
        )
    full.meta = node.meta | {"val": made}
    node.replace_all_uses_with(full)


def _become_constant(gm: GraphModule, node: Node, value: torch.Tensor, number: int) -> None:
    made = node.meta["val"]
    if (value.shape, value.stride(), value.dtype) != (made.shape, made.stride(), made.dtype):
        return  # eager on the CPU has another layout there
    name = f"_zefuse_constant{number}"
    gm.register_buffer(name, value.to(made.device), persistent=False)
    with gm.graph.inserting_before(node):
        constant = gm.graph.get_attr(name)
    constant.meta = node.meta
    node.replace_all_uses_with(constant)
