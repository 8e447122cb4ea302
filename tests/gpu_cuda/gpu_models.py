"""Whole models as plain modules, with random weights: what model_speed.py times. No package of models is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        out: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Of BERT (the norm behind), GPT-2 and ViT (before)."""

    def __init__(self, width: int, heads: int, causal: bool, before: bool, activation: str) -> None:
        super().__init__()
        self.attention = Attention(width, heads, causal)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.before, self.activation = before, activation

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        down: torch.Tensor = self.down(F.gelu(self.up(x), approximate=self.activation))
        return down

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.before:
            x = x + self.attention(self.norm1(x))
            return x + self.hidden(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        behind: torch.Tensor = self.norm2(x + self.hidden(x))
        return behind


class Transformer(nn.Module):
    """BERT-base or GPT-2 small, by ``causal``: tokens to hidden states, or to logits."""

    def __init__(self, causal: bool, layers: int = 12, width: int = 768, words: int = 30522) -> None:
        super().__init__()
        words = 50257 if causal and words == 30522 else words
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(1024, width)
        activation = "tanh" if causal else "none"
        self.blocks = nn.Sequential(*(Block(width, width // 64, causal, causal, activation) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.causal = causal

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        if not self.causal:
            bert: torch.Tensor = self.blocks(self.norm(x))
            return bert
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


class Vit(nn.Module):
    def __init__(self, layers: int = 12, width: int = 768) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, width // 64, False, True, "none") for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.positions
        logits: torch.Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return logits


class Bottleneck(nn.Module):
    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        outer = 4 * inner

        def norm(count: int) -> nn.BatchNorm2d:
            return nn.BatchNorm2d(count)

        self.path = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), norm(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), norm(inner), nn.ReLU(),
            nn.Conv2d(inner, outer, 1, bias=False), norm(outer),
        )  # fmt: skip
        self.skip = (
            nn.Identity()
            if channels == outer and stride == 1
            else nn.Sequential(nn.Conv2d(channels, outer, 1, stride, bias=False), norm(outer))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.path(x) + self.skip(x))


class ResNet50(nn.Module):
    def __init__(self, counts: tuple[int, ...] = (3, 4, 6, 3)) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks, channels = [], 64
        for stage, count in enumerate(counts):
            for number in range(count):
                blocks.append(Bottleneck(channels, 64 << stage, 2 if stage and not number else 1))
                channels = 256 << stage
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.blocks(self.stem(image)).mean((2, 3)))
        return logits


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class LlamaLayer(nn.Module):
    def __init__(self, width: int, heads: int, key_heads: int, inner: int) -> None:
        super().__init__()
        self.depth = width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, key_heads * self.depth, bias=False) for _ in range(2))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (p(y).unflatten(-1, (-1, self.depth)).transpose(1, 2) for p in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(
            rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        out: torch.Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


class Llama(nn.Module):
    def __init__(self, layers: int = 8, width: int = 1024, words: int = 32000) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.layers = nn.ModuleList(LlamaLayer(width, width // 64, width // 256, 4 * width) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, 1e-5), nn.Linear(width, words, bias=False)
        angles = torch.outer(torch.arange(2048.0), 10000 ** (-torch.arange(0, 64, 2) / 64)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


@dataclass(frozen=True)
class Model:
    make: Callable[[], nn.Module]
    input: Callable[[int], torch.Tensor]  # of a batch, on the CPU


def ids(length: int, words: int) -> Callable[[int], torch.Tensor]:
    return lambda batch: torch.randint(words, (batch, length))


def image(batch: int) -> torch.Tensor:
    return torch.randn(batch, 3, 224, 224)


MODELS = {
    "BERT-base": Model(lambda: Transformer(causal=False), ids(128, 30522)),
    "GPT-2": Model(lambda: Transformer(causal=True), ids(128, 50257)),
    "ViT": Model(Vit, image),
    "ResNet-50": Model(ResNet50, image),
    "Llama": Model(Llama, ids(256, 32000)),
}
SMALL = {  # the same of a size that a test runs
    "BERT-base": Model(lambda: Transformer(causal=False, layers=1, width=128, words=100), ids(16, 100)),
    "GPT-2": Model(lambda: Transformer(causal=True, layers=1, width=128, words=100), ids(16, 100)),
    "ViT": Model(lambda: Vit(layers=1, width=128), image),
    "ResNet-50": Model(lambda: ResNet50((1, 1)), lambda batch: torch.randn(batch, 3, 32, 32)),
    "Llama": Model(lambda: Llama(layers=1, width=256, words=100), ids(16, 100)),
}
