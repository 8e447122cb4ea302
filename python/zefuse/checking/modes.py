"""In which ways a model is called: with gradients or without, layouts, dtypes, threads, symbolic sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from zefuse.errors import InvalidArgumentError
from zefuse.suggestions import closest

_GRAD = ("grad", "no_grad", "inference_mode")


@dataclass(frozen=True)
class Mode:
    """One way to call a model. ``name`` is these words, joined by commas; what is usual is left out."""

    grad: str = "no_grad"
    channels_last: bool = False
    bf16: bool = False
    one_thread: bool = False
    dynamic: bool = False

    @property
    def name(self) -> str:
        words = [self.grad]
        for word in ("channels_last", "bf16", "one_thread", "dynamic"):
            if getattr(self, word):
                words.append(word)
        return ",".join(words)

    @property
    def same_values_as(self) -> tuple[bool, str]:
        """Modes for which this is equal compute the same: only how differs."""
        return (self.bf16, "")

    @contextmanager
    def entered(self) -> Iterator[None]:
        threads = torch.get_num_threads()
        with ExitStack() as stack:
            stack.enter_context(
                {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}[
                    self.grad
                ]()
            )
            if self.bf16:
                stack.enter_context(torch.autocast("cpu", torch.bfloat16))
            if self.one_thread and threads > 1:
                torch.set_num_threads(1)
                stack.callback(torch.set_num_threads, threads)
            yield


def usual(*, gradients: bool, images: bool) -> list[Mode]:
    """Each way once, with and without gradients: a dozen modes at most. ``every`` has their combinations."""
    modes = [Mode("no_grad"), Mode("inference_mode")]
    kinds = ["no_grad"]
    if gradients:
        modes.insert(0, Mode("grad"))
        kinds.append("grad")
    words = ["channels_last"] * images + ["bf16"] + ["one_thread"] * (torch.get_num_threads() > 1) + ["dynamic"]
    for word in words:
        modes += [Mode(kind, **{word: True}) for kind in kinds]
    return modes


def every(*, gradients: bool, images: bool) -> list[Mode]:
    """All combinations that make sense for the model: 24 without gradients and images, 48 with both."""
    return [
        Mode(kind, *flags)
        for kind in _GRAD
        if gradients or kind != "grad"
        for flags in itertools.product((False, True), repeat=4)
        if (images or not flags[0]) and (torch.get_num_threads() > 1 or not flags[2])
    ]


def named(names: str | Sequence[str]) -> list[Mode]:
    """Modes by name: ``"grad,bf16"``. Raises InvalidArgumentError."""
    return [_parsed(name) for name in ([names] if isinstance(names, str) else names)]


def _parsed(name: str) -> Mode:
    known = [*_GRAD, "channels_last", "bf16", "one_thread", "dynamic"]
    words = [word.strip() for word in name.split(",")] if isinstance(name, str) else []
    for word in words or [name]:
        if word not in known:
            close = closest(str(word).lower(), known)
            hint = f"; did you mean {close!r}?" if close else ""
            raise InvalidArgumentError(f"mode {name!r}: {word!r} is unknown{hint} (known: {', '.join(known)})")
    kinds = [word for word in words if word in _GRAD]
    if len(kinds) > 1:
        raise InvalidArgumentError(f"mode {name!r}: {kinds[0]} and {kinds[1]} exclude each other")
    return Mode(kinds[0] if kinds else "no_grad", **{word: True for word in words if word not in _GRAD})
