"""``zefuse.llm``: small random decoders through ``generate()``, against the same model in eager."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from language_model import dequantized

import zefuse.llm
from zefuse.errors import InvalidArgumentError, OptionError, OutOfMemoryError
from zefuse.llm import cache_memory, operators, packing
from zefuse.llm.layers import decoder_layers, signature

_SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128}
_GATED = {**_SIZES, "intermediate_size": 96, "num_key_value_heads": 2}
_NO_END = {"eos_token_id": None, "bos_token_id": 1, "pad_token_id": 0}

_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "Llama": _GATED,
    "Qwen2": _GATED,
    "Qwen3": {**_GATED, "head_dim": 16},
    "Mistral": {**_GATED, "sliding_window": 8},  # shorter than what the test generates
    "Gemma": {**_GATED, "head_dim": 16},
    "Phi": _GATED,
    "Phi3": _GATED,
    "GPT2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128},
    "GPTNeoX": {**_SIZES, "intermediate_size": 96},
    "OPT": {**_SIZES, "ffn_dim": 96, "word_embed_proj_dim": 64},
    "Falcon": _SIZES,
}


def _model(name: str = "Llama", **changes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**_ARCHITECTURES[name], **_NO_END, **changes})
    kind = {"GPT2": "GPT2LMHeadModel"}.get(name, f"{name}ForCausalLM")
    return getattr(transformers, kind)(config).eval()


def _prompt(length: int, seed: int = 1, batch: int = 1) -> torch.Tensor:
    return torch.randint(2, 128, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    """A model and its optimized copy, which the tests share: each graph is compiled once."""
    model = _model()
    return model, zefuse.llm.optimize(model, inplace=False)


@pytest.mark.parametrize("name", _ARCHITECTURES)
def test_greedy_tokens_are_those_of_eager(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = _model(name)
    prompts = [_prompt(5), _prompt(11, seed=2)]
    expected = [model.generate(prompt, max_new_tokens=12, do_sample=False) for prompt in prompts]
    assert zefuse.llm.optimize(model) is model
    assert "forward: one compiled graph" in capsys.readouterr().out
    report = zefuse.llm.report(model)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for prompt, tokens in zip(prompts, expected, strict=True):
        assert torch.equal(model.generate(prompt, max_new_tokens=12, do_sample=False), tokens)
        # Compiled by the first generate() alone; the second one has a prompt and a cache of other lengths.
        assert [(graph.kind, graph.fallbacks) for graph in report.graphs] == [("prefill", 0), ("decode", 0)]
        assert [graph.copies for graph in report.graphs] == [0, 0]  # the cache is written in place
    assert [graph.calls for graph in report.graphs] == [2, 22]
    assert [graph.different_layers for graph in report.graphs] == [1, 1]
    assert report.left == []
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


def test_batches_of_unequal_length_and_beams(pair: tuple[Any, Any]) -> None:
    model, optimized = pair
    prompt = _prompt(7, batch=2)
    mask = torch.ones_like(prompt)
    mask[0, :3] = 0
    for options in ({"num_beams": 1}, {"num_beams": 2}):
        arguments = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False, **options}
        assert torch.equal(optimized.generate(prompt, **arguments), model.generate(prompt, **arguments))
    assert zefuse.llm.report(optimized).left == []


@pytest.mark.parametrize("name", ["Llama", "Mistral"])
def test_a_cache_that_is_seen_step_by_step(name: str) -> None:
    """Beyond the first 64 tokens of the cache, with masks for all of it, and beams that change places."""
    model = _model(name)
    optimized = zefuse.llm.optimize(model, inplace=False)
    arguments = {"do_sample": False, "max_new_tokens": 100}
    for prompt in (_prompt(40), _prompt(70)):
        assert torch.equal(optimized.generate(prompt, **arguments), model.generate(prompt, **arguments))
    graphs = zefuse.llm.report(optimized).graphs
    assert [(graph.kind, graph.kernels > 8, graph.fallbacks) for graph in graphs] == [
        ("prefill", True, 0),
        ("decode", True, 0),
    ]
    prompt = _prompt(50, batch=2)
    mask = torch.ones_like(prompt)
    mask[1, :9] = 0
    arguments = {"do_sample": False, "max_new_tokens": 30, "num_beams": 3, "attention_mask": mask}
    assert torch.equal(optimized.generate(prompt, **arguments), model.generate(prompt, **arguments))
    assert zefuse.llm.report(optimized).left == []


def test_sampling_draws_what_eager_draws(pair: tuple[Any, Any]) -> None:
    results = []
    for model in pair:
        torch.manual_seed(3)
        results.append(model.generate(_prompt(5), max_new_tokens=8, do_sample=True, top_k=20, temperature=0.8))
    assert torch.equal(*results)


def test_tokens_are_streamed_as_they_come(pair: tuple[Any, Any]) -> None:
    class Tokenizer:
        """Only what a streamer calls."""

        def decode(self, tokens: list[int], **_: Any) -> str:
            return "".join(f"{int(token)} " for token in tokens)

    model, optimized = pair
    prompt = _prompt(5)
    streamer = transformers.TextIteratorStreamer(Tokenizer(), skip_prompt=True, timeout=300)
    arguments = {"max_new_tokens": 6, "do_sample": False}
    thread = threading.Thread(target=optimized.generate, args=(prompt,), kwargs={**arguments, "streamer": streamer})
    thread.start()
    text = "".join(streamer)
    thread.join()
    assert [int(each) for each in text.split()] == model.generate(prompt, **arguments)[0, 5:].tolist()


def test_what_is_not_compiled_runs_as_before_and_is_reported(pair: tuple[Any, Any]) -> None:
    model, optimized = pair
    prompt = _prompt(6)
    arguments = {"max_new_tokens": 3, "do_sample": False, "use_cache": False}
    assert torch.equal(optimized.generate(prompt, **arguments), model.generate(prompt, **arguments))
    assert "generate(use_cache=False) runs uncompiled" in zefuse.llm.report(optimized).left
    loss = optimized(prompt, labels=prompt).loss
    loss.backward()
    assert torch.equal(loss, model(prompt, labels=prompt).loss)
    optimized.zero_grad()


def test_changed_weights_are_seen(pair: tuple[Any, Any]) -> None:
    changed = [copy.deepcopy(model) for model in pair]  # an optimized model's copy has weights of its own
    for model in changed:
        with torch.no_grad():
            model.model.layers[1].mlp.down_proj.weight.mul_(-20)
            model.model.layers[0].self_attn.o_proj.weight = torch.nn.Parameter(torch.full((64, 64), 0.02))
    prompt = _prompt(5)
    arguments = {"max_new_tokens": 8, "do_sample": False}
    results = [model.generate(prompt, **arguments) for model in [*changed, *pair]]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[2], results[3])
    assert not torch.equal(results[0], results[2])


def test_bf16() -> None:
    model = zefuse.llm.optimize(_model(), dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    prompt = _prompt(5)
    arguments = {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    logits = model.generate(prompt, **arguments).logits[0]
    exact = _model().generate(prompt, **arguments).logits[0]
    eager = _model().to(torch.bfloat16).generate(prompt, **arguments).logits[0]
    assert (logits - exact).abs().max() <= 2 * (eager - exact).abs().max()
    assert zefuse.llm.report(model).graphs[0].fallbacks == 0


@pytest.mark.parametrize(
    ("name", "weights"), [("Llama", "int8"), ("Llama", "int4"), ("GPT2", "int8"), ("Qwen2", "int4")]
)
def test_quantized_weights_compute_what_their_dequantized_ones_do(name: str, weights: str) -> None:
    tied = {"tie_word_embeddings": name != "Llama"}
    model = _model(name, **tied)
    quantized = zefuse.llm.optimize(model, weights=weights, inplace=False)
    copy_of = zefuse.llm.optimize(_model(name, **tied), weights=weights)
    plain = dequantized(copy_of)
    arguments = {
        "max_new_tokens": 8, "do_sample": False, "return_dict_in_generate": True, "output_logits": True,
    }  # fmt: skip
    for prompt in (_prompt(5), _prompt(4, batch=2)):
        made, expected = quantized.generate(prompt, **arguments), plain.generate(prompt, **arguments)
        assert torch.equal(made.sequences, expected.sequences)
        for logits, exact in zip(made.logits, expected.logits, strict=True):
            torch.testing.assert_close(logits, exact, rtol=1e-4, atol=1e-5)
    report = zefuse.llm.report(quantized)
    assert all(graph.fallbacks == 0 for graph in report.graphs)
    assert any(f"matrices to {weights}, groups of 32" in line for line in report.changed)
    exact = model.generate(_prompt(5), **arguments).logits[0]
    made = quantized.generate(_prompt(5), **arguments).logits[0]
    assert 0 < (made - exact).norm() / exact.norm() < (0.02 if weights == "int8" else 0.2)


@pytest.mark.parametrize("weights", packing.FORMATS)
def test_each_weight_is_within_half_a_scale(weights: str) -> None:
    matrix = torch.randn(9, 96, generator=torch.Generator().manual_seed(0))
    matrix[3] = 0
    matrix[4, 0] = 1000
    packed = packing.pack(matrix, weights, 32)
    assert (packed.rows, packed.columns, packed.group, packed.bits) == (9, 96, 32, int(weights[3:]))
    made = packing.unpack(packed)
    scales = packed.scales.float().abs().movedim(1, 2).reshape(-1, 3)[:9].repeat_interleave(32, 1)
    # Of four bits one side has seven codes, and the largest weight is of the other: up to one scale there, and what eight
    # of them were rounded by.
    assert ((made - matrix).abs() <= scales * (0.5001 if weights == "int8" else 1.04)).all()
    assert torch.equal(made[3], torch.zeros(96))
    row = torch.randn(96)
    torch.testing.assert_close(packing.times_row(packed, row), made @ row)
    numbers = torch.tensor([8, 0, 3])
    assert torch.equal(packing.unpack_rows(packed, numbers), made[numbers])


@pytest.mark.parametrize("group", [8, 32, 96])
@pytest.mark.parametrize("weights", packing.FORMATS)
def test_products_with_a_quantized_row_are_those_of_what_it_stands_for(weights: str, group: int) -> None:
    draw = torch.Generator().manual_seed(0)
    matrix, row = torch.randn(37, 192, generator=draw), torch.randn(192, generator=draw)
    row[32:64] = 0
    row[64] = -50  # the largest number of its chunk, with the other sign
    packed = packing.pack(matrix, weights, group)

    def product(*parts: torch.Tensor) -> torch.Tensor:
        packed_again = packing.Packed(*parts[:2], packed.bits, packed.rows)
        return packing.times_quantized_row(packed_again, packing.quantize_row(parts[2], packed.chunk))

    quantized = packing.quantize_row(row, packed.chunk)
    codes = torch.stack([(quantized.words << (24 - 8 * byte)) >> 24 for byte in range(4)], -1)
    assert torch.equal(codes.sum((1, 2)), quantized.totals)
    stands_for = (codes.reshape(-1, packed.chunk) * quantized.scales.unsqueeze(1)).reshape(-1)
    scales = quantized.scales.repeat_interleave(packed.chunk)
    assert ((stands_for - row).abs() <= 0.5001 * scales).all() and (stands_for[32:64] == 0).all()
    expected = packing.unpack(packed).double() @ stands_for.double()
    compiled = torch.compile(product, backend="zefuse", options={"strict": True})
    for multiply in (product, compiled):
        made = multiply(packed.codes, packed.scales, row)
        torch.testing.assert_close(made.double(), expected, rtol=1e-5, atol=1e-5)
    for bad in (float("nan"), float("inf"), -float("inf")):
        row[7] = bad
        assert compiled(packed.codes, packed.scales, row).isnan().all()


def test_dot4_is_exact_at_the_ends_of_each_byte() -> None:
    draw = torch.Generator().manual_seed(0)
    whole = {"low": -(1 << 31), "high": (1 << 31) - 1, "dtype": torch.int32, "generator": draw}
    a, b, total = (torch.randint(size=(5, 40), **whole) for _ in range(3))
    a[0, :20], b[0, ::2] = -1, -2139062144  # 255 four times, -128 four times
    compiled = torch.compile(operators.dot4, backend="zefuse", options={"strict": True})
    bytes_of_a, bytes_of_b = (each.contiguous().view(kind) for each, kind in ((a, torch.uint8), (b, torch.int8)))
    products = (bytes_of_a.long() * bytes_of_b.long()).reshape(5, 40, 4).sum(2)
    expected = (total.long() + products).to(torch.int32)
    for dot in (operators.dot4, compiled):
        assert torch.equal(dot(a, b, total), expected)
    masked = torch.compile(
        lambda *x: operators.dot4(x[0] & 0x7F7F7F7F, *x[1:]), backend="zefuse", options={"strict": True}
    )
    assert torch.equal(masked(a, b, total), operators.dot4(a & 0x7F7F7F7F, b, total))


@pytest.mark.parametrize("weights", packing.FORMATS)
def test_quantized_activations(weights: str) -> None:
    model = _model()
    exact = zefuse.llm.optimize(model, weights=weights, inplace=False)
    quantized = zefuse.llm.optimize(model, weights=weights, activations="int8", inplace=False)
    arguments = {
        "max_new_tokens": 8, "do_sample": False, "return_dict_in_generate": True, "output_logits": True,
        "prefix_allowed_tokens_fn": lambda _, before: [len(before) % 120 + 2],  # both go the same way
    }  # fmt: skip
    made, expected = (each.generate(_prompt(5), **arguments).logits for each in (quantized, exact))
    # The first ones as well, which one token of the prompt makes.
    for logits, without in zip(made, expected, strict=True):
        assert 1e-5 < (logits - without).norm() / without.norm() < 0.02
    report = zefuse.llm.report(quantized)
    assert all(graph.fallbacks == 0 for graph in report.graphs) and report.left == []
    assert any(line.startswith("activations: int8") for line in report.changed)


def test_a_prompts_products_may_be_of_bf16_where_activations_are_quantized(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*sizes, generator=draw) for sizes in ((2, 20, 64), (48, 64), (48,)))
    compiled = torch.compile(
        operators.linear_bf16, backend="zefuse", options={"strict": True, "dump_dir": str(tmp_path)}
    )
    made, expected = compiled(x, weight, bias), operators.linear_bf16(x, weight, bias)
    assert made.dtype == torch.float32
    assert (made - expected).norm() < 4e-3 * expected.norm()  # two roundings to 8 bits
    (plan,) = tmp_path.rglob("plan.json")
    assert "bf16_math" in plan.read_text()


def test_multiply_add_rounds_once() -> None:
    draw = torch.Generator().manual_seed(0)
    a, c = (torch.randn(8, 33, generator=draw) for _ in range(2))
    b = torch.randn(33, generator=draw)
    exact = (a.double() * b.double() + c.double()).float()
    assert not torch.equal(a * b + c, exact)
    compiled = torch.compile(operators.multiply_add, backend="zefuse", options={"strict": True})
    assert torch.equal(compiled(a, b, c), exact)
    torch.testing.assert_close(operators.multiply_add(a, b, c), exact)


def test_matrices_that_groups_do_not_divide_are_left() -> None:
    model = zefuse.llm.optimize(_model(intermediate_size=100), weights="int8")
    left = zefuse.llm.report(model).left
    assert any("down_proj (its 100 columns are no multiple of the group's 32)" in line for line in left)
    model.generate(_prompt(5), max_new_tokens=2, do_sample=False)


def test_a_layer_that_computes_with_its_number_is_traced_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama.modeling_llama import LlamaAttention

    original = LlamaAttention.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        result, weights = original(self, *args, **kwargs)
        return result * (self.layer_idx + 2), weights

    monkeypatch.setattr(LlamaAttention, "forward", forward)
    model = _model()
    prompt = _prompt(5)
    arguments = {"max_new_tokens": 4, "do_sample": False}
    expected = model.generate(prompt, **arguments)
    zefuse.llm.optimize(model)
    assert torch.equal(model.generate(prompt, **arguments), expected)
    assert [graph.different_layers for graph in zefuse.llm.report(model).graphs] == [2, 2]


def test_what_no_plan_holds_runs_in_eager_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama.modeling_llama import LlamaMLP

    original = LlamaMLP.forward
    monkeypatch.setattr(LlamaMLP, "forward", lambda self, x: original(self, torch.fft.ifft(torch.fft.fft(x)).real))
    model = _model()
    arguments = {"max_new_tokens": 4, "do_sample": False}
    expected = model.generate(_prompt(5), **arguments)
    zefuse.llm.optimize(model)
    assert torch.equal(model.generate(_prompt(5), **arguments), expected)
    left = zefuse.llm.report(model).left
    for kind in ("prefill", "decode"):
        assert any(line.startswith(f"{kind}: ") and "fft" in line and "in eager" in line for line in left), left


def test_layers_with_another_constant_are_different() -> None:
    model = _model()
    _, layers = decoder_layers(model)  # type: ignore[misc]
    assert signature(layers[0]) == signature(layers[1])
    layers[1].input_layernorm.variance_epsilon *= 2
    assert signature(layers[0]) != signature(layers[1])


def test_a_prompt_longer_than_the_cache_is_refused_before_it_is_written() -> None:
    from zefuse.llm.cache import KeyValueCache

    cache = KeyValueCache(num_layers=2, capacity=4)
    keys = torch.ones(1, 2, 5, 8)
    with pytest.raises(InvalidArgumentError, match="holds 4 tokens and has 0; 5 more do not fit"):
        cache.update(keys, keys, 0)
    assert cache.length == 0


def test_a_cache_that_memory_does_not_hold_is_refused(pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_memory, "_free_memory", lambda: 20_000)
    # Two layers, keys and values, two heads of 16, f32.
    with pytest.raises(OutOfMemoryError, match=r"64 tokens of each of 2 sequences takes 0 MB.*or fewer sequences"):
        pair[1].generate(_prompt(7, batch=2), max_new_tokens=40, do_sample=False)
    assert len(pair[1].generate(_prompt(7), max_new_tokens=3, do_sample=False)[0]) == 10


def test_refusals() -> None:
    model = _model()
    with pytest.raises(OptionError, match="expected None"):
        zefuse.llm.optimize(model, weights="int5")
    with pytest.raises(OptionError, match="expected a multiple of 8"):
        zefuse.llm.optimize(model, weights="int4", group_size=4)
    with pytest.raises(OptionError, match="expected None or 'int8'"):
        zefuse.llm.optimize(model, weights="int4", activations="int4")
    with pytest.raises(OptionError, match="takes quantized weights"):
        zefuse.llm.optimize(model, activations="int8")
    with pytest.raises(OptionError, match="or float16"):
        zefuse.llm.optimize(model, dtype=torch.int8)
    with pytest.raises(InvalidArgumentError, match="is no transformers model"):
        zefuse.llm.optimize(torch.nn.Linear(2, 2))
    with pytest.raises(InvalidArgumentError, match="was not optimized"):
        zefuse.llm.report(model)
    zefuse.llm.optimize(model)
    with pytest.raises(InvalidArgumentError, match="optimized already"):
        zefuse.llm.optimize(model)


def test_without_transformers_one_sentence_says_so() -> None:
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "import zefuse.llm\n"
        "try: zefuse.llm.optimize(None)\n"
        "except zefuse.errors.InstallationError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert result.stdout == "zefuse.llm needs transformers: pip install transformers\n"
