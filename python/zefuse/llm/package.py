"""``zefuse.llm.load_package``: what ``zefuse compile --llm`` wrote, run without torch and ``transformers``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from zefuse.errors import DamagedError, InvalidArgumentError, NotFoundError
from zefuse.installing import installation
from zefuse.llm import batches, beams
from zefuse.llm.package_cache import KeyValueCache
from zefuse.llm.sampling import Choice, SamplingOptions
from zefuse.packages import c_model
from zefuse.wording import counted

SETTINGS = "language_model.json"  # what a package carries: see packaging.settings_of
TOKENIZER = "tokenizer.json"
_FIRST_CACHE_INPUT = 3  # after input_ids, padding and start


class _Text:
    """One answer's, in pieces."""

    def __init__(self, tokenizer: Any) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer, self._stream = tokenizer, DecodeStream(skip_special_tokens=True)
        self._tokens: list[int] = []
        self._told = 0

    def after(self, token: int) -> str:
        """What this token completes; may be empty."""
        self._tokens.append(token)
        piece = self._stream.step(self._tokenizer, token) or ""
        self._told += len(piece)
        return piece

    def rest(self) -> str:
        text: str = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
        return text[self._told :]


@dataclass(frozen=True)
class _Settings:
    context: int | None
    end: frozenset[int]
    step: int
    batches: bool
    conversation: dict[str, str] | None
    bytes_per_token: int
    model: str


