"""`make bench-peers`: inference beside each peer at its best, alternating: eager, Inductor as it is, with frozen weights and with
max-autotune, OpenVINO's torch.compile back end where it is installed, and zefuse. Writes build/bench/peers-DTYPE.json.

.venv/bin/python tests/bench/peers.py [--dtype f32|bf16|f16|f64|medium] [--training] [--seconds 4] [--limit 300] [--alone]
[--peers eager,Inductor] [zoo | kinds | name ...]

``medium``: f32 models under ``set_float32_matmul_precision("medium")``. ``--training``: steps (loss and gradients) after an optimizer's
step, beside eager and Inductor as it is, with bf16 under autocast. A model is a process of its own, which ends after ``--limit`` seconds.
A contender whose result is off is shown with its error and does not count as a peer. ``--alone``: processor time of one thread, for a
machine that others use too. With ``ATEN_CPU_CAPABILITY=avx2`` Inductor's kernels are of AVX2 too (``keep_to_capability``).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

import kinds  # noqa: E402
import zefuse_bench  # noqa: E402
import zoo  # noqa: E402

from zefuse.testing import relative_error  # noqa: E402

PLAIN = ("eager", "Inductor")  # what "the better of eager and Inductor" means
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
TOLERANCE = {
    "f32": 1e-3,
    "medium": 5e-2,
    "bf16": 5e-2,
    "f16": 5e-2,
    "f64": 1e-6,
}  # a peer's own choices of precision are its own


def keep_to_capability() -> None:
    """Inductor's kernels of AVX2 where eager's are: it takes the vectors' width from ATEN_CPU_CAPABILITY by itself, in torch 2.13, but
    compiles for the processor that it finds, with the masks and the registers of AVX-512."""
    if os.environ.get("ATEN_CPU_CAPABILITY") != "avx2":
        return
    import torch._inductor.config as inductor

    inductor.cpp.simdlen = 256
    if getattr(inductor.cpp, "march", "") is None:  # no choice of the user's, nor a torch that has none
        inductor.cpp.march = "x86-64-v3"


def contenders(function: Callable[..., Any], dtype: str, peers: list[str]) -> dict[str, Callable[..., Any]]:
    ways = {
        "eager": function,
        "Inductor": torch.compile(function),
        "freezing": torch.compile(function, options={"freezing": True}),
        "max-autotune": torch.compile(function, options={"freezing": True, "max_autotune": True}),
    }
    if "OpenVINO" in peers and importlib.util.find_spec("openvino"):
        import openvino.torch  # noqa: F401  (registers the back end)

        config: dict[str, Any] = {"INFERENCE_PRECISION_HINT": {"medium": "bf16", "f64": "f32"}.get(dtype, dtype)}
        if torch.get_num_threads() == 1:  # else it takes its own number, as the others do
            config["INFERENCE_NUM_THREADS"] = 1
        ways["OpenVINO"] = openvino_of(function, config)
    ways["zefuse"] = torch.compile(function, backend="zefuse")
    return {way: run for way, run in ways.items() if way in (*peers, "zefuse")}


def openvino_of(function: Callable[..., Any], config: dict[str, Any]) -> Callable[..., Any]:
    """Its back end as it is; of what that cannot take, graphs of AOTAutograd (convolutions with parameters, in torch 2.13)."""
    chosen: list[Callable[..., Any]] = []

    def run(*args: Any) -> Any:
        if chosen:
            return chosen[0](*args)
        for options in ({"config": config}, {"config": config, "aot_autograd": True}):
            compiled = torch.compile(function, backend="openvino", options=options)
            try:
                result = compiled(*args)
            except Exception as problem:  # the last one is told
                torch._dynamo.reset()
                last = problem
                continue
            chosen.append(compiled)
            return result
        raise last

    return run


def make(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    if name in kinds.MAKERS:
        return kinds.make(name)
    example = zoo.make(name, "real")
    return example.model, example.inputs


def step(name: str) -> tuple[nn.Module, tuple[Any, ...], Callable[[Any], torch.Tensor]]:
    """A model that is trained, the inputs of its step, and its loss."""
    if name in kinds.MAKERS:
        model, inputs = kinds.make(name)
        return model.train(), inputs, mean_square
    example = zoo.make(name, "real")
    return example.model.train(), example.training_inputs or example.inputs, example.loss


def mean_square(output: Any) -> torch.Tensor:
    leaves = [x for x in pytree.tree_leaves(output) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return torch.stack([x.float().square().mean() for x in leaves]).sum()


def in_type(values: Any, dtype: torch.dtype) -> Any:
    """A nest of tensors with those of floating point numbers in another type."""
    return pytree.tree_map_only(torch.Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, values)


@torch.no_grad()
def measured(name: str, dtype: str, seconds: float, alone: bool, peers: list[str]) -> dict[str, Any]:
    if alone:
        torch.set_num_threads(1)
    function, inputs = make(name)
    if dtype == "f64":  # of the same numbers
        function, inputs = function.to(torch.float64), in_type(inputs, torch.float64)  # type: ignore[attr-defined]
    expected = function(*inputs)
    if dtype == "medium":
        torch.set_float32_matmul_precision("medium")
    elif dtype in ("bf16", "f16"):
        narrow = TYPES[dtype]
        function, inputs, expected = function.to(narrow), in_type(inputs, narrow), in_type(expected, narrow)  # type: ignore[attr-defined]
    row: dict[str, Any] = {"name": name, "ms": {}, "error": {}, "first call": {}, "problem": {}}
    runs = {}
    for way, run in contenders(function, dtype, peers).items():
        start = time.perf_counter()
        try:
            with zefuse_bench.cold_caches():
                error = relative_error(run(*inputs), expected)
        except Exception as problem:  # a peer that cannot is told, and the others go on
            row["problem"][way] = f"{type(problem).__name__}: {str(problem)[:120]}"
            continue
        row["first call"][way], row["error"][way] = time.perf_counter() - start, error
        runs[way] = partial(run, *inputs)
    clock = time.process_time if alone else time.perf_counter
    medians, row["rounds"] = zefuse_bench.medians(runs, seconds, clock)
    row["ms"] = {way: median * 1e3 for way, median in medians.items()}
    return row


def measured_training(name: str, dtype: str, seconds: float, alone: bool, peers: list[str]) -> dict[str, Any]:
    if alone:
        torch.set_num_threads(1)
    if dtype == "medium":
        torch.set_float32_matmul_precision("medium")
    model, inputs, loss = step(name)

    def run(way: Callable[..., Any]) -> torch.Tensor:
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            result = loss(way(*inputs))
        result.backward()
        return result.detach()

    row: dict[str, Any] = {"name": name, "ms": {}, "error": {}, "first call": {}, "problem": {}}
    runs: dict[str, Callable[[], Any]] = {}
    expected: torch.Tensor | None = None
    for way, compiled in contenders(model, dtype, [way for way in peers if way in PLAIN]).items():
        start = time.perf_counter()
        try:
            with zefuse_bench.cold_caches():
                torch.manual_seed(0)  # of dropout
                np.random.seed(0)  # of masks over time (SEW, HuBERT)
                value = run(compiled)
        except Exception as problem:
            row["problem"][way] = f"{type(problem).__name__}: {str(problem)[:120]}"
            continue
        expected = value if expected is None else expected
        row["first call"][way] = time.perf_counter() - start
        row["error"][way] = relative_error(value, expected)
        runs[way] = partial(run, compiled)
    # Changes every weight's version, though no number: what was derived from weights cannot be used again.
    before = torch.optim.SGD(model.parameters(), lr=0.0).step
    medians, row["rounds"] = zefuse_bench.medians(
        runs, seconds, time.process_time if alone else time.perf_counter, before
    )
    row["ms"] = {way: median * 1e3 for way, median in medians.items()}
    return row


def ratio(row: dict[str, Any], among: tuple[str, ...] | None) -> float:
    """How many times faster zefuse is than the best of some (None: all) peers whose results are right."""
    times = [
        ms
        for way, ms in row["ms"].items()
        if way != "zefuse" and (among is None or way in among) and row["error"][way] <= TOLERANCE[row["dtype"]]
    ]
    return min(times) / row["ms"]["zefuse"] if times and "zefuse" in row["ms"] else math.nan


def line(row: dict[str, Any]) -> str:
    cells = "".join(f"{row['ms'].get(way, math.nan):13.2f}" for way in COLUMNS)
    off = [f"{way} off by {e:.1e}" for way, e in row["error"].items() if not e <= TOLERANCE[row["dtype"]]]
    notes = "; ".join(off + [f"{way}: {text}" for way, text in row["problem"].items()])
    return f"{row['name']:16}{cells}{ratio(row, PLAIN):10.2f}{ratio(row, None):10.2f}  {notes}"


COLUMNS = ("eager", "Inductor", "freezing", "max-autotune", "OpenVINO", "zefuse")


def geometric_mean(values: list[float]) -> float:
    known = [value for value in values if value > 0]
    return statistics.geometric_mean(known) if known else math.nan


def main() -> int:
    keep_to_capability()
    groups = {"kinds": list(kinds.MAKERS), "zoo": list(zoo.MAKERS)}
    names = [*kinds.MAKERS, *zoo.MAKERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"zoo, kinds, or of: {', '.join(names)}")
    parser.add_argument("--dtype", choices=list(TOLERANCE), default="f32")
    parser.add_argument("--seconds", type=float, default=4.0, help="measuring time of each model")
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds that a model may take with all its compiling"
    )
    parser.add_argument("--alone", action="store_true", help="one thread, by processor time")
    parser.add_argument("--training", action="store_true", help="steps of training, after an optimizer's step")
    parser.add_argument("--peers", default=",".join(COLUMNS[:-1]), help="of: %(default)s")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.names = [name for word in given.names for name in groups.get(word, [word])]
    if unknown := set(given.names) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(names)}")
    if given.one:
        measure = measured_training if given.training else measured
        print(json.dumps(measure(given.names[0], given.dtype, given.seconds, given.alone, given.peers.split(","))))
        return 0
    rows: list[dict[str, Any]] = []
    print(f"{'ms per call':16}{''.join(f'{way:>13}' for way in COLUMNS)}  of plain   of best")
    for name in given.names or names:
        command = [
            sys.executable,
            "-W",
            "ignore",
            __file__,
            name,
            "--one",
            "--dtype",
            given.dtype,
            "--peers",
            given.peers,
        ]
        command += ["--alone"] * given.alone + ["--training"] * given.training
        try:
            done = subprocess.run(
                [*command, "--seconds", str(given.seconds)], capture_output=True, text=True, timeout=given.limit, check=False
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"{name:16}not within {given.limit:.0f} s", flush=True)
            continue
        if done.returncode:
            print(f"{name:16}{(done.stderr.strip().splitlines() or ['ended without a word'])[-1][:150]}", flush=True)
            continue
        rows.append({**json.loads(done.stdout.splitlines()[-1]), "dtype": given.dtype})
        print(line(rows[-1]), flush=True)
    plain, best = (
        geometric_mean([ratio(row, PLAIN) for row in rows]),
        geometric_mean([ratio(row, None) for row in rows]),
    )
    what = f"{given.dtype}{', training' * given.training}"
    print(
        f"{what}, geometric means: {plain:.2f} times the better of eager and Inductor, {best:.2f} times the best of all"
    )
    for group, members in groups.items():
        known = {row["name"]: ratio(row, PLAIN) for row in rows if row["name"] in members and ratio(row, PLAIN) > 0}
        if known:
            below = ", ".join(
                f"{name} {value:.2f}" for name, value in sorted(known.items(), key=lambda item: item[1]) if value < 1
            )
            print(
                f"{group}, {len(known)} models: {geometric_mean(list(known.values())):.2f}; below 1: {below or 'none'}"
            )
    print(zefuse_bench.machine())
    out = ROOT / "build" / "bench" / f"peers-{given.dtype}{'-training' * given.training}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"machine": zefuse_bench.machine(), "rows": rows}, indent=1))
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
