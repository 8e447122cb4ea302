"""On a machine with an NVIDIA GPU and zefuse's wheel: models of CUDA tensors, beside torch's eager and Inductor there.

    placed_speed.py [--json FILE] [CASE ...]        CASE: MODEL/DTYPE/BATCH, or MODEL/train/BATCH; without any, all

Each number is ms a call: many calls one after the other, and the wait for the last. So it is the device's time where that is longer, else
the host's. A training step is forward, backward and zeroed gradients under autocast to bf16. TF32 is off. All is compiled before, in
several processes. Status 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu_models import MODELS, Model, Vit, image

import zefuse

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "train": torch.float32}
TOLERANCES = {"f32": 1e-3, "bf16": 8e-2, "train": 8e-2}  # of the result's, or a gradient's, largest value
WAYS: dict[str, dict[str, Any]] = {
    "zefuse": {"backend": "zefuse"},
    "eager": {},
    "Inductor": {},
    "reduce-overhead": {"mode": "reduce-overhead"},
}


def swin() -> torch.nn.Module:
    import torchvision

    model: torch.nn.Module = torchvision.models.swin_t()
    for module in model.modules():
        if isinstance(module, torchvision.ops.StochasticDepth):
            module.p = 0.0
    return model


MODELS = {name: MODELS[name] for name in ("BERT-base", "GPT-2", "Llama", "ResNet-50")} | {
    "ViT-S": Model(lambda: Vit(width=384), image),
    "Swin": Model(swin, image),
}
CASES = [
    f"{name}/{what}/{batch}" for name in MODELS for what in DTYPES for batch in ((1, 32) if what != "train" else (8,))
]


def prepared(way: str, case: str) -> Callable[[], Any]:
    name, what, batch = case.split("/")
    torch.manual_seed(0)
    model = MODELS[name].make().to(DTYPES[what]).cuda()
    given = MODELS[name].input(int(batch)).cuda()
    if given.is_floating_point():
        given = given.to(DTYPES[what])
    training = what == "train"
    model.train(training)
    run = model if way == "eager" else torch.compile(model, dynamic=False, **WAYS[way])
    parameters = [p for p in model.parameters() if p.requires_grad]

    def inference() -> torch.Tensor:
        with torch.no_grad():
            out: torch.Tensor = run(given)
            return out

    def step() -> list[torch.Tensor]:
        if way == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        for parameter in parameters:
            parameter.grad = None
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(given).float().square().mean()
        loss.backward()
        return [loss.detach(), *(p.grad for p in parameters[-3:] if p.grad is not None)]

    return step if training else inference


def ms(run: Callable[[], Any]) -> float:
    for _ in range(6):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    count = max(5, min(60, int(0.15 / (time.perf_counter() - start))))
    found = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(count):
            run()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start) / count * 1e3)
    return statistics.median(found)


def error_of(actual: Any, expected: Any) -> float:
    pairs = [(actual, expected)] if isinstance(actual, torch.Tensor) else list(zip(actual, expected, strict=True))
    return max(((a.float() - b.float()).abs().max() / b.float().abs().max().clamp(min=1e-6)).item() for a, b in pairs)


def measured(case: str) -> dict[str, Any]:
    found: dict[str, Any] = {"case": case}
    expected = None
    for way in ("eager", "zefuse", "Inductor", "reduce-overhead"):
        try:
            start = time.time()
            run = prepared(way, case)
            result = run()
            torch.cuda.synchronize()
            found[way + " first s"] = time.time() - start
            result = [each.clone() for each in result] if isinstance(result, list) else result.clone()
            if way == "eager":
                expected = result
            else:
                found[way + " error"] = error_of(result, expected)
            found[way] = ms(run)
            if way == "zefuse":
                zefuse.synchronize()
        except Exception as problem:
            found[way], found[way + " problem"] = math.nan, f"{type(problem).__name__}: {str(problem)[:400]}"
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    found["right"] = found.get("zefuse error", math.inf) <= TOLERANCES[case.split("/")[1]]
    return found


def compile_only(cases: list[str]) -> None:
    for case in cases:
        for way in WAYS:
            if way not in ("eager", "reduce-overhead"):  # which has Inductor's kernels
                try:
                    prepared(way, case)()
                except Exception as problem:
                    print(case, way, str(problem)[:300], file=sys.stderr)
                torch._dynamo.reset()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so long")
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help="what is compiled is in the caches already")
    given = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    cases = given.cases or CASES
    if given.compile:
        compile_only(cases)
        return 0
    start = time.time()
    if not given.compiled:
        several = max(1, min(len(cases), (os.cpu_count() or 1) * 3 // 4))
        running = [
            subprocess.Popen([sys.executable, __file__, "--compile", *cases[i::several]]) for i in range(several)
        ]
        for each in running:
            each.wait()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}; compiled in {time.time() - start:.0f} s",
        flush=True,
    )
    rows = []
    for case in cases:
        if time.time() - start > given.seconds:
            print(f"{case}: no time left")
            continue
        row = measured(case)
        rows.append(row)
        better = min((row[way] for way in WAYS if way != "zefuse" and not math.isnan(row[way])), default=math.nan)
        row["better / zefuse"] = better / row["zefuse"]
        print(
            f"{case:18} "
            + "  ".join(f"{way} {row[way]:.3f}" for way in WAYS)
            + f"  better/zefuse {row['better / zefuse']:.2f}  error {row.get('zefuse error', math.nan):.1e}"
            + f" first {row.get('zefuse first s', math.nan):.1f} s, Inductor {row.get('Inductor first s', math.nan):.1f} s"
            + ("" if row["right"] else " WRONG ")
            + "; ".join(f"{way}: {row[way + ' problem']}" for way in WAYS if way + " problem" in row),
            flush=True,
        )
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1))
    for kind in DTYPES:
        ratios = [r["better / zefuse"] for r in rows if r["case"].split("/")[1] == kind and r["better / zefuse"] > 0]
        if ratios:
            print(
                f"{kind}: geometric mean {statistics.geometric_mean(ratios):.2f} of {len(ratios)}, least {min(ratios):.2f}"
            )
    return 1 if any(not row["right"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
