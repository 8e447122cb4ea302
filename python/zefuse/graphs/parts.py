"""Graphs that no plan can hold whole: they are cut where something must stay outside, and only that runs in eager.

A plan holds operators over dense tensors of the usual dtypes, on the CPU or on the plan's GPU, with sizes that are known when it
starts. Higher-order operators (cond, flex_attention, ...), complex numbers (but for what ``complex_pairs.py`` makes of them) and
quantised ones, collectives, and operators whose result's size or value depends on data are none of that. Each such node goes to an
eager part; what stands before and after is compiled as usual. Order among random draws, collectives and other effects is kept. An
input that is no tensor and no number (a device mesh, the symbol of a nested tensor's lengths) can be returned as it came.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from zefuse import _native
from zefuse.decompositions import fused_attention, without_kernels
from zefuse.errors import UnsupportedError
from zefuse.graphs import input_names, saved_strides
from zefuse.graphs.traced_strides import laid, lying_as_traced, strides_as_traced

_HELD = frozenset(
    getattr(torch, name) for name in "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()
)
# Operators of a process group. It knows a tensor that is on its way by its storage (wait_tensor), and a plan's memory is its own.
_COLLECTIVES = frozenset(("_c10d_functional", "_c10d_functional_autograd", "c10d", "symm_mem"))
_QUANTISED = frozenset((torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4))
# Of operators on quantised tensors those that give ordinary ones.
_DEQUANTISE = ("aten::dequantize", "aten::int_repr", "aten::q_per_channel", "aten::equal")
_SCALARS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)

Reasons = dict[Node, str]


def outside(gm: GraphModule, place: torch.device | None = None) -> Reasons:
    """The nodes that no plan can hold, and why. Empty for most graphs. ``place``: of a plan for a GPU of torch's, which has no steps
    on the host: operators without a kernel there run in eager, on the same stream."""
    if unknown := _misinformed(gm):
        return dict.fromkeys((node for node in gm.graph.nodes if node.op == "call_function"), unknown)
    reasons: Reasons = {}
    nested = _nested_lengths(gm)
    quantised: set[Node] = set()
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        if reason := _why_outside(node, reasons, place) or _why_quantised(node, quantised) or _why_nested(node, nested):
            reasons[node] = reason
    return reasons


def _misinformed(gm: GraphModule) -> str | None:
    """Where torch 2.11's shape rules say what the kernels do not, so that all behind it is wrong: that ``_unique`` (in the gradient of
    ``index_fill``'s value) gives one element, and that attention of f64 keeps its logarithms in f32."""
    aten = torch.ops.aten
    for node in _calls_of(gm, aten._unique.default):
        if isinstance(node.meta["val"][0].shape[0], int) and node.args[0].meta["val"].numel() != 1:
            return "aten::_unique: torch's shape rule makes up how many there are"
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    logarithms = [(node.meta["val"][0], node.meta["val"][1]) for node in _calls_of(gm, attention)]
    derivative = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    logarithms += [(node.args[1].meta["val"], node.args[5].meta["val"]) for node in _calls_of(gm, derivative)]
    if any(values.dtype == torch.float64 != logs.dtype for values, logs in logarithms):
        return "aten::_scaled_dot_product_flash_attention_for_cpu: torch's shape rule has another dtype than its kernel"
    return None


def _calls_of(gm: GraphModule, target: Any) -> list[Any]:
    return list(gm.graph.find_nodes(op="call_function", target=target))


def passes_on(gm: GraphModule, place: torch.device | None = None) -> bool:
    """Whether the graph takes tensors that no plan holds (a complex one that nothing reads), or returns more than tensors and
    integers: inputs that no plan reads, numbers made of them, booleans and real numbers. Python passes them on, beside the plan."""
    values = (node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder"))
    if any(isinstance(value, torch.Tensor) and _problem(value, place) for value in values):
        return True
    nested = _nested_lengths(gm)
    for node in gm.graph.output_node().all_input_nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymBool | torch.SymFloat) or (node.op == "placeholder" and _is_object(value)):
            return True
        if isinstance(value, torch.SymInt) and nested & value.node.expr.free_symbols:
            return True
    return False


