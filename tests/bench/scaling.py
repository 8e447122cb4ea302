"""`make bench-scaling`: how much quicker calls and training steps become with threads, beside eager, by the clock, on a machine with
nothing else to do.

.venv/bin/python tests/bench/scaling.py [--threads 1,2,4,8,16] [--seconds 150] [--json FILE] [--inductor] [--print-cases] [CASE ...]

A case is MODEL/TYPE/WHAT: bf16 is a model in bf16 for inference, autocast for training, whose steps come after an optimizer's step. All
models are plain torch. Each case is a process; several compile at the same time, with a thread each, and stand still while one is measured:
for each number of threads medians of calls in turn. A case that the seconds do not reach is named. Ratios: eager (or the better of eager
and Inductor) over zefuse with as many threads. Last columns: one thread's time over that with the most threads, of eager and of zefuse.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "bench"), str(TESTS / "gpu_cuda")]

# The most telling first.
CASES = [
    f"{model}/{case}"
    for case in ("bf16/inference", "f32/training", "bf16/training", "f32/inference")
    for model in ("BERT-base", "ResNet-50", "LSTM", "MiniLM-like", "ViT", "GPT-2")
] + [
    f"{model}/{case}"
    for model in ("points", "DLRM", "GRU", "U-Net", "pitch", "time series", "tabular", "MLP-Mixer", "MobileNetV2")
    for case in ("f32/training", "f32/inference", "bf16/inference")
    if (model, case) != ("U-Net", "bf16/inference")  # eager refuses its embedding of time
]
INDUCTOR_CASES = ("BERT-base", "ResNet-50", "LSTM")  # for it takes long to compile
INDUCTOR_THREADS = (1, 8)  # where Inductor is asked: it compiles for each number again


def made(model: str, training: bool) -> tuple[Any, tuple[Any, ...]]:
    import gpu_models
    import kinds
    import torch
    import zoo

    torch.manual_seed(0)
    if model == "MiniLM-like":
        return gpu_models.Transformer(causal=False, layers=6, width=384), (torch.randint(30522, (1, 32)),)
    if model in gpu_models.MODELS:
        # Batch norm of one image has nothing to average in the last layers.
        batch = 4 if training and model == "ResNet-50" else 1
        return gpu_models.MODELS[model].make(), (gpu_models.MODELS[model].input(batch),)
    if model in kinds.MAKERS:
        return kinds.make(model)
    example = zoo.make(model, "real")
    return example.model, (training and example.training_inputs) or example.inputs


@dataclass
class Way:
    call: Callable[[], Any]
    before: Callable[[], Any]  # not measured


def prepared(case: str, inductor: bool) -> tuple[dict[str, Way], float, int]:
    """Each contender after its first call; zefuse's distance from eager, and how many of its operators ran in eager."""
    import peers
    import torch

    from zefuse import backend
    from zefuse.explaining.explanation import Explanation

    name, dtype, what = case.split("/")
    training = what == "training"
    model, inputs = made(name, training)
    model.train(training)
    if dtype == "bf16" and not training:
        model, inputs = model.to(torch.bfloat16), peers.in_type(inputs, torch.bfloat16)
    # Another number of threads would be another compilation for Dynamo, whose guards know the number; nothing compiled depends on it.
    options = {
        "guard_filter_fn": lambda guards: [guard.guard_type != "GLOBAL_STATE" for guard in guards],
        "build_threads": 1,
    }
    runs = {"eager": model, "zefuse": torch.compile(model, backend="zefuse", dynamic=False, options=options)}
    if inductor:
        runs["Inductor"] = torch.compile(model, dynamic=False)  # its code depends on it

    def step(run: Callable[..., Any]) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = peers.mean_square(run(*inputs))
        loss.backward()
        return loss.detach()

    def infer(run: Callable[..., Any]) -> Any:
        with torch.no_grad():
            return run(*inputs)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def before() -> None:  # every weight's version changes, though no number
        if training:
            optimizer.step()
            optimizer.zero_grad()

    ways, results, explanation = {}, {}, Explanation()
    for way, run in runs.items():
        torch.manual_seed(0)  # of dropout
        before()
        with backend.observe(explanation.add):
            results[way] = (step if training else infer)(run)
        ways[way] = Way(partial(step if training else infer, run), before)
    for count in INDUCTOR_THREADS if inductor else [1]:
        torch.set_num_threads(count)
        for way in ways.values():
            way.before()
            way.call()
    error = peers.relative_error(results["zefuse"], results["eager"])
    return ways, error, len(explanation.fallbacks)


