"""Operators of our own for graphs of language models."""

from __future__ import annotations

from typing import Any

import torch

_library: Any = torch.library.Library("zefuse_llm", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define("multiply_add(Tensor a, Tensor b, Tensor c) -> Tensor")
_library.impl("multiply_add", lambda a, b, c: a * b + c, "CompositeExplicitAutograd")
torch.library.register_fake("zefuse_llm::multiply_add", lambda a, b, c: a * b + c, lib=_library)


def multiply_add(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """``a * b + c`` of f32, broadcast; compiled it is one instruction, which rounds once."""
    result: torch.Tensor = torch.ops.zefuse_llm.multiply_add(a, b, c)
    return result
