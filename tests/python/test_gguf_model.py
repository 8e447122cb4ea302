"""GGUF files as models: their blocks kept, against the same blocks dequantized by PyPI's ``gguf``."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zefuse.llm
from zefuse.errors import InvalidArgumentError
from zefuse.llm import experts, gguf_blocks, gguf_model, packing

gguf = pytest.importorskip("gguf")

_HIDDEN, _HEADS, _KEY_HEADS, _LAYERS, _WORDS = 256, 4, 2, 2, 64
_SHAPES = {
    "attn_q": (_HIDDEN, _HIDDEN), "attn_k": (_HIDDEN // 2, _HIDDEN), "attn_v": (_HIDDEN // 2, _HIDDEN),
    "attn_output": (_HIDDEN, _HIDDEN), "ffn_gate": (512, _HIDDEN), "ffn_up": (512, _HIDDEN), "ffn_down": (_HIDDEN, 512),
}  # fmt: skip


_SCALES_AT = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


def _blocks(kind: str, shape: tuple[int, int], draw: np.random.Generator) -> np.ndarray:
    """A matrix of small random weights in a file's form."""
    if kind not in _SCALES_AT:
        values = draw.normal(scale=0.05, size=shape).astype(np.float32)
        return gguf.quantize(values, gguf.GGMLQuantizationType[kind])
    _, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = draw.integers(0, 256, (shape[0], shape[1] // 256, size), dtype=np.uint8)
    for at, scale in zip(_SCALES_AT[kind], (2e-4, 1.5e-3), strict=False):
        blocks[..., at : at + 2] = np.array([scale], np.float16).view(np.uint8)
    return blocks.reshape(shape[0], -1)


_PACKED = ["Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0"]


def _write(place: Path, kind: str, words: str = "Q8_0") -> Path:
    draw = np.random.default_rng(0)
    writer = gguf.GGUFWriter(place, "llama")
    writer.add_name("small")
    writer.add_block_count(_LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(_HIDDEN)
    writer.add_feed_forward_length(512)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(_WORDS)

    def add(name: str, kind: str, shape: tuple[int, int]) -> None:
        writer.add_tensor(f"{name}.weight", _blocks(kind, shape, draw), raw_dtype=gguf.GGMLQuantizationType[kind])

    def add_norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", draw.uniform(0.5, 1.5, _HIDDEN).astype(np.float32))

    add("token_embd", words, (_WORDS, _HIDDEN))
    for layer in range(_LAYERS):
        for name, shape in _SHAPES.items():
            add(f"blk.{layer}.{name}", kind, shape)
        add_norm(f"blk.{layer}.attn_norm")
        add_norm(f"blk.{layer}.ffn_norm")
    add_norm("output_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return place


@pytest.mark.parametrize("kind", _PACKED)
def test_a_packed_matrix_is_the_files(kind: str) -> None:
    data = _blocks(kind, (21, 512), np.random.default_rng(1))
    expected = torch.tensor(gguf.dequantize(data, gguf.GGMLQuantizationType[kind]))
    packed = gguf_blocks.pack(kind, data)
    assert torch.equal(packing.unpack(packed), expected)
    order = np.random.default_rng(0).permutation(21)
    assert torch.equal(packing.unpack(gguf_blocks.pack(kind, data, order)), expected[order])
    row = torch.randn(512, generator=torch.Generator().manual_seed(2))
    product = torch.compile(lambda row: packing.times_row(packed, row), backend="zefuse", options={"strict": True})
    torch.testing.assert_close(product(row), expected @ row, rtol=1e-4, atol=1e-5)
    quantized = torch.compile(
        lambda row: packing.times_quantized_row(packed, packing.quantize_row(row, packed.chunk)), backend="zefuse", options={"strict": True}
    )  # fmt: skip
    rounding = packing.quantize_row(row, packed.chunk).scales.repeat_interleave(packed.chunk) / 2
    assert ((quantized(row) - expected @ row).abs() <= 1e-5 + expected.abs() @ rounding).all()
    assert (quantized(row) - expected @ row).norm() < 0.02 * (expected @ row).norm()


def _greedy(tokens: int) -> dict[str, Any]:
    return {
        "max_new_tokens": tokens, "do_sample": False, "return_dict_in_generate": True, "output_logits": True, "pad_token_id": 0,
        "eos_token_id": None,
    }  # fmt: skip


def _says_the_same(optimized: Any, plain: Any, ids: torch.Tensor, tokens: int, atol: float) -> Any:
    """Without fallbacks; what ``plain`` says."""
    made, expected = (model.generate(ids, **_greedy(tokens)) for model in (optimized, plain))
    assert torch.equal(made.sequences, expected.sequences)
    for logits, without in zip(made.logits, expected.logits, strict=True):
        torch.testing.assert_close(logits, without, rtol=1e-4, atol=atol)
    assert all(graph.fallbacks == 0 for graph in zefuse.llm.report(optimized).graphs)
    return expected


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_a_model_computes_with_the_files_blocks(kind: str, tmp_path: Path) -> None:
    place = _write(tmp_path / "model.gguf", kind)
    kept, plain = (gguf_model.load(place, torch.float32, keep) for keep in (True, False))
    _check_names(place, plain)
    ids = torch.randint(0, _WORDS, (1, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(kept(ids).logits, plain(ids).logits)
    small = sum(each.numel() * each.element_size() for each in {id(each): each for each in kept.buffers()}.values())
    assert small < 0.36 * sum(each.numel() * each.element_size() for each in plain.parameters())
    exact = copy.deepcopy(kept)
    optimized = zefuse.llm.optimize(kept)
    assert "weights: 15 matrices quantized before" in str(zefuse.llm.report(optimized))
    expected = _says_the_same(optimized, plain, ids, tokens=6, atol=1e-5)
    said = expected.sequences[0].tolist()
    quantized = zefuse.llm.optimize(exact, activations="int8").generate(
        ids, prefix_allowed_tokens_fn=lambda _, before: [said[len(before)]], **_greedy(6)
    )
    for logits, without in zip(quantized.logits, expected.logits, strict=True):
        assert (logits - without).norm() < 0.05 * without.norm()


def _write_mixture(place: Path, kind: str, up: str | None = None) -> Path:
    """A Qwen3-MoE whose experts have ``kind``."""
    draw = np.random.default_rng(0)
    experts, wide = 4, 768  # the width that transformers takes such a file's experts to have
    writer = gguf.GGUFWriter(place, "qwen3moe")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(_HIDDEN)
    writer.add_feed_forward_length(512)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KEY_HEADS)
    writer.add_key_length(64)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(_WORDS)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(2)

    def add(name: str, kind: str, *shape: int) -> None:
        blocks = _blocks(kind, (int(np.prod(shape[:-1])), shape[-1]), draw)
        data = blocks.reshape(*shape[:-1], -1)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType[kind])

    def add_plain(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", draw.uniform(0.5, 1.5, shape).astype(np.float32))

    add("token_embd", "Q8_0", _WORDS, _HIDDEN)
    for name, shape in _SHAPES.items():
        if name.startswith("attn"):
            add(f"blk.0.{name}", "Q8_0", *shape)
    for name in ("attn_norm", "ffn_norm"):
        add_plain(f"blk.0.{name}", _HIDDEN)
    for name in ("attn_q_norm", "attn_k_norm"):
        add_plain(f"blk.0.{name}", 64)
    writer.add_tensor("blk.0.ffn_gate_inp.weight", draw.normal(size=(experts, _HIDDEN)).astype(np.float32))
    add("blk.0.ffn_gate_exps", kind, experts, wide, _HIDDEN)
    add("blk.0.ffn_up_exps", up or kind, experts, wide, _HIDDEN)
    add("blk.0.ffn_down_exps", kind, experts, _HIDDEN, wide)
    add("output", "Q8_0", _WORDS, _HIDDEN)
    add_plain("output_norm", _HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return place


@pytest.mark.parametrize(("kind", "up"), [("Q4_K", None), ("Q8_0", "Q4_0")])
def test_a_mixture_computes_with_the_files_blocks(kind: str, up: str | None, tmp_path: Path) -> None:
    place = _write_mixture(tmp_path / "model.gguf", kind, up)
    kept, plain = (gguf_model.load(place, torch.float32, keep) for keep in (True, False))
    layer = plain.model.layers[0].mlp
    assert layer.experts.gate_up_proj.shape == (4, 2 * 768, _HIDDEN)
    mine = kept.model.layers[0].mlp.experts
    # Parts of two kinds are dequantized.
    assert isinstance(mine.gate_up_proj, torch.nn.Parameter if up else experts.QuantizedExperts)
    assert isinstance(mine.down_proj, experts.QuantizedExperts)
    for name in ("gate_up_proj", "down_proj"):
        each = getattr(mine, name)
        assert torch.equal(each if up and name == "gate_up_proj" else each.weight, getattr(layer.experts, name))
    ids = torch.randint(0, _WORDS, (1, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(kept(ids).logits, plain(ids).logits)
    optimized = zefuse.llm.optimize(kept)
    _says_the_same(optimized, plain, ids, tokens=3, atol=1e-4)


def _check_names(place: Path, model: Any) -> None:
    """Each weight of the model is the file's; queries and keys have the rows of a head in another order there."""
    tensors = {
        each.name: torch.tensor(gguf.dequantize(each.data, each.tensor_type)) for each in gguf.GGUFReader(place).tensors
    }
    layer = model.model.layers[1]
    assert torch.equal(layer.mlp.gate_proj.weight, tensors["blk.1.ffn_gate.weight"])
    assert torch.equal(layer.post_attention_layernorm.weight, tensors["blk.1.ffn_norm.weight"])
    assert torch.equal(model.lm_head.weight, tensors["token_embd.weight"])
    keys = tensors["blk.1.attn_k.weight"].reshape(_KEY_HEADS, -1, 2, _HIDDEN).transpose(1, 2).reshape(-1, _HIDDEN)
    assert torch.equal(layer.self_attn.k_proj.weight, keys)


def test_another_dtype_leaves_codes_and_scales(tmp_path: Path) -> None:
    model = gguf_model.load(_write(tmp_path / "model.gguf", "Q4_1"), torch.float32, keep=True)
    before = model.model.layers[0].mlp.up_proj.packed
    model.to(torch.bfloat16)
    after = model.model.layers[0].mlp.up_proj.packed
    for name in ("codes", "scales", "minimums"):
        assert torch.equal(getattr(before, name), getattr(after, name)), name
    assert model(torch.tensor([[1, 2]])).logits.dtype == torch.bfloat16


@pytest.mark.parametrize("kind", ["Q3_K", "Q5_1", "Q6_K", "F16", "BF16"])
def test_each_type_loads_exactly(kind: str, tmp_path: Path) -> None:
    """As llama.cpp mixes them: another type for the vocabulary than for the layers."""
    place = _write(tmp_path / "model.gguf", kind, "F16")
    kept, plain = (gguf_model.load(place, torch.float32, keep) for keep in (True, False))
    _check_names(place, plain)
    assert (type(kept.model.layers[0].mlp.up_proj) is torch.nn.Linear) == (kind not in _PACKED)
    assert kept.lm_head.weight is kept.model.embed_tokens.weight
    for name, module in plain.named_modules():
        if isinstance(module, torch.nn.Linear):
            assert torch.equal(kept.get_submodule(name).weight, module.weight), name


def test_a_file_without_one_of_the_models_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(_SHAPES, "ffn_up")
    place = _write(tmp_path / "model.gguf", "Q4_0")
    with pytest.raises(InvalidArgumentError, match=r"up_proj.weight is not in it"):
        gguf_model.load(place, torch.float32, keep=True)


def test_a_file_is_read_once(tmp_path: Path) -> None:
    from zefuse.llm import gguf_reading

    place, other = _write(tmp_path / "model.gguf", "Q4_1"), _write(tmp_path / "other.gguf", "Q8_0")
    before, names = gguf.GGUFReader, gguf.get_tensor_name_map
    with gguf_reading.read_once(place):
        one, again = gguf.GGUFReader(place), gguf.GGUFReader(str(place))
        assert one is again and gguf.GGUFReader(other) is not one
        assert not isinstance(one.data, np.memmap)
        plain = before(place)
        assert {name: field.contents() for name, field in one.fields.items()} == {
            name: field.contents() for name, field in plain.fields.items()
        }
        for ours, theirs in zip(one.tensors, plain.tensors, strict=True):
            assert ours.name == theirs.name and np.array_equal(ours.data, theirs.data)
        arch = gguf.MODEL_ARCH.LLAMA
        assert gguf.get_tensor_name_map(arch, 2) is gguf.get_tensor_name_map(arch, 2)
    assert gguf.GGUFReader is before and gguf.get_tensor_name_map is names
