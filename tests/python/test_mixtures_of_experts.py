"""Mixtures of experts under ``zefuse.llm``: each expert multiplies its own rows, of prompts as well, inside the plan."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from language_model import dequantized

import zefuse.llm
from zefuse import backend
from zefuse.errors import InvalidArgumentError
from zefuse.llm import generating

_SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
    "intermediate_size": 96, "eos_token_id": None, "bos_token_id": 1, "pad_token_id": 0, "num_experts_per_tok": 2,
}  # fmt: skip
_MIXTURES: dict[str, dict[str, Any]] = {
    "Mixtral": {"num_local_experts": 4},
    "Qwen2Moe": {"num_experts": 6, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64},
    "Qwen3Moe": {"num_experts": 6, "moe_intermediate_size": 32, "head_dim": 16},
    "GptOss": {
        "num_local_experts": 4,
        "head_dim": 16,
        "sliding_window": 8,
    },  # biases, transposed, gate and up interleaved
}


def _model(name: str = "Mixtral", **changes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**_SIZES, **_MIXTURES[name], **changes})
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None and parameter.ndim > 1:  # so that the router chooses by more than chance
                torch.nn.init.normal_(parameter, std=0.2)
    return model


def _prompt(length: int, seed: int = 1, batch: int = 1) -> torch.Tensor:
    return torch.randint(2, 128, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", _MIXTURES)
def test_greedy_tokens_are_those_of_eager(name: str) -> None:
    model = _model(name)
    before = model.get_experts_implementation()
    optimized = zefuse.llm.optimize(model, inplace=False)
    # Experts with many rows, with a row, and with none; a batch's single tokens are several rows too.
    prompts = [_prompt(90), _prompt(2)] + [_prompt(7, batch=3)] * (name == "Mixtral")
    for prompt in prompts:
        expected = model.generate(prompt, max_new_tokens=8, do_sample=False)
        assert torch.equal(optimized.generate(prompt, max_new_tokens=8, do_sample=False), expected)
    report = zefuse.llm.report(optimized)
    assert all(graph.fallbacks == 0 for graph in report.graphs) and report.left == []
    assert len(report.graphs) == (4 if name == "Mixtral" else 2)
    assert optimized.get_experts_implementation() == before


@pytest.mark.parametrize(
    ("name", "weights", "activations"),
    [("Mixtral", "int8", None), ("GptOss", "int4", None), ("Qwen3Moe", "int4", "int8")],
)
def test_quantized_experts_compute_what_their_dequantized_ones_do(
    name: str, weights: str, activations: str | None
) -> None:
    # With rounded activations a token may go to other experts: so to all of them.
    every = {} if activations is None else {"num_experts_per_tok": _MIXTURES[name]["num_experts"]}
    quantized = zefuse.llm.optimize(_model(name, **every), weights=weights, activations=activations)
    plain = dequantized(zefuse.llm.optimize(_model(name, **every), weights=weights))
    report = zefuse.llm.report(quantized)
    arguments = {"max_new_tokens": 3, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    made, expected = (each.generate(_prompt(40), **arguments) for each in (quantized, plain))
    for logits, exact in zip(made.logits, expected.logits, strict=True):
        if activations is None:
            torch.testing.assert_close(logits, exact, rtol=1e-4, atol=1e-4)
        assert (logits - exact).norm() / exact.norm() < 0.05
    assert all(graph.fallbacks == 0 for graph in report.graphs) and report.left == []
    assert quantized.model.layers[0].mlp.experts.down_proj.bits == int(weights[3:])
    assert not any(parameter.ndim == 3 for parameter in quantized.parameters())


@pytest.mark.parametrize("weights", [None, "int8"])
def test_a_token_reads_its_experts(weights: str | None) -> None:
    model = zefuse.llm.optimize(_model("Mixtral", tie_word_embeddings=False), weights=weights)
    tensors = [*model.named_parameters(), *model.named_buffers()]
    sizes = {name: each.numel() * each.element_size() for name, each in tensors if "embed_tokens" not in name}
    of_experts = sum(size for name, size in sizes.items() if ".experts." in name)
    assert of_experts > sum(sizes.values()) // 2
    assert generating.bytes_of_weights(model) == sum(sizes.values()) - of_experts // 2  # two of four


@pytest.mark.parametrize("weights", [None, "int4"])
def test_a_prompt_has_one_experts_matrix_at_a_time(weights: str | None) -> None:
    hidden, wide = 128, 512
    model = _model("Mixtral", hidden_size=hidden, intermediate_size=wide, num_local_experts=16)
    model = zefuse.llm.optimize(model, weights=weights)
    made: list[Any] = []
    with backend.observe(lambda _, graph: made.append(graph)):
        model.generate(_prompt(30), max_new_tokens=1, do_sample=False)
    (graph,) = made
    rows = 30 * 2 * (hidden + 3 * wide) * 4  # each token goes to two experts
    matrix = 0 if weights is None else hidden * 2 * wide * 4
    assert graph.counters()["arena_bytes"] < 1.2 * (matrix + rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_groups_of_rows_under_torch_compile(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    matrices = torch.randn(5, 24, 16, generator=draw).to(dtype)

    def product(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        if dtype == torch.float32:  # which torch's own refuses while it traces
            return torch.ops.transformers.grouped_mm_fallback(x * 2, matrices, offsets)
        return torch._grouped_mm(x * 2, matrices, offsets)

    compiled = torch.compile(product, backend="zefuse", dynamic=True, options={"strict": True})
    for ends in ([0, 3, 3, 60, 61], [1, 2, 3, 4, 5], [0, 0, 0, 0, 40], [200, 201, 300, 300, 301]):
        x, offsets = torch.randn(ends[-1], 24, generator=draw).to(dtype), torch.tensor(ends, dtype=torch.int32)
        torch.testing.assert_close(compiled(x, offsets), product(x, offsets))
    for ends in ([0, 3, 2, 4, 4], [0, 1, 2, 3, 5], [-1, 0, 1, 2, 4]):
        with pytest.raises(InvalidArgumentError, match="of rows ends at"):
            compiled(torch.randn(4, 24).to(dtype), torch.tensor(ends, dtype=torch.int32))
