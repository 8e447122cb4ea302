"""Equal nodes of a joint graph become one, before it is cut into forward and backward.

What torch's partitioner does there itself, without what that imports for it: half a second of Inductor's modules in a
process's first training step.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

_NEVER_EQUAL = {torch.Tag.nondeterministic_seeded, torch.Tag.nondeterministic_bitwise}


def can_merge(graph: Graph) -> bool:
    """Whether nothing in it writes: then equal nodes are equal wherever they stand."""
    return all(_is_pure(node) for node in graph.nodes if node.op == "call_function")


def merge(graph: Graph) -> None:
    """In place. Results that share memory with the graph's stay apart, as in eager."""
    output = next(iter(reversed(graph.nodes)))
    returned = {key for node in output.all_input_nodes if (key := _storage(node)) is not None}
    seen: dict[Hashable, Node] = {}
    for node in graph.nodes:
        if node.op != "call_function" or _is_random(node) or _has_unbacked_size(node) or _storage(node) in returned:
            continue
        try:
            earlier = seen.setdefault((node.target, _key(node.args), _key(node.kwargs)), node)
        except TypeError:  # an argument without a hash
            continue
        if earlier is not node:
            node.replace_all_uses_with(earlier)
            graph.erase_node(node)


def _is_pure(node: Node) -> bool:
    if isinstance(node.target, torch._ops.OpOverload):
        return not node.target._schema.is_mutable
    return not isinstance(node.target, torch._ops.HigherOrderOperator)


def _is_random(node: Node) -> bool:
    """Or without contents, like empty."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return bool(_NEVER_EQUAL.intersection(target.tags)) or target._overloadpacket is torch.ops.aten.empty


def _storage(node: Node) -> int | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    try:
        return value.untyped_storage()._cdata
    except NotImplementedError:
        return None


def _has_unbacked_size(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.SymInt) and bool(free_unbacked_symbols(value))


def _key(argument: Any) -> Hashable:
    """Of an argument: 1, 1.0 and True are three."""
    if isinstance(argument, Node):
        return argument
    if isinstance(argument, (list, tuple)):
        return (type(argument), *map(_key, argument))
    if isinstance(argument, dict):
        return tuple((name, _key(value)) for name, value in argument.items())
    if isinstance(argument, slice):
        return (slice, _key(argument.start), _key(argument.stop), _key(argument.step))
    if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return (type(argument), argument.node)
    if isinstance(argument, float):  # 0.0 and -0.0 are two
        return (float, argument.hex())
    return (type(argument), argument)
