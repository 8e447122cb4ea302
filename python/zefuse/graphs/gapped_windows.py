"""Writes into windows that leave elements between them (``x.unfold(0, 2, 3).mul_(2)``). AOTAutograd makes a new tensor of what was written,
and puts windows back into zeros: what lies between them would be zero after the write (under ``aot_eager`` as well). Eager leaves it."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

_ASSIGNMENTS = (
    operator.setitem, operator.iadd, operator.isub, operator.imul, operator.imatmul, operator.itruediv, operator.ifloordiv,
    operator.imod, operator.ipow, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
)  # fmt: skip
_UNFOLD = (torch.Tensor.unfold, torch.ops.aten.unfold.default)


def why_eager(gm: torch.fx.GraphModule) -> str | None:
    """Of a graph as Dynamo made it, before writes become values: a reason for a user to read."""
    for module in gm.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        windows = {node for node in module.graph.nodes if _has_gaps(node)}
        if windows and any(_is_part_of(each, windows) for node in module.graph.nodes for each in _written(node)):
            return "windows are written that leave elements between them, which AOTAutograd would set to zero"
    return None


def _has_gaps(node: Node) -> bool:
    if not (
        node.target in _UNFOLD if node.op == "call_function" else (node.op, node.target) == ("call_method", "unfold")
    ):
        return False
    given = dict(zip(("dimension", "size", "step"), node.args[1:], strict=False)) | dict(node.kwargs)
    size, step = (_value(given.get(name)) for name in ("size", "step"))
    whole = isinstance(size, int | torch.SymInt) and isinstance(step, int | torch.SymInt)
    return not (whole and statically_known_true(step <= size))


def _value(of: Any) -> Any:
    return of.meta.get("example_value") if isinstance(of, Node) else of


def _written(node: Node) -> Iterator[Node]:
    """What the node changes: the first argument of ``add_``, ``setitem`` and ``_foreach_mul_``, and what ``out`` names."""
    if node.op not in ("call_function", "call_method"):
        return
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.split(".")[0].endswith("_") and not name.endswith("__")
    if in_place or name.startswith("__i") or node.target in _ASSIGNMENTS:
        yield from _nodes(node.args[0] if node.args else next(iter(node.kwargs.values()), None))
    yield from _nodes(node.kwargs.get("out"))


def _nodes(of: Any) -> list[Node]:
    found: list[Node] = []
    torch.fx.map_arg(of, found.append)
    return found


def _is_part_of(node: Node, windows: set[Node]) -> bool:
    """Whether it may be a view of them: made of them, and in their memory where that is known."""
    memory = _memory(node)
    while True:
        if node in windows:
            return memory is None or _memory(node) in (None, memory)
        sources = _nodes(node.args[0]) if node.args and node.op in ("call_function", "call_method") else []
        if len(sources) != 1:
            return any(_is_part_of(each, windows) for each in sources)
        node = sources[0]


def _memory(node: Node) -> int | None:
    example = node.meta.get("example_value")
    if not isinstance(example, torch.Tensor) or example.layout != torch.strided:
        return None
    return example.untyped_storage()._cdata