class LanguageModel:
    """A decoder out of a package. Several threads may use it, each with a cache of its own."""

    def __init__(self, path: str | os.PathLike[str], device: str = "cpu") -> None:
        self.path = os.fspath(path)
        if not os.path.isfile(self.path):
            raise NotFoundError(
                f"zefuse.llm.load_package: no file {self.path!r}; make one with: zefuse compile --llm MODEL -o {self.path}"
            )
        self._model = c_model.CModel(self.path, device)
        self.settings = _settings(self._model, self.path)
        self._layers = self._model.inputs[_FIRST_CACHE_INPUT:]
        self.vocabulary = self._model.outputs[0].sizes[-1]
        self._tokenizer: Any = None

    @property
    def context(self) -> int | None:
        """Tokens that the model was made for; None where nothing says so."""
        return self.settings.context

    @property
    def tokenizer(self) -> Any:
        """Of the package ``tokenizers``. Raises InstallationError without it, NotFoundError where the package carries none."""
        if self._tokenizer is None:
            installation.require("tokenizers", "the tokenizer of a package")
            text = self._model.file(TOKENIZER).decode()
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_str(text)
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
        return self._tokenizer

    def ids_of(self, prompt: str, raw: bool = False) -> list[int]:
        """The prompt's tokens: as a user's message, where the model has a template for a conversation and ``raw`` does not forbid it."""
        texts = self.settings.conversation
        if raw or texts is None:
            return list(self.tokenizer.encode(prompt).ids)
        return list(self.tokenizer.encode(texts["before"] + prompt + texts["after"], add_special_tokens=False).ids)

    def cache(self, capacity: int, batch: int = 1) -> KeyValueCache:
        """For ``capacity`` tokens of each of ``batch`` sequences. Raises InvalidArgumentError for more tokens than the model's context,
        or several sequences where the package has no plans for them, OutOfMemoryError."""
        if capacity < 1 or (self.context is not None and capacity > self.context):
            most = "" if self.context is None else f", {self.context} at most, the model's context"
            raise InvalidArgumentError(f"a key-value cache for {counted(capacity, 'token')}: expected 1 or more{most}")
        self.check_batch(batch)
        return KeyValueCache(self._layers, capacity, self.settings.step, batch)

    def check_batch(self, batch: int) -> None:
        if batch < 1:
            raise InvalidArgumentError(f"a batch of {counted(batch, 'sequence')}: expected 1 or more")
        if batch > 1 and not self.settings.batches:
            raise InvalidArgumentError(
                f"{self.path!r} was compiled for one sequence at a time, and {batch} are asked for: compile it without --no-batches"
            )

    def logits(self, ids: Sequence[int], cache: KeyValueCache) -> np.ndarray[Any, Any]:
        """Of the token after ``ids``, f32 [vocabulary]; the cache, of one sequence, has these tokens too afterwards."""
        made: np.ndarray[Any, Any] = self.batch_logits(np.array(ids, np.int64).reshape(1, -1), cache)[0]
        return made

    def batch_logits(self, ids: np.ndarray[Any, Any], cache: KeyValueCache) -> np.ndarray[Any, Any]:
        """Of the tokens after ``ids`` (i64 [batch, n]), f32 [batch, vocabulary]; the cache, of as many sequences, has these tokens too
        afterwards. Of the tokens that stand in a sequence's ``cache.padding`` first places, any number that the model has will do."""
        self._check_tokens(ids)
        if ids.ndim != 2 or len(ids) != cache.batch:
            raise InvalidArgumentError(
                f"tokens of shape {list(ids.shape)} for a cache of {counted(cache.batch, 'sequence')}"
            )
        cache.show(ids.shape[1])
        given = [np.ascontiguousarray(each, np.int64) for each in (ids, cache.padding, np.array(cache.length))]
        inputs = [
            c_model.tensor(each.ctypes.data, c_model.I64, shape)
            for each, shape in zip(given, (ids.shape, cache.padding.shape, ()), strict=True)
        ]
        made = self._model.call([*inputs, *cache.tensors])[0]
        cache.length += ids.shape[1]
        return made

    def tokens(
        self,
        prompt: str | Sequence[int],
        max_new_tokens: int = 128,
        *,
        raw: bool = False,
        **options: Unpack[SamplingOptions],
    ) -> Iterator[int]:
        """New tokens, as they come, the one that ends the answer included: the likeliest each time, or with a ``temperature`` drawn.

        Raises, before any work: InvalidArgumentError for a prompt that is empty or does not fit the model's context with
        ``max_new_tokens`` and for options that cannot be, OutOfMemoryError for a cache that does not fit the memory.
        """
        steps = self.batch_tokens([prompt], max_new_tokens, raw=raw, **options)
        return (token for made in steps for token in made if token is not None)

    def batch_tokens(
        self,
        prompts: Sequence[str | Sequence[int]],
        max_new_tokens: int = 128,
        *,
        raw: bool = False,
        **options: Unpack[SamplingOptions],
    ) -> Iterator[list[int | None]]:
        """Of several prompts, of any lengths, the next token of each, as they come; None for an answer that has ended. The rest, and
        what it raises: as ``tokens``. An answer that was drawn does not depend on the other prompts."""
        choice = Choice.of(options, self.vocabulary)
        ids = self._ids(prompts, max_new_tokens, raw)
        return batches.tokens(self, ids, self._cache_for(ids, max_new_tokens, 1), max_new_tokens, choice)

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        max_new_tokens: int = 128,
        *,
        num_beams: int = 1,
        num_return_sequences: int = 1,
        length_penalty: float = 1.0,
        early_stopping: bool | str = False,
        raw: bool = False,
        **options: Unpack[SamplingOptions],
    ) -> list[list[int]]:
        """The answers' tokens, without what fills them up to equal length: ``num_return_sequences`` of each prompt, one prompt after
        the other. With ``num_beams`` above 1 they are the likeliest that a beam search finds, the best one first;
        ``length_penalty`` and ``early_stopping`` are ``generate()``'s of ``transformers``. The rest: as ``batch_tokens``.

        Raises, before any work, what ``tokens`` raises, and InvalidArgumentError for settings that cannot be or do not go together.
        """
        choice = Choice.of(options, self.vocabulary)
        drawn = choice.sampling.temperature > 0
        search = beams.Settings(num_beams, num_return_sequences, length_penalty, early_stopping, drawn)
        ids = self._ids(prompts, max_new_tokens, raw)
        if num_beams == 1:
            several = [each for each in ids for _ in range(num_return_sequences)]
            made: list[list[int]] = [[] for _ in several]
            for step in self.batch_tokens(several, max_new_tokens, **options):
                for answer, token in zip(made, step, strict=True):
                    if token is not None:
                        answer.append(token)
            return made
        cache = self._cache_for(ids, max_new_tokens, num_beams)
        return beams.search(self, ids, cache, max_new_tokens, search, choice.processing)

    def _ids(self, prompts: Sequence[str | Sequence[int]], new: int, raw: bool) -> list[list[int]]:
        """Each prompt's tokens, checked."""
        if isinstance(prompts, str) or not len(prompts):
            raise InvalidArgumentError("expected a list of one prompt or more")
        if new < 1:
            raise InvalidArgumentError(f"max_new_tokens={new}: expected a number from 1 on")
        ids = [self.ids_of(each, raw) if isinstance(each, str) else list(each) for each in prompts]
        for each in ids:
            self._check_tokens(np.array(each))
        check_length(self.context, max(map(len, ids)), new)
        return ids

    def _check_tokens(self, ids: np.ndarray[Any, Any]) -> None:
        if not ids.size:
            raise InvalidArgumentError("no tokens: a prompt has at least one")
        if ids.min() < 0 or ids.max() >= self.vocabulary:
            raise InvalidArgumentError(
                f"tokens from {ids.min()} to {ids.max()}: the model has {self.vocabulary}, from 0 on"
            )

    def _cache_for(self, ids: Sequence[Sequence[int]], new: int, copies: int) -> KeyValueCache:
        """For these prompts, each so many times."""
        return self.cache(max(map(len, ids)) + new, copies * len(ids))

    def stream(self, prompt: str | Sequence[int], max_new_tokens: int = 128, **options: Any) -> Iterator[str]:
        """The answer's text, in pieces as it comes; as ``tokens``."""
        return self.text_of(self.tokens(prompt, max_new_tokens, **options))

    def text_of(self, tokens: Iterator[int]) -> Iterator[str]:
        """Of tokens that come one after the other: a piece for each that completes a character, at the end what is left."""
        return (piece for _, piece in self.texts_of(1, ([token] for token in tokens)))

    def batch_stream(
        self, prompts: Sequence[str | Sequence[int]], max_new_tokens: int = 128, **options: Any
    ) -> Iterator[tuple[int, str]]:
        """The answers' texts, in pieces as they come, each with the number of its prompt; as ``batch_tokens``."""
        return self.texts_of(len(prompts), self.batch_tokens(prompts, max_new_tokens, **options))

    def texts_of(self, count: int, steps: Iterator[Sequence[int | None]]) -> Iterator[tuple[int, str]]:
        """Of the tokens of ``count`` answers, as ``batch_tokens`` gives them."""
        texts = [_Text(self.tokenizer) for _ in range(count)]
        for step in steps:
            for number, token in enumerate(step):
                if token is not None and (piece := texts[number].after(token)):
                    yield number, piece
        for number, text in enumerate(texts):
            if rest := text.rest():
                yield number, rest

    def bytes_per_token(self, cached: int) -> int:
        """What a decoding step reads: weights, and the cache of so many tokens."""
        of_cache = sum(each.sizes[1] * each.sizes[3] * each.element_bytes for each in self._layers)
        return self.settings.bytes_per_token + of_cache * cached


