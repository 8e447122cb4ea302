"""``zefuse generate``: a model from disk answers a prompt, and says how fast it was and what this machine could do."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zefuse import peaks
from zefuse.errors import InstallationError, InvalidArgumentError
from zefuse.installing import installation
from zefuse.wording import counted

if TYPE_CHECKING:
    from zefuse.llm.package import LanguageModel


@dataclass
class Speed:
    """Of one ``generate()``. Seconds and bytes."""

    prompt_tokens: int
    first_token: float  # with what had to come before it
    before: str = "compiling included"  # which is this
    text: str = ""
    token_times: list[float] = field(default_factory=list)  # between tokens, from the first on
    bytes_per_token: int = 0
    threads: int = 1
    bandwidth: float = 0.0  # bytes a second that this machine reads from memory; 0: not measured

    @property
    def tokens(self) -> int:
        return len(self.token_times) + 1

    @property
    def tokens_per_second(self) -> float:
        """Of the tokens after the second: the first step after the prompt compiles, where nothing is cached."""
        settled = self.token_times[1:] or self.token_times
        return len(settled) / sum(settled) if settled else 0.0

    def measure_bandwidth(self) -> None:
        """Takes some tenths of a second, and half a gigabyte."""
        self.bandwidth = peaks.bandwidth(self.threads)

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "prompt_tokens": self.prompt_tokens,
            "tokens": self.tokens,
            "first_token_seconds": self.first_token,
            "tokens_per_second": self.tokens_per_second,
            "bytes_per_token": self.bytes_per_token,
            "bandwidth": self.bandwidth,
        }

    def __str__(self) -> str:
        lines = [
            f"{counted(self.tokens, 'token')} for a prompt of {self.prompt_tokens}; "
            f"the first after {self.first_token:.2f} s, {self.before}"
        ]
        if self.token_times:
            read = self.bytes_per_token * self.tokens_per_second
            lines.append(f"{self.tokens_per_second:.1f} tokens/s")
            lines.append(
                f"each reads {self.bytes_per_token / 1e6:.1f} MB of weights and cache: {read / 1e9:.1f} GB/s, "
                f"{100 * read / self.bandwidth:.0f} % of the {self.bandwidth / 1e9:.1f} GB/s that this machine reads"
            )
        return "\n".join(lines)


def check(place: str) -> None:
    """Raises InvalidArgumentError for what is no model on disk, or a GGUF file whose numbers cannot be. Needs no torch."""
    path = Path(place)
    if not path.exists():
        raise InvalidArgumentError(f"{place}: no such file or folder")
    if path.is_file():
        from zefuse.llm import gguf_file

        gguf_file.check(path)
    elif not (path / "config.json").is_file():
        raise InvalidArgumentError(f"{place}: no config.json in it; a folder that save_pretrained() wrote has one")


def load(place: str, dtype: str, keep: bool = False) -> tuple[Any, Any]:
    """The model and its tokenizer, from a folder that ``transformers`` wrote or a GGUF file. Nothing is downloaded.

    ``keep``: what is quantized in a GGUF file or a checkpoint of GPTQ or AWQ stays so; else it is dequantized. Raises InvalidArgumentError
    for what is no such thing, InstallationError where a package is missing.
    """
    check(place)
    path = Path(place)
    for package in ("transformers", "gguf") if path.is_file() else ("transformers",):
        installation.require(package, "a GGUF file" if package == "gguf" else "zefuse.llm")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from zefuse.llm import gptq_awq

    if path.is_dir():
        settings = _quantization(path)
        try:
            tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        except (OSError, ValueError) as error:
            hint = "tokenizer.save_pretrained(folder) puts it beside the model"
            raise InvalidArgumentError(f"{place}: no tokenizer that transformers can read; {hint}") from error
        if settings is not None and settings["quant_method"] in gptq_awq.METHODS:
            return gptq_awq.load(path, settings, getattr(torch, dtype), keep), tokenizer
        try:
            model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype), local_files_only=True)
        except ImportError as error:  # what reads these quantized weights is not installed
            raise InstallationError(f"{place}: {error}") from error
        return model, tokenizer
    from zefuse.llm import gguf_model, gguf_reading

    try:
        with gguf_reading.read_once(path):
            tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
            return gguf_model.load(path, getattr(torch, dtype), keep), tokenizer
    except (IndexError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{place}: transformers makes no model of it: {error}") from error


def _quantization(folder: Path) -> dict[str, Any] | None:
    """A folder's ``quantization_config``. One that ``transformers`` does not know is refused: it would leave such weights out, with a
    warning, and draw others."""
    import json

    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

    try:
        settings = json.loads((folder / "config.json").read_text()).get("quantization_config")
        method = settings["quant_method"] if settings else None
    except (AttributeError, KeyError, TypeError, UnicodeDecodeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{folder}: its config.json is not what save_pretrained() writes: {error!r}"
        ) from error
    if method is not None and method not in AUTO_QUANTIZATION_CONFIG_MAPPING:
        raise InvalidArgumentError(
            f"{folder}: its weights have the unknown quantization {method!r}; known: "
            + ", ".join(sorted(AUTO_QUANTIZATION_CONFIG_MAPPING))
        )
    return settings or None


def ids_of(tokenizer: Any, prompt: str, raw: bool) -> Any:
    """The prompt's tokens; as a user's message, where the tokenizer has a template for a conversation."""
    if raw or not getattr(tokenizer, "chat_template", None):
        return tokenizer(prompt, return_tensors="pt").input_ids
    conversation = [{"role": "user", "content": prompt}]
    made = tokenizer.apply_chat_template(conversation, add_generation_prompt=True, return_tensors="pt")
    return made if hasattr(made, "shape") else made["input_ids"]


def generate(model: Any, tokenizer: Any, ids: Any, tell: Callable[[str], Any], **options: Any) -> Speed:
    """Tells the answer's text as it comes, in pieces."""
    import torch
    from transformers import TextStreamer

    pieces: list[str] = []

    class Clocked(TextStreamer):
        def __init__(self) -> None:
            super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
            self.times: list[float] = []

        def put(self, value: Any) -> None:
            self.times.append(time.perf_counter())
            super().put(value)

        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            pieces.append(text)
            tell(text + ("\n" if stream_end else ""))

    streamer = Clocked()
    began = time.perf_counter()
    made = model.generate(ids, streamer=streamer, return_dict_in_generate=True, **options)
    times = streamer.times[1:]  # the first is the prompt
    if not times:
        raise InvalidArgumentError("no token was asked for")
    speed = Speed(ids.shape[1], times[0] - began, text="".join(pieces))
    speed.token_times = [after - before for before, after in itertools.pairwise(times)]
    speed.bytes_per_token = bytes_per_token(model, made.past_key_values)
    speed.threads = torch.get_num_threads()
    return speed


