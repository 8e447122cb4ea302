"""``zefuse.check(model, inputs)``: is the compiled model right, in every way it can be called, and does compiling pay?"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from zefuse.checking import comparing, modes, report, running, timing
from zefuse.checking.comparing import Difference
from zefuse.checking.modes import Mode
from zefuse.checking.report import ModeResult, Report
from zefuse.checking.running import Outcome
from zefuse.checking.subject import State, Subject
from zefuse.errors import InvalidArgumentError, OptionError
from zefuse.explaining.explanation import Explanation
from zefuse.graphs import observers
from zefuse.options import Options

_NO_REFERENCE = 0.05  # eager's distance from f64, relative, even in bf16

__all__ = ["Difference", "ModeResult", "Report", "check"]


def check(
    model: Callable[..., Any],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    modes: str | Sequence[str] = "usual",
    options: Mapping[str, Any] | Options | None = None,
    tolerance: float | None = None,
    timed: bool = True,
    inductor: bool = False,
    seconds: float = 2.0,
    reproducer: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Compares a compiled model with eager, and both with f64; then times it.

    ``inputs``: a tensor, a tuple or list of positional arguments, or a dict of keyword arguments. ``modes``: ``"usual"``,
    ``"all"`` (their combinations: 48 for a network of images), or names such as ``["grad,bf16", "no_grad,dynamic"]``, of the
    words grad, no_grad, inference_mode, channels_last, bf16 (autocast), one_thread, dynamic.

    Compared are outputs, gradients of parameters and inputs, buffers, and inputs that the model writes. An element may be as
    far from f64 as four times eager's worst one, or 1e-5 (f32), 1.6e-2 (bf16) of its tensor's largest; ``tolerance`` sets that
    relative bound instead. Each run starts from the same seed and the same parameters, which stay as they are.

    ``timed``: also measure, for ``seconds``, a call (of a model in training mode a step: forward and backward) against eager,
    and with ``inductor`` against Inductor. ``reproducer``: where something differs, a folder for a program that shows it.
    ``progress`` is told what is going on.

    Not thread-safe: it sets torch's thread count for a while. Raises InvalidArgumentError where the model cannot be called in
    eager, and OptionError; what the compiled model raises is in the report.
    """
    say = progress or (lambda text: None)
    subject = Subject.of(model, inputs, kwargs)
    checked = Options.make(options)
    _check_numbers(tolerance, seconds)
    gradients = _eager_works(subject)
    wanted = _modes(modes, gradients, subject.has_images())
    made = Report(subject.name)
    outcomes: dict[Mode, Outcome] = {}
    exact: dict[bool, Outcome | str] = {}
    with running.room_for_modes():
        for number, mode in enumerate(wanted):
            say(f"{number + 1} of {len(wanted)}: {mode.name}")
            result, outcome = _check_mode(subject, mode, checked, tolerance, exact)
            made.modes.append(result)
            if outcome is not None and result.verdict == report.SAME:
                outcomes[mode] = outcome
        if made.compared():
            made.notes += dict.fromkeys(text for text in exact.values() if isinstance(text, str))
        _compare_modes(made, outcomes, tolerance)
        different = next((result for result in made.modes if result.verdict == report.DIFFERENT), None)
        if different is not None:
            say(f"looking for the operator that differs in {different.mode}")
            _find_culprit(made, subject, wanted[made.modes.index(different)], checked, tolerance, reproducer)
        if timed:
            made.timing = timing.of_model(subject, checked, inductor, seconds, say)
    return made


def _check_numbers(tolerance: float | None, seconds: float) -> None:
    if tolerance is not None and (
        isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or tolerance < 0
    ):
        raise InvalidArgumentError(
            f"tolerance={tolerance!r}: expected a number from 0 on, relative to each tensor's largest"
        )
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 3600:
        raise InvalidArgumentError(f"seconds={seconds!r}: expected a number above 0, at most 3600")


def _eager_works(subject: Subject) -> bool:
    """Whether gradients can be had. Raises InvalidArgumentError where a plain call fails."""
    if subject.is_meta():
        raise InvalidArgumentError(
            f"{subject.name} has tensors on torch's meta device, which hold no numbers to compare; give it weights and inputs "
            "(load_state_dict(..., assign=True), torch.randn)"
        )
    subject.require_eager()
    try:
        outcome = _eager(subject, Mode("grad"))
    except Exception:  # is said of the mode
        return True
    return any(name.startswith("gradient") for name in outcome.values)


