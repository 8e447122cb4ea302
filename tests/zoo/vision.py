"""Image models, a diffusion U-Net and Whisper's encoder."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.example import Example, Maker, Output, classes_loss, square_loss


def _image(small: bool, side: int, real: int = 224) -> Tensor:
    return torch.randn(2, 3, side, side) if small else torch.randn(1, 3, real, real)


def vit(small: bool) -> Example:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = (
        {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 32,
         "patch_size": 8, "num_labels": 10}
        if small
        else {"num_hidden_layers": 12, "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "num_labels": 1000}
    )  # fmt: skip
    model = Output(ViTForImageClassification(ViTConfig(**sizes)), ("pixel_values",))
    return Example(model, (_image(small, 32),), classes_loss, batch_dims=(0,))


def swin(small: bool) -> Example:
    from transformers import SwinConfig, SwinForImageClassification

    sizes = (
        {
            "embed_dim": 24,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
            "image_size": 32,
            "patch_size": 4,
            "num_labels": 10,
        }
        if small
        else {"num_labels": 1000}
    )
    model = Output(SwinForImageClassification(SwinConfig(**sizes)), ("pixel_values",))
    return Example(model, (_image(small, 32),), classes_loss, batch_dims=(0,))


def convnext(small: bool) -> Example:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    sizes = (
        {"hidden_sizes": [16, 32], "depths": [1, 2], "num_stages": 2, "num_labels": 10}
        if small
        else {"num_labels": 1000}
    )
    model = Output(ConvNextForImageClassification(ConvNextConfig(**sizes)), ("pixel_values",))
    return Example(model, (_image(small, 32),), classes_loss, batch_dims=(0,))


def _resnet(small: bool, layer: str, depths: list[int], widths: list[int]) -> Example:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = (
        ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[1, 2], layer_type=layer, num_labels=10)
        if small
        else ResNetConfig(embedding_size=64, hidden_sizes=widths, depths=depths, layer_type=layer, num_labels=1000)
    )
    return Example(
        Output(ResNetForImageClassification(config), ("pixel_values",)),
        (_image(small, 32),),
        classes_loss,
        (_image(small, 32),) if small else (torch.randn(4, 3, 224, 224),),
        batch_dims=(0,),
    )


def resnet18(small: bool) -> Example:
    return _resnet(small, "basic", [2, 2, 2, 2], [64, 128, 256, 512])


def resnet50(small: bool) -> Example:
    return _resnet(small, "bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048])


class MobileNetV2(nn.Module):
    """Inverted residuals and linear bottlenecks (Sandler et al., 2018, table 2). ``stages``: expansion, channels, blocks, stride."""

    def __init__(self, stages: list[tuple[int, int, int, int]], stem: int, last: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(3, stem, 3, 2)]
        width = stem
        for expansion, channels, blocks, stride in stages:
            for block in range(blocks):
                layers.append(_InvertedResidual(width, channels, stride if block == 0 else 1, expansion))
                width = channels
        layers.append(_convolution(width, last, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


class _InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.skip = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            *([_convolution(inputs, hidden, 1)] if expansion != 1 else []),
            _convolution(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.skip else self.body(x)


def mobilenet_v2(small: bool) -> Example:
    stages = (
        [(1, 8, 1, 1), (6, 12, 2, 2)]
        if small
        else [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    )
    model = MobileNetV2(stages, 8 if small else 32, 32 if small else 1280, 10 if small else 1000)
    training = (_image(small, 32),) if small else (torch.randn(4, 3, 224, 224),)
    return Example(model, (_image(small, 32),), classes_loss, training, batch_dims=(0,))


class UNet(nn.Module):
    """The denoiser of Ho et al. (2020): residual blocks with group norm and a time embedding, self-attention at the low resolutions."""

    def __init__(self, width: int, multipliers: list[int], blocks: int, channels: int = 4, groups: int = 8) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, here = [width], width
        for level, multiplier in enumerate(multipliers):
            for _ in range(blocks):
                self.down.append(_Residual(here, width * multiplier, 4 * width, groups, attention=level > 0))
                here = width * multiplier
                skips.append(here)
            if level + 1 < len(multipliers):
                self.down.append(_Down(here))
                skips.append(here)
        self.middle = nn.ModuleList(
            [_Residual(here, here, 4 * width, groups, attention=True), _Residual(here, here, 4 * width, groups)]
        )
        for level, multiplier in reversed(list(enumerate(multipliers))):
            for _ in range(blocks + 1):
                self.up.append(
                    _Residual(here + skips.pop(), width * multiplier, 4 * width, groups, attention=level > 0)
                )
                here = width * multiplier
            if level > 0:
                self.up.append(_Up(here))
        self.last = nn.Sequential(nn.GroupNorm(groups, here), nn.SiLU(), nn.Conv2d(here, channels, 3, padding=1))

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        half = self.width // 2
        frequencies = torch.exp(-math.log(10000) * torch.arange(half, device=x.device) / half)
        angles = steps[:, None].float() * frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        x = self.first(x)
        skips = [x]
        for layer in self.down:
            x = layer(x, time)
            skips.append(x)
        for layer in self.middle:
            x = layer(x, time)
        for layer in self.up:
            x = layer(x, time) if isinstance(layer, _Up) else layer(torch.cat([x, skips.pop()], dim=1), time)
        return self.last(x)


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, time: int, groups: int, attention: bool = False) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(groups, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.attention = _Attention(outputs, groups) if attention else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.attention(self.conv2(F.silu(self.norm2(h))) + self.skip(x))


class _Attention(nn.Module):
    def __init__(self, channels: int, groups: int, heads: int = 4) -> None:
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(groups, channels), heads
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(-1, -2).reshape(b, c, h, w))


class _Down(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return self.conv(x)


class _Up(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2, mode="nearest"))


def unet(small: bool) -> Example:
    if small:
        return Example(
            UNet(16, [1, 2], 1), (torch.randn(2, 4, 8, 8), torch.tensor([3, 500])), square_loss, batch_dims=(0, 0)
        )
    return Example(UNet(128, [1, 2, 4], 2, groups=32), (torch.randn(1, 4, 32, 32), torch.tensor([500])), square_loss)


def whisper_encoder(small: bool) -> Example:
    """Whisper tiny's encoder over 30 s of sound (80 mel bands, 3000 frames)."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes = (
        {"encoder_layers": 2, "d_model": 64, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "max_source_positions": 16,
         "num_mel_bins": 8}
        if small
        else {"encoder_layers": 4, "d_model": 384, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    )  # fmt: skip
    model = Output(WhisperEncoder(WhisperConfig(**sizes)), ("input_features",), "last_hidden_state")
    sound = torch.randn(2, 8, 32) if small else torch.randn(1, 80, 3000)
    return Example(model, (sound,), square_loss, batch_dims=(0,))


MAKERS: dict[str, Maker] = {
    "ViT": vit,
    "Swin": swin,
    "ConvNeXt": convnext,
    "ResNet-18": resnet18,
    "ResNet-50": resnet50,
    "MobileNetV2": mobilenet_v2,
    "U-Net": unet,
    "Whisper encoder": whisper_encoder,
}
