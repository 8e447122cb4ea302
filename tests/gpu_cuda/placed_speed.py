"""On a machine with an NVIDIA GPU and zefuse's wheel: models of CUDA tensors, beside torch's eager and Inductor there.

    placed_speed.py [--seconds N] [--only-cold] [--profile [BELOW]] [--options JSON] [--tf32] [--json FILE] [CASE ...]

CASE: MODEL/DTYPE/BATCH, or MODEL/train/BATCH; a part of one (GPT-2, train, bf16/32) is all that have it; without any, all, those that tell
most first. Each number is ms a call: many calls one after the other, and the wait for the last; the median of five rounds, in which
all take turns. So it is the device's time where that is longer, else the host's. A training step is forward, backward and zeroed
gradients under autocast to bf16. TF32 is off, or with --tf32 allowed, of products and convolutions.

All is compiled before, in several processes and into empty caches: "cold" is the first call there, in s, with as many beside
it; the model is made before, and torch has compiled something else. --seconds: for all of it; cases that could not be compiled in
45 % of it, or measured in the rest, are named. --only-cold: nothing but first calls.
--profile: where a call's time on the device goes, by kernel, ours beside eager's and Inductor's (placed_profile.py); of the cases
in which the best of torch is less than BELOW times as slow.
--options: zefuse's, such as '{"library_convolutions": "never"}'. --small: small models, to try this. Status 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import device_time
import placed_profile
import torch
from gpu_models import MODELS, SMALL, Model, Vit, image

import zefuse

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "train": torch.float32}
ROUNDS = 5  # of each way, in turn
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
# Those that tell most first: training, then what the device limits, then what the host does.
CASES = [
    f"{name}/{what}"
    for what in ("train/8", "bf16/32", "bf16/1", "f32/32", "f32/1")
    for name in ("GPT-2", "BERT-base", "Llama", "ViT-S", "ResNet-50", "Swin")
]


def chosen(words: Sequence[str]) -> list[str]:
    """The cases that have one of these parts; a case that is none of the list is taken as it is. ValueError: names nothing."""
    of_words = {word: [case for case in CASES if f"/{word}/" in f"/{case}/"] for word in words}
    for word, cases in of_words.items():
        if not cases and not is_case(word):
            raise ValueError(f"no case has {word!r}: {', '.join(CASES)}")
    found = {case for cases in of_words.values() for case in cases}
    return [case for case in CASES if not words or case in found] + [word for word in words if not of_words[word]]


def is_case(word: str) -> bool:
    parts = word.split("/")
    return len(parts) == 3 and parts[0] in MODELS and parts[1] in DTYPES and parts[2].isdecimal()


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


class Timed:
    """A way to run a case, with the ms a call of each of its rounds."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.run = run
        self.rounds: list[float] = []
        for _ in range(6):
            run()
        self._count = 1
        self._count = max(5, min(60, int(0.15e3 / self.once())))

    def once(self) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(self._count):
            self.run()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / self._count * 1e3


def alternate(ways: Sequence[Timed]) -> None:
    """A host may be slow for seconds at a time: what is compared takes turns."""
    for number in range(ROUNDS):
        for way in ways if number % 2 else reversed(ways):
            way.rounds.append(way.once())


def error_of(actual: Any, expected: Any) -> float:
    pairs = [(actual, expected)] if isinstance(actual, torch.Tensor) else list(zip(actual, expected, strict=True))
    return max(((a.float() - b.float()).abs().max() / b.float().abs().max().clamp(min=1e-6)).item() for a, b in pairs)


def measured(case: str) -> dict[str, Any]:
    found: dict[str, Any] = {"case": case}
    expected, timed = None, {}
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
            timed[way] = Timed(run)
        except Exception as problem:
            found[way], found[way + " problem"] = math.nan, f"{type(problem).__name__}: {str(problem)[:400]}"
    try:
        alternate(list(timed.values()))
        found |= {way: statistics.median(each.rounds) for way, each in timed.items()}
        zefuse.synchronize()
    except Exception as problem:
        found["zefuse"], found["zefuse problem"] = math.nan, f"{type(problem).__name__}: {str(problem)[:400]}"
    timed.clear()
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    found["right"] = found.get("zefuse error", math.inf) <= TOLERANCES[case.split("/")[1]]
    return found


def warm_torch_up() -> None:
    """What a process pays once, whichever compiler comes first: CUDA's context, its library of products, Dynamo and AOTAutograd."""
    layer = torch.nn.Linear(16, 16).cuda()
    torch.compile(layer, backend="aot_eager")(torch.ones(16, 16, device="cuda")).sum().backward()
    torch.cuda.synchronize()
    torch._dynamo.reset()


def compile_only(cases: Sequence[str], until: float, told: Path) -> None:
    """Writes the seconds of each first call, a line per case, until there is no time to begin another."""
    warm_torch_up()
    for case in cases:
        if time.time() > until:
            break
        first: dict[str, Any] = {}
        for way in ("zefuse", "Inductor"):  # whose kernels reduce-overhead has
            try:
                run = prepared(way, case)
                torch.cuda.synchronize()
                start = time.time()
                run()
                torch.cuda.synchronize()
                first[way] = time.time() - start
            except Exception as problem:
                print(case, way, str(problem)[:300], file=sys.stderr)
            torch._dynamo.reset()
        with told.open("a") as lines:
            lines.write(json.dumps({"case": case, **first}) + "\n")


