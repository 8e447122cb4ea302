"""What an eager part hands to a compiled one lies as it was traced.

Fake tensors may lie about the strides of what eager operators make (quantised ones, custom ones, a Fourier transform with symbolic
sizes): copied where they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from typing import Any

import torch

#: The strides that a tensor was traced with, from the part's inputs.
Strides = Callable[[list[Any]], tuple[int, ...]]


def lying_as_traced(
    compiled: Callable[[list[Any]], Sequence[Any]], part: torch.fx.GraphModule, foreign: Set[int]
) -> Callable[[list[Any]], Sequence[Any]]:
    """``foreign``: the numbers of the part's inputs that an eager part made."""
    values = [node.meta.get("val") for node in part.graph.find_nodes(op="placeholder")]
    sources = symbol_sources(values)
    found = {at: traced_strides(values[at], sources) for at in foreign if isinstance(values[at], torch.Tensor)}
    strides = {at: each for at, each in found.items() if each is not None}
    if not strides:
        return compiled

    def run(values: list[Any]) -> Sequence[Any]:
        for at, traced in strides.items():
            value = values[at]
            if value.stride() != (wanted := traced(values)) and value.numel() > 1:
                values[at] = torch.empty_strided(value.shape, wanted, dtype=value.dtype, device=value.device).copy_(
                    value
                )
        return compiled(values)

    return run


def traced_strides(value: torch.Tensor, sources: dict[Any, str]) -> Strides | None:
    """None: a symbol is in them that no input says."""
    numbers = value.stride()
    if all(isinstance(number, int) for number in numbers):
        return lambda _: numbers
    from torch.utils._sympy.printers import PythonPrinter

    expressions = [number.node.expr if isinstance(number, torch.SymInt) else number for number in numbers]
    texts = []
    for expression in expressions:
        if isinstance(expression, int):
            texts.append(str(expression))
            continue
        if not expression.free_symbols <= sources.keys():
            return None
        texts.append(PythonPrinter().doprint(expression.xreplace({s: sources[s] for s in expression.free_symbols})))
    traced: Strides = eval(f"lambda inputs: ({', '.join(texts)},)", {"math": math})
    return traced


def symbol_sources(values: Sequence[Any]) -> dict[Any, Any]:
    """Symbols, to symbols that read in Python as the size or number that tells them."""
    import sympy  # type: ignore[import-untyped]

    sources: dict[Any, Any] = {}
    for at, value in enumerate(values):
        numbers = {f"inputs[{at}]": value}
        if isinstance(value, torch.Tensor):
            numbers = {f"inputs[{at}].shape[{dim}]": size for dim, size in enumerate(value.shape)}
        for text, number in numbers.items():
            if isinstance(number, torch.SymInt) and number.node.expr.is_Symbol:
                sources.setdefault(number.node.expr, sympy.Symbol(text, integer=True, positive=True))
    return sources
