"""Convolutions of types that the CPU's library does not take: kernels, with what stands around them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
import torch
from op_case import tensor
from torch.nn import functional as F

import zefuse
from zefuse import backend
from zefuse.explaining.explanation import Explanation

INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
TYPES = [torch.float64, torch.float16, *INTEGERS]

# Images, weights and arguments: kernels of every shape, blocks that are not full, channels fewer than lanes and more
# than one unit's, more pixels than a block's rows, windows that lie in the padding.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = {
    "1d": ((2, 4, 17), (6, 4, 5), {"stride": 2, "padding": 2}),
    "2d": ((2, 16, 12, 13), (20, 16, 3, 3), {"padding": 1}),
    "2d_of_3": ((1, 3, 9, 9), (33, 3, 3, 3), {"stride": (2, 1), "padding": (1, 2)}),
    "2d_wide": ((1, 32, 6, 7), (150, 32, 1, 1), {}),
    "2d_deep": ((1, 48, 5, 5), (17, 48, 3, 3), {"padding": 3}),
    "2d_dilated": ((1, 8, 11, 12), (16, 8, 3, 3), {"dilation": (2, 3), "padding": 2}),
    "2d_groups": ((2, 24, 7, 7), (30, 8, 3, 3), {"groups": 3}),
    "2d_depthwise": ((2, 19, 9, 8), (19, 1, 3, 3), {"padding": 1, "groups": 19}),
    "2d_one_channel": ((2, 10, 13, 14), (1, 10, 3, 3), {}),
    "3d": ((1, 4, 5, 6, 7), (6, 4, 3, 2, 3), {"stride": (1, 2, 1), "padding": 1}),
    "transposed_1d": ((2, 16, 9), (16, 12, 3), {"stride": 2}),
    "transposed_2d": ((2, 8, 5, 4), (8, 18, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    "transposed_2d_groups": ((2, 6, 5, 4), (6, 2, 3, 3), {"stride": (2, 3), "groups": 2, "dilation": 2}),
    "transposed_3d": ((1, 4, 4, 3, 5), (4, 3, 2, 3, 2), {}),
}


def convolution(name: str) -> Callable[..., torch.Tensor]:
    """Of image, weight and bias, with the case's arguments."""
    arguments = CASES[name][2]
    rank = len(CASES[name][0]) - 2
    function = getattr(F, f"conv_transpose{rank}d" if name.startswith("transposed") else f"conv{rank}d")
    return lambda x, w, b=None: function(x, w, b, **arguments)  # type: ignore[no-any-return]


def channels_of(name: str) -> int:
    weight, arguments = CASES[name][1:]
    groups = arguments.get("groups", 1)
    assert isinstance(groups, int)
    return weight[1] * groups if name.startswith("transposed") else weight[0]


def expected_of(name: str, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
    """In f64, or in 64 bits, whose last ones are a narrower type's: eager has no transposed convolution of these."""
    wide = torch.float64 if x.dtype.is_floating_point else torch.int64
    result = convolution(name)(x.to(wide), w.to(wide), None if b is None else b.to(wide))
    return result if x.dtype.is_floating_point else result.to(x.dtype)


def assert_near(result: torch.Tensor, expected: torch.Tensor) -> None:
    if not result.dtype.is_floating_point:
        assert torch.equal(result, expected)
    elif result.dtype == torch.float16:
        torch.testing.assert_close(result.double(), expected, rtol=1e-3, atol=1e-2)
    else:
        torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-11)


def inputs_of(dtype: torch.dtype) -> list[tuple[torch.Tensor, ...]]:
    """Image, weight and bias of each case."""
    return [
        (tensor(dtype, *image), tensor(dtype, *weight), tensor(dtype, channels_of(name)))
        for name, (image, weight, _) in CASES.items()
    ]


FUNCTIONS = [convolution(name) for name in CASES]


