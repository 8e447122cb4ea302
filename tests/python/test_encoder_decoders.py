"""``zefuse.llm`` and encoder-decoders: small random ones through ``generate()``, against the same model in eager."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from language_model import dequantized
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache

import zefuse.llm
from zefuse import backend
from zefuse.llm import cache_parts, graphs
from zefuse.llm.cross_attention import EncoderDecoderMemory
from zefuse.llm.reports import FROM_CACHE

_SIZES = {"d_model": 64, "vocab_size": 128, "pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 2}
_LAYERS = {
    **_SIZES, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "eos_token_id": None, "forced_eos_token_id": None,
}  # fmt: skip
_ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "T5": ("T5ForConditionalGeneration", {
        **_SIZES, "d_kv": 16, "d_ff": 96, "num_heads": 4, "num_layers": 3, "num_decoder_layers": 3, "eos_token_id": None,
    }),
    "Bart": ("BartForConditionalGeneration", {**_LAYERS, "max_position_embeddings": 256}),
    "Whisper": ("WhisperForConditionalGeneration", {
        **_LAYERS, "eos_token_id": 127, "num_mel_bins": 20, "max_source_positions": 50, "max_target_positions": 128,
    }),
}  # fmt: skip
# Layers that differ: T5's first one of a stack has the position bias of all of them.
_DIFFERENT = {"T5": 2}


def _model(name: str = "T5", **changes: Any) -> Any:
    """Weights so large that tokens change with what they depend on."""
    torch.manual_seed(0)
    kind, sizes = _ARCHITECTURES[name]
    model = getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**{**sizes, **changes})).eval()
    with torch.no_grad():
        for key, each in model.named_parameters():
            if each.dim() > 1:
                each.normal_(std=1.0 if "embed" in key or "shared" in key else 2 * each.shape[-1] ** -0.5)
    return model


def _input(name: str, length: int, batch: int = 1) -> torch.Tensor:
    draw = torch.Generator().manual_seed(length)
    if name == "Whisper":
        return torch.randn(batch, 20, 100, generator=draw)
    return torch.randint(3, 127, (batch, length), generator=draw)


def _kinds(model: Any) -> list[str]:
    return [graph.kind for graph in zefuse.llm.report(model).graphs]


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    """A model and its optimized copy, which the tests share: each graph is compiled once."""
    model = _model()
    return model, zefuse.llm.optimize(model, inplace=False)


@pytest.mark.parametrize("name", _ARCHITECTURES)
def test_greedy_tokens_are_those_of_eager(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(name)
    inputs = [_input(name, 7), _input(name, 33)]
    arguments = {"max_new_tokens": 12, "do_sample": False}
    expected = [model.generate(each, **arguments) for each in inputs]
    assert not torch.equal(*expected)
    optimized = zefuse.llm.optimize(model, inplace=False)
    report = zefuse.llm.report(optimized)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for each, tokens in zip(inputs, expected, strict=True):
        assert torch.equal(optimized.generate(each, **arguments), tokens)
        # Compiled by the first generate() alone; the second one encodes another number of tokens.
        assert _kinds(optimized) == ["encoder", "prefill", "decode"]
    assert [(graph.fallbacks, graph.copies) for graph in report.graphs] == [(0, 0)] * 3
    assert [graph.calls for graph in report.graphs] == [2, 2, 22]
    assert [graph.different_layers for graph in report.graphs] == [_DIFFERENT.get(name, 1)] * 3
    assert report.left == []
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before
    monkeypatch.setattr(graphs, "trace", None)
    again = zefuse.llm.optimize(model)
    assert torch.equal(again.generate(inputs[0], **arguments), expected[0])
    assert [graph.cache for graph in zefuse.llm.report(again).graphs] == [FROM_CACHE] * 3


def test_batches_of_unequal_length_and_beams(pair: tuple[Any, Any]) -> None:
    model, optimized = pair
    ids = _input("T5", 12, batch=2)
    mask = torch.ones_like(ids)
    mask[0, 5:] = 0
    arguments = {"attention_mask": mask, "max_new_tokens": 10, "do_sample": False, "num_beams": 3}
    assert torch.equal(optimized.generate(ids, **arguments), model.generate(ids, **arguments))
    assert zefuse.llm.report(optimized).left == []


def test_sampling_and_a_prompt_of_the_decoder(pair: tuple[Any, Any]) -> None:
    results = []
    for model in pair:
        torch.manual_seed(3)
        arguments = {
            "max_new_tokens": 6, "do_sample": True, "top_k": 20, "decoder_input_ids": torch.tensor([[2, 17, 42]]),
            "return_dict_in_generate": True, "output_logits": True,
        }  # fmt: skip
        results.append(model.generate(_input("T5", 7), **arguments))
    assert torch.equal(*(each.sequences for each in results))
    assert results[0].sequences[0, :3].tolist() == [2, 17, 42]
    for expected, logits in zip(*(each.logits for each in results), strict=True):
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_as_many_tokens_encoded_as_the_cache_shows(
    pair: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lengths that are equal by chance: the graph is not for that case alone, and serves the steps after it."""
    monkeypatch.setenv("ZEFUSE_CACHE_DIR", str(tmp_path))  # what the other tests made is for any lengths
    model, optimized = pair[0], zefuse.llm.optimize(pair[0], inplace=False)
    ids = _input("T5", 64)
    arguments = {"max_new_tokens": 70, "do_sample": False}
    assert torch.equal(optimized.generate(ids, **arguments), model.generate(ids, **arguments))
    assert _kinds(optimized) == ["encoder", "prefill", "decode"]


