"""More kinds of models for `make bench-peers` (kinds.py): images, sound, diffusion, molecules, forecasts, retrieval, clicks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Tensor, ...]]


def _convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, dilation * (kernel // 2), dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class DeepLab(nn.Module):
    """Dilated convolutions side by side, resized to the image (the form of DeepLabv3, arXiv:1706.05587)."""

    def __init__(self, classes: int = 21, width: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _convolution(3, 32, stride=2), _convolution(32, 64, stride=2), _convolution(64, 2 * width, stride=2),
            _convolution(2 * width, 2 * width, dilation=2), _convolution(2 * width, 2 * width, dilation=4),
        )  # fmt: skip
        self.pyramid = nn.ModuleList(
            [_convolution(2 * width, width, 1), *(_convolution(2 * width, width, dilation=d) for d in (6, 12, 18))]
        )
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * width, width, 1), nn.ReLU())
        self.last = nn.Sequential(_convolution(5 * width, width, 1), nn.Conv2d(width, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        pooled = F.interpolate(self.pooled(y), size=y.shape[2:], mode="bilinear")
        y = self.last(torch.cat([*(layer(y) for layer in self.pyramid), pooled], 1))
        return F.interpolate(y, size=x.shape[2:], mode="bilinear")


class RetinaNet(nn.Module):
    """A pyramid of features and two heads that all levels share (arXiv:1708.02002)."""

    def __init__(self, classes: int = 20, width: int = 128) -> None:
        super().__init__()
        first = nn.Sequential(_convolution(3, 32, stride=2), _convolution(32, 64, stride=2))
        self.levels = nn.ModuleList(
            [nn.Sequential(*first, _convolution(64, 64, stride=2)), _convolution(64, 128, stride=2)]
            + [_convolution(128, 256, stride=2)]
        )
        self.sides = nn.ModuleList(nn.Conv2d(inputs, width, 1) for inputs in (64, 128, 256))
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.heads = nn.ModuleList(self._head(width, 9 * outputs) for outputs in (classes, 4))
        self.outputs = (classes, 4)

    @staticmethod
    def _head(width: int, outputs: int) -> nn.Sequential:
        layers = [
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(32, width), nn.ReLU()) for _ in range(2)
        ]
        return nn.Sequential(*layers, nn.Conv2d(width, outputs, 3, padding=1))

    def forward(self, x: Tensor) -> list[Tensor]:
        features = []
        for level in self.levels:
            x = level(x)
            features.append(x)
        merged: list[Tensor] = []
        for side, feature in zip(reversed(self.sides), reversed(features), strict=True):
            y = side(feature)
            merged.append(y + F.interpolate(merged[-1], size=y.shape[2:]) if merged else y)
        smooth = [layer(y) for layer, y in zip(self.smooth, merged, strict=True)]
        return [
            torch.cat([head(y).permute(0, 2, 3, 1).reshape(y.shape[0], -1, outputs) for y in smooth], 1)
            for head, outputs in zip(self.heads, self.outputs, strict=True)
        ]


class Separation(nn.Module):
    """Masks over a learnt basis, from dilated depthwise convolutions (the form of Conv-TasNet, arXiv:1809.07454)."""

    def __init__(self, basis: int = 128, width: int = 64, layers: int = 8, voices: int = 2) -> None:
        super().__init__()
        self.voices = voices
        self.basis = nn.Conv1d(1, basis, 16, 8, bias=False)
        self.first = nn.Sequential(nn.GroupNorm(1, basis), nn.Conv1d(basis, width, 1))
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, 2 * width, 1), nn.PReLU(), nn.GroupNorm(1, 2 * width),
                nn.Conv1d(2 * width, 2 * width, 3, padding=2**n, dilation=2**n, groups=2 * width),
                nn.PReLU(), nn.GroupNorm(1, 2 * width), nn.Conv1d(2 * width, width, 1),
            )
            for n in range(layers)
        )  # fmt: skip
        self.masks = nn.Conv1d(width, voices * basis, 1)
        self.back = nn.ConvTranspose1d(basis, 1, 16, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.basis(x)
        y = self.first(weights)
        for layer in self.layers:
            y = y + layer(y)
        masks = torch.sigmoid(self.masks(y)).unflatten(1, (self.voices, -1))
        return self.back((masks * weights[:, None]).flatten(0, 1)).unflatten(0, (-1, self.voices))


class DiffusionTransformer(nn.Module):
    """Attention over patches whose norms are scaled by the time (arXiv:2212.09748)."""

    def __init__(self, width: int = 192, layers: int = 4, heads: int = 3, patches: int = 256) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.patch = nn.Conv2d(4, width, 2, 2)
        self.place = nn.Parameter(torch.randn(1, patches, width))
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.scales = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(layers))
        self.products = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.outputs = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.mixes = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
            for _ in range(layers)
        )
        self.last = nn.Linear(width, 16)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        waves = time[:, None] * torch.exp(-0.1 * torch.arange(self.width // 2))
        condition = F.silu(self.time(torch.cat([waves.cos(), waves.sin()], -1)))
        y = self.patch(x).flatten(2).transpose(1, 2) + self.place
        for scale, product, output, mix in zip(self.scales, self.products, self.outputs, self.mixes, strict=True):
            a, b, c, d, e, f = scale(condition)[:, None].chunk(6, -1)
            q, k, v = product(self._norm(y) * (1 + a) + b).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            y = y + c * output(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            y = y + f * mix(self._norm(y) * (1 + d) + e)
        return self.last(y)

    def _norm(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.width,))


class Molecules(nn.Module):
    """Sums over bonds, with the bond's kind, and over each molecule's atoms (the form of GINE, arXiv:1905.12265)."""

    def __init__(self, width: int = 64, layers: int = 4, molecules: int = 128) -> None:
        super().__init__()
        self.molecules = molecules
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(), nn.Linear(2 * width, width)
            )
            for _ in range(layers)
        )
        self.bonds = nn.ModuleList(nn.Embedding(5, width) for _ in range(layers))
        self.last = nn.Linear(width, 1)

    def forward(self, x: Tensor, source: Tensor, target: Tensor, bond: Tensor, molecule: Tensor) -> Tensor:
        for layer, bonds in zip(self.layers, self.bonds, strict=True):
            x = x + layer(x + torch.zeros_like(x).index_add(0, target, F.relu(x[source] + bonds(bond))))
        return self.last(torch.zeros(self.molecules, x.shape[1]).index_add(0, molecule, x))


class Forecast(nn.Module):
    """Small perceptrons, each of which explains what the ones before left (the form of N-BEATS, arXiv:1905.10437)."""

    def __init__(self, past: int = 96, future: int = 24, width: int = 256, blocks: int = 6) -> None:
        super().__init__()
        self.future = future
        self.blocks = nn.ModuleList(
            nn.Sequential(*(layer for n in range(4) for layer in (nn.Linear(width if n else past, width), nn.ReLU())))
            for _ in range(blocks)
        )
        self.back = nn.ModuleList(nn.Linear(width, past) for _ in range(blocks))
        self.ahead = nn.ModuleList(nn.Linear(width, future) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        result = torch.zeros(x.shape[0], self.future)
        for block, back, ahead in zip(self.blocks, self.back, self.ahead, strict=True):
            found = block(x)
            x, result = x - back(found), result + ahead(found)
        return result


class TwoTowers(nn.Module):
    """Users by what they saw and items by their number, compared by their angle."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.seen = nn.EmbeddingBag(50000, width, mode="mean")
        self.items = nn.Embedding(20000, width)
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.LayerNorm(256), nn.Linear(256, width)) for _ in range(2)
        )

    def forward(self, seen: Tensor, item: Tensor) -> Tensor:
        user, other = self.towers[0](self.seen(seen)), self.towers[1](self.items(item))
        return F.normalize(user, dim=-1) @ F.normalize(other, dim=-1).T / 0.05