def all_cases(inputs: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    return [function(*given) for function, given in zip(FUNCTIONS, inputs, strict=True)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_values(dtype: torch.dtype) -> None:
    inputs = inputs_of(dtype)
    explanation = zefuse.explain(all_cases, inputs)
    assert not explanation.fallbacks
    products = [k for k in explanation.kernels if k["schedule"].startswith("product, blocks of ")]
    assert len(products) >= len(CASES)
    for name, given, result in zip(CASES, inputs, explanation.result, strict=True):
        assert result.shape == expected_of(name, *given).shape, name
        assert_near(result, expected_of(name, *given))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_gradients(dtype: torch.dtype) -> None:
    all_leaves = [[value.requires_grad_() for value in given] for given in inputs_of(dtype)]
    results = torch.compile(all_cases, backend="zefuse")(all_leaves)
    seeds = [tensor(dtype, *result.shape) for result in results]
    graphs = []
    with backend.observe(lambda _, graph: graphs.append(graph)):
        torch.autograd.backward(results, seeds)
    for name, leaves, seed in zip(CASES, all_leaves, seeds, strict=True):
        wide = [value.detach().double().requires_grad_() for value in leaves]
        convolution(name)(*wide).backward(seed.double())
        for leaf, expected in zip(leaves, wide, strict=True):
            assert leaf.grad is not None and expected.grad is not None
            tolerance = 2e-3 if dtype == torch.float16 else 1e-12
            scale = float(expected.grad.abs().max())
            torch.testing.assert_close(leaf.grad.double(), expected.grad, rtol=tolerance, atol=tolerance * scale)
    assert [Explanation.of(graph).fallbacks for graph in graphs] == [[]] * len(graphs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32], ids=str)
def test_any_size(dtype: torch.dtype) -> None:
    """Of images and batches; channels are known."""
    graphs = []
    compiled = torch.compile(lambda x, w, b: F.conv2d(x, w, b, padding=1), backend="zefuse")
    w, b = tensor(dtype, 20, 16, 3, 3), tensor(dtype, 20)
    with backend.observe(lambda _, graph: graphs.append(graph)):
        for batch, height, width in [(3, 9, 8), (2, 15, 7), (5, 4, 33)]:
            x = tensor(dtype, batch, 16, height, width)
            for dim in (0, 2, 3):
                torch._dynamo.mark_dynamic(x, dim)
            assert_near(compiled(x, w, b), expected_of("2d", x, w, b))
    assert [Explanation.of(graph).fallbacks for graph in graphs] == [[]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.int8], ids=str)
def test_what_follows_is_in_the_kernel(dtype: torch.dtype) -> None:
    """The image lies as the kernel wants it."""
    x = tensor(dtype, 2, 16, 9, 8).to(memory_format=torch.channels_last)
    w, b, r = tensor(dtype, 20, 16, 3, 3), tensor(dtype, 20), tensor(dtype, 2, 20, 7, 6)

    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        return torch.maximum(F.conv2d(x, w) * 3 + b.view(1, -1, 1, 1), r)

    explanation = zefuse.explain(function, x, w, b, r)
    assert len(explanation.kernels) == 1 and not explanation.fallbacks
    assert_near(explanation.result, function(x, w, b, r))


def test_half_precision_sums_in_single() -> None:
    """4608 addends of 1: f16 would stop at 2048."""
    x, w = torch.ones(1, 512, 3, 3, dtype=torch.float16), torch.ones(8, 512, 3, 3, dtype=torch.float16)
    explanation = zefuse.explain(F.conv2d, x, w)
    assert not explanation.fallbacks and bool((explanation.result == 4608).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64], ids=str)
