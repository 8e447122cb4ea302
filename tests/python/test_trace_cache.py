"""Decoders' graphs in zefuse's cache: whoever optimizes an equal model later takes them and traces nothing; whatever a trace depends
on is in the key; an entry that is damaged or foreign is told and costs the reuse only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.models.llama import modeling_llama

import zefuse.llm
from zefuse import _native, cache
from zefuse.llm import graphs
from zefuse.llm.reports import FROM_CACHE, Graph
from zefuse.llm.trace_cache import KIND


def _model(**changes: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 128, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, **changes,
    })  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def _prompt(length: int) -> torch.Tensor:
    return torch.randint(2, 128, (1, length), generator=torch.Generator().manual_seed(1))


def _answer(model: Any, length: int = 5) -> torch.Tensor:
    made: torch.Tensor = model.generate(_prompt(length), max_new_tokens=6, do_sample=False)
    return made


def _graphs(model: Any) -> list[Graph]:
    return zefuse.llm.report(model).graphs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache that has the graphs of ``_model()``, to which tests add others."""
    place = tmp_path_factory.mktemp("traces") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEFUSE_CACHE_DIR", str(place))
        model = zefuse.llm.optimize(_model())
        _answer(model)
        assert [graph.cache for graph in _graphs(model)] == ["not in the cache: the first of its kind"] * 2
        shutil.copytree(place, place.parent / "first")
        yield place


