"""What ``generate()`` gives a decoder's forward for a single token, with the masks of many steps made at a time.

``transformers`` makes a mask of the whole cache anew for each token, which takes 0.2 ms and more: as long as a tenth of a small
model's step. A row of such a mask depends on its query's and its keys' places and on the padding alone, so one call for the next
steps' queries together gives the rows of all of them.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

import torch
from transformers.generation import GenerationMixin

from zefuse.llm.cache import KeyValueCache
from zefuse.llm.layers import StandIn
from zefuse.llm.tracing import CACHE

_AHEAD = 64  # steps whose masks are made together
_IDS, _MASK, _POSITIONS = "input_ids", "attention_mask", "position_ids"
_GROWING = (_MASK, _POSITIONS)  # by one place for each token


def takes(model: Any) -> bool:
    """Whether the model's steps are prepared as most are: by what ``transformers`` has for all of them."""
    own = type(model)
    return (
        not model.config.is_encoder_decoder
        and getattr(own, "prepare_inputs_for_generation", None) is GenerationMixin.prepare_inputs_for_generation
        and "prepare_inputs_for_generation" not in vars(model)
        and getattr(own, "create_masks_for_generate", None)
        is getattr(GenerationMixin, "create_masks_for_generate", None)
        and "create_masks_for_generate" not in vars(model)
    )


class StepInputs(StandIn):
    """Stands in a model's ``prepare_inputs_for_generation``."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.prepare: Callable[..., dict[str, Any]] = model.prepare_inputs_for_generation
        self._forget()

    def _forget(self) -> None:
        self._ahead: weakref.WeakKeyDictionary[Any, _Ahead] = weakref.WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "prepare": self.prepare}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    @property
    def __signature__(self) -> inspect.Signature:
        """``generate()`` asks which arguments it takes."""
        return inspect.signature(self.prepare)

    def __call__(self, input_ids: Any, next_sequence_length: int | None = None, **given: Any) -> dict[str, Any]:
        cache = given.get(CACHE)
        if next_sequence_length != 1 or type(cache) is not KeyValueCache or not cache.length:
            return self.prepare(input_ids, next_sequence_length=next_sequence_length, **given)
        ahead = self._ahead.get(cache)
        if ahead is not None and (made := ahead.next(input_ids, given, cache)) is not None:
            return made
        made = self.prepare(input_ids, next_sequence_length=1, **given)
        if (found := _Ahead.after(self.prepare, made, input_ids, given, cache)) is not None:
            self._ahead[cache] = found
        else:
            self._ahead.pop(cache, None)
        return made


class _Ahead:
    """The masks of the steps after one whose inputs are ``made``, of ``given``."""

    def __init__(self, made: dict[str, Any], masks: Any, input_ids: Any, given: dict[str, Any], length: int) -> None:
        self.made = {name: value for name, value in made.items() if name != CACHE}  # which would keep itself
        self.order, self.masks = list(made), masks
        self.width, self.length = input_ids.shape, length
        self.growing = {name: given[name].shape[-1] for name in _GROWING if given.get(name) is not None}
        self.given = {name: value for name, value in given.items() if name not in (CACHE, *self.growing)}

    @classmethod
    def after(
        cls, prepare: Callable[..., Any], made: dict[str, Any], input_ids: Any, given: dict[str, Any], cache: Any
    ) -> _Ahead | None:
        """None: these inputs are not only a token, its place and a mask, or nothing is left to do ahead."""
        length: int = cache.length
        count = min(_AHEAD, cache.capacity - length)
        plain = {name: value for name, value in made.items() if name not in (_IDS, CACHE, *_GROWING)}
        if (
            count < 2
            or not isinstance(given.get(_POSITIONS), torch.Tensor)
            or made.get(CACHE) is not cache
            or any(isinstance(value, torch.Tensor) or value is not given.get(name) for name, value in plain.items())
            or not isinstance(made.get(_POSITIONS), torch.Tensor)
            or not torch.equal(made[_POSITIONS], given[_POSITIONS][..., -1:])
        ):
            return None
        more = count - 1
        ids = torch.cat([input_ids, input_ids.new_zeros((len(input_ids), more))], -1)
        later = dict(given)
        if (mask := given.get(_MASK)) is not None:
            later[_MASK] = torch.cat([mask, mask.new_ones((len(mask), more))], -1)
        positions = given[_POSITIONS]
        steps = torch.arange(1, more + 1, dtype=positions.dtype, device=positions.device)
        later[_POSITIONS] = torch.cat([positions, positions[..., -1:] + steps], -1)
        masks = prepare(ids, next_sequence_length=count, **later).get(_MASK)
        first = made.get(_MASK)
        if not _same_kind(first, masks, count):
            return None
        return cls(made, masks, input_ids, given, length)

    def next(self, input_ids: Any, given: dict[str, Any], cache: Any) -> dict[str, Any] | None:
        """The inputs of a later step; None for one that is not of these."""
        step = cache.length - self.length
        if (
            not 0 < step < _steps(self.masks)
            or input_ids.shape != (self.width[0], self.width[1] + step)
            or len(given) != len(self.given) + len(self.growing) + 1
            or any(given.get(name, self) is not value for name, value in self.given.items())
            or any(given[name].shape[-1] != width + step for name, width in self.growing.items())
        ):
            return None
        made: dict[str, Any] = {}
        for name in self.order:
            if name == CACHE:
                made[name] = cache
            elif name == _IDS:
                made[name] = _last(input_ids)
            elif name == _POSITIONS:
                made[name] = _last(given[name])
            elif name == _MASK:
                made[name] = _row(self.masks, step)
            else:
                made[name] = self.made[name]
        return made


def _last(tensor: Any) -> Any:
    return tensor[..., -1:].clone(memory_format=torch.contiguous_format)


def _row(masks: Any, step: int) -> Any:
    if isinstance(masks, dict):  # of each kind of layer
        return {name: _row(each, step) for name, each in masks.items()}
    return masks[:, :, step : step + 1].clone(memory_format=torch.contiguous_format)


def _steps(masks: Any) -> int:
    return int((next(iter(masks.values())) if isinstance(masks, dict) else masks).shape[2])


def _same_kind(one: Any, several: Any, count: int) -> bool:
    """Whether ``several`` are masks of ``count`` queries of which the first has ``one``."""
    if isinstance(one, dict):
        return (
            isinstance(several, dict)
            and bool(one)
            and list(one) == list(several)
            and all(_same_kind(one[name], several[name], count) for name in one)
        )
    return (
        isinstance(one, torch.Tensor)
        and isinstance(several, torch.Tensor)
        and one.dim() == several.dim() == 4
        and several.shape[2] == count
        and one.dtype == several.dtype
        and torch.equal(one, several[:, :, :1])
    )