def _modes(wanted: str | Sequence[str], gradients: bool, images: bool) -> list[Mode]:
    if wanted == "usual":
        return modes.usual(gradients=gradients, images=images)
    if wanted == "all":
        return modes.every(gradients=gradients, images=images)
    found = modes.named(wanted)
    if not found:
        raise InvalidArgumentError("modes=[]: name one at least, or leave it out")
    return found


def _eager(subject: Subject, mode: Mode, calls: int = 1) -> Outcome:
    """The last of so many calls of one copy: what a model counts in attributes of its own goes on."""
    prepared = running.prepared_for(subject, mode)
    state = State(prepared.model)
    try:
        for _ in range(calls - 1):
            running.run(prepared.model, prepared, mode, state)
        return running.run(prepared.model, prepared, mode, state)
    finally:
        if not prepared.owned:
            state.give_back()


def _exact(subject: Subject, mode: Mode, eager: Outcome) -> Outcome | str:
    """In f64, or why that is not to be had."""
    plain = Mode("grad" if mode.grad == "grad" else "no_grad")
    why = "there is no reference in f64, so eager is the reference"
    try:
        prepared = running.prepared_for(subject, plain).double()
        with running.SameDraws():  # type: ignore[no-untyped-call]
            made = running.run(prepared.model, prepared, plain, State(prepared.model))
    except Exception as error:
        return f"{why}: in f64 the model raises {type(error).__name__}: {_first_line(error)}"
    # As an allowance it would let anything pass.
    apart = comparing.compare(eager, eager, made).eager_error or 0.0
    if apart > _NO_REFERENCE:
        return f"{why}: the model in f64 is {apart:.1g} away, as if it computed something else there"
    return made


def _check_mode(
    subject: Subject, mode: Mode, options: Options, tolerance: float | None, references: dict[bool, Outcome | str]
) -> tuple[ModeResult, Outcome | None]:
    result = ModeResult(mode.name)
    began = time.perf_counter()
    try:
        eager, again = _eager(subject, mode), _eager(subject, mode)
        eager_second = _eager(subject, mode, calls=2)
    except Exception as error:
        result.verdict = report.LEFT_OUT
        result.message = f"eager raises {type(error).__name__}: {_first_line(error)}"
        return result, None
    backward = mode.grad == "grad"
    if backward not in references:
        references[backward] = _exact(subject, mode, eager)
    exact = references[backward]
    explanation = Explanation()
    prepared = running.prepared_for(subject, mode)
    state = State(prepared.model)
    try:
        compiled = running.compiled(prepared.model, mode, options)
        with _counting(explanation, result):
            ours = running.run(compiled, prepared, mode, state)
            second = running.run(compiled, prepared, mode, state)
            longer = _longer(compiled, subject, mode, prepared, state) if mode.dynamic else None
    except OptionError:
        raise
    except Exception as error:
        result.verdict = report.FAILED
        result.message = f"the compiled model raises {type(error).__name__}: {_first_line(error)}"
        return result, None
    finally:
        if not prepared.owned:
            state.give_back()
    settings: dict[str, Any] = {"computed_in": torch.bfloat16 if mode.bf16 else None, "tolerance": tolerance}
    reference = exact if isinstance(exact, Outcome) else None
    found = comparing.compare(ours, eager, reference, **settings)
    result.differences, result.error, result.eager_error = found.differences, found.error, found.eager_error
    noise = comparing.compare(again, eager, None, **settings)
    if noise.differences:
        result.verdict = report.UNCLEAR
        result.differences = []
        result.message = (
            f"eager differs from itself with the same seed ({noise.differences[0].where}), so nothing can be said; a seed "
            "of its own, threads that race, or state outside of the module's parameters and buffers would do that"
        )
        return result, ours
    stateful = bool(comparing.compare(eager_second, eager, None, **settings).differences)
    if stateful:
        result.notes.append("a second call gives another result, in eager too: the model keeps a state of its own")
    repeated = comparing.compare(second, eager_second if stateful else ours, None, **settings)
    result.differences += [_renamed(difference, "in a second call") for difference in repeated.differences]
    if longer is not None:
        result.differences += [_renamed(difference, "with one row more") for difference in longer.differences]
    if result.differences:
        result.verdict = report.DIFFERENT
    result.notes += _strides(ours, eager)
    result.seconds = time.perf_counter() - began
    return result, ours


