"""The forward of an optimized decoder: compiled graphs for the calls of ``generate()``, the original one for any other."""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from zefuse.backend import compile_graph
from zefuse.llm import reports
from zefuse.llm.cache import KeyValueCache
from zefuse.llm.layers import experts_by_row
from zefuse.llm.trace_cache import Place
from zefuse.llm.tracing import CACHE, TENSOR, Interface, Traced, starts_without_mask, trace
from zefuse.options import Options

# Modes of generate() that only append to the cache and reorder it; the others take tokens back.
_MODES = frozenset({"greedy_search", "sample", "beam_search", "beam_sample"})
# Cache kinds that stand for "the fastest one": what else a user names, the user gets.
_IMPLEMENTATIONS = (None, "static", "hybrid")
_ROOM_UNIT = 32  # tokens
_MOST_SIZES = 1000


@dataclass
class _Compiled:
    traced: Interface
    call: Any
    report: reports.Graph


class Decoder:
    """Stands in a model's ``forward``. A compiled call has the cache that ``prepare_cache`` made, and runs without gradients.

    Several threads may call it with caches of their own; while one of them traces, the others wait.
    """

    def __init__(self, model: Any, options: Options, report: reports.Report) -> None:
        self.model, self.options, self.report = model, options, report
        # What an earlier tool put in the instance, if any, else the class's.
        self.forward: Callable[..., Any] = model.forward
        self.prepare: Callable[..., Any] = model._prepare_cache_for_generation
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()
        self._graphs: dict[Any, list[_Compiled]] = {}
        self._by_sizes: dict[Any, _Compiled | None] = {}
        self._places: list[tuple[dict[str, Any], str]] = []

    # Copies and pickles have the same model around them, and compile again.
    def __getstate__(self) -> dict[str, Any]:
        kept = ("model", "options", "report", "forward", "prepare")
        return {name: value for name, value in self.__dict__.items() if name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.report = reports.Report(self.report.model, list(self.report.changed))
        self._forget()

    @property
    def __signature__(self) -> inspect.Signature:
        """``generate()`` asks which arguments the model takes."""
        return inspect.signature(self.forward)

    def prepare_cache(
        self, generation_config: Any, model_kwargs: dict[str, Any], mode: Any, batch_size: int, max_cache_length: int
    ) -> Any:
        """What ``generate()`` calls for its cache. One that it was given, or asked for, is used as it is, uncompiled."""
        if isinstance(model_kwargs.get(CACHE), KeyValueCache):  # of an earlier generate(), which this one goes on with
            return self.prepare(generation_config, model_kwargs, mode, batch_size, max_cache_length)
        reason = self._why_not(generation_config, model_kwargs, mode)
        if reason:
            self.report.note_left(reason)
            return self.prepare(generation_config, model_kwargs, mode, batch_size, max_cache_length)
        room = -(-max_cache_length // _ROOM_UNIT) * _ROOM_UNIT
        layers = self.model.config.get_text_config(decoder=True).num_hidden_layers
        model_kwargs[CACHE] = KeyValueCache(layers, room)
        return None

    def _why_not(self, config: Any, model_kwargs: dict[str, Any], mode: Any) -> str | None:
        if model_kwargs.get(CACHE) is not None:
            return f"generate() with a cache of its caller's ({type(model_kwargs[CACHE]).__name__}) runs uncompiled"
        if config.use_cache is False:
            return "generate(use_cache=False) runs uncompiled"
        if config.cache_implementation not in _IMPLEMENTATIONS:
            return f"generate(cache_implementation={config.cache_implementation!r}) runs uncompiled"
        if str(getattr(mode, "value", mode)) not in _MODES or getattr(config, "is_assistant", False):
            return f"generate() in mode {getattr(mode, 'value', mode)!r} runs uncompiled"
        if config.output_attentions or config.output_hidden_states:
            return "generate() that returns attentions or hidden states runs uncompiled"
        return None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cache = kwargs.get(CACHE)
        if args or not isinstance(cache, KeyValueCache) or self._needs_python():
            with self._lock:  # a trace replaces the layers' forward meanwhile
                return self.forward(*args, **kwargs)
        arguments = {name: value for name, value in kwargs.items() if name != CACHE}
        count = _tokens(arguments)
        start = torch.tensor(cache.room_for(count))
        room = cache.room_after(count)
        arguments = _seeing(arguments, cache.capacity, room)
        names, leaves = _flat(arguments)
        tensors = [leaf.contiguous() for leaf in leaves if isinstance(leaf, torch.Tensor)]
        compiled = self._find(names, leaves, tensors, arguments, cache, room)
        if compiled is None:
            with self._lock:
                return self.forward(**kwargs)
        cache.allocate(tensors[0].shape[0], compiled.traced.shapes)
        inputs = [*self._parameters(compiled.traced.parameters), *tensors, start]
        inputs += cache.seen(room)
        results = iter(compiled.call(inputs))
        cache.length += count
        compiled.report.calls += 1
        filled = [
            next(results) if leaf is TENSOR else cache if leaf is CACHE else leaf for leaf in compiled.traced.outputs
        ]
        return pytree.tree_unflatten(filled, compiled.traced.out_spec)

    def _needs_python(self) -> bool:
        return torch.is_grad_enabled() or self.model.training or torch.is_autocast_enabled("cpu")

    def _find(
        self,
        names: tuple[str, ...],
        leaves: list[Any],
        tensors: list[torch.Tensor],
        arguments: Any,
        cache: Any,
        room: int,
    ) -> _Compiled | None:
        try:
            key = (names, tuple(map(_described, leaves)), self.model.dtype, starts_without_mask(arguments, cache))
            sizes = (key, tuple(tensor.shape for tensor in tensors), room)
            if sizes in self._by_sizes:
                return self._by_sizes[sizes]
        except TypeError:  # an argument that cannot be a key
            self.report.note_left("a call with arguments that are neither tensors nor plain values runs uncompiled")
            return None
        with self._lock:
            if len(self._by_sizes) > _MOST_SIZES:
                self._by_sizes.clear()  # the graphs stay
            if sizes not in self._by_sizes:
                known = self._graphs.setdefault(key, [])
                asked = [*tensors, torch.empty((room, 1), device="meta")]
                found = next((each for each in known if each.traced.holds(asked)), None)
                self._by_sizes[sizes] = found or self._make(known, key, arguments, cache, asked)
            return self._by_sizes[sizes]

    def _make(
        self, known: list[_Compiled], key: Any, arguments: Any, cache: KeyValueCache, asked: list[torch.Tensor]
    ) -> _Compiled | None:
        """A graph for these arguments: from the cache of an earlier process, or traced and compiled."""
        began = time.perf_counter()
        kind = "decode" if _tokens(arguments) == 1 else "prefill"
        place = Place(self.model, self.forward, key, self.options, kind)
        traced: Interface
        if (found := place.load(asked)) is not None:
            traced, call = found
            traced_at = began
        else:
            made = self._trace(arguments, cache, asked)
            if made is None:
                return None
            traced_at = time.perf_counter()
            call = compile_graph(made.graph, range(len(made.parameters)), self.options, "inference")
            place.keep(made, call)
            traced = made
        seconds = (traced_at - began, time.perf_counter() - traced_at)
        plan = call.report()
        batch = asked[0].shape[0]
        report = reports.Graph.of(kind, batch, len(cache), traced.different_layers, seconds, plan, place.story)
        self.report.graphs.append(report)
        for line in reports.left_of(kind, plan):
            self.report.note_left(line)
        known.append(_Compiled(traced, call, report))
        return known[-1]

    def _trace(self, arguments: Any, cache: KeyValueCache, asked: list[torch.Tensor]) -> Traced | None:
        one_row = _tokens(arguments) == asked[0].shape[0] == 1
        try:
            with experts_by_row(self.model) if one_row else contextlib.nullcontext():
                return trace(self.model, self.forward, arguments, cache, room=asked[-1].shape[0])
        except Exception as error:  # of the model's own code, of torch's tracing: the model runs as it is
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            self.report.note_left(f"a forward could not be traced and runs uncompiled ({reason})")
            warnings.warn(f"zefuse: a language model's forward runs in eager: {reason}", stacklevel=2)
            return None

    def _parameters(self, names: list[str]) -> list[torch.Tensor]:
        """The present ones: a parameter may have been replaced since the last call."""
        if len(self._places) != len(names):
            places = []
            for name in names:
                owner, _, own = name.rpartition(".")
                module = self.model.get_submodule(owner)
                places.append((module._parameters if own in module._parameters else module._buffers, own))
            self._places = places
        return [tensors[name] for tensors, name in self._places]


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


def _seeing(arguments: dict[str, Any], capacity: int, room: int) -> dict[str, Any]:
    """The masks that ``generate()`` made for the whole cache, for what a call sees of it."""

    def narrowed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: narrowed(each) for name, each in value.items()}
        if isinstance(value, torch.Tensor) and value.dim() == 4 and value.shape[-1] == capacity:
            part = value[..., :room]
            return part.reshape(-1).view(part.shape)  # unlike contiguous(): no stride of the whole where a size is 1
        return value

    return arguments if room == capacity else {name: narrowed(value) for name, value in arguments.items()}


def _described(leaf: Any) -> Any:
    """What one graph serves: tensors of any sizes, but for the batch and sizes of 1."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.dim(), leaf.shape[:1], tuple(size == 1 for size in leaf.shape)
    hash(leaf)
    return type(leaf), leaf


def _tokens(arguments: dict[str, Any]) -> int:
    ids = arguments.get("input_ids")
    return int((ids if ids is not None else arguments["inputs_embeds"]).shape[1])
