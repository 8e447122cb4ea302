"""What quantizing by export (PT2E) leaves in a graph: ``quantized_decomposed``'s steps between numbers and their codes.

The library defines them when ``torch.ao.quantization.fx._decomposed`` is imported, which whoever has such a graph has done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def decompositions() -> dict[Any, Callable[..., Any]]:
    ops = torch.ops.quantized_decomposed
    found: dict[Any, Callable[..., Any]] = {}
    for name, function in (
        ("quantize_per_tensor", _quantize), ("dequantize_per_tensor", _dequantize), ("quantize_per_channel", _quantize_channels),
        ("dequantize_per_channel", _dequantize_channels), ("quantize_per_token", _quantize_tokens),
        ("dequantize_per_token", _dequantize_tokens), ("choose_qparams", _choose), ("choose_qparams_symmetric", _choose_symmetric),
    ):  # fmt: skip
        packet = getattr(ops, name, None)
        for overload in () if packet is None else packet.overloads():
            if not overload.endswith("out"):
                found[getattr(packet, overload)] = function
    return found


def _codes(scaled: torch.Tensor, zero: Any, low: Any, high: Any, dtype: torch.dtype) -> torch.Tensor:
    return (scaled.round() + zero).clamp(low, high).to(dtype)


def _number(value: Any) -> Any:
    """A scale that is a tensor of f64, as eager's arithmetic has it where it is a number: in f32."""
    return value.float() if isinstance(value, torch.Tensor) else value


def _choose(x: torch.Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The scale (f64 [1]) and zero point (i64 [1]) by which codes reach from ``x``'s least number, or 0, to its largest, or 0."""
    least, most = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = ((most - least) / float(high - low)).float().clamp(min=eps)
    zero = (low - torch.round(least / scale).to(torch.int64)).clamp(low, high)
    return scale.double().reshape(1), zero.reshape(1)


def _choose_symmetric(
    x: torch.Tensor, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """As ``_choose``, with the same reach on both sides of 0."""
    most = torch.maximum(-x.amin(), x.amax()).clamp(min=0)
    scale = (most / (float(high - low) / 2)).float().clamp(min=eps)
    zero = torch.full((1,), 128 if dtype == torch.uint8 else 0, dtype=torch.int64, device=x.device)
    return scale.double().reshape(1), zero


def _quantize(x: torch.Tensor, scale: Any, zero: Any, low: Any, high: Any, dtype: torch.dtype) -> torch.Tensor:
    return _codes(x.float() * _number(1.0 / scale), zero, low, high, dtype)


def _dequantize(
    codes: torch.Tensor, scale: Any, zero: Any, low: Any, high: Any, dtype: torch.dtype, *, out_dtype: Any = None
) -> torch.Tensor:
    return ((codes.float() - zero) * _number(scale)).to(torch.float32 if out_dtype is None else out_dtype)


def _along(values: torch.Tensor, x: torch.Tensor, axis: int) -> torch.Tensor:
    return values.reshape([-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())])


def _quantize_channels(
    x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, axis: int, low: int, high: int, dtype: torch.dtype
) -> torch.Tensor:
    return _codes(x.float() * _along(1.0 / scales, x, axis), _along(zeros, x, axis), low, high, dtype)


def _dequantize_channels(
    codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, axis: int, low: int, high: int, dtype: torch.dtype,
    *, out_dtype: Any = None,
) -> torch.Tensor:  # fmt: skip
    values = codes.float()
    if zeros is not None:
        values = values - _along(zeros, codes, axis)
    return (values * _along(scales, codes, axis)).to(torch.float32 if out_dtype is None else out_dtype)


def _quantize_tokens(
    x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, low: int, high: int, dtype: torch.dtype
) -> torch.Tensor:
    return _codes(x.float() * (1.0 / scales), zeros, low, high, dtype)


def _dequantize_tokens(
    codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, low: int, high: int, dtype: torch.dtype,
    output_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:  # fmt: skip
    return ((codes.float() - zeros) * scales).to(output_dtype)
