"""Convolutions of models quantized by export: one call of the codes each, against eager's own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from quantized_layer import QuantizedLayer, assert_near, aten, explained, kinds, made_in_part
from torch import nn

import zefuse


class _Convolution(QuantizedLayer):
    def __init__(
        self, shape: tuple[int, ...], *, spatial: int = 2, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(shape, 2000, **options)
        self.geometry = [stride] * spatial, [padding] * spatial, [dilation] * spatial, groups
        self.convolution = getattr(aten, f"conv{spatial}d").default

    def product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self.convolution(x, weight, self.bias, *self.geometry)


_CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "codes": ((24, 16, 3, 3), {"padding": 1, "relu": True}),
    "numbers": ((24, 16, 3, 3), {"padding": 1, "relu": True, "result": None}),
    "zero_point": ((8, 3, 5, 5), {"zero": 121, "padding": 2, "stride": 2, "result_zero": 130}),
    "signed": ((16, 8, 3, 3), {"dtype": torch.int8, "zero": -7, "result": torch.int8, "relu": True, "result_zero": 3}),
    "residual": ((16, 16, 1, 1), {"residual": True, "relu": True, "bias": False}),
    "residual_of_numbers": ((16, 16, 1, 1), {"residual": True, "result": None}),
    "depthwise": ((16, 1, 3, 3), {"groups": 16, "padding": 1, "relu": True}),
    "groups": ((12, 4, 3, 3), {"groups": 2, "dilation": 2, "zero": 5, "padding": 1}),
    "one_dimension": ((8, 6, 3), {"spatial": 1, "padding": 1}),
    "three_dimensions": ((8, 4, 3, 3, 3), {"spatial": 3, "zero": 9, "padding": 1}),
}


@pytest.mark.parametrize("name", _CASES)
def test_codes_are_eagers_to_one_step(name: str) -> None:
    shape, options = _CASES[name]
    model = _Convolution(shape, **options).eval()
    draw = torch.Generator().manual_seed(1)
    spatial = len(shape) - 2
    x = torch.randn(2, shape[1] * options.get("groups", 1), *[11 - spatial] * spatial, generator=draw)
    with torch.no_grad():
        sizes = _Convolution(shape, **{**options, "residual": False}).eval()(x, x).shape
        more = torch.randn(sizes, generator=draw)
        expected = model(x, more.clone())
    explanation = explained(model, x, more.clone())
    assert kinds(explanation) == ["int8 convolution"]
    assert_near(explanation.result, expected)


def test_sums_of_the_largest_codes() -> None:
    """Pairs of products that 16 bits do not hold. (Without VNNI the sums are f32's.)"""
    model = _Convolution((16, 512, 3, 3), result=None, bias=False).eval()
    model.codes.fill_(127)
    x = torch.full((1, 512, 4, 4), 100.0)  # codes of 255
    explanation = explained(model, x, x)
    assert kinds(explanation) == ["int8 convolution"]
    expected = 512 * 9 * 255 * 127 * 0.015 * model.scales
    torch.testing.assert_close(explanation.result, expected.reshape(1, -1, 1, 1).expand(1, -1, 2, 2), rtol=1e-4, atol=0)


def test_what_stays_a_convolution_of_numbers() -> None:
    x = torch.randn(1, 4, 5, 5)
    asymmetric = _Convolution((4, 4, 3, 3), weight_zero=3).eval()
    assert kinds(explained(asymmetric, x, x)) == ["convolution"]
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(asymmetric, backend="zefuse")(x, x), asymmetric(x, x), rtol=0, atol=1)
    trained = _Convolution((4, 4, 3, 3), result=None).eval()
    trained.bias = nn.Parameter(torch.zeros(4))
    torch._dynamo.reset()
    torch.compile(trained, backend="zefuse")(x, x).sum().backward()
    assert trained.bias.grad is not None


def test_zero_points_that_change_are_an_error() -> None:
    model = _Convolution((4, 4, 3, 3)).eval()
    x = torch.randn(1, 4, 5, 5)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="zefuse")
    with torch.no_grad():
        compiled(x, x)
        model.zeros[2] = 1
        with pytest.raises(ValueError, match="zero points of a quantized layer's weights were 0"):
            compiled(x, x)


def test_any_size_of_image_and_batch() -> None:
    model = _Convolution((8, 4, 3, 3), padding=1, zero=7, relu=True).eval()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="zefuse", dynamic=True)
    with torch.no_grad():
        for sizes in ((2, 4, 9, 7), (3, 4, 6, 12)):
            x = torch.randn(sizes)
            difference = (compiled(x, x).float() - model(x, x).float()).abs()
            assert difference.max() <= 1 and difference.mean() < 0.01


@pytest.mark.parametrize("name", ["residual", "signed"])
def test_a_part_in_eager(name: str) -> None:
    shape, options = _CASES[name]
    model = _Convolution(shape, **options).eval()
    x, more = torch.randn(1, shape[1], 5, 5), torch.randn(1, shape[0], 5, 5)
    made = made_in_part(model, x, more.clone())
    with torch.no_grad():
        assert (made.float() - model(x, more.clone()).float()).abs().max() <= 1


def test_a_package(tmp_path: Path) -> None:
    model = _Convolution((24, 16, 3, 3), padding=1, relu=True, zero=7).eval()
    x = torch.randn(2, 16, 9, 9)
    explanation = zefuse.compile_package(torch.export.export(model, (x, x)), tmp_path / "model.zefuse", standalone=True)
    assert kinds(explanation) == ["int8 convolution"]
    made = zefuse.load(tmp_path / "model.zefuse")(x, x)
    with torch.no_grad():
        assert (made.float() - model(x, x).float()).abs().max() <= 1
