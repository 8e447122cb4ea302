"""`.venv/bin/python tests/bench/products.py [--seconds 0.3] [--dtypes f16,f64,i64,...]`: matrix products and convolutions of the types that
are not f32's or bf16's, and f32's with medium precision: processor time of one thread, medians of calls in turn, of eager, of
`torch.compile(backend="eager")`, which is eager with Dynamo's guards, and of zefuse; then zefuse's ratios to both. Those below 0.95 of
the second are marked, and at the end counted: a graph of one operator cannot be quicker than its guards.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tests" / "bench")]

import zefuse_bench  # noqa: E402

TYPES = {
    "medium": torch.float32,
    "f16": torch.float16,
    "f64": torch.float64,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
}
# rows x k x columns
SHAPES = [
    (1, 256, 256),
    (4, 512, 512),
    (32, 64, 32),
    (64, 256, 256),
    (128, 128, 128),
    (128, 384, 1536),
    (512, 512, 512),
]
BATCHES = [(12, 64, 32, 64), (8, 128, 64, 128)]
IMAGES = [
    (1, 16, 28, 32, 3),
    (1, 64, 28, 64, 1),
    (4, 3, 32, 16, 3),
]  # images, channels, pixels of a side, channels of the result, taps


def made(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(0, 5, shape, dtype=dtype)


class Held(torch.nn.Module):
    """Of a function's operands the second is the module's, as weights are."""

    def __init__(self, function: Callable[..., torch.Tensor], weight: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("weight", weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.weight)


def convolved(image: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(image, taps, padding=taps.shape[-1] // 2)


def cases(dtype: torch.dtype) -> dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    found: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {}
    for m, k, n in SHAPES:
        found[f"{m}x{k}x{n}"] = Held(torch.matmul, made(dtype, k, n)), (made(dtype, m, k),)
    for b, m, k, n in BATCHES:
        found[f"{b}x{m}x{k}x{n}"] = torch.matmul, (made(dtype, b, m, k), made(dtype, b, k, n))
    for images, channels, side, results, taps in IMAGES:
        name = f"conv {images}x{channels}x{side}x{side} to {results}, {taps}x{taps}"
        held = Held(convolved, made(dtype, results, channels, taps, taps))
        found[name] = held, (made(dtype, images, channels, side, side),)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="measuring time of each product; default: 0.3")
    parser.add_argument("--dtypes", default=",".join(TYPES), help="of: %(default)s")
    given = parser.parse_args()
    torch.set_num_threads(1)
    slower = 0
    for name in given.dtypes.split(","):
        torch.set_float32_matmul_precision("medium" if name == "medium" else "highest")
        ratios = []
        for what, (function, inputs) in cases(TYPES[name]).items():
            torch._dynamo.reset()
            ways = {"eager": function} | {
                way: torch.compile(function, backend=backend, dynamic=False)
                for way, backend in (("guarded", "eager"), ("zefuse", "zefuse"))
            }
            try:
                with torch.no_grad():
                    runs = {way: partial(run, *inputs) for way, run in ways.items()}
                    for run in (*runs.values(), *runs.values()):
                        run()
                    medians, rounds = zefuse_bench.medians(runs, given.seconds, time.process_time)
            except RuntimeError as problem:  # what eager does not have
                print(f"{name:7}{what:32}{str(problem).splitlines()[0][:90]}", flush=True)
                continue
            ratio = medians["guarded"] / medians["zefuse"]
            ratios.append(ratio)
            slower += ratio < 0.95
            times = "".join(f"{median * 1e6:11.1f}" for median in medians.values())
            print(
                f"{name:7}{what:32}{times} us{medians['eager'] / medians['zefuse']:8.2f}{ratio:8.2f}"
                f"{'  slower' if ratio < 0.95 else ''}  ({rounds} rounds)",
                flush=True,
            )
        if ratios:
            print(
                f"{name}: geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}", flush=True
            )
    print(f"{slower} slower than eager; {zefuse_bench.machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
