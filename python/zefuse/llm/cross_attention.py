"""The cache of an encoder-decoder: its decoder's own keys and values, and those of the encoded sequence, which never change.

``EncoderDecoderMemory`` is what ``generate()`` holds; the others are what a model sees of it while it is traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache

from zefuse.errors import UnsupportedError
from zefuse.llm import cache_parts
from zefuse.llm.cache import KeyValueCache
from zefuse.llm.cache_parts import LayerShape
from zefuse.llm.layers import LayerIndex


def memory(shape: LayerShape, batch: int, source: Any, device: torch.device) -> list[torch.Tensor]:
    """For a layer's keys and values (and scales) of ``source`` encoded tokens. A head's lie together: each step reads all of them."""
    return [
        torch.empty((batch, shape.key_heads, source, part.width), dtype=part.dtype, device=device)
        for part in shape.parts
    ]


class EncoderDecoderMemory(EncoderDecoderCache):
    """Owned by the ``generate()`` call that made it; not for several threads at a time."""

    self_attention_cache: KeyValueCache

    def __init__(self, num_layers: int, capacity: int, format: str | None = None) -> None:
        """``format``: of ``cache_parts.FORMATS``; None keeps keys and values as they are."""
        super().__init__(KeyValueCache(num_layers, capacity, format), DynamicCache())
        self._cross: list[torch.Tensor] = []  # all layers' keys, then all values, then scales, once they are known
        self._seen: tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]] = ([], [], [])

    @property
    def format(self) -> str | None:
        return self.self_attention_cache.format

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
        return [_shape_of(layer, self.format) for layer in self.cross_attention_cache.layers]

    def allocate(
        self,
        batch: int,
        shapes: Sequence[LayerShape],
        device: torch.device,
        cross: Sequence[LayerShape],
        arguments: Mapping[str, Any],
    ) -> None:
        self.self_attention_cache.allocate(batch, shapes, device)
        layers: list[Any] = self.cross_attention_cache.layers
        if not self.crossed:
            source = arguments["encoder_outputs"]["last_hidden_state"].shape[1]
            layers[:] = [EncodedLayer(shape, memory(shape, batch, source, device)) for shape in cross]
            self._cross = []
        if not self._cross:
            for at, layer in enumerate(layers):
                if not isinstance(layer, EncodedLayer):  # of a call that was not compiled
                    rows = cache_parts.written(layer.keys, layer.values, self.format)
                    layers[at] = EncodedLayer(_shape_of(layer, self.format), [each.contiguous() for each in rows])
            self._cross = [each for kind in zip(*(layer.memory for layer in layers), strict=True) for each in kind]

    def seen(self, room: int) -> list[torch.Tensor]:
        """The same list as before, where its tensors are: see ``KeyValueCache.seen``."""
        own, cross, both = self._seen
        views = self.self_attention_cache.seen(room)
        if own is not views or cross is not self._cross:
            both = [*views, *self._cross]
            self._seen = views, self._cross, both
        return both

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


class EncodedLayer(DynamicLayer):
    """One layer's keys and values of the encoded sequence, which never change."""

    def __init__(self, shape: LayerShape, memory: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.shape, self.memory = shape, list(memory)
        self.dtype, self.device = shape.dtype, self.memory[0].device
        self.is_initialized = True

    # For a call that is not compiled, which sees numbers.
    @property
    def keys(self) -> torch.Tensor:
        return cache_parts.read(self.memory, self.shape.dtype)[0]

    @keys.setter
    def keys(self, _: Any) -> None:  # of DynamicLayer's constructor
        pass

    @property
    def values(self) -> torch.Tensor:
        return cache_parts.read(self.memory, self.shape.dtype)[1]

    @values.setter
    def values(self, _: Any) -> None:
        pass


def _shape_of(layer: Any, format: str | None) -> LayerShape:
    return layer.shape if isinstance(layer, EncodedLayer) else LayerShape.of(layer.keys, layer.values, format)


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
    """The cross-attention's part for one layer: it writes it once, or reads what an earlier call wrote."""

    def __init__(
        self, number: int, count: int, source: Any, format: str | None, earlier: tuple[LayerShape, Sequence[Any]] | None
    ) -> None:
        """``earlier``: what that was, and its parts; None where this call writes it."""
        super().__init__(count)
        self.number, self.source, self.format = number, source, format
        self._writes = earlier is None
        self._shape: LayerShape | None = None
        self._parts: Sequence[Any] | None = None
        if earlier is not None:
            self._shape, self._parts = earlier
        self.layers = self  # of which a layer asks for its own

    def __getitem__(self, layer_idx: Any) -> Any:
        if self._shape is None or self._parts is None or _number(layer_idx) != self.number:
            raise UnsupportedError("a layer reads the cross-attention's keys of another one, or before they are there")
        keys, values = cache_parts.read(self._parts, self._shape.dtype)
        return SimpleNamespace(keys=keys, values=values)

    def update(self, key_states: Any, value_states: Any, layer_idx: Any, *_: Any, **__: Any) -> Any:
        if self._shape is not None or _number(layer_idx) != self.number:
            raise UnsupportedError("a layer writes the cross-attention's keys of another one, or twice")
        if key_states.shape[2] != self.source:
            raise UnsupportedError("the cross-attention has other tokens than the encoder gave")
        self._shape = LayerShape.of(key_states, value_states, self.format)
        self._parts = cache_parts.written(key_states, value_states, self.format)
        return cache_parts.read(self._parts, self._shape.dtype)  # what all later calls read

    @property
    def shape(self) -> LayerShape:
        if self._shape is None:
            raise UnsupportedError("a layer has no cross-attention, or keeps no keys of it")
        return self._shape

    def written(self) -> Sequence[Any]:
        return self._parts or () if self._writes else ()

    def memory(self) -> Sequence[Any]:
        shape = self.shape
        assert self._parts is not None
        if not self._writes:
            return self._parts
        return memory(shape, self._parts[0].shape[0], self.source, self._parts[0].device)


def _number(layer_idx: Any) -> int:
    return int(layer_idx.value if isinstance(layer_idx, LayerIndex) else layer_idx)
