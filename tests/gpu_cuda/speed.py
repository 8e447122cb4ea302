"""On a machine with an NVIDIA GPU and zefuse's wheel: the time of kernels on the device, beside torch's eager and Inductor there.

Results are checked first (against eager on the GPU in f32, without TF32). Times are sums of a call's kernels as CUPTI reports them
(torch.profiler), medians of the calls, with the L2 cache overwritten before each: host time and copies of inputs and results are
not in them. All three run in turn in one process; what they compile is made before, in several processes. Status 1 where a
result is wrong.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import device_time
import speed_page
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as nn

import zefuse  # noqa: F401  (registers the backend)

OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"device": os.environ.get("ZEFUSE_CHECK_DEVICE", "gpu:0")}
CALLS = 7
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 4e-2}  # of the largest value of the result
Function = Callable[..., Any]
Workload = tuple[Function, Callable[[torch.dtype], list[torch.Tensor]], float]  # and floating-point operations, or 0


def random(*sizes: int) -> Callable[[torch.dtype], torch.Tensor]:
    return lambda dtype: torch.randn(sizes, device="cuda").to(dtype)


def of(function: Function, *makers: Callable[[torch.dtype], torch.Tensor], operations: float = 0) -> Workload:
    return function, lambda dtype: [make(dtype) for make in makers], operations


def probe(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return nn.gelu(x * y + b) * torch.sigmoid(x) + torch.tanh(y)


def residual_layer_norm(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return nn.layer_norm(x + y, x.shape[-1:], w, b)


def residual_rms_norm(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return nn.rms_norm(x + y, x.shape[-1:], w)


def cross_entropy(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.cross_entropy(x.float(), labels)


def adam(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p * 0.9999 - 1e-3 * (m / 0.5) / ((v / 0.3).sqrt() + 1e-8), m, v


def attention(heads: int, depth: int, length: int, causal: bool) -> Workload:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.scaled_dot_product_attention(q, k, v, is_causal=causal)

    operations = 4 * heads * length * length * depth / (2 if causal else 1)
    return of(function, *[random(1, heads, length, depth)] * 3, operations=operations)


def product(m: int, k: int, n: int) -> Workload:
    def scaled(dtype: torch.dtype) -> torch.Tensor:
        return (torch.randn(k, n, device="cuda") / math.sqrt(k)).to(dtype)

    return of(torch.matmul, random(m, k), scaled, operations=2 * m * k * n)


def ids(count: int, below: int) -> Callable[[torch.dtype], torch.Tensor]:
    return lambda _: torch.randint(below, (count,), device="cuda")


def squares(*sizes: int) -> Callable[[torch.dtype], torch.Tensor]:
    return lambda dtype: torch.rand(sizes, device="cuda").to(dtype)


BIG = (8192, 4096)
WORKLOADS: dict[str, Workload] = {
    "pointwise": of(probe, random(*BIG), random(*BIG), random(4096)),
    "add": of(torch.add, random(*BIG), random(*BIG)),
    "softmax 1024": of(lambda x: torch.softmax(x, -1), random(32768, 1024)),
    "softmax 4096": of(lambda x: torch.softmax(x, -1), random(*BIG)),
    "softmax 4097": of(lambda x: torch.softmax(x, -1), random(8192, 4097)),
    "softmax 65536": of(lambda x: torch.softmax(x, -1), random(512, 65536)),
    "layer norm, residual": of(residual_layer_norm, random(*BIG), random(*BIG), random(4096), random(4096)),
    "RMS norm, residual": of(residual_rms_norm, random(*BIG), random(*BIG), random(4096)),
    "transpose": of(lambda x, y: x.t() + y, random(*BIG), random(4096, 8192)),
    "cross entropy": of(cross_entropy, random(2048, 32000), ids(2048, 32000)),
    "column sums": of(lambda x: x.sum(0), random(*BIG)),
    "bias gradient": of(lambda x, y: (x * y).sum(0), random(16384, 1024), random(16384, 1024)),
    "full sum": of(lambda x: (x * x).mean(), random(*BIG)),
    "embedding": of(lambda i, table: nn.embedding(i, table) * 2, ids(32768, 50000), random(50000, 1024)),
    "scan": of(lambda x: torch.cumsum(x, -1), random(8192, 2048)),
    "Adam": of(adam, random(*BIG), random(*BIG), random(*BIG), squares(*BIG)),
    "product 4096": product(4096, 4096, 4096),
    "product 8192": product(8192, 8192, 8192),
    "product of 1 row": product(1, 4096, 16384),
    "product of 16 rows": product(16, 4096, 16384),
    "attention 64": attention(64, 64, 2048, False),
    "attention 64, causal": attention(64, 64, 2048, True),
    "attention 128": attention(32, 128, 2048, False),
    "attention 128, 512 keys": attention(128, 128, 512, True),
    "attention 64, 16384 keys": attention(16, 64, 16384, True),
    "attention 128, 16384 keys": attention(8, 128, 16384, True),
}
VIEWS = ("aten.view", "aten.t.", "aten.transpose", "aten.detach", "aten.expand", "aten.unsqueeze")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def host(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [x.cpu() for x in inputs]


def ways(function: Function) -> dict[str, Function]:
    return {
        "zefuse": torch.compile(function, backend="zefuse", options=OPTIONS, dynamic=False),
        "eager": function,
        "Inductor": torch.compile(function, dynamic=False),
    }


def milliseconds(run: Callable[[], Any], overwritten: torch.Tensor) -> tuple[float, int]:
    """Median of the device's time for a call's kernels, and how many there are."""
    kernels = device_time.measured(run, overwritten, CALLS)
    return kernels.busy, kernels.count


def first(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def counted_operations(function: Function, inputs: list[torch.Tensor]) -> int:
    """One for each element that an operator makes, or reduces."""
    total = 0
    for node in make_fx(function)(*inputs).graph.nodes:
        if node.op == "call_function" and not str(node.target).startswith(VIEWS):
            values = [each.meta.get("val") for each in node.all_input_nodes] + [node.meta.get("val")]
            total += max((value.numel() for value in values if isinstance(value, torch.Tensor)), default=0)
    return total


def measured(name: str, dtype: str) -> dict[str, Any]:
    function, make, operations = WORKLOADS[name]
    torch.manual_seed(0)
    inputs = make(DTYPES[dtype])
    overwritten = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    # In f32 of the same values: eager's kernels on the GPU may sum in the smaller type.
    expected = first(function(*(x.float() if x.is_floating_point() else x for x in inputs))).cpu().float()
    found: dict[str, Any] = {"name": name, "dtype": dtype}
    sizes = [x.numel() * x.element_size() for x in inputs]
    results = function(*inputs)
    outputs = [x.numel() * x.element_size() for x in (results if isinstance(results, tuple) else (results,))]
    del results
    found["bytes"], found["product"] = sum(sizes) + sum(outputs), operations > 0
    found["operations"] = operations or counted_operations(function, inputs)
    for way, run in ways(function).items():
        try:
            own = host(inputs) if way == "zefuse" else inputs
            with torch.no_grad():
                actual = first(run(*own)).cpu().float()
                error = ((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-30)).item()
                found[way], found[way + " kernels"] = milliseconds(partial(run, *own), overwritten)
            found[way + " error"] = error
        except Exception as problem:
            found[way], found[way + " problem"] = math.nan, f"{type(problem).__name__}: {str(problem)[:200]}"
    found["right"] = found.get("zefuse error", math.inf) <= TOLERANCES[DTYPES[dtype]]
    return found


def compiled_before(cases: list[tuple[str, str]]) -> None:
    """In several processes: fills both compilers' caches."""
    several = max(1, min(len(cases), (os.cpu_count() or 1) * 3 // 4))
    shares = [cases[i::several] for i in range(several)]
    run = [
        subprocess.Popen(
            [sys.executable, __file__, "--compile", *(f"{name}/{dtype}" for name, dtype in share)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for share in shares
    ]
    for each in run:
        each.wait()


def compile_only(words: list[str]) -> None:
    for word in words:
        name, dtype = word.rsplit("/", 1)
        function, make, _ = WORKLOADS[name]
        inputs = make(DTYPES[dtype])
        for way, run in ways(function).items():
            if way != "eager":
                with torch.no_grad():
                    run(*(host(inputs) if way == "zefuse" else inputs))


def copy_bandwidth() -> float:
    """GB/s of a copy on the device, what is read and what is written counted."""
    source = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(CALLS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return 2 * source.numel() / statistics.median(times) / 1e6


def machine() -> dict[str, Any]:
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\n")[0]  # a line for each GPU
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "torch": torch.__version__,
        "day": f"{datetime.date.today():%d %B %Y}",
        "GB/s": copy_bandwidth(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORKLOADS)}; all of them")
    parser.add_argument("--json", type=Path, help="where what was measured is written")
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.compile:
        compile_only(given.names)
        return 0
    if unknown := set(given.names) - set(WORKLOADS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(WORKLOADS)}")
    cases = [(name, dtype) for name in given.names or list(WORKLOADS) for dtype in DTYPES]
    compiled_before(cases)
    rows: list[dict[str, Any]] = []
    found: dict[str, Any] = {"machine": machine(), "rows": rows}
    print(f"{found['machine']['gpu']}, torch {torch.__version__}, copies {found['machine']['GB/s']:.0f} GB/s")
    print(f"{'ms':22} dtype  zefuse   eager Inductor  kernels  error    better/zefuse  GB/s or TFLOP/s of zefuse")
    for name, dtype in cases:
        row = measured(name, dtype)
        rows.append(row)
        rate = row["operations"] / row["zefuse"] / 1e9 if row["product"] else row["bytes"] / row["zefuse"] / 1e6
        print(
            f"{name:22} {dtype:4} {row['zefuse']:8.3f} {row['eager']:7.3f} {row['Inductor']:8.3f}  "
            f"{row.get('zefuse kernels', 0):3}/{row.get('Inductor kernels', 0):3}  {row.get('zefuse error', math.nan):.1e}  "
            f"{speed_page.against(row):8.2f}  {rate:15.1f}  "
            + ("" if row["right"] else "WRONG ")
            + "; ".join(
                f"{way}: {row[way + ' problem']}" for way in ("zefuse", "eager", "Inductor") if way + " problem" in row
            ),
            flush=True,
        )
        torch._dynamo.reset()
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    wrong = sum(not row["right"] for row in rows)
    print(f"{wrong} of {len(cases)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
