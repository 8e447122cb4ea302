"""torch.set_float32_matmul_precision("medium"): products of f32 may be of bf16."""

from __future__ import annotations

from pathlib import Path

import torch


def test_medium_precision_permits_products_of_bf16(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    x, weight = torch.randn(64, 128, generator=draw), torch.randn(256, 128, generator=draw)
    before = torch.get_float32_matmul_precision()
    compiled = torch.compile(torch.nn.functional.linear, backend="zefuse", options={"dump_dir": str(tmp_path)})
    try:
        torch.set_float32_matmul_precision("highest")
        exact = compiled(x, weight)
        torch.set_float32_matmul_precision("medium")
        made = compiled(x, weight)
    finally:
        torch.set_float32_matmul_precision(before)
    expected = x.double() @ weight.t().double()
    assert (exact - expected).norm() < 1e-6 * expected.norm()
    assert (made - expected).norm() < 4e-3 * expected.norm()
    assert sorted("bf16_math" in plan.read_text() for plan in tmp_path.rglob("plan.json")) == [False, True]
