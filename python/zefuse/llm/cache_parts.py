"""What is kept of a layer's keys and values: rows as the model computes them, or codes of eight bits with scales.

``cache="int8"``: a row of keys or values (one head's, of one token) is ``q * scale + offset``, q from -128 to 127, so that the codes
reach from the row's least number to its largest. Scale and offset are f32, beside each other: a row of 64 takes 72 bytes, 256 in f32.
Without the offset the few large numbers of a key, which all have one sign, take half the codes away from the others: SmolLM2's logits
were off by 2.1 %, with it by 1.3. A row is quantized by itself, once, when it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from zefuse.llm.operators import multiply_add

FORMATS = ("int8",)
_SCALE = torch.float32


@dataclass(frozen=True)
class Part:
    """One of the tensors [batch, heads, tokens, width] that a layer's cache consists of."""

    name: str
    width: int
    dtype: torch.dtype


@dataclass(frozen=True)
class LayerShape:
    """What one layer writes for a token. ``dtype``: of what it computes."""

    key_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    format: str | None = None  # one of FORMATS; None: as it is

    @classmethod
    def of(cls, keys: torch.Tensor, values: torch.Tensor, format: str | None = None) -> LayerShape:
        return cls(int(keys.shape[1]), int(keys.shape[3]), int(values.shape[3]), keys.dtype, format)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Keys, values, then what else they need."""
        dtype = self.dtype if self.format is None else torch.int8
        rows = Part("key", self.key_dim, dtype), Part("value", self.value_dim, dtype)
        return rows if self.format is None else (*rows, Part("key_scale", 2, _SCALE), Part("value_scale", 2, _SCALE))

    @property
    def bytes_of_a_token(self) -> int:
        return sum(self.key_heads * part.width * part.dtype.itemsize for part in self.parts)


def count(format: str | None) -> int:
    return 2 if format is None else 4


def written(keys: torch.Tensor, values: torch.Tensor, format: str | None) -> list[torch.Tensor]:
    """New rows, as ``LayerShape.parts`` are."""
    if format is None:
        return [keys, values]
    (key_codes, key_scales), (value_codes, value_scales) = _codes(keys), _codes(values)
    return [key_codes, value_codes, key_scales, value_scales]


def read(parts: Sequence[torch.Tensor], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values, as attention takes them."""
    if len(parts) == 2:
        return parts[0], parts[1]
    keys, values, key_scales, value_scales = parts
    return _numbers(keys, key_scales).to(dtype), _numbers(values, value_scales).to(dtype)


def _codes(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = rows.float()
    least = rows.amin(-1, keepdim=True)
    scales = (rows.amax(-1, keepdim=True) - least) / 255
    divisors = torch.where(scales == 0, 1, scales)  # a row of equal numbers: its offset is each of them
    codes = (((rows - least) / divisors).round() - 128).clamp(-128, 127).to(torch.int8)
    return codes, torch.cat((scales, least + 128 * scales), -1)


def _numbers(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return multiply_add(codes.float(), scales[..., :1], scales[..., 1:])
