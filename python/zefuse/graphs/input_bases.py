"""The sizes of what inputs are views of.

Where a graph writes one of several inputs that share memory, AOTAutograd traces with the tensor behind them. It makes a fake one of its
own for that, whose sizes may be new symbols: Dynamo, which guards that ``x._base.shape[0]`` is ``y.shape[0]`` where ``y`` is that
base, does not know them, and drops what the trace found out about them (``s15 <= 4``). The graph would then serve sizes for which it
was not made, with every back end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._guards import TracingContext


def have_dynamos_symbols(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """What AOTAutograd will see of the bases has from here on the sizes, strides and offsets that Dynamo saw."""
    context = TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fake_mode.shape_env is None:
        return
    for node, example in zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=False):
        if not isinstance(example, torch.Tensor) or example._base is None or example not in context.tensor_to_context:
            continue
        traced = getattr(node.meta.get("example_value"), "_base", None)
        symbols = context.tensor_to_context[example]
        fake = context.fake_mode.from_tensor(
            example, symbolic_context=symbols, source=symbols.tensor_source, trace=False
        )
        if traced is None or fake._base is None or traced is fake._base or traced.dim() != fake._base.dim():
            continue
        for theirs, ours in zip(_numbers(traced), _numbers(fake._base), strict=True):
            bool(theirs == ours)  # a guard: where it holds, the two are one symbol from here on


def _numbers(tensor: torch.Tensor) -> list[Any]:
    return [*tensor.shape, *tensor.stride(), tensor.storage_offset()]
