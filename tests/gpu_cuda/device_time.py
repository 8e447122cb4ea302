"""Times of kernels on an NVIDIA GPU, as CUPTI reports them (torch.profiler)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile


@dataclass
class Kernels:
    """Medians of some calls: the sum of a call's kernels, from the first one's start to the last one's end (both in ms), and
    how many there are."""

    busy: float
    span: float
    count: int
    names: list[tuple[str, float]]  # of one call: each kernel with its µs


def measured(run: Callable[[], Any], overwritten: torch.Tensor, calls: int) -> Kernels:
    """``overwritten`` is written before each call: the L2 cache then holds nothing of the last."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(calls):
            overwritten.zero_()
            run()
            torch.cuda.synchronize()
    kernels = sorted(
        (event.time_range.start, event.time_range.elapsed_us(), event.name)
        for event in profiler.events()
        if event.device_type == DeviceType.CUDA
        and not event.name.startswith(("Memset", "Memcpy"))
        and "FillFunctor" not in event.name  # what overwrites the cache
    )
    each = len(kernels) // calls
    if not each:
        return Kernels(math.nan, math.nan, 0, [])
    of_calls = [kernels[i * each : (i + 1) * each] for i in range(calls)]
    return Kernels(
        statistics.median(sum(us for _, us, _ in call) for call in of_calls) / 1e3,
        statistics.median(call[-1][0] + call[-1][1] - call[0][0] for call in of_calls) / 1e3,
        each,
        [(name, us) for _, us, name in of_calls[-1]],
    )


@dataclass
class Share:
    """What kernels of one name take of a call: together in µs, and how many there are."""

    us: float
    count: float


def by_name(run: Callable[[], Any], calls: int = 5) -> dict[str, Share]:
    """What the device does in a call, copies and fills too, by name: a mean of ``calls`` calls one after the other. Empty where
    the profiler sees no device."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(calls):
            run()
        torch.cuda.synchronize()
    found: dict[str, Share] = {}
    for event in profiler.events():
        if event.device_type == DeviceType.CUDA:
            share = found.setdefault(event.name, Share(0, 0))
            share.us += event.time_range.elapsed_us() / calls
            share.count += 1 / calls
    return found
