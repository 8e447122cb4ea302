"""The cache of an encoder-decoder: its decoder's own keys and values, and those of the encoded sequence, which never change.

``EncoderDecoderMemory`` is what ``generate()`` holds; the others are what a model sees of it while it is traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache

from zefuse.errors import UnsupportedError
from zefuse.llm.cache import KeyValueCache
from zefuse.llm.cache_parts import LayerShape
from zefuse.llm.layers import LayerIndex


def memory(shape: LayerShape, batch: int, source: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """For a layer's keys and values of ``source`` encoded tokens. A head's lie together: each step reads all of them."""
    keys, values = (
        torch.empty((batch, shape.key_heads, source, dim), dtype=shape.dtype)
        for dim in (shape.key_dim, shape.value_dim)
    )
    return keys, values


class EncoderDecoderMemory(EncoderDecoderCache):
    """Owned by the ``generate()`` call that made it; not for several threads at a time."""

    self_attention_cache: KeyValueCache

    def __init__(self, num_layers: int, capacity: int) -> None:
        super().__init__(KeyValueCache(num_layers, capacity), DynamicCache())
        self._cross: list[torch.Tensor] = []  # all layers' keys, then all values, once they are known

    @property
    def crossed(self) -> bool:
        """Whether the cross-attention's keys and values are there."""
        return any(self.is_updated.values())

    @property
    def capacity(self) -> int:
        return self.self_attention_cache.capacity

    @property
    def length(self) -> int:
        return self.self_attention_cache.length

    def room_after(self, count: int) -> int:
        return self.self_attention_cache.room_after(count)

    def room_for(self, count: int) -> int:
        return self.self_attention_cache.room_for(count)

    def cross_shapes(self) -> list[LayerShape]:
        return [LayerShape.of(layer.keys, layer.values) for layer in self.cross_attention_cache.layers]

    def allocate(
        self, batch: int, shapes: Sequence[LayerShape], cross: Sequence[LayerShape], arguments: Mapping[str, Any]
    ) -> None:
        self.self_attention_cache.allocate(batch, shapes, cross, arguments)
        layers: list[Any] = self.cross_attention_cache.layers
        if not self.crossed:
            source = arguments["encoder_outputs"]["last_hidden_state"].shape[1]
            layers[:] = [_layer(*memory(shape, batch, source)) for shape in cross]
            self._cross = []
        if not self._cross:
            # Contiguous they are not where a call computed them that was not compiled.
            self._cross = [each.contiguous() for name in ("keys", "values") for each in map(attrgetter(name), layers)]

    def seen(self, room: int) -> list[torch.Tensor]:
        return [*self.self_attention_cache.seen(room), *self._cross]

    def advance(self, count: int) -> None:
        """``count`` tokens were written by a compiled call, and the cross-attention's part by the first."""
        self.self_attention_cache.advance(count)
        if not self.crossed:
            self.is_updated = dict.fromkeys(range(len(self)), True)

    def reset(self) -> None:
        self.self_attention_cache.reset()
        self.cross_attention_cache.layers.clear()
        self.is_updated, self._cross = {}, []

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Beams change places with those of the same encoded sequence alone, of which each has a copy."""
        self.self_attention_cache.reorder_cache(beam_idx)


def _layer(keys: torch.Tensor, values: torch.Tensor) -> DynamicLayer:
    layer = DynamicLayer()
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys, values
    return layer


class View(EncoderDecoderCache):
    """What a traced model gets for an ``EncoderDecoderMemory``: ``own`` and ``cross`` for its parts."""

    def __init__(self, own: Cache, cross: Cache, crossed: bool) -> None:
        self.self_attention_cache, self.cross_attention_cache = own, cross
        self.is_updated = _ForEachLayer(crossed)


class _ForEachLayer(dict[Any, bool]):
    """The same answer for every layer, without a look at its number."""

    def __init__(self, answer: bool) -> None:
        super().__init__()
        self.answer = answer

    def get(self, _: Any, default: Any = None) -> Any:
        return self.answer

    def __getitem__(self, _: Any) -> bool:
        return self.answer

    def __setitem__(self, _: Any, answer: bool) -> None:
        self.answer = answer


class Nothing(Cache):
    """The cross-attention's part for what stands around the layers."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(layers=[])

    def __len__(self) -> int:
        return self.count

    def update(self, *_: Any, **__: Any) -> Any:
        raise UnsupportedError("the model writes the key-value cache outside of its layers")


class LayerView(Nothing):
    """The cross-attention's part for one layer: it writes it once, or reads what an earlier call wrote (``earlier``)."""

    def __init__(self, number: int, count: int, source: Any, earlier: Sequence[Any] | None) -> None:
        super().__init__(count)
        self.number, self.source, self.earlier = number, source, earlier
        self.made: tuple[Any, Any] | None = None
        self.layers = self  # of which a layer asks for its own

    def __getitem__(self, layer_idx: Any) -> Any:
        pair = self.earlier or self.made
        if pair is None or _number(layer_idx) != self.number:
            raise UnsupportedError("a layer reads the cross-attention's keys of another one, or before they are there")
        return SimpleNamespace(keys=pair[0], values=pair[1])

    def update(self, key_states: Any, value_states: Any, layer_idx: Any, *_: Any, **__: Any) -> Any:
        if self.earlier or self.made or _number(layer_idx) != self.number:
            raise UnsupportedError("a layer writes the cross-attention's keys of another one, or twice")
        if key_states.shape[2] != self.source:
            raise UnsupportedError("the cross-attention has other tokens than the encoder gave")
        self.made = (key_states, value_states)
        return self.made

    @property
    def shape(self) -> LayerShape:
        pair = self.earlier or self.made
        if pair is None:
            raise UnsupportedError("a layer has no cross-attention, or keeps no keys of it")
        return LayerShape.of(*pair)

    def written(self) -> tuple[Any, ...]:
        return self.made or ()

    def memory(self) -> Sequence[Any]:
        if self.earlier is not None:
            return self.earlier
        shape = self.shape
        assert self.made is not None
        return memory(shape, self.made[0].shape[0], self.source)


def _number(layer_idx: Any) -> int:
    return int(layer_idx.value if isinstance(layer_idx, LayerIndex) else layer_idx)
