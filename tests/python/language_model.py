"""A language model of a few kilobytes, with a tokenizer, as ``save_pretrained()`` writes it."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

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
