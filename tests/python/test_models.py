"""Real models end to end: the demo's own."""

from __future__ import annotations

import pytest
import torch
import workloads

from zefuse.testing import assert_compiled


def test_minilm() -> None:
    """Real weights: no fallback, one graph, error below 1e-4."""
    model = workloads.SentenceEncoder()
    with torch.no_grad():
        tokens = model.tokens(["A short sentence.", "Another sentence, which is a little longer than the first one."])
        explanation = assert_compiled(model, tokens, fallbacks=0, graph_breaks=0, rtol=1e-4)
    assert len(explanation.calls) >= 6 * 6  # query, key, value, output and two of the feed-forward, in six layers


def test_minilm_any_batch_and_length() -> None:
    model = workloads.SentenceEncoder()
    compiled = torch.compile(model, backend="zefuse", dynamic=True)
    with torch.no_grad():
        for sentences in (["one"], ["two words", "three words here"], ["a b c d e f g"] * 5):
            tokens = model.tokens(sentences)
            torch.testing.assert_close(compiled(*tokens), model(*tokens), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("make", [workloads.resnet18, workloads.gpt2_small], ids=["resnet18", "gpt2"])
def test_runs_with_fallbacks(make) -> None:
    """Whatever has no lowering runs through ATen inside the plan; results stay eager's."""
    model, inputs = make()
    with torch.no_grad():
        assert_compiled(model, inputs, fallbacks=None, rtol=1e-3)
