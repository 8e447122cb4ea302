"""Recurrent layers (torch.lstm, gru, rnn_tanh, rnn_relu) whose steps stay together.

Tracing would take a layer apart into its steps: some operations for each of hundreds, and a graph that takes as long to compile
as it is long. Here the products with the input are one matrix product over all steps, which fuses as any other, and what is
left, the products with the hidden state and the cell's formula, is one operator of ours: one call of the runtime
(runtime/recurrence), forward and backward, whatever the length of the sequence.

f32; f16 and bf16 compute in f32 and are rounded at the end, but products of bf16 are of bf16 where the processor has them, with a
hidden state that is rounded at each step, as eager's is; so are those of autocast to bf16. What is not taken (f64, projections,
packed sequences) stays as torch traces it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from zefuse.graphs.dynamo_graphs import with_graph
from zefuse.installing import torch_versions

_TAKEN = (torch.float32, torch.bfloat16, torch.float16)


#: The most steps of a layer that is taken apart: a graph of more would take minutes to compile.
UNROLLED_STEPS = 128


def kept_whole(gm: torch.fx.GraphModule, *, on_gpu: bool = False) -> torch.fx.GraphModule:
    """A graph of Dynamo's with our functions in the place of torch's layers; without any, the graph itself.

    ``on_gpu``: layers of few steps are left to be taken apart, since their kernels run there and the whole layer's call does not.
    """
    table = _layers()

    def wanted(node: torch.fx.Node) -> bool:
        if node.op != "call_function" or node.target not in table:
            return False
        return not on_gpu or _steps(node) > UNROLLED_STEPS

    if not any(map(wanted, gm.graph.nodes)):
        return gm
    _operators()
    graph = copy.deepcopy(gm.graph)
    for node, original in zip(graph.nodes, gm.graph.nodes, strict=True):
        if wanted(original):
            node.target = table[original.target]
    return with_graph(gm, graph)


def _steps(node: torch.fx.Node) -> int:
    """Of a layer; one that is not known counts as very many."""
    args = torch.fx.map_arg(node.args, lambda each: each.meta.get("example_value"))
    steps = args[0].shape[1 if args[-1] is True else 0] if isinstance(args[0], Tensor) else None
    return steps if isinstance(steps, int) else sys.maxsize


def why_eager(gm: torch.fx.GraphModule) -> str | None:
    """Why the graph would be too large taken apart, for a user to read; None: it would not."""
    for node in gm.graph.nodes:
        layer = _layers().get(node.target) if node.op == "call_function" else None
        if layer is None:
            continue
        args = torch.fx.map_arg(node.args, lambda each: each.meta.get("example_value"))
        reason = layer.why_not(*args)
        if reason is not None and _steps(node) > UNROLLED_STEPS:
            return f"torch.{layer.kind} with {reason} has no lowering, and taken apart more than {UNROLLED_STEPS} steps"
    return None


def let_dynamo_take_layers() -> None:
    """For the whole process: Dynamo leaves nn.LSTM, GRU and RNN to eager unless told otherwise, for the sake of back ends that take
    them apart; and the length of a sequence stays a symbol."""
    torch._dynamo.config.allow_rnn = True
    for layer in set(_layers().values()):
        torch_versions.keep_whole_for_sizes(getattr(torch.ops.aten, layer.kind).input, layer.whole)


def decompositions(others: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """For a program of torch.export's: what is not taken goes through ``others``."""

    def of(layer: Layer) -> Callable[..., Any]:
        operator = getattr(torch.ops.aten, layer.kind).input

        def whole(*args: Any) -> Any:
            result = layer.whole(*args)
            return others[operator](*args) if result is NotImplemented else result

        return whole

    return {getattr(torch.ops.aten, layer.kind).input: of(layer) for layer in set(_layers().values())}


@cache
def _layers() -> dict[Any, Layer]:
    aten = torch.ops.aten
    table: dict[Any, Layer] = {}
    for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        layer = Layer(kind)
        for original in (getattr(torch, kind), getattr(torch._VF, kind), getattr(aten, kind).input):
            table[original] = layer
    return table