def test_what_eager_does_sooner_is_left_to_it(dtype: torch.dtype) -> None:
    """Many elements of patches without neighbours: depthwise."""
    x, w = tensor(dtype, 1, 32, 20, 20), tensor(dtype, 32, 1, 3, 3)
    explanation = zefuse.explain(lambda x, w: F.conv2d(x, w, groups=32), x, w)
    (fallback,) = explanation.fallbacks
    assert "eager is quicker with 93312 elements of patches in groups of 1 channels, for 1" in str(fallback)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_zeros_around_a_gradient_do_not_multiply_infinite_weights(dtype: torch.dtype, transposed: bool) -> None:
    """Eager leaves them out, and gives infinity where they would make NaN: in a transposed convolution, which is also the gradient."""
    w = torch.randn(8, 8, 3, 3, dtype=dtype)
    w[0, 0, 0, 0], w[1, 1, 1, 2] = torch.inf, -torch.inf
    results = []

    def convolution(x: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose2d(x, w, stride=2, padding=1) if transposed else F.conv2d(x, w, stride=2, padding=1)

    image = torch.randn(2, 8, 12, 12, dtype=dtype)
    for run in (convolution, torch.compile(convolution, backend="zefuse")):
        x = image.clone().requires_grad_(not transposed)
        y = run(x)
        incoming = torch.linspace(-1, 2, y.numel()).reshape(y.shape).to(dtype)
        results.append(y if transposed else torch.autograd.grad(y, x, incoming)[0])
    assert torch.equal(results[1].isnan(), results[0].isnan())
    torch.testing.assert_close(results[1], results[0], equal_nan=True, rtol=1e-2, atol=1e-2)


def test_winograds_filtering_can_be_left_out() -> None:
    """Convolutions of f32 that take it, and their gradients, have errors of eager's size, and other bits without it. Eager
    sums some of them in blocks, as products of matrices: the largest errors may be a few times smaller."""
    script = """
import os, torch, zefuse
torch.manual_seed(0)
def outcomes(run, x, dtype):
    x = x.to(dtype, copy=True).requires_grad_(True)
    y = run(x)
    incoming = torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(dtype)
    return [y.detach(), *torch.autograd.grad(y, (x, convolution.weight), incoming)]
for convolution, x in (
    (torch.nn.Conv2d(64, 64, 3, padding=1), torch.randn(1, 64, 28, 28)),
    (torch.nn.Conv3d(32, 40, 3, padding=1), torch.randn(1, 32, 9, 15, 14)),
    (torch.nn.Conv3d(32, 40, (1, 3, 3), padding=1), torch.randn(2, 32, 5, 15, 14)),
    (torch.nn.Conv3d(128, 96, (3, 1, 1), padding=(1, 0, 0)), torch.randn(1, 128, 16, 12, 12)),
    (torch.nn.Conv1d(96, 128, 3, padding=3, dilation=3), torch.randn(2, 96, 201)),
):
    eager = outcomes(convolution, x, torch.float32)
    made = outcomes(torch.compile(convolution, backend="zefuse"), x, torch.float32)
    exact = outcomes(convolution.double(), x, torch.float64)
    for ours, theirs, true in zip(made, eager, exact):
        assert "ZEFUSE_WINOGRAD" in os.environ or (ours - true).abs().max() <= 3 * (theirs - true).abs().max()
    print(made[0].contiguous().view(torch.int32).sum(dtype=torch.int64).item())
"""

    def bits(**environment: str) -> str:
        run = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    taken = bits()
    assert bits() == taken
    for without, with_it in zip(bits(ZEFUSE_WINOGRAD="off").split(), taken.split(), strict=True):
        assert without != with_it


def test_a_training_steps_weight_is_packed_for_each_step() -> None:
    """Winograd's transformation of a weight that changes costs more than small images save: they are left to direct sums there,
    whose bits are others."""
    if not {"avx2", "avx512"} & {torch.backends.cpu.get_cpu_capability().lower()}:
        pytest.skip("Winograd's filtering wants AVX2")
    convolution = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False).to(memory_format=torch.channels_last)
    for size, same in ((6, False), (28, True)):
        x = torch.randn(1, 64, size, size).to(memory_format=torch.channels_last)
        with torch.no_grad():
            kept = torch.compile(convolution, backend="zefuse")(x)
        trained = torch.compile(convolution, backend="zefuse")(x)
        assert trained.requires_grad
        torch.testing.assert_close(trained, kept)
        assert torch.equal(trained, kept) == same


@pytest.mark.parametrize(
    ("shape", "weight", "arguments"),
    [
        ((2, 64, 900), (64, 64, 7), {"padding": 15, "dilation": 5}),
        ((2, 40, 901), (72, 40, 8), {"padding": 3, "stride": 4}),
        ((2, 64, 40, 41), (48, 64, 3, 3), {"padding": 1, "stride": 2}),
        ((1, 32, 4, 24, 25), (64, 32, 3, 3, 3), {"padding": (1, 2, 2), "stride": (1, 2, 2), "dilation": (1, 2, 2)}),
    ],
    ids=["sequence_with_gaps", "sequence_with_steps", "image_with_steps", "volume_with_steps_and_gaps"],
)
def test_gradients_of_weights_in_panels(
    shape: tuple[int, ...], weight: tuple[int, ...], arguments: dict[str, object]
) -> None:
    """Gradients are as near to double precision as eager's, and have NaN where eager's have."""
    torch.manual_seed(0)
    function = getattr(F, f"conv{len(shape) - 2}d")
    x, w, b = torch.randn(shape), torch.randn(weight), torch.randn(weight[0])
    incoming = torch.randn_like(function(x, w, b, **arguments))

    def gradients(run: Callable[..., torch.Tensor], dtype: torch.dtype, spoiled: bool = False) -> list[torch.Tensor]:
        inputs = [value.to(dtype, copy=True) for value in (x, w, b)]
        if spoiled:
            inputs[0].flatten()[inputs[0].numel() // 2] = float("nan")
        for value in inputs:
            value.requires_grad_(True)
        return list(torch.autograd.grad(run(*inputs), inputs, incoming.to(dtype)))

    def plain(*inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = function(*inputs, **arguments)
        return result

    compiled = torch.compile(plain, backend="zefuse")
    exact, eager, made = (
        gradients(plain, torch.float64),
        gradients(plain, torch.float32),
        gradients(compiled, torch.float32),
    )
    for true, theirs, ours in zip(exact, eager, made, strict=True):
        assert (ours - true).abs().max() <= 3 * (theirs - true).abs().max()
    for theirs, ours in zip(
        gradients(plain, torch.float32, True), gradients(compiled, torch.float32, True), strict=True
    ):
        assert torch.equal(ours.isnan(), theirs.isnan())
