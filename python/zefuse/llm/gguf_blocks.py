"""GGUF's blocks as packed matrices: the same codes in another order, with the scales of the file. Nothing is rounded.

Codes of 2 and 3 bits become 4, of 5 and 6 bits 8.

https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h has the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from zefuse.llm import stored_codes
from zefuse.llm.gguf_file import TYPES
from zefuse.llm.packing import BLOCK, Packed

# Codes, scales and minimums [rows, groups]. Codes as packed bytes [rows, groups, bytes], or each in a byte [rows, groups, group].
_Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


def _f16(blocks: torch.Tensor, at: int) -> torch.Tensor:
    return blocks[..., at : at + 2].contiguous().view(torch.float16).squeeze(-1)


def _q4_0(blocks: torch.Tensor) -> _Parts:
    return blocks[..., 2:] ^ 0x88, _f16(blocks, 0), None  # q + 8 in four bits is q with its sign turned


def _q4_1(blocks: torch.Tensor) -> _Parts:
    return blocks[..., 4:], _f16(blocks, 0), _f16(blocks, 2)


def _q8_0(blocks: torch.Tensor) -> _Parts:
    return blocks[..., 2:], _f16(blocks, 0), None


def _scales_of_k(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of a block of eight groups of 32: six bits each, in multiples of the block's own. The products are exact in f32."""
    packed = blocks[..., 4:16]
    low, middle, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = torch.cat((low & 63, (high & 15) | (low >> 6) << 4), -1)
    minimums = torch.cat((middle & 63, (high >> 4) | (middle >> 6) << 4), -1)
    scales = scales.float() * _f16(blocks, 0).float().unsqueeze(-1)
    minimums = minimums.float() * -_f16(blocks, 2).float().unsqueeze(-1)
    return scales.flatten(1), minimums.flatten(1)