def test_what_is_not_compiled_runs_as_before_and_is_reported(pair: tuple[Any, Any]) -> None:
    model, optimized = pair
    ids = _input("T5", 7)
    arguments = {"max_new_tokens": 3, "do_sample": False, "output_hidden_states": True, "return_dict_in_generate": True}
    made, expected = optimized.generate(ids, **arguments), model.generate(ids, **arguments)
    assert torch.equal(made.sequences, expected.sequences)
    assert len(made.encoder_hidden_states) == len(expected.encoder_hidden_states) == 4
    assert any("hidden states" in line for line in zefuse.llm.report(optimized).left)
    loss = optimized(ids, labels=ids).loss
    loss.backward()
    assert torch.equal(loss, model(ids, labels=ids).loss)
    optimized.zero_grad()


def test_a_copy_has_an_encoder_and_a_report_of_its_own(pair: tuple[Any, Any]) -> None:
    copied = copy.deepcopy(pair[1])
    with torch.no_grad():
        copied.encoder.block[0].layer[0].SelfAttention.v.weight.neg_()
        copied.decoder.block[0].layer[1].EncDecAttention.v.weight.neg_()
    changed = copy.deepcopy(pair[0])
    changed.load_state_dict(copied.state_dict())
    ids = _input("T5", 7)
    arguments = {"max_new_tokens": 8, "do_sample": False}
    tokens = copied.generate(ids, **arguments)
    assert torch.equal(tokens, changed.generate(ids, **arguments))
    assert not torch.equal(tokens, pair[1].generate(ids, **arguments))
    assert _kinds(copied) == ["encoder", "prefill", "decode"]
    assert zefuse.llm.report(copied) is not zefuse.llm.report(pair[1])


@pytest.mark.parametrize(("name", "weights"), [("T5", "int8"), ("Whisper", "int4")])
def test_quantized_weights_compute_what_their_dequantized_ones_do(name: str, weights: str) -> None:
    model = _model(name)
    quantized = zefuse.llm.optimize(model, weights=weights, inplace=False)
    plain = dequantized(zefuse.llm.optimize(model, weights=weights))
    arguments = {
        "max_new_tokens": 8, "do_sample": False, "return_dict_in_generate": True, "output_logits": True,
    }  # fmt: skip
    made, expected = (each.generate(_input(name, 7), **arguments) for each in (quantized, plain))
    assert torch.equal(made.sequences, expected.sequences)
    for logits, exact in zip(made.logits, expected.logits, strict=True):
        torch.testing.assert_close(logits, exact, rtol=1e-4, atol=1e-4 * float(exact.abs().max()))
    report = zefuse.llm.report(quantized)
    assert all(graph.fallbacks == 0 for graph in report.graphs) and _kinds(quantized) == [
        "encoder",
        "prefill",
        "decode",
    ]
    assert any(f"matrices to {weights}" in line for line in report.changed)


