"""ATen's products with packed weights, against eager's."""

from __future__ import annotations

import pytest
import torch

import zefuse

_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3}


def _compare(product: object, *inputs: torch.Tensor) -> None:
    expected = product(*inputs)  # type: ignore[operator]
    made = torch.compile(product, backend="zefuse", options={"strict": True})(*inputs)  # type: ignore[call-overload]
    assert made.dtype == expected.dtype
    tolerance = _TOLERANCE[expected.dtype]
    scale = expected.float().abs().max()
    torch.testing.assert_close(made.float() / scale, expected.float() / scale, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize("rows", [1, 5])
def test_int8(rows: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    weight = torch.randint(-128, 128, (48, 96), dtype=torch.int8, generator=draw)
    scales = torch.rand(48, generator=draw).to(dtype)
    _compare(torch.ops.aten._weight_int8pack_mm, torch.randn(rows, 96, generator=draw).to(dtype), weight, scales)


@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("group", [32, 64])
def test_int4(group: int, rows: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 16, (128, 256), dtype=torch.int32, generator=draw)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 8)
    scales_and_zeros = torch.randn(256 // group, 128, 2, generator=draw).to(dtype)

    def product(x: torch.Tensor, packed: torch.Tensor, scales_and_zeros: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, group, scales_and_zeros)

    _compare(product, torch.randn(rows, 256, generator=draw).to(dtype), packed, scales_and_zeros)


def test_rows_that_are_not_packed_together_are_atens() -> None:
    draw = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 16, (48, 64), dtype=torch.int32, generator=draw)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 8)
    inputs = torch.randn(2, 64, generator=draw), packed, torch.randn(2, 48, 2, generator=draw)

    def product(x: torch.Tensor, packed: torch.Tensor, scales_and_zeros: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, 32, scales_and_zeros)

    explanation = zefuse.explain(product, *inputs)
    assert [entry["op"] for entry in explanation.fallbacks] == ["aten::_weight_int4pack_mm_for_cpu"]
    made = torch.compile(product, backend="zefuse")(*inputs)
    torch.testing.assert_close(made, product(*inputs))
