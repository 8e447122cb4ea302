"""What is asked of a package besides running it: inputs that fit, and whether it is whole, loads and is right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from zefuse import reports
from zefuse.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from zefuse.llm.package import LanguageModel

_DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32"}
_DTYPES |= {"i16": "int16", "i8": "int8", "u8": "uint8", "boolean": "bool", "bool": "bool"}
_SYMBOL = 4  # for a size that may vary
_PLANS_AGREE = 0.1  # quantized activations, which single tokens alone have, differ by some hundredths


def drawn_inputs(package: str) -> tuple[Any, ...]:
    """Inputs that fit the package's first plan: floating ones drawn (seed 0), others 0. Raises UnsupportedError for inputs that are
    no tensors of a usual dtype."""
    import torch

    plans = reports.ask("package", package)["plans"]
    if not plans:
        raise InvalidArgumentError(
            f"{package!r} has no program of its own, only graphs for torch.compile (options={{'package': ...}})"
        )
    generator = torch.Generator().manual_seed(0)
    made = []
    for text in plans[0]["inputs"]:
        match = re.search(r"(\w+)\[([^\]]*)\]", text)
        dtype = getattr(torch, _DTYPES.get(match[1], ""), None) if match else None
        if match is None or dtype is None:
            raise UnsupportedError(f"no input can be drawn for {text!r}; give inputs with --inputs FILE")
        sizes = [int(size) if size.isdigit() else _SYMBOL for size in re.split(r",\s*", match[2]) if size]
        made.append(
            torch.randn(sizes, generator=generator).to(dtype)
            if dtype.is_floating_point
            else torch.zeros(sizes, dtype=dtype)
        )
    return tuple(made)


def is_language_model(holds: dict[str, Any]) -> bool:
    """Of a report on a package: whether ``zefuse compile --llm`` wrote it."""
    from zefuse.llm.package import SETTINGS

    return any(name == f"file/{SETTINGS}" for name, *_ in holds["sections"])


@dataclass
class Verified:
    """``steps``: what was looked at, in words, each with whether it is good."""

    package: str
    steps: list[tuple[bool, str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(good for good, _ in self.steps)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}


def verify(package: str, against: tuple[Any, Any, dict[str, Any]] | None, device: str) -> Verified:
    """Every hash, then that it loads and runs here; with ``against`` (a model, its inputs and keyword arguments) also that it computes
    what the model does in eager. Raises DamagedError and what else loading raises."""
    found = Verified(package)
    holds = reports.ask("package", package)
    plans = ", ".join(dict.fromkeys(plan["target"] for plan in [*holds["plans"], *holds["captured"]]))
    found.steps.append((True, f"every hash is right; format {holds['format']}, plans for {plans}"))
    if not holds["plans"]:
        found.steps.append(
            (True, "it holds graphs for torch.compile alone, which it finds by themselves: nothing to run here")
        )
        return found

    if is_language_model(holds):
        if against is not None:
            raise InvalidArgumentError(
                f"verify: {package!r} is a language model's: compare its answers, zefuse generate {package} --prompt ..."
            )
        _verify_language_model(found, device)
        return found

    import torch

    import zefuse
    from zefuse.checking import comparing
    from zefuse.checking.running import Outcome
    from zefuse.checking.subject import Subject

    loaded = zefuse.load(package, options={"device": device})
    subject = Subject.of(*against) if against is not None else Subject.of(loaded, drawn_inputs(package))
    ours = Outcome()
    with torch.no_grad():
        called = subject.copy()
        ours.add("output", loaded(*called.args, **called.kwargs))
        found.steps.append((True, f"it runs on {device}"))
        if against is None:
            return found
        called = subject.copy()
        eager, exact = Outcome(), None
        eager.add("output", called.model(*called.args, **called.kwargs))
        try:
            called = subject.copy().double()
            exact = Outcome()
            exact.add("output", called.model(*called.args, **called.kwargs))
        except Exception:  # then eager is the reference
            exact = None
    compared = comparing.compare(ours, eager, exact)
    if compared.differences:
        found.steps += [(False, f"differs from eager: {difference}") for difference in compared.differences]
    else:
        found.steps.append((True, f"computes what the model does in eager (relative error {compared.error:.1e})"))
    return found


def _verify_language_model(found: Verified, device: str) -> None:
    """The plans for prompts and for single tokens, of one sequence and of several, on the same three tokens."""
    import numpy as np

    from zefuse.llm.package import load_package

    model = load_package(found.package, device=device)
    at_once, one_by_one = model.cache(3), model.cache(3)
    expected = model.logits([0, 0, 0], at_once)
    for _ in range(3):
        logits = model.logits([0], one_by_one)
    made, text = [logits], "for prompts and for single tokens"
    if model.settings.batches:
        # One of two tokens beside one of three: its first place is padding.
        made += _of_batch(model, [3]), _of_batch(model, [1, 1, 1])
        text += ", of one sequence and of several,"
    found.steps.append((True, f"it runs on {device}"))
    error = max(float(np.abs(each - expected).max()) for each in made) / max(float(np.abs(expected).max()), 1e-30)
    found.steps.append((error < _PLANS_AGREE, f"its plans {text} agree (relative error {error:.1e})"))


def _of_batch(model: LanguageModel, counts: Sequence[int]) -> Any:
    """Logits of the second of two sequences, whose three tokens come in as many calls; the first has one place of padding."""
    import numpy as np

    cache = model.cache(3, 2)
    cache.padding[0] = 1
    for count in counts:
        logits = model.batch_logits(np.zeros((2, count), np.int64), cache)
    return logits[1]
