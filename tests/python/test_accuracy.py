"""Long sums: no farther from double precision than eager's, which sums in cascades or in double precision."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

EPSILON = 2.0**-24  # of f32: half a unit in the last place of 1

Function = Callable[..., tuple[torch.Tensor, ...]]


def batch_norm(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.native_batch_norm(x, None, None, mean.clone(), variance.clone(), True, 1.0, 1e-5)


def running_statistics(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean, variance = mean.clone(), variance.clone()
    F.batch_norm(x, mean, variance, training=True, momentum=1.0)
    return mean, variance


def channels(x: torch.Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


FUNCTIONS: dict[str, Function] = {
    "var_mean": lambda x, *_: torch.var_mean(x, channels(x)),
    "sum and mean": lambda x, *_: (x.sum(channels(x)), x.mean(channels(x))),
    "whole": lambda x, *_: (x.sum(), x.mean(), *torch.std_mean(x)),
    "norm": lambda x, *_: (torch.linalg.vector_norm(x, dim=channels(x)), x.norm()),
    "batch norm": batch_norm,
    "running statistics": running_statistics,
}
LAYOUTS = {"row-major": torch.contiguous_format, "channels last": torch.channels_last}


def distance(results: tuple[torch.Tensor, ...], exact: tuple[torch.Tensor, ...]) -> list[float]:
    """Of each result from the exact one, in the units of f32 at its largest value."""
    return [
        float((result.double() - right).abs().max() / right.abs().max() / EPSILON)
        for result, right in zip(results, exact, strict=True)
    ]


def check(
    ours: tuple[torch.Tensor, ...], eager: tuple[torch.Tensor, ...], exact: tuple[torch.Tensor, ...], factor: float = 2
) -> None:
    for mine, theirs in zip(distance(ours, exact), distance(eager, exact), strict=True):
        assert mine <= factor * theirs + 4, f"{mine:.1f} units, eager {theirs:.1f}"


def example(layout: str, mean: float, shape: tuple[int, ...]) -> torch.Tensor:
    torch.manual_seed(1)
    return (torch.randn(shape) + mean).contiguous(memory_format=LAYOUTS[layout])


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_long_sums(name: str, layout: str, dynamic: bool, device: str) -> None:
    function = FUNCTIONS[name]
    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic, options={"device": device}, fullgraph=True)
    # Of many images, of few, of one row of pixels; with and without a rest.
    for shape in [(4, 32, 112, 112), (300, 48, 5, 7), (2, 17, 1, 9001)][: 3 if device == "cpu" else 1]:
        for mean in (0.25, 100.0):
            x = example(layout, mean, shape)
            state = torch.zeros(shape[1]), torch.ones(shape[1])
            exact = function(x.double(), *(s.double() for s in state))
            # The groups' work-items meet in f32: a unit more of a mean of 100.
            check(compiled(x, *state), function(x, *state), exact, 2 if device == "cpu" else 3)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward_of_batch_norm(layout: str, dynamic: bool) -> None:
    def gradients(x: torch.Tensor, weight: torch.Tensor, factors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs = [x.detach().requires_grad_(), weight.detach().requires_grad_(), weight.detach().requires_grad_()]
        y = F.batch_norm(inputs[0], None, None, inputs[1], inputs[2], training=True)
        return torch.autograd.grad((y * factors).sum(), inputs)

    def step(x: torch.Tensor, weight: torch.Tensor, factors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs = [x.detach().requires_grad_(), weight.detach().requires_grad_(), weight.detach().requires_grad_()]
        return torch.autograd.grad((compiled(*inputs) * factors).sum(), inputs)

    compiled = torch.compile(
        lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, training=True),
        backend="zefuse",
        dynamic=dynamic,
    )
    for shape in [(4, 32, 112, 112), (300, 48, 5, 7)]:
        x, factors = example(layout, 3.0, shape), example(layout, 0.5, shape)
        weight = torch.rand(shape[1])
        check(
            step(x, weight, factors),
            gradients(x, weight, factors),
            gradients(x.double(), weight.double(), factors.double()),
        )


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 3e38])
def test_sums_that_are_no_numbers(value: float) -> None:
    x = torch.ones(40, 5000)
    x[7, 3000], x[7, 4000], x[8, 10] = value, value, -value
    compiled = torch.compile(lambda x: (x.sum(), x.sum(0), x.sum(1)), backend="zefuse")
    for ours, eager in zip(compiled(x), (x.sum(), x.sum(0), x.sum(1)), strict=True):
        torch.testing.assert_close(ours, eager, equal_nan=True)


SPREADS: dict[str, Function] = {
    "std": lambda x: (x.std(1), x.std(0, unbiased=False), x.std()),
    "var": lambda x: (x.var(1), x.var(0, correction=3), x.var()),
    "std_mean": lambda x: torch.std_mean(x, 1, keepdim=True)[:1],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(6, 50), (300, 700)], ids=str)
@pytest.mark.parametrize("scale", [1e30, 1e34, 1e19, 3e9, 1e-12, 1e-22, 1e-30, 1e-40])
@pytest.mark.parametrize("name", SPREADS)
def test_deviations_whose_squares_f32_does_not_hold(
    name: str, scale: float, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(2)
    x = (torch.randn(shape) * scale).to(dtype)
    torch._dynamo.reset()
    expected = SPREADS[name](x)
    made = torch.compile(SPREADS[name], backend="zefuse", options={"strict": True})(x)
    for ours, theirs in zip(made, expected, strict=True):
        # What is subnormal has fewer bits.
        torch.testing.assert_close(ours, theirs, rtol=1.6e-2 if dtype == torch.bfloat16 else 2e-6, atol=2e-44)
