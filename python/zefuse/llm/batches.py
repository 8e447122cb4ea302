"""Several sequences at a time, on a package's plans: the likeliest token of each, or drawn ones.

Prompts of unequal length are padded on the left, as ``generate()`` of ``transformers`` takes them, so that all end in the same place
of the cache. A sequence that has ended leaves the batch, and its part of the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zefuse.llm.package_cache import KeyValueCache
from zefuse.llm.sampling import Choice

if TYPE_CHECKING:
    from zefuse.llm.package import LanguageModel


def padded(ids: Sequence[Sequence[int]], cache: KeyValueCache) -> np.ndarray[Any, Any]:
    """The prompts as one array [batch, n]; an empty cache then knows how many places of each are none of its tokens."""
    longest = max(map(len, ids))
    given = np.zeros((len(ids), longest), np.int64)  # token 0 as padding: every model has it, and no query sees its key
    for row, each in zip(given, ids, strict=True):
        row[longest - len(each) :] = each
    cache.padding[:] = [longest - len(each) for each in ids]
    return given


def tokens(
    model: LanguageModel, ids: Sequence[Sequence[int]], cache: KeyValueCache, count: int, choice: Choice
) -> Iterator[list[int | None]]:
    """``count`` new tokens of each at most, one of each at a time; None for a sequence that has ended."""
    given = padded(ids, cache)
    live = list(range(len(ids)))
    sequences, draws, end = [list(each) for each in ids], choice.draws(len(ids)), model.settings.end
    for step in range(count):
        made: dict[int, int] = {}
        for number, row in zip(live, model.batch_logits(given, cache), strict=True):
            scores = choice.processing.of(row, sequences[number], step, end)
            made[number] = choice.sampling.next(scores, draws[number])
            sequences[number].append(made[number])
        yield [made.get(number) for number in range(len(ids))]
        going = [at for at, number in enumerate(live) if made[number] not in end]
        if not going or step == count - 1:
            return
        cache.select(going)
        live = [live[at] for at in going]
        given = np.array([[made[number]] for number in live], np.int64)
