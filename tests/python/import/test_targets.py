"""Stage 1 is the same for every target; what each makes of it is stage 2's first step (docs/ir.md, zefuse.alternatives)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_graph import graph_of

from zefuse import _native
from zefuse.graphs.for_target import for_host, for_product
from zefuse.options import Options

# pvc computes in f64 and has a matrix engine, dg2-g11 has the engine alone, tgllp neither.
GPUS = ("dg2-g11", "pvc", "tgllp")


def random(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(sizes).to(dtype)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def attend_masked(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def attention_gradient(q: torch.Tensor, out: torch.Tensor, log_sum: torch.Tensor) -> tuple[torch.Tensor, ...]:
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return backward(out * 2, q, q + 1, q + 2, out, log_sum, 0.0, False)


def convolve(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, w, padding=1)


def heads(size: int, dtype: torch.dtype = torch.float32, rows: int = 6) -> list[torch.Tensor]:
    return [random(1, 2, rows, size, dtype=dtype) for _ in range(3)]


def gradient_of(size: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [random(1, 2, 16, size, dtype=dtype), random(1, 2, 16, size, dtype=dtype), random(1, 2, 16)]


CASES: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "matmul_f32": (torch.matmul, [random(8, 16), random(16, 4)]),
    "matmul_f16": (torch.matmul, [random(8, 16, dtype=torch.float16), random(16, 4, dtype=torch.float16)]),
    "matmul_bf16": (torch.matmul, [random(8, 16, dtype=torch.bfloat16), random(16, 4, dtype=torch.bfloat16)]),
    "large_matmul_f16": (torch.matmul, [random(128, 128, dtype=torch.float16), random(128, 128, dtype=torch.float16)]),
    "matmul_f64": (torch.matmul, [random(8, 16, dtype=torch.float64), random(16, 4, dtype=torch.float64)]),
    "large_matmul_f64": (torch.matmul, [random(128, 128, dtype=torch.float64), random(128, 128, dtype=torch.float64)]),
    "matmul_i8": (torch.matmul, [torch.ones(8, 16, dtype=torch.int8), torch.ones(16, 4, dtype=torch.int8)]),
    "linear_f16": (torch.nn.functional.linear, [random(2, 3, 8).half(), random(4, 8).half(), random(4).half()]),
    "long_product": (torch.addmm, [random(40), random(48, 16384), random(16384, 40)]),
    "convolution": (convolve, [random(1, 512, 7, 7), random(512, 512, 3, 3)]),
    "convolution_f16": (convolve, [random(1, 4, 7, 7).half(), random(4, 4, 3, 3).half()]),
    "attention": (attend, heads(64)),
    "attention_of_many_keys": (attend, heads(64, rows=256)),
    "attention_f16": (attend, heads(64, torch.float16)),
    "attention_of_large_heads": (attend, heads(1024)),
    "attention_with_mask": (attend_masked, [random(1, 2, 6, 64), random(6, 6)]),
    "attention_f64": (attend, heads(64, torch.float64)),
    "gradient": (attention_gradient, gradient_of(64)),
    "gradient_f16": (attention_gradient, gradient_of(64, torch.float16)),
    "gradient_of_large_heads": (attention_gradient, gradient_of(1024)),
    "running_sum": (lambda x: torch.cumsum(x, 1), [random(6, 9)]),
    "common_divisor": (torch.gcd, [torch.arange(12, dtype=torch.int32), torch.arange(12, dtype=torch.int32).flip(0)]),
}


def stages(function: Any, inputs: list[torch.Tensor], target: str, folder: Path, dynamic: bool = False) -> list[str]:
    """Stage 1 as imported, and as stage 2 begins."""
    options = Options(dump_dir=str(folder / target), cache_dir="")
    wanted = for_host(options).to_dict() if target == "cpu" else for_product(options, target)
    graph = graph_of(function, inputs, dynamic)
    _native.load().compile_plan(graph, [], wanted)
    newest = max((folder / target).iterdir(), key=lambda each: int(each.name.removeprefix("graph_")))
    legal = newest / "2_split_products.mlir"  # for targets with products as kernels
    if not legal.exists():
        legal = newest / "2_legalized.mlir"
    return [(newest / "1_imported.mlir").read_text(), legal.read_text()]


@pytest.mark.parametrize("name", CASES)
def test_stage_one_knows_no_target(name: str, tmp_path: Path) -> None:
    function, inputs = CASES[name]
    imported, legal = stages(function, inputs, "cpu", tmp_path)
    assert "zefuse.alternatives" not in legal
    for target in GPUS:
        for_gpu, legal = stages(function, inputs, target, tmp_path)
        assert for_gpu == imported, target
        assert "zefuse.alternatives" not in legal, target


def legalized(name: str, target: str, folder: Path) -> str:
    function, inputs = CASES[name]
    return stages(function, inputs, target, folder)[1]


def operations(text: str) -> list[str]:
    return re.findall(r"= zefuse\.(attention_gradient|attention|matmul|convolution|aten|scan)\b", text)


@pytest.mark.parametrize("name", ["matmul_f16", "linear_f16"])
def test_small_half_precision_products_are_for_all(name: str, tmp_path: Path) -> None:
    for target in ("cpu", "dg2-g11"):
        assert operations(legalized(name, target, tmp_path)) == ["matmul"], target


@pytest.mark.parametrize("name", ["matmul_f64", "matmul_i8"])
def test_what_the_library_does_not_multiply_is_for_the_cpu(name: str, tmp_path: Path) -> None:
    assert operations(legalized(name, "cpu", tmp_path)) == ["matmul"]
    for target in GPUS:
        text = legalized(name, target, tmp_path)
        assert operations(text) == ["aten"], target
        assert f'reason = "aten::mm: matrix product of {name.removeprefix("matmul_")} is not lowered"' in text


def test_large_products_that_eager_multiplies_sooner(tmp_path: Path) -> None:
    text = legalized("large_matmul_f64", "cpu", tmp_path)
    assert operations(text) == ["aten"]
    assert "aten::mm: matrix product of f64: eager's library is quicker with 2097152 multiplications" in text
    for target in ("cpu", "dg2-g11"):  # the CPU's library widens f16 where the processor has none
        assert operations(legalized("large_matmul_f16", target, tmp_path)) == ["matmul"]
    assert "matrix product of f64 is not lowered" in legalized("large_matmul_f64", "pvc", tmp_path)


def test_half_precision_convolutions_are_for_all(tmp_path: Path) -> None:
    for target in ("cpu", "dg2-g11"):
        assert "aten" not in operations(legalized("convolution_f16", target, tmp_path)), target


@pytest.mark.parametrize("name", ["attention_f16", "gradient_f16"])
def test_half_precision_attention_is_for_gpus(name: str, tmp_path: Path) -> None:
    cpu = legalized(name, "cpu", tmp_path)
    assert operations(cpu) == ["aten"]
    assert re.search(r'reason = "aten::\w+: matrix product of f16 is not lowered"', cpu)
    assert "aten" not in operations(legalized(name, "dg2-g11", tmp_path))


def test_what_no_target_lowers_runs_in_aten(tmp_path: Path) -> None:
    for target in ("cpu", *GPUS):
        text = legalized("attention_f64", target, tmp_path)
        assert operations(text) == ["aten"], target
        assert "matrix product of f64 is not lowered" in text


def test_long_sums_are_cut_where_tiles_are_few(tmp_path: Path) -> None:
    assert "k in " not in legalized("long_product", "cpu", tmp_path)
    assert "k in 64 slices" in legalized("long_product", "dg2-g11", tmp_path)
    assert "slices = 16" in legalized("convolution", "dg2-g11", tmp_path)
    assert "k in " not in legalized("matmul_f32", "dg2-g11", tmp_path)


def test_attention_is_what_the_target_has(tmp_path: Path) -> None:
    assert operations(legalized("attention", "cpu", tmp_path)) == ["matmul", "matmul"]  # too few scores to pay
    library = legalized("attention_of_many_keys", "cpu", tmp_path)
    assert operations(library) == ["attention"]
    assert operations(legalized("attention", "dg2-g11", tmp_path)) == ["attention"]
    refused = legalized("attention_of_large_heads", "dg2-g11", tmp_path)
    assert operations(refused) == ["matmul", "matmul"]
    reason = "attention without a kernel of its own: heads of 1024 and 1024 elements do not fit into local memory"
    assert refused.count(f'zefuse.note = "{reason}') == 1
    assert "zefuse.note" not in legalized("attention_of_large_heads", "cpu", tmp_path)


def test_derivatives_of_attention_are_what_the_target_has(tmp_path: Path) -> None:
    assert operations(legalized("gradient", "cpu", tmp_path)) == ["matmul"] * 5
    assert operations(legalized("gradient", "dg2-g11", tmp_path)) == ["attention_gradient"] * 2
    refused = legalized("gradient_of_large_heads", "dg2-g11", tmp_path)
    assert operations(refused) == ["matmul"] * 5
    reason = "attention's derivative without kernels of its own: heads of 1024 and 1024 elements do not fit into"
    assert refused.count(reason) == 1


def test_unknown_head_sizes_are_said_on_gpus(tmp_path: Path) -> None:
    inputs = [random(1, 2, 6, size) for size in (32, 32, 32)]
    for target, said in (("cpu", 0), ("dg2-g11", 1)):
        imported, legal = stages(attend, inputs, target, tmp_path, dynamic=True)
        assert "zefuse.attention" in imported
        assert operations(legal) == ["matmul", "matmul"]
        assert legal.count("attention without a kernel of its own: the sizes of a head must be known") == said


def test_sums_run_in_double_precision_where_there_is_one(tmp_path: Path) -> None:
    for target, wide in (("cpu", True), ("pvc", True), ("dg2-g11", False)):
        assert ("f64" in legalized("running_sum", target, tmp_path)) == wide, target
        assert ("f64" in legalized("common_divisor", target, tmp_path)) == wide, target


def test_views_of_what_only_a_call_knows(tmp_path: Path) -> None:
    def beyond(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x, (2, 2), (x.shape[0] // 2, 1)) * 2

    texts = {target: stages(beyond, [random(9)], target, tmp_path, dynamic=True) for target in ("cpu", "dg2-g11")}
    assert texts["cpu"][0] == texts["dg2-g11"][0]
    assert operations(texts["cpu"][1]) == []
    assert operations(texts["dg2-g11"][1]) == ["aten"]
    assert "reaches beyond" not in texts["dg2-g11"][1]
    assert "may reach beyond its source is not lowered for a GPU" in texts["dg2-g11"][1]