def generate_from_package(
    model: LanguageModel,
    prompt: str,
    count: int,
    began: float,
    tell: Callable[[str], Any],
    threads: int,
    **options: Any,
) -> Speed:
    """As ``generate``, without torch. ``began``: when the loading did, by ``time.perf_counter``."""
    ids = model.ids_of(prompt, options.pop("raw", False))
    times: list[float] = []
    pieces: list[str] = []

    def clocked(tokens: Iterator[int]) -> Iterator[int]:
        for token in tokens:
            times.append(time.perf_counter())
            yield token

    for piece in model.text_of(clocked(model.tokens(ids, count, **options))):
        pieces.append(piece)
        tell(piece)
    tell("\n")
    speed = Speed(len(ids), times[0] - began, "loading included", "".join(pieces))
    speed.token_times = [after - before for before, after in itertools.pairwise(times)]
    speed.bytes_per_token = model.bytes_per_token(len(ids) + len(times))
    speed.threads = threads
    return speed


def bytes_per_token(model: Any, cache: Any) -> int:
    """What a decoding step reads: every weight but a token embedding that is no other layer's weight, and the cache."""
    layers = {
        id(each): each
        for layer in cache.layers
        for each in getattr(layer, "memory", (layer.keys, layer.values))  # our own has scales besides
    }
    return bytes_of_weights(model) + sum(each.numel() * each.element_size() for each in layers.values())


def bytes_of_weights(model: Any) -> int:
    """Of a mixture's experts those of a token."""
    from zefuse.llm import experts

    embedding = model.get_input_embeddings()
    chosen = getattr(model.config.get_text_config(decoder=True), "num_experts_per_tok", None)
    read: dict[int, float] = {}
    for module in model.modules():
        if module is not embedding:
            count = experts.count_in(module)
            share = min(1, chosen / count) if chosen and count else 1
            own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
            read |= {id(each): share * each.numel() * each.element_size() for each in own}
    return round(sum(read.values()))
