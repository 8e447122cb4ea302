"""Compares what a compiled program did with what eager did.

A value that differs more than an operator's usual tolerance is held against eager itself, disturbed: run again with each input and
each step's result off by about its last bit, in double precision, without what in normalised rows is no more than the last bit of the
largest element, and by other ways (other_ways.py). What changes there by as much is not the
compiler's fault: the program does not determine it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from columns import BY_NAME
from execute import Outcome, eager
from other_ways import OTHER_WAYS, OTHER_WAYS_OF_GPUS
from program import Program
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

DISTURBED_RUNS = (6, 30)  # the second where something is still wrong after the first
# How much of what the disturbance changed, and how many tolerances, an element may differ.
FACTOR, TOLERANCES = 6.0, 8.0
# The same of one that eager computes within a tolerance of double precision and that disturbance changes by few: rounding is all there
# is. What cancels may be exact in eager by chance, and few runs show how far off it gets.
DETERMINED_FACTOR, DETERMINED_TOLERANCES, DETERMINED_CHANGE = 2.0, 1.0, 4.0
# How far eager's own numbers may be from double precision, as a rule, to be held to as much: no number of bf16 is farther off.
MOST_TYPICAL = 0.02
# What writes numbers as they are, or whole ones, in place.
_EXACT_WRITES = r"\.(copy|fill|zero|masked_fill|\w*put|\w*scatter\w*|index_\w+|relu|abs|neg|clamp\w*|floor|ceil|round|trunc|sign|sgn)_\("
TOLERANCE = {  # relative, absolute
    torch.float16: (2e-3, 1e-4),
    torch.bfloat16: (1.6e-2, 1e-4),
    torch.float32: (4e-6, 2e-6),
    torch.float64: (1e-12, 1e-12),
    torch.complex64: (4e-6, 2e-6),
    torch.complex128: (1e-12, 1e-12),
}


@dataclass
class Difference:
    kind: str  # "error", "value", "nan", "dtype", "shape", "strides", "sharing", "input value", ...
    text: str


def differences(program: Program, expected: list[Outcome], actual: list[Outcome]) -> list[Difference]:
    found: list[Difference] = []
    spread = _Spread(program)
    for call, (theirs, ours) in enumerate(zip(expected, actual, strict=True)):
        at = f"call {call} " if len(expected) > 1 else ""
        if theirs.error is not None and ours.error is None:
            theirs = _by_the_other_lstm(program, theirs.error, call) or theirs
        if (theirs.error is None) != (ours.error is None):
            kind = "our error" if ours.error else "no error"
            text = (ours.error or theirs.error or "").strip()
            return [*found, Difference(kind, f"{at}{'ours' if ours.error else 'eager'}: {text}")]
        if theirs.error is not None:
            return found  # later calls too: eager's and our inputs may be half written
        for name, one, other in (
            ("output", theirs.outputs, ours.outputs),
            ("input", theirs.inputs, ours.inputs),
            ("gradient", theirs.gradients, ours.gradients),
        ):
            if len(one) != len(other):
                found.append(Difference("count", f"{at}{len(other)} {name}s, eager {len(one)}"))
                continue
            for number, (eager_value, our_value) in enumerate(zip(one, other, strict=True)):
                place = (call, name, number)
                found += _of_value(name, f"{at}{name} {number}", place, eager_value, our_value, spread)
        for number, (one, other) in enumerate(zip(theirs.sharing, ours.sharing, strict=False)):
            if one != other:
                text = f"{at}output {number} lies in {other or 'memory of its own'}, in eager in {one or 'memory of its own'}"
                found.append(Difference("sharing", text))
    return found


class _Spread:
    """The disturbed runs, made when a value asks."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._others: list[list[Outcome]] = []
        self._runs: list[list[Outcome]] = []
        self._double: list[Outcome] = []

    def of(self, place: tuple[int, str, int], count: int) -> list[Tensor]:
        if not self._runs:
            self._double = _in_double(self._program)
            others = self._double, _without_last_bits(self._program), _by_other_kernels(self._program)
            self._others = [run for run in (*others, *_by_other_ways(self._program)) if run]
        self._runs += [_disturbed(self._program, seed) for seed in range(len(self._runs), count)]
        return [value for run in (*self._runs, *self._others) if (value := _value_of(run, place)) is not None]

    def in_double(self, place: tuple[int, str, int]) -> Tensor | None:
        return _value_of(self._double, place)


