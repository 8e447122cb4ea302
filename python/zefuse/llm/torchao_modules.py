"""Linear layers that torchao's ``quantize_`` changed: their weight is a tensor of a class of its own, which holds the codes.

Weights alone in 8 or 4 bits become our packed form, exactly. What quantizes its inputs as well keeps torchao's arithmetic, in a layer
whose buffers are plain tensors. torchao is not imported here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from zefuse.llm import stored_codes
from zefuse.llm.packing import Packed
from zefuse.llm.quantized import QuantizedLinear, replace
from zefuse.wording import counted

# What puts such a weight together, by what it says: one object for all layers that do it in the same way, by which they are known
# to be the same function.
_recipes: dict[str, tuple[type, Any]] = {}


class _Unwrapped(nn.Module):
    """``linear(x, weight, bias)``, the weight put together of its parts in each call."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight: Any = linear.weight.detach()
        self.part_names, context = weight.__tensor_flatten__()
        for name in self.part_names:
            self.register_buffer(f"weight_{name}", getattr(weight, name))
        self.recipe = _recipes.setdefault(f"{type(weight)} {context!r}", (type(weight), context))
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias

    @property
    def weight(self) -> torch.Tensor:
        kind, context = self.recipe
        parts = {name: getattr(self, f"weight_{name}") for name in self.part_names}
        size = self.out_features, self.in_features
        made: torch.Tensor = kind.__tensor_unflatten__(parts, context, size, (self.in_features, 1))  # type: ignore[attr-defined]
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


def take(model: nn.Module) -> list[str]:
    """Replaces the layers; what was done, in words."""
    packed_count = unwrapped_count = 0
    for name, module in list(model.named_modules()):
        if not isinstance(module, nn.Linear) or not _is_of_torchao(module.weight):
            continue
        weight = module.weight
        if (packed := _packed(weight)) is not None:
            made: nn.Module = QuantizedLinear(packed, module.bias, weight.dtype)
            packed_count += 1
        else:
            made = _Unwrapped(module)
            unwrapped_count += 1
        replace(model, name, made)
    lines = []
    if packed_count:
        lines.append(f"weights: {counted(packed_count, 'matrix', 'matrices')} of torchao's, packed")
    if unwrapped_count:
        lines.append(f"weights: {counted(unwrapped_count, 'linear layer')} of torchao's, with its arithmetic")
    return lines


def _is_of_torchao(weight: Any) -> bool:
    return type(weight).__module__.startswith("torchao.") and is_traceable_wrapper_subclass(weight)


def _packed(weight: Any) -> Packed | None:
    """Of int8 codes with a scale and a zero for each group of a row, and inputs as they are: ``(q - zero) * scale``."""
    parts: list[Any] = [getattr(weight, name, None) for name in ("qdata", "scale", "zero_point")]
    codes, scales, zeros = parts
    plain = all(
        getattr(weight, name, None) is None
        for name in ("act_quant_kwargs", "act_quant_scale", "activation_quantization")
    )
    if not plain or not all(isinstance(each, torch.Tensor) and each.dim() == 2 for each in (codes, scales)):
        return None
    (rows, columns), groups = codes.shape, scales.shape[1]
    if codes.dtype != torch.int8 or scales.shape[0] != rows or columns % groups or columns // groups % 8:
        return None
    bits = 4 if str(getattr(weight, "target_dtype", None)) == "torch.int4" else 8
    in_groups = codes.reshape(rows, groups, -1)
    if zeros is None or not zeros.any():
        return stored_codes.pack(in_groups.view(torch.uint8) & ((1 << bits) - 1), scales, bits)
    if zeros.shape != scales.shape:
        return None
    offset = 1 << (bits - 1)
    minimums = (zeros.float() + offset) * -scales.float()
    return stored_codes.pack((in_groups.short() + offset).to(torch.uint8), scales, bits, minimums)
