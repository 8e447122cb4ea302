"""One call of a decoder or an encoder as one functional ATen graph, without Dynamo; layers that repeat are traced once.

The call runs three times on fake tensors: once as it is, to see what each layer is called with and what it writes to the cache;
then each different layer by itself, into a graph; then the whole model with every layer as one opaque operator, in whose
place its layer's graph is copied, with its own parameters. Tracing 30 equal layers costs as much as tracing one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import LocalSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree
from transformers.cache_utils import Cache

from zefuse.decompositions.table import decompositions
from zefuse.errors import UnsupportedError
from zefuse.llm import cache_parts, cross_attention, graph_edits, single_rows
from zefuse.llm.cache import KeyValueCache
from zefuse.llm.cache_parts import LayerShape
from zefuse.llm.layers import Layers, signature, watched_index
from zefuse.llm.one_attention import OneAttention
from zefuse.llm.traced_caches import CacheSize, LayerCache, LayerParts, ModelCache

CACHE = "past_key_values"
TENSOR = object()  # in Traced.outputs
Memory = KeyValueCache | cross_attention.EncoderDecoderMemory
# Of an encoder-decoder's arguments, those whose dimension 1 is the encoded sequence's.
_ENCODED = ("encoder_outputs", "attention_mask")


@dataclass(frozen=True)
class Given:
    """In Traced.outputs: a tensor that the call was given, by its position."""

    position: int


@dataclass
class Interface:
    """How a graph is called: with ``[*parameters, *tensors, start, *keys, *values]``, to the tensors of ``outputs``.

    Scales follow where the cache has codes, and of an encoder-decoder the same of the cross-attention. An encoder has none of these,
    and no ``start``.
    """

    parameters: list[str]
    outputs: list[Any]  # leaves of the result: TENSOR, Given, CACHE for the cache, else the value
    out_spec: pytree.TreeSpec
    shapes: list[LayerShape]
    cross_shapes: list[LayerShape]
    different_layers: int
    holds: Callable[[Sequence[torch.Tensor]], bool]  # whether the graph is right for tensors of these sizes


@dataclass
class Traced(Interface):
    graph: torch.fx.GraphModule
    guards: Callable[[], str | None]  # what ``holds`` asks, in torch's words; complete once the graph is compiled


def trace(
    model: torch.nn.Module,
    forward: Callable[..., Any],
    arguments: Mapping[str, Any],
    memory: Memory | None,
    room: int,
    layers: Layers | None,
    any_batch: bool = False,
) -> Traced:
    """``forward(**arguments)`` in inference, ``room`` tokens of the cache in sight. Sequence and cache lengths other than 1 are
    symbols; the batch is one with ``any_batch``. ``memory``: None for an encoder. ``layers``: those that repeat.

    Raises UnsupportedError for what is no decoder of this kind (no list of layers, a layer that does not write its part of the
    cache once, results other than tensors).
    """
    return _Tracer(model, forward, arguments, memory, room, layers, any_batch).trace()


def starts_without_mask(arguments: Mapping[str, Any], memory: Memory | None) -> bool:
    """A prompt without padding into an empty cache; its graph serves no other call."""
    if memory is None:
        return False
    crossing = isinstance(memory, cross_attention.EncoderDecoderMemory)
    return memory.length == 0 and arguments.get("decoder_attention_mask" if crossing else "attention_mask") is None


class _Tracer:
    def __init__(
        self,
        model: torch.nn.Module,
        forward: Callable[..., Any],
        arguments: Mapping[str, Any],
        memory: Memory | None,
        room: int,
        layers: Layers | None,
        any_batch: bool = False,
    ) -> None:
        if layers is None:
            raise UnsupportedError("no list of layers was found in the model")
        self.prefix, self.layers = layers
        self.memory = memory
        # What is known of the cross-attention: whether an earlier call computed its keys and values; None: there is none.
        self.crossed = memory.crossed if isinstance(memory, cross_attention.EncoderDecoderMemory) else None
        if memory is not None and len(self.layers) != len(memory):
            raise UnsupportedError(f"the cache has {len(memory)} layers and the model {len(self.layers)}")
        if any("forward" in layer.__dict__ for layer in self.layers):
            raise UnsupportedError("a layer's forward was replaced by another tool")
        self.model, self.forward, self.any_batch = model, forward, any_batch
        self.shape_env = ShapeEnv(duck_shape=True)
        self.mode = FakeTensorMode(shape_env=self.shape_env, allow_non_fake_inputs=True)
        self.names: list[str] = []  # of parameters and buffers, each tensor once
        self.same: dict[str, str] = {}  # every name of a tensor to the first
        self.parameters: list[FakeTensor] = []
        self._take_parameters()
        self.device = _one_device([*self.parameters, *_tensors_in(arguments)])
        self.start: FakeTensor | None = None
        self.leaves, self.spec = pytree.tree_flatten(dict(arguments))
        self.tensors: list[FakeTensor] = []
        self._take_arguments([name for name, value in arguments.items() for _ in pytree.tree_leaves(value)], room)
        # Then the model may leave the mask out and say "causal" to its attention, which it decides by an offset of 0.
        self.offset = 0 if starts_without_mask(arguments, memory) else self.start
        self.calls: list[_LayerCall] = []

    def _take_parameters(self) -> None:
        first: dict[int, str] = {}
        for name, tensor in [
            *self.model.named_parameters(remove_duplicate=False),
            *self.model.named_buffers(remove_duplicate=False),
        ]:
            self.same[name] = first.setdefault(id(tensor), name)
            if self.same[name] == name:
                self.names.append(name)
                self.parameters.append(self._fake(tensor.detach(), f"p{len(self.names)}", static=True))

    def _take_arguments(self, owners: Sequence[str], room: int) -> None:
        leaves = self.leaves
        if self.crossed is not None:
            leaves, source = self._with_own_length(owners, room)
            self.source = self._fake(torch.empty(source, 1), "source").shape[0]
        for at, (owner, leaf) in enumerate(zip(owners, leaves, strict=True)):
            if isinstance(leaf, torch.Tensor):
                self.tensors.append(self._fake(leaf, f"t{at}", of_width=owner == "encoder_outputs"))
        self.batch = self.tensors[0].shape[0]
        if self.memory is not None:
            # How many tokens the cache shows is a symbol: the same for the mask's last dimension and every layer's memory.
            self.room = self._fake(torch.empty(room, 1), "room")
            self.size = CacheSize(len(self.layers), self.room.shape[0], self.memory.format, self.device)
            self.start = self._fake(torch.zeros((), dtype=torch.int64, device=self.device), "start")

    def _with_own_length(self, owners: Sequence[str], room: int) -> tuple[list[Any], int]:
        """The arguments, and how many tokens were encoded, as the trace sees them: not as many as anything else has, which would
        be the same symbol, and a graph for that case alone."""
        tensors = [pair for pair in zip(owners, self.leaves, strict=True) if isinstance(pair[1], torch.Tensor)]
        encoded = [leaf for owner, leaf in tensors if owner == "encoder_outputs"]
        if not encoded:
            raise UnsupportedError("the call has no encoder's outputs")
        before = source = encoded[0].shape[1]
        others = {size for owner, leaf in tensors if owner not in _ENCODED for size in leaf.shape} | {room}
        while source > 1 and source in others:
            source += 1
        if source == before:
            return self.leaves, source

        def resized(owner: str, leaf: Any) -> Any:
            if owner not in _ENCODED or not isinstance(leaf, torch.Tensor) or leaf.shape[1] != before:
                return leaf
            return leaf.new_empty((leaf.shape[0], source, *leaf.shape[2:]))

        return [resized(owner, leaf) for owner, leaf in zip(owners, self.leaves, strict=True)], source

    def _fake(self, tensor: torch.Tensor, name: str, static: bool = False, of_width: bool = False) -> FakeTensor:
        """``of_width``: the last dimension is the model's."""
        sizes = [
            DimDynamic.STATIC
            if static or size == 1 or (dim == 0 and tensor.dim() > 1 and not self.any_batch)
            else DimDynamic.DUCK
            for dim, size in enumerate(tensor.shape)
        ]
        if of_width:
            sizes[-1] = DimDynamic.STATIC
        if name == "room" or (name == "source" and tensor.shape[0] > 1):
            sizes[0] = DimDynamic.DUCK
        context: Any = StatelessSymbolicContext(dynamic_sizes=sizes)
        return self.mode.from_tensor(tensor, source=LocalSource(name), symbolic_context=context)

    def trace(self) -> Traced:
        attention = nullcontext() if self.device.type == "cpu" else OneAttention()
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            self.mode,
            enable_python_dispatcher(),
            _compiling(),
            attention,
        ):
            self._look()
            bodies = [self._layer_graph(call) if call.leader is call else None for call in self.calls]
            outputs: list[Any] = []

            def whole(parameters: Sequence[Any], tensors: Sequence[Any], starts: Sequence[Any], states: Any) -> Any:
                written: list[Any] = []
                start = starts[0] if starts else None
                stubs = [
                    _opaque(self, call, start, [kind[call.number] for kind in states], written) for call in self.calls
                ]
                with self._with(parameters), _forwards(self.layers, stubs):
                    result = self._call(tensors, 0 if isinstance(self.offset, int) else start)
                leaves, self.out_spec = pytree.tree_flatten(result, is_leaf=_is_cache)
                outputs[:] = [
                    TENSOR if isinstance(leaf, torch.Tensor) else CACHE if _is_cache(leaf) else leaf for leaf in leaves
                ]
                return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], written

            arguments = (self.parameters, self.tensors, self._starts(), self._cache_tensors())
            token = _tracer.set(self)
            try:
                graph = _traced(whole, arguments)
            finally:
                _tracer.reset(token)
        self._inline(graph, bodies)
        first = len(self.parameters) + len(self.tensors) + len(self._starts())
        graph_edits.write_back(graph, first, len(self.calls), self.calls[0].written)
        given = graph_edits.without_given(graph, len(self.parameters), len(self.tensors))
        results = [at for at, leaf in enumerate(outputs) if leaf is TENSOR]
        for number, position in given.items():  # what the encoder gave
            outputs[results[number]] = Given(position)
        graph_edits.without_unread_items(graph)
        names = graph_edits.without_unused(graph, self.names)
        guards, holds = self._guards()
        return Traced(
            graph=graph,
            guards=guards,
            parameters=names,
            outputs=outputs,
            out_spec=self.out_spec,
            shapes=[call.shapes[0] for call in self.calls if call.shapes],
            cross_shapes=[call.shapes[1] for call in self.calls if len(call.shapes) > 1],
            different_layers=sum(call.leader is call for call in self.calls),
            holds=holds,
        )

    def _guards(self) -> tuple[Callable[[], str | None], Callable[[Sequence[torch.Tensor]], bool]]:
        @cache
        def text() -> str | None:  # when asked first: what reads the graph may add to the guards
            # Also what tracing made a constant of: a graph for one length alone must not serve another.
            sized = self.tensors if self.memory is None else [*self.tensors, self.room]
            return self.shape_env.produce_guards_expression(sized, ignore_static=False)

        def holds(tensors: Sequence[torch.Tensor]) -> bool:
            expression = text()
            return expression is None or bool(self.shape_env.evaluate_guards_expression(expression, list(tensors)))

        return text, holds

    @contextmanager
    def _with(self, parameters: Sequence[Any]) -> Iterator[None]:
        by_name = dict(zip(self.names, parameters, strict=True))
        with _reparametrize_module(self.model, {name: by_name[first] for name, first in self.same.items()}):
            yield

    def _starts(self) -> list[Any]:
        return [] if self.start is None else [self.start]

    def _call(self, tensors: Sequence[Any], start: Any) -> Any:
        remaining = iter(tensors)
        leaves = [next(remaining) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        arguments = pytree.tree_unflatten(leaves, self.spec)
        if self.memory is None:
            return self.forward(**arguments)
        cache: Cache = ModelCache(self.size, start)
        if self.crossed is not None:
            cache = cross_attention.View(cache, cross_attention.Nothing(len(self.layers)), self.crossed)
        return self.forward(**arguments, **{CACHE: cache})

    def _look(self) -> None:
        """Runs the call and records each layer's; a layer like an earlier one is not run again."""
        stubs = [_recording(self, number) for number in range(len(self.layers))]
        with self._with(self.parameters), _forwards(self.layers, stubs):
            self._call(self.tensors, self.offset)
        if [call.number for call in self.calls] != list(range(len(self.layers))):
            raise UnsupportedError("the model does not call its layers one after the other, each once")

    def _cache_tensors(self) -> list[list[FakeTensor]]:
        """Of each kind, one for each layer."""
        if self.memory is None:
            return []
        own = [self.size.memory(self.batch, call.shapes[0]) for call in self.calls]
        made = [list(kind) for kind in zip(*own, strict=True)]
        if self.crossed is not None:
            pairs = [
                cross_attention.memory(call.shapes[1], self.batch, self.source, self.device) for call in self.calls
            ]
            made += [list(kind) for kind in zip(*pairs, strict=True)]
        return made

    def caches_of(self, number: int, start: Any, states: Sequence[Any] | None = None) -> LayerParts:
        """``states``: the layer's part of the cache; None makes one, as the layer writes it."""
        if self.memory is None:
            return LayerParts(None, None, None)
        count = cache_parts.count(self.size.format)
        own = LayerCache(self.size, number, start, None if states is None else list(states[:count]))
        if self.crossed is None:
            return LayerParts(own, None, own)
        earlier = None
        if self.crossed:
            assert isinstance(self.memory, cross_attention.EncoderDecoderMemory)
            shape = self.memory.cross_shapes()[number]
            parts = (
                cross_attention.memory(shape, self.batch, self.source, self.device)
                if states is None
                else states[count:]
            )
            earlier = (shape, parts)
        cross = cross_attention.LayerView(number, len(self.layers), self.source, self.size.format, earlier)
        return LayerParts(own, cross, cross_attention.View(own, cross, self.crossed))

    def _layer_graph(self, call: _LayerCall) -> torch.fx.GraphModule:
        prefix = f"{self.prefix}.{call.number}."

        def body(parameters: Sequence[Any], tensors: Sequence[Any], states: Any, starts: Sequence[Any]) -> Any:
            caches = self.caches_of(call.number, starts[0] if starts else None, states)
            by_name = dict(zip(call.own, parameters, strict=True))
            with _reparametrize_module(call.layer, by_name):
                result = call.run(tensors, caches.seen)
            return [*(leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)), *caches.written()]

        own = [self.parameters[self.names.index(self.same[prefix + name])] for name in call.own]
        return _traced(body, (own, call.tensors, call.memory, self._starts()))

    def _inline(self, graph: torch.fx.GraphModule, bodies: Sequence[torch.fx.GraphModule | None]) -> None:
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        by_name = dict(zip(self.names, placeholders, strict=False))
        for node in list(graph.graph.nodes):
            if node.op != "call_function" or node.target is not _layer_op():
                continue
            tensors, number = node.args
            call = self.calls[number]
            body = bodies[call.leader.number]
            assert body is not None
            own = [by_name[self.same[f"{self.prefix}.{number}.{name}"]] for name in call.own]
            results = graph_edits.copied(graph, body, [*own, *tensors], node)
            for user in list(node.users):
                assert user.target is operator.getitem
                user.replace_all_uses_with(results[user.args[1]])
                graph.graph.erase_node(user)
            graph.graph.erase_node(node)
        graph.graph.lint()


