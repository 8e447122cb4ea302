"""Operators of our own for graphs of language models."""

from __future__ import annotations

from typing import Any

import torch

_library: Any = torch.library.Library("zefuse_llm", "FRAGMENT")  # type: ignore[no-untyped-call]


def _define(schema: str, eager: Any, fake: Any = None) -> None:
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, eager, "CompositeExplicitAutograd")
    torch.library.register_fake(f"zefuse_llm::{name}", fake or eager, lib=_library)


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


def _group_index(offsets: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("zefuse_llm::group_index stands for a number in compiled graphs")


_define(
    "group_index(Tensor offsets) -> Tensor",
    _group_index,
    lambda offsets: offsets.new_empty((), dtype=torch.int64),
)


def _grouped_linear(
    input: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor, index: torch.Tensor | None, bf16: bool
) -> torch.Tensor:
    if index is not None:
        _group_index(offsets)
    result = input.new_zeros((input.shape[0], weight.shape[-2]))
    first = 0
    for group, end in enumerate(offsets.tolist()):
        if end > first:
            result[first:end] = torch.nn.functional.linear(input[first:end], weight[group])
        first = end
    return result


_define(
    "grouped_linear(Tensor input, Tensor weight, Tensor offsets, Tensor? index, bool bf16) -> Tensor",
    _grouped_linear,
    lambda input, weight, offsets, index, bf16: input.new_empty((input.shape[0], weight.shape[-2])),
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


def group_index(offsets: torch.Tensor) -> torch.Tensor:
    """In a graph that is traced: the number of a group of ``offsets``, i64, of which a group's matrix is made for ``grouped_linear``."""
    result: torch.Tensor = torch.ops.zefuse_llm.group_index(offsets)
    return result


def grouped_linear(
    input: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    index: torch.Tensor | None = None,
    bf16: bool = False,
) -> torch.Tensor:
    """Groups of ``input``'s rows, each times the transpose of a matrix of its own.

    ``offsets``, i32, ascending: where each group's rows end, of which the last is how many rows there are. ``weight``: [groups, N, K]; or
    [N, K], which was made of ``index``, a ``group_index``: compiled, one after the other, of groups that have rows. ``bf16``: as
    ``linear_bf16``, for f32.
    """
    result: torch.Tensor = torch.ops.zefuse_llm.grouped_linear(input, weight, offsets, index, bf16)
    return result