class _counting:
    """Fills a result with what was compiled inside."""

    def __init__(self, explanation: Explanation, result: ModeResult) -> None:
        self._explanation, self._result = explanation, result
        self._observing = observers.observe(explanation.add)

    def __enter__(self) -> None:
        from torch._dynamo.utils import counters

        self._before = Counter(counters["graph_break"])
        self._observing.__enter__()

    def __exit__(self, *error: Any) -> None:
        from torch._dynamo.utils import counters

        self._observing.__exit__(*error)
        made, result = self._explanation, self._result
        result.kernels, result.calls = len(made.kernels), len(made.calls)
        result.fallbacks, result.graphs = len(made.fallbacks), len(made.graphs)
        result.graph_breaks = sum((Counter(counters["graph_break"]) - self._before).values())
        if not made.graphs:
            result.notes.append("nothing was compiled; zefuse.explain says why")
        for op, reason in {(entry["op"], entry["reason"]) for entry in made.fallbacks}:
            result.notes.append(f"{op} runs through ATen: {reason}")


def _longer(
    compiled: Callable[..., Any], subject: Subject, mode: Mode, prepared: Subject, state: State
) -> comparing.Compared | None:
    """The same compilation, called with one row more; nothing where eager does not take that."""
    more = subject.longer()
    if more is None:
        return None
    try:
        eager = _eager(more, mode)
    except Exception:
        return None
    ours = running.prepared_for(more, mode)
    called = Subject(prepared.model, ours.args, ours.kwargs)
    outcome = running.run(compiled, called, mode, state)
    return comparing.compare(outcome, eager, None, computed_in=torch.bfloat16 if mode.bf16 else None, tolerance=1e-4)


def _renamed(difference: Difference, when: str) -> Difference:
    return Difference(**{**vars(difference), "where": f"{difference.where} {when}"})


def _strides(ours: Outcome, eager: Outcome) -> list[str]:
    """Results that lie otherwise than eager's: right, but what comes next may copy them."""
    return [
        f"{name} has strides {tuple(tensor.stride())}, in eager {tuple(twin.stride())}"
        for name, tensor in ours.tensors().items()
        if name.startswith("output")
        and isinstance(twin := eager.values.get(name), torch.Tensor)
        and tensor.layout is twin.layout is torch.strided
        and tensor.shape == twin.shape
        and tensor.numel() > 1
        and tensor.stride() != twin.stride()
    ]


def _compare_modes(made: Report, outcomes: Mapping[Mode, Outcome], tolerance: float | None) -> None:
    """Compiled results of modes that compute the same, against each other: outputs alone, since not all have gradients."""
    plain = {mode: _outputs(outcome) for mode, outcome in outcomes.items() if not mode.bf16}
    if len(plain) < 2:
        return
    (first, one), *others = plain.items()
    for mode, other in others:
        apart = comparing.distance(other, one)
        made.between_modes = max(made.between_modes, apart)
        both = comparing.compare(other, one, None, tolerance=tolerance)
        result = next(result for result in made.modes if result.mode == mode.name)
        allowed = 2 * max(made.modes[0].eager_error or 0.0, result.eager_error or 0.0) * 4
        if both.differences and apart > allowed:
            result.verdict = report.DIFFERENT
            result.differences += [_renamed(difference, f"against {first.name}") for difference in both.differences]


def _outputs(outcome: Outcome) -> Outcome:
    return Outcome({name: value for name, value in outcome.values.items() if name.startswith("output")})


def _find_culprit(
    made: Report, subject: Subject, mode: Mode, options: Options, tolerance: float | None, folder: str | None
) -> None:
    from zefuse.checking import bisecting

    prepared = running.prepared_for(subject, mode)
    state = State(prepared.model)

    def call() -> None:
        running.run(running.compiled(prepared.model, mode, options), prepared, mode, state)

    try:
        found = bisecting.find(call, mode, options, tolerance, folder)
    except Exception as error:  # the check has its answer; this is more
        made.culprit_message = f"The operator was not found: {type(error).__name__}: {_first_line(error)}"
        return
    if isinstance(found, str):
        made.culprit_message = found
    else:
        made.culprit = found


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "no message")
