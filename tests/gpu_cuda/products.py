"""On a machine with an NVIDIA GPU and zefuse's wheel: matrix products by zefuse's own kernels, by cuBLASLt through zefuse, and by
eager there. First results, of every form that the library's call takes; then times on the device (CUPTI, medians of calls with the
L2 overwritten before each, ms) over sizes: from where the library is quicker. Status 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import device_time
import torch
from torch.nn import functional as F

import zefuse

OPTIONS: dict[str, Any] = {"device": os.environ.get("ZEFUSE_CHECK_DEVICE", "gpu:0")}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
TOLERANCES = {"f32": 1e-5, "bf16": 8e-3, "f16": 1e-3}  # of the largest value
Function = Callable[..., torch.Tensor]


def random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes)


def weights(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes) / math.sqrt(sizes[-1])


FORMS: dict[str, tuple[Function, list[Callable[[], torch.Tensor]]]] = {
    "plain": (torch.matmul, [partial(random, 128, 256), partial(weights, 256, 192)]),
    "odd": (torch.matmul, [partial(random, 129, 255), partial(weights, 255, 193)]),
    "transposed": (lambda a, b: a.t() @ b.t(), [partial(random, 256, 128), partial(weights, 192, 256)]),
    "linear": (F.linear, [partial(random, 4, 32, 256), partial(weights, 192, 256), partial(random, 192)]),
    "relu": (lambda x, w, b: F.relu(F.linear(x, w, b)), [partial(random, 4, 32, 256), partial(weights, 192, 256), partial(random, 192)]),
    "gelu": (
        lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
        [partial(random, 4, 32, 256), partial(weights, 192, 256), partial(random, 192)],
    ),
    "relu without bias": (lambda x, w: F.relu(x @ w), [partial(random, 128, 256), partial(weights, 256, 192)]),
    "erf gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), [partial(random, 128, 256), partial(weights, 192, 256), partial(random, 192)]),
    "batched": (torch.bmm, [partial(random, 6, 64, 96), partial(weights, 6, 96, 128)]),
    "batched, one side": (torch.matmul, [partial(random, 6, 64, 96), partial(weights, 96, 128)]),
    "heads": (
        lambda q, k: q.view(2, 64, 4, 64).transpose(1, 2) @ k.view(2, 64, 4, 64).transpose(1, 2).mT,
        [partial(random, 2, 64, 256), partial(random, 2, 64, 256)],
    ),
    "slices": (lambda x, w: x[:, 64:] @ w[:, 32:], [partial(random, 128, 320), partial(weights, 256, 224)]),
    "long": (torch.matmul, [partial(random, 64, 16384), partial(weights, 16384, 64)]),
}  # fmt: skip
DEPTHS = [(768, 768), (768, 3072), (3072, 768), (1024, 4096), (4096, 4096)]
ROWS = [16, 32, 64, 128, 256, 512, 1024, 4096]
WAYS = {"own": "never", "library": "always"}


def compiled(function: Function, products: str) -> Function:
    torch._dynamo.reset()
    made: Function = torch.compile(
        function, backend="zefuse", options=OPTIONS | {"library_products": products}, dynamic=False
    )
    return made


def wrong_forms() -> int:
    wrong = 0
    for name, (function, makers) in FORMS.items():
        said = []
        for word, dtype in DTYPES.items():
            torch.manual_seed(0)
            given = [make().to(dtype) for make in makers]
            exact = function(*(x.double().cuda() for x in given)).cpu()
            for way, products in WAYS.items():
                run = compiled(function, products)
                for call in range(4):  # the first is proven, the third recorded, the last replayed
                    got = run(*given).double()
                    error = ((got - exact).abs().max() / exact.abs().max()).item()
                    if not error <= TOLERANCES[word]:
                        wrong += 1
                        said.append(f"WRONG {word} {way} call {call}: {error:.1e}")
                        break
                else:
                    said.append(f"{word} {way} {error:.0e}")
        print(f"{name:18} {'  '.join(said)}", flush=True)
    return wrong


def compile_form(name: str) -> None:
    function, makers = FORMS[name]
    for dtype in DTYPES.values():
        given = [make().to(dtype) for make in makers]
        for products in WAYS.values():
            compiled(function, products)(*given)


def cases() -> list[tuple[str, int, int, int]]:
    return [(word, rows, depth, columns) for word in ("bf16", "f32") for depth, columns in DEPTHS for rows in ROWS]


def prepared(word: str, rows: int, depth: int, columns: int) -> dict[str, Callable[[], torch.Tensor]]:
    torch.manual_seed(0)
    x, w = random(rows, depth).to(DTYPES[word]), weights(columns, depth).to(DTYPES[word])
    on_device = x.cuda(), w.cuda()
    runs: dict[str, Callable[[], torch.Tensor]] = {"eager": lambda: F.linear(*on_device)}
    for way, products in WAYS.items():
        made = torch.compile(
            lambda x, w: F.linear(x, w),
            backend="zefuse",
            options=OPTIONS | {"library_products": products},
            dynamic=False,
        )
        runs[way] = partial(made, x, w)
    return runs


def compiled_before() -> None:
    """In several processes: fills the cache."""
    words = [*FORMS, *(",".join(map(str, case)) for case in cases())]
    several = max(1, min(len(words), (os.cpu_count() or 1) * 7 // 8))
    run = [subprocess.Popen([sys.executable, __file__, "--compile", *words[i::several]]) for i in range(several)]
    for each in run:
        each.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where what was measured is written")
    parser.add_argument("--compile", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.compile is not None:
        for case in given.compile:
            if case in FORMS:
                compile_form(case)
                continue
            word, rows, depth, columns = case.split(",")
            for run in prepared(word, int(rows), int(depth), int(columns)).values():
                run()
            torch._dynamo.reset()
        return 0
    print(f"zefuse {zefuse.__version__}, {torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    start = time.time()
    compiled_before()
    print(f"compiled in {time.time() - start:.0f} s", flush=True)
    with torch.no_grad():
        wrong = wrong_forms()
        print(f"{wrong} wrong", flush=True)
        overwritten = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        found = []
        print("dtype  rows depth columns      own  library    eager  own/library")
        for case in cases():
            torch._dynamo.reset()
            times = {way: device_time.measured(run, overwritten, 5) for way, run in prepared(*case).items()}
            found.append({"case": case} | {way: [each.busy, each.count, each.names[:3]] for way, each in times.items()})
            own, library, eager = (times[way].busy for way in ("own", "library", "eager"))
            print(
                f"{case[0]:5} {case[1]:5} {case[2]:5} {case[3]:7} {own:8.4f} {library:8.4f} {eager:8.4f} {own / library:8.2f}",
                flush=True,
            )
            if given.json:
                given.json.write_text(json.dumps(found))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