def load_package(path: str | os.PathLike[str], *, device: str = "cpu") -> LanguageModel:
    """Loads what ``zefuse.llm.compile_package`` or ``zefuse compile --llm`` wrote. Needs neither torch nor ``transformers``.

    The file is mapped: replace it only by renaming another to its name while the model lives.

    Raises NotFoundError where there is no such file or device, DamagedError for a file that fails its checks (of the weights
    before the first token), InvalidArgumentError for a package of another kind of model, UnsupportedError for a newer format.
    """
    return LanguageModel(path, device)


def check_length(context: int | None, prompt: int, new: int) -> None:
    """Raises InvalidArgumentError where a prompt of so many tokens and so many new ones do not fit the context."""
    if context is not None and prompt + new > context:
        raise InvalidArgumentError(
            f"the prompt's {counted(prompt, 'token')} and {new} new ones are more than the {context} of the model's context; "
            + (f"{context - prompt} new ones fit" if prompt < context else "shorten the prompt")
        )


def _settings(model: c_model.CModel, path: str) -> _Settings:
    try:
        text = model.file(SETTINGS)
    except NotFoundError:
        raise InvalidArgumentError(
            f"{path!r} is a package of another kind of model; zefuse compile --llm makes one that answers"
        ) from None
    try:
        found = json.loads(text)
        return _Settings(
            None if found["context"] is None else int(found["context"]),
            frozenset(map(int, found["end"])),
            int(found["step"]),
            bool(found["batches"]),
            found["conversation"],
            int(found["bytes_per_token"]),
            str(found["model"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(
            f"{path!r}: its {SETTINGS} is not what zefuse compile --llm writes: make it again"
        ) from error
