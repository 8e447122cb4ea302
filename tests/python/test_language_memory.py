"""What a language model takes of memory beside its weights: one dequantized matrix for a prompt, and nothing of a trace."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers

import zefuse.llm
from zefuse import backend
from zefuse.llm import gguf_blocks, graphs, packing

_HIDDEN, _WIDE = 512, 1536


def _model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=_HIDDEN, intermediate_size=_WIDE, num_hidden_layers=2, num_attention_heads=4, vocab_size=64,
        bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_prompt_has_one_dequantized_matrix_at_a_time(dtype: torch.dtype) -> None:
    model = zefuse.llm.optimize(_model(), dtype=dtype, weights="int4", activations="int8")
    made: list[Any] = []
    with backend.observe(lambda _, graph: made.append(graph)):
        model.generate(torch.arange(8).unsqueeze(0) + 2, max_new_tokens=1, do_sample=False)
    assert not [
        kernel["name"] for graph in made for kernel in graph.report()["kernels"] if kernel["name"] == "layout_copy"
    ]
    largest = _HIDDEN * _WIDE * dtype.itemsize
    (graph,) = made
    assert largest <= graph.counters()["arena_bytes"] < 1.2 * largest


def test_nothing_of_a_trace_is_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    traced: list[Any] = []
    trace = graphs.trace

    def noting(*args: Any, **more: Any) -> Any:
        made = trace(*args, **more)
        traced.extend((weakref.ref(made.graph), weakref.ref(made.guards)))
        return made

    monkeypatch.setenv("ZEFUSE_CACHE_DIR", str(tmp_path))  # an earlier run's trace would be found
    monkeypatch.setattr(graphs, "trace", noting)
    model = zefuse.llm.optimize(_model())
    model.generate(torch.arange(8).unsqueeze(0) + 2, max_new_tokens=2, do_sample=False)
    assert len(traced) == 4
    assert [each() for each in traced] == [None] * 4


def test_nothing_stands_by_while_a_graph_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python code of the trace, whose compiler takes more memory than it does, and no dequantized matrix of the prompt's graph."""
    codes: list[Any] = []
    monkeypatch.setattr(torch.fx.Graph, "python_code", lambda *_, **__: codes.append(1))
    made: list[Any] = []
    left: list[list[int]] = []

    def noting(_: str, graph: Any) -> None:
        left.append([before.free_idle_memory() for before in made])
        made.append(graph)

    model = zefuse.llm.optimize(_model(), weights="int4")
    with backend.observe(noting):
        model.generate(torch.arange(8).unsqueeze(0) + 2, max_new_tokens=2, do_sample=False)
        model.generate(torch.arange(8).unsqueeze(0) + 2, max_new_tokens=1, do_sample=False)
    assert left == [[], [0]]
    assert made[0].free_idle_memory() > _HIDDEN * _WIDE * 4  # as the second prompt left it
    assert not codes


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q6_K"])
def test_a_matrix_is_packed_some_rows_at_a_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    data = draw.integers(0, 60, (75, 512 // block * size), dtype=np.uint8)
    whole = gguf_blocks.pack(kind, data)
    monkeypatch.setattr(gguf_blocks, "_PART", 32 * data.shape[1])
    parts: list[int] = []
    pack = gguf_blocks._pack
    monkeypatch.setattr(gguf_blocks, "_pack", lambda kind, rows: parts.append(len(rows)) or pack(kind, rows))
    order = draw.permutation(75)
    assert torch.equal(packing.unpack(gguf_blocks.pack(kind, data)), packing.unpack(whole))
    assert torch.equal(packing.unpack(gguf_blocks.pack(kind, data, order)), packing.unpack(whole)[order])
    assert parts == [32, 32, 11] * 2
