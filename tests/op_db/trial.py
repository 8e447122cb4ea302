"""One sample call in eager and compiled, compared."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from database import Call, copies, in_double
from execute import decomposed, sharing_of
from op_check import assert_as_good_as_eager
from torch import Tensor
from torch.utils._pytree import tree_leaves

from zefuse.backend import observe, zefuse

BACKENDS = {"aot_eager": "torch", "decomposed": "decomposition"}  # who else differs, and what that is called


@dataclass
class Seen:
    """All that a caller could see of one call."""

    error: str = ""
    outputs: list[Any] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)  # as the call left them
    gradients: list[Tensor | None] = field(default_factory=list)
    sharing: list[str] = field(default_factory=list)


@dataclass
class Road:
    """How a call was compiled."""

    fallbacks: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)  # reasons of graphs that ran in eager
    graphs: int = 0


def trial(call: Call, mode: str) -> dict[str, Any]:
    """``status``: "same", "refused" (eager raises, as we do), "torch" or "decomposition" (it differs, and so does aot_eager, or
    eager on the decompositions that we ask for), or "wrong"."""
    expected = _run(call, call.function, mode)
    seen, road = _compiled(call, mode, "zefuse")
    found = _differences(call, mode, expected, seen)
    answer: dict[str, Any] = {
        "status": "refused" if expected.error else "same",
        "fallbacks": sorted(road.fallbacks),
        "whole": sorted(road.whole),
        "graphs": road.graphs,
    }
    if not found:
        return answer
    for backend, whose in BACKENDS.items():
        theirs = dict(_differences(call, mode, expected, _compiled(call, mode, backend)[0]))
        # What a decomposition changes of a value is ours to mend: we asked for it. Strides it cannot keep.
        left = {kind: text for kind, text in found.items() if kind not in theirs}
        if not left:
            kind, text = next(iter(found.items()))
            return answer | {"status": whose, "kind": kind, "text": text}
    kind, text = next(iter(left.items()))
    return answer | {"status": "wrong", "kind": kind, "text": f"{text}\n    {call.text}"}


def _compiled(call: Call, mode: str, backend: str) -> tuple[Seen, Road]:
    """Without Dynamo where that is possible: it takes more time than all of the rest. What AOTAutograd refuses alone (sizes that
    depend on data, numbers as results) goes through Dynamo."""
    road = Road()
    graphs: list[Any] = []
    with warnings.catch_warnings(record=True) as said, observe(lambda _, graph: graphs.append(graph)):
        warnings.simplefilter("always")
        direct = mode in ("static", "training", "inplace")
        seen = _run(call, _directly(call, backend), mode) if direct else Seen(error="not tried")
        if seen.error:
            graphs.clear()
            torch._dynamo.reset()
            used: Any = decomposed if backend == "decomposed" else backend
            function = torch.compile(call.function, backend=used, dynamic=True if mode == "dynamic" else None)
            seen = _run(call, function, mode)
    road.graphs = len(graphs)
    road.whole = {str(w.message) for w in said if "runs in eager" in str(w.message)}
    for graph in graphs:
        road.fallbacks |= {f"{entry['op']}: {entry['reason']}" for entry in graph.report()["fallbacks"]}
    return seen, road


def _directly(call: Call, backend: str) -> Callable[..., Any]:
    def flat(*tensors: Tensor) -> tuple[Any, ...]:
        return tuple(tree_leaves(call.function(*tensors)))

    def function(*tensors: Tensor) -> Any:
        graph = torch.fx.Graph()
        made = graph.call_function(flat, tuple(graph.placeholder(f"x{n}") for n in range(len(tensors))))
        with torch.random.fork_rng(devices=[]):  # the compiled call draws what eager's did
            count = len(tree_leaves(call.function(*(t.detach().clone() for t in tensors))))
        graph.output(tuple(graph.call_function(_pick, (made, n)) for n in range(count)))
        module = torch.fx.GraphModule({}, graph)
        if backend == "zefuse":
            return zefuse(module, list(tensors))(*tensors)
        from torch._dynamo.backends.debugging import aot_eager

        return (decomposed if backend == "decomposed" else aot_eager)(module, list(tensors))(*tensors)

    return function


def _pick(values: tuple[Any, ...], number: int) -> Any:
    return values[number]


def _run(call: Call, function: Callable[..., Any], mode: str) -> Seen:
    seen = Seen(inputs=copies(call.tensors))
    torch.manual_seed(0)
    try:
        with torch.set_grad_enabled(mode == "training"), warnings.catch_warnings():
            if function is call.function:
                warnings.simplefilter("ignore")
            seen.outputs = tree_leaves(function(*seen.inputs))
            seen.sharing = sharing_of(seen.inputs, seen.outputs)
            if mode == "training":
                _backward(seen.outputs)
                seen.gradients = [t.grad for t in seen.inputs if t.requires_grad]
    except Exception as error:
        seen.error = f"{type(error).__name__}: {error}"
        seen.outputs = []
    return seen


def _backward(outputs: Sequence[Any]) -> None:
    wanted = [out for out in outputs if isinstance(out, Tensor) and out.requires_grad]
    generator = torch.Generator().manual_seed(1)
    weights = [torch.rand(out.shape, generator=generator, dtype=torch.float64) + 0.5 for out in wanted]
    if wanted:
        torch.autograd.backward(wanted, [w.to(o.dtype) for w, o in zip(weights, wanted, strict=True)])


def _differences(call: Call, mode: str, expected: Seen, seen: Seen) -> dict[str, str]:
    """Of each kind, the first."""
    if bool(expected.error) != bool(seen.error):
        return {"our error": seen.error[:600]} if seen.error else {"no error": f"eager: {expected.error[:600]}"}
    found: dict[str, str] = {}
    if expected.error:
        return found
    double: list[Seen] = []

    def exact() -> Seen:
        if not double:
            wide = in_double(call)
            double.append(_run(wide, wide.function, mode))
        return double[0]

    for name in ("outputs", "inputs", "gradients"):
        eagers, ours = getattr(expected, name), getattr(seen, name)
        prefix = {"outputs": "", "inputs": "input ", "gradients": "gradient "}[name]
        if len(eagers) != len(ours):
            found.setdefault(f"{prefix}count", f"{len(ours)} {name}, eager {len(eagers)}")
            continue
        for number, (eager, our) in enumerate(zip(eagers, ours, strict=True)):
            for kind, text in _between(eager, our, lambda: getattr(exact(), name)[number]):  # noqa: B023
                found.setdefault(f"{prefix}{kind}", f"{name} {number}: {text}")
    for number, (eager, our) in enumerate(zip(expected.sharing, seen.sharing, strict=False)):
        if eager != our:
            text = f"outputs {number}: lies in {our or 'memory of its own'}, in eager in {eager or 'memory of its own'}"
            found.setdefault("sharing", text)
    return found


def _between(eager: Any, our: Any, exact: Callable[[], Any]) -> list[tuple[str, str]]:
    if not isinstance(eager, Tensor) or not isinstance(our, Tensor):
        same = type(eager) is type(our) and (eager == our or eager != eager)
        return [] if same else [("kind", f"{our!r}, eager {eager!r}"[:300])]
    for what in ("dtype", "layout", "shape", "requires_grad", "is_nested"):
        if getattr(eager, what) != getattr(our, what):
            return [(what, f"{what} {getattr(our, what)}, eager {getattr(eager, what)}")]
    found = []
    if eager.layout is torch.strided and eager.numel():
        pairs = zip(eager.shape, eager.stride(), our.stride(), strict=True)
        if any(size > 1 and theirs != ours for size, theirs, ours in pairs):
            found.append(("strides", f"{our.stride()}, eager {eager.stride()}, shape {tuple(eager.shape)}"))
    try:
        assert_as_good_as_eager(our.detach(), eager.detach(), lambda: exact().detach())
    except Exception as mismatch:  # or the call is none in double precision
        if not _near(our.detach(), eager.detach(), exact):
            found.append(("value", " ".join(str(mismatch).split())[:300]))
    return found


def _near(our: Tensor, eager: Tensor, exact: Callable[[], Any]) -> bool:
    """Whether the error is that of another order of summing: a few units in the last place of the largest number, or four times what
    eager's largest error is."""
    try:
        reference = exact().detach()
    except Exception:
        return False
    wide = {torch.float64: torch.float64, torch.complex128: torch.complex128}.get(reference.dtype)
    if wide is None or our.is_complex() != wide.is_complex or not (our.is_floating_point() or our.is_complex()):
        return False
    if reference.shape != our.shape:
        return False
    finite = reference.isfinite()
    if not torch.equal(our.isfinite(), finite) or not torch.equal(eager.isfinite(), finite):
        return False
    exacts = reference[finite]
    error = (our.to(wide)[finite] - exacts).abs().max()
    allowed = max(
        8 * torch.finfo(our.dtype).eps * exacts.abs().max(), 4 * (eager.to(wide)[finite] - exacts).abs().max()
    )
    return bool(error <= allowed) and torch.equal(_finite(our[~finite]), _finite(eager[~finite]))


def _finite(tensor: Tensor) -> Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).nan_to_num()
