"""Attention on the GPU road: one kernel forward and backward, what is computed in it, and why it is not one. docs/gpu.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpu_graphs import FLOATS, FORMS, GPU, Watched, in_f32, near_eager, one_launch_each
from torch import nn

import zefuse
from zefuse import backend
from zefuse.explaining.explanation import Explanation
from zefuse.testing import relative_error

ATTENTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "added": {"attn_mask": lambda: torch.randn(2, 1, 37, 41)},
    "boolean": {"attn_mask": lambda: torch.rand(37, 41) > 0.6},
    "blind_row": {"attn_mask": lambda: torch.arange(37)[:, None] != 3},
    "grouped": {"enable_gqa": True},
    "grouped_causal": {"enable_gqa": True, "is_causal": True},
}


@pytest.mark.parametrize(("dtype", "dynamic"), FORMS, ids=str)
@pytest.mark.parametrize("kind", ATTENTIONS)
def test_attention_is_a_kernel(kind: str, dtype: torch.dtype, dynamic: bool) -> None:
    """Its memory is [batch, rows, heads, depth], so that every operand is strided."""
    arguments = {k: v() if callable(v) else v for k, v in ATTENTIONS[kind].items()}
    if "attn_mask" in arguments and arguments["attn_mask"].is_floating_point():
        arguments["attn_mask"] = arguments["attn_mask"].to(dtype)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **arguments: Any) -> torch.Tensor:
        heads = [x.unflatten(-1, (-1, 24)).transpose(1, 2) for x in (q, k, v)]
        return torch.nn.functional.scaled_dot_product_attention(*heads, **arguments).transpose(1, 2).flatten(2)

    heads = 2 if "enable_gqa" in arguments else 4
    q, k, v = (torch.randn(2, n, h * 24).to(dtype) for n, h in ((37, 4), (41, heads), (41, heads)))
    with torch.no_grad():
        compiled = Watched(attend)
        if dynamic:
            for tensor in (q, k, v):
                torch._dynamo.maybe_mark_dynamic(tensor, (0, 1))
            if "attn_mask" in arguments:
                mask = arguments["attn_mask"]
                torch._dynamo.maybe_mark_dynamic(mask, (mask.dim() - 2, mask.dim() - 1))
        expected = attend(*(x.float() for x in (q, k, v)), **in_f32(arguments))
        actual = compiled(q, k, v, **arguments)
    assert actual.dtype == dtype
    bound = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert relative_error(actual.float(), expected) < bound
    assert compiled.counters()["host_steps"] == 0
    *before, name = [kernel["name"] for kernel in Explanation.of(compiled.graphs[0]).kernels]
    assert name.startswith("attention_") and ("n" in name.split("_")[1]) == dynamic
    assert not [other for other in before if other.startswith("matmul")]


def attention_gradients(
    sizes: tuple[int, int, int], dtype: torch.dtype, dynamic: bool = False, **arguments: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Queries, keys and the size of a head; compares all gradients with f32's. Returns forward's and backward's kernels."""
    rows, keys, depth = sizes
    heads = 2 if "enable_gqa" in arguments else 4
    shapes = ((2, 4, rows, depth), (2, heads, keys, depth), (2, heads, keys, depth))
    ours = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]
    theirs = [x.detach().float().requires_grad_() for x in ours]
    weights = torch.randn(2, 4, rows, depth).to(dtype)

    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.scaled_dot_product_attention(q, k, v, **arguments) * weights).float().sum()

    if dynamic:
        for tensor in (*ours, weights):
            torch._dynamo.maybe_mark_dynamic(tensor, 2)
    graphs: list[Any] = []
    with backend.observe(lambda _, graph: graphs.append(graph)):
        torch.compile(loss, backend="zefuse", options=GPU)(*ours, weights).backward()
    loss(*theirs, weights.float()).backward()
    bound = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    for mine, right in zip(ours, theirs, strict=True):
        assert mine.grad is not None and right.grad is not None
        assert mine.grad.stride() == mine.stride() and mine.grad.dtype == dtype
        assert relative_error(mine.grad.float(), right.grad) < bound
    forward, backward = (Explanation.of(graph) for graph in graphs)
    assert not forward.fallbacks and not backward.fallbacks
    return forward.kernels, backward.kernels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["plain", "grouped_causal", "blind_row", "wide", "dynamic"])
