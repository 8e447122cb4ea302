"""Recurrent layers (torch.lstm, gru, rnn_tanh, rnn_relu) whose steps stay together.

Tracing would take a layer apart into its steps: some operations for each of hundreds, and a graph that takes as long to compile
as it is long. Here the products with the input are one matrix product over all steps, which fuses as any other, and what is
left, the products with the hidden state and the cell's formula, is one operator of ours: one call of the runtime
(runtime/recurrence), forward and backward, whatever the length of the sequence.

f32; f16 and bf16 compute in f32 and are rounded at the end, but products of bf16 are of bf16 where the processor has them, with a
hidden state that is rounded at each step, as eager's is; so are those of autocast to bf16. What is not taken (f64, autocast to f16)
stays as torch traces it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from zefuse.decompositions import packed_sequences, recurrent_steps
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
        # The steps of a packed sequence are known when it runs.
        return not on_gpu or _steps(node) > UNROLLED_STEPS or isinstance(node.args[3], Sequence)

    if not any(map(wanted, gm.graph.nodes)):
        return gm
    recurrent_steps.operators()
    graph = copy.deepcopy(gm.graph)
    for node, original in zip(graph.nodes, gm.graph.nodes, strict=True):
        if wanted(original):
            # What multiplies the input of so many steps runs on the device.
            node.target = Layer(table[original.target].kind, splits=True) if on_gpu else table[original.target]
    return with_graph(gm, graph)


def _steps(node: torch.fx.Node) -> int:
    """Of a layer; one that is not known counts as very many."""
    args = _Arguments.of(torch.fx.map_arg(node.args, lambda each: each.meta.get("example_value")))
    steps = None if args is None or not isinstance(args.input, Tensor) else args.steps()
    return steps if isinstance(steps, int) else sys.maxsize


def why_eager(gm: torch.fx.GraphModule) -> str | None:
    """Why the graph would be too large taken apart, for a user to read; None: it would not."""
    for node in gm.graph.nodes:
        layer = _layers().get(node.target) if node.op == "call_function" else None
        if layer is None:
            continue
        args = torch.fx.map_arg(node.args, lambda each: each.meta.get("example_value"))
        if not args or not isinstance(
            args[0], Tensor
        ):  # a graph of other hands than Dynamo's: what it holds is seen later
            continue
        reason = layer.why_not(*args)
        if reason is not None and _steps(node) > UNROLLED_STEPS:
            return f"torch.{layer.kind} with {reason} has no lowering, and taken apart more than {UNROLLED_STEPS} steps"
    return None


def let_dynamo_take_layers() -> None:
    """For the whole process: Dynamo leaves nn.LSTM, GRU and RNN to eager unless told otherwise, for the sake of back ends that take
    them apart; and the length of a sequence stays a symbol."""
    torch._dynamo.config.allow_rnn = True
    for layer in set(_layers().values()):
        for operator, whole in zip(layer.operators(), (layer.whole, layer.whole_of_packed), strict=True):
            torch_versions.keep_whole_for_sizes(operator, whole)


def decompositions(others: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """For a program of torch.export's: what is not taken goes through ``others``."""

    def of(layer: Layer, operator: Any) -> Callable[..., Any]:
        def whole(*args: Any) -> Any:
            result = layer.whole(*args)
            return others[operator](*args) if result is NotImplemented else result

        return whole

    return {operator: of(layer, operator) for layer in set(_layers().values()) for operator in layer.operators()}


@cache
def _layers() -> dict[Any, Layer]:
    table: dict[Any, Layer] = {}
    for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        layer = Layer(kind)
        for original in (getattr(torch, kind), getattr(torch._VF, kind), *layer.operators()):
            table[original] = layer
    return table


class _Arguments(NamedTuple):
    """Of one of torch's functions: ``(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)``;
    ``input`` [steps, batch, features] or with ``batch_first`` [batch, steps, features]. Of a packed sequence ``(input,
    batch_sizes, hx, params, ..., bidirectional)``; ``input`` [rows of all steps, features]."""

    input: Tensor
    batch_sizes: Tensor | None
    states: Any
    params: Sequence[Tensor]
    has_biases: bool
    layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool

    @staticmethod
    def of(args: Sequence[Any]) -> _Arguments | None:
        """None: others than these."""
        if len(args) != 9:
            return None
        if isinstance(args[3], Sequence):
            return _Arguments(*args, False)  # type: ignore[call-arg]
        return _Arguments(args[0], None, *args[1:])

    def steps(self) -> Any:
        if self.batch_sizes is not None:
            return self.batch_sizes.shape[0]
        return self.input.shape[1 if self.batch_first else 0]


