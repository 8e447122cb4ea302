"""`.venv/bin/python tests/bench/reductions.py [--seconds 0.3] [--sizes 1x320x64x64,...] [--only norm]`: reductions and normalizations of
images with channels innermost, forward and backward: processor time of one thread, medians of calls in turn, in microseconds, of eager, of
eager with Dynamo's guards (backward: with AOTAutograd's call, `backend="aot_eager"`), and of zefuse; then zefuse's ratios to both. Those
below 0.95 of the second are marked: what a call costs whatever it computes is not the kernels'.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tests" / "bench")]

import zefuse_bench  # noqa: E402

SIZES = "1x320x64x64,1x384x32x32,2x128x32x32,1x64x56x56,2x512x16x16,8x128x32x32"
FUNCTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
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


def inputs(sizes: tuple[int, ...]) -> list[Tensor]:
    x = torch.randn(sizes).to(memory_format=torch.channels_last)
    return [x, torch.randn(sizes[1]), torch.randn(sizes[1])]


def forward(function: Callable[..., Tensor], given: list[Tensor]) -> dict[str, Callable[[], object]]:
    ways = [function, *(torch.compile(function, backend=backend, dynamic=False) for backend in ("eager", "zefuse"))]
    return {name: partial(way, *given) for name, way in zip(("eager", "guarded", "zefuse"), ways, strict=True)}


def backward(function: Callable[..., Tensor], given: list[Tensor]) -> dict[str, Callable[[], object]]:
    ways = [function, *(torch.compile(function, backend=backend, dynamic=False) for backend in ("aot_eager", "zefuse"))]
    found: dict[str, Callable[[], object]] = {}
    leaves = [tensor.requires_grad_() for tensor in given]
    for name, way in zip(("eager", "guarded", "zefuse"), ways, strict=True):
        y = way(*leaves)
        found[name] = partial(torch.autograd.grad, y, leaves, torch.randn_like(y), retain_graph=True, allow_unused=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="measuring time of each row; default: 0.3")
    parser.add_argument("--sizes", default=SIZES, help="of images; default: %(default)s")
    parser.add_argument("--only", default="", help="functions whose names have this in them")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch._functorch.config.donated_buffer = False  # a backward graph is run many times
    ratios = []
    for sizes in asked.sizes.split(","):
        for what, function in FUNCTIONS.items():
            if asked.only not in what:
                continue
            for direction in forward, backward:
                torch._dynamo.reset()
                with torch.set_grad_enabled(direction is backward):
                    runs = direction(function, inputs(tuple(int(size) for size in sizes.split("x"))))
                    for run in (*runs.values(), *runs.values()):
                        run()
                    medians, rounds = zefuse_bench.medians(runs, asked.seconds, time.process_time)
                ratio = medians["guarded"] / medians["zefuse"]
                ratios.append(ratio)
                times = "".join(f"{median * 1e6:9.0f}" for median in medians.values())
                name = f"{what} {sizes} {direction.__name__}"
                print(
                    f"{name:42}{times} us{medians['eager'] / medians['zefuse']:8.2f}{ratio:8.2f}"
                    f"{'  slower' if ratio < 0.95 else ''}  ({rounds} rounds)",
                    flush=True,
                )
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}", flush=True)
    print(zefuse_bench.machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