def _tensors_in(arguments: Mapping[str, Any]) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(dict(arguments)) if isinstance(leaf, torch.Tensor)]


def _one_device(tensors: Sequence[torch.Tensor]) -> torch.device:
    """Of the weights and arguments: a plan is for one."""
    devices = {tensor.device: None for tensor in tensors}
    if len(devices) > 1:
        raise UnsupportedError(f"its weights and inputs lie on {len(devices)} devices: {', '.join(map(str, devices))}")
    return next(iter(devices))


@dataclass
class _LayerCall:
    """How the model calls one of its layers."""

    number: int
    layer: torch.nn.Module
    leaves: list[Any]
    spec: pytree.TreeSpec
    tensors: list[Any]
    own: list[str]  # the layer's parameters and buffers
    key: Any
    leader: _LayerCall = None  # type: ignore[assignment]  # the first call of those that are the same function
    shapes: Sequence[LayerShape] = ()  # of its part of the cache: its own attention's, the cross-attention's
    memory: Sequence[Any] = ()
    written: int = 0  # how many of ``memory`` it writes, the first ones
    result: Any = None
    reads_index: bool = False

    def run(self, tensors: Sequence[Any], cache: Cache | None) -> Any:
        remaining = iter(tensors)
        leaves = [
            next(remaining) if isinstance(leaf, torch.Tensor) else cache if _is_cache(leaf) else leaf
            for leaf in self.leaves
        ]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        with watched_index(self.layer) as index:
            result = type(self.layer).forward(self.layer, *args, **kwargs)
        self.reads_index = self.reads_index or index.read
        return result