def _nibbles_of_k(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """32 bytes hold two groups, one in the low bits, the other in the high ones: [rows, blocks, 4, 2, 32]."""
    pairs = blocks[..., at : at + 128].unflatten(-1, (4, 32))  # type: ignore[no-untyped-call]
    return torch.stack((pairs & 15, pairs >> 4), -2)


def _q4_k(blocks: torch.Tensor) -> _Parts:
    codes = _nibbles_of_k(blocks, 16)
    codes = codes[..., :16] | codes[..., 16:] << 4  # here a group has 16 bytes of its own
    return codes.flatten(1, 3), *_scales_of_k(blocks)


def _q5_k(blocks: torch.Tensor) -> _Parts:
    codes = (
        _nibbles_of_k(blocks, 48).flatten(2, 3) | _bits(blocks[..., 16:48], 1) << 4
    )  # bit n of 32 bytes is group n's
    return codes.flatten(1, 2), *_scales_of_k(blocks)


def _bits(data: torch.Tensor, count: int) -> torch.Tensor:
    """Bytes [.., n] to [.., 8 / count, n]: the lowest ``count`` bits of each, then the next."""
    return torch.stack([(data >> place) & ((1 << count) - 1) for place in range(0, 8, count)], -2)


def _fifth_bit(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """Of 32 codes in 4 bytes, as 16."""
    return _bits(blocks[..., at : at + 4], 1).transpose(-1, -2).flatten(-2) << 4


def _q5_0(blocks: torch.Tensor) -> _Parts:
    codes = _bits(blocks[..., 6:], 4).flatten(-2) | _fifth_bit(blocks, 2)
    return codes - 16, _f16(blocks, 0), None


def _q5_1(blocks: torch.Tensor) -> _Parts:
    return _bits(blocks[..., 8:], 4).flatten(-2) | _fifth_bit(blocks, 4), _f16(blocks, 0), _f16(blocks, 2)


def _two_bits(data: torch.Tensor) -> torch.Tensor:
    """64 bytes of codes to [rows, blocks, 256]: each 32 bytes have 128, those of the lowest bits first."""
    return _bits(data.unflatten(-1, (2, 32)), 2).flatten(-3)  # type: ignore[no-untyped-call]


def _in_sixteens(codes: torch.Tensor) -> torch.Tensor:
    return codes.unflatten(-1, (16, 16)).flatten(1, 2)  # type: ignore[no-untyped-call]


def _q2_k(blocks: torch.Tensor) -> _Parts:
    scales = (blocks[..., :16] & 15).float() * _f16(blocks, 80).float().unsqueeze(-1)
    minimums = (blocks[..., :16] >> 4).float() * -_f16(blocks, 82).float().unsqueeze(-1)
    return _in_sixteens(_two_bits(blocks[..., 16:80])), scales.flatten(1), minimums.flatten(1)


def _q3_k(blocks: torch.Tensor) -> _Parts:
    packed = blocks[..., 96:108]
    scales = _bits(packed[..., :8], 4).flatten(-2) | _bits(packed[..., 8:], 2).flatten(-2) << 4
    scales = (scales.float() - 32) * _f16(blocks, 108).float().unsqueeze(-1)
    codes = _two_bits(blocks[..., 32:96]) | _bits(blocks[..., :32], 1).flatten(-2) << 2
    return _in_sixteens((codes - 4) & 15), scales.flatten(1), None


def _q6_k(blocks: torch.Tensor) -> _Parts:
    low = _bits(blocks[..., :128].unflatten(-1, (2, 64)), 4).flatten(-3)  # type: ignore[no-untyped-call]
    codes = low | _two_bits(blocks[..., 128:192]) << 4
    scales = blocks[..., 192:208].contiguous().view(torch.int8).float() * _f16(blocks, 208).float().unsqueeze(-1)
    return _in_sixteens(codes - 32), scales.flatten(1), None


_KINDS: dict[str, tuple[int, bool, Callable[[torch.Tensor], _Parts]]] = {  # bits, and whether each code comes in a byte
    "Q4_0": (4, False, _q4_0), "Q4_1": (4, False, _q4_1), "Q4_K": (4, False, _q4_k), "Q8_0": (8, False, _q8_0),
    "Q2_K": (4, True, _q2_k), "Q3_K": (4, True, _q3_k), "Q5_0": (8, True, _q5_0), "Q5_1": (8, True, _q5_1),
    "Q5_K": (8, True, _q5_k), "Q6_K": (8, True, _q6_k),
}  # fmt: skip
_PART = 2 << 20  # bytes of a file that are packed at a time
_SIZES = {name: size for name, _, size in TYPES.values()}  # bytes of a block


def is_known(kind: str) -> bool:
    return kind in _KINDS


def pack(kind: str, data: np.ndarray[Any, Any], order: np.ndarray[Any, Any] | None = None) -> Packed:
    """``data``: a matrix's blocks as bytes, uint8 [rows, bytes of a row], which may be a mapped file; ``order``: which row of it each
    row is. Some rows at a time, so that little memory is needed beside the result."""
    step = max(1, _PART // (BLOCK * data.shape[1])) * BLOCK
    starts = range(0, len(data), step)
    if order is None:
        parts = (data[first : first + step] for first in starts)
    else:
        parts = (data[order[first : first + step]] for first in starts)
    return Packed.joined(len(data), (_pack(kind, torch.tensor(part)) for part in parts))


def _pack(kind: str, rows: torch.Tensor) -> Packed:
    bits, one_in_a_byte, parts_of = _KINDS[kind]
    codes, scales, minimums = parts_of(rows.unflatten(1, (-1, _SIZES[kind])))  # type: ignore[no-untyped-call]
    if one_in_a_byte:
        return stored_codes.pack(codes, scales, bits, minimums)
    words = codes.contiguous().view(torch.int32)
    return Packed.of_rows(words.unsqueeze(2), scales, bits, minimums)
