"""The compiled graphs of one forward: found by what it is called with, taken from the cache, or traced and compiled."""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from transformers.utils import ModelOutput

from zefuse.backend import compile_graph
from zefuse.llm import experts, freed_memory, reports
from zefuse.llm.layers import Layers
from zefuse.llm.trace_cache import Place, settled
from zefuse.llm.tracing import CACHE, TENSOR, Given, Interface, Memory, Traced, starts_without_mask, trace
from zefuse.options import Options

_MOST_SIZES = 1000


class Result:
    """Makes a forward's result of its leaves. For each token that is done as a copy of the first one: pytree and ``ModelOutput``'s own
    constructor take 0.1 ms."""

    def __init__(self, spec: pytree.TreeSpec) -> None:
        self._spec = spec
        self._flat = spec.num_children == spec.num_leaves
        self._first: Any = None

    def of(self, leaves: list[Any]) -> Any:
        if self._first is None:
            made = pytree.tree_unflatten(leaves, self._spec)
            if self._flat and isinstance(made, ModelOutput) and list(made) == self._spec.context:
                # Without the tensors, which it would keep.
                self._first = type(made), dict.fromkeys(vars(made))
            return made
        kind, attributes = self._first
        made = kind.__new__(kind)
        held: dict[str, Any] = made.__dict__
        held.update(attributes)
        for name, leaf in zip(self._spec.context, leaves, strict=True):
            held[name] = leaf
            OrderedDict.__setitem__(made, name, leaf)
        return made


@dataclass
class Compiled:
    traced: Interface
    call: Any
    report: reports.Graph
    places: list[tuple[dict[str, Any], str]]  # where its parameters are
    result: Result


