"""For tests of language models: one of a few kilobytes as ``save_pretrained()`` writes it, and quantized ones undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from zefuse.llm.experts import QuantizedExperts
from zefuse.llm.quantized import QuantizedEmbedding, QuantizedLinear

WORDS = ["<s>", "</s>", "<unk>", "the", "sky", "is", "blue", "why", "?"]


def write_model(place: Path) -> Path:
    """A Llama of random weights whose words are WORDS, into a folder, which it gives back."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=len(WORDS), bos_token_id=0, eos_token_id=None, pad_token_id=1, max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(place)
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(place)
    return place


def dequantized(model: Any) -> Any:
    """An optimized model without what ``optimize`` put in it; linear layers again, of what the quantized ones stand for."""
    model.__dict__.pop("forward")
    model.__dict__.pop("_prepare_cache_for_generation")
    model.__dict__.pop("_valid_auto_compile_criteria")
    model.__dict__.pop("_get_logits_processor")
    model.__dict__.pop("prepare_inputs_for_generation", None)
    if model.config.is_encoder_decoder:
        model.get_encoder().__dict__.pop("forward")
    for name, module in list(model.named_modules()):
        if isinstance(module, QuantizedLinear):
            linear = torch.nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
            linear.weight.data = module.weight.float()
            if module.bias is not None:
                linear.bias.data = module.bias.float()
            owner, _, own = name.rpartition(".")
            setattr(model.get_submodule(owner), own, linear)
        elif isinstance(module, QuantizedExperts):
            owner, _, own = name.rpartition(".")
            experts = model.get_submodule(owner)
            matrices = module.weight.float()
            delattr(experts, own)
            setattr(experts, own, torch.nn.Parameter(matrices.mT.contiguous() if experts.is_transposed else matrices))
            model.set_experts_implementation("eager")
        elif isinstance(module, QuantizedEmbedding):
            model.set_input_embeddings(torch.nn.Embedding.from_pretrained(module.weight.float()))
    return model
