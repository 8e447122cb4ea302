"""Dynamo traces ``nn.LSTM``, ``GRU`` and ``RNN`` of a ``PackedSequence`` into a graph, instead of leaving them to eager.

What keeps it from doing so: how many rows the first step has, ``batch_sizes[0]``, is known at run time only. The states that a
module makes have as many, and what it is given is checked against it. Here the former are made from the number of indices, where
the sequences were sorted, and else from a number that no trace knows, for these modules alone (``capture_scalar_outputs`` would
capture every number of every model). The check is left to the steps' operator, which raises as well.

This is for graphs of this back end: others take a layer apart, which needs the numbers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn


def let_dynamo_take_modules() -> None:
    """For the whole process, but with another back end there is a graph break, as ever."""
    from torch._dynamo.symbolic_convert import InliningInstructionTranslator as Inliner
    from torch._dynamo.variables.functions import UserFunctionVariable
    from torch._dynamo.variables.tensor import TensorVariable

    forwards = {module.forward.__code__ for module in (nn.LSTM, nn.GRU, nn.RNN)}
    checks = {nn.RNNBase.check_forward_args.__code__, nn.LSTM.check_forward_args.__code__}
    original = Inliner.inline_call.__func__  # type: ignore[attr-defined]

    def inline_call(cls: Any, parent: Any, func: Any, args: Any, kwargs: Any, *rest: Any, **more: Any) -> Any:
        code = func.get_code()
        if code in forwards | checks and not _is_ours(parent.output.compiler_fn):
            pass
        elif code in forwards and len(args) > 1 and _is_packed(args[1]) and _is_none([*args[2:], *kwargs.values()]):
            args, kwargs = args[:2], {}
            environment = parent.output.shape_env  # AOTAutograd's too
            environment.settings = dataclasses.replace(environment.settings, allow_scalar_outputs=True)
            func = UserFunctionVariable(_with_states)  # type: ignore[arg-type]
        elif code in checks and len(args) == 4 and isinstance(args[3], TensorVariable):
            func = UserFunctionVariable(_check_input)  # type: ignore[arg-type]
        return original(cls, parent, func, args, kwargs, *rest, **more)

    Inliner.inline_call = classmethod(inline_call)  # type: ignore[assignment]


def traced_for_others() -> bool:
    """Whether Dynamo is tracing, for another back end."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        tracing = InstructionTranslator.current_tx()
    except AttributeError:  # never traced in this thread
        return False
    return tracing is not None and not _is_ours(tracing.output.compiler_fn)


def _is_ours(compiler: Any) -> bool:
    """What ``torch.compile`` makes of a back end, or of one that counts and hands on to ours."""
    for _ in range(4):
        if compiler == "zefuse" or getattr(compiler, "__module__", None) == "zefuse.backend":
            return True
        compiler = getattr(compiler, "compiler_fn", None) or getattr(compiler, "backend", None)
    return False


def _is_packed(variable: Any) -> bool:
    try:
        return issubclass(variable.python_type(), nn.utils.rnn.PackedSequence)
    except NotImplementedError:
        return False


def _is_none(states: list[Any]) -> bool:
    """The only argument behind the sequence."""
    return not states or (states[0].is_python_constant() and states[0].as_python_constant() is None)


def _with_states(module: nn.RNNBase, packed: nn.utils.rnn.PackedSequence) -> Any:
    """``forward`` with states of zeros, as it would make them."""
    order, data = packed.sorted_indices, packed.data
    rows: Any = packed.batch_sizes[0] if order is None else order.size(0)
    layers = module.num_layers * (2 if module.bidirectional else 1)

    def zeros(units: int) -> Tensor:
        return torch.zeros(layers, rows, units, dtype=data.dtype, device=data.device)

    hidden = zeros(module.proj_size or module.hidden_size)
    if isinstance(module, nn.LSTM):
        return nn.LSTM.forward(module, packed, (hidden, zeros(module.hidden_size)))
    kind: Any = nn.GRU if isinstance(module, nn.GRU) else nn.RNN
    return kind.forward(module, packed, hidden)


def _check_input(module: nn.RNNBase, input: Tensor, hidden: Any, batch_sizes: Tensor) -> None:
    """``check_forward_args`` without what is known at run time only."""
    module.check_input(input, batch_sizes)
