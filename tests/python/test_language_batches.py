"""Packages of language models with several sequences at a time: batches and beams, against ``generate()`` of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from language_model import write_model

import zefuse.llm
from zefuse.cli import main
from zefuse.errors import InvalidArgumentError, OutOfMemoryError
from zefuse.llm import cache_memory, packaging

_SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 128, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "initializer_range": 0.2,
    "max_position_embeddings": 256,
}  # fmt: skip
_PROMPTS = [[5, 9, 3], [17, 5, 99, 3, 42, 11, 60], [7]]


def _model() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_SIZES)).eval()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model, and its package, whose answers end at some of its tokens."""
    model, file = _model(), tmp_path_factory.mktemp("package") / "model.zefuse"
    model.generation_config.eos_token_id = list(range(3, 128, 9))
    zefuse.llm.compile_package(model, file)
    return model, file


@pytest.fixture
def loaded(pair: tuple[Any, Path]) -> zefuse.llm.package.LanguageModel:
    return zefuse.llm.load_package(pair[1])


def _generated(model: Any, prompts: list[list[int]], count: int, **options: Any) -> list[list[int]]:
    """Of ``generate()``, without what fills answers up."""
    longest = max(map(len, prompts))
    ids, mask = (torch.zeros(len(prompts), longest, dtype=torch.int64) for _ in range(2))
    for row, each in enumerate(prompts):
        ids[row, longest - len(each) :], mask[row, longest - len(each) :] = torch.tensor(each), 1
    made = model.generate(ids, attention_mask=mask, max_new_tokens=count, do_sample=False, **options)
    ends = model.generation_config.eos_token_id or []
    answers = []
    for row in made[:, longest:].tolist():
        last = next((at for at, token in enumerate(row) if token in ends), len(row))
        answers.append(row[: last + 1])
    return answers


def test_greedy_answers_end_each_in_its_time(pair: tuple[Any, Path], loaded: Any) -> None:
    model, _ = pair
    expected = _generated(model, _PROMPTS, 20)
    assert len({len(each) for each in expected}) == 3  # they leave the batch one after the other
    assert loaded.generate(_PROMPTS, 20) == expected
    steps = list(loaded.batch_tokens(_PROMPTS, 20))
    assert len(steps) == max(map(len, expected))
    assert [[step[row] for step in steps if step[row] is not None] for row in range(3)] == expected
    assert all(len(step) == 3 for step in steps) and steps[-1].count(None) == 2


def test_a_batch_beyond_several_steps_of_the_cache(pair: tuple[Any, Path], loaded: Any) -> None:
    model, _ = pair
    model.generation_config.eos_token_id, before = None, model.generation_config.eos_token_id
    object.__setattr__(loaded.settings, "end", frozenset())
    prompts = [_PROMPTS[0] * 30, _PROMPTS[1]]
    try:
        assert loaded.generate(prompts, 70) == _generated(model, prompts, 70)
    finally:
        model.generation_config.eos_token_id = before


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("length_penalty", [-1.0, 1.0, 2.0])
def test_beams_are_those_of_transformers(
    pair: tuple[Any, Path], loaded: Any, length_penalty: float, early_stopping: bool | str
) -> None:
    model, _ = pair
    for beams, count in ((2, 1), (4, 12)):
        options = {"num_beams": beams, "length_penalty": length_penalty, "early_stopping": early_stopping}
        for returned in (1, beams):
            expected = _generated(model, _PROMPTS, count, num_return_sequences=returned, **options)
            assert loaded.generate(_PROMPTS, count, num_return_sequences=returned, **options) == expected
    alone = loaded.generate(_PROMPTS[1:2], 14, **options)
    assert alone == loaded.generate(_PROMPTS, 14, **options)[1:2]


