"""On a machine with an NVIDIA GPU and zefuse's wheel: whole models through the C interface, beside torch's eager and Inductor there.

zefuse runs a package made there for that GPU: parameters, inputs and results are on the device in all three. Times are a call's kernels as
CUPTI reports them, medians, with the L2 cache overwritten before each call; in brackets from the first kernel's start to the last
one's end. Results are compared with eager in f32, without TF32. Also how long the package takes to load and its first call.

Each case has a process. Ten at a time are prepared side by side, then measured one after the other.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import device_time
import speed_page
import torch
from gpu_models import MODELS, SMALL

import zefuse
from zefuse.packages import c_model

DEVICE = os.environ.get("ZEFUSE_CHECK_DEVICE", "gpu:0")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
DLPACK = {torch.float32: (2, 32, 1), torch.bfloat16: (4, 16, 1), torch.int64: (0, 64, 1)}
TOLERANCES = {"f32": 1e-3, "bf16": 8e-2}  # of the largest value of the result
CALLS = 5
SIDE_BY_SIDE = 10  # so many models, three times each, have room on the GPU
WAYS = ("zefuse", "eager", "Inductor")
CASES = [f"{name}/{dtype}/{batch}" for name in MODELS for dtype in reversed(DTYPES) for batch in (1, 32)]
Row = dict[str, Any]


def target() -> str:
    return "sm_{}{}".format(*torch.cuda.get_device_capability())


@dataclass(frozen=True)
class Way:
    run: Callable[[], Any]
    values: Callable[[Any], torch.Tensor]  # of what ``run`` returns: f32, on the CPU


def packaged(model: torch.nn.Module, given: torch.Tensor, folder: Path, found: Row) -> Way:
    """The model as a package, made and loaded here."""
    file = folder / "model.zefuse"
    zefuse.compile_package(torch.export.export(model, (given,)), file, targets=[target()], standalone=True)
    start = time.perf_counter()
    loaded = c_model.CModel(str(file), DEVICE, str(folder / "cache"))
    found["load s"] = time.perf_counter() - start
    placed = loaded.copied(c_model.tensor(given.data_ptr(), DLPACK[given.dtype], given.shape), to_device=True)
    start = time.perf_counter()
    loaded.call_on_device([placed.tensor])
    found["first call s"] = time.perf_counter() - start

    def values(results: list[c_model.OwnTensor]) -> torch.Tensor:
        return on_host(loaded.copied(results[0].tensor, to_device=False).tensor)

    return Way(lambda: loaded.call_on_device([placed.tensor]), values)


def on_host(given: c_model.Tensor) -> torch.Tensor:
    """A copy in f32 of what lies in CPU memory."""
    dtype = next(each for each, code in DLPACK.items() if code[:2] == (given.dtype.code, given.dtype.bits))
    sizes = given.shape[: given.ndim]
    memory = (ctypes.c_byte * (math.prod(sizes) * dtype.itemsize)).from_address(given.data + given.byte_offset)
    return torch.frombuffer(memory, dtype=dtype).reshape(sizes).to(torch.float32, copy=True)


def prepared(
    way: str, model: torch.nn.Module, given: torch.Tensor, dtype: torch.dtype, folder: Path, found: Row
) -> Way:
    model = copy.deepcopy(model).to(dtype)
    given = given.to(dtype) if given.is_floating_point() else given
    if way == "zefuse":
        return packaged(model, given, folder, found)
    model, given = model.cuda(), given.cuda()
    return Way(
        partial(model if way == "eager" else torch.compile(model, dynamic=False), given),
        lambda result: result.float().cpu(),
    )


def kernels_of(run: Callable[[], Any], overwritten: torch.Tensor, found: Row, way: str) -> None:
    kernels = device_time.measured(run, overwritten, CALLS)
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    torch.cuda.synchronize()
    found[way + " call"] = (time.perf_counter() - start) / CALLS * 1e3
    found[way], found[way + " span"], found[way + " kernels"] = kernels.busy, kernels.span, kernels.count
    found[way + " names"] = summed(kernels.names)


def summed(names: list[tuple[str, float]]) -> list[tuple[str, int, float]]:
    """What takes the time: kernel, how often, µs in all; the longest first."""
    total: dict[str, tuple[int, float]] = {}
    for name, us in names:
        count, sum_us = total.get(name, (0, 0.0))
        total[name] = count + 1, sum_us + us
    return sorted(((name[:90], *both) for name, both in total.items()), key=lambda row: -row[2])[:14]


def child(case: str, small: bool) -> None:
    """Prepares a case, says so in a line, waits for one, measures, and gives the row as JSON."""
    kind, dtype, batch = case.split("/")
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    models = SMALL if small else MODELS
    model, given = models[kind].make().eval(), models[kind].input(int(batch))
    found: Row = {"case": case}
    ways: dict[str, Way] = {}
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        eager = prepared("eager", model, given, torch.float32, Path(folder), found)
        expected = eager.values(eager.run())
        del eager
        torch.cuda.empty_cache()
        for name in WAYS:
            try:
                way = prepared(name, model, given, DTYPES[dtype], Path(folder), found)
                actual = way.values(way.run())
                found[name + " error"] = ((actual - expected).abs().max() / expected.abs().max()).item()
                way.run()
                way.run()  # the third call replays what the second recorded
                ways[name] = way
            except Exception as problem:
                found[name], found[name + " problem"] = math.nan, f"{type(problem).__name__}: {str(problem)[:300]}"
        torch.cuda.empty_cache()
        print("ready", flush=True)
        sys.stdin.readline()
        overwritten = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        for name, way in ways.items():
            kernels_of(way.run, overwritten, found, name)
    found["right"] = found.get("zefuse error", math.inf) <= TOLERANCES[dtype]
    print(json.dumps(found), flush=True)


def line(row: Row) -> str:
    times = "  ".join(
        f"{way} {row[way]:.3f} ({row.get(way + ' span', math.nan):.3f}; {row.get(way + ' kernels', 0)} kernels; "
        f"call {row.get(way + ' call', math.nan):.2f})"
        for way in WAYS
    )
    return (
        f"{row['case']:18} {times}  better/zefuse {speed_page.against(row):.2f}  error {row.get('zefuse error', math.nan):.1e}  "
        f"load {row.get('load s', math.nan):.2f} s, first call {row.get('first call s', math.nan):.2f} s "
        + ("" if row["right"] else "WRONG ")
        + "; ".join(f"{way}: {row[way + ' problem']}" for way in WAYS if way + " problem" in row)
    )


def measured(cases: list[str], small: bool) -> list[Row]:
    """Of cases that are prepared side by side. One whose process ends early is a row without times."""
    command = [sys.executable, "-W", "ignore", __file__, "--child", *["--small"] * small]
    running = [
        subprocess.Popen([*command, case], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for case in cases
    ]
    for process in running:
        assert process.stdout
        process.stdout.readline()
    rows = []
    for case, process in zip(cases, running, strict=True):
        said, _ = process.communicate("\n")
        if process.returncode:
            nothing: Row = dict.fromkeys(WAYS, math.nan)
            row = {"case": case, "right": False, "zefuse problem": f"status {process.returncode}"} | nothing
        else:
            row = json.loads(said.splitlines()[-1])
        rows.append(row)
        print(line(row), flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="MODEL/DTYPE/BATCH; all of them")
    parser.add_argument("--json", type=Path, help="where what was measured is written, after each ten cases")
    parser.add_argument("--small", action="store_true", help="small models, to try this")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.cases) - set(CASES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    if given.child:
        child(given.cases[0], given.small)
        return 0
    cases = given.cases or CASES
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    rows: list[Row] = []
    for first in range(0, len(cases), SIDE_BY_SIDE):
        rows += measured(cases[first : first + SIDE_BY_SIDE], given.small)
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1))
    wrong = sum(not row["right"] for row in rows)
    print(f"{wrong} of {len(cases)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
