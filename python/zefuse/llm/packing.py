"""Quantized weights: how a matrix becomes 8 or 4 bits for each weight, with a scale for each group of a row.

A weight is ``q * scale``. ``int8``: q from -127 to 127. ``int4``: q from -8 to 7, two in a byte: the first half of a group in the
low bits, the second half in the high ones. (GGUF's Q4_0 has them so, but for the highest bit of each q.) Scales are bf16; q is
chosen for the scale as it was rounded.

Sixteen rows lie together, their codes of one column beside each other: a vector's lanes are rows. So a product with a vector reads
memory from one end to the other, adds up rows without adding up lanes, and takes a scale once for each vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from zefuse.llm.operators import multiply_add

FORMATS = ("int8", "int4")
BLOCK = 16  # rows


@dataclass
class Packed:
    """A matrix of ``rows`` x ``columns``; the rows after the last one are zeros."""

    codes: torch.Tensor  # int8 [blocks, groups, group, BLOCK]; half as many of a group where two are in a byte
    scales: torch.Tensor  # [blocks, groups, BLOCK]
    bits: int
    rows: int

    @property
    def group(self) -> int:
        return self.codes.shape[2] * (2 if self.bits == 4 else 1)

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
    rows, columns = matrix.shape
    blocks, groups = -(-rows // BLOCK), columns // group
    codes = torch.empty((blocks, groups, group // 2 if weights == "int4" else group, BLOCK), dtype=torch.int8)
    scales = torch.empty((blocks, groups, BLOCK), dtype=torch.bfloat16)
    step = max(1, (1 << 22) // (columns * BLOCK))
    for first in range(0, blocks, step):
        part = matrix[first * BLOCK : (first + step) * BLOCK].float()
        part = torch.nn.functional.pad(part, (0, 0, 0, -len(part) % BLOCK))
        made = _int8(part.reshape(-1, groups, group)) if weights == "int8" else _int4(part.reshape(-1, groups, group))
        for whole, rows_of in zip((codes, scales), made, strict=True):
            whole[first : first + step] = rows_of.reshape(-1, BLOCK, *rows_of.shape[1:]).movedim(1, -1)
    return Packed(codes, scales, int(weights[3:]), rows)


def _int8(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # Rounded up, so that the largest weight is within 127 scales.
    scales = _bf16_away_from_zero(groups.abs().amax(2) / 127)
    return _codes(groups, scales).clamp(-127, 127).to(torch.int8), scales


def _int4(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # The weight of the largest magnitude is -8 scales: one code more on its side.
    largest = groups.gather(2, groups.abs().argmax(2, keepdim=True)).squeeze(2)
    scales = (largest / -8).to(torch.bfloat16)
    low, high = _codes(groups, scales).clamp(-8, 7).to(torch.int8).chunk(2, 2)
    return (low & 15) | (high << 4), scales


def _codes(groups: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    divisors = torch.where(scales == 0, 1, scales.float())  # a group of zeros
    return (groups / divisors.unsqueeze(2)).round()


def _bf16_away_from_zero(numbers: torch.Tensor) -> torch.Tensor:
    rounded = numbers.to(torch.bfloat16)
    return torch.where(rounded.float() < numbers, torch.nextafter(rounded, rounded.new_tensor(float("inf"))), rounded)


def unpack(packed: Packed) -> torch.Tensor:
    """The matrix in f32. Written so that compiled it is one loop over the codes."""
    values = packed.codes.float() if packed.bits == 8 else torch.cat(_halves(packed.codes), 2)
    values = values * packed.scales.float().unsqueeze(2)
    return values.permute(0, 3, 1, 2).reshape(-1, packed.columns)[: packed.rows]


def unpack_rows(packed: Packed, rows: torch.Tensor) -> torch.Tensor:
    """Rows of the matrix in f32, by their numbers [n]."""
    block, lane = rows // BLOCK, rows % BLOCK
    codes, scales = packed.codes[block, :, :, lane], packed.scales[block, :, lane]
    values = codes.float() if packed.bits == 8 else torch.cat(_halves(codes), 2)
    return (values * scales.float().unsqueeze(2)).reshape(-1, packed.columns)


def times_row(packed: Packed, row: torch.Tensor) -> torch.Tensor:
    """The matrix times a vector of f32: what compiled is one loop over the codes, dequantized in registers."""
    blocks, groups, steps, _ = packed.codes.shape
    # A few products are added up before the scale: it is multiplied once, and one sum is no long chain of additions.
    together = 4 if packed.bits == 8 else 2
    while steps % together:
        together //= 2
    codes = packed.codes.reshape(blocks, groups, -1, together, BLOCK)
    parts = row.reshape(groups, 8 // packed.bits, -1, together, 1)
    sums = None
    for number in range(together):
        code = codes[:, :, :, number]
        for half, values in enumerate((code.float(),) if packed.bits == 8 else _halves(code)):
            part = parts[:, half, :, number]
            sums = values * part if sums is None else multiply_add(values, part, sums)
    assert sums is not None
    return (sums * packed.scales.float().unsqueeze(2)).sum((1, 2)).reshape(-1)[: packed.rows]


def _halves(codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each byte the low four bits and the high ones, with their sign. Widened first: one instruction for both."""
    wide = codes.to(torch.int32)
    return ((wide << 28) >> 28).float(), (wide >> 4).float()
