"""Convolutions beyond op_cases: gradients, memory formats, modes, weights that change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zefuse.backend import observe
from zefuse.explaining.explanation import Explanation

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.Conv1d(4, 6, 5, stride=2, padding=2), (2, 4, 17)),
    "2d": (lambda: nn.Conv2d(3, 5, 3, padding=1), (2, 3, 9, 8)),
    "2d strided": (lambda: nn.Conv2d(4, 8, (3, 2), stride=(2, 3), padding=1, bias=False), (2, 4, 9, 10)),
    "2d stride leaves a rest": (lambda: nn.Conv2d(4, 8, 1, stride=3), (2, 4, 9, 11)),
    "2d dilated, groups": (lambda: nn.Conv2d(6, 9, 3, dilation=2, groups=3), (1, 6, 9, 9)),
    "2d depthwise": (lambda: nn.Conv2d(16, 16, 3, padding=1, groups=16), (2, 16, 7, 5)),
    "3d": (lambda: nn.Conv3d(3, 4, (3, 2, 3), stride=(1, 2, 1), padding=1), (1, 3, 5, 6, 7)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1), (2, 4, 9)),
    "transposed 2d": (lambda: nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1), (2, 6, 5, 4)),
    "transposed 2d groups": (lambda: nn.ConvTranspose2d(6, 4, 3, stride=(2, 3), groups=2), (2, 6, 5, 4)),
}


def fallbacks(graphs: list[Any]) -> list[str]:
    return [entry["reason"] for graph in graphs for entry in Explanation.of(graph).fallbacks]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
def test_gradients(channels_last: bool, dynamic: bool) -> None:
    """Of input, weight and bias, all through oneDNN; strides are eager's."""
    torch.manual_seed(0)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}  # torch has none of one dimension
    layers, inputs, scales = nn.ModuleList(), [], []
    for make, shape in LAYERS.values():
        if not channels_last or len(shape) in formats:
            layers.append(make())
            inputs.append(
                torch.randn(shape).to(memory_format=formats[len(shape)] if channels_last else torch.contiguous_format)
            )
            scales.append(torch.randn(layers[-1](inputs[-1]).shape))

    def each(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [layer(x) for layer, x in zip(layers, inputs, strict=True)]

    def step(run: Callable[[list[torch.Tensor]], list[torch.Tensor]]) -> tuple[list[Any], list[Any]]:
        layers.zero_grad()
        leaves = [x.clone().requires_grad_() for x in inputs]
        outs = run(leaves)
        torch.autograd.backward(outs, scales)
        parameters = [p.grad.clone() for p in layers.parameters() if p.grad is not None]
        return [*outs, *(leaf.grad for leaf in leaves)], parameters

    graphs: list[Any] = []
    expected = step(each)
    with observe(lambda _, graph: graphs.append(graph)):
        actual = step(torch.compile(each, backend="zefuse", dynamic=dynamic, fullgraph=True))
    assert fallbacks(graphs) == []
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert [t.stride() for t in actual[0]] == [t.stride() for t in expected[0]]


@pytest.mark.parametrize("name", LAYERS)
def test_modes_agree(name: str) -> None:
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer, x = make(), torch.randn(shape)
    compiled = torch.compile(layer, backend="zefuse", fullgraph=True)
    with_grad = compiled(x).detach()
    with torch.no_grad():
        without = compiled(x)
    with torch.inference_mode():
        inference = compiled(x)
    assert torch.equal(with_grad, without)
    assert torch.equal(with_grad, inference)
    torch.testing.assert_close(with_grad, layer(x).detach(), rtol=1e-5, atol=1e-5)


def test_weights_written_in_place_are_seen() -> None:
    """A reordered weight is kept only while it is fresh."""
    layer = nn.Conv2d(16, 16, 3)
    compiled = torch.compile(layer, backend="zefuse", fullgraph=True)
    x = torch.randn(1, 16, 6, 6)
    with torch.no_grad():
        for change in (
            lambda: None,
            lambda: layer.weight.mul_(2),
            lambda: layer.weight.data.add_(1),
            lambda: layer.weight.numpy().fill(0.5),
            lambda: layer.bias.zero_() if layer.bias is not None else None,
        ):
            change()
            torch.testing.assert_close(compiled(x), layer(x))


def test_any_batch_and_image() -> None:
    layer = nn.Conv2d(3, 8, 3, stride=2, padding=1)
    compiled = torch.compile(layer, backend="zefuse", dynamic=True, fullgraph=True)
    with torch.no_grad():
        for shape in ((2, 3, 8, 9), (1, 3, 32, 5), (5, 3, 7, 7), (2, 3, 8, 9)):
            x = torch.randn(shape)
            torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.parametrize(("size", "quicker_in_eager"), [(6, False), (112, True)])
def test_other_dtypes_are_kernels_where_these_are_quick(size: int, quicker_in_eager: bool) -> None:
    graphs: list[Any] = []
    for dtype in (torch.float64, torch.float16):
        with observe(lambda _, graph: graphs.append(graph)):
            x, w = torch.randn(1, 3, size, size, dtype=dtype), torch.randn(4, 3, 3, 3, dtype=dtype)
            actual = torch.compile(F.conv2d, backend="zefuse", fullgraph=True)(x, w)
        torch.testing.assert_close(actual, F.conv2d(x, w))
    reasons = fallbacks(graphs)
    assert len(reasons) == (2 if quicker_in_eager else 0)
    assert all("convolution of" in reason and "eager is quicker" in reason for reason in reasons)
