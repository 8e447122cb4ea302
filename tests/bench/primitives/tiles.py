"""Products of bf16 whose right side nobody packs: eager, oneDNN's blocked product and what zefuse takes, in turns.

    ninja -C build/<dir> zefuse_primitives_probe && \\
    python tests/bench/primitives/tiles.py build/<dir>/lib/libzefuse_primitives_probe.so [--random N]

Least processor time of one thread, microseconds; a row says which form it is: a weight's gradient (x^T dy), a forward
product (x w^T), a gradient by the input (dy w). `--random`: shapes drawn at random, and where the choice lost.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import random
import time
from collections.abc import Callable

import torch

AUTOMATIC, BLOCKED = 0, 1  # plan::LibraryWay
# rows x features of the input x features of the result
SHAPES = [
    (64, 768, 768),
    (128, 64, 64),
    (128, 768, 768),
    (256, 256, 256),
    (256, 768, 768),
    (512, 768, 768),
    (512, 768, 3072),
    (512, 3072, 768),
    (1024, 384, 1536),
    (1576, 384, 384),
    (2048, 1024, 1024),
    (4096, 64, 256),
    (4096, 256, 256),
    (20000, 64, 64),
    (100, 30, 50),
]
FORMS = ["x^T dy", "x w^T", "dy w"]


def made(
    lib: ctypes.CDLL, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, way: int
) -> tuple[Callable[[], object], str]:
    def geometry(t: torch.Tensor) -> object:
        return (ctypes.c_int64 * (1 + 2 * t.dim()))(t.dim(), *t.shape, *t.stride())

    probe = lib.probe_create(
        int(a.dtype == torch.bfloat16),
        geometry(a),
        geometry(b),
        geometry(out),
        None,
        (ctypes.c_int * 1)(),
        (ctypes.c_void_p * 1)(),
        0,
        ctypes.c_float(1),
        0,
        int(a.dtype == torch.float32),
        ctypes.c_void_p(b.data_ptr()),
        int(out.dtype == torch.float32),
        way,
    )
    if not probe:
        raise RuntimeError(lib.probe_error().decode())
    pointers = [
        ctypes.c_void_p(probe),
        *(ctypes.c_void_p(t.data_ptr()) for t in (a, b)),
        None,
        ctypes.c_void_p(out.data_ptr()),
        None,
    ]
    keep = (a, b, out)
    return (lambda: (lib.probe_run(*pointers), keep)), lib.probe_implementation(probe).decode()


def least(candidates: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    times = dict.fromkeys(candidates, math.inf)
    for call in candidates.values():
        call()
    end, rounds = time.thread_time() + seconds, 0
    while time.thread_time() < end or rounds < 3:
        rounds += 1
        for name, call in candidates.items():
            start = time.thread_time_ns()
            call()
            times[name] = min(times[name], (time.thread_time_ns() - start) / 1e3)
    return times


def operands(form: str, batch: tuple[int, ...], rows: int, k: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, dy = torch.randn(*batch, rows, k), torch.randn(*batch, rows, n)
    if form == "x^T dy":
        return x.mT, dy
    return (x, torch.randn(*batch, n, k).mT) if form == "x w^T" else (dy, torch.randn(*batch, n, k))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument(
        "--dtype", default="bf16", choices=["bf16", "f32"], help="f32: rounded, as medium precision permits"
    )
    args = parser.parse_args()
    lib = ctypes.CDLL(args.library)
    lib.probe_create.restype = ctypes.c_void_p
    lib.probe_error.restype = lib.probe_implementation.restype = ctypes.c_char_p
    lib.probe_implementation.argtypes = [ctypes.c_void_p]
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("medium")
    draw = random.Random(args.seed)
    cases: list[tuple[str, tuple[int, ...], int, int, int]]
    if args.random:
        size = lambda most: int(2 ** draw.uniform(0, math.log2(most)))  # noqa: E731
        cases = []
        for _ in range(args.random):
            batch = (size(32),) if draw.random() < 0.3 else ()
            most = 300 if batch else 2000
            cases.append((draw.choice(args.forms.split(",")), batch, size(most), size(most), size(most)))
    else:
        cases = [(form, (), *shape) for shape in SHAPES for form in args.forms.split(",")]
        cases += [("x^T dy", (12,), 128, 64, 128), ("x^T dy", (96,), 197, 64, 197), ("x w^T", (12,), 128, 64, 128)]
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    print(
        f"{'form':8s} {'batch':6s} {'rows':>6s} {'k':>6s} {'n':>6s} {'eager':>9s} {'blocked':>9s} {'taken':>9s}  blocked/taken eager/taken"
    )
    ratios, lost = [], 0
    for form, batch, rows, k, n in cases:
        a, b = (t.to(dtype) for t in operands(form, batch, rows, k, n))
        out, other = (torch.empty(*batch, a.shape[-2], b.shape[-1], dtype=dtype) for _ in range(2))
        blocked, blocked_name = made(lib, a, b, other, BLOCKED)
        taken, name = made(lib, a, b, out, AUTOMATIC)
        eager: Callable[[], object] = lambda: torch.matmul(a, b)  # noqa: E731
        times = least({"eager": eager, "blocked": blocked, "taken": taken}, args.seconds)
        error = (out.float() - other.float()).norm() / other.float().norm()
        ratio = times["blocked"] / times["taken"]
        ratios.append(ratio)
        lost += ratio < 0.9
        mark = "  <--" if ratio < 0.9 else ""
        if error > 0.01:
            mark += f"  WRONG {error:.1e}"
        batches = "x".join(map(str, batch))
        figures = " ".join(f"{t:9.1f}" for t in times.values())
        compared = f"{ratio:.2f} {times['eager'] / times['taken']:.2f}"
        print(
            f"{form:8s} {batches:6s} {rows:6d} {k:6d} {n:6d} {figures}  {compared} {name} | {blocked_name}{mark}",
            flush=True,
        )
    print(
        f"geometric mean of blocked/taken {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, below 0.9: {lost} of {len(ratios)}"
    )


main()
