"""A layer as a graph quantized by export has it (codes, numbers, the layer, what follows, codes), and how its result is judged."""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # defines quantized_decomposed
from torch import nn

import zefuse
from zefuse.decompositions import quantized_graphs
from zefuse.explaining.explanation import Explanation

ops, aten = torch.ops.quantized_decomposed, torch.ops.aten
RANGES = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
SCALE = 0.02  # of the codes that a layer makes


class QuantizedLayer(nn.Module):
    """``shape``: of the weight, whose scales are ``finest`` times as fine. Subclasses say what is computed of inputs and weight."""

    def __init__(
        self, shape: tuple[int, ...], finest: int, *, dtype: torch.dtype = torch.uint8, zero: int = 0, bias: bool = True,
        residual: bool = False, relu: bool = False, result: torch.dtype | None = torch.uint8, result_zero: int = 0, weight_zero: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.register_buffer("codes", torch.randint(-127, 128, shape, dtype=torch.int8, generator=draw))
        self.register_buffer("scales", torch.rand(shape[0], generator=draw) / finest + 0.0001)
        self.register_buffer("zeros", torch.full((shape[0],), weight_zero))
        self.bias = torch.rand(shape[0], generator=draw) - 0.5 if bias else None
        self.of_input = (0.015, zero, *RANGES[dtype], dtype)
        self.of_result = None if result is None else (SCALE, result_zero, *RANGES[result], result)
        self.residual, self.relu = residual, relu

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        codes = ops.quantize_per_tensor.default(x, *self.of_input)
        return ops.dequantize_per_tensor.default(codes, *self.of_input)

    def product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def forward(self, x: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
        rounded = self.rounded(x)
        weight = ops.dequantize_per_channel.default(self.codes, self.scales, self.zeros, 0, -128, 127, torch.int8)
        y = self.product(rounded, weight)
        if self.residual:
            y = aten.add_.Tensor(y, more)
        if self.relu:
            y = aten.relu_.default(y)
        return y if self.of_result is None else ops.quantize_per_tensor.default(y, *self.of_result)


def explained(model: nn.Module, *inputs: torch.Tensor) -> Explanation:
    torch._dynamo.reset()
    with torch.no_grad():
        return zefuse.explain(model, *inputs)


def kinds(explanation: Explanation) -> list[str]:
    assert explanation.fallbacks == []
    return [call["kind"] for call in explanation.calls]


def assert_near(made: Any, expected: torch.Tensor) -> None:
    """Numbers within rounding, codes within one step; and codes that tell something."""
    assert made.dtype == expected.dtype and made.shape == expected.shape
    if expected.dtype == torch.float32:
        torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-4)
        return
    difference = (made.float() - expected.float()).abs()
    assert difference.max() <= 1 and difference.mean() < 0.01
    low, high = RANGES[expected.dtype]
    assert expected.float().std() > 5 and ((expected > low) & (expected < high)).float().mean() > 0.25


def made_in_part(model: nn.Module, *inputs: torch.Tensor) -> Any:
    """What the model gives when the only part of its graph that is computed otherwise is the layer, in eager."""
    taken: list[bool] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        made = quantized_graphs.taken(gm, example_inputs)
        taken.append(made is not gm)
        return made

    torch._dynamo.reset()
    with torch.no_grad():
        made = torch.compile(model, backend=backend)(*inputs)
    assert taken == [True]
    return made