class VideoStages(nn.Module):
    """Bottlenecks with a depthwise convolution over places and time, gated by channel (the form of X3D, arXiv:2004.04730)."""

    def __init__(self, classes: int = 400) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv3d(3, 24, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False),
            nn.Conv3d(24, 24, (5, 1, 1), padding=(2, 0, 0), groups=24, bias=False), nn.BatchNorm3d(24), nn.ReLU(),
        )  # fmt: skip
        widths = [24, 24, 24, 48, 48, 48, 96, 96, 96]
        self.blocks = nn.ModuleList(self._block(a, b) for a, b in zip([24, *widths], widths, strict=False))
        self.last = nn.Linear(96, classes)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.ModuleDict:
        width, step = 9 * outputs // 4, 2 if inputs != outputs else 1
        return nn.ModuleDict({
            "middle": nn.Sequential(
                nn.Conv3d(inputs, width, 1, bias=False), nn.BatchNorm3d(width), nn.ReLU(),
                nn.Conv3d(width, width, 3, (1, step, step), 1, groups=width, bias=False), nn.BatchNorm3d(width),
            ),
            "gate": nn.Sequential(
                nn.AdaptiveAvgPool3d(1), nn.Conv3d(width, 8, 1), nn.ReLU(), nn.Conv3d(8, width, 1), nn.Sigmoid()
            ),
            "last": nn.Sequential(nn.Conv3d(width, outputs, 1, bias=False), nn.BatchNorm3d(outputs)),
            "side": nn.Conv3d(inputs, outputs, 1, (1, step, step)) if step > 1 else nn.Identity(),
        })  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            y = block["middle"](x)  # type: ignore[index]
            x = F.relu(block["last"](F.silu(y * block["gate"](y))) + block["side"](x))  # type: ignore[index]
        return self.last(x.mean((2, 3, 4)))