def compiled(cases: list[str], seconds: float, flags: list[str]) -> dict[str, dict[str, float]]:
    """Compiles in several processes, into caches of their own unless there are some. By case the seconds of the first calls."""
    several = max(1, min(len(cases), (os.cpu_count() or 1) * 3 // 4))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / str(number) for number in range(several)]
        arguments = ["--until", str(time.time() + seconds), *flags]
        arguments += ["--options", json.dumps(WAYS["zefuse"]["options"])]
        running = [
            subprocess.Popen([sys.executable, __file__, "--compile", str(file), *arguments, *cases[number::several]])
            for number, file in enumerate(files)
        ]
        for each in running:
            try:
                each.wait(seconds + 60)
            except subprocess.TimeoutExpired:  # the case that it is at is not among those that were compiled
                each.kill()
                each.wait()
        lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    told = [json.loads(line) for line in lines]
    return {row.pop("case"): row for row in told}


def print_cold(cold: dict[str, dict[str, float]]) -> None:
    """Before anything is measured: a run that is cut short has them."""
    for case, seconds in cold.items():
        print(f"{case:18} first call: " + ", ".join(f"{way} {s:.1f} s" for way, s in seconds.items()))
    ratios = [
        seconds["zefuse"] / seconds["Inductor"] for seconds in cold.values() if {"zefuse", "Inductor"} <= seconds.keys()
    ]
    if ratios:
        print(f"cold compile: {statistics.geometric_mean(ratios):.2f} of Inductor's time, most {max(ratios):.2f}")
    sys.stdout.flush()


def profile(case: str) -> None:
    shares = {}
    for way in ("zefuse", "eager", "Inductor"):
        try:
            shares[way] = device_time.by_name(prepared(way, case))
        except Exception as problem:
            print(f"{case}: {way} was not profiled: {type(problem).__name__}: {str(problem)[:300]}")
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    print(placed_profile.text(shares), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--profile", type=float, nargs="?", const=math.inf, default=-math.inf, metavar="BELOW")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--only-cold", action="store_true")
    parser.add_argument("--compile", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=math.inf, help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help="what is compiled is in the caches already")
    given = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = given.tf32
    if given.tf32:
        torch.set_float32_matmul_precision("high")
        TOLERANCES["f32"] = 1e-2
    torch._dynamo.config.recompile_limit = 64  # each way compiles the same functions
    WAYS["zefuse"]["options"] = given.options
    if given.small:
        MODELS.update({name: SMALL[name] for name in MODELS if name in SMALL})
    try:
        cases = chosen(given.cases)
    except ValueError as problem:
        parser.error(str(problem))
    if given.compile:
        compile_only(cases, given.until, given.compile)
        return 0
    flags = [flag for flag, said in (("--small", given.small), ("--tf32", given.tf32)) if said]
    start = time.time()
    caches = tempfile.TemporaryDirectory()
    if not given.compiled:  # cold: nothing of earlier runs
        os.environ |= {
            "TORCHINDUCTOR_CACHE_DIR": caches.name + "/inductor",
            "ZEFUSE_CACHE_DIR": caches.name + "/zefuse",
        }
        os.environ |= {"TRITON_CACHE_DIR": caches.name + "/triton"}
    cold = {} if given.compiled else compiled(cases, given.seconds * (1 if given.only_cold else 0.45), flags)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}; compiled in {time.time() - start:.0f} s",
        flush=True,
    )
    print_cold(cold)
    if given.only_cold:
        return 0
    rows: list[dict[str, Any]] = []
    left: list[str] = []
    for case in cases:
        if time.time() - start > given.seconds or not (given.compiled or case in cold):
            left.append(case)
            continue
        row = measured(case)
        row |= {f"{way} cold s": seconds for way, seconds in cold.get(case, {}).items()}
        rows.append(row)
        better = min((row[way] for way in WAYS if way != "zefuse" and not math.isnan(row[way])), default=math.nan)
        row["better / zefuse"] = better / row["zefuse"]
        print(
            f"{case:18} "
            + "  ".join(f"{way} {row[way]:.3f}" for way in WAYS)
            + f"  better/zefuse {row['better / zefuse']:.2f}  error {row.get('zefuse error', math.nan):.1e}"
            + ("" if row["right"] else " WRONG ")
            + "; ".join(f"{way}: {row[way + ' problem']}" for way in WAYS if way + " problem" in row),
            flush=True,
        )
        if row["better / zefuse"] < given.profile:
            profile(case)
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1))
    if left:
        print(f"no time for {', '.join(left)}")
    for kind in DTYPES:
        ratios = [r["better / zefuse"] for r in rows if r["case"].split("/")[1] == kind and r["better / zefuse"] > 0]
        if ratios:
            print(
                f"{kind}: geometric mean {statistics.geometric_mean(ratios):.2f} of {len(ratios)}, least {min(ratios):.2f}"
            )
    return 1 if any(not row["right"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
