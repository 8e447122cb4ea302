"""On a machine with an NVIDIA GPU and zefuse's wheel: whole models' time on the device, beside torch's eager and Inductor there.

Parameters are on the device in all three; zefuse's inputs and results are copied, which is not in the times. Times are sums of
a call's kernels as CUPTI reports them, medians, with the L2 cache overwritten before each call; in brackets from the first kernel's start
to the last one's end. Results are compared with eager in f32, without TF32. Arguments: words like BERT-base/bf16/32; without any, all.
What is compiled is made before, in several processes. Status 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import copy
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
from gpu_models import MODELS

import zefuse  # noqa: F401  (registers the backend)

OPTIONS: dict[str, Any] = {"device": os.environ.get("ZEFUSE_CHECK_DEVICE", "gpu:0")}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
TOLERANCES = {"f32": 1e-3, "bf16": 8e-2}  # of the largest value of the result
CALLS = 5
WAYS = ("zefuse", "eager", "Inductor")
CASES = [f"{name}/{dtype}/{batch}" for name in MODELS for dtype in reversed(DTYPES) for batch in (1, 32)]


def made(case: str) -> tuple[torch.nn.Module, torch.Tensor, str]:
    name, dtype, batch = case.split("/")
    torch.manual_seed(0)
    model = MODELS[name].make().eval()
    given = MODELS[name].input(int(batch))
    return model, given, dtype


def prepared(
    way: str, model: torch.nn.Module, given: torch.Tensor, dtype: str, options: dict[str, Any]
) -> Callable[[], torch.Tensor]:
    model = copy.deepcopy(model).to(DTYPES[dtype])
    if given.is_floating_point():
        given = given.to(DTYPES[dtype])
    if way == "zefuse":
        return partial(torch.compile(model, backend="zefuse", options=options, dynamic=False), given)
    model, given = model.cuda(), given.cuda()
    return partial(model if way == "eager" else torch.compile(model, dynamic=False), given)


def measured(case: str, ways: dict[str, dict[str, Any]]) -> dict[str, Any]:
    model, given, dtype = made(case)
    overwritten = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    found: dict[str, Any] = {"case": case}
    with torch.no_grad():
        expected = prepared("eager", model, given, "f32", {})().cpu()
        for label, options in ways.items():
            try:
                start = time.time()
                run = prepared(label.split()[0], model, given, dtype, options)
                actual = run().float().cpu()
                found[label + " first s"] = time.time() - start
                found[label + " error"] = ((actual - expected).abs().max() / expected.abs().max()).item()
                run()
                run()  # the third call replays what the second recorded
                kernels = device_time.measured(run, overwritten, CALLS)
                start = time.perf_counter()
                for _ in range(CALLS):
                    run()
                torch.cuda.synchronize()
                found[label + " call"] = (time.perf_counter() - start) / CALLS * 1e3
                found[label], found[label + " span"], found[label + " kernels"] = (
                    kernels.busy,
                    kernels.span,
                    kernels.count,
                )
                found[label + " names"] = summed(kernels.names)
            except Exception as problem:
                found[label], found[label + " problem"] = math.nan, f"{type(problem).__name__}: {str(problem)[:300]}"
            torch._dynamo.reset()
    found["right"] = found.get("zefuse error", math.inf) <= TOLERANCES[dtype]
    return found


def summed(names: list[tuple[str, float]]) -> list[tuple[str, int, float]]:
    """What takes the time: kernel, how often, µs in all; the longest first."""
    total: dict[str, tuple[int, float]] = {}
    for name, us in names:
        count, sum_us = total.get(name, (0, 0.0))
        total[name] = count + 1, sum_us + us
    return sorted(((name[:90], *both) for name, both in total.items()), key=lambda row: -row[2])[:14]


def compile_only(cases: list[str], ways: dict[str, dict[str, Any]]) -> None:
    for case in cases:
        model, given, dtype = made(case)
        for label, options in ways.items():
            if label != "eager":
                with torch.no_grad():
                    prepared(label.split()[0], model, given, dtype, options)()
            torch._dynamo.reset()


def compiled_before(cases: list[str], arguments: list[str]) -> None:
    several = max(1, min(len(cases), (os.cpu_count() or 1) * 3 // 4, 10))
    run = [
        subprocess.Popen(
            [sys.executable, __file__, "--compile", *arguments, *cases[i::several]], stderr=subprocess.DEVNULL
        )
        for i in range(several)
    ]
    for each in run:
        each.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="MODEL/DTYPE/BATCH; all of them")
    parser.add_argument("--json", type=Path, help="where what was measured is written, after each case")
    parser.add_argument("--without-library", action="store_true", help="zefuse with its own products alone, too")
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    ways: dict[str, dict[str, Any]] = {way: OPTIONS if way == "zefuse" else {} for way in WAYS}
    if given.without_library:
        ways["zefuse alone"] = OPTIONS | {"library_products": "never"}
    cases = given.cases or CASES
    if given.compile:
        compile_only(cases, ways)
        return 0
    if unknown := set(cases) - set(CASES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    start = time.time()
    compiled_before(cases, ["--without-library"] * given.without_library)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; compiled in {time.time() - start:.0f} s")
    rows = []
    for case in cases:
        row = measured(case, ways)
        rows.append(row)
        times = "  ".join(
            f"{way} {row[way]:.3f} ({row.get(way + ' span', math.nan):.3f}; {row.get(way + ' kernels', 0)} kernels; "
            f"call {row.get(way + ' call', math.nan):.2f})"
            for way in ways
        )
        better = min((row[way] for way in ("eager", "Inductor") if not math.isnan(row[way])), default=math.nan)
        print(
            f"{case:18} {times}  better/zefuse {better / row['zefuse']:.2f}  error {row.get('zefuse error', math.nan):.1e} "
            + ("" if row["right"] else "WRONG ")
            + "; ".join(f"{way}: {row[way + ' problem']}" for way in ways if way + " problem" in row),
            flush=True,
        )
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1))
    wrong = sum(not row["right"] for row in rows)
    print(f"{wrong} of {len(cases)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
