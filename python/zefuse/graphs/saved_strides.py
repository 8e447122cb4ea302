"""Activations that a forward graph saves for its backward lie as the forward computed them, not as eager would have them.

Nobody but the backward sees them. AOTAutograd traced both graphs with eager's strides, so the forward is told which outputs may have
any (dense) strides, reports those that it chose (``TracingContext.report_output_strides``), and AOTAutograd hands them to the
backward's compiler as its example inputs. The nodes' ``meta["val"]`` keep eager's strides, since they are part of what the operators
mean (as_strided) and of what the gradients' strides are; only how an input lies is told apart (``meta["zefuse_strides"]``).

Static shapes only: AOTAutograd takes no symbolic strides here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch._guards import TracingContext

SAVED = "zefuse_saved"  # of a forward graph's output node: the numbers of what is saved
ANY_STRIDES = "zefuse_any_strides"  # the same, of those whose strides may be any
STRIDES = "zefuse_strides"  # of a placeholder: what its tensor really has


def free(gm: torch.fx.GraphModule) -> None:
    """Marks what ``gm``, a forward graph that is being compiled, saves for the backward."""
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None or context.output_strides is None:
        return
    outputs, tokens = _outputs(gm), len(context.fw_metadata.tokens)
    # AOTAutograd counts without the tokens of operators with effects, which come first.
    numbers = range(tokens, len(outputs))[context.fw_metadata.tensors_saved_for_backwards_slice]
    meta = gm.graph.output_node().meta
    meta[SAVED], meta[ANY_STRIDES] = list(numbers), [i for i in numbers if _static(outputs[i])]


def report(gm: torch.fx.GraphModule, compiled: Any) -> None:
    """Tells AOTAutograd the strides of what ``compiled`` saves. A graph in parts has eager's."""
    context = TracingContext.try_get()
    output = gm.graph.output_node()
    if (
        ANY_STRIDES not in output.meta
        or context is None
        or context.fw_metadata is None
        or context.output_strides is None
        or not hasattr(compiled, "output_strides")
    ):
        return
    strides, chosen = compiled.output_strides(), set(output.meta[ANY_STRIDES])
    numbers = range(len(context.fw_metadata.tokens), len(_outputs(gm)))
    context.output_strides.extend(strides[i] if i in chosen else None for i in numbers)


def _outputs(gm: torch.fx.GraphModule) -> Sequence[Any]:
    return cast("Sequence[Any]", gm.graph.output_node().args[0])


def _static(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in (*value.shape, *value.stride()))


def take(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Notes how the inputs of ``gm``, a backward graph, lie. False: some must lie as they were traced (``as_traced``)."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    for node, given in zip(placeholders, example_inputs, strict=True):
        if _static(node) and isinstance(given, torch.Tensor) and node.meta["val"].stride() != given.stride():
            node.meta[STRIDES] = tuple(int(stride) for stride in given.stride())
    # An output that is a view of such an input has eager's strides.
    memory = {node.meta["val"].untyped_storage()._cdata for node in placeholders if STRIDES in node.meta}
    values = (node.meta.get("val") for node in _outputs(gm) if isinstance(node, torch.fx.Node))
    return not any(isinstance(v, torch.Tensor) and v.untyped_storage()._cdata in memory for v in values)


def as_traced(gm: torch.fx.GraphModule) -> Callable[[list[Any]], None] | None:
    """What gives the inputs of ``gm`` that lie otherwise than traced copies that do not, in place; None: there are none."""
    strides = {
        number: node.meta["val"].stride()
        for number, node in enumerate(gm.graph.find_nodes(op="placeholder"))
        if STRIDES in node.meta
    }

    def copy(args: list[Any]) -> None:
        for number, wanted in strides.items():
            args[number] = torch.empty_strided(args[number].shape, wanted, dtype=args[number].dtype).copy_(args[number])

    return copy if strides else None


def forget(gm: torch.fx.GraphModule) -> None:
    for node in gm.graph.find_nodes(op="placeholder"):
        node.meta.pop(STRIDES, None)
