"""What does not fit a language model's context is refused before anything is traced."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

import zefuse.llm
from zefuse.errors import InvalidArgumentError

_SIZES: dict[str, Any] = {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
_CONTEXT = 24


def _llama(**more: Any) -> Any:
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=_CONTEXT,
        **_SIZES, **more,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def _gpt2() -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=_CONTEXT, **_SIZES)
    )


def _opt() -> Any:
    config = transformers.OPTConfig(
        hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=_CONTEXT, word_embed_proj_dim=32,
        **_SIZES,
    )  # fmt: skip
    return transformers.OPTForCausalLM(config)


def _bart() -> Any:
    config = transformers.BartConfig(
        d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=48,
        decoder_ffn_dim=48, max_position_embeddings=_CONTEXT, decoder_start_token_id=1, forced_eos_token_id=None, **_SIZES,
    )  # fmt: skip
    return transformers.BartForConditionalGeneration(config)


_MODELS = {"llama": _llama, "gpt2": _gpt2, "opt": _opt, "bart": _bart}
_WITH_TABLES = ("gpt2", "opt", "bart")


def _ids(count: int) -> torch.Tensor:
    return torch.arange(count).remainder(40).add(5).unsqueeze(0)


def _generate(model: Any, prompt: int, new: int) -> Any:
    return model.generate(
        _ids(prompt), attention_mask=torch.ones(1, prompt, dtype=torch.int64), max_new_tokens=new, do_sample=False
    )


@pytest.mark.parametrize("name", _MODELS)
def test_a_prompt_longer_than_the_context_is_refused(name: str) -> None:
    model = zefuse.llm.optimize(_MODELS[name]())
    with pytest.raises(InvalidArgumentError) as refused:
        _generate(model, _CONTEXT + 1, 1)
    what = "encoded of 25 tokens" if name == "bart" else "prompt of 25 tokens" if name == "llama" else "after 26 tokens"
    assert what in str(refused.value)
    assert str(_CONTEXT) in str(refused.value)
    assert not zefuse.llm.report(model).graphs


@pytest.mark.parametrize("name", _WITH_TABLES)
def test_an_answer_that_no_position_is_left_for_is_refused(name: str) -> None:
    model = zefuse.llm.optimize(_MODELS[name]())
    prompt = 1 if name == "bart" else 20  # a decoder of its own begins with one token
    fits = _CONTEXT - prompt + 1  # the last token is not computed with
    with pytest.raises(InvalidArgumentError, match=f"after {_CONTEXT + 2} tokens .* has {_CONTEXT} positions"):
        _generate(model, prompt, fits + 1)
    assert not [graph for graph in zefuse.llm.report(model).graphs if graph.kind != "encoder"]
    assert _generate(model, prompt, fits).shape[1] == _CONTEXT + 1


def test_an_answer_may_go_on_beyond_what_rotary_positions_were_made_for() -> None:
    model = _llama().eval()
    expected = _generate(model, 20, 10)
    model = zefuse.llm.optimize(model)
    assert torch.equal(_generate(model, 20, 10), expected)
    assert not zefuse.llm.report(model).left


def test_positions_that_are_scaled_to_what_comes_have_no_end() -> None:
    model = zefuse.llm.optimize(_llama(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}))
    assert _generate(model, _CONTEXT + 1, 2).shape == (1, _CONTEXT + 3)


def test_a_conversation_that_grows_beyond_the_context_is_refused() -> None:
    model = zefuse.llm.optimize(_llama())
    first = model.generate(_ids(16), max_new_tokens=4, max_length=None, do_sample=False, return_dict_in_generate=True)
    cache = first.past_key_values
    cache.capacity += 64  # room is not what it lacks
    with torch.inference_mode(), pytest.raises(InvalidArgumentError, match="16 tokens after 19 earlier ones"):
        model(input_ids=_ids(16), past_key_values=cache)
