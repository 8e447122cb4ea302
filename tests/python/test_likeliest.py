"""``zefuse.llm.likeliest``: what top-k and top-p keep, against ``transformers``' own processors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

import zefuse.llm
from zefuse.llm import likeliest

_IDS: Any = torch.zeros((3, 1), dtype=torch.int64)


def _scores(kind: str) -> torch.Tensor:
    draw = torch.Generator().manual_seed(4)
    if kind == "flat":  # more tokens than are taken
        return torch.randn(3, 20000, generator=draw) * 0.01
    if kind == "equal":
        return torch.randint(0, 4, (3, 300), generator=draw).float()
    if kind == "masked":
        return torch.randn(3, 4000, generator=draw).masked_fill(torch.rand(3, 4000, generator=draw) < 0.995, -torch.inf)
    if kind == "nan":
        return torch.tensor([[1.0, float("nan"), 2.0, 0.0]]).repeat(3, 1)
    return torch.randn(3, 4000, generator=draw) * 4


@pytest.mark.parametrize("kind", ["peaked", "flat", "equal", "masked", "nan"])
@pytest.mark.parametrize(("k", "p"), [(None, 0.9), (50, 0.9), (1, 0.5), (5000, 0.3), (None, 0.001), (None, 1.0)])
@pytest.mark.parametrize("least", [1, 2])
def test_the_same_scores_are_kept(kind: str, k: int | None, p: float, least: int) -> None:
    own = LogitsProcessorList([TemperatureLogitsWarper(0.7)])
    if k is not None:
        own.append(TopKLogitsWarper(k, min_tokens_to_keep=least))
    own.append(TopPLogitsWarper(p, min_tokens_to_keep=least))
    joined = likeliest.joined(own)
    assert [type(each) for each in joined] == [TemperatureLogitsWarper, likeliest.Likeliest]
    scores = _scores(kind)
    torch.testing.assert_close(joined(_IDS, scores), own(_IDS, scores), rtol=0, atol=0, equal_nan=True)


def test_the_vocabulary_is_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    (joined,) = likeliest.joined(LogitsProcessorList([TopPLogitsWarper(0.9)]))
    own = TopPLogitsWarper(0.9)(_IDS, _scores("peaked"))
    monkeypatch.setattr(torch, "sort", None)
    assert torch.equal(joined(_IDS, _scores("peaked")), own)


def test_generate_draws_what_eager_draws() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, vocab_size=2000, eos_token_id=None,
        bos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    optimized = zefuse.llm.optimize(model, inplace=False)
    prompt = torch.arange(5).unsqueeze(0) + 2
    for options in ({"top_p": 0.8, "top_k": 0}, {"top_p": 0.9, "temperature": 0.7}, {"top_k": 7, "min_p": 0.01}):
        made = []
        for each in (model, optimized):
            torch.manual_seed(5)
            made.append(each.generate(prompt, max_new_tokens=12, do_sample=True, **options))
        assert torch.equal(*made)
