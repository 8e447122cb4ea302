"""What joins a library call, and what around it is left to kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from zefuse import backend
from zefuse.testing import assert_compiled


def test_linear_epilogue_joins_the_library_call() -> None:
    layer = torch.nn.Linear(32, 64).eval()

    def block(x: torch.Tensor) -> torch.Tensor:
        return F.relu(layer(x))

    with torch.no_grad():
        assert_compiled(block, (torch.randn(8, 32),), kernels=0, calls=1)


def test_attention() -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    shape = (2, 3, 16, 8)
    assert_compiled(attention, (torch.randn(shape), torch.randn(shape), torch.randn(shape)), calls=2)


def _post_ops(explanation: Any) -> list[list[str]]:
    return [call["post_ops"] for call in explanation.calls]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_over_many_keys_keeps_no_scores(causal: bool, dtype: torch.dtype) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        heads = [x.unflatten(-1, (-1, 24)).transpose(1, 2) for x in (q, k, v)]
        return F.scaled_dot_product_attention(*heads, is_causal=causal, enable_gqa=True).transpose(1, 2).flatten(2)

    q, k, v = (torch.randn(2, 301, width).to(dtype) for width in (96, 48, 48))
    k[0, 7] *= 100  # a row of scores far from the others
    explanation = assert_compiled(attend, (q, k, v), kernels=0, calls=1)
    assert [call["kind"] for call in explanation.calls] == ["attention"]
    # Every layout around it is taken and made by strides, and only its own scratch holds scores.
    assert explanation.graphs[0]["counters"]["arena_bytes"] < 2 * 4 * 301 * 301 * 4
    v[1, 3, 5] = float("nan")
    assert_compiled(attend, (q, k, v), calls=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_causal_attention_of_any_length_keeps_no_scores(dtype: torch.dtype) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        heads = [x.unflatten(-1, (-1, 24)).transpose(1, 2) for x in (q, k, v)]
        return F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)

    graphs = []
    tokens, batch = torch.export.Dim("tokens", min=0), torch.export.Dim("batch", min=0)
    given = tuple(torch.randn(3, 9, width).to(dtype) for width in (96, 48, 48))

    class Attend(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return attend(q, k, v)

    program = torch.export.export(Attend(), given, dynamic_shapes=({0: batch, 1: tokens},) * 3)
    with backend.observe(lambda _, graph: graphs.append(graph)), torch.no_grad():
        compiled = torch.compile(program.module(), backend="zefuse", dynamic=True)
        for sizes in ((3, 9), (2, 301), (2, 129), (1, 2)):
            q, k, v = (torch.randn(*sizes, width).to(dtype) for width in (96, 48, 48))
            expected = attend(q.double(), k.double(), v.double())
            torch.testing.assert_close(
                compiled(q, k, v).double(), expected, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.03
            )
    assert [call["kind"] for graph in graphs[:1] for call in graph.report()["calls"]] == ["attention"]


def test_residual_block_is_its_convolutions() -> None:
    """Batch norm, skip connection and activation join the convolution; one kernel makes all scales and shifts."""

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (torch.nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
            self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(8) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = F.relu(self.norms[0](self.first(x)))
            return F.relu(self.norms[1](self.second(y)) + x)

    block = Block()
    x = torch.randn(2, 8, 6, 5).to(memory_format=torch.channels_last)
    for _ in range(3):
        block(torch.randn(4, 8, 6, 5) * 3 + 1)  # statistics
    block.eval()
    with torch.no_grad():
        explanation = assert_compiled(block, (x,), kernels=1, calls=2, rtol=1e-5)
    assert _post_ops(explanation) == [["mul", "add", "relu"], ["mul", "add", "add", "relu"]]


def test_inverted_residual_is_its_convolutions() -> None:
    def layer(channels: int, out: int, kernel: int, groups: int, activation: bool) -> list[torch.nn.Module]:
        convolution = torch.nn.Conv2d(channels, out, kernel, padding=kernel // 2, groups=groups, bias=False)
        return [convolution, torch.nn.BatchNorm2d(out), *([torch.nn.ReLU6()] if activation else [])]

    body = torch.nn.Sequential(
        *layer(8, 32, 1, 1, True), *layer(32, 32, 3, 32, True), *layer(32, 8, 1, 1, False)
    ).eval()

    def block(x: torch.Tensor) -> torch.Tensor:
        return body(x) + x

    with torch.no_grad():
        explanation = assert_compiled(
            block, (torch.randn(1, 8, 9, 9).to(memory_format=torch.channels_last),), kernels=None, calls=3, rtol=1e-5
        )
    assert _post_ops(explanation) == [["mul", "add", "relu6"], ["mul", "add", "relu6"], ["mul", "add", "add"]]


def test_zero_padding_joins_the_convolution() -> None:
    def block(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        uneven = F.conv2d(F.pad(x, (0, 1, 2, 1)), w, b, stride=2)  # left, right, top, bottom
        return uneven, F.conv2d(F.pad(x, (1, 1), value=0.5), w, b)

    x = torch.randn(2, 3, 8, 9).to(memory_format=torch.channels_last)
    with torch.no_grad():
        explanation = assert_compiled(block, (x, torch.randn(8, 3, 3, 3), torch.randn(8)), calls=2, rtol=1e-5)
    assert len([kernel for kernel in explanation.kernels if "pad" in kernel["name"]]) == 1  # of the one with 0.5


def test_convolution_epilogue_keeps_nan_and_infinity() -> None:
    def block(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        y = F.conv2d(x, w, b)
        return F.relu(y), F.relu6(y * 1), F.hardswish(F.conv2d(x, w, b)), F.relu(F.conv2d(x, w, b))

    b = torch.tensor([float("nan"), float("-inf"), float("inf"), -1.0, 0.5, 7.0])
    inputs = (torch.zeros(1, 3, 4, 4), torch.zeros(6, 3, 1, 1), b)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(block, backend="zefuse")(*inputs), block(*inputs), equal_nan=True)


def test_what_stays_outside_a_convolution() -> None:
    """A result with two readers, a scale per pixel, a residual that is scaled after the sum."""

    def block(x: torch.Tensor, u: torch.Tensor, v: torch.Tensor, w: torch.Tensor, pixel: torch.Tensor) -> Any:
        y = F.conv2d(x, u, padding=1)
        z = F.conv2d(x, v, padding=1) * pixel
        return F.relu(y), y.sum(), z, (F.conv2d(x, w, padding=1) + x) * 2

    inputs = (torch.randn(1, 4, 5, 6), *(torch.randn(4, 4, 3, 3) for _ in range(3)), torch.randn(5, 6))
    with torch.no_grad():
        explanation = assert_compiled(block, inputs, calls=None, rtol=1e-5)
    reasons = sorted(call["left_out"] for call in explanation.calls if "left_out" in call)
    assert [reason.split(":")[0] for reason in reasons] == [
        "aten.mul.Tensor is not its epilogue",  # per pixel
        "aten.relu.default is not its epilogue",
    ], reasons
    assert "2 readers" in reasons[1] and "per channel" in reasons[0]


def test_memory_between_convolutions_stays_channels_last() -> None:
    """Kernels in a row between two convolutions read and write what oneDNN reads: no copy but the first image's."""

    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(x, w, padding=1)
        y = F.gelu(y) * torch.sigmoid(y.mean((2, 3), keepdim=True))
        return F.conv2d(y, w, padding=1).mean((2, 3))

    with torch.no_grad():
        explanation = assert_compiled(block, (torch.randn(2, 8, 6, 6), torch.randn(8, 8, 3, 3)), calls=2, rtol=1e-5)
    assert [kernel["name"] for kernel in explanation.kernels].count("layout_copy") == 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, w: torch.tanh(x @ w) * torch.sigmoid(x @ w), None),
        (lambda x, w: (x @ w) * x, "an activation"),
        (lambda x, w: (lambda y: (F.relu(y), y.t() @ w))(x @ w), "2 readers"),
        (lambda x, w: F.relu((x @ w).double()), "aten._to_copy.default is not its epilogue"),
    ],
    ids=["activations", "product", "two readers", "type"],
)
def test_an_epilogue_that_is_left_out_says_why(function: Callable[..., Any], words: str | None) -> None:
    inputs = torch.randn(16, 16), torch.randn(16, 16)
    with torch.no_grad():
        explanation = assert_compiled(function, inputs, calls=None, rtol=1e-5)
    reasons = [call["left_out"] for call in explanation.calls if "left_out" in call]
    if words is not None:
        assert any(words in reason for reason in reasons), explanation
        assert "did not take what follows" in str(explanation)


@pytest.mark.parametrize("activation", ["relu", "relu6", "hardswish", "silu"])
@pytest.mark.parametrize(("channels", "groups", "window"), [(24, 1, 1), (40, 40, 3), (96, 3, 3)])
def test_what_follows_a_convolution_of_our_own(activation: str, channels: int, groups: int, window: int) -> None:
    """Products in panels, Winograd's filtering of groups, and a pass behind depthwise ones, with a residual and NaN."""
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(channels, channels, window, padding=window // 2, groups=groups), torch.nn.BatchNorm2d(channels)
    ).eval()

    def function(x: torch.Tensor) -> torch.Tensor:
        return getattr(F, activation)(layers(x) + x)

    x = torch.randn(2, channels, 14, 15)
    compiled = torch.compile(function, backend="zefuse")
    for number in (0.0, float("nan"), float("inf"), -float("inf")):
        x[1, 3, 2, 5] = number
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-4, equal_nan=True)
