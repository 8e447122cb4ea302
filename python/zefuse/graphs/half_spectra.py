"""The derivative of a real tensor's half spectrum, by half the work.

torch computes it as the real part of a complex transform of all frequencies, of which those beyond the half are zero. As each
frequency adds the real part of its wave alone, that is the real transform back (``_fft_c2r``), which adds a wave and its conjugate, of
half of them: of all but frequency 0 and, of an even number of values, the last one, which are their own conjugates. The transform of
one dimension is halved; the others, which come first, are complex either way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

_aten: Any = torch.ops.aten
_ZEROS = (_aten.zeros.default, _aten.new_zeros.default, _aten.zeros_like.default)


def halve(gm: GraphModule) -> None:
    """Of CPU tensors: other libraries ask of a spectrum of several dimensions that a real tensor has it."""
    for node in list(gm.graph.find_nodes(op="call_function", target=_aten._fft_c2c.default)):
        if (parts := _real_parts(node)) and (half := _half_of(node)) is not None:
            _replace(gm, node, parts, half)


def _real_parts(node: Node) -> list[Node]:
    """The readers of the result, if they all take its real part and none has to lie as that does."""
    parts = [part for whole in node.users for part in whole.users]
    if any(whole.target is not _aten.view_as_real.default for whole in node.users):
        return []
    for part in parts:
        last = node.meta["val"].dim()
        if part.target is not _aten.select.int or part.args[1] not in (-1, last) or part.args[2] != 0:
            return []
        if any(user.op == "output" or user.target is _aten.as_strided.default for user in part.users):
            return []
    return parts


def _half_of(node: Node) -> Node | None:
    """What is transformed, without the zeros beyond the half."""
    spectrum, dims, _, forward = node.args
    value = node.meta["val"]
    if (
        forward
        or value.device.type != "cpu"
        or not isinstance(spectrum, Node)
        or not isinstance(dims, list)
        or not dims
    ):
        return None
    if spectrum.target is not _aten.slice_scatter.default or len(spectrum.args) != 5:
        return None
    whole, half, dim, start, end = spectrum.args
    if not all(isinstance(size, int) for size in value.shape):
        return None
    count = value.shape[dims[-1]]
    if (dim - dims[-1]) % value.dim() or start != 0 or end != count // 2 + 1 or count < 2:
        return None
    if not isinstance(whole, Node) or whole.target not in _ZEROS or not isinstance(half, Node):
        return None
    if half.target is _aten.copy.default and _has_sizes_of(half.args[1], half):
        half = half.args[1]
    return half if half.meta["val"].dtype == value.dtype else None  # type: ignore[union-attr, return-value]


def _has_sizes_of(one: Any, other: Node) -> bool:
    return isinstance(one, Node) and one.meta["val"].shape == other.meta["val"].shape


def _replace(gm: GraphModule, node: Node, parts: list[Node], half: Node) -> None:
    dims: Any = node.args[1]
    norm = node.args[2]
    value, dim = half.meta["val"], dims[-1] % half.meta["val"].dim()
    count, kept = node.meta["val"].shape[dim], value.shape[dim]

    def call(target: Any, *args: Any, **kwargs: Any) -> Node:
        made = gm.graph.call_function(target, args, kwargs)
        made.meta = {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}
        values = torch.fx.node.map_arg(args, lambda argument: argument.meta["val"])
        with node.meta["val"].fake_mode:
            made.meta["val"] = target(*values, **kwargs)
        return made

    with gm.graph.inserting_before(node):
        place = call(_aten.arange.default, kept, device=value.device)
        alone = call(_aten.eq.Scalar, place, 0)
        if count % 2 == 0:
            alone = call(_aten.bitwise_or.Tensor, alone, call(_aten.eq.Scalar, place, count // 2))
        options = {"dtype": value.dtype.to_real(), "device": value.device}
        one, other = (call(_aten.full.default, [], number, **options) for number in (1.0, 0.5))
        weight = call(_aten.where.self, alone, one, other)
        weight = call(_aten.view.default, weight, [kept] + [1] * (value.dim() - dim))
        weighted = call(_aten.mul.Tensor, call(_aten.view_as_real.default, half), weight)
        made = call(_aten._fft_c2r.default, call(_aten.view_as_complex.default, weighted), dims, norm, count)
    for part in parts:
        part.replace_all_uses_with(made)
    dead = [*parts, *node.users, node]
    while dead:
        unread = dead.pop(0)
        if not unread.users and unread.op == "call_function":
            gm.graph.erase_node(unread)
            dead += [source for source in unread.all_input_nodes if source not in dead]
