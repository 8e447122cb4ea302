"""Recurrent, recommendation and mixer models."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.example import Example, Maker, classes_loss


class Recurrent(nn.Module):
    """Words through two recurrent layers; the classes of the last hidden state.

    Dynamo leaves nn.LSTM and nn.GRU to eager, unless its option allow_rnn is set: here it is.
    """

    def __init__(self, kind: type[nn.RNNBase], words: int, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = kind(width, hidden, num_layers=2, batch_first=True)
        self.classes = nn.Linear(hidden, classes)

    def forward(self, ids: Tensor) -> Tensor:
        return self.classes(self.layers(self.embedding(ids))[0][:, -1])


def _recurrent(kind: type[nn.RNNBase], small: bool) -> Example:
    model = Recurrent(kind, 100, 16, 24, 5) if small else Recurrent(kind, 10000, 256, 512, 10)
    ids = torch.randint(100, (2, 6)) if small else torch.randint(10000, (8, 64))
    return Example(model, (ids,), classes_loss, batch_dims=(0,), dynamo_options={"allow_rnn": True})


def lstm(small: bool) -> Example:
    return _recurrent(nn.LSTM, small)


def gru(small: bool) -> Example:
    return _recurrent(nn.GRU, small)


class DLRM(nn.Module):
    """Naumov et al. (2019): dense features through an MLP, categories through embedding bags, their dot products, another MLP."""

    def __init__(self, tables: int, rows: int, width: int, dense: int, bottom: list[int], top: list[int]) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = _mlp([dense, *bottom, width])
        self.top = _mlp([width + (tables + 1) * tables // 2, *top, 1], last_relu=False)
        below = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("rows", below[0])
        self.register_buffer("columns", below[1])

    def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
        """dense [batch, features]; indices [tables, batch, per bag]."""
        x = self.bottom(dense)
        vectors = torch.stack([x] + [bag(indices[number]) for number, bag in enumerate(self.bags)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([x, products], dim=1)).squeeze(1)


def _mlp(widths: list[int], last_relu: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*(layers if last_relu else layers[:-1]))


def dlrm(small: bool) -> Example:
    tables, rows, batch, bag = (3, 50, 4, 2) if small else (26, 10000, 128, 4)
    model = DLRM(tables, rows, 8, 5, [16], [16]) if small else DLRM(tables, rows, 64, 13, [512, 256], [512, 256])
    inputs = (torch.randn(batch, 5 if small else 13), torch.randint(rows, (tables, batch, bag)))
    return Example(
        model,
        inputs,
        lambda output: F.binary_cross_entropy_with_logits(output, torch.ones_like(output)),
        batch_dims=(0, 1),
    )


class Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al., 2021)."""

    def __init__(
        self, side: int, patch: int, width: int, layers: int, tokens_mlp: int, channels_mlp: int, classes: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        tokens = (side // patch) ** 2
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "tokens": nn.Sequential(nn.Linear(tokens, tokens_mlp), nn.GELU(), nn.Linear(tokens_mlp, tokens)),
                    "norm2": nn.LayerNorm(width),
                    "channels": nn.Sequential(
                        nn.Linear(width, channels_mlp), nn.GELU(), nn.Linear(channels_mlp, width)
                    ),
                }
            )
            for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = x + block["tokens"](block["norm1"](x).transpose(1, 2)).transpose(1, 2)
            x = x + block["channels"](block["norm2"](x))
        return self.head(self.norm(x).mean(dim=1))


def mixer(small: bool) -> Example:
    model = Mixer(32, 8, 32, 2, 24, 64, 10) if small else Mixer(224, 16, 512, 8, 256, 2048, 1000)
    return Example(
        model, (torch.randn(2, 3, 32, 32) if small else torch.randn(1, 3, 224, 224),), classes_loss, batch_dims=(0,)
    )


MAKERS: dict[str, Maker] = {"LSTM": lstm, "GRU": gru, "DLRM": dlrm, "MLP-Mixer": mixer}