def medians(ways: dict[str, Way], seconds: float) -> dict[str, float]:
    """Milliseconds, of at least three calls in turn (two of those that take long, which are not warmed up by one more call each)."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    end, order = time.perf_counter() + seconds, list(ways)
    long = False
    while time.perf_counter() < end or len(times[order[0]]) < (2 if long else 3):
        for way in order:
            if not long:
                ways[way].before()
                ways[way].call()
            ways[way].before()
            start = time.perf_counter()
            ways[way].call()
            times[way].append(time.perf_counter() - start)
        long = max(values[-1] for values in times.values()) > 0.05
        order = order[1:] + order[:1]
    return {way: statistics.median(values) * 1e3 for way, values in times.items()}


def worker(case: str, threads: list[int], inductor: bool) -> None:
    """Compiles, says so, waits until it is this case's turn, and says what was measured."""
    answers, sys.stdout = sys.stdout, sys.stderr

    def answer(row: dict[str, Any]) -> None:
        print(json.dumps(row), file=answers, flush=True)

    start = time.perf_counter()
    try:
        ways, error, fallbacks = prepared(
            case, inductor and case.startswith(INDUCTOR_CASES) and case.endswith("inference")
        )
    except Exception as problem:
        answer({"problem": f"{type(problem).__name__}: {(str(problem).strip().splitlines() or [''])[0][:150]}"})
        return
    import torch

    answer({"ready": time.perf_counter() - start})
    seconds = json.loads(sys.stdin.readline())
    row: dict[str, Any] = {"error": error, "fallbacks": fallbacks, "ms": {}}
    for count in threads:
        torch.set_num_threads(count)
        now = {way: run for way, run in ways.items() if way != "Inductor" or count in INDUCTOR_THREADS}
        for run in now.values():  # the team starts
            run.before()
            run.call()
        row["ms"][count] = medians(now, seconds / len(threads))
    answer(row)


@dataclass
class Worker:
    """A process of its own group, so that what it starts stops with it."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, command: list[str]) -> Worker:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "2"}  # while all compile
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.DEVNULL,
            "text": True,
        }
        return cls(subprocess.Popen(command, env=environment, start_new_session=True, **pipes))

    def signal(self, which: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, which)

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """The next line; None where it does not come within these seconds."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], max(0.0, seconds))[0]:
            return None
        text = self.process.stdout.readline()
        return json.loads(text) if text else {"problem": "ended without a word"}

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()


