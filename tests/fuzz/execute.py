"""Runs a program, in eager or compiled, and notes all that a caller could see of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from columns import BY_NAME
from generate import NAMESPACE, run_inputs
from program import Program
from torch import Tensor

from zefuse.backend import observe, zefuse
from zefuse.graphs.traced_strides import symbol_sources, traced_strides


@dataclass
class Outcome:
    """Of one call."""

    error: str | None = None
    outputs: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)  # as the call left them
    gradients: list[Tensor | None] = field(default_factory=list)
    sharing: list[str] = field(default_factory=list)  # per output, which inputs and outputs it lies in


@dataclass
class Compiled:
    outcomes: list[Outcome]
    fallbacks: list[str] = field(default_factory=list)  # reasons
    whole: list[str] = field(default_factory=list)  # graphs that run in eager, reasons
    graphs: int = 0


def function_of(program: Program, wrap: Callable[..., Any] | None = None) -> Callable[..., Any]:
    space = dict(NAMESPACE) | ({"wrap": wrap} if wrap else {})
    exec(compile(program.function_source("wrap" if wrap else ""), "<program>", "exec"), space)
    return space["function"]


def eager(
    program: Program,
    wrap: Callable[..., Any] | None = None,
    change: Callable[..., Any] | None = None,
    mode: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> list[Outcome]:
    """``wrap`` sees every step's result, ``change`` the inputs, and steps (not the making of inputs) run under ``mode``: how the
    comparison disturbs a program."""
    function = function_of(program, wrap)

    def run(*inputs: Any) -> Any:
        with mode():
            return function(*inputs)

    return [_call(program, sizes, run, change) for sizes in program.sizes]


def compiled(program: Program, backend: str = "zefuse") -> Compiled:
    column = BY_NAME[program.column]
    torch._dynamo.reset()
    seen: list[Any] = []
    result = Compiled([])
    options = {"device": column.device} if backend == "zefuse" and column.device != "cpu" else {}
    with warnings.catch_warnings(record=True) as said, observe(lambda _, graph: seen.append(graph)):
        warnings.simplefilter("always")
        if column.direct:
            function = _direct(program, backend, options)
        else:
            more = {"options": options} if options else {}
            called = decomposed if backend == "decomposed" else backend
            function = torch.compile(function_of(program), backend=called, dynamic=program.dynamic, **more)
        result.outcomes = [_call(program, sizes, function, None) for sizes in program.sizes]
    result.whole = [str(w.message) for w in said if "runs in eager" in str(w.message)]
    result.graphs = len(seen)
    for graph in seen:
        result.fallbacks += [f"{entry['op']}: {entry['reason']}" for entry in graph.report()["fallbacks"]]
    return result


def decomposed(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    """aot_eager with the decompositions that zefuse asks for, and with the strides that torch's trace has for outputs."""
    from torch._dynamo.backends.common import aot_autograd

    from zefuse.decompositions import eager_strides
    from zefuse.decompositions.table import decompositions

    compiler = aot_autograd(
        fw_compiler=_as_traced, decompositions=decompositions(), keep_inference_input_mutations=True
    )
    with eager_strides.as_noted_for_subclasses(gm, inputs):
        return compiler(gm, inputs)


def _as_traced(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    from torch._functorch.aot_autograd import make_boxed_func

    (results,) = next(node for node in gm.graph.nodes if node.op == "output").args
    metas = [node.meta.get("val") if isinstance(node, torch.fx.Node) else None for node in results]
    sources = symbol_sources([node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")])
    strides = [traced_strides(meta, sources) if isinstance(meta, Tensor) else None for meta in metas]

    def laid(made: Any, traced: Callable[..., Any] | None, args: list[Any]) -> Any:
        if not isinstance(made, Tensor) or traced is None or made.layout is not torch.strided:
            return made
        wanted = traced(args)
        if made.stride() == wanted:
            return made
        return torch.empty_strided(made.shape, wanted, dtype=made.dtype).copy_(made)

    def run(*args: Any) -> Any:
        return tuple(laid(made, each, list(args)) for made, each in zip(gm(*args), strides, strict=True))

    return make_boxed_func(run)


def _direct(program: Program, backend: str, options: dict[str, str]) -> Callable[..., Any]:
    """Dynamo's part is played by symbolic_trace, so that its time is saved."""

    def function(*inputs: Any) -> Any:
        traced = torch.fx.symbolic_trace(function_of(program))
        if backend == "zefuse":
            return zefuse(traced, list(inputs), options=options)(*inputs)
        from torch._dynamo.backends.debugging import aot_eager

        return (decomposed if backend == "decomposed" else aot_eager)(traced, list(inputs))(*inputs)

    return function


def _call(
    program: Program, sizes: dict[str, int], function: Callable[..., Any], change: Callable[..., Any] | None
) -> Outcome:
    outcome = Outcome()
    training = BY_NAME[program.column].training
    inputs = run_inputs(program, sizes)
    if change is not None:
        inputs = change(inputs)
    grad = training or not program.settings.get("no_grad")
    try:
        with torch.set_grad_enabled(grad), warnings.catch_warnings():
            if change is not None:
                warnings.simplefilter("ignore")
            outputs = function(*inputs)
            outcome.outputs = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
            outcome.sharing = sharing_of(inputs, outcome.outputs)
            if training:
                _backward(outcome.outputs)
                outcome.gradients = [t.grad if isinstance(t, Tensor) and t.is_leaf else None for t in inputs]
    except Exception as error:
        outcome.error = f"{type(error).__name__}: {error}"
        outcome.outputs = []
    outcome.inputs = inputs
    return outcome


def _backward(outputs: list[Any]) -> None:
    differentiable = [out for out in outputs if isinstance(out, Tensor) and out.requires_grad]
    if not differentiable:
        return
    generator = torch.Generator().manual_seed(1)
    weights = [torch.rand(out.shape, generator=generator, dtype=torch.float32) + 0.5 for out in differentiable]
    torch.autograd.backward(differentiable, [w.to(out.dtype) for w, out in zip(weights, differentiable, strict=True)])


def sharing_of(inputs: list[Any], outputs: list[Any]) -> list[str]:
    """Per output: the first input or earlier output in whose memory it lies, and from which byte on."""
    found = []
    places: dict[int, tuple[str, int]] = {}

    def start(tensor: Any) -> int | None:
        if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_nested or not tensor.numel():
            return None
        return tensor.untyped_storage().data_ptr()

    for kind, tensors in (("input", inputs), ("output", outputs)):
        for number, tensor in enumerate(tensors):
            at = start(tensor)
            if at is None:
                if kind == "output":
                    found.append("")
                continue
            offset = tensor.data_ptr() - at
            if kind == "output":
                name, first = places.get(at, ("", 0))
                found.append(f"{name} + {offset - first}" if name else "")
            places.setdefault(at, (f"{kind} {number}", offset))
    return found
