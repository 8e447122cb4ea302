"""Gradients of results with dimensions of size 1, whose strides say nothing: AOTAutograd does not copy them."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from zefuse.graphs.tangent_strides import Strides

NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group norm": lambda x: F.group_norm(x, 4),
    "elementwise": lambda x: F.silu(x) * 2,
    "convolution": lambda x: F.conv2d(x, torch.ones(3, 16, 1, 1)),
}


def copies_of_gradient(norm: Callable[[Tensor], Tensor], x: Tensor, change: Callable[[Tensor], Tensor]) -> int:
    """How many copies torch makes in a backward call; its result is eager's."""
    x = x.requires_grad_()
    eager, compiled = norm(x), torch.compile(norm, backend="zefuse")(x)
    assert Strides(eager.stride(), x.shape) == compiled.stride()
    generator = torch.Generator().manual_seed(1)
    grad = change(torch.empty_like(eager).normal_(generator=generator))
    (expected,) = torch.autograd.grad(eager, x, grad)
    with torch.profiler.profile() as profile:
        (actual,) = torch.autograd.grad(compiled, x, grad)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    return sum(event.count for event in profile.key_averages() if event.key == "aten::copy_")


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("sizes", [(1, 16, 6, 5), (2, 16, 1, 5), (1, 16, 1, 3)], ids=str)
def test_ones_have_any_stride(norm: str, sizes: tuple[int, ...]) -> None:
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(0))
    for image in (x, x.to(memory_format=torch.channels_last)):
        assert copies_of_gradient(NORMS[norm], image, lambda grad: grad) == 0


def test_other_strides_are_copied() -> None:
    """Of a gradient in another order, and of one that repeats its elements."""
    x = torch.randn(1, 16, 6, 5).to(memory_format=torch.channels_last)
    assert copies_of_gradient(NORMS["batch norm"], x, lambda grad: grad.contiguous()) == 1
    assert copies_of_gradient(NORMS["batch norm"], x, lambda grad: grad[:, :1].expand(grad.shape)) == 1


def test_strides_are_equal_where_places_are() -> None:
    strides = Strides((32, 1, 512, 32), (1, 32, 16, 16))
    assert (8192, 1, 512, 32) == strides == (0, 1, 512, 32)
    assert strides == (8192, 1, 512, 32)
    assert strides != (32, 1, 512, 16) and strides != (32, 1, 512) and strides != [32, 1, 512, 32]
    again = pickle.loads(pickle.dumps(strides))
    assert again == (8192, 1, 512, 32) and again.counting == (1, 2, 3)
