"""Beam search on a package's plans, in NumPy: the same sequences as ``generate()`` of ``transformers`` finds.

Each prompt has ``num_beams`` running beams, sequences of equal length, and keeps as many finished ones. In each step a beam's sum of
log-probabilities is continued by every token. Of the best continuations, those that end leave, and the best of the others run on; of
those that end, the first ``num_beams`` may become finished ones, by their sum over their length to the power of ``length_penalty``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zefuse.errors import InvalidArgumentError
from zefuse.llm import batches
from zefuse.llm.package_cache import KeyValueCache
from zefuse.llm.processing import Processing

if TYPE_CHECKING:
    from zefuse.llm.package import LanguageModel

_NEVER = np.float32(-1e9)  # added to what must not be chosen while anything else is there
_STOPPING = (False, True, "never")


@dataclass(frozen=True)
class Settings:
    """``early_stopping``: True ends a prompt's search with its ``num_beams``-th finished sequence; False when the best running beam,
    as long as it is, is no better than the worst finished one; "never" when it could not become so by the end."""

    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    drawn: bool = False

    def __post_init__(self) -> None:
        for name in ("num_beams", "num_return_sequences"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name}={getattr(self, name)}: expected a number from 1 on")
        if not math.isfinite(self.length_penalty):
            raise InvalidArgumentError(f"length_penalty={self.length_penalty}: expected a finite number")
        if not any(self.early_stopping is each or self.early_stopping == each == "never" for each in _STOPPING):
            raise InvalidArgumentError(f"early_stopping={self.early_stopping!r}: expected True, False or 'never'")
        if self.num_beams == 1:
            if self.num_return_sequences > 1 and not self.drawn:
                raise InvalidArgumentError(
                    f"num_return_sequences={self.num_return_sequences}: they would be equal; draw them (temperature) or search with "
                    "as many beams"
                )
            if self.length_penalty != 1.0 or self.early_stopping is not False:
                raise InvalidArgumentError("length_penalty and early_stopping are a beam search's: num_beams above 1")
        elif self.drawn:
            raise InvalidArgumentError(
                f"num_beams={self.num_beams} with a temperature: beams are not drawn here; generate() of transformers does that"
            )
        elif self.num_return_sequences > self.num_beams:
            raise InvalidArgumentError(
                f"num_return_sequences={self.num_return_sequences} of num_beams={self.num_beams}: expected as many at most"
            )


def search(
    model: LanguageModel,
    ids: Sequence[Sequence[int]],
    cache: KeyValueCache,
    count: int,
    settings: Settings,
    processing: Processing,
) -> list[list[int]]:
    """``count`` new tokens at most. ``cache``: with memory for ``num_beams`` sequences of each prompt. ``processing`` is of a beam's
    log-probabilities."""
    searches = [_Search(settings, count, model.settings.end, each, processing) for each in ids]
    cache.select(range(len(ids)))
    logits = model.batch_logits(batches.padded(ids, cache), cache)
    # The beams of a prompt begin as one.
    running, rows = list(searches), [(number,) * settings.num_beams for number in range(len(ids))]
    while True:
        parents: list[int] = []
        tokens: list[int] = []
        going: list[_Search] = []
        for each, own in zip(running, rows, strict=True):
            from_beams, chosen = each.step(_log_probabilities(logits[list(own)]))
            if not each.done:
                going.append(each)
                parents += [own[beam] for beam in from_beams]
                tokens += chosen
        if not going:
            return [answer for each in searches for answer in each.answers()]
        running = going
        cache.select(parents)
        beams = settings.num_beams
        rows = [tuple(range(at * beams, (at + 1) * beams)) for at in range(len(running))]
        logits = model.batch_logits(np.array(tokens, np.int64)[:, None], cache)


class _Search:
    """One prompt's."""

    def __init__(
        self, settings: Settings, count: int, end: Collection[int], prompt: Sequence[int], processing: Processing
    ) -> None:
        self.settings, self.count, self.end = settings, count, end
        self.prompt, self.processing = list(prompt), processing
        beams = settings.num_beams
        self.length = 0  # new tokens
        self.done = False
        self._running: list[list[int]] = [[]] * beams
        self._scores = np.full(beams, _NEVER)
        self._scores[0] = 0  # equal beams would stay equal
        self._kept: list[list[int]] = [[]] * beams
        self._kept_scores = np.full(beams, _NEVER)
        self._finished = np.zeros(beams, np.bool_)

    def step(self, log_probabilities: np.ndarray[Any, Any]) -> tuple[list[int], list[int]]:
        """``log_probabilities``: f32 [beams, vocabulary]. Gives, for each beam that runs on, which one it continues and its token."""
        beams = self.settings.num_beams
        if self.processing.changes:
            log_probabilities = np.stack([
                self.processing.of(row, self.prompt + tokens, self.length, self.end)
                for row, tokens in zip(log_probabilities, self._running, strict=True)
            ])  # fmt: skip
        sums = (log_probabilities + self._scores[:, None]).reshape(-1)
        best = _best(sums, min(max(2, 1 + len(self.end)) * beams, len(sums)))
        scores, parents = sums[best], best // log_probabilities.shape[1]
        tokens = best % log_probabilities.shape[1]
        self.length += 1
        ends = np.array([self.length == self.count or token in self.end for token in tokens.tolist()])
        made = [
            [*self._running[parent], token] for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True)
        ]
        self._finish(made, scores, ends)

        scores = scores + np.where(ends, _NEVER, np.float32(0))
        next_ones = _best(scores, beams)
        self._running = [made[each] for each in next_ones]
        self._scores = scores[next_ones]
        full = self.settings.early_stopping is True and self._finished.all()
        self.done = bool(full or ends.all() or not self._may_improve())
        return parents[next_ones].tolist(), tokens[next_ones].tolist()

    def _finish(self, made: list[list[int]], scores: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> None:
        """Of what ends, the first ``num_beams`` (the others are there for beams to run on) and what was kept: the best."""
        beams = self.settings.num_beams
        ended = ends & (np.arange(len(made)) < beams)
        scores = scores / self._divisor(self.length)
        scores = scores + np.where(ended, np.float32(0), _NEVER)
        every = np.concatenate((self._kept_scores, scores))
        best = _best(every, beams)
        self._kept = [(self._kept + made)[each] for each in best]
        self._kept_scores = every[best]
        self._finished = np.concatenate((self._finished, ended))[best]

    def _may_improve(self) -> bool:
        penalty = self.settings.length_penalty
        length = self.count if self.settings.early_stopping == "never" and penalty > 0 else self.length
        possible = self._scores[0] / self._divisor(length)
        return not self._finished.all() or bool(possible > self._kept_scores.min())

    def _divisor(self, length: int) -> np.float32:
        with np.errstate(over="ignore"):
            return np.float32(np.power(float(length), self.settings.length_penalty))

    def answers(self) -> list[list[int]]:
        """The best one first."""
        return self._kept[: self.settings.num_return_sequences]


def _best(values: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Where the largest are, the largest one first; of equal ones the first."""
    if count < len(values):
        within = np.argpartition(-values, count - 1)[:count]
        within.sort()
    else:
        within = np.arange(len(values))
    best: np.ndarray[Any, Any] = within[np.argsort(-values[within], kind="stable")]
    return best


def _log_probabilities(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    shifted = logits - logits.max(1, keepdims=True)
    made: np.ndarray[Any, Any] = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return made
