"""A backward graph is compiled while its forward still is, and runs: all that there is to know of it is known by then.

AOTAutograd calls the backward's compiler at the first ``backward()``, unless sizes that it saves are symbolic. Of a step on a GPU
the host then has nothing to do but to compile, where it could have before: of the time from the partition to the end of the first
step, half was that. So it is called behind the forward's, which has chosen how its activations lie; what it begins there, without
Python's lock, is taken by the first call, where everything that is to be told is told as if it had been compiled then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._guards import CompileContext, TracingContext, compile_context, tracing

from zefuse.graphs import observers

Boxed = Callable[[list[Any]], Any]

_SETTING = "force_non_lazy_backward_lowering"


def may_begin(example_inputs: Sequence[Any]) -> bool:
    """Sizes are numbers, torch can be asked to, and nobody else takes the graph: compiled autograd puts it into one of its own."""
    from torch._dynamo import compiled_autograd
    from torch._functorch import config

    if not hasattr(config, _SETTING) or observers.recorder.get() is not None:
        return False
    if torch._dynamo.config.compiled_autograd or compiled_autograd.compiled_autograd_enabled:
        return False
    return all(_is_static(given) for given in example_inputs)


def _is_static(given: Any) -> bool:
    if isinstance(given, torch.Tensor):
        return all(isinstance(size, int) for size in given.shape)
    return not isinstance(given, torch.SymInt | torch.SymFloat)


def backward_follows_forward(wanted: bool) -> AbstractContextManager[Any]:
    from torch._functorch import config

    return config.patch({_SETTING: True, "donated_buffer": False}) if wanted else nullcontext()


def overwrites_nothing() -> None:
    """Of the backward that is being compiled. torch asks the first ``backward()`` whether its inputs may be written over, and refuses
    ``retain_graph`` later where they may, or where it was not asked in time."""
    if (context := TracingContext.try_get()) is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def at_first_call(rest: Callable[[], Boxed]) -> Boxed:
    """What ``rest`` returns, which the first call asks for, in the contexts that are now. An error is raised there, and the next
    call asks again."""
    compiled: Boxed | None = None
    contexts = TracingContext.try_get(), CompileContext.try_get()
    lock = threading.Lock()

    def made() -> Boxed:
        nonlocal compiled, rest, contexts
        with lock:
            if compiled is None:
                with tracing(contexts[0]), compile_context(contexts[1]), torch._C._DisableAutocast():
                    compiled = rest()
                del rest, contexts
            return compiled

    def run(args: list[Any]) -> Any:
        return (compiled or made())(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
