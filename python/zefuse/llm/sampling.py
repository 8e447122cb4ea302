"""The next token, of logits: as ``generate()`` of ``transformers`` draws it, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

import numpy as np

from zefuse.errors import InvalidArgumentError
from zefuse.llm.processing import Processing


class SamplingOptions(TypedDict, total=False):
    """How tokens are chosen: the keywords of ``LanguageModel.tokens`` and of what is like it. See ``Sampling`` and ``Processing``."""

    temperature: float  # 0, the default: the likeliest token each time
    top_k: int  # default: 50; 0 is all tokens
    top_p: float
    seed: int | None
    repetition_penalty: float
    no_repeat_ngram_size: int
    min_new_tokens: int
    sequence_bias: Mapping[tuple[int, ...], float]
    bad_words_ids: Sequence[Sequence[int]]
    suppress_tokens: Sequence[int]


# Of the likeliest tokens: top-p looks at them before it sorts a vocabulary.
LOOKED_AT_FIRST = 1024


@dataclass(frozen=True)
class Sampling:
    """``temperature`` 0: the likeliest token each time. ``top_k`` 0: all of them; ``top_p``: the likeliest ones that have this much
    of the probability."""

    temperature: float = 0.0
    top_k: int = 50
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not (self.temperature >= 0 and np.isfinite(self.temperature)):
            raise InvalidArgumentError(f"temperature={self.temperature}: expected a number from 0 on; 0 draws nothing")
        if self.top_k < 0:
            raise InvalidArgumentError(f"top_k={self.top_k}: expected a number from 0 on; 0 is all tokens")
        if not 0 < self.top_p <= 1:
            raise InvalidArgumentError(f"top_p={self.top_p}: expected a number above 0, 1 at most")

    def next(self, logits: np.ndarray[Any, Any], draws: np.random.Generator) -> int:
        if not self.temperature:
            return int(logits.argmax())
        kept, probabilities = self.probabilities(logits)
        return int(kept[draws.choice(len(kept), p=probabilities)])

    def probabilities(self, logits: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Tokens that may be drawn, the likeliest one first, and their probabilities."""
        count = min(self.top_k or len(logits), len(logits))
        kept, probabilities = self._likeliest(logits, count)
        if self.top_p < 1:  # the first one that goes beyond the share stays, as there
            within = np.cumsum(probabilities) - probabilities < self.top_p
            probabilities = np.where(within, probabilities, 0)
            probabilities /= probabilities.sum()
        return kept, probabilities

    def _likeliest(self, logits: np.ndarray[Any, Any], count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """So many tokens, in order; fewer where the first of them have ``top_p``: to sort a vocabulary takes milliseconds."""
        if count == len(logits) > LOOKED_AT_FIRST and self.top_p < 1:
            kept = _first(logits, LOOKED_AT_FIRST)
            weights = np.exp((logits.astype(np.float64) - logits[kept[0]]) / self.temperature)
            probabilities = weights[kept] / weights.sum()
            if probabilities.sum() >= self.top_p:
                return kept, probabilities
        kept = _first(logits, count)
        scores = logits[kept].astype(np.float64) / self.temperature
        probabilities = np.exp(scores - scores[0])
        return kept, probabilities / probabilities.sum()


def _first(logits: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """The likeliest tokens, in order."""
    kept = np.argpartition(logits, -count)[-count:]
    return kept[np.argsort(-logits[kept], kind="stable")]


@dataclass(frozen=True)
class Choice:
    """The options, checked."""

    sampling: Sampling
    processing: Processing
    seed: int | None

    @classmethod
    def of(cls, options: SamplingOptions, vocabulary: int) -> Choice:
        """Raises InvalidArgumentError for a value that cannot be, TypeError for a name that is none."""
        unknown = [name for name in options if name not in SamplingOptions.__annotations__]
        if unknown:
            raise TypeError(f"no option {unknown[0]!r}; known: {', '.join(SamplingOptions.__annotations__)}")

        def made(kind: Any) -> Any:
            names = {each.name for each in fields(kind)}
            return kind(**{name: value for name, value in options.items() if name in names})

        processing: Processing = made(Processing)
        processing.check(vocabulary)
        return cls(made(Sampling), processing, options.get("seed"))

    def draws(self, count: int) -> list[np.random.Generator]:
        """A generator for each of so many answers, so that none depends on the others."""
        return [np.random.default_rng(each) for each in np.random.SeedSequence(self.seed).spawn(count)]
