"""`.venv/bin/python tests/bench/reductions.py [--seconds 0.3] [--sizes 1x320x64x64,...] [--only norm] [--order last,contiguous]`:
reductions and normalizations of images, forward and backward: processor time of one thread, medians of calls in turn, in
microseconds, of eager, of eager with Dynamo's guards (backward: with AOTAutograd's call, `backend="aot_eager"`), and of zefuse; then
zefuse's ratios to both. Those below 0.95 of the second are marked: what a call costs whatever it computes is not the kernels'.

`--along last,middle,first [--dtype f32,bf16]`: reductions of tensors instead, along one of their dimensions.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tests" / "bench")]

import zefuse_bench  # noqa: E402

Function = Callable[..., Any]

SIZES = "1x320x64x64,1x384x32x32,2x128x32x32,1x64x56x56,2x512x16x16,8x128x32x32"
FUNCTIONS: dict[str, Function] = {
    "group_norm": lambda x, w, b: F.group_norm(x, 32, w, b),
    "instance_norm": lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    "batch_norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "softmax of channels": lambda x, w, b: x.softmax(1),
    "softmax of places": lambda x, w, b: x.flatten(2).softmax(-1),
    "sum": lambda x, w, b: x.sum((2, 3)),
    "mean": lambda x, w, b: x.mean((2, 3)),
    "amax": lambda x, w, b: x.amax((2, 3)),
    "var": lambda x, w, b: x.var((2, 3)),
}

TENSORS = "8x64x96,32x256x384"
ALONG = {"first": 0, "middle": 1, "last": -1}
ALONG_FUNCTIONS: dict[str, Callable[[int], Function]] = {
    "softmax": lambda dim: lambda x: x.softmax(dim),
    "log_softmax": lambda dim: lambda x: x.log_softmax(dim),
    "logsumexp": lambda dim: lambda x: x.logsumexp(dim),
    "sum": lambda dim: lambda x: x.sum(dim),
    "mean": lambda dim: lambda x: x.mean(dim),
    "amax": lambda dim: lambda x: x.amax(dim),
    "max": lambda dim: lambda x: x.max(dim).values,
    "var": lambda dim: lambda x: x.var(dim),
    "norm": lambda dim: lambda x: x.norm(dim=dim),
    "cumsum": lambda dim: lambda x: x.cumsum(dim),
    "argmax": lambda dim: lambda x: x.argmax(dim),
    "topk": lambda dim: lambda x: x.topk(4, dim).values,
    "prod": lambda dim: lambda x: x.prod(dim),
}
LAST_FUNCTIONS: dict[str, Callable[[], Function]] = {
    "layer_norm": lambda: lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda: lambda x: F.rms_norm(x, x.shape[-1:]),
    "cross_entropy": lambda: _cross_entropy,
}
WITHOUT_GRADIENT = {"argmax"}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def _cross_entropy(x: Tensor) -> Tensor:
    rows = x.flatten(0, -2)
    return F.cross_entropy(rows, torch.arange(rows.shape[0]) % rows.shape[1])


def inputs(sizes: tuple[int, ...], order: str = "last") -> list[Tensor]:
    x = torch.randn(sizes)
    if order == "last":
        x = x.to(memory_format=torch.channels_last)
    return [x, torch.randn(sizes[1]), torch.randn(sizes[1])]


def forward(function: Function, given: list[Tensor]) -> dict[str, Callable[[], object]]:
    ways = [function, *(torch.compile(function, backend=backend, dynamic=False) for backend in ("eager", "zefuse"))]
    return {name: partial(way, *given) for name, way in zip(("eager", "guarded", "zefuse"), ways, strict=True)}


def backward(function: Function, given: list[Tensor]) -> dict[str, Callable[[], object]]:
    ways = [function, *(torch.compile(function, backend=backend, dynamic=False) for backend in ("aot_eager", "zefuse"))]
    found: dict[str, Callable[[], object]] = {}
    leaves = [tensor.requires_grad_() for tensor in given]
    for name, way in zip(("eager", "guarded", "zefuse"), ways, strict=True):
        y = way(*leaves)
        found[name] = partial(torch.autograd.grad, y, leaves, torch.randn_like(y), retain_graph=True, allow_unused=True)
    return found


def cases(asked: argparse.Namespace) -> Iterator[tuple[str, Function, Callable[[], list[Tensor]], bool]]:
    """Name, function, its inputs, whether it has gradients."""
    for text in (asked.sizes or (TENSORS if asked.along else SIZES)).split(","):
        sizes = tuple(int(size) for size in text.split("x"))
        if not asked.along:
            for order in asked.order.split(","):
                for what, function in FUNCTIONS.items():
                    name = f"{what} {text}{'' if order == 'last' else ' ' + order}"
                    yield name, function, partial(inputs, sizes, order), True
            continue
        for dtype in asked.dtype.split(","):
            given = partial(lambda sizes, dtype: [torch.randn(sizes, dtype=DTYPES[dtype])], sizes, dtype)
            for along in asked.along.split(","):
                if along == "middle" and len(sizes) < 3:
                    continue
                for what, make in ALONG_FUNCTIONS.items():
                    yield f"{what} {along} {text} {dtype}", make(ALONG[along]), given, what not in WITHOUT_GRADIENT
                for what, last in LAST_FUNCTIONS.items() if along == "last" else ():
                    yield f"{what} {text} {dtype}", last(), given, True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="measuring time of each row; default: 0.3")
    parser.add_argument("--sizes", help=f"of images, or of tensors; default: {SIZES} or {TENSORS}")
    parser.add_argument("--only", default="", help="functions whose names have this in them")
    parser.add_argument("--order", default="last", help="of images: last, contiguous; default: %(default)s")
    parser.add_argument("--along", default="", help="of tensors: last, middle, first")
    parser.add_argument("--dtype", default="f32", help="of tensors: f32, bf16; default: %(default)s")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch._functorch.config.donated_buffer = False  # a backward graph is run many times
    ratios = []
    for name, function, given, has_gradients in cases(asked):
        if asked.only not in name:
            continue
        for direction in (forward, backward) if has_gradients else (forward,):
            torch._dynamo.reset()
            with torch.set_grad_enabled(direction is backward):
                runs = direction(function, given())
                for run in (*runs.values(), *runs.values()):
                    run()
                medians, rounds = zefuse_bench.medians(runs, asked.seconds, time.process_time)
            ratio = medians["guarded"] / medians["zefuse"]
            ratios.append(ratio)
            times = "".join(f"{median * 1e6:9.0f}" for median in medians.values())
            print(
                f"{name + ' ' + direction.__name__:44}{times} us{medians['eager'] / medians['zefuse']:8.2f}{ratio:8.2f}"
                f"{'  slower' if ratio < 0.95 else ''}  ({rounds} rounds)",
                flush=True,
            )
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}", flush=True)
    print(zefuse_bench.machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