class Generator(nn.Sequential):
    """An image from noise by transposed convolutions of many channels (the form of DCGAN, arXiv:1511.06434)."""

    def __init__(self, inputs: int = 100) -> None:
        widths = [inputs, 512, 256, 128, 64]
        layers: list[nn.Module] = []
        for n, (a, b) in enumerate(pairwise(widths)):
            layers += [
                nn.ConvTranspose2d(a, b, 4, 2 if n else 1, 1 if n else 0, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(),
            ]
        super().__init__(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh())


class Crosses(nn.Module):
    """Products of all features with themselves, beside a perceptron (the form of DCN-V2, arXiv:2008.13535)."""

    def __init__(self, categories: int = 26, numbers: int = 13, width: int = 16) -> None:
        super().__init__()
        features = categories * width + numbers
        self.tables = nn.ModuleList(nn.Embedding(1000, width) for _ in range(categories))
        self.crosses = nn.ModuleList(
            nn.Sequential(nn.Linear(features, 64, bias=False), nn.Linear(64, features)) for _ in range(3)
        )
        self.deep = nn.Sequential(nn.Linear(features, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
        self.last = nn.Linear(features + 128, 1)

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        first = torch.cat([*(table(ids[:, n]) for n, table in enumerate(self.tables)), numbers], 1)
        x = first
        for cross in self.crosses:
            x = first * cross(x) + x
        return torch.sigmoid(self.last(torch.cat([x, self.deep(first)], 1)))


class Trees(nn.Module):
    """Soft decision trees of one condition for each depth (the form of NODE, arXiv:1909.06312)."""

    def __init__(self, inputs: int = 54, trees: int = 128, depth: int = 4) -> None:
        super().__init__()
        self.choice = nn.Parameter(torch.randn(inputs, trees, depth))
        self.threshold, self.scale = (
            nn.Parameter(torch.randn(trees, depth)),
            nn.Parameter(torch.randn(trees, depth) / 8),
        )
        self.response = nn.Parameter(torch.randn(trees, 3, 2**depth))
        sides = (torch.arange(2**depth) // 2 ** torch.arange(depth)[:, None]) % 2
        self.register_buffer("sides", torch.stack([sides, 1 - sides]).float())

    def forward(self, x: Tensor) -> Tensor:
        features = torch.einsum("bi,itd->btd", x, self.choice.softmax(0))
        logits = (features - self.threshold) * torch.exp(-self.scale)
        sides = (0.5 * torch.stack([-logits, logits], -1) + 0.5).clamp(0, 1)
        weights = torch.einsum("btds,sdc->btdc", sides, self.sides).prod(-2)
        return torch.einsum("btc,tuc->btu", weights, self.response).mean(1)


def molecules() -> Made:
    atoms, bonds = 3000, 6500
    ends = torch.randint(atoms, (2, bonds))
    return Molecules(), (
        torch.randn(atoms, 64), ends[0].contiguous(), ends[1].contiguous(), torch.randint(5, (bonds,)),
        torch.randint(128, (atoms,)),
    )  # fmt: skip


MAKERS: dict[str, Callable[[], Made]] = {
    "DeepLab": lambda: (DeepLab(), (torch.randn(1, 3, 256, 256),)),
    "RetinaNet": lambda: (RetinaNet(), (torch.randn(1, 3, 256, 256),)),
    "separation": lambda: (Separation(), (torch.randn(1, 1, 8000),)),
    "DiT": lambda: (DiffusionTransformer(), (torch.randn(2, 4, 32, 32), torch.rand(2) * 1000)),
    "molecules": molecules,
    "N-BEATS": lambda: (Forecast(), (torch.randn(64, 96),)),
    "video stages": lambda: (VideoStages(), (torch.randn(1, 3, 8, 112, 112),)),
    "generator": lambda: (Generator(), (torch.randn(8, 100, 1, 1),)),
    "crosses": lambda: (Crosses(), (torch.randint(1000, (256, 26)), torch.randn(256, 13))),
    "trees": lambda: (Trees(), (torch.randn(256, 54),)),
    "two towers": lambda: (TwoTowers(), (torch.randint(50000, (256, 20)), torch.randint(20000, (256,)))),
}