_PROCESSED: dict[str, dict[str, Any]] = {
    "penalty": {"repetition_penalty": 1.4},
    "reward": {"repetition_penalty": 0.8},
    "bigrams": {"no_repeat_ngram_size": 2},
    "unigrams": {"no_repeat_ngram_size": 1},
    "longer": {"min_new_tokens": 11},
    "bias": {"sequence_bias": {(5,): 2.5, (9, 3): -4.0, (3, 42, 11): 6.0}},
    "words": {"bad_words_ids": [[24], [4, 4], [12]]},  # 12 ends an answer
    "suppressed": {"suppress_tokens": [12, 21, 30]},
    "all": {
        "repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "min_new_tokens": 6, "sequence_bias": {(7,): 3.0},
        "bad_words_ids": [[40, 5]], "suppress_tokens": [30],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", _PROCESSED)
def test_processed_logits_give_the_tokens_of_transformers(name: str, pair: tuple[Any, Path], loaded: Any) -> None:
    """Each prompt alone: in a batch ``transformers`` counts what pads a prompt among its tokens."""
    model, _ = pair
    options = _PROCESSED[name]
    expected = [answer for each in _PROMPTS for answer in _generated(model, [each], 16, **options)]
    assert loaded.generate(_PROMPTS, 16, **options) == expected
    assert expected != _generated(model, _PROMPTS, 16)
    assert list(loaded.tokens(_PROMPTS[1], 16, **options)) == expected[1]
    for each in _PROMPTS:
        searched = _generated(model, [each], 12, num_beams=3, **options)
        assert loaded.generate([each], 12, num_beams=3, **options) == searched


def test_drawn_tokens_are_of_processed_logits(loaded: Any) -> None:
    options = {"temperature": 9.0, "top_k": 0, "seed": 3}
    few = list(range(100))
    drawn = {token for answer in loaded.generate(_PROMPTS * 4, 16, suppress_tokens=few, **options) for token in answer}
    assert len(drawn) > 10 and min(drawn) >= 100


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0: expected a number above 0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size=-1"),
        ({"min_new_tokens": -2}, "min_new_tokens=-2"),
        ({"sequence_bias": [[3], 1.0]}, "dictionary of tuples"),
        ({"bad_words_ids": [[]]}, "one token or more"),
        ({"suppress_tokens": [128]}, "token 128 .*: the model has 128, from 0 on"),
    ],
)
def test_processing_that_cannot_be(wrong: dict[str, Any], said: str, loaded: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        loaded.tokens([3], 2, **wrong)  # before a token is asked for
    with pytest.raises(TypeError, match="no option 'repetition'"):
        loaded.generate([[3]], 2, repetition=1.2)


def test_drawn_answers_do_not_depend_on_the_other_prompts(loaded: Any) -> None:
    options = {"temperature": 3.0, "top_k": 0, "seed": 5}
    made = loaded.generate(_PROMPTS, 8, **options)
    assert made[0] == loaded.generate(_PROMPTS[:1], 8, **options)[0] == list(loaded.tokens(_PROMPTS[0], 8, **options))
    assert made == loaded.generate(_PROMPTS, 8, **options)
    several = loaded.generate(_PROMPTS[:1], 8, num_return_sequences=4, **options)
    assert len(several) == 4 and len({tuple(each) for each in several}) > 1


@pytest.mark.parametrize("kind", ["bf16", "int8 weights", "int8 cache"])
def test_other_numbers(kind: str, tmp_path: Path) -> None:
    """Each row's logits are those that the same package computes of it alone."""
    model, options = _model(), {}
    if kind == "bf16":
        model = model.to(torch.bfloat16)
    elif kind == "int8 weights":
        model = zefuse.llm.optimize(model, weights="int8")
    else:
        options["cache"] = "int8"
    zefuse.llm.compile_package(model, tmp_path / "model.zefuse", **options)
    loaded = zefuse.llm.load_package(tmp_path / "model.zefuse")
    cache = loaded.cache(12, 3)
    cache.padding[:] = [4, 0, 6]
    ids = np.zeros((3, 7), np.int64)
    for row, each in zip(ids, _PROMPTS, strict=True):
        row[7 - len(each) :] = each
    first, second = loaded.batch_logits(ids, cache), loaded.batch_logits(np.array([[8], [9], [10]]), cache)
    for row, each in enumerate(_PROMPTS):
        alone = loaded.cache(12)
        bound = 0.05 if kind == "bf16" else 1e-4
        np.testing.assert_allclose(first[row], loaded.logits(each, alone), rtol=0, atol=bound)
        np.testing.assert_allclose(second[row], loaded.logits([8 + row], alone), rtol=0, atol=bound)
    assert cache.bytes == sum(-(-part.nbytes // 64) * 64 for part in cache._parts)


def test_a_cache_gives_sequences_away_and_takes_them_twice(loaded: Any) -> None:
    cache = loaded.cache(20, 3)
    cache.select([0, 1])
    cache.padding[1] = 2
    loaded.batch_logits(np.array([[5, 9, 3], [0, 0, 7]]), cache)
    cache.select([1, 0, 1])
    assert cache.batch == 3 and cache.padding.tolist() == [2, 0, 2] and cache.length == 3
    made = loaded.batch_logits(np.array([[8], [9], [8]]), cache)
    alone = loaded.cache(20)
    loaded.logits([7], alone)
    np.testing.assert_allclose(made[0], loaded.logits([8], alone), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(made[0], made[2])
    # A single sequence with padding takes the plan for one.
    cache.select([2])
    np.testing.assert_allclose(loaded.logits([4], cache), loaded.logits([4], alone), rtol=0, atol=1e-5)
    for wrong in ([], [1], [-1], [0] * 4):
        with pytest.raises(InvalidArgumentError, match="has 1 and memory for 3"):
            cache.select(wrong)


def test_texts_of_several_answers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_model(tmp_path)
    file = tmp_path / "model.zefuse"
    assert main(["compile", "--llm", str(folder), "-o", str(file), "--quiet"]) == 0
    loaded = zefuse.llm.load_package(file)
    prompts = ["why is the sky", "blue"]
    texts = ["", ""]
    for number, piece in loaded.batch_stream(prompts, 6):
        texts[number] += piece
    assert texts == ["".join(loaded.stream(each, 6)) for each in prompts]
    words = ["generate", str(file), "--prompt", prompts[0], "--prompt", prompts[1], "--max-new-tokens", "6"]
    assert main([*words, "--threads", "1"]) == 0
    out = capfd.readouterr().out
    assert out.startswith(f"[1] {texts[0]}\n[2] {texts[1]}\n\n12 tokens in 2 answers; ") and "loading included" in out
    # The model from its folder says the same.
    words[1] = str(folder)
    assert main([*words, "-q"]) == 0
    assert capfd.readouterr().out == f"[1] {texts[0]}\n[2] {texts[1]}\n"
    beams = ["--num-beams", "3", "--length-penalty", "0.5", "--early-stopping", "never", "-q"]
    said = []
    for place in (folder, file):
        words[1] = str(place)
        assert main([*words, *beams]) == 0
        said.append(capfd.readouterr().out)
    assert said[0] == said[1]


# --- Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_beams": 0}, "num_beams=0: expected a number from 1 on"),
        ({"num_return_sequences": 0}, "num_return_sequences=0"),
        ({"num_return_sequences": 2}, "they would be equal"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences=3 of num_beams=2"),
        ({"num_beams": 2, "temperature": 1.0}, "beams are not drawn here"),
        ({"num_beams": 2, "length_penalty": float("nan")}, "length_penalty=nan"),
        ({"num_beams": 2, "early_stopping": "always"}, "early_stopping='always': expected True, False or 'never'"),
        ({"num_beams": 2, "early_stopping": 1}, "early_stopping=1"),
        ({"length_penalty": 2.0}, "are a beam search's"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"max_new_tokens": 250}, "7 tokens and 250 new ones are more than the 256"),
        ({"prompts": "one text"}, "expected a list of one prompt or more"),
        ({"prompts": []}, "expected a list of one prompt or more"),
        ({"prompts": [[3], []]}, "a prompt has at least one"),
        ({"prompts": [[3], [128]]}, "tokens from 128 to 128: the model has 128"),
    ],
)
def test_settings_that_cannot_be(
    loaded: Any, options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(*_: Any) -> None:
        raise AssertionError("work was done")

    monkeypatch.setattr(loaded._model, "call", call)
    with pytest.raises(InvalidArgumentError, match=said):
        loaded.generate(**{"prompts": _PROMPTS, "max_new_tokens": 4, **options})


def test_what_does_not_fit_is_refused(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="a batch of 0 sequences"):
        loaded.cache(4, 0)
    cache = loaded.cache(4, 2)
    for ids, said in (
        ([[3]], r"tokens of shape \[1, 1\] for a cache of 2 sequences"),
        ([[3] * 5] * 2, "5 more do not fit"),
        ([[], []], "at least one"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            loaded.batch_logits(np.array(ids, np.int64), cache)
    monkeypatch.setattr(cache_memory, "_free_memory", lambda: 1000)
    with pytest.raises(
        OutOfMemoryError, match=r"for 11 tokens of each of 12 sequences takes 0 MB, .* or fewer sequences"
    ):
        loaded.generate(_PROMPTS, 4, num_beams=4)


def test_a_package_for_one_sequence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, file = write_model(tmp_path), tmp_path / "model.zefuse"
    assert main(["compile", "--llm", str(folder), "-o", str(file), "--quiet", "--no-batches"]) == 0
    assert main(["verify", str(file)]) == 0
    assert "its plans for prompts and for single tokens agree" in capfd.readouterr().out
    assert main(["generate", str(file), "--prompt", "why", "--max-new-tokens", "2", "--num-beams", "2"]) == 1
    assert "was compiled for one sequence at a time, and 2 are asked for" in capfd.readouterr().err
    assert main(["generate", str(file), "--prompt", "why", "--max-new-tokens", "2", "-q"]) == 0
    assert main(["generate", str(file), "--prompt", "why", "--num-beams", "2", "--sample"]) == 1
    assert "beams are not drawn here" in capfd.readouterr().err
    assert main(["compile", "model.pt2", "-o", str(file), "--no-batches"]) == 1
    assert "--no-batches are for a language model" in capfd.readouterr().err


def test_a_model_whose_batch_is_no_symbol(tmp_path: Path) -> None:
    model = _model()
    before = model.forward

    def forward(input_ids: Any, **options: Any) -> Any:
        if input_ids.shape[0] > 1 and input_ids.shape[0] != packaging._BATCH:
            raise AssertionError
        return before(input_ids=input_ids, **options)

    model.forward = forward
    with pytest.raises(zefuse.errors.UnsupportedError, match=r"2 sequences of .*batches=False makes a package for one"):
        zefuse.llm.compile_package(model, tmp_path / "model.zefuse")
    assert not (tmp_path / "model.zefuse").exists()