def _value_of(run: list[Outcome], place: tuple[int, str, int]) -> Tensor | None:
    call, name, number = place
    values = getattr(run[call], f"{name}s")
    if run[call].error is None and number < len(values) and isinstance(values[number], Tensor):
        return values[number].detach()
    return None


def _of_value(
    name: str, text: str, place: tuple[int, str, int], theirs: Any, ours: Any, spread: _Spread
) -> list[Difference]:
    prefix = "" if name == "output" else f"{name} "
    if not isinstance(theirs, Tensor) or not isinstance(ours, Tensor):
        same = type(theirs) is type(ours) and (theirs == ours or theirs != theirs)
        said = ["a tensor" if isinstance(each, Tensor) else repr(each)[:80] for each in (ours, theirs)]
        return [] if same else [Difference(f"{prefix}kind", f"{text}: {said[0]}, eager {said[1]}")]
    for what in ("dtype", "is_nested", "requires_grad"):
        if getattr(theirs, what) != getattr(ours, what):
            return [
                Difference(f"{prefix}{what}", f"{text}: {what} {getattr(ours, what)}, eager {getattr(theirs, what)}")
            ]
    if type(theirs) is not type(ours):
        return [Difference(f"{prefix}type", f"{text}: {type(ours)}, eager {type(theirs)}")]
    pairs = list(zip(_parts(theirs), _parts(ours), strict=False))
    found: list[Difference] = []
    for number, (one, other) in enumerate(pairs):
        if one.shape != other.shape:
            return [Difference(f"{prefix}shape", f"{text}: {tuple(other.shape)}, eager {tuple(one.shape)}")]
        if _strides(one) != _strides(other):
            found.append(
                Difference(
                    f"{prefix}strides",
                    f"{text}: strides {other.stride()}, eager {one.stride()}, shape {tuple(one.shape)}",
                )
            )
        found += _values(prefix, text, place, number, one, other, spread)
    return found


