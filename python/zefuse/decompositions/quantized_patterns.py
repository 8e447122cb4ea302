"""What the passes over graphs that were quantized by export (PT2E) have in common: how such a graph looks around a product, what
their operators compute behind it, and how these are made known to torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

RANGES = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


def shapes_of(graph: torch.fx.Graph) -> dict[str, Any]:
    """Of each tensor its dtype and sizes, by the node's name."""
    examples = {node.name: node.meta.get("example_value", node.meta.get("val")) for node in graph.nodes}
    return {
        name: (each.dtype, tuple(each.shape)) if isinstance(each, Tensor) else None for name, each in examples.items()
    }


def is_call(node: Any, *targets: Any) -> bool:
    return isinstance(node, torch.fx.Node) and node.op == "call_function" and node.target in targets


def is_quantizer(node: Any, name: str) -> bool:
    """An operator of ``quantized_decomposed``, which exists once a model was quantized."""
    packet = getattr(torch.ops.quantized_decomposed, name, None)
    return packet is not None and is_call(node, packet.default)


def arguments_of(node: torch.fx.Node) -> dict[str, Any]:
    schema: Any = node.target._schema  # type: ignore[union-attr]
    values = {each.name: each.default_value for each in schema.arguments if each.has_default_value()}
    values |= {each.name: value for each, value in zip(schema.arguments, node.args, strict=False)}
    return values | dict(node.kwargs)


def between(first: torch.fx.Node, last: torch.fx.Node) -> list[torch.fx.Node]:
    """The chain of single readers, its end first."""
    chain = [first]
    while chain[-1] is not last:
        chain.append(next(iter(chain[-1].users)))
    return chain[::-1]


def all_zero(zeros: Any, known: dict[str, Any]) -> bool:
    if zeros is None:
        return True
    value = known.get(zeros.name) if isinstance(zeros, torch.fx.Node) and zeros.op == "placeholder" else None
    return isinstance(value, Tensor) and not isinstance(value, FakeTensor) and not bool(value.any())


class Codes(NamedTuple):
    """What the result becomes: round(x * inverse) + zero within the range of ``dtype``; of f32 neither."""

    inverse: float = 1.0
    zero: int = 0
    dtype: torch.dtype = torch.float32

    @classmethod
    def of(cls, quantizer: dict[str, Any] | None) -> Codes:
        """``quantizer``: its arguments, as ``what_follows`` gives them."""
        return (
            cls() if quantizer is None else cls(1.0 / quantizer["scale"], quantizer["zero_point"], quantizer["dtype"])
        )


def put(graph: torch.fx.Graph, made: torch.fx.Node, node: torch.fx.Node, tail: torch.fx.Node) -> None:
    """``made`` in the place of all from ``node`` to ``tail``."""
    tail.replace_all_uses_with(made)
    for gone in between(node, tail):  # some write in place, which dead code is not
        graph.erase_node(gone)


def finished(
    made: Tensor, residual: Tensor | None, relu: bool, inverse: float, zero: int, dtype: torch.dtype
) -> Tensor:
    """What follows a product, in eager, as torch's own operators do it."""
    made = made if residual is None else made + residual
    made = torch.relu(made) if relu else made
    if dtype.is_floating_point:
        return made
    low, high = RANGES[dtype]
    return ((made * inverse).round() + zero).clamp(low, high).to(dtype)


@cache
def operator(schema: str, fake: Callable[..., Tensor], in_eager: Callable[..., Tensor]) -> Any:
    """torch.ops.zefuse's operator of this schema, defined at the first call, and for the life of the process."""
    name = schema.partition("(")[0]
    library = torch.library.Library("zefuse", "FRAGMENT")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    library.define(schema)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"zefuse::{name}", fake, lib=library)
    library.impl(name, in_eager, "CPU")  # type: ignore[no-untyped-call]
    return getattr(torch.ops.zefuse, name).default


_libraries: list[torch.library.Library] = []  # an operator goes with its library


def what_follows(
    node: torch.fx.Node, shapes: dict[str, Any]
) -> tuple[torch.fx.Node, torch.fx.Node | None, bool, dict[str, Any] | None]:
    """(last node, residual, relu, codes) of ``codes(relu(convolution + residual))``, where it ends in codes; else nothing follows."""
    aten = torch.ops.aten
    tail, residual, relu = node, None, False
    while len(tail.users) == 1:
        reader = next(iter(tail.users))
        if is_call(reader, aten.relu.default, aten.relu_.default):
            tail, relu = reader, True
        elif is_call(reader, aten.add.Tensor, aten.add_.Tensor) and residual is None and not relu:
            a, b = reader.args[:2]
            other = b if a is tail else a
            in_place_of_other = reader.target is aten.add_.Tensor and a is not tail
            if len(reader.kwargs) or in_place_of_other or not isinstance(other, torch.fx.Node) or other is tail:
                break
            if shapes.get(other.name) is None or shapes[other.name] != shapes[node.name]:
                break
            tail, residual = reader, other
        elif is_quantizer(reader, "quantize_per_tensor"):
            of = arguments_of(reader)
            if RANGES.get(of["dtype"]) == (of["quant_min"], of["quant_max"]) and isinstance(of["scale"], float):
                return reader, residual, relu, of
            break
        else:
            break
    return node, None, False, None
