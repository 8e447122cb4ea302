"""Architectures of transformers that the zoo lacks, small and with random weights, for `make bench-peers`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


class Output(nn.Module):
    """The first tensor of what a model returns for one input, which has a name."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x: Tensor) -> Tensor:
        return self.model(**{self.name: x}, return_dict=False)[0]


@dataclass
class Kind:
    """``model``: the name of transformers' class; its configuration's follows from it. ``name``: the input's."""

    model: str
    input: Callable[[], Tensor]
    name: str
    arguments: dict[str, Any]

    def make(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        import transformers

        family = re.split("For[A-Z]", self.model.removesuffix("Model"))[0]
        config = getattr(transformers, family.removesuffix("Base") + "Config")(**self.arguments)
        return Output(getattr(transformers, self.model)(config), self.name), (self.input(),)


def text(model: str, tokens: int = 128, **arguments: Any) -> Kind:
    return Kind(model, lambda: torch.randint(5, 1000, (1, tokens)), "input_ids", {"vocab_size": 1000, **arguments})


def image(model: str, size: int = 224, **arguments: Any) -> Kind:
    return Kind(model, lambda: torch.randn(1, 3, size, size), "pixel_values", arguments)


def signal(model: str, *sizes: int, name: str = "input_values", **arguments: Any) -> Kind:
    return Kind(model, lambda: torch.randn(*(sizes or (1, 16000))), name, arguments)


_SMALL = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
_FEW = {"depths": [1, 1, 2, 1]}

KINDS: dict[str, Kind] = {
    "speech": signal("Wav2Vec2ForCTC", num_hidden_layers=4, mask_time_prob=0.0, layerdrop=0.0),
    "detection": image(
        "YolosForObjectDetection",
        256,
        hidden_size=192,
        num_hidden_layers=6,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=[256, 256],
        num_detection_tokens=50,
    ),
    "segmentation": image("SegformerForSemanticSegmentation", 256),
    "ALBERT": text("AlbertModel", **_SMALL, embedding_size=64),
    "DeBERTa": text(
        "DebertaV2Model", **_SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=32
    ),
    "ELECTRA": text("ElectraModel", **_SMALL),
    "FNet": text("FNetModel", **_SMALL),
    "Funnel": text("FunnelBaseModel", d_model=256, n_head=4, d_head=64, d_inner=512, block_sizes=[1, 1]),
    "GPT-Neo": text(
        "GPTNeoModel", hidden_size=256, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]
    ),
    "Longformer": text("LongformerModel", **_SMALL, attention_window=32),
    "Mamba": text("MambaModel", 64, hidden_size=256, num_hidden_layers=2),
    "Mixtral": text("MixtralModel", 64, **_SMALL, num_key_value_heads=2, num_local_experts=4),
    "MobileBERT": text("MobileBertModel", num_hidden_layers=4),
    "ModernBERT": text(
        "ModernBertModel", **_SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    ),
    "MPNet": text("MPNetModel", **_SMALL),
    "RoFormer": text("RoFormerModel", **_SMALL),
    "RWKV": text("RwkvModel", 32, hidden_size=256, num_hidden_layers=2),
    "SqueezeBERT": text("SqueezeBertModel", **_SMALL, embedding_size=256),
    "XLNet": text("XLNetModel", d_model=256, n_layer=2, n_head=4, d_inner=512),
    "BEiT": image("BeitModel", num_hidden_layers=3, hidden_size=384, num_attention_heads=6, intermediate_size=768),
    "BiT": image("BitModel", **_FEW),
    "ConvNeXt V2": image("ConvNextV2Model", **_FEW),
    "CvT": image("CvtModel"),
    "DINOv2": image("Dinov2Model", num_hidden_layers=3),
    "FocalNet": image("FocalNetModel", **_FEW),
    "GLPN": image("GLPNForDepthEstimation"),
    "Hiera": image("HieraModel", **_FEW),
    "LeViT": image("LevitModel"),
    "MobileNetV1": image("MobileNetV1Model"),
    "MobileViT": image("MobileViTModel", 256),
    "PoolFormer": image("PoolFormerModel"),
    "PVT": image("PvtModel"),
    "RegNet": image("RegNetModel"),
    "Swin2SR": image("Swin2SRForImageSuperResolution", 64, depths=[2, 2], num_heads=[4, 4], embed_dim=60),
    "Swin V2": image("Swinv2Model", 256, **_FEW, image_size=256),
    "AST": signal("ASTModel", 1, 1024, 128, num_hidden_layers=2),
    "Conformer": signal("Wav2Vec2ConformerModel", num_hidden_layers=2),
    "DAC": signal("DacModel", 1, 1, 8192, encoder_hidden_size=16, decoder_hidden_size=128),
    "HuBERT": signal("HubertModel", num_hidden_layers=2),
    "SEW": signal("SEWModel", num_hidden_layers=2),
    "WavLM": signal("WavLMModel", num_hidden_layers=2),
    "PatchTST": signal(
        "PatchTSTModel",
        8,
        128,
        4,
        name="past_values",
        num_input_channels=4,
        context_length=128,
        patch_length=16,
        patch_stride=8,
        d_model=128,
        num_hidden_layers=3,
    ),
}