class Layer:
    """Stands for one of torch's functions, with its arguments: ``(input, hx, params, has_biases, num_layers, dropout, train,
    bidirectional, batch_first)``; ``input`` [steps, batch, features] or with ``batch_first`` [batch, steps, features]."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.__name__ = kind  # what FX writes into a graph's code

    def __call__(self, *args: Any) -> Any:
        result = self.whole(*args)
        return getattr(torch, self.kind)(*args) if result is NotImplemented else result

    def whole(self, *args: Any) -> Any:
        """The layer by our operators, or NotImplemented."""
        if self.why_not(*args) is not None:
            return NotImplemented
        _operators()
        if not torch.is_autocast_enabled("cpu"):
            return _stack(self.kind, *args, narrow=False)
        with torch._C._DisableAutocast():
            return _stack(self.kind, *args, narrow=True)

    def why_not(self, *args: Any) -> str | None:
        if len(args) != 9 or not isinstance(args[0], Tensor) or isinstance(args[1], Sequence) != (self.kind == "lstm"):
            return "a packed sequence"
        input, states, params, has_biases, layers, _, _, bidirectional, _ = args
        hidden = states[0] if self.kind == "lstm" else states
        tensors = [input, *params, *(states if self.kind == "lstm" else (states,))]
        autocast = torch.is_autocast_enabled("cpu")
        if autocast and torch.get_autocast_dtype("cpu") != torch.bfloat16:
            return "autocast to another type than bf16"
        for each in tensors:
            if each.device.type != "cpu" or each.dtype not in _TAKEN or not (autocast or each.dtype == input.dtype):
                return f"dtype {each.dtype}"
        if input.dim() != 3 or len(params) != layers * (2 if bidirectional else 1) * (4 if has_biases else 2):
            return "a projection"
        steps = input.shape[1 if args[-1] else 0]
        if isinstance(steps, int) and steps == 0:
            return "no steps"
        if hidden.shape[-1] != params[1].shape[-1]:
            return "a projection"
        return None


def _stack(
    kind: str, input: Tensor, states: Any, params: Sequence[Tensor], has_biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool, *, narrow: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """``narrow``: as autocast does, products are of bf16, and what comes out too, but for GRU's state, which stays as it was."""
    hidden, cell = states if kind == "lstm" else (states, None)
    dtype = input.dtype if not narrow else hidden.dtype if kind == "gru" else torch.bfloat16
    if narrow:
        params = [each.bfloat16() for each in params]
    of_direction = 4 if has_biases else 2
    directions = 2 if bidirectional else 1
    last_hidden, last_cell = [], []
    x = input
    for layer in range(layers):
        outputs = []
        if narrow:
            x = x.bfloat16()
        for direction in range(directions):
            number = layer * directions + direction
            weights = list(params[number * of_direction : (number + 1) * of_direction])
            output, h, c = _direction(
                kind, x.float(), hidden[number].float(), None if cell is None else cell[number].float(),
                weights, direction == 1, batch_first and layer == 0,
            )  # fmt: skip
            outputs.append(output)
            last_hidden.append(h)
            last_cell.append(c)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        x = x.to(dtype)  # as eager hands it from layer to layer
        if dropout != 0 and train and layer + 1 < layers:
            x = functional.dropout(x, dropout, training=True)
    # Between layers steps come first, so that the result lies in memory as eager's does.
    results = [x.transpose(0, 1) if batch_first else x, torch.stack(last_hidden).to(dtype)]
    if kind == "lstm":
        results.append(torch.stack([c for c in last_cell if c is not None]).to(dtype))
    return tuple(results)


