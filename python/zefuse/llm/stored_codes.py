"""Codes of a file, one in a byte, as a packed matrix. Nothing is rounded."""

from __future__ import annotations

import math

import torch

from zefuse.llm.packing import CHUNK, Packed


def pack(codes: torch.Tensor, scales: torch.Tensor, bits: int, minimums: torch.Tensor | None = None) -> Packed:
    """``codes``: uint8 [rows, groups, group], of 4 or 8 ``bits``: without ``minimums`` two's complement of as many bits, with them
    without a sign. ``scales``, ``minimums``: [rows, groups]. The group is a multiple of 8."""
    group = codes.shape[2]
    chunk = math.gcd(group, CHUNK)
    halves = codes.unflatten(2, (group // chunk, 8 // bits, -1))  # type: ignore[no-untyped-call]
    packed = halves.squeeze(3) if bits == 8 else halves[:, :, :, 0] | halves[:, :, :, 1] << 4
    return Packed.of_rows(packed.contiguous().view(torch.int32), scales, bits, minimums)
