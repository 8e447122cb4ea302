"""What an eager part hands to a compiled one, of this graph or of its backward, lies as it was traced.

Fake tensors may lie about the strides of what eager operators make (quantised ones, custom ones, a Fourier transform with symbolic
sizes): copied where they do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import lru_cache
from typing import Any

import torch

#: The strides that a tensor was traced with, from the part's inputs.
Strides = Callable[[list[Any]], tuple[int, ...]]
Number = Callable[[list[Any]], int]


def lying_as_traced(
    compiled: Callable[[list[Any]], Sequence[Any]], part: torch.fx.GraphModule, foreign: Set[int]
) -> Callable[[list[Any]], Sequence[Any]]:
    """``foreign``: the numbers of the part's inputs that an eager part made."""
    strides = strides_as_traced(part, part.graph.find_nodes(op="placeholder"), foreign)
    if not strides:
        return compiled

    def run(values: list[Any]) -> Sequence[Any]:
        for at, traced in strides.items():
            values[at] = laid(values[at], traced(values))
        return compiled(values)

    return run


def strides_as_traced(gm: torch.fx.GraphModule, nodes: Sequence[Any], which: Set[int]) -> dict[int, Strides]:
    """Of those of ``nodes`` whose numbers are in ``which``, from the graph's inputs, where they are known."""
    sources = symbol_sources([node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")])
    values = {at: nodes[at].meta.get("val") for at in which}
    found = {at: traced_strides(each, sources) for at, each in values.items() if isinstance(each, torch.Tensor)}
    return {at: each for at, each in found.items() if each is not None}


def laid(value: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor, or a copy with these strides."""
    if value.stride() == strides or value.numel() <= 1:
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)


def traced_strides(value: torch.Tensor, sources: dict[Any, Number]) -> Strides | None:
    """None: a symbol is in them that no input says."""
    numbers = value.stride()
    if all(isinstance(number, int) for number in numbers):
        return lambda _: numbers
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    expressions: list[Any] = [number.node.expr if isinstance(number, torch.SymInt) else number for number in numbers]
    symbols = sorted({s for e in expressions if not isinstance(e, int) for s in e.free_symbols}, key=str)
    if not sources.keys() >= set(symbols):
        return None

    @lru_cache(maxsize=64)  # of sizes that were seen: sympy takes its time
    def strides(*sizes: int) -> tuple[int, ...]:
        known = dict(zip(symbols, sizes, strict=True))
        return tuple(
            e if isinstance(e, int) else int(sympy_interp(PythonReferenceAnalysis, known, e)) for e in expressions
        )

    return lambda inputs: strides(*(sources[symbol](inputs) for symbol in symbols))


def symbol_sources(values: Sequence[Any]) -> dict[Any, Number]:
    """Symbols, to what reads the size or number that tells them."""
    sources: dict[Any, Number] = {}
    for at, value in enumerate(values):
        numbers: list[tuple[Any, Number]] = [(value, _input(at))]
        if isinstance(value, torch.Tensor):
            numbers = [(size, _size(at, dim)) for dim, size in enumerate(value.shape)]
        for number, read in numbers:
            if isinstance(number, torch.SymInt) and number.node.expr.is_Symbol:
                sources.setdefault(number.node.expr, read)
    return sources


def _input(at: int) -> Number:
    return lambda inputs: inputs[at]


def _size(at: int, dim: int) -> Number:
    return lambda inputs: inputs[at].shape[dim]
