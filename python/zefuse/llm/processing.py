"""What changes logits before a token is chosen: ``generate()``'s arguments of the same names, in NumPy and in its order.

What counts is a sequence's own tokens, its prompt's among them; what pads a prompt in a batch does not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from zefuse.errors import InvalidArgumentError


@dataclass(frozen=True)
class Processing:
    """``sequence_bias``: added to the logit of a sequence's last token where its others come before; ``bad_words_ids``: sequences that
    must not come; ``suppress_tokens``: tokens that must not. A token that ends an answer is no bad word."""

    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0
    sequence_bias: Mapping[tuple[int, ...], float] = field(default_factory=dict)
    bad_words_ids: Sequence[Sequence[int]] = ()
    suppress_tokens: Sequence[int] = ()

    def __post_init__(self) -> None:
        if not (self.repetition_penalty > 0 and math.isfinite(self.repetition_penalty)):
            raise InvalidArgumentError(f"repetition_penalty={self.repetition_penalty}: expected a number above 0")
        for name in ("no_repeat_ngram_size", "min_new_tokens"):
            if getattr(self, name) < 0:
                raise InvalidArgumentError(f"{name}={getattr(self, name)}: expected a number from 0 on")
        if not isinstance(self.sequence_bias, Mapping) or not all(
            isinstance(each, tuple) and each for each in self.sequence_bias
        ):
            raise InvalidArgumentError(
                "sequence_bias: expected a dictionary of tuples of tokens and what to add to the last one's logit"
            )
        if not all(self.bad_words_ids):
            raise InvalidArgumentError("bad_words_ids: expected a list of lists of one token or more")

    def check(self, vocabulary: int) -> None:
        """Raises InvalidArgumentError for a token that the model does not have."""
        named = [
            *(token for each in self.sequence_bias for token in each),
            *(token for each in self.bad_words_ids for token in each),
            *self.suppress_tokens,
        ]
        wrong = [token for token in named if not 0 <= token < vocabulary]
        if wrong:
            raise InvalidArgumentError(
                f"token {wrong[0]} of sequence_bias, bad_words_ids or suppress_tokens: the model has {vocabulary}, from 0 on"
            )

    @cached_property
    def changes(self) -> bool:
        return self != Processing()

    def of(
        self, logits: np.ndarray[Any, Any], sequence: Sequence[int], new: int, end: Collection[int]
    ) -> np.ndarray[Any, Any]:
        """``logits`` of the token after ``sequence``, of which ``new`` tokens are no prompt's; ``end``: tokens that end an answer."""
        if not self.changes:
            return logits
        scores = logits.copy()
        for tokens, bias in self.sequence_bias.items():
            if _completes(sequence, tokens):
                scores[tokens[-1]] += np.float32(bias)
        if self.repetition_penalty != 1.0:
            seen = np.unique(np.array(sequence, np.int64))
            own = scores[seen]
            penalty = np.float32(self.repetition_penalty)
            scores[seen] = np.where(own < 0, own * penalty, own / penalty)
        scores[self._repeating(sequence)] = -np.inf
        for words in self.bad_words_ids:
            if _completes(sequence, words) and not (len(words) == 1 and words[0] in end):
                scores[words[-1]] = -np.inf
        if new < self.min_new_tokens:
            scores[list(end)] = -np.inf
        scores[list(self.suppress_tokens)] = -np.inf
        return scores

    def _repeating(self, sequence: Sequence[int]) -> list[int]:
        """The tokens that would make some n-gram of the sequence come again."""
        size = self.no_repeat_ngram_size
        if not size or len(sequence) < size:
            return []
        tokens = np.array(sequence, np.int64)
        grams = np.lib.stride_tricks.sliding_window_view(tokens, size)
        last = tokens[len(tokens) + 1 - size :]
        found: list[int] = grams[(grams[:, :-1] == last).all(1), -1].tolist()
        return found


def _completes(sequence: Sequence[int], words: Sequence[int]) -> bool:
    """Whether all of the words but the last one are the sequence's last ones."""
    before = len(words) - 1
    return len(sequence) >= before and list(sequence[len(sequence) - before :]) == list(words[:-1])
