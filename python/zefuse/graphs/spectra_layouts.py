"""Spectra of several dimensions lie as their library reads them.

torch takes a half spectrum back (``_fft_c2r``) by a complex transform of all dimensions but the last, then a real one. MKL wants each
row of the first contiguous; what lies otherwise ATen copies, element by element. A kernel that makes the spectrum anyway writes it in
that order at once. The order of the dimensions that are not transformed stays, so that the result lies as before, and no value differs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from zefuse.graphs.complex_rules import EACH, RULES, VIEWS

_aten: Any = torch.ops.aten


def arrange(gm: GraphModule) -> None:
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return
    for node in gm.graph.find_nodes(op="call_function", target=_aten._fft_c2r.default):
        spectrum, dims = node.args[:2]
        if not isinstance(spectrum, Node) or not isinstance(dims, list) or len(dims) < 2:
            continue
        order = _order_to_read(spectrum.meta["val"], dims)
        if order is not None and _is_made_by_kernels(spectrum):
            _lay(gm, node, spectrum, order)


def _is_made_by_kernels(node: Node) -> bool:
    """Not an input, and no result of an operator that runs in eager: those are copied either way."""
    while node.op == "call_function" and (node.target in VIEWS or node.target is _aten.view_as_complex.default):
        node = node.args[0]  # type: ignore[assignment]
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    return node.target in EACH or node.target in RULES or not node.meta["val"].is_complex()


def _order_to_read(spectrum: torch.Tensor, dims: list[int]) -> list[int] | None:
    """Its dimensions, the innermost last, or None if they lie so; or where that is not known before sizes are."""
    strides: list[Any] = list(spectrum.stride())
    if spectrum.device.type != "cpu" or not all(isinstance(stride, int) for stride in strides):
        return None
    first = {dim % spectrum.dim() for dim in dims[:-1]}
    as_it_lies = sorted(range(spectrum.dim()), key=lambda dim: -strides[dim])
    order = [dim for dim in as_it_lies if dim not in first] + [dim for dim in as_it_lies if dim in first]
    return None if order == as_it_lies else order


def _lay(gm: GraphModule, node: Node, spectrum: Node, order: list[int]) -> None:
    back = [order.index(dim) for dim in range(len(order))]

    def call(target: Any, source: Node, *args: Any, **kwargs: Any) -> Node:
        made = gm.graph.call_function(target, (source, *args), kwargs)
        made.meta = {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}
        with node.meta["val"].fake_mode:
            made.meta["val"] = target(source.meta["val"], *args, **kwargs)
        return made

    with gm.graph.inserting_before(node):
        turned = call(_aten.permute.default, spectrum, order)
        copied = call(_aten.clone.default, turned, memory_format=torch.contiguous_format)
        node.update_arg(0, call(_aten.permute.default, copied, back))
