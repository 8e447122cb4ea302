"""Operators of our own for graphs of language models."""

from __future__ import annotations

from typing import Any

import torch

_library: Any = torch.library.Library("zefuse_llm", "FRAGMENT")  # type: ignore[no-untyped-call]


def _define(schema: str, eager: Any) -> None:
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, eager, "CompositeExplicitAutograd")
    torch.library.register_fake(f"zefuse_llm::{name}", eager, lib=_library)


def _dot4(a: torch.Tensor, b: torch.Tensor, sum: torch.Tensor) -> torch.Tensor:
    for byte in range(4):
        sum = sum + ((a >> 8 * byte) & 255) * ((b << 24 - 8 * byte) >> 24)
    return sum


_define("multiply_add(Tensor a, Tensor b, Tensor c) -> Tensor", lambda a, b, c: a * b + c)
_define("dot4(Tensor a, Tensor b, Tensor sum) -> Tensor", _dot4)


def _pack4(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    return (a & 255) | ((b & 255) << 8) | ((c & 255) << 16) | (d << 24)


_define("pack4(Tensor a, Tensor b, Tensor c, Tensor d) -> Tensor", _pack4)
_define(
    "linear_bf16(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    lambda input, weight, bias=None: torch.nn.functional.linear(input, weight, bias),
)


def multiply_add(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """``a * b + c`` of f32, broadcast; compiled it is one instruction, which rounds once."""
    result: torch.Tensor = torch.ops.zefuse_llm.multiply_add(a, b, c)
    return result


def dot4(a: torch.Tensor, b: torch.Tensor, sum: torch.Tensor) -> torch.Tensor:
    """``sum`` and the products of the four bytes of ``a``, without a sign, and of ``b``, with one. Of i32, broadcast, modulo 2^32.

    Compiled it is one instruction where the device has one: VNNI's vpdpbusd, dp4a.
    """
    result: torch.Tensor = torch.ops.zefuse_llm.dot4(a, b, sum)
    return result


def pack4(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    """The lowest bytes of four i32, ``a``'s the lowest of the result."""
    result: torch.Tensor = torch.ops.zefuse_llm.pack4(a, b, c, d)
    return result


def linear_bf16(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``torch.nn.functional.linear`` of f32. Compiled, the device may round both operands of the product to bf16, and does where that
    is faster (a CPU with AMX); sums are f32."""
    result: torch.Tensor = torch.ops.zefuse_llm.linear_bf16(input, weight, bias)
    return result
