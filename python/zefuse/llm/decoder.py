"""The forward of an optimized decoder: compiled graphs for the calls of ``generate()``, the original one for any other."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutput

from zefuse.llm import reports
from zefuse.llm.cache import KeyValueCache
from zefuse.llm.cross_attention import EncoderDecoderMemory
from zefuse.llm.graphs import Call, Compiled, Graphs
from zefuse.llm.layers import StandIn, decoder_layers, stack_layers
from zefuse.llm.limits import Limits
from zefuse.llm.tracing import CACHE
from zefuse.options import Options

# Modes of generate() that only append to the cache and reorder it; the others take tokens back.
_MODES = frozenset({"greedy_search", "sample", "beam_search", "beam_sample"})
# Cache kinds that stand for "the fastest one": what else a user names, the user gets.
_IMPLEMENTATIONS = (None, "static", "hybrid")
_ROOM_UNIT = 32  # tokens
_MEMORY = (KeyValueCache, EncoderDecoderMemory)


class Decoder(StandIn):
    """Stands in a model's ``forward``. A compiled call has the cache that ``prepare_cache`` made, and runs without gradients.

    Several threads may call it with caches of their own; while one of them traces, the others wait.
    """

    def __init__(self, model: Any, options: Options, report: reports.Report, cache: str | None = None) -> None:
        """``cache``: the format of the key-value cache (``cache_parts.FORMATS``)."""
        self.model, self.options, self.report, self.cache = model, options, report, cache
        # What an earlier tool put in the instance, if any, else the class's.
        self.forward: Callable[..., Any] = model.forward
        self.prepare: Callable[..., Any] = model._prepare_cache_for_generation
        self._forget()

    def _forget(self) -> None:
        self._limits = Limits(self.model)
        self._graphs = Graphs(self.model, self.forward, self.options, lambda: decoder_layers(self.model))
        # Of each cache: the graph of its last step, the views that it saw, and its call with these and the weights bound.
        self._bound: weakref.WeakKeyDictionary[Any, tuple[Compiled, list[torch.Tensor], Any]] = (
            weakref.WeakKeyDictionary()
        )

    # Copies and pickles have the same model around them, and compile again.
    def __getstate__(self) -> dict[str, Any]:
        kept = ("model", "options", "report", "forward", "prepare", "cache")
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
        """What ``generate()`` calls for its cache. One that it was given, or asked for, is used as it is, uncompiled.

        Raises InvalidArgumentError where the model has no positions for so many tokens."""
        self._limits.check_room(max_cache_length)
        if isinstance(model_kwargs.get(CACHE), _MEMORY):  # of an earlier generate(), which this one goes on with
            self._bound.pop(model_kwargs[CACHE], None)
            return self.prepare(generation_config, model_kwargs, mode, batch_size, max_cache_length)
        reason = self._why_not(generation_config, model_kwargs, mode)
        if reason:
            self.report.note_left(reason)
            return self.prepare(generation_config, model_kwargs, mode, batch_size, max_cache_length)
        room = -(-max_cache_length // _ROOM_UNIT) * _ROOM_UNIT
        layers = decoder_layers(self.model)
        assert layers is not None
        count = len(layers[1])
        crossing = self.model.config.is_encoder_decoder
        model_kwargs[CACHE] = (EncoderDecoderMemory if crossing else KeyValueCache)(count, room, self.cache)
        return None

    def asks_torch_to_compile(self, *_: Any) -> bool:
        """What ``generate()`` asks for its steps: on a GPU it would give this forward to Inductor."""
        return False

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
        if args or not isinstance(cache, _MEMORY) or needs_python(self.model):
            with self._graphs.lock:  # a trace replaces the layers' forward meanwhile
                return self.forward(*args, **kwargs)
        arguments = {name: value for name, value in kwargs.items() if name != CACHE}
        count = _tokens(arguments)
        self._limits.check_tokens(count, cache.length)
        start = cache.room_for(count)
        room = cache.room_after(count)
        kind = "decode" if count == 1 else "prefill"
        if isinstance(cache, EncoderDecoderMemory):
            kind = "decode" if count == 1 and cache.crossed else "prefill"
            if isinstance(outputs := arguments.get("encoder_outputs"), (tuple, list)):
                arguments["encoder_outputs"] = BaseModelOutput(last_hidden_state=outputs[0])
        call = Call(kind, _seeing(arguments, cache.capacity, room), cache, room)
        compiled = self._graphs.find(call, self.report)
        if compiled is None:
            with self._graphs.lock:
                return self.forward(**kwargs)
        traced = compiled.traced
        ids = call.tensors[0]
        cache.allocate(ids.shape[0], traced.shapes, ids.device, traced.cross_shapes, arguments)
        # Filled on its device: a copy to a GPU would wait.
        given = [*call.tensors, torch.full((), start, dtype=torch.int64, device=ids.device)]
        results = self._run(compiled, given, cache, room, kind)
        cache.advance(count)
        compiled.report.calls += 1
        return call.filled(compiled, results)

    def _run(self, compiled: Compiled, given: list[torch.Tensor], cache: Any, room: int, kind: str) -> Any:
        """Looks the weights up for a prompt, and once for the steps that follow it."""
        views = cache.seen(room)
        if kind != "decode":
            self._bound.pop(cache, None)
        elif (known := self._bound.get(cache)) is not None and known[0] is compiled and known[1] is views:
            return known[2](given)
        parameters = self._graphs.parameters(compiled)
        bind = getattr(compiled.call, "bind", None)  # a graph in parts has none
        if kind == "decode" and bind is not None and (call := bind(parameters, len(given), views)) is not None:
            self._bound[cache] = compiled, views, call
            return call(given)
        return compiled.call([*parameters, *given, *views])


class Encoder(StandIn):
    """Stands in the ``forward`` of an encoder-decoder's encoder, compiled for whoever calls it without gradients."""

    def __init__(self, model: Any, owner: Decoder) -> None:
        self.model, self.owner = model, owner
        self.forward: Callable[..., Any] = model.forward
        self._forget()

    def _forget(self) -> None:
        self._limits = Limits(self.model, "sequence to be encoded")
        self._graphs = Graphs(
            self.model, self.forward, self.owner.options, lambda: stack_layers(self.model, self.model)
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name in ("model", "owner", "forward")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.forward)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(zip(self.__signature__.parameters, args, strict=False)) | kwargs if args else kwargs
        if (
            needs_python(self.model)
            or arguments.get("output_attentions")
            or arguments.get("output_hidden_states")
            or not any(isinstance(each, torch.Tensor) for each in arguments.values())
        ):
            return self._uncompiled(args, kwargs)
        ids = arguments.get("input_ids")
        if isinstance(ids, torch.Tensor) and ids.dim() > 1:
            self._limits.check_tokens(ids.shape[1])
        call = Call("encoder", arguments)
        compiled = self._graphs.find(call, self.owner.report)
        if compiled is None:
            return self._uncompiled(args, kwargs)
        results = compiled.call([*self._graphs.parameters(compiled), *call.tensors])
        compiled.report.calls += 1
        return call.filled(compiled, results)

    def _uncompiled(self, args: Any, kwargs: Any) -> Any:
        with self._graphs.lock:
            return self.forward(*args, **kwargs)


def needs_python(model: Any) -> bool:
    return torch.is_grad_enabled() or model.training or torch.is_autocast_enabled(_device_of(model).type)


def _device_of(model: Any) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _seeing(arguments: dict[str, Any], capacity: int, room: int) -> dict[str, Any]:
    """The masks that ``generate()`` made for the whole cache, for what a call sees of it."""

    def narrowed(value: Any) -> Any:
        if type(value) is dict:  # a mask for each kind of layer; not what an encoder gave
            return {name: narrowed(each) for name, each in value.items()}
        if isinstance(value, torch.Tensor) and value.dim() == 4 and value.shape[-1] == capacity:
            part = value[..., :room]
            return part.reshape(-1).view(part.shape)  # unlike contiguous(): no stride of the whole where a size is 1
        return value

    return arguments if room == capacity else {name: narrowed(value) for name, value in arguments.items()}


def _tokens(arguments: dict[str, Any]) -> int:
    prefix = "decoder_" if "encoder_outputs" in arguments else ""
    ids = arguments.get(f"{prefix}input_ids")
    return int((ids if ids is not None else arguments[f"{prefix}inputs_embeds"]).shape[1])
