"""Products and convolutions on the GPU road: what is computed in their launch, how they are split, which go to the matrix engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpu_graphs import FLOATS, GPU, mlp, near_eager, one_launch_each
from torch import nn

import zefuse
from zefuse import backend
from zefuse.explaining.explanation import Explanation
from zefuse.testing import relative_error

EPILOGUES: dict[str, Callable[..., torch.Tensor]] = {
    "gelu": lambda x, w, b, r: nn.functional.gelu(x @ w + b),
    "residual": lambda x, w, b, r: r + torch.addmm(b, x, w),
    "scaled_residual": lambda x, w, b, r: r + b * nn.functional.silu(x @ w),
    "cast": lambda x, w, b, r: (x @ w).float() * 0.5,
    "heads": lambda x, w, b, r: (x @ w + b).view(x.shape[0], 3, 25).transpose(0, 1) * 2,
    "transposed": lambda x, w, b, r: (x @ w).t().relu(),
    "position": lambda x, w, b, r: torch.where(torch.arange(75) % 3 == 0, x @ w, r),
}


def of_a_product(rows: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.randn(shape).to(dtype) for shape in ((rows, 40), (40, 75), (75,), (rows, 75))]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_product_and_what_follows_are_one_launch(dtype: torch.dtype) -> None:
    """Whatever is elementwise over the result; rows and columns that no tile divides."""
    explanation = one_launch_each(EPILOGUES.values(), lambda: of_a_product(37, dtype))
    assert not explanation.fallbacks and not explanation.calls
    assert len(explanation.kernels) == len(EPILOGUES)
    for kernel in explanation.kernels:
        assert ("on the matrix engine" in kernel["schedule"]) == (dtype != torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", EPILOGUES)
def test_a_product_of_any_rows_and_what_follows_are_one_launch(kind: str, dtype: torch.dtype) -> None:
    function = EPILOGUES[kind]
    graphs: list[Any] = []
    compiled = torch.compile(function, backend="zefuse", options=GPU, dynamic=True)
    with backend.observe(lambda _, graph: graphs.append(graph)):
        for number, rows in enumerate((37, 64, 5, 130)):
            some = of_a_product(rows, dtype)
            near_eager(compiled(*some), function, *some)
            assert graphs[0].counters()["launches"] == number + 1
    (graph,) = graphs
    explanation = Explanation.of(graph)
    (kernel,) = explanation.kernels
    assert not explanation.fallbacks and not explanation.calls
    assert ("on the matrix engine" in kernel["schedule"]) == (dtype != torch.float32)


OPERANDS: dict[str, Callable[..., torch.Tensor]] = {
    "cast": lambda x, w, b: x.half() @ w.half(),
    "scaled": lambda x, w, b: (x * b) @ w,
    "dequantised": lambda x, w, b: x @ ((w * 16).to(torch.int8).float() / 16),
    "residual": lambda x, w, b: (x + x.flip(0)) @ w,
    "transposed": lambda x, w, b: (x.t() * 2).t() @ w,
    "padded_view": lambda x, w, b: (x.repeat(1, 2)[:, 20:60] * 2) @ w,
}


@pytest.mark.parametrize("kind", OPERANDS)
def test_what_a_product_reads_is_computed_where_it_is_loaded(kind: str) -> None:
    function = OPERANDS[kind]
    x, w, b = torch.randn(37, 40), torch.randn(40, 75), torch.randn(40)
    explanation = zefuse.explain(function, x, w, b, options=GPU)
    # A tensor of integers is made by a kernel of its own only where it is asked for.
    assert len(explanation.kernels) == 1, [kernel["name"] for kernel in explanation.kernels]
    near_eager(explanation.result, function, x, w, b)


def test_what_stays_apart_from_a_product_says_why() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(x) @ w
        return torch.softmax(h, 1) + h * (x @ w.t())

    x, w = torch.randn(40, 40), torch.randn(40, 40)
    explanation = zefuse.explain(function, x, w, options=GPU)
    near_eager(explanation.result, function, x, w)
    reasons = " ".join(pair["reason"] for pair in explanation.not_joined)
    assert "each tile of the product would compute what it reads again, with math.tanh per element" in reasons
    assert "tiles of a product make no whole rows, which a reduction of its result wants" in reasons
    assert "two products have no kernel in common" in reasons


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_long_products_of_few_tiles_are_split(dtype: torch.dtype) -> None:
    """Slices of k in one launch, their sum with all that follows in a second: the same bits every time."""

    def function(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.addmm(bias, a.T, b) * 2)

    a, b = torch.randn(16384, 48).to(dtype), torch.randn(16384, 40).to(dtype)
    bias = torch.randn(40).to(dtype)
    explanation = zefuse.explain(function, a, b, bias, options=GPU)
    expected = function(a.double(), b.double(), bias.double())
    bound = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    assert relative_error(explanation.result.double(), expected) < bound
    assert explanation.result.dtype == dtype and not explanation.fallbacks
    product, total = explanation.kernels
    assert "; k in 64 slices, which the next kernel adds" in product["schedule"]
    assert ("on the matrix engine" in product["schedule"]) == (dtype != torch.float32)
    assert total["name"] == "addmm_mul_relu"
    compiled = torch.compile(function, backend="zefuse", options=GPU)
    assert all(torch.equal(compiled(a, b, bias), explanation.result) for _ in range(3))
    short = zefuse.explain(function, a[:512], b[:512], bias, options=GPU)
    assert [kernel["name"] for kernel in short.kernels if "slices" in kernel["schedule"]] == []


conv2d = nn.functional.conv2d
CONVOLUTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "scale and shift": lambda x, w, b, r: torch.relu(
        conv2d(x, w, b, padding=1) * b[:, None, None] + b.sin()[:, None, None]
    ),
    "residual": lambda x, w, b, r: r + nn.functional.silu(conv2d(x, w, padding=1)),
    "cast": lambda x, w, b, r: conv2d(x, w, b, stride=2, dilation=2).float() * 0.5,
    "tokens": lambda x, w, b, r: conv2d(x, w, b, padding=1).flatten(2).transpose(1, 2) * 2,
    "groups": lambda x, w, b, r: nn.functional.gelu(conv2d(x, w[:8, :3], b[:8], groups=2)),
    "transposed": lambda x, w, b, r: nn.functional.conv_transpose2d(x, w.transpose(0, 1), b, stride=2).relu(),
    "image in padding": lambda x, w, b, r: conv2d(x + 1, w, padding=1),
    "dequantised": lambda x, w, b, r: conv2d(x, (w * 16).to(torch.int8).to(w.dtype) / 16, b),
}


def of_a_convolution(images: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    shapes = (images, 6, size, 11), (10, 6, 3, 3), (10,), (images, 10, size, 11)
    x, w, b, r = (torch.randn(shape).to(dtype) for shape in shapes)
    return [t.to(memory_format=torch.channels_last) for t in (x, w)] + [b, r.to(memory_format=torch.channels_last)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_convolution_and_what_is_around_it_are_one_launch(dtype: torch.dtype) -> None:
    """What is computed of an image is so before its padding, which is zeros."""
    explanation = one_launch_each(CONVOLUTIONS.values(), lambda: of_a_convolution(2, 9, dtype))
    assert not explanation.fallbacks and not explanation.calls
    apart = dtype != torch.float32  # three operations are too many under nine taps: those of "image in padding"
    assert len(explanation.kernels) == len(CONVOLUTIONS) + apart, [kernel["name"] for kernel in explanation.kernels]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_a_convolution_of_any_size_and_what_is_around_it_are_one_launch(kind: str, dtype: torch.dtype) -> None:
    function = CONVOLUTIONS[kind]
    graphs: list[Any] = []
    compiled = torch.compile(function, backend="zefuse", options=GPU, dynamic=True)
    with backend.observe(lambda _, graph: graphs.append(graph)):
        for sizes in ((2, 9), (3, 16), (5, 7)):
            some = of_a_convolution(*sizes, dtype)
            near_eager(compiled(*some), function, *some)
    (graph,) = graphs
    explanation = Explanation.of(graph)
    assert not explanation.fallbacks and not explanation.calls
    # Strides of symbols of their own may be any, and an index into height x width of symbols is not taken apart.
    computing = [kernel["name"] for kernel in explanation.kernels if kernel["name"] != "layout_copy"]
    apart = (kind == "image in padding" and dtype != torch.float32) or kind == "tokens"
    assert len(computing) == (2 if apart else 1), computing


@pytest.mark.parametrize("channels_last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("deep", [False, True], ids=["many pixels", "many channels"])
def test_convolutions_of_few_tiles_are_split(deep: bool, dtype: torch.dtype, channels_last: bool) -> None:
    """Slices of taps and channels (forward, by the input) or of pixels (by the weight); what follows joins their sum."""
    layer = nn.Conv2d(256, 512, 3, padding=1) if deep else nn.Conv2d(3, 10, 3, padding=1)
    memory = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.randn((1, 256, 4, 4) if deep else (2, 3, 64, 64)).to(memory_format=memory)
    bound = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]

    def loss(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(torch.conv2d(x, weight, bias, padding=1))
        return y, y.float().square().sum()

    ours = [t.detach().to(dtype).requires_grad_() for t in (x, layer.weight, layer.bias)]
    theirs = [t.detach().double().requires_grad_() for t in ours]
    graphs: list[Any] = []
    with backend.observe(lambda _, graph: graphs.append(graph)):
        y, total = torch.compile(loss, backend="zefuse", options=GPU)(*ours)
        total.backward()
    expected, total = loss(*theirs)
    total.backward()
    assert y.dtype == dtype and y.stride() == expected.stride()
    assert relative_error(y.double(), expected) < bound
    for mine, right in zip(ours, theirs, strict=True):
        assert mine.grad is not None and right.grad is not None
        assert relative_error(mine.grad.double(), right.grad) < bound
    forward, backward = (Explanation.of(graph) for graph in graphs)
    assert not forward.fallbacks and not backward.fallbacks
    calls = [k for k in forward.kernels + backward.kernels if k["schedule"].startswith("implicit product")]
    split = [" slices, which the next kernel adds" in k["schedule"] for k in calls]
    # By the input, then by the weight.
    assert split == ([True, True, False] if deep else [False, False, True])
    for call in calls:
        assert ("on the matrix engine" in call["schedule"]) == (dtype != torch.float32)
    if deep:
        assert [k for k in forward.kernels if k["name"].startswith("convolution_relu")]


class Sixteen(nn.Module):
    """A product, and convolutions of each kind, whose sums are not powers of two."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(6, 20, 3, padding=1)
        self.grouped = nn.Conv2d(20, 20, 3, stride=2, groups=2)
        self.back = nn.ConvTranspose2d(20, 9, 2, stride=2)
        self.linear = nn.Linear(9, 33)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.back(torch.relu(self.grouped(torch.relu(self.first(x)))))
        return self.linear(x.flatten(2).transpose(1, 2))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits_go_to_the_matrix_engine(dtype: torch.dtype, channels_last: bool) -> None:
    model, x = Sixteen().eval().to(dtype), torch.randn(2, 6, 13, 11).to(dtype)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        explanation = zefuse.explain(model, x, options=GPU)
        expected = Sixteen().eval()
        expected.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
        assert (
            relative_error(explanation.result.float(), expected(x.float()))
            < {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
        )
    assert not explanation.fallbacks
    calls = [k["schedule"] for k in explanation.kernels if k["name"].startswith(("matmul", "convolution"))]
    assert len(calls) == 4
    for schedule in calls:
        assert "on the matrix engine" in schedule


def test_f32_is_not_for_the_matrix_engine() -> None:
    with torch.no_grad():
        explanation = zefuse.explain(mlp(), torch.randn(8, 64), options=GPU)
    assert not [kernel for kernel in explanation.kernels if "matrix engine" in kernel["schedule"]]


def test_kernels_side_by_side_stay_apart_and_say_why() -> None:
    """A layer norm's gradients by its input and by its parameters: one launch on the CPU."""
    norm, x = nn.LayerNorm(100), torch.randn(40, 100)

    def apart(options: dict[str, Any]) -> tuple[int, list[str]]:
        graphs: list[Any] = []
        norm.zero_grad()
        y = x.clone().requires_grad_()
        with backend.observe(lambda _, graph: graphs.append(graph)):
            torch.compile(norm, backend="zefuse", options=options)(y).square().sum().backward()
        explanation = Explanation.of(graphs[-1])
        return len(explanation.kernels), [pair["reason"] for pair in explanation.not_joined]

    reason = "not side by side in one launch: on a GPU each has a group size, sub-groups and local memory of its own"
    kernels, reasons = apart(GPU)
    assert kernels == 2 and reason in reasons
    kernels, reasons = apart({"device": "cpu"})
    assert kernels == 1 and reason not in reasons


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rows_whose_vectors_would_not_be_aligned(dtype: torch.dtype) -> None:
    """Narrower vectors, in registers between the stages all the same; an offset does the same as an odd length."""
    torch.manual_seed(0)
    inputs = [torch.randn(sizes).to(dtype) for sizes in [(40, 4097), (7, 4098), (300, 129), (5, 1027)]]
    inputs += [x.clone() for x in inputs]

    def function(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.softmax(x, -1) for x in inputs[:4]] + [torch.softmax(x[:, 1:], -1) for x in inputs[4:]]

    explanation = zefuse.explain(function, inputs, options=GPU)
    assert not explanation.fallbacks
    for result, expected in zip(explanation.result, function([x.float() for x in inputs]), strict=True):
        assert relative_error(result.float(), expected) < (1e-6 if dtype == FLOATS[0] else 8e-3)
