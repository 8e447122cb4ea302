"""What a forward graph on a GPU saves for its backward comes as one tensor of bytes (``python/csrc/saved_block.h``).

A training step of a small batch is bound by the host, and half of that is tensors that pass from the forward to the backward: memory
of torch's allocator, a Python object, autograd's record of it, all of it again in the backward. AOTAutograd takes whatever the
forward returns behind its outputs for what is saved and gives that to the backward, so both compiled graphs may agree on less.

``link`` ties the two graphs of a partition together; the forward, which is compiled first, notes there what it joined. A backward that
is no single compiled graph gets the tensors, taken apart.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch._aot_autograd.schemas import PlainTensorMeta
from torch._guards import TracingContext

LINK = "zefuse_saved_block"  # of both graphs' output nodes


class Link:
    """``block``: the native SavedBlock; ``arguments``: by its entries, their numbers among the backward's arguments."""

    def __init__(self, backward: torch.fx.GraphModule) -> None:
        self.backward = weakref.ref(backward)
        self.block: Any = None
        self.arguments: list[int] = []


def link(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule) -> None:
    shared = Link(backward)
    for gm in (forward, backward):
        gm.graph.output_node().meta[LINK] = shared


def join(gm: torch.fx.GraphModule, compiled: Any) -> None:
    """Lets ``compiled``, the forward graph ``gm``, return in one tensor what it can of what it saves."""
    shared = gm.graph.output_node().meta.get(LINK)
    context = TracingContext.try_get()
    if shared is None or context is None or context.fw_metadata is None or not hasattr(compiled, "save_in_block"):
        return
    backward, metadata = shared.backward(), context.fw_metadata
    if backward is None or backward.graph.output_node().meta.get(LINK) is not shared:
        return  # AOTAutograd made another of it, which would not know
    if metadata.dynamic_saved_tensors_idxs or _has_subclasses(metadata) or _is_traced_again():
        return
    outputs: Any = gm.graph.output_node().args[0]
    # AOTAutograd counts without the tokens of operators with effects, which come first.
    saved = range(len(metadata.tokens), len(outputs))[metadata.tensors_saved_for_backwards_with_vc_check_slice]
    if (block := compiled.save_in_block(list(saved))) is not None:
        shared.block = block
        shared.arguments = [metadata.num_symints_saved_for_bw + number - saved.start for number in block.numbers]


def _has_subclasses(metadata: Any) -> bool:
    metas = (*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta)
    return not all(isinstance(meta, PlainTensorMeta) for meta in metas)


def _is_traced_again() -> bool:
    """Compiled autograd puts the backward's graph into one of its own, with the tensors that are saved as its inputs."""
    from torch._dynamo import compiled_autograd, config

    return bool(config.compiled_autograd or compiled_autograd.compiled_autograd_enabled)


def taken(gm: torch.fx.GraphModule, compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """``compiled``, the backward graph ``gm``, as it takes what ``join`` left of its arguments."""
    shared = gm.graph.output_node().meta.get(LINK)
    if shared is None or shared.block is None:
        return compiled
    block, arguments = shared.block, shared.arguments
    placeholders = gm.graph.find_nodes(op="placeholder")
    shapes = [tuple(placeholders[number].meta["val"].shape) for number in arguments]
    assert shapes == block.shapes(), "AOTAutograd's backward takes other tensors than the forward saves"
    if hasattr(compiled, "take_from_block"):
        compiled.take_from_block(block, arguments)
        return compiled

    def run(args: list[Any]) -> Any:
        tensors = iter(block.tensors(args.pop(arguments[0])))
        for number in arguments:
            args.insert(number, next(tensors))
        return compiled(args)

    return run