def wave(cases: list[str], command: list[str], each: float, end: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of cases that compile at the same time. They stand still while one of them is measured."""
    workers = {case: Worker.start([*command, "--worker", case]) for case in cases}
    try:
        patience = 40.0  # then what is ready is measured, and the rest goes on
        while workers and time.monotonic() < end:
            until = min(end, time.monotonic() + patience)
            ready = []
            for case, worker in list(workers.items()):
                row = worker.answer(until - time.monotonic())
                if row and "ready" in row:
                    ready.append(case)
                elif row:
                    workers.pop(case).end()
                    yield case, row
            for case in ready:
                if time.monotonic() > end:
                    break
                for other, worker in workers.items():
                    worker.signal(signal.SIGCONT if other == case else signal.SIGSTOP)
                worker = workers.pop(case)
                print(each, file=worker.process.stdin, flush=True)
                row = worker.answer(end + 15 - time.monotonic())
                worker.end()
                yield case, row or {"problem": "not measured within the time"}
            for worker in workers.values():
                worker.signal(signal.SIGCONT)
            patience = 15.0
        for case in workers:
            yield case, {"problem": "not compiled within the time"}
    finally:
        for worker in workers.values():
            worker.end()


def line(case: str, row: dict[str, Any]) -> str:
    if "ms" not in row:
        return f"{case:28}{row['problem']}"
    cells = ""
    for ms in row["ms"].values():
        peer = min(value for way, value in ms.items() if way != "zefuse")
        cells += f"{ms['eager']:9.2f}{ms['zefuse']:9.2f}{peer / ms['zefuse']:6.2f}"
    measured = list(row["ms"].values())
    growth = "".join(f"{measured[0][way] / measured[-1][way]:8.2f}" for way in ("eager", "zefuse"))
    eager = f"  {row['fallbacks']} operators in eager" if row["fallbacks"] else ""
    return f"{case:28}{cells}{growth}  error {row['error']:.0e}{eager}"


def summary(rows: dict[str, dict[str, Any]], threads: list[int]) -> list[str]:
    told = []
    for kind in sorted({case.split("/", 1)[1] for case in rows}):
        known = [row["ms"] for case, row in rows.items() if case.endswith(kind) and "ms" in row]
        if not known:
            continue
        cells = []
        for count in threads:
            ratios = [
                min(v for w, v in ms[str(count)].items() if w != "zefuse") / ms[str(count)]["zefuse"] for ms in known
            ]
            cells.append(f"{count}: {statistics.geometric_mean(ratios):.2f} (least {min(ratios):.2f})")
        told.append(f"{kind}, {len(known)} models, times faster with threads " + ", ".join(cells))
    return told


def machine() -> list[str]:
    """What the processor is, and what this process may use of it."""
    told = []
    if shutil.which("lscpu"):
        wanted = (
            "Model name",
            "CPU(s)",
            "Thread(s) per core",
            "Core(s) per socket",
            "Socket(s)",
            "L1d",
            "L2",
            "L3",
            "NUMA node(s)",
        )
        for text in subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout.splitlines():
            name, _, value = text.partition(":")
            if name.strip().startswith(wanted) and "NUMA node0" not in name:
                told.append(f"{name.strip()}: {value.strip()}")
            elif name.strip() == "Flags":
                known = (
                    "avx2",
                    "avx_vnni",
                    "avx512f",
                    "avx512_bf16",
                    "avx512_fp16",
                    "avx512_vnni",
                    "amx_tile",
                    "amx_bf16",
                    "amx_int8",
                )
                told.append("Flags: " + " ".join(flag for flag in value.split() if flag in known))
    told.append(f"may use {len(os.sched_getaffinity(0))} of {os.cpu_count()} processors; load {os.getloadavg()[0]:.1f}")
    for name in ("cpu.max", "cpu.stat"):
        with contextlib.suppress(OSError):
            told.append(f"{name}: {' '.join(Path('/sys/fs/cgroup', name).read_text().split())}")
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="MODEL/TYPE/WHAT, or a part of it; all of them")
    parser.add_argument(
        "--threads", default="", help="numbers of threads; default: 1, 2, 4, 8 and 16 as far as there are processors"
    )
    parser.add_argument("--seconds", type=float, default=150.0, help="of everything; default: 150")
    parser.add_argument("--each", type=float, default=2.0, help="measuring seconds of a case; default: 2")
    parser.add_argument("--json", type=Path, help="where the numbers are written, after each case")
    parser.add_argument(
        "--inductor",
        action="store_true",
        help="inference with 1 and 8 threads beside Inductor too, where there is a C++ compiler",
    )
    parser.add_argument("--print-cases", action="store_true", help="what there is")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    may_use = len(os.sched_getaffinity(0))
    threads = [int(n) for n in given.threads.split(",") if n] or [n for n in (1, 2, 4, 8, 16) if n <= may_use]
    inductor = given.inductor and any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++"))
    if given.worker:
        worker(given.worker, threads, inductor)
        return 0
    cases = [case for case in CASES if not given.cases or any(part in case for part in given.cases)]
    if given.print_cases or not cases:
        print("\n".join(CASES))
        return 0 if cases else 2
    start = time.monotonic()
    end = start + given.seconds
    print("\n".join(machine()), flush=True)
    if given.inductor and not inductor:
        print("no C++ compiler: Inductor is not asked")
    command = [sys.executable, "-W", "ignore", __file__, "--threads", ",".join(map(str, threads))] + [
        "--inductor"
    ] * inductor
    rows: dict[str, dict[str, Any]] = {}
    written = {"machine": machine(), "threads": threads, "rows": rows}
    print(
        f"{'ms: eager, zefuse, ratio':28}" + "".join(f"{f'{n} threads':>24}" for n in threads) + "   eager  zefuse",
        flush=True,
    )
    for first in range(0, len(cases), threads[-1]):
        if time.monotonic() > end - 10:
            print(f"not reached: {', '.join(cases[first:])}")
            break
        for case, row in wave(cases[first : first + threads[-1]], command, given.each, end):
            rows[case] = row
            print(line(case, row), flush=True)
            if given.json:
                given.json.write_text(json.dumps(written, indent=1))
    print("\n".join(summary(rows, threads)))
    print(f"{time.monotonic() - start:.0f} s; {machine()[-1]}")
    return 0 if any("ms" in row for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
