"""What does not fit a model's context, refused before anything is traced or computed.

Eager says "index out of range" where a table of positions ends; a compiled graph reads beyond it. Where positions are computed
(rotary ones), both go on, and answer nonsense.
"""

from __future__ import annotations

from typing import Any

import torch

from zefuse.errors import InvalidArgumentError
from zefuse.wording import counted

_MOST_BEFORE = 8  # rows that a table of positions may have before the first one's (OPT and BART have two)


def context_of(model: Any) -> int | None:
    """Tokens that the model was made for, where its configuration says so."""
    most = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    return None if most is None else int(most)


class Limits:
    """Of a decoder, or of an encoder-decoder's encoder. Looks at the model once, when it is first asked."""

    def __init__(self, model: Any, part: str = "prompt") -> None:
        self._model, self._part = model, part
        self._found: tuple[int | None, bool] | None = None

    def _limits(self) -> tuple[int | None, bool]:
        """The context, and whether positions are rows of a table."""
        if self._found is None:
            context = None if _grows(self._model.config) else context_of(self._model)
            self._found = context, context is not None and _has_table(self._model, context)
        return self._found

    def check_tokens(self, count: int, before: int = 0) -> None:
        """Raises InvalidArgumentError for ``count`` tokens, after ``before`` earlier ones, that are more than the model takes."""
        context, table = self._limits()
        if context is not None and before + count > context and (count > 1 or table):
            after = f" after {before} earlier ones" if before else ""
            raise InvalidArgumentError(
                f"a {self._part} of {counted(count, 'token')}{after} is longer than the model's context of {context}: shorten it"
            )

    def check_room(self, tokens: int) -> None:
        """Raises InvalidArgumentError for a ``generate()`` that may come to positions that the model has not."""
        context, table = self._limits()
        if context is not None and table and tokens > context:
            raise InvalidArgumentError(
                f"generate() is asked for answers that end after {counted(tokens + 1, 'token')} (max_length, or the prompt's and "
                f"max_new_tokens), and the model has {context} positions: ask for fewer, or shorten the prompt"
            )


def _grows(config: Any) -> bool:
    """Whether rotary positions are scaled to whatever comes, so that the configuration's number is no limit."""
    config = config.get_text_config(decoder=True)
    settings = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return isinstance(settings, dict) and settings.get("rope_type", settings.get("type")) == "dynamic"


def _has_table(model: Any, context: int) -> bool:
    words = model.get_input_embeddings()
    return any(
        isinstance(module, torch.nn.Embedding)
        and module.weight is not words.weight
        and context <= module.num_embeddings <= context + _MOST_BEFORE
        for module in model.modules()
    )
