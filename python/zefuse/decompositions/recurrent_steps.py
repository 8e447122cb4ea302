"""The operators for the steps of recurrent layers: one call of the runtime (runtime/recurrence) each, forward and backward.

Here are their schemas, the sizes of their results, their derivatives, and what computes them where no plan does: a part of a graph
that runs in eager.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

#: Sizes, of T steps, B rows, H units and G gates (4, 3, 1): gates [T, B, G H], weight [G H, H], bias [G H], hidden and cell [B, H];
#: output and cells [T, B, H], activations [T, B, 4 H]. With a projection [P, H] the hidden state and the output have P units and the
#: weight is [G H, P]; grad_projected [T, B, P] is the output's gradient with what later steps add. All f32, but for weights and
#: projections, which may be bf16.
#: lstm_layer has the products of its input [T, B, I] as well: weight is that of the input [4 H, I], behind it that of the state
#: [4 H, H], in one dimension. Input, weight and output are all f32 or all bf16; of bf16 activations are f16, which keeps more of numbers
#: below one. lstm_layer_backward has the state's weight, in whose dtype the gradients of the output and of the gates are; grad_bias
#: [4 H] is the sum of the latter in f32, before they are rounded.
_LAYER = (
    "lstm_layer(Tensor input, Tensor weight, Tensor bias, Tensor hidden, Tensor cell, bool reverse)"
    " -> (Tensor output, Tensor last_cell, Tensor activations, Tensor cells, Tensor last_hidden)",
    "lstm_layer_backward(Tensor grad_output, Tensor grad_last_cell, Tensor weight, Tensor cell, Tensor cells, Tensor activations,"
    " Tensor grad_last_hidden, bool reverse) -> (Tensor grad_gates, Tensor grad_hidden, Tensor grad_cell, Tensor grad_bias)",
)
_SCHEMAS = (
    "lstm{}_steps(Tensor gates, Tensor weight, Tensor bias, Tensor hidden, Tensor cell, bool reverse{})"
    " -> (Tensor output, Tensor last_cell, Tensor activations, Tensor cells{})",
    "lstm{}_steps_backward(Tensor grad_output, Tensor grad_last_cell, Tensor weight, Tensor cell, Tensor cells,"
    " Tensor activations, bool reverse{}) -> (Tensor grad_gates, Tensor grad_hidden, Tensor grad_cell)",
    "lstm_projected{}_steps(Tensor gates, Tensor weight, Tensor bias, Tensor hidden, Tensor cell, Tensor projection, bool reverse{})"
    " -> (Tensor output, Tensor last_cell, Tensor activations, Tensor cells{})",
    "lstm_projected{}_steps_backward(Tensor grad_output, Tensor grad_last_cell, Tensor weight, Tensor cell, Tensor cells,"
    " Tensor activations, Tensor projection, bool reverse{})"
    " -> (Tensor grad_gates, Tensor grad_hidden, Tensor grad_cell, Tensor grad_projected)",
    "gru{}_steps(Tensor gates, Tensor weight, Tensor bias, Tensor hidden, bool reverse{})"
    " -> (Tensor output, Tensor activations{})",
    "gru{}_steps_backward(Tensor grad_output, Tensor weight, Tensor hidden, Tensor output, Tensor activations, bool reverse{})"
    " -> (Tensor grad_gates, Tensor grad_products, Tensor grad_hidden)",
    "rnn{}_steps(Tensor gates, Tensor weight, Tensor bias, Tensor hidden, str nonlinearity, bool reverse{}) -> (Tensor output{})",
    "rnn{}_steps_backward(Tensor grad_output, Tensor weight, Tensor output, str nonlinearity, bool reverse{})"
    " -> (Tensor grad_gates, Tensor grad_hidden)",
)  # fmt: skip

#: What those of packed sequences take and give beside. [T, B] is [N] there, the rows of all steps one step behind another;
#: batch_sizes, int64 [T], says how many each step has. last_hidden [B, H] is where each row ended, hidden_before [N, H] what each
#: step read.
_PACKED = (", Tensor batch_sizes", ", Tensor last_hidden, Tensor hidden_before")
_PACKED_BACKWARD = (", Tensor batch_sizes, Tensor grad_last_hidden", "")


@cache
def operators() -> torch.library.Library:
    """Defines the operators once in a process."""
    # Kept by the cache: with it the operators would go.
    library = torch.library.Library("zefuse", "FRAGMENT")  # type: ignore[no-untyped-call]
    for text in _LAYER:
        library.define(text)  # type: ignore[no-untyped-call]
        name = text.partition("(")[0]
        torch.library.register_fake(f"zefuse::{name}", globals()[f"_{name}_fake"], lib=library)
        library.impl(name, globals()[f"_{name}"], "CPU")  # type: ignore[no-untyped-call]
    torch.library.register_autograd(
        "zefuse::lstm_layer", _lstm_layer_gradient, setup_context=_lstm_layer_save, lib=library
    )
    for schema in _SCHEMAS:
        function = schema.partition("(")[0].format("")
        more = _PACKED_BACKWARD if function.endswith("backward") else _PACKED
        for text in (schema.format("", "", ""), schema.format("_packed", *more)):
            library.define(text)  # type: ignore[no-untyped-call]
            name = text.partition("(")[0]
            torch.library.register_fake(f"zefuse::{name}", globals()[f"_{function}_fake"], lib=library)
            library.impl(name, globals()[f"_{function}"], "CPU")  # type: ignore[no-untyped-call]
    for kind in ("lstm", "lstm_projected", "gru", "rnn"):
        for packed in ("", "_packed"):
            torch.library.register_autograd(
                f"zefuse::{kind}{packed}_steps",
                globals()[f"_{kind}_gradient"],
                setup_context=globals()[f"_{kind}_save"],
                lib=library,
            )
    return library


# -- sizes and dtypes ----------------------------------------------------------------------------


def _like(of: Tensor, units: int) -> Tensor:
    return of.new_empty((*of.shape[:-1], units))


def _of_packed(gates: Tensor, hidden: Tensor, batch_sizes: Tensor | None) -> tuple[Tensor, ...]:
    return () if batch_sizes is None else (hidden.new_empty(hidden.shape), _like(gates, hidden.shape[-1]))


def _lstm_steps_fake(
    gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor, reverse: bool, batch_sizes: Tensor | None = None
) -> Any:  # fmt: skip
    units = hidden.shape[-1]
    made = _like(gates, units), hidden.new_empty(hidden.shape), _like(gates, 4 * units), _like(gates, units)
    return *made, *_of_packed(gates, hidden, batch_sizes)


def _lstm_layer_fake(input: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor, reverse: bool) -> Any:
    units, sizes = hidden.shape[-1], input.shape[:-1]
    activations = cell.new_empty((*sizes, 4 * units), dtype=_dtype_of_activations(weight))
    cells = cell.new_empty((*sizes, units))
    return _like(input, units), cell.new_empty(cell.shape), activations, cells, cell.new_empty(cell.shape)


def _dtype_of_activations(weight: Tensor) -> torch.dtype:
    return torch.float16 if weight.dtype == torch.bfloat16 else torch.float32


def _lstm_layer_backward_fake(
    grad_output: Tensor, grad_last_cell: Tensor, weight: Tensor, cell: Tensor, cells: Tensor, activations: Tensor,
    grad_last_hidden: Tensor, reverse: bool,
) -> Any:  # fmt: skip
    states = [cell.new_empty(cell.shape) for _ in range(2)]
    return _like(grad_output, activations.shape[-1]), *states, cell.new_empty((activations.shape[-1],))


def _lstm_steps_backward_fake(
    grad_output: Tensor, grad_last_cell: Tensor, weight: Tensor, cell: Tensor, cells: Tensor, activations: Tensor,
    reverse: bool, batch_sizes: Tensor | None = None, grad_last_hidden: Tensor | None = None,
) -> Any:  # fmt: skip
    return _like(activations, activations.shape[-1]), cell.new_empty(cell.shape), cell.new_empty(cell.shape)


def _lstm_projected_steps_fake(
    gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor, projection: Tensor, reverse: bool,
    batch_sizes: Tensor | None = None,
) -> Any:  # fmt: skip
    units = cell.shape[-1]
    made = _like(gates, hidden.shape[-1]), cell.new_empty(cell.shape), _like(gates, 4 * units), _like(gates, units)
    return *made, *_of_packed(gates, hidden, batch_sizes)


def _lstm_projected_steps_backward_fake(
    grad_output: Tensor, grad_last_cell: Tensor, weight: Tensor, cell: Tensor, cells: Tensor, activations: Tensor,
    projection: Tensor, reverse: bool, batch_sizes: Tensor | None = None, grad_last_hidden: Tensor | None = None,
) -> Any:  # fmt: skip
    outputs = weight.shape[-1]
    grad_hidden = cell.new_empty((cell.shape[0], outputs))
    return _like(activations, activations.shape[-1]), grad_hidden, cell.new_empty(cell.shape), _like(cells, outputs)


def _gru_steps_fake(
    gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, reverse: bool, batch_sizes: Tensor | None = None
) -> Any:  # fmt: skip
    units = hidden.shape[-1]
    return _like(gates, units), _like(gates, 4 * units), *_of_packed(gates, hidden, batch_sizes)


def _gru_steps_backward_fake(
    grad_output: Tensor, weight: Tensor, hidden: Tensor, output: Tensor, activations: Tensor, reverse: bool,
    batch_sizes: Tensor | None = None, grad_last_hidden: Tensor | None = None,
) -> Any:  # fmt: skip
    units = hidden.shape[-1]
    return _like(output, 3 * units), _like(output, 3 * units), hidden.new_empty(hidden.shape)


def _rnn_steps_fake(
    gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, nonlinearity: str, reverse: bool,
    batch_sizes: Tensor | None = None,
) -> Any:  # fmt: skip
    output = _like(gates, hidden.shape[-1])
    return output if batch_sizes is None else (output, *_of_packed(gates, hidden, batch_sizes))


def _rnn_steps_backward_fake(
    grad_output: Tensor, weight: Tensor, output: Tensor, nonlinearity: str, reverse: bool,
    batch_sizes: Tensor | None = None, grad_last_hidden: Tensor | None = None,
) -> Any:  # fmt: skip
    state = output[0] if grad_last_hidden is None else grad_last_hidden
    return _like(output, output.shape[-1]), state.new_empty(state.shape)


# -- what runs where no plan does: a part of a graph in eager ------------------------------------


def _order(of: Tensor, reverse: bool, batch_sizes: Tensor | None) -> list[tuple[Any, int]]:
    """In the order of computing: where in a sequence a step is, and how many rows it has."""
    if batch_sizes is None:
        order: list[tuple[Any, int]] = [(t, of.shape[1]) for t in range(of.shape[0])]
    else:
        ends = batch_sizes.cumsum(0).tolist()
        order = [(slice(end - rows, end), rows) for end, rows in zip(ends, batch_sizes.tolist(), strict=True)]
    return order[::-1] if reverse else order


def _lstm_steps(
    gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor, reverse: bool, batch_sizes: Tensor | None = None
) -> Any:  # fmt: skip
    return _lstm_loop(gates, weight, bias, hidden, cell, None, reverse, batch_sizes)


def _lstm_layer(input: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor, reverse: bool) -> Any:
    rows, end = bias.numel(), bias.numel() * input.shape[-1]
    gates = functional.linear(input.float(), weight[:end].view(rows, -1).float())
    output, last, activations, cells = _lstm_loop(
        gates, weight[end:].view(rows, -1), bias, hidden, cell, None, reverse, None
    )
    last_hidden = output.select(0, 0 if reverse else output.shape[0] - 1).clone()
    return output.to(input.dtype), last, activations.to(_dtype_of_activations(weight)), cells, last_hidden


def _lstm_projected_steps(
    gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor, projection: Tensor, reverse: bool,
    batch_sizes: Tensor | None = None,
) -> Any:  # fmt: skip
    return _lstm_loop(gates, weight, bias, hidden, cell, projection, reverse, batch_sizes)


def _lstm_loop(
    gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor, projection: Tensor | None, reverse: bool,
    batch_sizes: Tensor | None,
) -> Any:  # fmt: skip
    units = cell.shape[-1]
    output, activations, cells = _like(gates, hidden.shape[-1]), _like(gates, 4 * units), _like(gates, units)
    packed = _of_packed(gates, hidden, batch_sizes)
    h, c = hidden.clone(), cell.clone()  # a row that has ended, or not begun, keeps its own
    for at, rows in _order(gates, reverse, batch_sizes):
        if packed:
            packed[1][at] = h[:rows]
        i, f, g, o = (gates[at] + functional.linear(h[:rows], weight.float(), bias)).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c[:rows] = f * c[:rows] + i * g
        of_cell = o * c[:rows].tanh()
        h[:rows] = of_cell if projection is None else of_cell @ projection.float().t()
        output[at], cells[at], activations[at] = h[:rows], c[:rows], torch.cat((i, f, g, o), 1)
    return output, c, activations, cells, *([h, packed[1]] if packed else [])


def _before(of: Tensor, first: Tensor, reverse: bool, batch_sizes: Tensor | None) -> list[tuple[Any, int, Tensor]]:
    """As ``_order``, from the step computed last to the first, with what each found of the one before it."""
    state, found = first.clone(), []
    for at, rows in _order(of, reverse, batch_sizes):
        found.append((at, rows, state[:rows].clone()))
        state[:rows] = of[at]
    return found[::-1]


def _lstm_steps_backward(
    grad_output: Tensor, grad_last_cell: Tensor, weight: Tensor, cell: Tensor, cells: Tensor, activations: Tensor,
    reverse: bool, batch_sizes: Tensor | None = None, grad_last_hidden: Tensor | None = None,
) -> Any:  # fmt: skip
    arguments = (grad_output, grad_last_cell, weight, cell, cells, activations)
    return _lstm_loop_backward(*arguments, None, reverse, batch_sizes, grad_last_hidden)[:3]


def _lstm_layer_backward(
    grad_output: Tensor, grad_last_cell: Tensor, weight: Tensor, cell: Tensor, cells: Tensor, activations: Tensor,
    grad_last_hidden: Tensor, reverse: bool,
) -> Any:  # fmt: skip
    arguments = (grad_output.float(), grad_last_cell, weight, cell, cells, activations.float(), None, reverse, None)
    grad_gates, *states, _ = _lstm_loop_backward(*arguments, grad_last_hidden)
    return grad_gates.to(grad_output.dtype), *states, _bias_of(grad_gates)


def _lstm_projected_steps_backward(
    grad_output: Tensor, grad_last_cell: Tensor, weight: Tensor, cell: Tensor, cells: Tensor, activations: Tensor,
    projection: Tensor, reverse: bool, batch_sizes: Tensor | None = None, grad_last_hidden: Tensor | None = None,
) -> Any:  # fmt: skip
    arguments = (grad_output, grad_last_cell, weight, cell, cells, activations, projection)
    return _lstm_loop_backward(*arguments, reverse, batch_sizes, grad_last_hidden)


def _lstm_loop_backward(
    grad_output: Tensor, grad_last_cell: Tensor, weight: Tensor, cell: Tensor, cells: Tensor, activations: Tensor,
    projection: Tensor | None, reverse: bool, batch_sizes: Tensor | None, grad_last_hidden: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    outputs = weight.shape[-1]
    grad_gates, grad_projected = _like(activations, activations.shape[-1]), _like(cells, outputs)
    dc = grad_last_cell.clone()
    dh = cell.new_zeros((cell.shape[0], outputs)) if grad_last_hidden is None else grad_last_hidden.clone()
    for at, rows, old in _before(cells, cell, reverse, batch_sizes):
        i, f, g, o = activations[at].chunk(4, 1)
        through = cells[at].tanh()
        of_hidden = grad_projected[at] = dh[:rows] + grad_output[at]
        if projection is not None:
            of_hidden = of_hidden @ projection.float()
        of_cell = dc[:rows] + of_hidden * o * (1 - through * through)
        grad_gates[at] = torch.cat(
            (of_cell * g * i * (1 - i), of_cell * old * f * (1 - f), of_cell * i * (1 - g * g),
             of_hidden * through * o * (1 - o)), 1
        )  # fmt: skip
        dc[:rows] = of_cell * f
        dh[:rows] = grad_gates[at] @ weight.float()
    return grad_gates, dh, dc, grad_projected


def _gru_steps(
    gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, reverse: bool, batch_sizes: Tensor | None = None
) -> Any:  # fmt: skip
    output, activations, *packed = _gru_steps_fake(gates, weight, bias, hidden, reverse, batch_sizes)
    h = hidden.clone()
    for at, rows in _order(gates, reverse, batch_sizes):
        if packed:
            packed[1][at] = h[:rows]
        product = functional.linear(h[:rows], weight.float(), bias)
        (ri, zi, ni), (rh, zh, nh) = gates[at].chunk(3, 1), product.chunk(3, 1)
        r, z = (ri + rh).sigmoid(), (zi + zh).sigmoid()
        n = (ni + r * nh).tanh()
        h[:rows] = (h[:rows] - n) * z + n
        output[at], activations[at] = h[:rows], torch.cat((r, z, n, nh), 1)
    return output, activations, *([h, packed[1]] if packed else [])


def _gru_steps_backward(
    grad_output: Tensor, weight: Tensor, hidden: Tensor, output: Tensor, activations: Tensor, reverse: bool,
    batch_sizes: Tensor | None = None, grad_last_hidden: Tensor | None = None,
) -> Any:  # fmt: skip
    grad_gates, grad_products, _ = _gru_steps_backward_fake(grad_output, weight, hidden, output, activations, reverse)
    dh = torch.zeros_like(hidden) if grad_last_hidden is None else grad_last_hidden.clone()
    for at, rows, old in _before(output, hidden, reverse, batch_sizes):
        r, z, n, nh = activations[at].chunk(4, 1)
        of_hidden = dh[:rows] + grad_output[at]
        dn = of_hidden * (1 - z) * (1 - n * n)
        dz, dr = of_hidden * (old - n) * z * (1 - z), dn * nh * r * (1 - r)
        grad_gates[at], grad_products[at] = torch.cat((dr, dz, dn), 1), torch.cat((dr, dz, dn * r), 1)
        dh[:rows] = of_hidden * z + grad_products[at] @ weight.float()
    return grad_gates, grad_products, dh


def _rnn_steps(
    gates: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, nonlinearity: str, reverse: bool,
    batch_sizes: Tensor | None = None,
) -> Any:  # fmt: skip
    output, (_, before) = _like(gates, hidden.shape[-1]), _of_packed(gates, hidden, batch_sizes) or (None, None)
    h = hidden.clone()
    for at, rows in _order(gates, reverse, batch_sizes):
        if before is not None:
            before[at] = h[:rows]
        h[:rows] = getattr(torch, nonlinearity)(gates[at] + functional.linear(h[:rows], weight.float(), bias))
        output[at] = h[:rows]
    return output if before is None else (output, h, before)


def _rnn_steps_backward(
    grad_output: Tensor, weight: Tensor, output: Tensor, nonlinearity: str, reverse: bool,
    batch_sizes: Tensor | None = None, grad_last_hidden: Tensor | None = None,
) -> Any:  # fmt: skip
    grad_gates = _like(output, output.shape[-1])
    dh = torch.zeros_like(output[0]) if grad_last_hidden is None else grad_last_hidden.clone()
    for at, rows in _order(output, not reverse, batch_sizes):
        of_hidden = dh[:rows] + grad_output[at]
        grad_gates[at] = (
            of_hidden * (1 - output[at] * output[at])
            if nonlinearity == "tanh"
            else torch.where(output[at] > 0, of_hidden, 0.0)
        )
        dh[:rows] = grad_gates[at] @ weight.float()
    return grad_gates, dh


# -- derivatives: the products that are sums over all steps are matrix products ------------------


def _rows(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """[..., n] as [rows, n] of ``dtype``."""
    return tensor.to(dtype).flatten(0, -2)


def _bias_of(grad_products: Tensor) -> Tensor:
    return grad_products.flatten(0, -2).sum(0)


class GatesOfInput(torch.autograd.Function):
    """``functional.linear`` of bf16 with a bias of f32, or none, and a result of f32. Its derivatives are products of bf16: those of
    the widened input and weight would be of f32, since that is what the forward would save of them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(x.float(), weight.float(), bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, grad_gates: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        grad = _rows(grad_gates, weight.dtype)
        return (
            (grad @ weight).view(x.shape) if of_x else None,
            grad.t() @ _rows(x, weight.dtype) if of_weight else None,
            _bias_of(grad_gates) if of_bias else None,
        )


def _of_weight(
    ctx: Any, grad_products: Tensor, output: Tensor, hidden: Tensor, dtype: torch.dtype, before: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Of the weight and of its bias, from the gradient of the products with the hidden state before each step."""
    if before is None:
        before = _hidden_before(ctx, output, hidden)
    return _rows(grad_products, dtype).t() @ _rows(before, dtype), _bias_of(grad_products)


def _hidden_before(ctx: Any, output: Tensor, hidden: Tensor) -> Tensor:
    """What each step read."""
    first = hidden[None].to(output.dtype)
    return torch.cat((output[1:], first) if ctx.reverse else (first, output[: output.shape[0] - 1]))


def _save(ctx: Any, tensors: tuple[Tensor, ...], batch_sizes: list[Tensor], packed: list[Tensor]) -> None:
    """With what packed sequences have beside: batch_sizes, and of the results last_hidden and hidden_before."""
    ctx.packed = bool(batch_sizes)
    ctx.save_for_backward(*tensors, *batch_sizes, *packed[1:])


def _saved(ctx: Any, number: int, grads: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """The first tensors that were saved; what the derivative of packed sequences takes beside; the hidden state before each step."""
    tensors = ctx.saved_tensors
    if not ctx.packed:
        return tensors[:number], (), None
    return tensors[:number], (tensors[number], grads[-2]), tensors[number + 1]


def _lstm_save(ctx: Any, inputs: Any, output: Any) -> None:
    _, weight, _, hidden, cell, ctx.reverse, *batch_sizes = inputs
    out, _, activations, cells, *packed = output
    _save(ctx, (weight, hidden, cell, out, activations, cells), batch_sizes, packed)
    ctx.mark_non_differentiable(activations, cells, *packed[1:])


def _lstm_gradient(ctx: Any, *grads: Any) -> Any:
    (weight, hidden, cell, output, activations, cells), packed, before = _saved(ctx, 6, grads)
    operator = torch.ops.zefuse.lstm_packed_steps_backward if packed else torch.ops.zefuse.lstm_steps_backward
    grad_gates, grad_hidden, grad_cell = operator(
        grads[0], grads[1], weight, cell, cells, activations, ctx.reverse, *packed
    )
    of_weight, of_bias = _of_weight(ctx, grad_gates, output, hidden, weight.dtype, before)
    rest = (None, None) if packed else (None,)
    return grad_gates, of_weight, of_bias, grad_hidden, grad_cell, *rest


def _lstm_layer_save(ctx: Any, inputs: Any, output: Any) -> None:
    input, weight, _, hidden, cell, ctx.reverse = inputs
    out, _, activations, cells, _ = output
    ctx.save_for_backward(input, weight, hidden, cell, out, activations, cells)
    ctx.mark_non_differentiable(activations, cells)


def _lstm_layer_gradient(ctx: Any, *grads: Any) -> Any:
    input, weight, hidden, cell, output, activations, cells = ctx.saved_tensors
    features, gates, dtype = input.shape[-1], activations.shape[-1], weight.dtype
    of_input, of_hidden = weight[: gates * features].view(gates, -1), weight[gates * features :].view(gates, -1)
    grad_gates, grad_hidden, grad_cell, of_bias = torch.ops.zefuse.lstm_layer_backward(
        grads[0].to(dtype), grads[1], of_hidden, cell, cells, activations, grads[4], ctx.reverse
    )
    grad = grad_gates.flatten(0, -2)
    multiplied = [each.flatten(0, -2) for each in (input, _hidden_before(ctx, output, hidden))]
    if dtype == torch.bfloat16:  # one product: turning the gates' gradients takes as long as multiplying them
        both = grad.t() @ torch.cat(multiplied, 1)
        of_weights = torch.cat([each.reshape(-1) for each in both.split([features, both.shape[1] - features], 1)])
    else:
        of_weights = torch.cat([(grad.t() @ each).reshape(-1) for each in multiplied])
    return (grad @ of_input).view(input.shape), of_weights, of_bias, grad_hidden, grad_cell, None


def _lstm_projected_save(ctx: Any, inputs: Any, output: Any) -> None:
    _, weight, _, hidden, cell, projection, ctx.reverse, *batch_sizes = inputs
    out, _, activations, cells, *packed = output
    _save(ctx, (weight, hidden, cell, projection, out, activations, cells), batch_sizes, packed)
    ctx.mark_non_differentiable(activations, cells, *packed[1:])


def _lstm_projected_gradient(ctx: Any, *grads: Any) -> Any:
    (weight, hidden, cell, projection, output, activations, cells), packed, before = _saved(ctx, 7, grads)
    steps = torch.ops.zefuse
    operator = steps.lstm_projected_packed_steps_backward if packed else steps.lstm_projected_steps_backward
    grad_gates, grad_hidden, grad_cell, grad_projected = operator(
        grads[0], grads[1], weight, cell, cells, activations, projection, ctx.reverse, *packed
    )
    dtype = weight.dtype
    of_weight, of_bias = _of_weight(ctx, grad_gates, output, hidden, dtype, before)
    projected = activations[..., 3 * cell.shape[-1] :] * cells.tanh()
    of_projection = _rows(grad_projected, dtype).t() @ _rows(projected, dtype)
    rest = (None, None) if packed else (None,)
    return grad_gates, of_weight, of_bias, grad_hidden, grad_cell, of_projection, *rest


def _gru_save(ctx: Any, inputs: Any, output: Any) -> None:
    _, weight, _, hidden, ctx.reverse, *batch_sizes = inputs
    out, activations, *packed = output
    _save(ctx, (weight, hidden, out, activations), batch_sizes, packed)
    ctx.mark_non_differentiable(activations, *packed[1:])


def _gru_gradient(ctx: Any, *grads: Any) -> Any:
    (weight, hidden, output, activations), packed, before = _saved(ctx, 4, grads)
    operator = torch.ops.zefuse.gru_packed_steps_backward if packed else torch.ops.zefuse.gru_steps_backward
    grad_gates, grad_products, grad_hidden = operator(
        grads[0], weight, hidden, output, activations, ctx.reverse, *packed
    )
    of_weight, of_bias = _of_weight(ctx, grad_products, output, hidden, weight.dtype, before)
    rest = (None, None) if packed else (None,)
    return grad_gates, of_weight, of_bias, grad_hidden, *rest


def _rnn_save(ctx: Any, inputs: Any, output: Any) -> None:
    _, weight, _, hidden, ctx.nonlinearity, ctx.reverse, *batch_sizes = inputs
    out, *packed = output if batch_sizes else (output,)
    _save(ctx, (weight, hidden, out), batch_sizes, packed)
    ctx.mark_non_differentiable(*packed[1:])


def _rnn_gradient(ctx: Any, *grads: Any) -> Any:
    (weight, hidden, output), packed, before = _saved(ctx, 3, grads)
    operator = torch.ops.zefuse.rnn_packed_steps_backward if packed else torch.ops.zefuse.rnn_steps_backward
    grad_gates, grad_hidden = operator(grads[0], weight, output, ctx.nonlinearity, ctx.reverse, *packed)
    of_weight, of_bias = _of_weight(ctx, grad_gates, output, hidden, weight.dtype, before)
    rest = (None, None, None) if packed else (None, None)
    return grad_gates, of_weight, of_bias, grad_hidden, *rest
