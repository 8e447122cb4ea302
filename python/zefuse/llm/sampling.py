"""The next token, of logits: as ``generate()`` of ``transformers`` draws it, in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from zefuse.errors import InvalidArgumentError


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
        kept = np.argpartition(logits, -count)[-count:]
        kept = kept[np.argsort(-logits[kept], kind="stable")]
        scores = logits[kept].astype(np.float64) / self.temperature
        probabilities = np.exp(scores - scores[0])
        probabilities /= probabilities.sum()
        if self.top_p < 1:  # the first one that goes beyond the share stays, as there
            within = np.cumsum(probabilities) - probabilities < self.top_p
            probabilities = np.where(within, probabilities, 0)
            probabilities /= probabilities.sum()
        return kept, probabilities