def test_attention_of_training(kind: str, dtype: torch.dtype) -> None:
    """One kernel forward, which keeps the rows' sums; backward two, by queries and by keys, and the rows' delta."""
    arguments = {k: v() if callable(v) else v for k, v in ATTENTIONS.get(kind, {"is_causal": True}).items()}
    sizes = (70, 66, 128) if kind == "wide" else (37, 41, 24)
    forward, backward = attention_gradients(sizes, dtype, kind == "dynamic", **arguments)
    assert not [kernel for kernel in forward + backward if kernel["name"].startswith("matmul")]
    assert len([kernel for kernel in forward if kernel["name"].startswith("attention_")]) == 1
    gradients = [kernel for kernel in backward if kernel["name"].startswith("attention_gradient_")]
    assert {kernel["name"].split("_")[2] for kernel in gradients} == {"queries", "keys"} and len(gradients) == 2
    for kernel in gradients:
        assert ("on the matrix engine" in kernel["schedule"]) == (dtype != torch.float32)
        assert ("n" in kernel["name"].split("_")[3]) == (kind == "dynamic")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_attention_of_training_takes_what_is_around_it(dynamic: bool, dtype: torch.dtype) -> None:
    """Its sums of rows, which the derivative reads, are an output beside what its result becomes."""

    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        out = nn.functional.silu(attend(q * 0.5, k[:, :2], v[:, :2] + 1, is_causal=True, enable_gqa=True)) + r
        return out.float().square().sum()

    ours = [torch.randn(2, 4, 37, 24).to(dtype).requires_grad_() for _ in range(4)]
    theirs = [x.detach().float().requires_grad_() for x in ours]
    if dynamic:
        for tensor in ours:
            torch._dynamo.maybe_mark_dynamic(tensor, 2)
    graphs: list[Any] = []
    with backend.observe(lambda _, graph: graphs.append(graph)):
        torch.compile(loss, backend="zefuse", options=GPU)(*ours).backward()
    loss(*theirs).backward()
    bound = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    for mine, right in zip(ours, theirs, strict=True):
        assert mine.grad is not None and right.grad is not None
        assert relative_error(mine.grad.float(), right.grad) < bound
    forward, backward = (Explanation.of(graph) for graph in graphs)
    assert not forward.fallbacks and not backward.fallbacks
    (name,) = [kernel["name"] for kernel in forward.kernels if kernel["name"].startswith("attention_")]
    assert "silu" in name or "sigmoid" in name or "exp" in name, (name, forward.not_joined)


def test_attention_gradient_without_a_kernel_says_why() -> None:
    """Its scores are in memory, between five products."""
    _, backward = attention_gradients((9, 11, 1030), torch.float32)
    products = [kernel["schedule"] for kernel in backward if kernel["name"].startswith("matmul")]
    assert len(products) == 5
    (reason,) = [s for s in products if "; attention's derivative without kernels of its own: " in s]
    assert "heads of 1030 and 1030 elements do not fit into registers and local memory" in reason


attend = nn.functional.scaled_dot_product_attention
ATTENTIONS_IN_KERNELS: dict[str, Callable[..., torch.Tensor]] = {
    "residual": lambda q, k, v, r: r + attend(q, k, v, is_causal=True),
    "gate": lambda q, k, v, r: attend(q, k, v) * torch.sigmoid(r),
    "tokens": lambda q, k, v, r: nn.functional.gelu(attend(q, k, v)).transpose(1, 2).flatten(2),
    "cast after": lambda q, k, v, r: attend(q, k, v).float() * 0.5 + 1,
    "cast before": lambda q, k, v, r: attend(*(x.float() * 0.5 for x in (q, k, v))),
    "narrowed before": lambda q, k, v, r: attend(*(x.to(torch.bfloat16) for x in (q, k, v))),
    "dequantised": lambda q, k, v, r: attend(q, *(r[:, :, :1] * (x > 0).to(torch.int8).to(q.dtype) for x in (k, v))),
    "grouped": lambda q, k, v, r: r - attend(q * 0.5, k[:, ::2] * 2, v[:, :2], enable_gqa=True, is_causal=True),
    "slopes": lambda q, k, v, r: attend(
        q,
        k,
        v,
        attn_mask=(torch.arange(k.shape[2])[None, :] - torch.arange(q.shape[2])[:, None]).abs().to(q.dtype)
        * torch.arange(4)[None, :, None, None].to(q.dtype),
    ),
    "window": lambda q, k, v, r: attend(
        q, k, v, attn_mask=(torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None, :]).abs() < 5
    ),
    "padded": lambda q, k, v, r: r * attend(q, k, v, attn_mask=(k[:, :1, :, 0] > -1)[:, :, None, :]),
}


def of_attention(batch: int, rows: int, keys: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.randn(batch, 4, n, 24).to(dtype) for n in (rows, keys, keys, rows)]