class Layer:
    """Stands for one of torch's functions, with its arguments."""

    def __init__(self, kind: str, *, splits: bool = False) -> None:
        """``splits``: the products of the input are no part of the steps' call, however many rows there are."""
        self.kind, self.splits = kind, splits
        self.__name__ = kind  # what FX writes into a graph's code

    def operators(self) -> tuple[Any, Any]:
        """torch's, of a sequence and of a packed one."""
        packet = getattr(torch.ops.aten, self.kind)
        return packet.input, packet.data

    def __call__(self, *args: Any) -> Any:
        result = self.whole(*args)
        return getattr(torch, self.kind)(*args) if result is NotImplemented else result

    def whole(self, *args: Any) -> Any:
        """The layer by our operators, or NotImplemented."""
        if self.why_not(*args) is not None:
            return NotImplemented
        recurrent_steps.operators()
        taken = _Arguments.of(args)
        assert taken is not None
        if not torch.is_autocast_enabled("cpu"):
            return _stack(self.kind, taken, narrow=False, splits=self.splits)
        with torch._C._DisableAutocast():
            return _stack(self.kind, taken, narrow=True, splits=self.splits)

    def whole_of_packed(self, *args: Any) -> Any:
        """Other back ends could not take apart what Dynamo left whole: its graph breaks there instead."""
        return NotImplemented if packed_sequences.traced_for_others() else self.whole(*args)

    def why_not(self, *args: Any) -> str | None:
        taken = _Arguments.of(args)
        if taken is None or isinstance(taken.states, Sequence) != (self.kind == "lstm"):
            return "other arguments than torch's modules give"
        input, params, states = taken.input, taken.params, taken.states
        hidden = states[0] if self.kind == "lstm" else states
        tensors = [input, *params, *(states if self.kind == "lstm" else (states,))]
        autocast = torch.is_autocast_enabled("cpu")
        if autocast and torch.get_autocast_dtype("cpu") != torch.bfloat16:
            return "autocast to another type than bf16"
        for each in tensors:
            if each.device.type != "cpu" or each.dtype not in _TAKEN or not (autocast or each.dtype == input.dtype):
                return f"dtype {each.dtype}"
        packed = taken.batch_sizes
        if packed is not None and (packed.dtype != torch.int64 or packed.device.type != "cpu" or packed.dim() != 1):
            return "batch_sizes that are no int64 on the CPU"
        if input.dim() != (3 if packed is None else 2) or hidden.dim() != 3:
            return "other dimensions than torch's modules give"
        directions = 2 if taken.bidirectional else 1
        projected = self.kind == "lstm" and states[1].shape[-1] != hidden.shape[-1]  # as torch tells it
        if len(params) != taken.layers * directions * _params_of_direction(taken, projected):
            return "other weights than torch's modules give"
        steps = taken.steps()
        if isinstance(steps, int) and steps == 0:
            return "no steps"
        if hidden.shape[-1] != params[1].shape[-1]:
            return "a hidden state of other units than the weights"
        if packed is None and hidden.shape[1] != input.shape[0 if taken.batch_first else 1]:
            return "a hidden state of other rows than the input"  # torch repeats one row for all
        return None


def _params_of_direction(args: _Arguments, projected: bool) -> int:
    return (4 if args.has_biases else 2) + (1 if projected else 0)


def _stack(kind: str, args: _Arguments, *, narrow: bool, splits: bool) -> tuple[Tensor, ...]:
    """``narrow``: as autocast does, products are of bf16, and what comes out too, but for GRU's state, which stays as it was, and
    so what is made of a packed sequence's cell. Of a layer with projections the cell alone does."""
    hidden, cell = args.states if kind == "lstm" else (args.states, None)
    projected = cell is not None and cell.shape[-1] != hidden.shape[-1]
    dtype = of_cell = args.input.dtype
    if narrow:
        state = hidden if kind == "gru" else cell if args.batch_sizes is not None and not projected else None
        dtype = torch.bfloat16 if state is None else torch.promote_types(state.dtype, torch.bfloat16)
        of_cell = torch.promote_types(cell.dtype, torch.bfloat16) if cell is not None and projected else dtype
    params = [each.bfloat16() for each in args.params] if narrow else args.params
    of_direction = _params_of_direction(args, projected)
    directions = 2 if args.bidirectional else 1
    last_hidden, last_cell = [], []
    x = args.input
    for layer in range(args.layers):
        outputs = []
        if narrow:
            x = x.bfloat16()
        for direction in range(directions):
            number = layer * directions + direction
            weights = list(params[number * of_direction : (number + 1) * of_direction])
            output, h, c = _direction(
                kind, x, hidden[number].float(), None if cell is None else cell[number].float(),
                weights, direction == 1, args.batch_first and layer == 0, args.batch_sizes, splits,
            )  # fmt: skip
            outputs.append(output)
            last_hidden.append(h)
            last_cell.append(c)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        x = x.to(dtype)  # as eager hands it from layer to layer
        if args.dropout != 0 and args.train and layer + 1 < args.layers:
            x = functional.dropout(x, args.dropout, training=True)
    if x is output and x.requires_grad:
        # The operator's derivative reads what it gave, and a caller may write into what the layer gives, as in eager.
        x = x.clone()
    # Between layers steps come first, so that the result lies in memory as eager's does.
    results = [x.transpose(0, 1) if args.batch_first else x, torch.stack(last_hidden).to(dtype)]
    if kind == "lstm":
        results.append(torch.stack([c for c in last_cell if c is not None]).to(of_cell))
    return tuple(results)


