"""Operators that are taken apart, or that torch's shape rules lay otherwise: as in eager, in every dimension."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from random_layouts import drawn_layout
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import zefuse.backend  # noqa: F401  torch's shape rules are then eager's
from zefuse.decompositions.table import decompositions

_OF_TWO: dict[str, Callable[..., Any]] = {
    "mse": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none"),
    "soft_margin": lambda x, y: F.soft_margin_loss(x, y, reduction="none"),
    "cross_entropy": lambda x, y: F.binary_cross_entropy(x, y, reduction="none"),
    "weighted": lambda x, y: F.binary_cross_entropy(x, y, y, reduction="none"),
    "logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "normal": torch.normal,
}
_OF_ONE: dict[str, Callable[..., Any]] = {
    "normal of means": lambda x: torch.normal(x, 2.0),
    "normal of deviations": lambda x: torch.normal(1.0, x),
    "poisson": torch.poisson,
    "log_softmax": lambda x: x.log_softmax(-1),
}
_OF_IMAGES: dict[str, tuple[int, Callable[..., Any]]] = {
    "nearest 1d": (3, lambda x: F.interpolate(x, scale_factor=2)),
    "exact 1d": (3, lambda x: F.interpolate(x, size=3, mode="nearest-exact")),
    "nearest 2d": (4, lambda x: F.interpolate(x, scale_factor=2)),
    "nearest 3d": (5, lambda x: F.interpolate(x, scale_factor=2)),
    "pool with places": (3, lambda x: F.max_pool1d(x, 1, return_indices=True)[0]),
}


def _compared(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    expected = function(*inputs)
    graph = make_fx(function, decomposition_table=decompositions(), tracing_mode="fake")(*inputs).graph
    (result,) = next(node for node in graph.nodes if node.op == "output").args
    assert result.meta["val"].stride() == expected.stride(), [(each.shape, each.stride()) for each in inputs]


def _of_zeros(tensor: torch.Tensor) -> torch.Tensor:
    """Which every operator takes; it lies as before."""
    tensor.untyped_storage().fill_(0)
    return tensor


@pytest.mark.parametrize("name", [*_OF_TWO, *_OF_ONE, *_OF_IMAGES])
def test_traced_results_lie_as_eagers(name: str) -> None:
    draw = random.Random(0)
    for _ in range(40):
        rank = draw.choice([2, 3, 4, 4, 5])
        sizes = draw.choices([1, 1, 2, 3], k=rank)
        if name in _OF_TWO:
            pair = (_of_zeros(drawn_layout(sizes, draw)) for _ in range(2))
            _compared(_OF_TWO[name], *pair)
        elif name in _OF_ONE:
            _compared(_OF_ONE[name], _of_zeros(drawn_layout(sizes, draw)))
        else:
            rank, function = _OF_IMAGES[name]
            _compared(function, drawn_layout(draw.choices([1, 1, 2, 3], k=rank), draw))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.glu(x, 1),
        lambda x: F.max_pool3d(x, 1),
        lambda x: F.interpolate(x[:, :1], scale_factor=2, mode="bilinear"),
    ],
    ids=["glu", "a volume's pool", "bilinear"],
)
def test_fake_results_lie_as_eagers(function: Callable[..., Any]) -> None:
    """Few differed: before, 25, 15 and 3 of 400."""
    draw = random.Random(0)
    for _ in range(400):
        sizes = draw.choices([1, 1, 2, 4], k=4)
        x = drawn_layout([sizes[0], draw.choice([2, 2, 4]), *sizes[2:]], draw)
        try:
            expected = function(x)
        except RuntimeError:  # a pool of a volume that lies as an image
            continue
        with FakeTensorMode() as mode:
            fake = function(mode.from_tensor(x))
        assert fake.stride() == expected.stride(), (x.shape, x.stride())


def test_compiled_losses_lie_as_eagers() -> None:
    one, other = torch.rand(3, 4, 5).transpose(0, 2), torch.rand(5, 3, 4).transpose(1, 2)
    row = torch.rand(5, 1, 3).expand(5, 4, 3)

    def losses(one: torch.Tensor, other: torch.Tensor, row: torch.Tensor) -> list[torch.Tensor]:
        pairs = [(one, other), (other, one), (row, one), (one, row)]
        kinds = (F.binary_cross_entropy, F.binary_cross_entropy_with_logits, F.huber_loss, F.soft_margin_loss)
        return [kind(*pair, reduction="none") for pair in pairs for kind in kinds]

    for dynamic in (False, True):
        actual = torch.compile(losses, backend="zefuse", dynamic=dynamic)(one, other, row)
        expected = losses(one, other, row)
        assert [each.stride() for each in actual] == [each.stride() for each in expected]
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_pools_of_rows_lie_as_eagers(dynamic: bool) -> None:
    """Without gradients eager has another kernel than with them."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool1d(x, 2)

    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    x = torch.randn(2, 6, 4).transpose(1, 2)
    for given in (x, x.clone().requires_grad_()):
        assert compiled(given).stride() == function(given).stride()
        torch.testing.assert_close(compiled(given), function(given))


def test_resized_rows_lie_as_eagers() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2)

    x = torch.randn(2, 6, 4).transpose(1, 2)
    for dynamic in (False, True):
        actual, expected = torch.compile(function, backend="zefuse", dynamic=dynamic)(x), function(x)
        assert actual.stride() == expected.stride()
        torch.testing.assert_close(actual, expected)
