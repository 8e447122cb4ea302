"""A model's decoder layers, and which of them are the same function of different parameters."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_PLAIN = (int, float, str, bool, type(None), torch.dtype, torch.device)
# torch's own state of a module, compared otherwise or without a part in what forward computes.
_SKIPPED = frozenset({"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "layer_idx", "forward"})


class StandIn:
    """What zefuse puts in the place of a module's ``forward``."""


Layers = tuple[str, torch.nn.ModuleList]  # their name in the model, and the list


def decoder_layers(model: Any) -> Layers | None:
    """The list of a model's layers and its name; None where there is none that has as many entries as the configuration says."""
    if model.config.is_encoder_decoder:
        return stack_layers(model, model.get_decoder())
    config = model.config.get_text_config(decoder=True)
    count = getattr(config, "num_hidden_layers", None)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count and count:
            return name, module
    return None


def stack_layers(model: torch.nn.Module, stack: torch.nn.Module) -> Layers | None:
    """Of an encoder or a decoder inside a model: its first list of modules of one class."""
    prefix = next((f"{name}." if name else "" for name, module in model.named_modules() if module is stack), "")
    for name, module in stack.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len({type(layer) for layer in module}) == 1:
            return prefix + name, module
    return None


def signature(layer: torch.nn.Module) -> Any:
    """Equal for layers that differ in their parameters' values and ``layer_idx`` alone."""

    def plain(value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return type(value).__name__, value
        if isinstance(value, (tuple, list)):
            return type(value).__name__, tuple(plain(each) for each in value)
        if isinstance(value, dict):
            return "dict", tuple((str(key), plain(each)) for key, each in value.items())
        if isinstance(value, functools.partial):
            return "partial", plain(value.func), plain(value.args), plain(value.keywords)
        return "object", id(value)  # a function, the configuration: the same one

    state = tuple((key, plain(value)) for key, value in sorted(vars(layer).items()) if key not in _SKIPPED)
    tensors = tuple(
        (name, None if tensor is None else (tuple(tensor.shape), tensor.stride(), tensor.dtype))
        for name, tensor in [*layer._parameters.items(), *layer._buffers.items()]
    )
    children = tuple((name, None if child is None else signature(child)) for name, child in layer._modules.items())
    return type(layer), state, tensors, children


class LayerIndex:
    """Stands for ``layer_idx`` while a layer is traced: what it computes from it would not hold for the other layers."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.read = False

    def _see(self, *_: Any) -> int:
        self.read = True
        return self.value

    __index__ = __int__ = __hash__ = _see

    def __float__(self) -> float:
        return float(self._see())

    def __bool__(self) -> bool:
        return bool(self._see())

    def __repr__(self) -> str:
        return repr(self._see())


def _operator(name: str) -> Any:
    def apply(self: LayerIndex, *others: Any) -> Any:
        return getattr(self._see(), name)(*others)

    return apply


for (
    _name
) in "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow neg eq ne lt le gt ge".split():
    setattr(LayerIndex, f"__{_name}__", _operator(f"__{_name}__"))


@contextmanager
def watched_index(layer: torch.nn.Module) -> Iterator[LayerIndex]:
    """``layer_idx`` of a layer's modules replaced by one that tells whether it was read."""
    holders = [module for module in layer.modules() if isinstance(module.__dict__.get("layer_idx"), int)]
    index = LayerIndex(holders[0].layer_idx if holders else -1)  # type: ignore[arg-type]
    for module in holders:
        module.__dict__["layer_idx"] = index
    try:
        yield index
    finally:
        for module in holders:
            module.__dict__["layer_idx"] = index.value
