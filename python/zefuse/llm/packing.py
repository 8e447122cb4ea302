"""Quantized weights: how a matrix becomes 8 or 4 bits for each weight, with a scale for each group of a row.

A weight is ``q * scale``. ``int8``: q from -127 to 127. ``int4``: q from -8 to 7, two in a byte: the first half of a group in the
low bits, the second half in the high ones. (GGUF's Q4_0 has them so, but for the highest bit of each q.) Scales are bf16; q is
chosen for the scale as it was rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

FORMATS = ("int8", "int4")


@dataclass
class Packed:
    """A matrix of ``rows`` x ``columns``."""

    codes: torch.Tensor  # int8 [rows, groups, group], or half as many bytes
    scales: torch.Tensor  # [rows, groups]
    bits: int

    @property
    def group(self) -> int:
        return self.codes.shape[2] * (2 if self.bits == 4 else 1)

    @property
    def rows(self) -> int:
        return self.codes.shape[0]

    @property
    def columns(self) -> int:
        return self.codes.shape[1] * self.group

    def bytes(self) -> int:
        return sum(each.numel() * each.element_size() for each in (self.codes, self.scales))


def why_not(columns: int, group: int) -> str | None:
    if columns % group:
        return f"its {columns} columns are no multiple of the group's {group}"
    return None


def pack(matrix: torch.Tensor, weights: str, group: int) -> Packed:
    """Quantizes a matrix [rows, columns], a few rows at a time, so that little memory is needed beside the result."""
    columns = matrix.shape[1]
    step = max(1, (1 << 22) // columns)
    parts = [_packed(part.float().reshape(-1, columns // group, group), weights) for part in torch.split(matrix, step)]
    codes = torch.cat([part.codes for part in parts])
    return Packed(codes, torch.cat([part.scales for part in parts]), parts[0].bits)


def _packed(groups: torch.Tensor, weights: str) -> Packed:
    if weights == "int8":
        # Rounded up, so that the largest weight is within 127 scales.
        scales = _bf16_away_from_zero(groups.abs().amax(2) / 127)
        return Packed(_codes(groups, scales).clamp(-127, 127).to(torch.int8), scales, 8)
    # The weight of the largest magnitude is -8 scales: one code more on its side.
    largest = groups.gather(2, groups.abs().argmax(2, keepdim=True)).squeeze(2)
    scales = (largest / -8).to(torch.bfloat16)
    low, high = _codes(groups, scales).clamp(-8, 7).to(torch.int8).chunk(2, 2)
    return Packed((low & 15) | (high << 4), scales, 4)


def _codes(groups: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    divisors = torch.where(scales == 0, 1, scales.float())  # a group of zeros
    return (groups / divisors.unsqueeze(2)).round()


def _bf16_away_from_zero(numbers: torch.Tensor) -> torch.Tensor:
    rounded = numbers.to(torch.bfloat16)
    return torch.where(rounded.float() < numbers, torch.nextafter(rounded, rounded.new_tensor(float("inf"))), rounded)


def unpack(packed: Packed) -> torch.Tensor:
    """The matrix in f32. Written so that compiled it is one loop over the codes."""
    if packed.bits == 8:
        values = packed.codes.float()
    else:
        values = torch.cat(_halves(packed.codes), 2)
    return (values * packed.scales.float().unsqueeze(2)).reshape(packed.rows, packed.columns)


def times_row(packed: Packed, row: torch.Tensor) -> torch.Tensor:
    """The matrix times a vector of f32: what compiled is one loop over the codes, dequantized in registers."""
    groups, scales = packed.codes.shape[1], packed.scales.float().unsqueeze(2)
    if packed.bits == 8:
        products = packed.codes.float() * row.reshape(groups, -1)
    else:
        (low, high), parts = _halves(packed.codes), row.reshape(groups, 2, -1)
        products = low * parts[:, 0] + high * parts[:, 1]
    return (products * scales).sum((1, 2))


def _halves(codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each byte the low four bits and the high ones, with their sign. Widened first: one instruction for both."""
    wide = codes.to(torch.int32)
    return ((wide << 28) >> 28).float(), (wide >> 4).float()
