"""Models of kinds that the zoo lacks, with random weights, for `make bench-peers`: each maker gives a model and its inputs."""

from __future__ import annotations

from collections.abc import Callable

import architectures
import more_kinds
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Tensor, ...]]


class PitchTracker(nn.Module):
    """Long one-dimensional convolutions over frames of 1024 samples, batch norm after relu (the form of CREPE, arXiv:1802.06182)."""

    def __init__(self, capacity: int = 8) -> None:
        super().__init__()
        widths = [1, *(n * capacity for n in (32, 4, 4, 4, 8, 16))]
        kernels, strides = [512, 64, 64, 64, 64, 64], [4, 1, 1, 1, 1, 1]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(a, b, k, s) for a, b, k, s in zip(widths, widths[1:], kernels, strides, strict=False)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths[1:])
        self.classes = nn.Linear(widths[-1] * 4, 360)

    def forward(self, x: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            kernel = convolution.kernel_size[0]
            left = (kernel - convolution.stride[0]) // 2
            x = F.pad(x, (left, kernel - convolution.stride[0] - left))
            x = F.max_pool1d(norm(F.relu(convolution(x))), 2)
        return torch.sigmoid(self.classes(x.flatten(1)))


class GraphNetwork(nn.Module):
    """Three layers of mean aggregation over an edge list (the form of GraphSAGE, arXiv:1706.02216)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.others = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        degree = torch.zeros(x.shape[0], 1).index_add(0, target, torch.ones(target.shape[0], 1)).clamp(min=1)
        for own, others in zip(self.own, self.others, strict=True):
            gathered = torch.zeros_like(x).index_add(0, target, x[source]) / degree
            x = F.relu(own(x) + others(gathered))
        return x


class TimeSeries(nn.Module):
    """Dilated causal convolutions with residuals (the form of TCN, arXiv:1803.01271)."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(8, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2**n) for n in range(layers))
        self.last = nn.Conv1d(width, 24, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + F.gelu(layer(F.pad(x, (2 * layer.dilation[0], 0))))
        return self.last(x)


class Tabular(nn.Module):
    """Numbers and categories as tokens of a small transformer (the form of FT-Transformer, arXiv:2106.11959)."""

    def __init__(self, numbers: int, categories: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(numbers, width))
        self.shift = nn.Parameter(torch.randn(numbers, width))
        self.tables = nn.ModuleList(nn.Embedding(100, width) for _ in range(categories))
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.last = nn.Linear(width, 2)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        numbers = x[..., None] * self.scale + self.shift
        categories = torch.stack([table(ids[:, n]) for n, table in enumerate(self.tables)], 1)
        return self.last(self.layers(torch.cat([numbers, categories], 1)).mean(1))


class Vocoder(nn.Module):
    """Transposed convolutions, each followed by dilated ones of several kernels (the form of HiFi-GAN, arXiv:2010.05646)."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, width, 7, padding=3)
        self.up = nn.ModuleList(
            nn.ConvTranspose1d(width >> n, width >> (n + 1), kernel, step, (kernel - step) // 2)
            for n, (kernel, step) in enumerate([(16, 8), (16, 8), (4, 2), (4, 2)])
        )
        self.rest = nn.ModuleList(
            nn.ModuleList(
                nn.ModuleList(nn.Conv1d(c, c, k, padding=d * (k - 1) // 2, dilation=d) for d in (1, 3, 5))
                for k in (3, 7, 11)
            )
            for c in (width >> n for n in range(1, 5))
        )
        self.last = nn.Conv1d(width >> 4, 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for up, blocks in zip(self.up, self.rest, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            total = torch.zeros_like(x)
            for block in blocks:  # type: ignore[attr-defined]
                y = x
                for convolution in block:
                    y = y + convolution(F.leaky_relu(y, 0.1))
                total = total + y
            x = total / 3
        return torch.tanh(self.last(F.leaky_relu(x)))


class SuperResolution(nn.Module):
    """Residual convolutions and a pixel shuffle (the form of EDSR, arXiv:1707.02921)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()

        def convolution(inputs: int, outputs: int) -> nn.Conv2d:
            return nn.Conv2d(inputs, outputs, 3, padding=1)

        self.first = convolution(3, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(convolution(width, width), nn.ReLU(), convolution(width, width)) for _ in range(4)
        )
        self.last = nn.Sequential(convolution(width, 4 * width), nn.PixelShuffle(2), convolution(width, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x) * 0.1
        return self.last(x)


class RadianceField(nn.Module):
    """A deep product chain over encoded positions (the form of NeRF, arXiv:2003.08934)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(63 if n == 0 else 319 if n == 4 else 256, 256) for n in range(8))
        self.last = nn.Linear(256, 4)

    def forward(self, position: Tensor) -> Tensor:
        waves = [wave(position * 2.0**n) for n in range(10) for wave in (torch.sin, torch.cos)]
        encoded = torch.cat([position, *waves], -1)
        x = encoded
        for n, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat([x, encoded], -1) if n == 4 else x))
        return self.last(x)


class WaveNet(nn.Module):
    """Gated dilated convolutions (arXiv:1609.03499)."""

    def __init__(self, width: int = 64, layers: int = 16) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2 ** (n % 8)) for n in range(layers))
        self.mixes = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        skipped = torch.zeros_like(x)
        for gate, mix in zip(self.gates, self.mixes, strict=True):
            values, gates = gate(F.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
            y = mix(torch.tanh(values) * torch.sigmoid(gates))
            skipped, x = skipped + y, x + y
        return skipped


class Codebook(nn.Module):
    """An image as the nearest entries of a codebook, and back (the form of VQ-VAE, arXiv:1711.00937)."""

    def __init__(self, width: int = 64, entries: int = 512) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 4, 2, 1))
        self.entries = nn.Embedding(entries, width)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        z = self.encoder(x).permute(0, 2, 3, 1)
        nearest = torch.cdist(z.reshape(-1, z.shape[-1]), self.entries.weight).argmin(-1)
        return self.decoder(self.entries(nearest).view(z.shape).permute(0, 3, 1, 2))


class Spectrogram(nn.Module):
    """A classifier of sounds by their mel spectrogram."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(512))
        self.register_buffer("mel", torch.rand(257, 64))
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        power = torch.stft(x, 512, 128, window=self.window, return_complex=True).abs().square()
        return self.layers((power.transpose(1, 2) @ self.mel).clamp(min=1e-6).log()[:, None])


class Translation(nn.Module):
    """Recurrent encoder and decoder with attention (arXiv:1508.04025)."""

    def __init__(self, words: int = 1000, width: int = 256) -> None:
        super().__init__()
        self.table = nn.Embedding(words, 128)
        self.encoder = nn.GRU(128, width, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(128, 2 * width, batch_first=True)
        self.score = nn.Linear(2 * width, 2 * width, bias=False)
        self.last = nn.Linear(4 * width, words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, state = self.encoder(self.table(source))
        read, _ = self.decoder(self.table(target), torch.cat([state[0], state[1]], -1)[None])
        weights = torch.softmax(self.score(read) @ memory.transpose(1, 2), -1)
        return self.last(torch.cat([read, weights @ memory], -1))


class Warp(nn.Module):
    """An image resampled along a flow that convolutions estimate."""

    def __init__(self) -> None:
        super().__init__()
        self.flow = nn.Sequential(nn.Conv2d(6, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 2, 3, padding=1))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        height, width = a.shape[2:]
        y, x = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
        flow = self.flow(torch.cat([a, b], 1)).permute(0, 2, 3, 1)
        return F.grid_sample(b, torch.stack([x, y], -1) + 0.1 * torch.tanh(flow), align_corners=True)


class GraphAttention(nn.Module):
    """Softmax over the edges of each node (arXiv:1710.10903)."""

    def __init__(self, inputs: int = 64, heads: int = 4, width: int = 32) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.product = nn.Linear(inputs, heads * width, bias=False)
        self.from_source, self.from_target = (nn.Parameter(torch.randn(heads, width)) for _ in range(2))

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        nodes = x.shape[0]
        h = self.product(x).view(nodes, self.heads, self.width)
        scores = (h * self.from_source).sum(-1)[source] + (h * self.from_target).sum(-1)[target]
        scores = F.leaky_relu(scores, 0.2)
        places = target[:, None].expand(-1, self.heads)
        most = torch.full((nodes, self.heads), -1e9).scatter_reduce(0, places, scores, "amax")
        weights = (scores - most[target]).exp()
        sums = torch.zeros(nodes, self.heads).index_add(0, target, weights).clamp(min=1e-9)
        parts = h[source] * (weights / sums[target])[..., None]
        return torch.zeros_like(h).index_add(0, target, parts).flatten(1)


class Neighbours(nn.Module):
    """Edges to the nearest points, found in the call (the form of DGCNN, arXiv:1801.07829)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x: Tensor) -> Tensor:
        nearest = torch.cdist(x, x).topk(16, largest=False)[1]
        others = x[torch.arange(x.shape[0])[:, None, None], nearest]
        return self.layers(torch.cat([x[:, :, None].expand_as(others), others - x[:, :, None]], -1)).amax(2)


def pitch() -> Made:
    return PitchTracker(), (torch.randn(32, 1, 1024),)


def graph_network() -> Made:
    nodes, edges = 2708, 10556  # those of a citation graph
    return GraphNetwork(128), (
        torch.randn(nodes, 128), torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,)),
    )  # fmt: skip


def time_series() -> Made:
    return TimeSeries(64, 8), (torch.randn(8, 8, 512),)


def tabular() -> Made:
    return Tabular(12, 8, 192), (torch.randn(64, 12), torch.randint(100, (64, 8)))


def graph_attention() -> Made:
    edges = torch.randint(2708, (2, 10556))
    return GraphAttention(), (torch.randn(2708, 64), edges[0].contiguous(), edges[1].contiguous())


def video() -> Made:
    layers = nn.Sequential(
        nn.Conv3d(3, 32, (3, 7, 7), (1, 2, 2), (1, 3, 3)), nn.BatchNorm3d(32), nn.ReLU(),
        nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)), nn.Conv3d(32, 64, 3, padding=1), nn.BatchNorm3d(64), nn.ReLU(),
        nn.Conv3d(64, 64, (3, 1, 1), padding=(1, 0, 0)), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    return layers, (torch.randn(1, 3, 8, 112, 112),)


def points() -> Made:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 64), (64, 128), (128, 1024)):
        layers += [nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU()]
    layers += [nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(1024, 40)]
    return nn.Sequential(*layers), (torch.randn(4, 3, 1024),)


MAKERS: dict[str, Callable[[], Made]] = {
    "pitch": pitch,
    "graph network": graph_network,
    "tabular": tabular,
    "time series": time_series,
    "vocoder": lambda: (Vocoder(), (torch.randn(1, 80, 32),)),
    "super-resolution": lambda: (SuperResolution(), (torch.randn(1, 3, 96, 96),)),
    "video": video,
    "radiance field": lambda: (RadianceField(), (torch.randn(4096, 3),)),
    "points": points,
    "WaveNet": lambda: (WaveNet(), (torch.randn(1, 64, 2048),)),
    "codebook": lambda: (Codebook(), (torch.randn(2, 3, 64, 64),)),
    "spectrogram": lambda: (Spectrogram(), (torch.randn(2, 16000),)),
    "translation": lambda: (Translation(), (torch.randint(1000, (4, 40)), torch.randint(1000, (4, 30)))),
    "warp": lambda: (Warp(), (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128))),
    "graph attention": graph_attention,
    "neighbours": lambda: (Neighbours(), (torch.randn(2, 256, 64),)),
    **more_kinds.MAKERS,
    **{name: kind.make for name, kind in architectures.KINDS.items()},
}


def make(name: str) -> Made:
    torch.manual_seed(0)
    model, inputs = MAKERS[name]()
    return model.eval(), inputs
