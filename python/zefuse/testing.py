"""For the tests of those who compile with zefuse: assert what a model becomes and that it computes what eager does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from zefuse.checking import comparing
from zefuse.checking.running import Outcome
from zefuse.checking.subject import State, Subject
from zefuse.explaining.explanation import Explanation, explain
from zefuse.options import Options


def relative_error(actual: Any, expected: Any) -> float:
    """Largest difference over the largest magnitude expected, over all tensors of two nests (tuples, lists, dicts).

    NaNs and infinities must match in place, else it is infinite. Raises AssertionError where numbers of results, shapes, dtypes or
    what is no tensor differ."""
    worst = 0.0
    ours, theirs = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    assert len(ours) == len(theirs), f"{len(ours)} results, expected {len(theirs)}"
    for mine, reference in zip(ours, theirs, strict=True):
        if not isinstance(reference, torch.Tensor):
            assert mine == reference, f"result {mine!r}, expected {reference!r}"
            continue
        assert mine.shape == reference.shape, f"shape {tuple(mine.shape)}, expected {tuple(reference.shape)}"
        assert mine.dtype == reference.dtype, f"dtype {mine.dtype}, expected {reference.dtype}"
        if reference.numel() == 0:
            continue
        left, right = mine.detach().double(), reference.detach().double()
        if not torch.equal(left.isfinite(), right.isfinite()) or not torch.equal(
            left[~left.isfinite()].nan_to_num(nan=0.5), right[~right.isfinite()].nan_to_num(nan=0.5)
        ):
            return float("inf")
        left, right = left[left.isfinite()], right[right.isfinite()]
        if right.numel():
            scale = max(right.abs().max().item(), torch.finfo(torch.float32).tiny)
            worst = max(worst, (left - right).abs().max().item() / scale)
    return worst


def assert_compiled(
    model: Callable[..., Any],
    inputs: Any,
    *,
    kernels: int | None = None,
    calls: int | None = None,
    fallbacks: int | None = 0,
    graph_breaks: int | None = 0,
    rtol: float | None = None,
    options: Mapping[str, Any] | Options | None = None,
) -> Explanation:
    """Fails, with the explanation, unless ``model`` compiles to these counts and computes what eager does.

    ``inputs``: a tensor, a tuple or list of arguments, or a dict of keyword arguments. A count of ``None`` is not checked.
    ``rtol`` bounds the largest error over the largest magnitude of each result; ``None``: 1e-5 for f32, 1.6e-2 for bf16, also
    where autocast computes in it. Buffers that the model changes are compared too. A model of which nothing is compiled
    fails, unless ``kernels=0`` says that it is so.

    Runs the model twice (once compiled), each time a copy, from the same seed, under the caller's grad mode and autocast.
    ``zefuse.check`` looks at gradients and other modes too. Raises InvalidArgumentError for inputs that do not fit.
    """
    subject = Subject.of(model, inputs)
    expected = _outcome(subject, lambda copy: copy.model(*copy.args, **copy.kwargs))
    explanation = Explanation()

    def explained(copy: Subject) -> Any:
        nonlocal explanation
        explanation = explain(copy.model, *copy.args, options=options, backward=False, **copy.kwargs)
        return explanation.result

    actual = _outcome(subject, explained)
    checks = {
        "kernels": (len(explanation.kernels), kernels),
        "calls": (len(explanation.calls), calls),
        "fallbacks": (len(explanation.fallbacks), fallbacks),
        "graph_breaks": (sum(explanation.graph_breaks.values()), graph_breaks),
    }
    wrong = [
        f"{found} {name}, expected {wanted}" for name, (found, wanted) in checks.items() if wanted not in (None, found)
    ]
    if explanation.nothing_compiled and kernels != 0:
        wrong.insert(0, f"nothing was compiled: {explanation.nothing_compiled}")
    assert not wrong, "; ".join(wrong) + f"\n{explanation}"
    autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    found = comparing.compare(actual, expected, None, computed_in=autocast, tolerance=rtol)
    if found.differences:
        again = _outcome(subject, lambda copy: copy.model(*copy.args, **copy.kwargs))
        hint = ""
        if comparing.compare(again, expected, None, computed_in=autocast, tolerance=rtol).differences:
            hint = "; eager differs from itself with the same seed, so the model is not deterministic"
        elif autocast is not None and rtol is not None and rtol < comparing.RELATIVE[autocast]:
            hint = f"; under autocast {autocast} rounds to {comparing.RELATIVE[autocast]:.1g}: leave rtol out"
        allowed = "" if rtol is None else f", allowed {rtol:.0e}"
        text = f"relative error {found.error:.2e}{allowed}{hint}\n" + "\n".join(map(str, found.differences))
        raise AssertionError(f"{text}\n{explanation}")
    return explanation


def _outcome(subject: Subject, call: Callable[[Subject], Any]) -> Outcome:
    """What a copy of the subject gives, and the buffers it leaves."""
    copy = subject.copy()
    state = State(copy.model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        outcome = Outcome()
        outcome.add("output", call(copy))
    outcome.values |= {f"buffer {name}": tensor for name, tensor in state.changed().items()}
    if not copy.owned:
        state.give_back()
    return outcome
