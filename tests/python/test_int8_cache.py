"""``cache="int8"``: keys and values in 8 bits, against the cache of f32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import zefuse.llm
from zefuse import backend
from zefuse.cli import main
from zefuse.errors import OptionError, UnsupportedError
from zefuse.llm import cache_parts, generating
from zefuse.llm.cache import KeyValueCache

_SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 128, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "initializer_range": 0.2,
}  # fmt: skip
_BOUND = 0.03  # of the logits: each number is off by 1/510 of what its row spans, at most


def _model(name: str = "Llama", **changes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**_SIZES, **changes})
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def _ids(length: int, batch: int = 1) -> torch.Tensor:
    return torch.randint(2, 128, (batch, length), generator=torch.Generator().manual_seed(1))


def _logits(model: Any, ids: torch.Tensor, count: int, **options: Any) -> torch.Tensor:
    """Of ``count`` tokens, which are the same ones for every model."""
    made = model.generate(
        ids, max_new_tokens=count, do_sample=False, return_dict_in_generate=True, output_logits=True,
        prefix_allowed_tokens_fn=lambda _, before: [len(before) * 37 % 120 + 2], **options,
    )  # fmt: skip
    return torch.stack(made.logits)


def _assert_near(made: torch.Tensor, exact: torch.Tensor) -> None:
    difference = (made - exact).norm() / exact.norm()
    assert 1e-5 < difference < _BOUND, difference


def test_each_number_is_within_half_a_code() -> None:
    rows = torch.randn(2, 3, 5, 16, generator=torch.Generator().manual_seed(0)) - 1
    rows[0, 1, 2], rows[1, 2, 4], rows[0, 0, 0, 3] = 0, 1e-30, -1e30
    keys, values, key_scales, value_scales = cache_parts.written(rows, 2 * rows, "int8")
    assert keys.dtype == values.dtype == torch.int8 and key_scales.shape == (2, 3, 5, 2)
    made, doubled = cache_parts.read([keys, values, key_scales, value_scales], torch.float32)
    steps = (rows.amax(-1, keepdim=True) - rows.amin(-1, keepdim=True)) / 255
    assert ((made - rows).abs() <= 0.5001 * steps).all() and torch.equal(doubled, 2 * made)
    assert torch.equal(made[0, 1, 2], torch.zeros(16))
    varied = steps[..., 0] > 0
    assert (keys.amin(-1)[varied] == -128).all() and (keys.amax(-1)[varied] == 127).all()


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    """A model and its optimized copy, which the tests share: each graph is compiled once."""
    model = _model()
    return model, zefuse.llm.optimize(model, inplace=False, cache="int8")


def test_logits_are_those_of_the_f32_cache(pair: tuple[Any, Any]) -> None:
    """A prompt, and single tokens beyond the first 64 of the cache."""
    model, optimized = pair
    _assert_near(_logits(optimized, _ids(40), 40), _logits(model, _ids(40), 40))
    report = zefuse.llm.report(optimized)
    assert [(graph.kind, graph.fallbacks, graph.copies) for graph in report.graphs] == [
        ("prefill", 0, 0),
        ("decode", 0, 0),
    ]
    assert report.left == [] and any("in int8 with a scale for each head and token" in line for line in report.changed)


def test_a_sliding_window() -> None:
    model = _model("Mistral", sliding_window=8)
    optimized = zefuse.llm.optimize(model, inplace=False, cache="int8")
    _assert_near(_logits(optimized, _ids(20), 8), _logits(model, _ids(20), 8))


def test_beams_of_a_batch_of_unequal_length(pair: tuple[Any, Any]) -> None:
    model, optimized = pair
    ids, mask = _ids(7, batch=2), torch.ones(2, 7, dtype=torch.int64)
    mask[0, :3] = 0
    options = {"attention_mask": mask, "num_beams": 2}
    _assert_near(_logits(optimized, ids, 4, **options), _logits(model, ids, 4, **options))
    assert zefuse.llm.report(optimized).left == []


def test_a_decoding_step_reads_codes_and_makes_no_numbers_of_them_in_memory() -> None:
    """What a step needs beside the cache is its scores and rows, less than one layer's keys are in f32."""
    arenas, kernels = {}, {}
    for cache in (None, "int8"):
        graphs: list[Any] = []
        optimized = zefuse.llm.optimize(_model(), cache=cache)
        with backend.observe(lambda _, graph, graphs=graphs: graphs.append(graph)):
            _logits(optimized, _ids(2000), 2)
        report = graphs[-1].report()  # of the single token
        assert report["copies"] == report["calls"] == report["fallbacks"] == []
        arenas[cache], kernels[cache] = graphs[-1].counters()["arena_bytes"], report["kernels"]
    shown, heads, key_heads, width = 2048, 4, 2, 16
    assert arenas["int8"] < 2 * shown * heads * 4 + 8192 < shown * key_heads * width * 4
    assert arenas["int8"] < arenas[None] + 4096
    # Of each layer's attention: scores and the sum over values, in which numbers are made of the codes.
    reading = [
        each
        for each in kernels["int8"]
        if {"zefuse_llm.multiply_add.default", "aten.sum.dim_IntList"} <= set(each["ops"])
    ]
    assert len(reading) == 2 * 2


