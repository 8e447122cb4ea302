"""``zefuse generate``: a model from disk answers a prompt, and says how fast it was and what this machine could do."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zefuse import installation, peaks
from zefuse.errors import InvalidArgumentError
from zefuse.wording import counted


@dataclass
class Speed:
    """Of one ``generate()``. Seconds and bytes."""

    prompt_tokens: int
    first_token: float  # with whatever was compiled in it
    token_times: list[float] = field(default_factory=list)  # between tokens, from the first on
    bytes_per_token: int = 0
    bandwidth: float = 0.0  # bytes a second that this machine reads from memory

    @property
    def tokens(self) -> int:
        return len(self.token_times) + 1

    @property
    def tokens_per_second(self) -> float:
        """Of the tokens after the second: the first step after the prompt compiles, where nothing is cached."""
        settled = self.token_times[1:] or self.token_times
        return len(settled) / sum(settled) if settled else 0.0

    def __str__(self) -> str:
        lines = [
            f"{counted(self.tokens, 'token')} for a prompt of {self.prompt_tokens}; "
            f"the first after {self.first_token:.2f} s, compiling included"
        ]
        if self.token_times:
            read = self.bytes_per_token * self.tokens_per_second
            lines.append(f"{self.tokens_per_second:.1f} tokens/s")
            lines.append(
                f"each reads {self.bytes_per_token / 1e6:.1f} MB of weights and cache: {read / 1e9:.1f} GB/s, "
                f"{100 * read / self.bandwidth:.0f} % of the {self.bandwidth / 1e9:.1f} GB/s that this machine reads"
            )
        return "\n".join(lines)


def load(place: str, dtype: str, keep: bool = False) -> tuple[Any, Any]:
    """The model and its tokenizer, from a folder that ``transformers`` wrote or a GGUF file. Nothing is downloaded.

    ``keep``: what is quantized in a GGUF file stays so (``gguf_model``); else it is dequantized. Raises InvalidArgumentError
    for what is no such thing, InstallationError where a package is missing.
    """
    path = Path(place)
    if not path.exists():
        raise InvalidArgumentError(f"{place}: no such file or folder")
    if path.is_file():
        from zefuse.llm import gguf_file

        gguf_file.check(path)
    elif not (path / "config.json").is_file():
        raise InvalidArgumentError(f"{place}: no config.json in it; a folder that save_pretrained() wrote has one")
    for package in ("transformers", "gguf") if path.is_file() else ("transformers",):
        installation.require(package, "a GGUF file" if package == "gguf" else "zefuse.llm")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if path.is_dir():
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        return AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype), local_files_only=True), tokenizer
    from zefuse.llm import gguf_model

    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
        return gguf_model.load(path, getattr(torch, dtype), keep), tokenizer
    except (IndexError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{place}: transformers makes no model of it: {error}") from error


def ids_of(tokenizer: Any, prompt: str, raw: bool) -> Any:
    """The prompt's tokens; as a user's message, where the tokenizer has a template for a conversation."""
    if raw or not getattr(tokenizer, "chat_template", None):
        return tokenizer(prompt, return_tensors="pt").input_ids
    conversation = [{"role": "user", "content": prompt}]
    made = tokenizer.apply_chat_template(conversation, add_generation_prompt=True, return_tensors="pt")
    return made if hasattr(made, "shape") else made["input_ids"]


def check_length(model: Any, prompt: int, new: int) -> None:
    most = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if most is not None and prompt + new > most:
        raise InvalidArgumentError(
            f"the prompt's {counted(prompt, 'token')} and {new} new ones are more than the {most} of the model's context; "
            + (f"{most - prompt} new ones fit" if prompt < most else "shorten the prompt")
        )


def generate(model: Any, tokenizer: Any, ids: Any, **options: Any) -> Speed:
    """Streams the answer to standard output."""
    from transformers import TextStreamer

    class Clocked(TextStreamer):
        def __init__(self) -> None:
            super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
            self.times: list[float] = []

        def put(self, value: Any) -> None:
            self.times.append(time.perf_counter())
            super().put(value)

    streamer = Clocked()
    began = time.perf_counter()
    made = model.generate(ids, streamer=streamer, return_dict_in_generate=True, **options)
    times = streamer.times[1:]  # the first is the prompt
    if not times:
        raise InvalidArgumentError("no token was asked for")
    speed = Speed(ids.shape[1], times[0] - began)
    speed.token_times = [after - before for before, after in itertools.pairwise(times)]
    speed.bytes_per_token = bytes_per_token(model, made.past_key_values)
    speed.bandwidth = peaks.bandwidth()
    return speed


def bytes_per_token(model: Any, cache: Any) -> int:
    """What a decoding step reads: every weight but a token embedding that is no other layer's weight, and the cache."""
    embedding = model.get_input_embeddings()
    read: dict[int, Any] = {}
    for module in model.modules():
        if module is not embedding:
            own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
            read |= {id(each): each for each in own}
    for layer in cache.layers:
        read |= {id(each): each for each in (layer.keys, layer.values)}
    return sum(each.numel() * each.element_size() for each in read.values())