def near_exact(kind: str, result: torch.Tensor, given: list[torch.Tensor]) -> None:
    function, dtype = ATTENTIONS_IN_KERNELS[kind], given[0].dtype
    expected = function(*(x.float() for x in given))
    bound = {torch.float32: 5e-6, torch.float16: 1.5e-3, torch.bfloat16: 1.5e-2}[dtype]
    assert result.dtype == function(*given).dtype
    error = relative_error(result.float(), expected.float())
    assert error < (1.5e-2 if kind == "narrowed before" else bound), kind


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_attention_and_what_is_around_it_are_one_launch(dtype: torch.dtype) -> None:
    """What its operands and its mask are computed from, and what becomes of its result."""

    def near(number: int, result: torch.Tensor, given: list[torch.Tensor]) -> None:
        near_exact(list(ATTENTIONS_IN_KERNELS)[number], result, given)

    explanation = one_launch_each(ATTENTIONS_IN_KERNELS.values(), lambda: of_attention(2, 37, 41, dtype), near)
    assert not explanation.fallbacks and not explanation.calls
    names = [kernel["name"].split("_")[0] for kernel in explanation.kernels]
    assert names == ["attention"] * len(ATTENTIONS_IN_KERNELS), explanation.not_joined


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ATTENTIONS_IN_KERNELS)
def test_attention_of_any_size_and_what_is_around_it_are_one_launch(kind: str, dtype: torch.dtype) -> None:
    graphs: list[Any] = []
    compiled = torch.compile(ATTENTIONS_IN_KERNELS[kind], backend="zefuse", options=GPU)
    with torch.no_grad(), backend.observe(lambda _, graph: graphs.append(graph)):
        for batch, rows, keys in ((2, 37, 41), (3, 70, 66), (2, 5, 9)):
            given = of_attention(batch, rows, keys, dtype)
            for tensor in given:
                torch._dynamo.maybe_mark_dynamic(tensor, (0, 2))
            near_exact(kind, compiled(*given), given)
    (graph,) = graphs
    explanation = Explanation.of(graph)
    assert not explanation.fallbacks and not explanation.calls
    assert [kernel["name"].split("_")[0] for kernel in explanation.kernels] == ["attention"], explanation.not_joined


def test_what_stays_apart_from_attention_says_why() -> None:
    def function(q: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        keys = torch.cat([q, q.neg()], 2)
        return torch.softmax(attend(q, keys, keys.tanh()), -1) @ w

    q, w = torch.randn(2, 3, 20, 16), torch.randn(16, 16)
    explanation = zefuse.explain(function, q, w, options=GPU)
    near_eager(explanation.result, function, q, w)
    reasons = " ".join(pair["reason"] for pair in explanation.not_joined)
    assert "each tile of the product would compute what it reads again, with a concatenation or padding" in reasons
    assert "tiles of a product make no whole rows, which a reduction of its result wants" in reasons


def test_rows_sums_of_attention_are_placed_by_its_rows() -> None:
    """The second result alone, computed with, and together with what the first becomes."""
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    functions: list[Callable[..., tuple[torch.Tensor, ...]]] = [
        lambda q, k, v: (flash(q, k, v)[1],),
        lambda q, k, v: (lambda out, sums: (out * 2, sums.exp(), sums.float() + 1))(*flash(q, k, v)),
        lambda q, k, v: (lambda out, sums: (out + sums[..., None], sums))(*flash(q, k, v)),
        lambda q, k, v: (flash(q, k, v)[1].transpose(1, 2).relu(),),
    ]
    q, k, v = (torch.randn(2, 3, n, 16) for n in (37, 41, 41))
    for function in functions:
        torch._dynamo.reset()
        explanation = zefuse.explain(function, q, k, v, options=GPU)
        for mine, right in zip(explanation.result, function(q, k, v), strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-5)
        assert len(explanation.kernels) == 1, explanation.not_joined


def test_attention_without_a_kernel_says_why() -> None:
    """Heads must fit into local memory."""
    q = torch.randn(1, 2, 6, 1024)
    with torch.no_grad():
        explanation = zefuse.explain(
            lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x), q, options=GPU
        )
        assert relative_error(explanation.result, torch.nn.functional.scaled_dot_product_attention(q, q, q)) < 1e-6
    assert not explanation.fallbacks
    schedules = [kernel["schedule"] for kernel in explanation.kernels]
    (reason,) = [s for s in schedules if "attention without a kernel of its own: " in s]
    assert "heads of 1024 and 1024 elements do not fit into local memory" in reason