class Call:
    """One call of a forward. ``memory``: its key-value cache, of which it sees ``room`` tokens; None for an encoder."""

    def __init__(self, kind: str, arguments: dict[str, Any], memory: Memory | None = None, room: int = 0) -> None:
        self.kind, self.arguments, self.memory, self.room = kind, arguments, memory, room
        self.names, self.leaves = _flat(arguments)
        self.tensors = [leaf.contiguous() for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def key(self) -> Any:
        """What one graph serves. Raises TypeError for an argument that cannot be a key."""
        crossed, format = (getattr(self.memory, name, None) for name in ("crossed", "format"))
        started = starts_without_mask(self.arguments, self.memory)
        return self.names, tuple(map(_described, self.leaves)), started, self.kind, crossed, format

    def sized(self) -> list[torch.Tensor]:
        """What a graph asks whether it holds."""
        room = [] if self.memory is None else [torch.empty((self.room, 1), device="meta")]
        return [*self.tensors, *room]

    def filled(self, compiled: Compiled, tensors: list[torch.Tensor]) -> Any:
        """The forward's result, of the graph's."""
        results = iter(tensors)
        return compiled.result.of([
            next(results) if leaf is TENSOR
            else self.memory if leaf is CACHE
            else self.tensors[leaf.position] if isinstance(leaf, Given)
            else leaf
            for leaf in compiled.traced.outputs
        ])  # fmt: skip


class Graphs:
    """Of ``forward``, a method of ``model``; ``layers_of`` finds the layers that repeat.

    Several threads may ask; while one of them traces, the others wait.
    """

    def __init__(
        self, model: Any, forward: Callable[..., Any], options: Options, layers_of: Callable[[], Layers | None]
    ) -> None:
        self.model, self.forward, self.options, self.layers_of = model, forward, options, layers_of
        self.lock = threading.RLock()
        self._graphs: dict[Any, list[Compiled]] = {}
        self._by_sizes: dict[Any, Compiled | None] = {}
        self._numbers: tuple[dict[str, Any], str] | None = None

    def find(self, call: Call, report: reports.Report) -> Compiled | None:
        """None: this call is not compiled; ``report`` says why."""
        try:
            key = (*call.key(), self._dtype())
            sizes = (key, tuple(tensor.shape for tensor in call.tensors), call.room)
            if sizes in self._by_sizes:
                return self._by_sizes[sizes]
        except TypeError:
            report.note_left("a call with arguments that are neither tensors nor plain values runs uncompiled")
            return None
        with self.lock:
            if len(self._by_sizes) > _MOST_SIZES:
                self._by_sizes.clear()  # the graphs stay
            if sizes not in self._by_sizes:
                known = self._graphs.setdefault(key, [])
                asked = call.sized()
                found = next((each for each in known if each.traced.holds(asked)), None)
                self._by_sizes[sizes] = found or self._make(known, key, call, report)
            return self._by_sizes[sizes]

    def _dtype(self) -> torch.dtype | None:
        """The model's: what its first parameter of numbers has, which is looked for once and not for each token."""
        if self._numbers is None:
            found = (
                (module._parameters, name)
                for module in self.model.modules()
                for name, each in module._parameters.items()
                if each is not None and each.is_floating_point()
            )
            self._numbers = next(found, ({}, ""))
        tensor = self._numbers[0].get(self._numbers[1])
        return None if tensor is None else tensor.dtype

    def _make(self, known: list[Compiled], key: Any, call: Call, report: reports.Report) -> Compiled | None:
        """A graph for these arguments: from the cache of an earlier process, or traced and compiled."""
        began = time.perf_counter()
        place = Place(self.model, self.forward, key, self.options, call.kind)
        for other in (each for graphs in self._graphs.values() for each in graphs):
            other.call.free_idle_memory()  # a prompt's dequantized matrix, which single tokens' graph takes no part in
        traced: Interface
        if (found := place.load(call.sized())) is not None:
            traced, compiled = found
            traced_at = began
        else:
            made = self._trace(call, report)
            if made is None:
                return None
            traced_at = time.perf_counter()
            compiled = compile_graph(made.graph, range(len(made.parameters)), self.options, "inference")
            place.keep(made, compiled)
            traced = settled(made)
            del made
            freed_memory.after_trace()
        seconds = (traced_at - began, time.perf_counter() - traced_at)
        plan = compiled.report()
        layers = self.layers_of()
        count = len(layers[1]) if layers is not None else 0
        batch = call.tensors[0].shape[0]
        graph = reports.Graph.of(call.kind, batch, count, traced.different_layers, seconds, plan, place.story)
        report.graphs.append(graph)
        for line in reports.left_of(call.kind, plan):
            report.note_left(line)
        known.append(Compiled(traced, compiled, graph, self._places(traced.parameters), Result(traced.out_spec)))
        return known[-1]

    def _trace(self, call: Call, report: reports.Report) -> Traced | None:
        one_row = call.kind == "decode" and call.tensors[0].shape[0] == 1
        host = self.options.device == "cpu" and all(each.device.type == "cpu" for each in call.tensors)
        # As the graph gets them.
        arguments = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.contiguous(), call.arguments)
        try:
            with experts.compiled(self.model, one_row, host):
                return trace(self.model, self.forward, arguments, call.memory, call.room, self.layers_of())
        except Exception as error:  # of the model's own code, of torch's tracing: the model runs as it is
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            report.note_left(f"{_named(call.kind)} could not be traced and runs uncompiled ({reason})")
            warnings.warn(f"zefuse: a language model's {call.kind} runs in eager: {reason}", stacklevel=2)
            return None

    def parameters(self, compiled: Compiled) -> list[torch.Tensor]:
        """The present ones: a parameter may have been replaced since the last call."""
        return [tensors[name] for tensors, name in compiled.places]

    def _places(self, names: list[str]) -> list[tuple[dict[str, Any], str]]:
        places = []
        for name in names:
            owner, _, own = name.rpartition(".")
            module = self.model.get_submodule(owner)
            places.append((module._parameters if own in module._parameters else module._buffers, own))
        return places


def _named(kind: str) -> str:
    return "an encoder" if kind == "encoder" else "a forward"


def _flat(arguments: dict[str, Any]) -> tuple[tuple[str, ...], list[Any]]:
    """In the order of pytree, which is too slow for each token."""
    names: list[str] = []
    leaves: list[Any] = []
    for name, value in arguments.items():
        if isinstance(value, dict):  # a mask for each kind of layer
            names += [f"{name}.{each}" for each in value]
            leaves += value.values()
        else:
            names.append(name)
            leaves.append(value)
    return tuple(names), leaves


def _described(leaf: Any) -> Any:
    """What one graph serves: tensors of any sizes, but for the batch and sizes of 1."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.device, leaf.dim(), leaf.shape[:1], tuple(size == 1 for size in leaf.shape)
    hash(leaf)
    return type(leaf), leaf
