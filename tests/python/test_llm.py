"""``zefuse.llm``: small random decoders through ``generate()``, against the same model in eager."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import transformers

import zefuse.llm
from zefuse.errors import InvalidArgumentError, OptionError, UnsupportedError
from zefuse.llm.layers import decoder_layers, signature

_SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128}
_GATED = {**_SIZES, "intermediate_size": 96, "num_key_value_heads": 2}
_NO_END = {"eos_token_id": None, "bos_token_id": 1, "pad_token_id": 0}

_ARCHITECTURES: dict[str, dict[str, Any]] = {"Llama": _GATED}


def _model(name: str = "Llama", **changes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**_ARCHITECTURES[name], **_NO_END, **changes})
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def _prompt(length: int, seed: int = 1, batch: int = 1) -> torch.Tensor:
    return torch.randint(2, 128, (batch, length), generator=torch.Generator().manual_seed(seed))


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
    assert [graph.calls for graph in report.graphs] == [2, 22]
    assert [graph.different_layers for graph in report.graphs] == [1, 1]
    assert report.left == []
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


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


def test_refusals() -> None:
    model = _model()
    with pytest.raises(UnsupportedError, match="quantized weights are not supported yet"):
        zefuse.llm.optimize(model, weights="int4")
    with pytest.raises(OptionError, match="expected None"):
        zefuse.llm.optimize(model, weights="int5")
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
