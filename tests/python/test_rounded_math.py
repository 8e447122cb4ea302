"""On a GPU, functions whose results are rounded to bf16 or f16 come of the device's own instructions (lowering/rounded_math.h).

Every value of the type is tried: the error stays below that of a second rounding, and special values stay what they are. The CPU
that poses as a GPU computes those instructions exactly, so what is tested here is the formulas.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import children
import pytest
import torch
from torch.nn import functional

import zefuse

Function = Callable[[torch.Tensor], torch.Tensor]
FUNCTIONS: dict[str, Function] = {
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "gelu of tanh": lambda x: functional.gelu(x, approximate="tanh"),
}
HALVES = [torch.bfloat16, torch.float16]
ABSOLUTE = 2.0**-21  # of gelu's factor, 1 + erf or 1 + tanh, as f32's own sum has 2^-24


def every_value(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)


def check(name: str, dtype: torch.dtype, x: torch.Tensor, actual: torch.Tensor) -> None:
    exact = FUNCTIONS[name](x.double())
    finite = torch.isfinite(exact) & (exact.abs() < torch.finfo(dtype).max)
    ulp = torch.finfo(dtype).eps
    least = 2.0**-120 if dtype == torch.bfloat16 else 2.0**-24
    bound = 0.51 * ulp * exact.abs() + least
    if name.startswith("gelu"):
        bound += ABSOLUTE * x.double().abs()
    off = ((actual.double() - exact).abs() > bound) & finite
    assert not off.any(), (x[off][:5], actual[off][:5], exact[off][:5])
    assert torch.equal(actual.isnan(), exact.isnan())
    assert torch.equal(actual[x == 0].signbit(), FUNCTIONS[name](x[x == 0]).signbit())


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_value(name: str, dtype: torch.dtype) -> None:
    x = every_value(dtype)
    explanation = zefuse.explain(FUNCTIONS[name], x, options={"device": "gpu:0"})
    assert not explanation.fallbacks
    check(name, dtype, x, explanation.result)


OF_NVIDIA = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch, zefuse
from test_rounded_math import FUNCTIONS, check, every_value
for name in ("tanh", "silu", "gelu of tanh"):
    x = every_value(torch.bfloat16)
    explanation = zefuse.explain(FUNCTIONS[name], x, options={{"device": "gpu:0"}})
    assert not explanation.fallbacks and explanation.kernels[0]["target"] == "sm_90"
    check(name, torch.bfloat16, x, explanation.result)
"""


def test_functions_that_one_device_has() -> None:
    """tanh of bf16 is an instruction there, which the posing CPU's reader of SPIR-V must know."""
    child = children.run(OF_NVIDIA, env={**os.environ, "ZEFUSE_GPU_TARGET": "sm_90"})
    assert child.returncode == 0, child.stderr


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_quotients_of_16_bits_are_rounded_at_each_step(dtype: torch.dtype) -> None:
    """As eager's kernels do unless the divisor is one number: -3.5 / 0.7002 is -4.9986, whose nearest f16 is -5."""

    def quotients(x: torch.Tensor, y: torch.Tensor, one: torch.Tensor) -> list[torch.Tensor]:
        pairs = [(x, y), (x, 0.1), (3, x), (x, one), (one, x)]
        modes = ("floor", "trunc")
        return [torch.div(torch.as_tensor(a), b, rounding_mode=mode) for a, b in pairs for mode in modes] + [
            x // y,
            7 // x,
        ]

    x = torch.arange(-32768, 32768).to(torch.int16).view(dtype)  # every number
    y = ((torch.arange(65536) % 39 + 1) * 0.1).to(dtype)
    for one in (torch.tensor(0.3, dtype=dtype), torch.tensor([0.3], dtype=dtype)):
        torch._dynamo.reset()
        compiled = torch.compile(quotients, backend="zefuse")
        for actual, expected in zip(compiled(x, y, one), quotients(x, y, one), strict=True):
            assert torch.equal(actual.nan_to_num(0.5), expected.nan_to_num(0.5))
