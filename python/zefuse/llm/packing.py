"""Quantized weights: how a matrix becomes 8 or 4 bits for each weight, with a scale for each group of a row.

A weight is ``q * scale``. ``int8``: q from -127 to 127. ``int4``: q from -8 to 7, two in a byte: of 32 columns (or what the group
has of them) the first half in the low bits, the second half in the high ones. (GGUF's Q4_0 has them so, but for the highest bit of
each q.) Scales are bf16; q is chosen for the scale as it was rounded. Files have other scales, and matrices whose weights are
``q * scale + minimum``, with q from 0 on.

Sixteen rows lie together, their codes of the same columns beside each other: a vector's lanes are rows. So a product with a vector
reads memory from one end to the other, adds up rows without adding up lanes, and takes a scale once for each vector. What lies
beside each other is a word of 32 bits, four bytes of neighbouring columns: what a dot product of integers takes. Or (``by_bytes``)
a byte, of one column: eight bits of it become a number in fewer steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from zefuse.llm.operators import dot4, multiply_add, pack4

FORMATS = ("int8", "int4")
BLOCK = 16  # rows
CHUNK = 32  # columns, at most, whose halves share the bytes of int4


@dataclass
class Packed:
    """A matrix of ``rows`` x ``columns``; the rows after the last one are zeros."""

    codes: torch.Tensor  # int32 [blocks, groups, chunks of a group, words of a chunk, BLOCK]; int8: bytes of a chunk
    scales: torch.Tensor  # [blocks, groups, BLOCK]
    bits: int
    rows: int
    minimums: torch.Tensor | None = None  # as the scales; with them the codes have no sign

    @classmethod
    def of_rows(
        cls, codes: torch.Tensor, scales: torch.Tensor, bits: int, minimums: torch.Tensor | None = None
    ) -> Packed:
        """Of codes [rows, groups, chunks of a group, words of a chunk], scales and minimums [rows, groups]."""

        def together(tensor: torch.Tensor) -> torch.Tensor:
            beyond = tensor.new_zeros((-len(tensor) % BLOCK, *tensor.shape[1:]))
            whole = torch.cat((tensor, beyond)) if len(beyond) else tensor
            return whole.reshape(-1, BLOCK, *tensor.shape[1:]).movedim(1, -1).contiguous()

        return cls(
            together(codes), together(scales), bits, len(codes), None if minimums is None else together(minimums)
        )

    @classmethod
    def joined(cls, rows: int, parts: Iterable[Packed]) -> Packed:
        """Of ``rows`` rows, in parts of whole blocks of them. Beside the result there is memory for one part at a time."""
        whole: list[torch.Tensor] = []
        at = 0
        for part in parts:
            tensors = [each for each in (part.codes, part.scales, part.minimums) if each is not None]
            whole = whole or [each.new_empty((-(-rows // BLOCK), *each.shape[1:])) for each in tensors]
            for tensor, of_part in zip(whole, tensors, strict=True):
                tensor[at : at + len(of_part)] = of_part
            at += len(part.codes)
        return cls(whole[0], whole[1], part.bits, rows, *whole[2:])

    def by_bytes(self) -> Packed:
        """Of eight bits, without minimums."""
        bytes_of_words = self.by_words().codes.unsqueeze(-1).view(torch.int8).transpose(-1, -2)
        return replace(self, codes=bytes_of_words.flatten(3, 4).contiguous())

    def by_words(self) -> Packed:
        if self.codes.dtype == torch.int32:
            return self
        bytes_of_words = self.codes.unflatten(3, (-1, 4)).transpose(-1, -2).contiguous()  # type: ignore[no-untyped-call]
        return replace(self, codes=bytes_of_words.view(torch.int32).squeeze(-1))

    @property
    def chunk(self) -> int:
        return self.codes.shape[3] * self.codes.element_size() * 8 // self.bits

    @property
    def group(self) -> int:
        return self.codes.shape[2] * self.chunk

    @property
    def columns(self) -> int:
        return self.codes.shape[1] * self.group

    def bytes(self) -> int:
        tensors = (self.codes, self.scales, self.minimums)
        return sum(each.numel() * each.element_size() for each in tensors if each is not None)


def why_not(columns: int, group: int) -> str | None:
    if columns % group:
        return f"its {columns} columns are no multiple of the group's {group}"
    return None


def pack(matrix: torch.Tensor, weights: str, group: int) -> Packed:
    """Quantizes a matrix [rows, columns], a few rows at a time, so that little memory is needed beside the result.

    ``group``: a multiple of 8 that divides the columns.
    """
    rows, columns = matrix.shape
    bits = int(weights[3:])
    blocks, groups, chunk = -(-rows // BLOCK), columns // group, math.gcd(group, CHUNK)
    device = matrix.device
    codes = torch.empty((blocks, groups, group // chunk, chunk * bits // 32, BLOCK), dtype=torch.int32, device=device)
    scales = torch.empty((blocks, groups, BLOCK), dtype=torch.bfloat16, device=device)
    step = max(1, (1 << 22) // (columns * BLOCK))
    for first in range(0, blocks, step):
        part = matrix[first * BLOCK : (first + step) * BLOCK].float()
        part = torch.nn.functional.pad(part, (0, 0, 0, -len(part) % BLOCK)).reshape(-1, groups, group)
        made, scales_of = _int8(part) if bits == 8 else _int4(part)
        made = made.reshape(*made.shape[:2], group // chunk, 8 // bits, -1)
        packed = made.squeeze(3) if bits == 8 else (made[:, :, :, 0] & 15) | (made[:, :, :, 1] << 4)
        for whole, rows_of in ((codes, packed.contiguous().view(torch.int32)), (scales, scales_of)):
            whole[first : first + step] = rows_of.reshape(-1, BLOCK, *rows_of.shape[1:]).movedim(1, -1)
    return Packed(codes, scales, bits, rows)


def _int8(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # Rounded up, so that the largest weight is within 127 scales.
    scales = _bf16_away_from_zero(groups.abs().amax(2) / 127)
    return _codes(groups, scales).clamp(-127, 127).to(torch.int8), scales


def _int4(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # The weight of the largest magnitude is -8 scales: one code more on its side.
    largest = groups.gather(2, groups.abs().argmax(2, keepdim=True)).squeeze(2)
    scales = (largest / -8).to(torch.bfloat16)
    return _codes(groups, scales).clamp(-8, 7).to(torch.int8), scales


def _codes(groups: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    divisors = torch.where(scales == 0, 1, scales.float())  # a group of zeros
    return (groups / divisors.unsqueeze(2)).round()


def _bf16_away_from_zero(numbers: torch.Tensor) -> torch.Tensor:
    rounded = numbers.to(torch.bfloat16)
    return torch.where(rounded.float() < numbers, torch.nextafter(rounded, rounded.new_tensor(float("inf"))), rounded)


def unpack(packed: Packed, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The matrix, computed in f32. Written so that compiled it is one loop over its elements, as the codes have them: the dtype is
    made before they are put in order."""
    values = _values(packed, packed.codes) * packed.scales.float()[:, :, None, None, None, None]
    if packed.minimums is not None:
        values = values + packed.minimums.float()[:, :, None, None, None, None]
    return values.to(dtype).permute(0, 6, 1, 2, 3, 4, 5).reshape(-1, packed.columns)[: packed.rows]