def _direction(
    kind: str,
    x: Tensor,
    hidden: Tensor,
    cell: Tensor | None,
    weights: Sequence[Tensor],
    reverse: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """``x``: [steps, batch, features], or with ``batch_first`` [batch, steps, features]. Output [steps, batch, hidden], last hidden
    state and cell [batch, hidden]."""
    of_input, of_hidden = weights[0].float(), weights[1]
    if of_hidden.dtype != torch.bfloat16:  # which the steps take
        of_hidden = of_hidden.float()
    biases = [bias.float() for bias in weights[2:]]
    gates = functional.linear(x, of_input, biases[0] if biases else None)
    bias = biases[1] if biases else of_input.new_zeros(of_hidden.shape[0])
    if batch_first:
        gates = gates.transpose(0, 1)
    ops = torch.ops.zefuse
    last = None
    if kind == "lstm":
        assert cell is not None
        output, last, _, _ = ops.lstm_steps(gates, of_hidden, bias, hidden, cell, reverse)
    elif kind == "gru":
        output, _ = ops.gru_steps(gates, of_hidden, bias, hidden, reverse)
    else:
        output = ops.rnn_steps(gates, of_hidden, bias, hidden, kind.removeprefix("rnn_"), reverse)
    end = output.select(0, 0 if reverse else output.shape[0] - 1)
    return output, end, last


#: The operators' schemas. Sizes, of T steps, B rows, H units and G gates (4, 3, 1): gates [T, B, G H], weight [G H, H], bias [G H],
#: hidden and cell [B, H]; output and cells [T, B, H], activations [T, B, 4 H]. All f32, but for weights, which may be bf16.
_SCHEMAS = (
    "lstm_steps(Tensor gates, Tensor weight, Tensor bias, Tensor hidden, Tensor cell, bool reverse)"
    " -> (Tensor output, Tensor last_cell, Tensor activations, Tensor cells)",
    "lstm_steps_backward(Tensor grad_output, Tensor grad_last_cell, Tensor weight, Tensor cell, Tensor cells,"
    " Tensor activations, bool reverse) -> (Tensor grad_gates, Tensor grad_hidden, Tensor grad_cell)",
    "gru_steps(Tensor gates, Tensor weight, Tensor bias, Tensor hidden, bool reverse) -> (Tensor output, Tensor activations)",
    "gru_steps_backward(Tensor grad_output, Tensor weight, Tensor hidden, Tensor output, Tensor activations, bool reverse)"
    " -> (Tensor grad_gates, Tensor grad_products, Tensor grad_hidden)",
    "rnn_steps(Tensor gates, Tensor weight, Tensor bias, Tensor hidden, str nonlinearity, bool reverse) -> Tensor output",
    "rnn_steps_backward(Tensor grad_output, Tensor weight, Tensor output, str nonlinearity, bool reverse)"
    " -> (Tensor grad_gates, Tensor grad_hidden)",
)


@cache
def _operators() -> torch.library.Library:
    """Defines the operators once in a process."""
    # Kept by the cache: with it the operators would go.
    library = torch.library.Library("zefuse", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema in _SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
        name = schema.partition("(")[0]
        torch.library.register_fake(f"zefuse::{name}", globals()[f"_{name}_fake"], lib=library)
        library.impl(name, globals()[f"_{name}"], "CPU")  # type: ignore[no-untyped-call]
    for kind in ("lstm", "gru", "rnn"):
        torch.library.register_autograd(
            f"zefuse::{kind}_steps",
            globals()[f"_{kind}_gradient"],
            setup_context=globals()[f"_{kind}_save"],
            lib=library,
        )
    return library


# -- sizes and dtypes ----------------------------------------------------------------------------


def _lstm_steps_fake(gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor, reverse: bool) -> Any:
    steps, batch, _ = gates.shape
    units = hidden.shape[-1]
    return (
        gates.new_empty((steps, batch, units)),
        gates.new_empty((batch, units)),
        gates.new_empty((steps, batch, 4 * units)),
        gates.new_empty((steps, batch, units)),
    )


def _lstm_steps_backward_fake(
    grad_output: Tensor, grad_last_cell: Tensor, weight: Tensor, cell: Tensor, cells: Tensor, activations: Tensor, reverse: bool
) -> Any:  # fmt: skip
    return (
        torch.empty_like(activations, memory_format=torch.contiguous_format),
        cell.new_empty(cell.shape),
        cell.new_empty(cell.shape),
    )


def _gru_steps_fake(gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, reverse: bool) -> Any:
    steps, batch, _ = gates.shape
    units = hidden.shape[-1]
    return gates.new_empty((steps, batch, units)), gates.new_empty((steps, batch, 4 * units))


def _gru_steps_backward_fake(
    grad_output: Tensor, weight: Tensor, hidden: Tensor, output: Tensor, activations: Tensor, reverse: bool
) -> Any:  # fmt: skip
    steps, batch, units = output.shape
    of_gates = (steps, batch, 3 * units)
    return output.new_empty(of_gates), output.new_empty(of_gates), hidden.new_empty(hidden.shape)


def _rnn_steps_fake(
    gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, nonlinearity: str, reverse: bool
) -> Tensor:  # fmt: skip
    return gates.new_empty(gates.shape)


def _rnn_steps_backward_fake(
    grad_output: Tensor, weight: Tensor, output: Tensor, nonlinearity: str, reverse: bool
) -> Any:  # fmt: skip
    _, batch, units = output.shape
    return output.new_empty(output.shape), output.new_empty((batch, units))


# -- what runs where no plan does: a part of a graph in eager ------------------------------------


def _order(steps: int, reverse: bool) -> Any:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _lstm_steps(gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor, reverse: bool) -> Any:
    output, last, activations, cells = _lstm_steps_fake(gates, weight, bias, hidden, cell, reverse)
    h, c = hidden, cell
    for t in _order(gates.shape[0], reverse):
        i, f, g, o = (gates[t] + functional.linear(h, weight.float(), bias)).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        output[t], cells[t], activations[t] = h, c, torch.cat((i, f, g, o), 1)
    return output, last.copy_(c), activations, cells


def _lstm_steps_backward(
    grad_output: Tensor, grad_last_cell: Tensor, weight: Tensor, cell: Tensor, cells: Tensor, activations: Tensor, reverse: bool
) -> Any:  # fmt: skip
    grad_gates = torch.empty_like(activations, memory_format=torch.contiguous_format)
    dh, dc = torch.zeros_like(cell), grad_last_cell.clone()
    steps = grad_output.shape[0]
    for t in _order(steps, not reverse):
        before = t + 1 if reverse else t - 1
        old = cells[before] if 0 <= before < steps else cell
        i, f, g, o = activations[t].chunk(4, 1)
        through = cells[t].tanh()
        dh = dh + grad_output[t]
        dc = dc + dh * o * (1 - through * through)
        grad_gates[t] = torch.cat(
            (dc * g * i * (1 - i), dc * old * f * (1 - f), dc * i * (1 - g * g), dh * through * o * (1 - o)), 1
        )
        dc = dc * f
        dh = grad_gates[t] @ weight.float()
    return grad_gates, dh, dc


def _gru_steps(gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, reverse: bool) -> Any:
    output, activations = _gru_steps_fake(gates, weight, bias, hidden, reverse)
    h = hidden
    for t in _order(gates.shape[0], reverse):
        product = functional.linear(h, weight.float(), bias)
        (ri, zi, ni), (rh, zh, nh) = gates[t].chunk(3, 1), product.chunk(3, 1)
        r, z = (ri + rh).sigmoid(), (zi + zh).sigmoid()
        n = (ni + r * nh).tanh()
        h = (h - n) * z + n
        output[t], activations[t] = h, torch.cat((r, z, n, nh), 1)
    return output, activations


def _gru_steps_backward(
    grad_output: Tensor, weight: Tensor, hidden: Tensor, output: Tensor, activations: Tensor, reverse: bool
) -> Any:  # fmt: skip
    grad_gates, grad_products, _ = _gru_steps_backward_fake(grad_output, weight, hidden, output, activations, reverse)
    dh = torch.zeros_like(hidden)
    steps = grad_output.shape[0]
    for t in _order(steps, not reverse):
        before = t + 1 if reverse else t - 1
        old = output[before] if 0 <= before < steps else hidden
        r, z, n, nh = activations[t].chunk(4, 1)
        dh = dh + grad_output[t]
        dn = dh * (1 - z) * (1 - n * n)
        dz, dr = dh * (old - n) * z * (1 - z), dn * nh * r * (1 - r)
        grad_gates[t], grad_products[t] = torch.cat((dr, dz, dn), 1), torch.cat((dr, dz, dn * r), 1)
        dh = dh * z + grad_products[t] @ weight.float()
    return grad_gates, grad_products, dh


def _rnn_steps(
    gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, nonlinearity: str, reverse: bool
) -> Tensor:  # fmt: skip
    output = gates.new_empty(gates.shape)
    h = hidden
    for t in _order(gates.shape[0], reverse):
        h = getattr(torch, nonlinearity)(gates[t] + functional.linear(h, weight.float(), bias))
        output[t] = h
    return output


def _rnn_steps_backward(
    grad_output: Tensor, weight: Tensor, output: Tensor, nonlinearity: str, reverse: bool
) -> Any:  # fmt: skip
    grad_gates, dh = _rnn_steps_backward_fake(grad_output, weight, output, nonlinearity, reverse)
    dh = torch.zeros_like(dh)
    for t in _order(output.shape[0], not reverse):
        dh = dh + grad_output[t]
        grad_gates[t] = (
            dh * (1 - output[t] * output[t]) if nonlinearity == "tanh" else torch.where(output[t] > 0, dh, 0.0)
        )
        dh = grad_gates[t] @ weight.float()
    return grad_gates, dh


# -- derivatives: the products that are sums over all steps are matrix products ------------------


def _rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """As f32, so that products of such tensors are of ``dtype``."""
    return tensor if dtype == torch.float32 else tensor.to(dtype).float()


def _of_weight(
    grad_products: Tensor, output: Tensor, hidden: Tensor, reverse: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Of the weight and of its bias, from the gradient of the products with the hidden state before each step."""
    before = (
        torch.cat((output[1:], hidden[None])) if reverse else torch.cat((hidden[None], output[: output.shape[0] - 1]))
    )
    grad = grad_products.flatten(0, 1)
    of_weight = _rounded(grad, dtype).t() @ _rounded(before.flatten(0, 1), dtype)
    return of_weight.to(dtype), grad.sum(0)


def _lstm_save(ctx: Any, inputs: Any, output: Any) -> None:
    _, weight, _, hidden, cell, ctx.reverse = inputs
    out, _, activations, cells = output
    ctx.save_for_backward(weight, hidden, cell, out, activations, cells)
    ctx.mark_non_differentiable(activations, cells)


def _lstm_gradient(ctx: Any, grad_output: Any, grad_last_cell: Any, *_: Any) -> Any:
    weight, hidden, cell, output, activations, cells = ctx.saved_tensors
    grad_gates, grad_hidden, grad_cell = torch.ops.zefuse.lstm_steps_backward(
        grad_output, grad_last_cell, weight, cell, cells, activations, ctx.reverse
    )
    of_weight, of_bias = _of_weight(grad_gates, output, hidden, ctx.reverse, weight.dtype)
    return _rounded(grad_gates, weight.dtype), of_weight, of_bias, grad_hidden, grad_cell, None


def _gru_save(ctx: Any, inputs: Any, output: Any) -> None:
    _, weight, _, hidden, ctx.reverse = inputs
    ctx.save_for_backward(weight, hidden, *output)
    ctx.mark_non_differentiable(output[1])


def _gru_gradient(ctx: Any, grad_output: Any, *_: Any) -> Any:
    weight, hidden, output, activations = ctx.saved_tensors
    grad_gates, grad_products, grad_hidden = torch.ops.zefuse.gru_steps_backward(
        grad_output, weight, hidden, output, activations, ctx.reverse
    )
    of_weight, of_bias = _of_weight(grad_products, output, hidden, ctx.reverse, weight.dtype)
    return _rounded(grad_gates, weight.dtype), of_weight, of_bias, grad_hidden, None


def _rnn_save(ctx: Any, inputs: Any, output: Any) -> None:
    _, weight, _, hidden, ctx.nonlinearity, ctx.reverse = inputs
    ctx.save_for_backward(weight, hidden, output)


def _rnn_gradient(ctx: Any, grad_output: Any) -> Any:
    weight, hidden, output = ctx.saved_tensors
    grad_gates, grad_hidden = torch.ops.zefuse.rnn_steps_backward(
        grad_output, weight, output, ctx.nonlinearity, ctx.reverse
    )
    of_weight, of_bias = _of_weight(grad_gates, output, hidden, ctx.reverse, weight.dtype)
    return _rounded(grad_gates, weight.dtype), of_weight, of_bias, grad_hidden, None, None