def _direction(
    kind: str,
    x: Tensor,
    hidden: Tensor,
    cell: Tensor | None,
    weights: Sequence[Tensor],
    reverse: bool,
    batch_first: bool,
    batch_sizes: Tensor | None,
    splits: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """``x``: [steps, batch, features], with ``batch_first`` [batch, steps, features], or of a packed sequence [rows, features].
    Output [steps, batch, hidden] or [rows, hidden], last hidden state and cell [batch, hidden]."""
    if kind == "lstm" and batch_sizes is None and not splits and _is_one_call(x, hidden, weights):
        return _whole_lstm(x, hidden, cell, weights, reverse, batch_first)
    of_hidden = _of_steps(weights[1])
    biases, projection = [each.float() for each in weights[2:4]], None
    if len(weights) % 2:
        biases, projection = biases[: len(weights) - 3], _of_steps(weights[-1])
    bias_of_input = biases[0] if biases else None
    if of_hidden.dtype == torch.bfloat16:
        gates = recurrent_steps.GatesOfInput.apply(x, weights[0], bias_of_input)  # type: ignore[no-untyped-call]
    else:
        gates = functional.linear(x.float(), weights[0].float(), bias_of_input)
    bias = biases[1] if biases else hidden.new_zeros(of_hidden.shape[0])
    if batch_first:
        gates = gates.transpose(0, 1)
    name, operands, last = kind, [gates, of_hidden, bias, hidden], None
    attributes: list[Any] = [reverse]
    if kind == "lstm":
        assert cell is not None
        operands.append(cell)
        if projection is not None:
            name = "lstm_projected"
            operands.append(projection)
    elif kind != "gru":
        name, nonlinearity = kind.split("_")
        attributes.insert(0, nonlinearity)
    if batch_sizes is not None:
        operator = getattr(torch.ops.zefuse, f"{name}_packed_steps")
        output, *others, end, _ = operator(*operands, *attributes, batch_sizes)
        return output, end, others[0] if kind == "lstm" else None
    results = getattr(torch.ops.zefuse, f"{name}_steps")(*operands, *attributes)
    output = results if isinstance(results, Tensor) else results[0]
    if kind == "lstm":
        last = results[1]
    return output, output.select(0, 0 if reverse else output.shape[0] - 1), last


#: Fewer rows do not fill tiles, and one product of the input over all steps reads its weight but once.
_FEWEST_ROWS = 8
#: Bytes of weights that a core's second-level cache holds from step to step, beside what else a step reads.
_CACHED_WEIGHTS = 1 << 20


def _is_one_call(x: Tensor, hidden: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether an LSTM multiplies its input step by step, so that the products never go to memory: where it is quicker. Weights that
    no near cache holds are read at each step: that takes as long as the gates of a 64th as many rows as a row of the input's weight
    has bytes."""
    rows = hidden.shape[0]
    if len(weights) % 2 or not isinstance(rows, int) or x.dtype not in (torch.float32, torch.bfloat16):
        return False
    if any(each.dtype != x.dtype for each in weights):
        return False
    cached = sum(each.numel() for each in weights[:2]) * x.itemsize <= _CACHED_WEIGHTS
    pays = 64 * rows >= weights[0].shape[1] * x.itemsize
    return rows >= _FEWEST_ROWS and (cached or pays)


def _whole_lstm(
    x: Tensor, hidden: Tensor, cell: Tensor | None, weights: Sequence[Tensor], reverse: bool, batch_first: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``_direction``, but for the output's dtype, which is the input's."""
    bias = weights[2].float() + weights[3].float() if len(weights) > 2 else hidden.new_zeros(weights[0].shape[0])
    weight = torch.cat((weights[0].reshape(-1), weights[1].reshape(-1)))
    input = x.transpose(0, 1) if batch_first else x
    output, last, _, _, last_hidden = torch.ops.zefuse.lstm_layer(input, weight, bias, hidden, cell, reverse)
    return output, last_hidden, last


def _of_steps(weight: Tensor) -> Tensor:
    """The steps take bf16 as it is."""
    return weight if weight.dtype == torch.bfloat16 else weight.float()
