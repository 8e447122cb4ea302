"""Reductions of large images with channels innermost whose results are wanted contiguous: the image is copied, before the kernel.

Each is compared with double precision. `layout_copy` is the copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import zefuse


def channels_last(*sizes: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*sizes, generator=generator).to(memory_format=torch.channels_last) + 2


def kernels(function: Callable[..., object], *inputs: Tensor) -> list[list[str]]:
    """Names of the kernels of the forward graph and, where there is one, of the backward graph."""
    torch._dynamo.reset()  # else sizes of a second call are symbols
    explanation = zefuse.explain(function, *inputs)
    assert not explanation.fallbacks
    graphs = max(kernel["graph"] for kernel in explanation.kernels) + 1
    return [[kernel["name"] for kernel in explanation.kernels if kernel["graph"] == graph] for graph in range(graphs)]


def near(actual: Tensor, right: Tensor, bound: float = 3e-6) -> None:
    assert (actual.double() - right).abs().max() <= bound * right.abs().max()


def instance_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.instance_norm(x, weight=w, bias=b)


@pytest.mark.parametrize("sizes", [(1, 96, 32, 32), (2, 64, 32, 32), (3, 24, 33, 31)], ids=str)
def test_instance_norm(sizes: tuple[int, ...]) -> None:
    """What is saved lies as the result does, and so does its gradient: the backward copies nothing."""
    given = [channels_last(*sizes), torch.randn(sizes[1]), torch.randn(sizes[1])]
    given = [tensor.requires_grad_() for tensor in given]
    forward, backward = kernels(instance_norm, *given)
    assert forward[0] == "layout_copy" and len(forward) == 2
    assert "layout_copy" not in backward

    eager, compiled = instance_norm(*given), torch.compile(instance_norm, backend="zefuse")(*given)
    assert compiled.stride() == eager.stride()
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    right = instance_norm(*exact)
    near(compiled, right)
    grad = torch.randn(sizes, generator=torch.Generator().manual_seed(2))
    ours = torch.autograd.grad(compiled, given, grad)
    theirs = torch.autograd.grad(eager, given, grad)
    for one, other, double in zip(ours, theirs, torch.autograd.grad(right, exact, grad.double()), strict=True):
        near(one, double, 1e-5)
        assert one.stride() == other.stride()


PLACES: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.flatten(2).softmax(-1),
    "log_softmax": lambda x: x.flatten(2).log_softmax(-1),
    "layer norm": lambda x: F.layer_norm(x.flatten(2), (x.shape[2] * x.shape[3],)),
}


@pytest.mark.parametrize("case", PLACES)
def test_over_places(case: str) -> None:
    """The kernel sees another shape than the image has."""
    function = PLACES[case]
    for sizes in (1, 96, 32, 32), (2, 40, 48, 20):
        x = channels_last(*sizes)
        assert [name == "layout_copy" for name in kernels(function, x)[0]] == [True, False]
        actual = torch.compile(function, backend="zefuse")(x)
        assert actual.stride() == function(x).stride()
        near(actual, function(x.double()))
        assert len(kernels(function, x.contiguous())[0]) == 1


def test_gradient_over_places() -> None:
    """In the other direction: the gradient is contiguous, and the image's gradient is too."""
    x = channels_last(2, 64, 40, 24).requires_grad_()
    function = PLACES["softmax"]
    forward, backward = kernels(function, x)
    assert forward[0] == "layout_copy" and len(forward) == 2 and len(backward) == 1
    grad = torch.randn(2, 64, 960, generator=torch.Generator().manual_seed(2))
    exact = x.detach().double().requires_grad_()
    (right,) = torch.autograd.grad(function(exact), exact, grad.double())
    near(torch.autograd.grad(torch.compile(function, backend="zefuse")(x), x, grad)[0], right)


def test_results_that_lie_as_the_image_are_left() -> None:
    """Nothing is copied where all lie in one order, also behind a reshape that splits channels."""
    x = channels_last(2, 64, 32, 32)
    for function in (
        lambda x: F.group_norm(x, 8),
        lambda x: F.batch_norm(x, None, None, training=True),
    ):
        assert "layout_copy" not in kernels(function, x)[0]


def test_over_channels() -> None:
    """Channels are neighbours as the image lies: it is walked so, and the result copied. The copy is saved too, for the gradient."""
    x = channels_last(2, 64, 32, 32).requires_grad_()
    forward, backward = kernels(lambda x: x.softmax(1), x)
    assert [name == "layout_copy" for name in forward] == [False, True] and len(backward) == 1
    y, eager = torch.compile(lambda x: x.softmax(1), backend="zefuse")(x), x.softmax(1)
    assert y.stride() == eager.stride()
    grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    exact = x.detach().double().requires_grad_()
    (right,) = torch.autograd.grad(exact.softmax(1), exact, grad.double())
    near(torch.autograd.grad(y, x, grad)[0], right)


def test_small_images_are_walked_as_they_lie() -> None:
    x = channels_last(1, 16, 16, 16)
    assert kernels(PLACES["softmax"], x)[0] == ["_softmax"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32], ids=str)
def test_maxima_are_stored_whole(dtype: torch.dtype, tmp_path: Path) -> None:
    """A masked store of the largest so far made the loop over places take 2.4 times as long."""
    x = torch.randn(2, 300, 200, generator=torch.Generator().manual_seed(1)).mul(100).to(dtype)
    if dtype.is_floating_point:
        x[0, 7, 3] = x[1, 0, 5] = x[1, 299, 199] = float("nan")

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.amax(1), x.amin(1)

    torch._dynamo.reset()
    actual = torch.compile(function, backend="zefuse", options={"dump_dir": str(tmp_path)})(x)
    for one, right in zip(actual, function(x), strict=True):
        assert (
            torch.equal(one.nan_to_num(nan=1e9), right.nan_to_num(nan=1e9))
            if dtype.is_floating_point
            else torch.equal(one, right)
        )
    assembly = [path.read_text() for path in tmp_path.rglob("kernel.s")]
    assert assembly
    masked = re.compile(r"maskmov\w*\s+\w+ ptr \[|ptr \[[^]]*\] \{k")
    assert not [line for text in assembly for line in text.splitlines() if masked.search(line)]
