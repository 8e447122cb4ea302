"""The sizes of what inputs are views of.

Where a graph writes one of several inputs that share memory, AOTAutograd traces with the tensor behind them. It makes a fake one of its
own for that, whose sizes may be new symbols: Dynamo, which guards that ``x._base.shape[0]`` is ``y.shape[0]`` where ``y`` is that
base, does not know them, and drops what the trace found out about them (``s15 <= 4``). The graph would then serve sizes for which it
was not made, with every back end. Of an input whose view is a local of the same frame Dynamo keeps the second name that it met,
``view._base``, and AOTAutograd makes new symbols for that: a guard of them would be an error ("sources must not be empty").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.source import AttrSource
from torch._guards import TracingContext


def have_dynamos_symbols(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """What AOTAutograd will see of the bases has from here on the sizes, strides and offsets that Dynamo saw."""
    context = TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fake_mode.shape_env is None:
        return
    for node, example in zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=False):
        if not isinstance(example, torch.Tensor) or example not in context.tensor_to_context:
            continue
        symbols = context.tensor_to_context[example]
        if example._base is None and not _is_named_as_base(symbols.tensor_source):
            continue
        traced = node.meta.get("example_value")
        fake: torch.Tensor | None = context.fake_mode.from_tensor(
            example, symbolic_context=symbols, source=symbols.tensor_source, trace=False
        )
        if example._base is not None:
            traced, fake = getattr(traced, "_base", None), getattr(fake, "_base", None)
        if not isinstance(traced, torch.Tensor) or fake is None or traced is fake or traced.dim() != fake.dim():
            continue
        for theirs, ours in zip(_numbers(traced), _numbers(fake), strict=True):
            bool(theirs == ours)  # a guard: where it holds, the two are one symbol from here on


def _is_named_as_base(source: Any) -> bool:
    """Whether Dynamo knows an input by ``y._base`` last, as it does where a view ``y`` of it reaches the frame too."""
    return isinstance(source, AttrSource) and source.member == "_base"


def _numbers(tensor: torch.Tensor) -> list[Any]:
    return [*tensor.shape, *tensor.stride(), tensor.storage_offset()]
