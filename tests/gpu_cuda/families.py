"""On a machine with a GPU and zefuse's wheel: a kernel of each family on it (tests/unit/lowering/gpu_kernels.cpp has the same
names), results and gradients against eager on the CPU.

    families.py [--small] [--placed] [NAME ...]

--small takes sizes that a sanitizer of the GPU's toolkit gets through, --placed CUDA tensors, which are computed where they lie.
Prints a line for each; the last one sums up. Status 1 where a result is wrong or an operator ran elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as nn

import zefuse

OPTIONS = {"device": os.environ.get("ZEFUSE_CHECK_DEVICE", "gpu:0"), "cache_dir": ""}
# Of the largest value of a tensor: what sums in another order and one rounding of the result may differ by.
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 3e-3}
Family = Callable[[int], tuple[Callable[..., torch.Tensor], list[torch.Tensor]]]  # of the divisor of sizes


def random(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(sizes).to(dtype)


def pointwise(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Family:
    def function(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * y + b) * torch.sigmoid(x)

    return lambda less: (
        function,
        [
            random(rows // less, columns, dtype=dtype),
            random(rows // less, columns, dtype=dtype),
            random(columns, dtype=dtype),
        ],
    )


def softmax(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Family:
    return lambda less: (lambda x: torch.softmax(x * 2, -1), [random(rows // less, columns, dtype=dtype)])


def norm(function: Callable[..., torch.Tensor], rows: int, columns: int) -> Family:
    return lambda less: (function, [random(rows // less, columns), random(columns), random(columns)])


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return nn.layer_norm(x, x.shape[-1:], w, b)


def rms_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return nn.rms_norm(x + b, x.shape[-1:], w)


def product(m: int, k: int, n: int, dtype: torch.dtype = torch.float32) -> Family:
    return lambda less: (
        torch.matmul,
        [
            random(max(1, m // less), k // less, dtype=dtype) / k**0.5,
            random(k // less, n // less, dtype=dtype),
        ],
    )


def linear(dtype: torch.dtype) -> Family:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return nn.gelu(nn.linear(x, w, b)) + residual

    return lambda less: (
        function,
        [
            random(512 // less, 768 // less, dtype=dtype) / 28,
            random(3072 // less, 768 // less, dtype=dtype),
            random(3072 // less, dtype=dtype),
            random(512 // less, 3072 // less, dtype=dtype),
        ],
    )


def convolution(dtype: torch.dtype, last: bool = False, groups: int = 1, transposed: bool = False) -> Family:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if transposed:
            return nn.conv_transpose2d(x, w, b, stride=2, padding=1, groups=groups)
        return torch.relu(nn.conv2d(x, w, b, stride=1, padding=1, groups=groups))

    def make(less: int) -> tuple[Callable[..., torch.Tensor], list[torch.Tensor]]:
        x = random(2, 32, 28 // min(less, 2), 28, dtype=dtype)
        w = random(32, 64 // groups if transposed else 32 // groups, 3, 3, dtype=dtype) / 17
        layout = torch.channels_last if last else torch.contiguous_format
        return function, [
            x.to(memory_format=layout),
            w.to(memory_format=layout),
            random(64 if transposed else 32, dtype=dtype),
        ]

    return make


def attention(dtype: torch.dtype, causal: bool, queries: int = 256, keys: int = 256, depth: int = 64) -> Family:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return lambda less: (
        function,
        [
            random(2, 4, max(1, queries // less), depth, dtype=dtype),
            *(random(2, 4, keys // less, depth, dtype=dtype) for _ in range(2)),
        ],
    )


def embedding(less: int) -> tuple[Callable[..., torch.Tensor], list[torch.Tensor]]:
    return lambda ids, table: nn.embedding(ids, table) * 2, [torch.randint(1000, (60,)), random(1000, 768 // less)]


def sort(rows: int, columns: int) -> Family:
    """No two values are the same: where their gradients go would be anybody's choice."""
    return lambda less: (
        lambda x: torch.sort(x, -1).values,
        [torch.stack([torch.randperm(columns).float() / columns for _ in range(max(1, rows // less))])],
    )


def of(function: Callable[..., torch.Tensor], *sizes: tuple[int, ...]) -> Family:
    return lambda less: (function, [random(max(1, size[0] // less), *size[1:]) for size in sizes])


FAMILIES: dict[str, Family] = {
    "pointwise": pointwise(64, 200),
    "pointwise_large": pointwise(4096, 1024),
    "pointwise_odd": pointwise(63, 77),
    "pointwise_bf16": pointwise(512, 333, torch.bfloat16),
    "pointwise_f16": pointwise(512, 333, torch.float16),
    "transpose": lambda less: (
        lambda a, y: torch.exp(a.t()) + y,
        [random(320 // less, 240), random(240, 320 // less)],
    ),
    "concat": of(lambda x, y: torch.relu(torch.cat([x, y], 1)), (64, 37), (64, 64)),
    "pad": of(lambda x: nn.pad(torch.sin(x), (2, 2, 1, 1)), (64, 37)),
    "scan": of(lambda x: torch.cumsum(x, 1) * 2, (64, 500)),
    "scan_long": of(lambda x: torch.cumsum(x, 1), (3, 20000)),
    "embedding": embedding,
    "gather": lambda less: (
        lambda x, index: torch.gather(x, 1, index) + 1,
        [random(64 // less, 100), torch.randint(100, (64 // less, 30))],
    ),
    "scatter": lambda less: (
        lambda x, index, y: x.index_add(0, index, y),
        [random(50, 64), torch.randint(50, (200 // less,)), random(200 // less, 64)],
    ),
    "sort": sort(64, 2048),
    "sort_long": sort(8, 30000),
    "topk": of(lambda x: torch.topk(x, 5, -1).values, (64, 1000)),
    "softmax_8": softmax(5000, 8),
    "softmax_128": softmax(5000, 128),
    "softmax_2000": softmax(100, 2000),
    "softmax_bf16": softmax(100, 2000, torch.bfloat16),
    "layer_norm_768": norm(layer_norm, 4096, 768),
    "layer_norm_odd": norm(layer_norm, 100, 777),
    "rms_norm_768": norm(rms_norm, 1024, 768),
    "cross_entropy": lambda less: (nn.cross_entropy, [random(256 // less, 5000), torch.randint(5000, (256 // less,))]),
    "column_sums": of(lambda x: (x * x).sum(0), (4096, 768)),
    "column_sums_wide": of(lambda x: x.sum(0), (100, 40000)),
    "full_sum": of(lambda x: (x * x).sum(), (300, 500)),
    "full_mean_large": of(lambda x: x.mean(), (2000, 5000)),
    "any_of_rows": of(lambda x: (x > 2.5).any(1).to(x.dtype) + x.sum(1), (50, 300)),
    "arg_max": of(lambda x: x.max(1).values + x.argmax(1), (50, 300)),
    "max_pool": lambda less: (lambda x: nn.max_pool2d(x, 3, 2, 1), [random(2, 16, 56 // min(less, 2), 56)]),
    "mean_pool": lambda less: (lambda x: nn.avg_pool2d(x, 2), [random(2, 16, 56 // min(less, 2), 56)]),
    "upsample": lambda less: (
        lambda x: nn.interpolate(x, scale_factor=2, mode="bilinear"),
        [random(2, 8, 28 // min(less, 2), 28)],
    ),
    "matmul_512": product(512, 512, 512),
    "matmul_odd": product(67, 45, 99),
    "matmul_tall": product(4096, 64, 16),
    "matmul_one_row": product(1, 768, 3072),
    "matmul_deep": product(32, 8192, 32),
    "matmul_512_bf16": product(512, 512, 512, torch.bfloat16),
    "matmul_512_f16": product(512, 512, 512, torch.float16),
    "matmul_odd_f16": product(67, 45, 99, torch.float16),
    "matmul_one_row_f16": product(1, 768, 3072, torch.float16),
    "batched_matmul": of(torch.bmm, (8, 64, 48), (8, 48, 80)),
    "linear_gelu_add": linear(torch.float32),
    "linear_bf16": linear(torch.bfloat16),
    "linear_f16": linear(torch.float16),
    "convolution": convolution(torch.float32),
    "convolution_last": convolution(torch.float32, last=True),
    "convolution_groups": convolution(torch.float32, groups=4),
    "convolution_depthwise": convolution(torch.float32, groups=32),
    "convolution_transposed": convolution(torch.float32, transposed=True),
    "convolution_bf16": convolution(torch.bfloat16, last=True),
    "convolution_f16": convolution(torch.float16),
    "attention": attention(torch.float32, False),
    "attention_causal": attention(torch.float32, True),
    "attention_odd": attention(torch.float32, False, 100, 77, 40),
    "attention_one_row": attention(torch.float32, False, 1, 512),
    "attention_bf16": attention(torch.bfloat16, True),
    "attention_f16": attention(torch.float16, False),
}


def error_of(actual: torch.Tensor | None, expected: torch.Tensor | None) -> float:
    """Of the largest value, infinite where one is no number or there is no tensor."""
    if actual is None or expected is None:
        return 0.0 if actual is expected else float("inf")
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    a, b = actual.detach().cpu().double(), expected.detach().cpu().double()
    return float(((a - b).abs().max() / b.abs().max().clamp(min=1e-3)).nan_to_num(nan=float("inf")))


def check(name: str, less: int, place: str = "cpu") -> tuple[bool, str]:
    torch._dynamo.reset()
    torch.manual_seed(1)
    function, inputs = FAMILIES[name](less)

    weights: dict[str, torch.Tensor] = {}

    def leaves() -> list[torch.Tensor]:
        return [x.detach().clone().to(place).requires_grad_(x.is_floating_point()) for x in inputs]

    def gradients(run: Callable[..., Any], own: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        out = run(*own)
        if out.requires_grad:
            weight = weights.setdefault("of the results", torch.randn(out.shape))
            (out.float() * weight.to(out.device)).sum().backward()
        return out, [x.grad for x in own]

    # Eager rounds half-sized types between its steps: in f32 is what all of them are near to.
    dtype = inputs[-1].dtype if inputs[-1].is_floating_point() else torch.float32
    wide = [x.detach().float().requires_grad_() if x.is_floating_point() else x for x in inputs]
    expected, expected_gradients = gradients(function, wide)
    device = {"options": OPTIONS}
    with torch.no_grad():
        explanation = zefuse.explain(function, *(x.to(place) for x in inputs), **device)
    compiled = torch.compile(function, backend="zefuse", options=OPTIONS, dynamic=False)
    actual, actual_gradients = gradients(compiled, leaves())
    worst = max(
        error_of(explanation.result.float(), expected),
        error_of(actual.float(), expected),
        *(
            error_of(None if a is None else a.float(), b)
            for a, b in zip(actual_gradients, expected_gradients, strict=True)
            if a is not None or b is not None
        ),
        0.0,
    )
    elsewhere = sorted({f"{fallback['op']} ({fallback['reason']})" for fallback in explanation.fallbacks})
    right = worst <= TOLERANCES[dtype] and not elsewhere and bool(explanation.kernels)
    words = f"{len(explanation.kernels):3} kernels, largest error {worst:.1e}"
    return right, words + (f", in eager: {', '.join(elsewhere)}" if elsewhere else "")


def main(words: list[str]) -> int:
    small, place = "--small" in words, "cuda" if "--placed" in words else "cpu"
    names = [word for word in words if not word.startswith("--")] or list(FAMILIES)
    wrong = 0
    for name in names:
        try:
            right, words_of_it = check(name, 8 if small else 1, place)
        except Exception as error:  # one that fails hides no other
            right, words_of_it = False, f"{type(error).__name__}: {str(error).strip()[:300]}"
        wrong += not right
        print(f"{name:24} {'ok  ' if right else 'FAIL'} {words_of_it}", flush=True)
    print(f"families: {len(names) - wrong} of {len(names)} right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
