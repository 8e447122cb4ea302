"""Models of kinds that the zoo lacks, with random weights, for `make bench-peers`: each maker gives a model and its inputs."""

from __future__ import annotations

from collections.abc import Callable

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


class Logits(nn.Module):
    """One tensor of what a transformers model returns."""

    def __init__(self, model: nn.Module, field: str) -> None:
        super().__init__()
        self.model, self.field = model, field

    def forward(self, *inputs: Tensor) -> Tensor:
        return getattr(self.model(*inputs), self.field)


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


def speech() -> Made:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(num_hidden_layers=4, mask_time_prob=0.0, layerdrop=0.0)
    return Logits(Wav2Vec2ForCTC(config), "logits"), (torch.randn(1, 16000),)


def detection() -> Made:
    from transformers import YolosConfig, YolosForObjectDetection

    config = YolosConfig(
        hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768, image_size=[256, 256],
        num_detection_tokens=50,
    )  # fmt: skip
    return Logits(YolosForObjectDetection(config), "pred_boxes"), (torch.randn(1, 3, 256, 256),)


def segmentation() -> Made:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    return Logits(SegformerForSemanticSegmentation(SegformerConfig()), "logits"), (torch.randn(1, 3, 256, 256),)


MAKERS: dict[str, Callable[[], Made]] = {
    "pitch": pitch,
    "speech": speech,
    "detection": detection,
    "segmentation": segmentation,
    "graph network": graph_network,
    "tabular": tabular,
    "time series": time_series,
}


def make(name: str) -> Made:
    torch.manual_seed(0)
    model, inputs = MAKERS[name]()
    return model.eval(), inputs