def writes(gm: GraphModule) -> Reasons:
    """The copies into inputs at a graph's end, which a plan carries out itself when it is the whole graph."""
    copies = (node for node in gm.graph.nodes if node.target is torch.ops.aten.copy_.default)
    return dict.fromkeys(copies, "an input is written after all parts have run")


def named_in(error: Exception, gm: GraphModule) -> list[Node]:
    """The nodes that an error of the compiled part blames."""
    found = set(re.findall(r"FX node '([^']+)'", str(error)))
    return [node for node in gm.graph.nodes if node.name in found]


def line_of(node: Node) -> str:
    """Of the user's program that a node comes from: " (model.py:12)"; of torch's where no other is known, or nothing."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', str(node.meta.get("stack_trace") or ""))
    users = [frame for frame in frames if "/torch/" not in frame[0]] or frames
    return f" ({Path(users[-1][0]).name}:{users[-1][1]})" if users else ""


def refuse_host_steps(compiled: Any, gm: GraphModule) -> None:
    """Of a plan for a GPU of torch's: raises UnsupportedError that names the nodes whose kernel would run on the host."""
    report = compiled.report()
    steps = [(f"{entry['reason']} ({entry['op']})", entry["ops"]) for entry in report["fallbacks"]]
    if report["host_steps"] and not steps:
        steps.append(("an input is written by a copy that is no command of a device", ["aten.copy_.default"]))
    for reason, ops in steps:
        nodes = [node for node in gm.graph.nodes if str(node.target) in ops]
        raise UnsupportedError(f"{reason}\n" + ", ".join(f"FX node '{node.name}'" for node in nodes))


def _why_outside(node: Node, reasons: Mapping[Node, str], place: torch.device | None) -> str | None:
    if _is_free(node):
        return None
    target: Any = node.target
    if target is operator.getitem:  # with its source
        source = node.args[0]
        return reasons.get(source) if isinstance(source, Node) else None
    if target is torch.ops.higher_order.with_effects:
        target = node.args[1]
    if not isinstance(target, torch._ops.OpOverload):
        return f"{_name(node)} is no operator that a plan can call"
    source = node.args[0] if node.args else None
    if isinstance(source, Node) and without_kernels.refuses_lowered(target, (source.meta.get("val"),)):
        return f"{_name(node)} is refused by eager"
    if node.meta.get("unbacked_bindings"):
        return f"the size or value of {_name(node)}'s result depends on data"
    if target.namespace in _COLLECTIVES:
        return f"{_name(node)} communicates with other processes"
    if "val" in node.meta and (problem := _problem(node.meta["val"], place, made=True)):
        return f"{_name(node)} makes {problem}"
    writes = target is torch.ops.aten.copy_.default  # an input, at the end
    if place is not None and target._schema.returns and not writes and str(target) not in _lowered():
        if torch.Tag.nondeterministic_seeded in target.tags:
            return f"{_name(node)} draws from the device's generator"
        return f"no lowering for {_name(node)}"
    for argument in node.all_input_nodes:
        if argument.op == "get_attr":
            continue
        if "val" not in argument.meta:
            return f"{_name(node)} reads {input_names.shown(argument)}, of which nothing is known"
        value = argument.meta["val"]
        # A real number made of sizes is computed in the kernel that wants it.
        if isinstance(value, torch.SymBool) or (isinstance(value, torch.SymFloat) and str(target) not in _lowered()):
            return f"{_name(node)} takes a number that is known at run time only"
        if problem := _problem(value, place):
            return f"{_name(node)} reads {problem}"
    return None


def _why_nested(node: Node, nested: Set[Any]) -> str | None:
    if not nested or _is_free(node):
        return None
    for argument in node.all_input_nodes:
        value = argument.meta.get("val")
        if isinstance(value, torch.SymInt) and nested & value.node.expr.free_symbols:
            return f"{_name(node)} takes the lengths of a nested tensor"
    return None