@pytest.fixture
def own_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with the graphs of ``_model()`` alone, to be damaged."""
    shutil.copytree(folder.parent / "first", tmp_path / "cache")
    monkeypatch.setenv("ZEFUSE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    def trace(*_: Any, **__: Any) -> None:
        raise AssertionError("it was traced")

    monkeypatch.setattr(graphs, "trace", trace)


def test_an_equal_model_traces_nothing(folder: Path, no_tracing: None) -> None:
    model = _model()
    expected = [_answer(model), _answer(model, 11), _answer(model, 70)]
    optimized = zefuse.llm.optimize(model)
    for length, tokens in zip((5, 11, 70), expected, strict=True):
        assert torch.equal(_answer(optimized, length), tokens)
    report = zefuse.llm.report(optimized)
    assert [(graph.kind, graph.cache, graph.fallbacks, graph.copies) for graph in report.graphs] == [
        ("prefill", FROM_CACHE, 0, 0),
        ("decode", FROM_CACHE, 0, 0),
    ]
    assert report.left == []
    assert "from the cache, loaded in" in str(report)
    assert report.graphs[1].different_layers == 1


def test_weights_may_be_others(folder: Path, no_tracing: None) -> None:
    model = _model()
    with torch.no_grad():
        model.lm_head.weight.neg_()
    expected = _answer(model)
    assert torch.equal(_answer(zefuse.llm.optimize(model)), expected)


def _other_configuration(_: pytest.MonkeyPatch) -> Any:
    return _model(rms_norm_eps=0.1)


def _other_module_state(_: pytest.MonkeyPatch) -> Any:
    model = _model()
    model.model.layers[1].input_layernorm.variance_epsilon = 0.5
    return model


def _hook(_: pytest.MonkeyPatch) -> Any:
    model = _model()
    model.model.norm.register_forward_hook(lambda module, arguments, result: result * 2)
    return model


def _other_sizes(_: pytest.MonkeyPatch) -> Any:
    return _model(vocab_size=160)


def _method(patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(modeling_llama.LlamaMLP, "forward", lambda self, x: self.down_proj(self.up_proj(x)))
    return _model()


def _function_of_a_module(patch: pytest.MonkeyPatch) -> Any:
    original = modeling_llama.apply_rotary_pos_emb
    patch.setattr(modeling_llama, "apply_rotary_pos_emb", lambda q, k, *others: original(q, k * 2, *others))
    return _model()


def _other_attention(_: pytest.MonkeyPatch) -> Any:
    model = _model()
    model.set_attn_implementation("eager")
    return model


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_other_configuration, "configuration"),
        (_other_module_state, "modules"),
        (_hook, "modules"),
        (_other_sizes, "tensors"),
        (_method, "code"),
        (_function_of_a_module, "code"),
        (_other_attention, "configuration"),
    ],
)
def test_what_a_trace_depends_on_is_in_the_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: Any, field: str
) -> None:
    model = change(monkeypatch)
    expected = _answer(model)
    optimized = zefuse.llm.optimize(model)
    tokens = optimized.generate(_prompt(5), max_new_tokens=1, do_sample=False)
    assert torch.equal(tokens, expected[:, :6])
    (graph,) = _graphs(optimized)
    assert graph.cache.startswith("not in the cache: the nearest earlier entry (LlamaForCausalLM prefill) differs in ")
    assert f" {field} was " in graph.cache, graph.cache


def test_entries_for_other_sizes_lie_beside_each_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model()
    expected = _answer(model, 64)
    optimized = zefuse.llm.optimize(model, inplace=False)  # as many tokens as the cache shows: guarded
    assert torch.equal(_answer(optimized, 64), expected)
    if len(_graphs(optimized)) == 2 and _graphs(optimized)[0].cache == FROM_CACHE:
        pytest.skip("this version's graph holds for all lengths")
    assert _graphs(optimized)[0].cache == "not in the cache: an entry holds for other sizes"
    monkeypatch.setattr(graphs, "trace", None)
    again = zefuse.llm.optimize(model)
    assert torch.equal(_answer(again, 64), expected)
    _answer(again)
    assert [graph.cache for graph in _graphs(again)] == [FROM_CACHE] * 3


def _first_token_of(model: Any) -> tuple[torch.Tensor, Graph]:
    tokens = model.generate(_prompt(5), max_new_tokens=1, do_sample=False)
    return tokens, _graphs(model)[0]


def test_a_damaged_entry_is_told_and_made_again(own_folder: Path) -> None:
    for file in own_folder.glob(f"*.{KIND}"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    expected = _answer(_model())
    tokens, graph = _first_token_of(zefuse.llm.optimize(_model()))
    assert torch.equal(tokens, expected[:, :6])
    assert graph.cache == "not in the cache: an entry was there and was damaged, or others could have written it"
    assert _first_token_of(zefuse.llm.optimize(_model()))[1].cache == FROM_CACHE


def test_an_entry_that_others_can_write_is_not_used(own_folder: Path) -> None:
    for file in own_folder.glob(f"*.{KIND}"):
        file.chmod(0o666)
    assert "others could have written it" in _first_token_of(zefuse.llm.optimize(_model()))[1].cache


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("condition", "__import__('os').system('false') == 0", "ValueError"),
        ("sizes", [[99, "size", 0]], "IndexError"),
        ("result", "[1, {}]", "KeyError"),
        ("layers", [[2, 16, 16, "Tensor", None]], "TypeError"),
        ("layers", [[2, 16, 16, "float32", "int3"]], "ValueError"),
        ("plan", b"no plan", "Error"),
        ("", b"[]", "TypeError"),
    ],
)
def test_a_foreign_entry_is_told_and_executes_nothing(own_folder: Path, name: str, value: Any, error: str) -> None:
    for entry in cache.entries():
        if entry["key"]["kind"] == KIND:
            fields = [(field, text) for field, text in entry["key"].items() if field != "kind"]
            body = _native.load().cache_load(str(own_folder), KIND, fields)
            head, _, plan = body.partition(b"\n")
            if name == "plan":
                plan = value
            else:
                head = json.dumps({**json.loads(head), name: value}).encode() if name else value
            body = head + b"\n" + plan
            assert _native.load().cache_store(str(own_folder), 1 << 30, KIND, fields, entry["note"], body) == ""
    expected = _answer(_model())
    tokens, graph = _first_token_of(zefuse.llm.optimize(_model()))
    assert torch.equal(tokens, expected[:, :6])
    assert graph.cache.startswith("not in the cache: an entry cannot be used (")
    assert error in graph.cache
    assert _first_token_of(zefuse.llm.optimize(_model()))[1].cache == FROM_CACHE


def test_what_words_cannot_name_is_not_kept(folder: Path) -> None:
    model = _model()
    model.model.norm.extra = torch.ones(64)
    _, graph = _first_token_of(zefuse.llm.optimize(model))
    assert graph.cache == "not kept in the cache: model.norm.extra holds a tensor that is no parameter and no buffer"


def test_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEFUSE_CACHE_DIR", "")
    _, graph = _first_token_of(zefuse.llm.optimize(_model()))
    assert graph.cache == "not kept in the cache: there is no folder for it"
