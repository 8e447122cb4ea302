"""ATen's products with weights of 8 and 4 bits, which torchao's weight-only modules and torch's own quantization call.

A single row is multiplied by the codes, which become numbers in registers; several rows by a dequantized matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def decompositions() -> dict[Any, Callable[..., Any]]:
    return {
        aten._int_mm.default: _int8_by_int8,
        aten._weight_int8pack_mm.default: _int8,
        aten._weight_int4pack_mm_for_cpu.default: _int4,
    }


def _is_row(x: torch.Tensor) -> bool:
    return isinstance(x.shape[0], int) and x.shape[0] == 1


def _int8(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """``x`` [M, K] times int8 rows [N, K], of which each has a scale."""
    if _is_row(x):
        return ((x.float() * weight.float()).sum(1) * scales.float()).to(x.dtype).unsqueeze(0)
    return aten.mm(x, weight.to(x.dtype).t()) * scales


_EXACT = 1024  # products of two int8 whose sums f32 holds exactly: 2^14 each, of 2^24


def _int8_by_int8(a: torch.Tensor, b: torch.Tensor) -> Any:
    """int8 [M, K] times int8 [K, N], in i32, exactly."""
    depth = a.shape[1]
    if _is_row(a):
        return (a.reshape(-1, 1).to(torch.int32) * b.to(torch.int32)).sum(0, dtype=torch.int32).unsqueeze(0)
    if not isinstance(depth, int):
        return NotImplemented
    made: Any = torch.zeros((a.shape[0], b.shape[1]), dtype=torch.int32, device=a.device)
    for first in range(0, depth, _EXACT):
        part = aten.mm(a[:, first : first + _EXACT].float(), b[first : first + _EXACT].float()).to(torch.int32)
        made = part if first == 0 else made + part
    return made


def _int4(x: torch.Tensor, packed: torch.Tensor, group: int, scales_and_zeros: torch.Tensor) -> Any:
    """``x`` [M, K] times rows of ``(q - 8) * scale + zero``; scales and zeros [K / group, N, 2].

    The packed form depends on the vectors of the CPU that packed it, which is this one.
    """
    block = _BLOCKS.get(torch.backends.cpu.get_cpu_capability())
    rows, groups = packed.shape[0], scales_and_zeros.shape[0]
    if block is None or rows % block:
        return NotImplemented
    # [blocks, K, bytes]: byte d has row d in its low bits, row d + half a block in its high ones.
    lanes = packed.reshape(-1, groups, group, block // 2)
    codes = torch.stack((lanes & 15, lanes >> 4), 3).float() - 8
    codes = codes.reshape(-1, groups, group, block)
    pairs = (
        scales_and_zeros.float().reshape(groups, 1, -1, block, 2).permute(2, 0, 1, 3, 4)
    )  # [blocks, groups, 1, block, 2]
    if _is_row(x):
        row = x.float().reshape(groups, group, 1)
        sums = (codes * row).sum(2) * pairs[:, :, 0, :, 0] + row.sum(1) * pairs[:, :, 0, :, 1]
        return sums.sum(1).reshape(1, -1).to(x.dtype)
    matrix = (codes * pairs[..., 0] + pairs[..., 1]).permute(0, 3, 1, 2).reshape(rows, -1)
    return aten.mm(x, matrix.to(x.dtype).t())


_BLOCKS = {"AVX2": 32, "AVX512": 64}  # rows that ATen packs together
