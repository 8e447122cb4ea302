"""Calls of inference graphs without AOTAutograd's wrappers, where those do nothing.

Around a compiled graph AOTAutograd runs a dozen functions of Python in each call: what puts outputs together that are views of
inputs, copies new values into inputs, unwraps subclasses, passes tokens of effects. Of most graphs none of that is there, and it
takes as long as a small kernel's whole call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from zefuse import _native


class Watch:
    """The one graph that became of Dynamo's, if it is one of inference."""

    def __init__(self) -> None:
        self._compiled: list[tuple[Any, torch.fx.GraphModule]] = []

    def saw(self, kind: str, compiled: Any, gm: torch.fx.GraphModule) -> None:
        self._compiled.append((compiled if kind == "inference" else None, gm))

    def instead_of(self, wrapped: Callable[..., Any], example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """``wrapped``, or what does the same with less."""
        context = torch._guards.TracingContext.try_get()
        meta = None if context is None else context.fw_metadata
        if len(self._compiled) != 1 or meta is None:
            return wrapped
        ((compiled, gm),) = self._compiled
        if not isinstance(compiled, _native.load().CompiledGraph):  # parts of which run in eager, a recorder's
            return wrapped
        try:
            plain = _is_plain(meta) and not torch._C._is_any_autocast_enabled()
        except AttributeError:  # another torch, which may do more
            return wrapped
        placeholders = sum(node.op == "placeholder" for node in gm.graph.nodes)
        if not plain or placeholders != len(example_inputs) or any(map(is_traceable_wrapper_subclass, example_inputs)):
            return wrapped

        def direct(*args: Any) -> Any:
            return compiled([*args])

        return direct


def _is_plain(meta: Any) -> bool:
    """Whether AOTAutograd has nothing to do before and after a call."""
    plain_output = torch._functorch._aot_autograd.schemas.OutputType.non_alias
    return (
        not any(each.mutates_data or each.mutates_metadata for each in meta.input_info)
        and all(each.output_type is plain_output for each in meta.output_info)
        and meta.num_intermediate_bases == 0
        and meta.num_mutated_inp_runtime_indices == 0
        and meta.num_outputs_aliased == 0
        and not meta.dynamic_outputs
        and not meta.tokens
        and not meta.is_rng_op_functionalized
        and meta.grad_enabled_mutation is None
        and all(type(each).__name__ == "PlainTensorMeta" for each in meta.subclass_fw_graph_out_meta)
    )