def _nested_lengths(gm: GraphModule) -> Set[Any]:
    """The symbols of nested tensors' lengths, which have no value at run time: they only say which lengths are the same."""
    values = (node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder"))
    return {v.node.expr for v in values if isinstance(v, torch.SymInt) and v.node.is_nested_int()}


def _why_quantised(node: Node, quantised: set[Node]) -> str | None:
    """Fake tensors do not say that they are quantised (they have the dtype that was quantised): the operators tell. Adds to
    ``quantised`` what may be such a tensor."""
    target: Any = node.target
    reads = any(argument in quantised for argument in node.all_input_nodes)
    if not isinstance(target, torch._ops.OpOverload):
        if target is operator.getitem and reads:
            quantised.add(node)
        return None
    name = target._schema.name
    made = target.namespace == "quantized" or any(
        isinstance(value, torch.dtype) and value in _QUANTISED for value in (*node.args, *node.kwargs.values())
    )
    if not (reads or made):
        return None
    if not name.startswith(_DEQUANTISE) and not name.endswith("_dynamic"):
        quantised.add(node)
    return f"{_name(node)} works on quantised tensors"


@cache
def _lowered() -> frozenset[str]:
    return frozenset(_native.load().lowered_targets())


def _problem(value: Any, place: torch.device | None, made: bool = False) -> str | None:
    if isinstance(value, torch.Tensor):
        if value.dtype not in _HELD:
            return f"a tensor of {str(value.dtype).removeprefix('torch.')}"
        on_cpu = value.device.type == "cpu" and not (made and place is not None)
        if value.layout is not torch.strided or not (on_cpu or value.device == place):
            return f"a tensor with layout {value.layout} on {value.device}"
    elif isinstance(value, tuple | list):
        return next(filter(None, (_problem(item, place, made) for item in value)), None)
    elif _is_object(value):
        return f"an object, a {type(value).__name__}"
    return None


def _is_object(value: Any) -> bool:
    return value is not None and not isinstance(value, (torch.Tensor, tuple, list, str, *_SCALARS))


def _is_free(node: Node) -> bool:
    """Arithmetic on sizes: repeated wherever it is used."""
    if node.op != "call_function" or not isinstance(node.meta.get("val"), _SCALARS):
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.startswith("aten::sym_")
    return node.target is not operator.getitem and not isinstance(node.target, torch._ops.HigherOrderOperator)


def _is_ordered(node: Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return target is not operator.getitem
    if target.namespace in _COLLECTIVES:  # each process has them in one order; waiting for one is no effect
        return target._schema.name != "_c10d_functional::wait_tensor"
    return torch.Tag.nondeterministic_seeded in target.tags or not target._schema.returns


def _name(node: Node) -> str:
    target: Any = node.args[1] if node.target is torch.ops.higher_order.with_effects else node.target
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__name__", str(target))
    overload = target._schema.overload_name
    return target._schema.name + (f".{overload}" if overload else "")


class Parts:
    """A graph in parts, called as a compiled graph is: with a list, which it empties. Thread-safe as its parts are."""

    _boxed_call = True

    def __init__(
        self,
        gm: GraphModule,
        parameters: Sequence[int],
        reasons: Reasons,
        compile_part: Callable[[GraphModule, list[int]], Any],
    ) -> None:
        """``compile_part(gm, parameter_indices)``; UnsupportedError of it that names no node makes that part eager."""
        self._outside = reasons
        self._compiled: list[Any] = []
        self._eager_parts: dict[str, str] = {}  # operator -> why, of parts that could not be compiled
        self._steps: list[tuple[Callable[[list[Any]], Sequence[Any]], list[Node], list[Node], list[Node]]] = []
        self._inputs = list(gm.graph.find_nodes(op="placeholder"))
        self._as_traced = saved_strides.as_traced(gm)  # an eager part takes its inputs as eager has them
        static = {self._inputs[index] for index in parameters}
        (output,) = gm.graph.find_nodes(op="output")
        self._outputs = torch.utils._pytree.tree_leaves(output.args[0])
        stages = _stages(gm, reasons, output)
        # The backward was traced with the strides of fake tensors; what the caller sees lies as eager's operators have it.
        foreign = {at for at in output.meta.get(saved_strides.SAVED, ()) if stages.get(self._outputs[at], 0) % 2}
        self._saved = strides_as_traced(gm, self._outputs, foreign)
        _wait_for_readers(gm, stages)
        repeated = _repeated(gm, stages)
        providers = _providers(gm)
        for stage in sorted(set(stages.values())):
            members = [
                node
                for node in gm.graph.nodes
                if stages.get(node) == stage
                and (node not in repeated or _is_read_outside(node, stages, stage, repeated))
            ]
            if not members:
                continue
            part, inputs, results = _extract(gm, members, stages, stage, providers, repeated, inside=stage % 2 == 0)
            if stage % 2:
                run = _eager(part)
            else:
                foreign = {at for at, node in enumerate(inputs) if stages.get(node, 0) % 2}
                run = lying_as_traced(self._compile(part, inputs, static, compile_part), part, foreign)
            self._steps.append((run, inputs, results, []))
        last_use: dict[Node, int] = {}
        for number, (_, inputs, results, _dead) in enumerate(self._steps):
            last_use |= dict.fromkeys([*inputs, *results], number)
        for node, number in last_use.items():
            if node not in self._outputs:
                self._steps[number][3].append(node)

    def _compile(
        self, part: GraphModule, inputs: list[Node], static: set[Node], compile_part: Callable[..., Any]
    ) -> Callable[[list[Any]], Sequence[Any]]:
        try:
            compiled = compile_part(part, [index for index, node in enumerate(inputs) if node in static])
        except UnsupportedError as error:
            if named_in(error, part):
                raise
            reason = str(error).splitlines()[0]
            self._eager_parts |= {_name(node): reason for node in part.graph.nodes if node.op == "call_function"}
            return _eager(part)
        self._compiled.append(compiled)
        return compiled

    def __call__(self, arguments: list[Any]) -> list[Any]:
        if self._as_traced is not None:
            self._as_traced(arguments)
        values: dict[Node, Any] = dict(zip(self._inputs, arguments, strict=True))
        saved = {at: strides(arguments) for at, strides in self._saved.items()}
        arguments.clear()
        for run, inputs, results, dead in self._steps:
            made = run([values[node] for node in inputs])
            values.update(zip(results, made, strict=True))
            for node in dead:
                del values[node]
        outputs = [values[out] if isinstance(out, Node) else out for out in self._outputs]
        for at, wanted in saved.items():
            outputs[at] = laid(outputs[at], wanted)
        return outputs

    def report(self) -> dict[str, Any]:
        """As a compiled graph's, over all parts; what runs in eager is among the fallbacks."""
        reports = [compiled.report() for compiled in self._compiled]
        merged: dict[str, Any] = {"device": reports[0]["device"] if reports else "cpu", "inputs": len(self._inputs)}
        for name in ("kernels", "calls", "fallbacks", "copies"):
            merged[name] = [entry for report in reports for entry in report[name]]
        first = 0  # steps are numbered over all parts, as step_times counts them
        for report in reports:
            for name in ("kernels", "calls", "fallbacks"):
                for entry in report[name]:
                    entry["step"] += first
            first += report["steps"]
        merged["symbols"] = list(dict.fromkeys(symbol for report in reports for symbol in report["symbols"]))
        merged["modules"] = sum(report["modules"] for report in reports)
        merged["outputs"] = len(self._outputs)
        merged["place"] = reports[0]["place"] if reports else "cpu"
        merged["stages"] = {}
        for report in reports:
            for stage, seconds in report["stages"].items():
                merged["stages"][stage] = merged["stages"].get(stage, 0.0) + seconds
        eager = [(_name(node), reason) for node, reason in self._outside.items() if node.target is not operator.getitem]
        for name, reason in [*eager, *self._eager_parts.items()]:
            merged["fallbacks"].append(
                {"op": name, "reason": f"in eager: {reason}", "ops": [name], "sources": [], "bytes": None}
            )
        return merged

    def counters(self) -> dict[str, Any]:
        """Sums over the compiled parts; of texts (``cache_failure``) the first that says something."""
        total: dict[str, Any] = {}
        for compiled in self._compiled:
            for name, value in compiled.counters().items():
                if isinstance(value, str):
                    total[name] = total.get(name) or value
                else:
                    total[name] = total.get(name, 0) + value
        return total

    def time_steps(self, on: bool) -> None:
        for compiled in self._compiled:
            compiled.time_steps(on)

    def step_times(self) -> list[tuple[int, float, float]]:
        """Of the compiled parts' steps, in order."""
        return [time for compiled in self._compiled for time in compiled.step_times()]

    def plan_json(self) -> str:
        """The plans of the compiled parts, as a JSON list."""
        return "[" + ",\n".join(compiled.plan_json() for compiled in self._compiled) + "]"

    def synchronize(self) -> None:
        for compiled in self._compiled:
            compiled.synchronize()

    def invalidate_weights(self) -> None:
        for compiled in self._compiled:
            compiled.invalidate_weights()

    def free_idle_memory(self) -> int:
        return sum(compiled.free_idle_memory() for compiled in self._compiled)


def _eager(part: GraphModule) -> Callable[[list[Any]], Sequence[Any]]:
    """Below autograd and autocast, as a plan's steps run."""
    fused_attention.for_eager(part)
    # FX writes complex constants as Python shows them, which does not read all of them back.
    type(part).forward.__globals__.update(nanj=complex(0, math.nan), infj=complex(0, math.inf))

    def run(values: list[Any]) -> Sequence[Any]:
        with torch.no_grad(), torch._C._DisableAutocast():
            return part(*values)

    return run


def _stages(gm: GraphModule, reasons: Reasons, output: Node) -> dict[Node, int]:
    """The part of each node: even ones are compiled, odd ones eager; a node reads from its own part and earlier ones only."""
    stages: dict[Node, int] = {}
    reach: dict[Node, int] = {}  # of free nodes too
    last_ordered = 0
    returned = set(output.all_input_nodes)
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        need = max((reach.get(argument, 0) for argument in node.all_input_nodes), default=0)
        if _is_free(node) and node not in reasons:
            reach[node] = need
            if node in returned:  # a number that the graph returns: computed in Python
                stages[node] = reach[node] = need + 1 - need % 2
            continue
        source = node.args[0]
        if node.target is operator.getitem and source in stages:
            stages[node] = reach[node] = stages[source]
            continue
        if node.target is torch.ops.aten.copy_.default:  # an input is overwritten when all have read it
            need = max([need, *stages.values()])
        parity = 1 if node in reasons else 0
        ordered = _is_ordered(node)
        stage = max(need, parity, last_ordered if ordered else 0)
        stage += (stage - parity) % 2
        if ordered:
            last_ordered = stage
        stages[node] = reach[node] = stage
    return stages


def _wait_for_readers(gm: GraphModule, stages: dict[Node, int]) -> None:
    """Moves what a compiled part makes element by element for later parts alone (a weight's conjugate) into the first of them, where
    no more bytes pass between parts for it: the kernel that reads it computes it. Products and convolutions stay: behind an eager
    part's result, which has eager's layout, those that take in a sum copied it for the library (1 ms of 4 MB, more than the sum)."""
    last = min((stages[node] for node in _calls_of(gm, torch.ops.aten.copy_.default)), default=None)

    def passes(value: Node, stage: int) -> int:
        """How many bytes more are kept for a part that reads the value."""
        if value.op != "call_function" or not isinstance(value.meta.get("val"), torch.Tensor):
            return 0
        if any(stages.get(user, 0) >= stage for user in value.users):
            return 0
        if _is_view(value) or all(value not in stages for value in value.all_input_nodes):
            return sum(passes(source, stage) for source in value.all_input_nodes)
        return _bytes(value)

    for node in reversed(gm.graph.nodes):
        if stages.get(node, 1) % 2 or _is_ordered(node) or not _is_elementwise(node):
            continue
        if not node.users or any(user not in stages for user in node.users):
            continue
        first = min(stages[user] for user in node.users)
        first = first - first % 2 if last is None else min(first - first % 2, last - 2 + last % 2)
        if first > stages[node] and sum(passes(value, first) for value in node.all_input_nodes) <= _bytes(node):
            stages[node] = first


def _repeated(gm: GraphModule, stages: Mapping[Node, int]) -> Set[Node]:
    """What is made of numbers alone, and views of it: each compiled part that reads it makes it, in its kernels."""
    repeated: set[Node] = set()
    for node in gm.graph.nodes:
        if stages.get(node, 1) % 2 or _is_ordered(node) or not isinstance(node.target, torch._ops.OpOverload):
            continue
        sources = [value for value in node.all_input_nodes if not _is_free(value) and not _is_number(value)]
        made = isinstance(node.meta.get("val"), torch.Tensor) and (_is_view(node) or not sources)
        if made and all(source in repeated for source in sources):
            repeated.add(node)
    return repeated


def _is_view(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def _is_elementwise(node: Node) -> bool:
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    copies = (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default, torch.ops.aten.cat.default)
    return target.is_view or torch.Tag.pointwise in target.tags or target in copies or not node.all_input_nodes


def _is_number(node: Node) -> bool:
    return isinstance(node.meta.get("val"), _SCALARS)


def _bytes(node: Node) -> int:
    """Of symbolic sizes as they were when it was traced; of those that data decide, a guess."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0
    count = value.numel()
    if isinstance(count, torch.SymInt):
        count = count.node.hint if isinstance(count.node.hint, int) else 8192
    return count * value.element_size()


def _symbols_of(value: Any) -> Iterator[Any]:
    """The symbols in a value's sizes and strides."""
    if isinstance(value, torch.SymInt):
        yield from value.node.expr.free_symbols
    elif isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            for number in (*value.shape, *value.stride(), value.storage_offset()):
                yield from _symbols_of(number)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _symbols_of(item)


def _given_by(value: Any) -> Iterator[Any]:
    """The symbols that can be read off a value: itself, or one of its sizes."""
    numbers = value.shape if isinstance(value, torch.Tensor) else (value,)
    for number in numbers:
        if isinstance(number, torch.SymInt) and number.node.expr.is_Symbol:
            yield number.node.expr


def _providers(gm: GraphModule) -> dict[Any, Node]:
    providers: dict[Any, Node] = {}
    for node in gm.graph.nodes:
        if not _is_free(node):
            for symbol in _given_by(node.meta.get("val")):
                providers.setdefault(symbol, node)
    return providers


def _extract(
    gm: GraphModule,
    members: list[Node],
    stages: dict[Node, int],
    stage: int,
    providers: dict[Any, Node],
    repeated: Set[Node],
    inside: bool,
) -> tuple[GraphModule, list[Node], list[Node]]:
    """The part's own graph, the nodes that are its inputs and those that are its results."""
    graph, made, inputs = Graph(), dict[Node, Node](), list[Node]()
    first: Node | None = None  # placeholders go before it

    def add_input(node: Node) -> Node:
        with graph.inserting_before(first) if first is not None else graph.inserting_after(None):
            placeholder = graph.placeholder(node.name)
        placeholder.meta = {key: value for key, value in node.meta.items() if key != saved_strides.STRIDES}
        inputs.append(node)
        made[node] = placeholder
        return placeholder

    def get(node: Node) -> Node:
        nonlocal first
        if node in made:
            return made[node]
        if node.op == "get_attr" or (_is_free(node) and node not in stages) or (inside and node in repeated):
            copy = graph.node_copy(node, get)
            first = first or copy
            made[node] = copy
            return copy
        return add_input(node)

    for node in members:
        copy = graph.node_copy(node, get)
        first = first or copy
        made[node] = copy
    if inside:
        given = {symbol for node in inputs for symbol in _given_by(node.meta["val"])}
        for node in list(made):
            for symbol in _symbols_of(node.meta.get("val")):
                provider = providers.get(symbol)
                if symbol not in given and provider is not None and provider not in made:
                    add_input(provider)
                    given |= set(_given_by(provider.meta["val"]))
    results = [node for node in members if _is_read_outside(node, stages, stage, repeated)]
    graph.output(tuple(made[node] for node in results))
    return GraphModule(gm, graph), inputs, results


def _is_read_outside(node: Node, stages: dict[Node, int], stage: int, repeated: Set[Node]) -> bool:
    """By another part, which does not make it itself."""
    users = [user for user in node.users if not (node in repeated and stages.get(user, 1) % 2 == 0)]
    return any(_leaves(user, stages, stage) for user in users)


def _leaves(user: Node, stages: dict[Node, int], stage: int) -> bool:
    """Whether the user, or what a free user becomes elsewhere, is outside of the part."""
    if user.op == "output":
        return True
    if user in stages:
        return stages[user] != stage
    return any(_leaves(next_user, stages, stage) for next_user in user.users)
