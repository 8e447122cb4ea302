"""Which tokens may be drawn: top-k and top-p of ``generate()`` on a CPU, without sorting the vocabulary.

``transformers`` sorts all logits for top-p, of a vocabulary of 49152 3.4 ms a token where SmolLM2's graph takes three. Only the likeliest
ones decide: those are taken from it, and what is kept is what its own processors keep. Its drawing (softmax, ``torch.multinomial``) stays,
and with it the generator's stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

from zefuse.llm.layers import StandIn
from zefuse.llm.sampling import LOOKED_AT_FIRST


class Likeliest(LogitsProcessor):
    """Does what top-k, if there is one, and top-p do, one after the other."""

    def __init__(self, top_k: Any, top_p: Any) -> None:
        self.top_k, self.top_p = top_k, top_p

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor) -> torch.Tensor:
        least = self._least(scores) if scores.device.type == "cpu" else None
        if least is not None:
            return scores.masked_fill(scores < least, -float("inf"))
        return self.top_p(input_ids, scores if self.top_k is None else self.top_k(input_ids, scores))

    def _least(self, scores: torch.Tensor) -> torch.Tensor | None:
        """The lowest score that is kept, for each row. None where it takes more to say: equal scores on both sides, no numbers, or
        more tokens than were taken."""
        vocabulary = scores.shape[-1]
        count = min(LOOKED_AT_FIRST if self.top_k is None else self.top_k.top_k, vocabulary)
        taken = torch.topk(scores, min(count + 1, vocabulary)).values
        kept, beyond = taken[..., :count], taken[..., count:]
        if taken[..., 0].isnan().any() or (beyond == kept[..., -1:]).any():
            return None
        ascending, removable = kept.flip(-1), 1 - self.top_p.top_p
        if self.top_k is None:
            shares = (ascending - scores.logsumexp(-1, keepdim=True)).exp()
            before = (1 - shares.sum(-1, keepdim=True)).clamp(min=0)  # of those that were not taken
            if count < vocabulary and (before >= removable).any():
                return None
            sums = shares.cumsum(-1) + before
        else:
            sums = ascending.softmax(-1).cumsum(-1)
        removed = sums <= removable
        removed[..., -self.top_p.min_tokens_to_keep :] = False
        first = removed.sum(-1, keepdim=True)
        least = ascending.gather(-1, first)
        last_removed = ascending.gather(-1, (first - 1).clamp(min=0))
        return None if ((first > 0) & (last_removed == least)).any() else least


def joined(processors: LogitsProcessorList) -> LogitsProcessorList:
    """With one processor for top-p and a top-k before it. (Top-k alone takes the likeliest already.)"""

    def plain(each: Any, kind: Any) -> bool:
        return type(each) is kind and each.filter_value == -float("inf")

    made = LogitsProcessorList()
    for each in processors:
        if plain(each, TopPLogitsWarper):
            each = Likeliest(made.pop() if made and plain(made[-1], TopKLogitsWarper) else None, each)
        made.append(each)
    return made


class Processors(StandIn):
    """Stands in a model's ``_get_logits_processor``."""

    def __init__(self, model: Any) -> None:
        self.own: Callable[..., LogitsProcessorList] = model._get_logits_processor

    def __call__(self, *arguments: Any, **more: Any) -> LogitsProcessorList:
        return joined(self.own(*arguments, **more))
