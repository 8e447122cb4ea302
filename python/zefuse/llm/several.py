"""``zefuse generate`` with several prompts, or a beam search: the answers when they are there, and how long all took."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zefuse.llm import beams
from zefuse.wording import counted

if TYPE_CHECKING:
    from zefuse.llm.package import LanguageModel


@dataclass
class Answers:
    """Of one call. Seconds."""

    texts: list[str]
    prompt_tokens: list[int]
    tokens: list[int]  # of each answer, the one that ends it included
    seconds: float
    before: str  # what the seconds include

    def to_dict(self) -> dict[str, Any]:
        return {
            "texts": self.texts,
            "prompt_tokens": self.prompt_tokens,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "tokens_per_second": self._rate,
        }

    @property
    def _rate(self) -> float:
        return sum(self.tokens) / max(self.seconds, 1e-9)

    def tell(self, say: Callable[[str], Any]) -> None:
        """One answer alone as it is, several each after its number."""
        for number, text in enumerate(self.texts):
            say(text if len(self.texts) == 1 else f"[{number + 1}] {text}")

    def __str__(self) -> str:
        return (
            f"{counted(sum(self.tokens), 'token')} in {counted(len(self.texts), 'answer')}; "
            f"{self.seconds:.2f} s, {self.before}: {self._rate:.1f} tokens/s"
        )


def from_package(model: LanguageModel, prompts: Sequence[str], count: int, began: float, **options: Any) -> Answers:
    """``began``: when the loading did, by ``time.perf_counter``. ``options``: of ``LanguageModel.generate``."""
    ids = [model.ids_of(prompt, options.get("raw", False)) for prompt in prompts]
    made = model.generate(ids, count, **{name: value for name, value in options.items() if name != "raw"})
    seconds = time.perf_counter() - began
    texts = [model.tokenizer.decode(each, skip_special_tokens=True) for each in made]
    return Answers(texts, [len(each) for each in ids], [len(each) for each in made], seconds, "loading included")


def from_model(model: Any, tokenizer: Any, ids: Sequence[Any], count: int, **options: Any) -> Answers:
    """``ids``: [1, n] of each prompt. ``options``: of ``generate()``. The prompts are padded on the left."""
    import torch

    longest = max(each.shape[1] for each in ids)
    given, mask = (torch.zeros((len(ids), longest), dtype=torch.int64) for _ in range(2))
    for row, each in enumerate(ids):
        given[row, longest - each.shape[1] :], mask[row, longest - each.shape[1] :] = each, 1
    config = model.generation_config
    ends = [config.eos_token_id] if isinstance(config.eos_token_id, int) else list(config.eos_token_id or ())
    if config.pad_token_id is None:
        options["pad_token_id"] = ends[0] if ends else 0
    began = time.perf_counter()
    rows = model.generate(given, attention_mask=mask, max_new_tokens=count, **options)[:, longest:].tolist()
    seconds = time.perf_counter() - began
    made = [_without_filling(each, ends) for each in rows]
    texts = [tokenizer.decode(each, skip_special_tokens=True) for each in made]
    lengths = [each.shape[1] for each in ids]
    return Answers(texts, lengths, [len(each) for each in made], seconds, "compiling included")


def check(num_beams: int, length_penalty: float, early_stopping: bool | str, drawn: bool) -> None:
    """Raises InvalidArgumentError for settings that cannot be or do not go together."""
    beams.Settings(num_beams, 1, length_penalty, early_stopping, drawn)


def _without_filling(tokens: list[int], ends: Sequence[int]) -> list[int]:
    first = next((at for at, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[: first + 1]
