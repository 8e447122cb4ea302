"""The child of ``zefuse selftest``: compiles and checks parts one after the other and says a line before and after each, so
that its parent knows which one it was at when it hung or crashed.
"""

from __future__ import annotations

import copy
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

PREFIX = "zefuse-selftest: "
_RUNS = 10  # calls that are timed; fewer when they take longer than _RUNS_SECONDS
_RUNS_SECONDS = 0.5


def say(**what: Any) -> None:
    os.write(1, f"\n{PREFIX}{json.dumps(what)}\n".encode())


def main(device: str, names: list[str], timeout_s: int) -> None:
    """``timeout_s``: how long one step may take on a GPU before zefuse itself gives it up."""
    import warnings

    warnings.simplefilter("ignore")
    import torch

    from zefuse import targets

    here = {one["device"]: one for one in targets.devices()}
    found = here.get("gpu:0" if device == "gpu" else device)
    say(torch=str(torch.__version__), threads=torch.get_num_threads(), device=found)
    if found is None:
        say(no_device=True)
        return
    from zefuse.selftest import parts

    options = {"device": device, "cache_dir": "", "device_timeout_s": timeout_s}  # no cache: compiling is tested too
    for name in names:
        say(begin=name)
        try:
            say(end=name, **check(parts.PARTS[name], options))
        except Exception as error:  # a refusal, a lost device, a bug: the other parts are still of interest
            say(end=name, result="error", message=_message(error))
            return  # what the error leaves behind is not the next part's: it gets a process of its own


def check(make: Callable[[], Any], options: dict[str, Any]) -> dict[str, Any]:
    """``result`` is pass or wrong; compiles, compares with eager and with f64, and times the calls after the first."""
    import torch

    from zefuse.graphs import observers

    torch._dynamo.reset()
    torch.manual_seed(0)
    function, inputs = make()
    exactly = run(_in_f64(function), tuple(_in_f64(value) for value in inputs))
    expected = run(copy.deepcopy(function), inputs)
    counts = {"kernels": 0, "calls": 0, "fallbacks": 0}

    def count(_: str, graph: Any) -> None:
        report = graph.report()
        for kind in counts:
            counts[kind] += len(report[kind])

    compiled = torch.compile(function, backend="zefuse", options=options, dynamic=False)
    with observers.observe(count):
        start = time.perf_counter()
        actual = run(compiled, inputs)
        compile_ms = (time.perf_counter() - start) * 1e3
    error, allowed = compare(actual, expected, exactly)
    times: list[float] = []
    while len(times) < _RUNS and sum(times) < _RUNS_SECONDS:
        start = time.perf_counter()
        run(compiled, inputs)
        times.append(time.perf_counter() - start)
    good = error <= allowed and counts["kernels"] + counts["calls"] > 0
    message = ""
    if error > allowed:
        message = f"differs from eager by {error:.1e} of the largest value, allowed {allowed:.1e}"
    elif not good:
        message = "nothing was compiled"
    return {
        "result": "pass" if good else "wrong",
        "message": message,
        "compile_ms": round(compile_ms, 1),
        "run_ms": round(statistics.median(times) * 1e3, 4),
        "error": error,
        **counts,
    }


def _in_f64(value: Any) -> Any:
    import torch

    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).double()
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


def run(function: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """The results; of a model its loss and its parameters' gradients."""
    import torch
    from torch.utils import _pytree as pytree

    if not isinstance(function, torch.nn.Module):
        with torch.no_grad():
            return pytree.tree_leaves(function(*inputs))
    function.zero_grad()
    loss = function(*inputs).square().mean()
    loss.backward()
    return [loss.detach(), *(one.grad for one in function.parameters())]


def compare(actual: list[Any], expected: list[Any], exactly: list[Any]) -> tuple[float, float]:
    """Of the result that is worst, the largest error against eager over the largest magnitude, and what is allowed: torch's
    tolerance for f32, or what eager itself is off f64, where that is more. Indices have to be equal."""
    import torch

    nowhere = float("inf"), 0.0
    if len(actual) != len(expected):
        return nowhere
    found = [(0.0, 1.0)]
    # A gradient that is rounding errors alone, beside others of the model, has no digits to compare.
    floor = 1e-3 * max((one.abs().max().item() for one in exactly if one.is_floating_point()), default=0.0)
    for ours, eager, exact in zip(actual, expected, exactly, strict=True):
        if ours.shape != eager.shape or ours.dtype != eager.dtype:
            return nowhere
        if not eager.is_floating_point():
            if not torch.equal(ours, eager):
                return nowhere
            continue
        if not ours.isfinite().all():
            return nowhere
        scale = max(exact.abs().max().item(), floor, 1e-30)
        error = (ours.double() - eager.double()).abs().max().item() / scale
        # Both are rounded: ours may be off as far on the other side.
        eagers = (eager.double() - exact).abs().max().item() / scale
        found.append((error, max(1.3e-6 + 1e-5 / max(scale, 1.0), 4 * eagers)))
    return max(found, key=lambda one: one[0] / one[1])


def _message(error: BaseException) -> str:
    """The first line of what was raised first: Dynamo wraps it."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[0].strip()}"[:600]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3:], int(sys.argv[2]))