def _is_cache(value: Any) -> bool:
    return isinstance(value, Cache)


def _recording(tracer: _Tracer, number: int) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        layer = tracer.layers[number]
        leaves, spec = pytree.tree_flatten((args, kwargs), is_leaf=_is_cache)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        own = [name for name, _ in [*layer.named_parameters(), *layer.named_buffers()]]
        key = (signature(layer), spec, tuple(_described(leaf) for leaf in leaves))
        call = _LayerCall(number, layer, leaves, spec, tensors, own, key)
        same = (other for other in tracer.calls if other.key == key and other.leader is other and not other.reads_index)
        call.leader = next(same, call)
        if call.leader is call:
            caches = tracer.caches_of(number, tracer.start)
            call.result = call.run(tensors, caches.seen)
            call.written = len(caches.written())
            call.shapes, call.memory = caches.shapes(), caches.memory()
        else:
            leader = call.leader
            call.shapes, call.written, call.result = leader.shapes, leader.written, leader.result
        tracer.calls.append(call)
        return pytree.tree_map_only(torch.Tensor, lambda t: t.clone(), call.result)

    return forward


def _described(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, tuple(str(size) for size in leaf.shape), tuple(str(stride) for stride in leaf.stride())
    if _is_cache(leaf):
        return CACHE
    return (type(leaf), leaf) if isinstance(leaf, (int, float, str, bool, type(None))) else id(leaf)


def _opaque(tracer: _Tracer, call: _LayerCall, start: Any, states: Sequence[Any], written: list[Any]) -> Any:
    def forward(*args: Any, **kwargs: Any) -> Any:
        leaves, _ = pytree.tree_flatten((args, kwargs), is_leaf=_is_cache)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        outputs = _layer_op()([*tensors, *states, *(() if start is None else (start,))], call.number)
        written.extend(outputs[len(outputs) - call.written :])
        results = iter(outputs)
        return pytree.tree_map_only(torch.Tensor, lambda _: next(results), call.result)

    return forward


@contextmanager
def _compiling() -> Iterator[None]:
    """``torch.compiler.is_compiling()`` holds, by which models leave out checks of their inputs' values."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


@contextmanager
def _forwards(layers: torch.nn.ModuleList, replacements: Sequence[Callable[..., Any]]) -> Iterator[None]:
    """Each layer's forward replaced. Not for two threads at a time: whoever traces holds the model's lock."""
    before = [layer.__dict__.get("forward") for layer in layers]
    for layer, replacement in zip(layers, replacements, strict=True):
        layer.__dict__["forward"] = replacement
    try:
        yield
    finally:
        for layer, old in zip(layers, before, strict=True):
            if old is None:
                layer.__dict__.pop("forward")
            else:
                layer.__dict__["forward"] = old


_tracer: ContextVar[_Tracer | None] = ContextVar("zefuse_llm_tracer", default=None)
_operators: list[Any] = []


def _layer_op() -> Any:
    """A layer as one operator, while the model around it is traced. It has no kernel: its graph takes its place."""
    if not _operators:
        library: Any = torch.library.Library("zefuse_llm", "DEF")  # type: ignore[no-untyped-call]
        library.define("layer(Tensor[] tensors, int number) -> Tensor[]")

        def meta(tensors: Sequence[Any], number: int) -> list[Any]:
            tracer = _tracer.get()
            assert tracer is not None
            call = tracer.calls[number]
            results = [t for t in pytree.tree_leaves(call.result) if isinstance(t, torch.Tensor)]
            first = len(call.tensors)
            written = tensors[first : first + call.written]
            return [
                torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in [*results, *written]
            ]

        torch.library.register_fake("zefuse_llm::layer", meta, lib=library)
        _operators.extend([library, torch.ops.zefuse_llm.layer.default])
    return _operators[1]


def _traced(function: Callable[..., Any], arguments: tuple[Any, ...]) -> torch.fx.GraphModule:
    flat, spec = pytree.tree_flatten(arguments)

    def flattened(*values: Any) -> list[Any]:
        return list(pytree.tree_leaves(function(*pytree.tree_unflatten(list(values), spec))))

    # Not torch.func.functionalize: it makes constants of symbols in some views.
    functional = dispatch_functionalize(flattened)
    table = decompositions() | single_rows.decompositions()
    # Nobody calls the graph: Python's compiler takes more memory for its code than everything else here does.
    with _use_lazy_graph_module(True):
        return make_fx(functional, decomposition_table=table, _allow_non_fake_inputs=True)(*flat)