def test_bytes_of_a_token_are_those_of_codes_and_scales(pair: tuple[Any, Any]) -> None:
    _, model = pair
    made = model.generate(_ids(5), max_new_tokens=2, do_sample=False, return_dict_in_generate=True)
    codes = 2 * 2 * 2 * made.past_key_values.capacity * 16  # layers, keys and values, heads, width
    read = generating.bytes_per_token(model, made.past_key_values) - generating.bytes_of_weights(model)
    assert read == codes + codes // 16 * 8  # a scale and an offset


def test_a_package(pair: tuple[Any, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, optimized = pair
    file = tmp_path / "model.zefuse"
    graphs = zefuse.llm.compile_package(optimized, file, batches=False)
    assert [(graph.kind, graph.fallbacks, graph.copies) for graph in graphs] == [("decode", 0, 0), ("prefill", 0, 0)]
    loaded = zefuse.llm.load_package(file)
    prompt = _ids(70)[0].tolist()
    expected = optimized.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, 70:].tolist()
    assert list(loaded.tokens(prompt, 20)) == expected
    assert loaded.bytes_per_token(10) - loaded.bytes_per_token(9) == 2 * 2 * 2 * (16 + 8)
    assert loaded.cache(16).bytes == 16 * 2 * 2 * 2 * (16 + 8)
    assert main(["generate", str(file), "--prompt", "x", "--cache", "int8"]) == 1
    assert "is a package: --weights, --activations, --cache" in capfd.readouterr().err


def test_what_runs_uncompiled_has_the_same_cache() -> None:
    model = _model()
    cache = KeyValueCache(num_layers=2, capacity=64, format="int8")
    ids = _ids(9)
    with torch.no_grad():
        exact = model(ids).logits[:, -1]
        model(ids[:, :8], past_key_values=cache, use_cache=True)
        # As static caches are shown: the mask leaves out what is not filled.
        made = model(ids[:, 8:], past_key_values=cache, use_cache=True).logits[:, -1]
    assert cache.length == 9 and cache.layers[0].keys.dtype == torch.int8
    _assert_near(made, exact)
    cache.reset()
    assert all(not part.any() for layer in cache.layers for part in layer.memory)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"optimize\(cache='int4'\): expected None or 'int8'"):
        zefuse.llm.optimize(_model(), cache="int4")
    with pytest.raises(OptionError, match=r"compile_package\(cache='int4'\)"):
        zefuse.llm.compile_package(_model(), tmp_path / "model.zefuse", cache="int4")
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=1, vocab_size=64)
    with pytest.raises(
        UnsupportedError, match="a MambaForCausalLM has no cache that could be so: its cache is of its own kind"
    ):
        zefuse.llm.optimize(transformers.MambaForCausalLM(config), cache="int8")