def unpack_rows(packed: Packed, rows: torch.Tensor) -> torch.Tensor:
    """Rows of the matrix in f32, by their numbers [n]."""
    block, lane = rows // BLOCK, rows % BLOCK
    codes, scales = packed.codes[block, :, :, :, lane], packed.scales[block, :, lane]
    values = _values(packed, codes) * scales.float()[:, :, None, None, None, None]
    if packed.minimums is not None:
        values = values + packed.minimums[block, :, lane].float()[:, :, None, None, None, None]
    return values.reshape(-1, packed.columns)


def _values(packed: Packed, codes: torch.Tensor) -> torch.Tensor:
    """[.., groups, chunks, words, ..] to [.., groups, chunks, halves of a chunk, words, bytes, ..]: the columns in order."""
    if codes.dtype == torch.int8:
        return codes.unflatten(3, (-1, 4)).unsqueeze(3).float()  # type: ignore[no-untyped-call]
    after, bits = codes.dim() - 4, packed.bits
    byte = torch.arange(4, dtype=torch.int32, device=codes.device).reshape(4, *(1,) * after)
    half = torch.arange(8 // bits, dtype=torch.int32, device=codes.device).reshape(-1, *(1,) * (after + 2))
    place = 8 * byte + 4 * half
    wide = codes.unsqueeze(3).unsqueeze(5)
    if packed.minimums is not None:
        return ((wide >> place) & ((1 << bits) - 1)).float()
    return ((wide << (32 - bits - place)) >> (32 - bits)).float()


def times_row(packed: Packed, row: torch.Tensor) -> torch.Tensor:
    """The matrix times a vector of f32: what compiled is one loop over the words, dequantized in registers.

    ``row``: [columns], or [blocks, columns], a vector for each block of rows.
    """
    codes, scales, minimums = _by_chunk(packed)
    parts = row.reshape(*row.shape[:-1], codes.shape[1], 8 // packed.bits, -1, 4, 1)
    # A word's products are added up before the scale: it is multiplied once, and one sum is no long chain of additions.
    sums = None
    for half in range(8 // packed.bits):
        for byte in range(4):
            values, part = _numbers(packed, codes, byte, half), parts[..., half, :, byte, :]
            sums = values * part if sums is None else multiply_add(values, part, sums)
    assert sums is not None
    sums = sums * scales.unsqueeze(2)
    if minimums is not None:
        sums = multiply_add(parts.sum((-4, -2)), minimums.unsqueeze(2), sums)
    return sums.sum((1, 2)).reshape(-1)[: packed.rows]


def _by_chunk(packed: Packed) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Codes [blocks, chunks, words or bytes, BLOCK], scales and minimums in f32 [blocks, chunks, BLOCK]."""
    chunks = packed.codes.shape[2]

    def repeated(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.float().unsqueeze(2).expand(-1, -1, chunks, -1).flatten(1, 2)

    minimums = packed.minimums
    return packed.codes.flatten(1, 2), repeated(packed.scales), None if minimums is None else repeated(minimums)


def _numbers(packed: Packed, codes: torch.Tensor, byte: int, half: int) -> torch.Tensor:
    """The codes of each word's byte, or of half of it, in f32."""
    bits = packed.bits
    if codes.dtype == torch.int8:
        return codes.unflatten(2, (-1, 4))[:, :, :, byte].float()  # type: ignore[no-untyped-call]
    place = 8 * byte + 4 * half
    if packed.minimums is not None:
        return ((codes >> place if place else codes) & ((1 << bits) - 1)).float()
    left = 32 - bits - place
    return ((codes << left if left else codes) >> (32 - bits)).float()


@dataclass
class QuantizedRow:
    """A vector whose chunks have a scale each: ``q * scale`` with q from -127 to 127. Or one for each block of a matrix' rows."""

    words: torch.Tensor  # int32 [.., chunks, chunk / 4], four q each
    totals: torch.Tensor  # int32 [.., chunks]: the sum of a chunk's q
    scales: torch.Tensor  # f32 [.., chunks]


_LEAST = 1e-30  # the largest number of a chunk that is not taken for zeros: 127 of its inverse is finite


def quantize_row(row: torch.Tensor, chunk: int) -> QuantizedRow:
    """A vector of f32, in 8 bits. Not-a-number and infinity make not-a-number of their chunk."""
    chunks = row.reshape(-1, chunk)
    largest = chunks.abs().amax(1)
    inverse = torch.where(largest < _LEAST, 0.0, 127 / largest)
    codes = (chunks * inverse.unsqueeze(1)).round().to(torch.int32)
    totals = codes.sum(1, dtype=torch.int32)  # before the words, which fusion joins with all that reads the codes
    words = pack4(*(codes[:, byte::4] for byte in range(4)))
    return QuantizedRow(words, totals, largest * (1 / 127))


def times_quantized_row(packed: Packed, row: QuantizedRow) -> torch.Tensor:
    """The matrix times a vector, both in integers, exactly but for the scales: a loop of dot products. Of words."""
    codes, scales, minimums = _by_chunk(packed)
    words = codes.shape[2]
    totals, scales_of_row = row.totals.unsqueeze(-1), row.scales.unsqueeze(-1)
    # A dot product takes codes without a sign: plus 8 or 128, which the first sum takes back.
    sums = totals * -(1 << (packed.bits - 1)) if minimums is None else torch.zeros_like(totals)
    for number in range(words):
        word = codes[:, :, number]
        for half in range(8 // packed.bits):
            part = word if packed.bits == 8 else (word >> 4 * half if half else word) & 0x0F0F0F0F
            if minimums is None:
                part = part ^ (0x08080808 if packed.bits == 4 else 0x80808080 - (1 << 32))
            sums = dot4(part, row.words[..., half * words + number, None], sums)
    made = sums.float() * scales_of_row * scales
    if minimums is not None:
        made = multiply_add(totals.float() * scales_of_row, minimums, made)
    return made.sum(1).reshape(-1)[: packed.rows]
