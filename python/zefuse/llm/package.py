"""``zefuse.llm.load_package``: what ``zefuse compile --llm`` wrote, run without torch and ``transformers``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zefuse import c_model, installation
from zefuse.errors import DamagedError, InvalidArgumentError, NotFoundError, OutOfMemoryError
from zefuse.llm.sampling import Sampling
from zefuse.wording import counted

SETTINGS = "language_model.json"  # what a package carries: see packaging.settings_of
TOKENIZER = "tokenizer.json"
_FIRST_CACHE_INPUT = 2  # after input_ids and start


class KeyValueCache:
    """Memory for the keys and values (and scales) of ``capacity`` tokens, for one sequence. Not for several threads at a time."""

    def __init__(self, layers: Sequence[c_model.Info], capacity: int, step: int) -> None:
        self.capacity, self._step = capacity, step
        self.length = 0  # tokens in it
        self._shown = 0
        # Each begins at a multiple of 64: codes of eight bits may end anywhere.
        sizes = [-(-each.sizes[1] * capacity * each.sizes[3] * each.element_bytes // 64) * 64 for each in layers]
        size = sum(sizes)
        self.bytes = size
        if size > (free := _free_memory()):
            raise OutOfMemoryError(
                f"a key-value cache for {counted(capacity, 'token')} takes {size / 1e6:.0f} MB, and {free / 1e6:.0f} MB of memory "
                "are free: ask for fewer new tokens"
            )
        self._memory = np.zeros(size + 64, np.uint8)  # zeros: a masked number still takes part in products
        self.tensors = []
        at = -(-self._memory.ctypes.data // 64) * 64
        for each, size in zip(layers, sizes, strict=True):
            _, heads, _, dim = each.sizes
            # Token after token, so that the first ones are a tensor of the same strides.
            self.tensors.append(c_model.tensor(at, each.dtype, each.sizes, (heads * dim, dim, heads * dim, 1)))
            at += size

    def show(self, count: int) -> None:
        """As many tokens as the cache will have after ``count`` more, in steps that change seldom. Raises InvalidArgumentError where
        they do not fit."""
        if self.length + count > self.capacity:
            raise InvalidArgumentError(
                f"the key-value cache holds {counted(self.capacity, 'token')} and has {self.length}; {count} more do not fit"
            )
        shown = min(self.capacity, -(-(self.length + count) // self._step) * self._step)
        if shown != self._shown:
            for tensor in self.tensors:
                tensor.shape[2] = shown
            self._shown = shown


@dataclass(frozen=True)
class _Settings:
    context: int | None
    end: frozenset[int]
    step: int
    conversation: dict[str, str] | None
    bytes_per_token: int
    model: str


class LanguageModel:
    """A decoder out of a package, for one sequence at a time. Several threads may use it, each with a cache of its own."""

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

    def cache(self, capacity: int) -> KeyValueCache:
        """Raises InvalidArgumentError for more tokens than the model's context, OutOfMemoryError."""
        if capacity < 1 or (self.context is not None and capacity > self.context):
            most = "" if self.context is None else f", {self.context} at most, the model's context"
            raise InvalidArgumentError(f"a key-value cache for {counted(capacity, 'token')}: expected 1 or more{most}")
        return KeyValueCache(self._layers, capacity, self.settings.step)

    def logits(self, ids: Sequence[int], cache: KeyValueCache) -> np.ndarray[Any, Any]:
        """Of the token after ``ids``, f32 [vocabulary]; the cache has these tokens too afterwards."""
        if not len(ids):
            raise InvalidArgumentError("no tokens: a prompt has at least one")
        given = np.array(ids, np.int64).reshape(1, -1)
        if given.min() < 0 or given.max() >= self.vocabulary:
            raise InvalidArgumentError(
                f"tokens from {given.min()} to {given.max()}: the model has {self.vocabulary}, from 0 on"
            )
        cache.show(given.shape[1])
        start = np.array(cache.length, np.int64)
        inputs = [c_model.tensor(each.ctypes.data, c_model.I64, each.shape) for each in (given, start)]
        made = self._model.call([*inputs, *cache.tensors])[0][0]
        cache.length += given.shape[1]
        return made

    def tokens(
        self,
        prompt: str | Sequence[int],
        max_new_tokens: int = 128,
        *,
        temperature: float = 0.0,
        top_k: int = 50,
        top_p: float = 1.0,
        seed: int | None = None,
        raw: bool = False,
    ) -> Iterator[int]:
        """New tokens, as they come, the one that ends the answer included. ``temperature`` 0: the likeliest each time; else drawn.

        Raises, before any work: InvalidArgumentError for a prompt that is empty or does not fit the model's context with
        ``max_new_tokens``, OutOfMemoryError for a cache that does not fit the memory.
        """
        sampling, draws = Sampling(temperature, top_k, top_p), np.random.default_rng(seed)
        ids = self.ids_of(prompt, raw) if isinstance(prompt, str) else list(prompt)
        if max_new_tokens < 1:
            raise InvalidArgumentError(f"max_new_tokens={max_new_tokens}: expected a number from 1 on")
        check_length(self.context, len(ids), max_new_tokens)
        return self._tokens(ids, self.cache(len(ids) + max_new_tokens), max_new_tokens, sampling, draws)

    def _tokens(
        self, ids: Sequence[int], cache: KeyValueCache, count: int, sampling: Sampling, draws: np.random.Generator
    ) -> Iterator[int]:
        for _ in range(count):
            token = sampling.next(self.logits(ids, cache), draws)
            yield token
            if token in self.settings.end:
                return
            ids = [token]

    def stream(self, prompt: str | Sequence[int], max_new_tokens: int = 128, **options: Any) -> Iterator[str]:
        """The answer's text, in pieces as it comes; as ``tokens``."""
        return self.text_of(self.tokens(prompt, max_new_tokens, **options))

    def text_of(self, tokens: Iterator[int]) -> Iterator[str]:
        """Of tokens that come one after the other: a piece for each that completes a character, at the end what is left."""
        from tokenizers.decoders import DecodeStream

        tokenizer, stream = self.tokenizer, DecodeStream(skip_special_tokens=True)
        every: list[int] = []
        told = 0
        for token in tokens:
            every.append(token)
            if (piece := stream.step(tokenizer, token)) is not None:
                told += len(piece)
                yield piece
        if rest := tokenizer.decode(every, skip_special_tokens=True)[told:]:
            yield rest

    def bytes_per_token(self, cached: int) -> int:
        """What a decoding step reads: weights, and the cache of so many tokens."""
        of_cache = sum(each.sizes[1] * each.sizes[3] * each.element_bytes for each in self._layers)
        return self.settings.bytes_per_token + of_cache * cached


def load_package(path: str | os.PathLike[str], *, device: str = "cpu") -> LanguageModel:
    """Loads what ``zefuse.llm.compile_package`` or ``zefuse compile --llm`` wrote. Needs neither torch nor ``transformers``.

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
            found["conversation"],
            int(found["bytes_per_token"]),
            str(found["model"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(
            f"{path!r}: its {SETTINGS} is not what zefuse compile --llm writes: make it again"
        ) from error


def _free_memory() -> int:
    """Bytes that this machine can still give, as the kernel estimates it."""
    try:
        with open("/proc/meminfo") as file:
            line = next(line for line in file if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        return 1 << 62
