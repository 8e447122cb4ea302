"""What ``zefuse selftest`` compiles: ten kernels and two small models, one of each kind of work. Imported in its child alone,
since it needs torch.

A part makes a function and its inputs, always the same. A model's results are its loss and the gradients of its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Made = tuple[Callable[..., Any], tuple[Any, ...]]


def _pointwise() -> Made:
    def pointwise(x: Tensor, y: Tensor, b: Tensor) -> Tensor:
        return F.gelu(x * y + b) * torch.sigmoid(x) + torch.tanh(y)

    return pointwise, (torch.randn(256, 384), torch.randn(256, 384), torch.randn(384))


def _reduction() -> Made:
    def reduction(x: Tensor) -> tuple[Tensor, ...]:
        return x.sum(1), x.amax(0), (x * x).mean()

    return reduction, (torch.randn(300, 500),)


def _softmax() -> Made:
    return lambda x: torch.softmax(x * 0.5, -1), (torch.randn(64, 1000),)


def _layer_norm() -> Made:
    def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.layer_norm(x, (384,), w, b)

    return layer_norm, (torch.randn(256, 384), torch.randn(384), torch.randn(384))


def _matmul() -> Made:
    def matmul(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
        return F.gelu(x @ w + b) + r

    return matmul, (torch.randn(128, 192), torch.randn(192, 256) / 14, torch.randn(256), torch.randn(128, 256))


def _transpose() -> Made:
    def transpose(x: Tensor, y: Tensor) -> Tensor:
        return (x.permute(0, 2, 1) + y).contiguous()

    return transpose, (torch.randn(8, 100, 150), torch.randn(8, 150, 100))


def _gather_scatter() -> Made:
    def gather_scatter(table: Tensor, index: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        return table[index] * 2, torch.zeros_like(table).index_add(0, index, source)

    return gather_scatter, (torch.randn(50, 64), torch.randint(0, 50, (200,)), torch.randn(200, 64))


def _scan() -> Made:
    return lambda x: torch.cumsum(x, 1), (torch.randn(40, 200),)


def _sort() -> Made:
    # All elements differ, so that there is one right order.
    return lambda x: torch.sort(x, 1), (torch.randperm(30 * 500).reshape(30, 500).float(),)


def _convolution() -> Made:
    def convolution(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.relu(F.conv2d(x, w, b, padding=1))

    return convolution, (torch.randn(2, 16, 28, 28), torch.randn(32, 16, 3, 3) / 12, torch.randn(32))


class _Network(nn.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 24, 3, padding=1)
        self.head = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(x)))
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        return self.head(x.mean((2, 3)))


class _Block(nn.Module):
    """A transformer's block."""

    def __init__(self, width: int = 96, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def _training(model: nn.Module, *inputs: Tensor) -> Made:
    return model.train(), inputs


KERNELS: dict[str, Callable[[], Made]] = {
    "pointwise": _pointwise,
    "reduction": _reduction,
    "softmax": _softmax,
    "layer norm": _layer_norm,
    "matmul": _matmul,
    "transpose": _transpose,
    "gather, scatter": _gather_scatter,
    "scan": _scan,
    "sort": _sort,
    "convolution": _convolution,
}
MODELS: dict[str, Callable[[], Made]] = {
    "CNN": lambda: _training(_Network(), torch.randn(4, 3, 32, 32)),
    "transformer": lambda: _training(_Block(), torch.randn(2, 48, 96)),
}
PARTS = {**KERNELS, **MODELS}
