"""Results' strides, where torch's shape rules have others than eager's operators: as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_semantics import zefuse
from torch.nn import functional as F

_OTHERWISE = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0)).permute(2, 0, 1)
_PERMUTED_IMAGES = torch.randn(4, 5, 6, 3, generator=torch.Generator().manual_seed(0)).permute(3, 0, 2, 1)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, y: torch.masked_scatter(x, x > 0, y), [_OTHERWISE, torch.ones(120)]),
        (lambda x, y: torch.div(x, y, rounding_mode="floor"), [_OTHERWISE, torch.full((5, 4, 6), 3.0)]),
        (lambda x, y: torch.div(x, y, rounding_mode="floor"), [torch.full((5, 4, 6), 3.0), _OTHERWISE]),
        (lambda x, y: torch.div(x, y, rounding_mode="floor"), [_OTHERWISE, torch.tensor(3.0)]),
        (lambda x, y: torch.div(x, y, rounding_mode="floor"), [_OTHERWISE.bfloat16(), torch.tensor(3.0)]),
        (lambda x, y: torch.div(x, y, rounding_mode="floor"), [_OTHERWISE, torch.full((4, 1), 3.0)]),
        (lambda x, y: torch.div(x, y, rounding_mode="trunc"), [_OTHERWISE, torch.full((5, 4, 6), 3.0)]),
        (lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)), [_OTHERWISE]),
        (lambda x: F.batch_norm(x, None, None, training=True), [_OTHERWISE]),
        (lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True), [_PERMUTED_IMAGES]),
        (lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)), [_PERMUTED_IMAGES.to(memory_format=torch.channels_last)]),
    ],
    ids=["masked_scatter", "floor", "floor, first contiguous", "floor by one", "floor by one of f32", "floor by repeats", "trunc", "norm",
         "norm without statistics", "norm in training", "norm of channels last"],
)  # fmt: skip
def test_strides_that_torchs_rules_have_otherwise_are_eagers(function: Any, inputs: list[torch.Tensor]) -> None:
    ours, theirs = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    actual, expected = torch.compile(function, backend="zefuse")(*ours), function(*theirs)
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    for result in (actual, expected):
        result.square().sum().backward()
    for mine, eagers in zip(ours, theirs, strict=True):
        assert mine.grad.stride() == eagers.grad.stride()
        torch.testing.assert_close(mine.grad, eagers.grad, rtol=1e-4, atol=1e-5)


_REPEATED = [torch.tensor(0.5), torch.rand(4), torch.rand(5, 1, 1)]


def _lcm(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.lcm((one * 20).to(torch.int16), (other * 20).to(torch.int16))


_BY_ONE_OPERAND = [
    torch.logical_or, torch.logical_and, torch.logical_xor, torch.logaddexp, torch.logaddexp2, torch.heaviside, torch.copysign,
    torch.floor_divide, torch.xlogy, torch.special.xlog1py, _lcm,
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
@pytest.mark.parametrize("operator", _BY_ONE_OPERAND)
def test_strides_beside_what_is_repeated(operator: Any, device: str) -> None:
    """torch's shape rules make these of several operators, the first of one operand alone: channels last became contiguous."""
    image = torch.rand(3, 5, 6, 4, generator=torch.Generator().manual_seed(0))
    last = image.contiguous(memory_format=torch.channels_last)
    images = [
        last,
        last[:, :, ::2],
        image.transpose(0, 2),
        image.transpose(0, 2).transpose(1, 3).contiguous().transpose(1, 3),
    ]
    pairs = [pair for x in images for small in _REPEATED for pair in ((x, small), (small, x))]

    def function(pairs: list[Any]) -> list[torch.Tensor]:
        return [operator(one, other) for one, other in pairs]

    actual = torch.compile(function, backend="zefuse", dynamic=False, options={"device": device})(pairs)
    expected = function(pairs)
    assert [each.stride() for each in actual] == [each.stride() for each in expected]
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("operator", _BY_ONE_OPERAND)
def test_strides_of_two_that_are_repeated_or_lie_otherwise(operator: Any, dynamic: bool) -> None:
    channels_last = torch.rand(2, 3, 1, 5).contiguous(memory_format=torch.channels_last)
    pairs = [
        (torch.rand(1, 5, 5).permute(2, 0, 1), torch.rand(3, 5)),
        (torch.rand(5, 1, 3).transpose(0, 2), torch.rand(1, 4, 5)),
        (channels_last, torch.rand(3, 4, 1)),
        (channels_last[:1], torch.rand(2, 3, 4, 1)),
        (torch.rand(4, 3).t(), torch.rand(3, 4)),
    ]

    def function(pairs: list[Any]) -> list[torch.Tensor]:
        return [operator(*each) for one, other in pairs for each in ((one, other), (other, one))]

    actual, expected = zefuse(function, dynamic=dynamic)(pairs), function(pairs)
    assert [each.stride() for each in actual] == [each.stride() for each in expected]
    torch.testing.assert_close(actual, expected)


def _image_of_places(x: torch.Tensor) -> torch.Tensor:
    """Of one image: channels last by its elements, contiguous to eager's convolutions, by the stride of the dimension of size 1."""
    return x.transpose(1, 2).reshape(x.shape[0], -1, 4, 3)


_OF_PLACES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "convolution": lambda x: F.conv2d(x, torch.ones(6, 8, 1, 1)),
    "transposed": lambda x: F.conv_transpose2d(x, torch.ones(8, 6, 2, 2)),
    "resized, joined": lambda x: F.conv2d(torch.cat([F.interpolate(x, size=(8, 6), mode="bilinear")] * 2, 1), torch.ones(6, 16, 1, 1)),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "pool": lambda x: F.max_pool2d(x, 2),
    "norm": lambda x: F.conv2d(F.batch_norm(x, torch.zeros(8), torch.ones(8)), torch.ones(6, 8, 1, 1)),
    "norm in training": lambda x: F.conv2d(F.batch_norm(x, torch.zeros(8), torch.ones(8), training=True), torch.ones(6, 8, 1, 1)),
    "view": lambda x: x.view(1, 1, 8, 4, 3).sin(),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", _OF_PLACES)
def test_a_single_image_made_of_places_lies_as_in_eager(name: str, dynamic: bool) -> None:
    inputs = [torch.randn(1, 12, 8).requires_grad_() for _ in range(2)]
    inputs[1].data.copy_(inputs[0].data)
    results = []
    function = lambda x: _OF_PLACES[name](_image_of_places(x))  # noqa: E731
    for run, x in zip((function, zefuse(function, dynamic=dynamic)), inputs, strict=True):
        y = run(x)
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
        results.append((y, gradient))
    for expected, actual in zip(*results, strict=True):
        assert actual.stride() == expected.stride()
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


# By what the indices lie in, too, eager's result lies in memory.
INDICES: dict[str, Callable[..., torch.Tensor]] = {
    "first": lambda x, i, j: x[i],
    "last": lambda x, i, j: x[..., i],
    "two": lambda x, i, j: x[:, i, j],
    "apart": lambda x, i, j: x[i, :, i],
    "of another order": lambda x, i, j: x.permute(3, 1, 2, 0)[i],
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", INDICES)
def test_elements_at_indices_in_another_order(name: str, dynamic: bool) -> None:
    inputs = torch.randn(2, 5, 5, 3), torch.randint(2, (4, 6)).t(), torch.randint(2, (6, 4))
    expected, actual = INDICES[name](*inputs), zefuse(INDICES[name], dynamic=dynamic)(*inputs)
    assert torch.equal(actual, expected)
    assert actual.stride() == expected.stride()
