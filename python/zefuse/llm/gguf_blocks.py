"""GGUF's blocks as packed matrices: the same codes in another order, with the scales of the file. Nothing is rounded.

https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h has the blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from zefuse.llm.gguf_file import TYPES
from zefuse.llm.packing import Packed

_Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]  # bytes [rows, groups, ...], scales, minimums


def _f16(blocks: torch.Tensor, at: int) -> torch.Tensor:
    return blocks[..., at : at + 2].contiguous().view(torch.float16).squeeze(-1)


def _q4_0(blocks: torch.Tensor) -> _Parts:
    return blocks[..., 2:] ^ 0x88, _f16(blocks, 0), None  # q + 8 in four bits is q with its sign turned


def _q4_1(blocks: torch.Tensor) -> _Parts:
    return blocks[..., 4:], _f16(blocks, 0), _f16(blocks, 2)


def _q8_0(blocks: torch.Tensor) -> _Parts:
    return blocks[..., 2:], _f16(blocks, 0), None


def _q4_k(blocks: torch.Tensor) -> _Parts:
    # Eight groups of 32, scales and minimums of six bits each, in multiples of the block's own. The products are exact in f32.
    packed = blocks[..., 4:16]
    low, middle, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = torch.cat((low & 63, (high & 15) | (low >> 6) << 4), -1)
    minimums = torch.cat((middle & 63, (high >> 4) | (middle >> 6) << 4), -1)
    scales = scales.float() * _f16(blocks, 0).float().unsqueeze(-1)
    minimums = minimums.float() * -_f16(blocks, 2).float().unsqueeze(-1)
    # 32 bytes hold two groups, one in the low bits, the other in the high ones; here a group has 16 bytes of its own.
    pairs = blocks[..., 16:].unflatten(-1, (4, 32))  # type: ignore[no-untyped-call]
    codes = torch.stack((pairs & 15, pairs >> 4), -2)  # [rows, blocks, 4, 2, 32]
    codes = codes[..., :16] | codes[..., 16:] << 4
    return codes.flatten(1, 3), scales.flatten(1), minimums.flatten(1)


_KINDS: dict[str, tuple[int, Callable[[torch.Tensor], _Parts]]] = {  # bits
    "Q4_0": (4, _q4_0), "Q4_1": (4, _q4_1), "Q8_0": (8, _q8_0), "Q4_K": (4, _q4_k),
}  # fmt: skip
_SIZES = {name: size for name, _, size in TYPES.values()}  # bytes of a block


def is_known(kind: str) -> bool:
    return kind in _KINDS


def pack(kind: str, data: torch.Tensor, order: torch.Tensor | None = None) -> Packed:
    """``data``: a matrix's blocks as bytes, uint8 [rows, bytes of a row]; ``order``: which row of it each row is."""
    bits, parts_of = _KINDS[kind]
    size = _SIZES[kind]
    rows = data if order is None else data[order]
    codes, scales, minimums = parts_of(rows.unflatten(1, (-1, size)))  # type: ignore[no-untyped-call]
    words = codes.contiguous().view(torch.int32)
    return Packed.of_rows(words.unsqueeze(2), scales, bits, minimums)