class _Rounded(DynamicLayer):
    """Eager's cache, of numbers that 8 bits keep."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        parts = cache_parts.written(key_states, value_states, "int8")
        return super().update(*cache_parts.read(parts, key_states.dtype), *args, **kwargs)


def _logits(model: Any, given: torch.Tensor, count: int, **options: Any) -> torch.Tensor:
    """Of ``count`` tokens, which are the same ones for every model."""
    made = model.generate(
        given, max_new_tokens=count, do_sample=False, return_dict_in_generate=True, output_logits=True,
        prefix_allowed_tokens_fn=lambda _, before: [len(before) * 37 % 120 + 2], **options,
    )  # fmt: skip
    return torch.stack(made.logits)


@pytest.mark.parametrize("name", _ARCHITECTURES)
def test_an_int8_cache_computes_what_rounded_keys_and_values_do(name: str) -> None:
    """Of the decoder's own attention and of the cross-attention, by a step that makes no numbers of its codes in memory."""
    model, given = _model(name), _input(name, 40)
    rounded = EncoderDecoderCache(*(Cache(layer_class_to_replicate=_Rounded) for _ in range(2)))
    expected = _logits(model, given, 8, past_key_values=rounded)
    exact = _logits(model, given, 8)
    optimized = zefuse.llm.optimize(model, cache="int8")
    compiled: list[Any] = []
    with backend.observe(lambda _, graph: compiled.append(graph)):
        made = _logits(optimized, given, 8)
    # (A code may be the neighbour of eager's.)
    assert (made - expected).norm() < 0.2 * (expected - exact).norm() > 0
    report = zefuse.llm.report(optimized)
    assert [(graph.kind, graph.fallbacks, graph.copies) for graph in report.graphs] == [
        (kind, 0, 0) for kind in ("encoder", "prefill", "decode")
    ]
    assert report.left == [] and any(
        line.endswith("in int8 with a scale for each head and token") for line in report.changed
    )
    step = compiled[-1]
    assert step.report()["calls"] == [] and step.counters()["arena_bytes"] < 40 * 64 * 4  # of one layer's keys


def test_an_int8_cache_of_beams_and_padded_batches(pair: tuple[Any, Any]) -> None:
    model, optimized = pair[0], zefuse.llm.optimize(pair[0], inplace=False, cache="int8")
    ids = _input("T5", 12, batch=2)
    mask = torch.ones_like(ids)
    mask[0, 5:] = 0
    options = {"attention_mask": mask, "num_beams": 3}
    rounded = EncoderDecoderCache(*(Cache(layer_class_to_replicate=_Rounded) for _ in range(2)))
    made, exact = (_logits(each, ids, 6, **options) for each in (optimized, model))
    expected = _logits(model, ids, 6, past_key_values=rounded, **options)
    assert (made - expected).norm() < 0.2 * (expected - exact).norm() > 0
    assert zefuse.llm.report(optimized).left == []


def test_an_int8_cache_that_compiled_and_uncompiled_calls_share(pair: tuple[Any, Any]) -> None:
    model = pair[0]
    cache = EncoderDecoderMemory(num_layers=3, capacity=64, format="int8")
    ids, first, second = _input("T5", 9), torch.tensor([[2, 5]]), torch.tensor([[7]])
    optimized = zefuse.llm.optimize(model, inplace=False, cache="int8")
    with torch.no_grad():
        exact = model(ids, decoder_input_ids=torch.cat((first, second), 1)).logits[:, -1]
        encoded = model.encoder(ids)
        given = {"encoder_outputs": encoded, "past_key_values": cache, "use_cache": True}
        model(decoder_input_ids=first, **given)  # which leaves numbers of the encoded sequence
        assert cache.cross_attention_cache.layers[0].keys.dtype == torch.float32
        made = optimized(decoder_input_ids=second, **given).logits[:, -1]
        layer = cache.cross_attention_cache.layers[0]
        assert layer.memory[0].dtype == torch.int8 and layer.keys.dtype == torch.float32
        assert (made - exact).norm() < 0.3 * exact.norm()
        cache.self_attention_cache.length -= 1
        again = model(decoder_input_ids=second, **given).logits[:, -1]
    torch.testing.assert_close(made, again, rtol=0, atol=2e-2 * float(again.abs().max()))
