"""Linear layers of f32 whose weight is packed once: eager, and the ways that zefuse has, in turns.

    ninja -C build/<dir> zefuse_primitives_probe && \\
    python tests/bench/primitives/packed.py build/<dir>/lib/libzefuse_primitives_probe.so [SHAPE ..]

Median processor time of one thread, microseconds, and what each way is of eager's speed; a shape is rows x K x columns.
With the environment of "AVX2 alone" (docs/cpu_speed.md) as a processor without AVX-512 does it. `--threads`: wall time.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import math
import statistics
import time
from collections.abc import Callable

import torch

WAYS = {"inner_product": 3, "blas": 8, "panels": 9, "automatic": 0}  # plan::LibraryWay
WEIGHTS = [(768, 768), (768, 3072), (3072, 768), (2048, 5632), (384, 1536)]
ROWS = [1, 4, 16, 32, 128, 197, 512, 1500]


def made(
    lib: ctypes.CDLL, x: torch.Tensor, linear: torch.nn.Linear, way: int, once: bool
) -> tuple[Callable[[], object], str]:
    def geometry(t: torch.Tensor) -> object:
        return (ctypes.c_int64 * (1 + 2 * t.dim()))(t.dim(), *t.shape, *t.stride())

    weight, bias = linear.weight.mT, linear.bias
    out = torch.empty(*x.shape[:-1], weight.shape[1])
    no_kinds, no_operands = (ctypes.c_int * 1)(), (ctypes.c_void_p * 1)()
    shapes = [geometry(t) for t in (x, weight, out, bias)]
    data = ctypes.c_void_p(weight.data_ptr())
    probe = lib.probe_create(0, *shapes, no_kinds, no_operands, 0, ctypes.c_float(1), 1, 0, data, 1, way)
    if not probe:
        raise RuntimeError(lib.probe_error().decode())
    pointers = [ctypes.c_void_p(probe), *(ctypes.c_void_p(t.data_ptr()) for t in (x, weight, bias, out))]
    keep = (x, weight, bias, out)

    def call() -> torch.Tensor:
        (lib.probe_run_once if once else lib.probe_run)(*pointers, None)
        return keep[-1]

    return call, lib.probe_implementation(probe).decode()


def medians(candidates: dict[str, Callable[[], object]], seconds: float, clock: Callable[[], int]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for call in candidates.values():
        call()
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times["eager"]) < 5:
        for name, call in candidates.items():
            start = clock()
            call()
            times[name].append((clock() - start) / 1e3)
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("shapes", nargs="*")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--once", action="store_true", help="no packed copy is kept, as of a weight that is trained")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_intermixed_args()
    lib = ctypes.CDLL(args.library)
    lib.probe_create.restype = ctypes.c_void_p
    lib.probe_error.restype = lib.probe_implementation.restype = ctypes.c_char_p
    lib.probe_implementation.argtypes = [ctypes.c_void_p]
    torch.set_num_threads(args.threads)
    clock = time.thread_time_ns if args.threads == 1 else time.monotonic_ns
    shapes = [tuple(map(int, text.split("x"))) for text in args.shapes]
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    print(f"{'':16s}{'eager':>9s} " + "".join(f"{way:>18s}" for way in WAYS))
    for rows, k, columns in shapes or [(rows, *weight) for weight in WEIGHTS for rows in ROWS]:
        x, linear = torch.randn(rows, k), torch.nn.Linear(k, columns)
        # Each with memory of its own: what one has read is not nearer to the next.
        ways = {way: made(lib, x, copy.deepcopy(linear), number, args.once) for way, number in WAYS.items()}
        with torch.no_grad():
            wanted = torch.nn.functional.linear(x.double(), linear.weight.double(), linear.bias.double())
            for way, (call, _) in ways.items():
                torch.testing.assert_close(call().double(), wanted, rtol=1e-4, atol=1e-4, msg=way)  # type: ignore[attr-defined]
            eager = {"eager": lambda: linear(x)}
            times = medians(eager | {way: call for way, (call, _) in ways.items()}, args.seconds, clock)
        for way in WAYS:
            ratios[way].append(times["eager"] / times[way])
        figures = "".join(f"{times[way]:11.1f} {times['eager'] / times[way]:6.2f}" for way in WAYS)
        print(f"{f'{rows}x{k}x{columns}':16s}{times['eager']:9.1f} {figures}  {ways['automatic'][1]}", flush=True)
    means = "".join(f"{math.exp(statistics.mean(map(math.log, each))):18.2f}" for each in ratios.values())
    print(f"{'geometric mean':26s}{means}")


main()