def _parts(tensor: Tensor) -> list[Tensor]:
    """The plain tensors of which a subclass is made."""
    tensor = tensor.detach()
    if tensor.is_nested:
        return [tensor.values(), tensor.offsets()]
    if hasattr(tensor, "__tensor_flatten__"):
        return [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    return [tensor]


def _strides(tensor: Tensor) -> list[int]:
    """Of what has several elements."""
    if not tensor.numel():
        return []
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _values(
    prefix: str, text: str, place: tuple[int, str, int], part: int, theirs: Tensor, ours: Tensor, spread: _Spread
) -> list[Difference]:
    theirs, ours = theirs.resolve_neg().resolve_conj(), ours.resolve_neg().resolve_conj()
    wrong = _wrong(theirs, ours)
    if not wrong.any():
        return []
    for count in DISTURBED_RUNS:
        runs = spread.of(place, count)
        exact = _exact(theirs, spread.in_double(place), part)
        typical = _typical(theirs, wrong, exact)
        left, limit = _beyond_spread(theirs, ours, wrong, runs, part, typical, exact)
        if not left.any():
            return []
    wrong = left
    at = wrong.nonzero()[0].tolist()
    index = tuple(at)
    kind = "nan" if (theirs[index].isnan() != ours[index].isnan()) else "value"
    count = int(wrong.sum())
    return [
        Difference(
            f"{prefix}{kind}",
            f"{text}: {count} of {wrong.numel()} elements wrong; at {at} {ours[index].item()}, eager {theirs[index].item()}"
            f" (allowed {float(limit[index]):.3g}; {str(theirs.dtype)[6:]}, shape {tuple(theirs.shape)})",
        )
    ]


def _exact(theirs: Tensor, double: Tensor | None, part: int) -> Tensor | None:
    """What a float is in double precision."""
    parts = [] if double is None or theirs.dtype not in TOLERANCE else _parts(double)
    if part >= len(parts) or parts[part].shape != theirs.shape:
        return None
    return _wide(parts[part].resolve_neg().resolve_conj())


def _typical(theirs: Tensor, wrong: Tensor, exact: Tensor | None) -> float:
    """How far eager itself is from double precision, relatively, in half of the elements that differ: a double that was computed
    through single precision, or an f32 through bf16, is as near as those are. Of few elements nothing is typical."""
    if exact is None or int(wrong.sum()) < 4:
        return 0.0
    one = _wide(theirs)[wrong]
    distance = torch.nan_to_num((one - exact[wrong]).abs() / one.abs(), 0.0, 0.0, 0.0).median().item()
    return distance if distance <= MOST_TYPICAL else 0.0


def _beyond_spread(
    theirs: Tensor,
    ours: Tensor,
    wrong: Tensor,
    runs: list[Tensor],
    part: int,
    typical: float,
    exact: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Which elements differ by more than the disturbed runs do, and by how much they may."""
    one, other = _wide(theirs), _wide(ours)
    allowed = typical * torch.nan_to_num(one.abs(), 0.0, 0.0, 0.0)
    turned = torch.zeros(one.shape, dtype=torch.bool)  # a zero whose sign a run changes
    relative, absolute = TOLERANCE.get(theirs.dtype, (0.0, 0.0))
    for run in runs:
        parts = _parts(run)
        if part >= len(parts) or parts[part].shape != theirs.shape:
            continue
        disturbed = parts[part]
        if disturbed.is_floating_point() != theirs.is_floating_point():
            continue
        if theirs.is_floating_point():
            turned |= (disturbed == 0) & (theirs == 0) & (disturbed.signbit() != theirs.signbit())
        change = (_wide(disturbed.resolve_neg().resolve_conj()) - one).abs()
        # NaN or infinity in one run and not in the other: nothing is known of this element.
        change = torch.where(
            disturbed.isfinite() & theirs.isfinite(), change, torch.where(_same(_wide(disturbed), one), 0.0, torch.inf)
        )
        allowed = torch.maximum(allowed, change)
    gap = (other - one).abs()
    gap = torch.where(ours.isfinite() & theirs.isfinite(), gap, torch.where(_same(one, other), 0.0, torch.inf))
    tolerance = relative * torch.nan_to_num(one.abs(), 0, 0, 0) + absolute
    limit = FACTOR * allowed + TOLERANCES * tolerance
    if exact is not None:
        strict = DETERMINED_FACTOR * allowed + DETERMINED_TOLERANCES * tolerance
        determined = ((one - exact).abs() <= tolerance) & (allowed <= DETERMINED_CHANGE * tolerance)
        limit = torch.where(determined, strict, limit)
    # Two zeros of unlike sign are wrong where no disturbance moves them.
    zeros = (one == 0) & (other == 0) & (allowed == 0) & ~turned
    wrong = wrong & (~(gap <= limit) | zeros) & ~allowed.isinf()
    if theirs.dtype in (torch.float16, torch.bfloat16):  # the last bit of what is finite here and overflows there
        wrong &= ~((one.abs() > 5e4) & (other.abs() > 5e4) & (theirs.dtype == torch.float16))
    return wrong, limit


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _same(one: Tensor, other: Tensor) -> Tensor:
    return (one == other) | (one.isnan() & other.isnan())


def _wrong(theirs: Tensor, ours: Tensor) -> Tensor:
    if theirs.dtype not in TOLERANCE:
        return theirs != ours
    relative, absolute = TOLERANCE[theirs.dtype]
    wrong = ~torch.isclose(ours, theirs, rtol=relative, atol=absolute, equal_nan=True)
    if theirs.is_floating_point():
        wrong |= (theirs == 0) & (ours == 0) & (theirs.signbit() != ours.signbit()) & theirs.isfinite()
    return wrong


def _disturbed(program: Program, seed: int) -> list[Outcome]:
    generator = torch.Generator().manual_seed(seed)

    def off(tensor: Tensor) -> Tensor:
        relative = 2 * torch.finfo(tensor.dtype).eps
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        real = torch.float64 if tensor.dtype in (torch.float64, torch.complex128) else torch.float32
        return 1 + (relative * noise).to(real)

    exact_writes = {step.name for step in program.steps if re.search(_EXACT_WRITES, step.text)}
    layers = {step.name: step.args for step in program.steps if re.search(r"torch\.(gru|lstm|rnn_\w+)\(", step.text)}
    incoming: dict[str, float] = {}  # of the layers that read a value, the largest incoming gradient

    def of_gradient(gradient: Tensor, name: str = "") -> Tensor:
        if not _plain(gradient):
            return gradient
        for argument in layers.get(name, ()):
            incoming[argument] = max(incoming.get(argument, 0.0), _largest(gradient))
        more = _by_units(gradient, generator, incoming.get(name, 0.0))
        return _scaled(gradient, off(gradient), more)

    def wrap(result: Any, arguments: list[Any], name: str) -> Any:
        if isinstance(result, Tensor) and result.is_nested:
            return _jagged_off(result, arguments, off)
        if not isinstance(result, Tensor) or not (result.is_floating_point() or result.is_complex()):
            return result
        if any(result is argument for argument in arguments):
            if name not in exact_writes and _plain(result):
                _written_off(result, off, of_gradient)
            return result
        if result._base is not None or any(_same_storage(result, argument) for argument in arguments):
            return result
        more = _by_units(result, generator, _largest(result) if name in layers else 0.0) if _plain(result) else None
        scaled = _scaled(result, off(result), more)
        if scaled.requires_grad:
            # Once more where the program is done with it, whose incoming gradients are others than the result's own.
            scaled.register_hook(partial(of_gradient, name=name))
        return scaled

    def change(inputs: list[Any]) -> list[Any]:
        with torch.no_grad():
            for tensor in (part for value in inputs if isinstance(value, Tensor) for part in _parts(value)):
                if tensor.is_floating_point() and 0 not in tensor.stride():
                    tensor.copy_(tensor * off(tensor))
        return inputs

    torch.manual_seed(seed)
    return eager(program, wrap, change)


def _written_off(result: Tensor, off: Callable[[Tensor], Tensor], of_gradient: Callable[[Tensor], Tensor]) -> None:
    """What an operator wrote over its argument, in place. Views of it and what was saved for the backward pass see it."""
    if 0 not in result.stride() and not result.is_neg() and not result.is_conj():
        result.data.copy_(result.data * off(result))
    if result.requires_grad:
        result.register_hook(of_gradient)


def _by_units(result: Tensor, generator: torch.Generator, of: float) -> Tensor | None:
    """What factors do not change: a subnormal number by one unit, and by the last bit of the number ``of`` what a recurrent layer gives, a
    difference of numbers of about the largest, and its gradient, the incoming one times differences of numbers near 1. Zeros stay: their
    sign is a form of its own."""
    if not result.is_floating_point() or not result.numel():
        return None
    info, size = torch.finfo(result.dtype), torch.nan_to_num(result.detach().abs(), 0, 0, 0)
    more = None
    subnormal = (size > 0) & (size < info.tiny)
    if subnormal.any():
        more = subnormal * (info.tiny * info.eps * torch.randint(-1, 2, size.shape, generator=generator))
    if of:
        row = (size > 0) * (2 * info.eps * of * torch.randn(size.shape, generator=generator))
        more = row if more is None else more + row
    return more


def _largest(value: Tensor) -> float:
    return float(torch.nan_to_num(value.detach().abs(), 0, 0, 0).max()) if value.numel() else 0.0


def _jagged_off(result: Tensor, arguments: list[Any], off: Callable[[Tensor], Tensor]) -> Tensor:
    """In place: its values are of no step before."""
    values = _parts(result)[0]
    before = {_parts(each)[0].untyped_storage().data_ptr() for each in arguments if isinstance(each, Tensor)}
    if values.is_floating_point() and 0 not in values.stride() and values.untyped_storage().data_ptr() not in before:
        with torch.no_grad():
            values.copy_(values * off(values))
    return result


def _scaled(result: Tensor, factor: Tensor, more: Tensor | None = None) -> Tensor:
    """Strides as they were: a later view may ask for them."""
    scaled = (result * factor if more is None else result * factor + more).to(result.dtype)
    if scaled.stride() == result.stride():
        return scaled
    if not _plain(result):
        return result
    return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype).copy_(scaled)


def _plain(value: Any) -> bool:
    return type(value) in (Tensor, torch.nn.Parameter) and not value.is_nested


def _same_storage(one: Tensor, other: Any) -> bool:
    if not isinstance(other, Tensor) or other.is_nested or not one.numel():
        return False
    theirs = {part.untyped_storage().data_ptr() for part in _parts(other)}
    return any(part.untyped_storage().data_ptr() in theirs for part in _parts(one))


def _without_last_bits(program: Program) -> list[Outcome]:
    """What a normalisation gives is a difference from the mean, whose last bit is that of the row's largest: what is less is 0."""
    norms = {step.name for step in program.steps if re.search(r"_norm\(", step.text)}

    def wrap(result: Any, arguments: list[Any], name: str) -> Any:
        if not _plain(result) or not result.numel():
            return result
        if name not in norms:
            return result
        size = torch.nan_to_num(result.detach().abs().double(), 0, 0, 0)
        least = 4 * torch.finfo(torch.promote_types(result.dtype, torch.float32)).eps * size.max()
        return _scaled(result, (~result.isfinite() | (size > least)).to(result.dtype))

    return eager(program, wrap, lambda inputs: inputs) if norms else []


def _by_other_kernels(program: Program) -> list[Outcome]:
    """Of attention, convolutions and LSTMs eager has several kernels, which agree on numbers alone: one leaves out a NaN, or padding times
    infinity, that another multiplies."""
    if not re.search(r"scaled_dot_product_attention\(|F\.conv|torch\.lstm\(", program.function_source()):
        return []
    with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
        return eager(program, None, lambda inputs: inputs)


def _by_the_other_lstm(program: Program, error: str, call: int) -> Outcome | None:
    """oneDNN's LSTM, which is eager's on the CPU, saves its input and its result whatever has a gradient, and so refuses what is
    written over them. ATen's own saves what its derivative reads, and computes. None: that one refuses too."""
    if "modified by an inplace operation" not in error or "torch.lstm(" not in program.function_source():
        return None
    with torch.backends.mkldnn.flags(enabled=False):
        outcome = eager(program)[call]
    return outcome if outcome.error is None else None


def _by_other_ways(program: Program) -> list[list[Outcome]]:
    source = program.function_source()
    on_gpu = BY_NAME[program.column].device != "cpu"
    ways = [*OTHER_WAYS, *(OTHER_WAYS_OF_GPUS if on_gpu else ())]
    return [eager(program, mode=mode) for text, mode in ways if re.search(text, source)]


def _in_double(program: Program) -> list[Outcome]:
    """The same inputs in double precision, every cast to a float too, and what operators make of integers. What is made of another
    input is made of its double."""
    inputs = [
        entry if re.search(r"\bx\d+\b", entry.text) else dataclasses.replace(entry, text=f"doubled({entry.text})")
        for entry in program.inputs
    ]
    steps = [
        dataclasses.replace(step, text=re.sub(r"torch\.(float32|float16|bfloat16)\b", "torch.float64", step.text))
        for step in program.steps
    ]

    # Of probabilities in double precision bernoulli draws others.
    default = torch.float32 if any("bernoulli" in step.text for step in steps) else torch.float64

    def change(inputs: list[Any]) -> list[Any]:
        torch.set_default_dtype(default)  # not before the inputs are drawn, which would be others
        return inputs

    outcomes = []
    before = torch.get_default_dtype()
    for sizes in program.sizes:
        try:
            outcomes += eager(dataclasses.replace(program, inputs=inputs, steps=steps, sizes=[sizes]), None, change)
        finally:
            torch.set_default_dtype(before)
    return outcomes
