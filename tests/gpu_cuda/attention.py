"""On a machine with an NVIDIA GPU of compute capability 9.0 and zefuse's wheel: attention by products of four sub-groups (wgmma),
which the target sm_90 has, beside sm_89's kernels and torch's own; and in f32.

    attention.py [--parts forms,times] [--seconds 540]

forms: results (and log-sum-exps, through gradients) against eager in f32; times: ms on the device (CUPTI, medians of calls with the
L2 overwritten before each) beside the quickest of torch's backends of scaled_dot_product_attention; choices, only on request since it
takes some 430 s: the same for what a tuner may choose. Each part runs in processes of its own with a deadline, since a wrong kernel
may end its process or hang.
Status 1 where a result is wrong or a part did not end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

OWN, BEFORE = "sm_90", "sm_89"
TOLERANCES = {torch.bfloat16: 1.5e-2, torch.float16: 3e-3, torch.float32: 1e-5}  # of the largest value
NAMES = ("eager", "cudnn", "flash", "efficient")  # of torch's ways
CALLS = 7
DEVICE = os.environ.get("ZEFUSE_CHECK_DEVICE", "cuda")  # "cpu": to try this file itself
Function = Callable[..., torch.Tensor]


class Form(NamedTuple):
    heads: int
    keys_heads: int
    rows: int
    keys: int
    depth: int
    columns: int
    causal: bool = False
    dtype: torch.dtype = torch.bfloat16
    batch: int = 1
    training: bool = False
    around: bool = False  # computed queries and a residual
    turned: bool = False  # heads inside the rows, as a projection leaves them

    def words(self) -> str:
        flags = [name for name in ("causal", "training", "around", "turned") if getattr(self, name)]
        shared = "" if self.heads == self.keys_heads else f"/{self.keys_heads}"
        return (
            f"{str(self.dtype).removeprefix('torch.'):8} {self.batch}x{self.heads}{shared} {self.rows} rows {self.keys} keys "
            f"{self.depth}/{self.columns} {' '.join(flags)}"
        )

    def function(self) -> Function:
        def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if self.turned:
                q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            result = F.scaled_dot_product_attention(
                q * 0.5 if self.around else q, k, v, is_causal=self.causal, enable_gqa=self.heads != self.keys_heads
            )
            return result + q[..., : self.columns] if self.around else result

        return attention

    def inputs(self) -> list[torch.Tensor]:
        torch.manual_seed(0)
        made = []
        for heads, length, size in (
            (self.heads, self.rows, self.depth),
            (self.keys_heads, self.keys, self.depth),
            (self.keys_heads, self.keys, self.columns),
        ):
            shape = (length, heads) if self.turned else (heads, length)
            made.append(torch.randn(self.batch, *shape, size, device=DEVICE).to(self.dtype))
        return made


FORMS = [
    # One step, several whole steps, parts of steps; both dtypes.
    Form(4, 4, 128, 128, 64, 64),
    Form(4, 4, 128, 128, 128, 128),
    Form(16, 16, 512, 512, 64, 64),
    Form(16, 16, 512, 512, 128, 128, dtype=torch.float16),
    Form(80, 80, 512, 512, 64, 64, causal=True, dtype=torch.float16),
    Form(80, 80, 512, 512, 128, 128, causal=True),
    Form(3, 3, 333, 777, 64, 64),
    Form(80, 80, 333, 777, 128, 128, dtype=torch.float16),
    Form(80, 80, 777, 777, 128, 128, causal=True),
    Form(80, 80, 320, 320, 64, 64),  # the last tile's second warpgroup has no rows
    Form(80, 80, 320, 320, 128, 128, causal=True),
    Form(2, 2, 64, 8192, 128, 128),
    Form(40, 8, 1000, 1000, 128, 128, causal=True, batch=2),
    Form(6, 6, 512, 640, 80, 80),
    Form(6, 6, 512, 640, 96, 112, causal=True),
    Form(6, 6, 300, 300, 40, 56),
    Form(16, 4, 512, 512, 128, 128, around=True),
    Form(80, 80, 512, 512, 64, 64, turned=True),
    Form(80, 80, 500, 500, 64, 64, causal=True, turned=True, around=True),
    Form(80, 80, 512, 512, 64, 64, training=True),
    Form(80, 80, 500, 500, 128, 128, causal=True, training=True),
    Form(8, 8, 4096, 4096, 64, 64, causal=True),
    Form(8, 8, 4096, 4096, 128, 128),
    # Three products of tf32.
    Form(4, 4, 512, 512, 64, 64, dtype=torch.float32),
    Form(4, 2, 333, 777, 128, 128, dtype=torch.float32, training=True),
    Form(80, 80, 500, 500, 64, 64, causal=True, dtype=torch.float32, turned=True, around=True),
    Form(6, 6, 300, 300, 37, 13, causal=True, dtype=torch.float32),
]
# The issue's: docs/gpu_speed.md has the others.
TIMED = [
    Form(64, 64, 2048, 2048, 64, 64),
    Form(64, 64, 2048, 2048, 64, 64, causal=True),
    Form(32, 32, 2048, 2048, 128, 128),
    Form(32, 32, 2048, 2048, 128, 128, causal=True),
    Form(128, 128, 512, 512, 64, 64, causal=True),
    Form(128, 128, 512, 512, 128, 128, causal=True),
    Form(128, 128, 512, 512, 128, 128),
    Form(16, 16, 16384, 16384, 64, 64, causal=True),
    Form(8, 8, 16384, 16384, 128, 128, causal=True),
    Form(8, 8, 16384, 16384, 128, 128),
    Form(12, 12, 128, 128, 64, 64, batch=32),
    Form(64, 64, 2048, 2048, 64, 64, dtype=torch.float32),
    Form(32, 32, 2048, 2048, 128, 128, dtype=torch.float32),
]
CHOICES = [{"warpgroups": groups, "keys of a step": keys} for groups in (2, 3, 1) for keys in (128, 96, 64)]


class Compiled:
    """A form's function by zefuse. ``choice``: of the schedule, in place of the cost model's."""

    def __init__(self, form: Form, choice: dict[str, int] | None = None) -> None:
        from zefuse import backend, tuning

        torch._dynamo.reset()
        self.graphs: list[Any] = []
        applied = tuning.applied
        if choice is not None:
            rows = {key: {"choice": choice} for key in _keys(form)}

            def chosen(values: Any, product: str | None = None) -> dict[str, Any]:
                return dict(applied(values, product)) | {"tuning": tuning.as_text(rows)}

            tuning.applied = chosen
        try:
            self.run = torch.compile(form.function(), backend="zefuse", options={"cache_dir": ""}, dynamic=False)
            with backend.observe(lambda _, graph: self.graphs.append(graph)), torch.set_grad_enabled(form.training):
                self.first = self.run(*(x.requires_grad_(form.training) for x in form.inputs()))
        finally:
            tuning.applied = applied

    def schedule(self) -> str:
        """Of the attention."""
        for graph in self.graphs:
            for kernel in graph.report()["kernels"]:
                if "attention" in str(kernel["schedule"]) and "derivative" not in str(kernel["schedule"]):
                    return str(kernel["schedule"])
        return "no attention kernel"


def _keys(form: Form) -> list[str]:
    """Of the kernels that have decisions."""
    from zefuse import backend, tuning

    torch._dynamo.reset()
    applied, graphs = tuning.applied, []

    def listed(values: Any, product: str | None = None) -> dict[str, Any]:
        return dict(applied(values, product)) | {"list_decisions": True}

    tuning.applied = listed
    try:
        with backend.observe(lambda _, graph: graphs.append(graph)), torch.no_grad():
            torch.compile(form.function(), backend="zefuse", options={"cache_dir": ""}, dynamic=False)(*form.inputs())
    finally:
        tuning.applied = applied
        torch._dynamo.reset()
    return [launch["key"] for graph in graphs for launch in graph.report()["decisions"] if launch["decisions"]]


def exact(form: Form) -> list[torch.Tensor]:
    """The result in f32, and gradients of its sum of squares."""
    inputs = [x.float().requires_grad_(form.training) for x in form.inputs()]
    with sdpa_kernel(SDPBackend.MATH):
        result = form.function()(*inputs)
    if not form.training:
        return [result]
    (result * result).sum().backward()  # type: ignore[no-untyped-call]
    return [result.detach(), *(x.grad for x in inputs if x.grad is not None)]


def errors(got: list[torch.Tensor], expected: list[torch.Tensor]) -> list[float]:
    return [
        ((a.float() - b.float()).abs().max() / b.float().abs().max()).item() if a.isfinite().all() else float("nan")
        for a, b in zip(got, expected, strict=True)
    ]


def check_form(form: Form) -> str:
    """What is wrong; begins with "right" where nothing is."""
    compiled = Compiled(form)
    expected = exact(form)
    firsts: list[torch.Tensor] | None = None
    worst = [0.0] * len(expected)
    for call in range(4):  # the third is recorded, the last replayed
        inputs = [x.requires_grad_(form.training) for x in form.inputs()]
        with torch.set_grad_enabled(form.training):
            result = compiled.run(*inputs)
            if form.training:
                (result.float() * result.float()).sum().backward()  # type: ignore[no-untyped-call]
        got = [result.detach(), *(x.grad for x in inputs if x.grad is not None)]
        worst = [max(pair) for pair in zip(worst, errors(got, expected), strict=True)]
        tolerance = TOLERANCES[form.dtype]
        if not all(error <= tolerance * (1 if i == 0 else 3) for i, error in enumerate(worst)):
            bad = (got[0].float() - expected[0]).abs() > tolerance * expected[0].abs().max()
            bad |= ~got[0].isfinite()
            at = bad.nonzero()
            where = (
                f"{len(at)} of {bad.numel()} elements, first {at[0].tolist()}, last {at[-1].tolist()}"
                if len(at)
                else ""
            )
            return f"WRONG in call {call}: errors {worst}; {where}; {compiled.schedule()}"
        if firsts is None:
            firsts = [x.clone() for x in got]
        elif not all(torch.equal(a, b) for a, b in zip(got, firsts, strict=True)):
            return f"WRONG: call {call} has other bits than the first; {compiled.schedule()}"
    return f"right {' '.join(f'{error:.0e}' for error in worst)}; {compiled.schedule()}"


def torch_by(kind: SDPBackend, function: Function, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    with sdpa_kernel(kind):
        return function(*inputs)


def torch_ways(form: Form) -> dict[str, Callable[[], Any]]:
    q, k, v = form.inputs()
    ways: dict[str, Callable[[], Any]] = {"eager": lambda: form.function()(q, k, v)}
    kinds = {
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
    for name, kind in kinds.items():
        run = partial(torch_by, kind, form.function(), (q, k, v))
        try:
            with torch.no_grad():
                run()
            ways[name] = run
        except Exception:  # it does not take this form
            pass
    return ways


def time_form(form: Form, choice: dict[str, int] | None, beside: bool) -> dict[str, Any]:
    import device_time

    overwritten = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    compiled = Compiled(form, choice)
    inputs = form.inputs()
    # A look at the result: what is quick and wrong is of no use.
    with torch.no_grad():
        expected = form.function()(*inputs)
        error = errors([compiled.run(*inputs)], [expected])[0]
        ways: dict[str, Callable[[], Any]] = {"zefuse": lambda: compiled.run(*inputs)}
        if beside:
            ways |= torch_ways(form)
        found: dict[str, Any] = {name: device_time.measured(run, overwritten, CALLS).busy for name, run in ways.items()}
    return found | {"error": error, "schedule": compiled.schedule()}


def child(part: str, numbers: list[int], variant: int | None) -> int:
    for number in numbers:
        form = (FORMS if part == "forms" else TIMED)[number]
        said: dict[str, Any] = {"number": number}
        try:
            if part == "forms":
                said["text"] = check_form(form)
            else:
                choice = None if variant is None else CHOICES[variant]
                with torch.no_grad():
                    said |= time_form(form, choice, beside=variant is None)
        except Exception as problem:
            said["problem"] = f"{type(problem).__name__}: {str(problem)[:600]}"
            traceback.print_exc()
        print("RESULT " + json.dumps(said), flush=True)
        if "CUDA error" in str(said.get("problem", "")) or "DEVICE_LOST" in str(said.get("problem", "")):
            return 3  # nothing after it runs
    return 0


def run_child(
    target: str, part: str, numbers: list[int], seconds: float, variant: int | None = None
) -> list[dict[str, Any]]:
    """Results by number; where a process ends early, the form that it was at is wrong and the rest goes on in another."""
    found: list[dict[str, Any]] = []
    end = time.monotonic() + seconds
    left = list(numbers)
    while left:
        allowed = end - time.monotonic()
        if allowed < 5:
            found += [{"number": number, "problem": "no time left"} for number in left]
            break
        words = [sys.executable, __file__, "--child", part, "--numbers", ",".join(map(str, left))]
        if variant is not None:
            words += ["--variant", str(variant)]
        try:
            done = subprocess.run(
                words, env=os.environ | {"ZEFUSE_GPU_TARGET": target}, capture_output=True, text=True, timeout=allowed
            )
            text, errors_said, ended = done.stdout, done.stderr, f"status {done.returncode}"
        except subprocess.TimeoutExpired as late:
            text, errors_said = ((x or b"").decode(errors="replace") for x in (late.stdout, late.stderr))
            ended = f"did not end within {allowed:.0f} s"
        new = [json.loads(line.removeprefix("RESULT ")) for line in text.splitlines() if line.startswith("RESULT ")]
        found += new
        left = [number for number in left if number not in {each["number"] for each in new}]
        if left and (ended != "status 3" or not new):
            tail = " | ".join(errors_said.strip().splitlines()[-6:])[-900:]
            found.append({"number": left.pop(0), "problem": f"the process ended: {ended}: {tail}"})
    return found


def forms(seconds: float) -> bool:
    wrong = 0
    for each in run_child(OWN, "forms", list(range(len(FORMS))), seconds):
        text = each.get("text") or "PROBLEM " + each["problem"]
        wrong += not text.startswith("right")
        print(f"{FORMS[each['number']].words():55} {text}", flush=True)
    print(f"forms: {wrong} of {len(FORMS)} wrong", flush=True)
    return wrong == 0


def rate(form: Form, ms: float) -> float:
    work = 4 * form.batch * form.heads * form.rows * form.keys * form.depth / (2 if form.causal else 1)
    return work / ms / 1e9


def times(seconds: float) -> bool:
    numbers = list(range(len(TIMED)))
    own = {each["number"]: each for each in run_child(OWN, "times", numbers, seconds * 0.6)}
    before = {each["number"]: each for each in run_child(BEFORE, "times", numbers, seconds * 0.4)}
    print(
        f"{'ms on the device':55} {OWN:>8} TFLOP/s  best/own {BEFORE:>8}    {' '.join(f'{name:>9}' for name in NAMES)}    error"
    )
    right = True
    for number, form in enumerate(TIMED):
        a, b = own[number], before[number]
        if "problem" in a or "problem" in b:
            print(f"{form.words():55} PROBLEM {a.get('problem') or b.get('problem')}")
            right = False
            continue
        best = min(a[name] for name in NAMES if name in a)
        others = " ".join(f"{a.get(name, float('nan')):9.4f}" for name in NAMES)
        wrong = not a["error"] <= 2 * TOLERANCES[form.dtype]
        right &= not wrong
        print(
            f"{form.words():55} {a['zefuse']:8.4f} {rate(form, a['zefuse']):7.0f} {best / a['zefuse']:9.2f} {b['zefuse']:8.4f} "
            f"{others} {a['error']:8.0e}{' WRONG' if wrong else ''}  {a['schedule']}",
            flush=True,
        )
    return right


def choices(seconds: float) -> bool:
    numbers = [0, 1, 2, 5, 7, 8, 10]
    end = time.monotonic() + seconds
    print("choices, ms: " + "; ".join(f"({i}) {TIMED[number].words().strip()}" for i, number in enumerate(numbers)))
    right = True
    for variant, choice in enumerate(CHOICES):
        found = {
            each["number"]: each for each in run_child(OWN, "times", numbers, end - time.monotonic(), variant=variant)
        }
        cells, taken = [], ""
        for number in numbers:
            each = found[number]
            wrong = "problem" not in each and not each["error"] <= 2 * TOLERANCES[TIMED[number].dtype]
            right &= not wrong
            cells.append(
                each["problem"][:60] if "problem" in each else f"{each['zefuse']:8.4f}{' WRONG' if wrong else ''}"
            )
            taken = taken or each.get("schedule", "")
        print(
            f"{choice['warpgroups']} warpgroups, {choice['keys of a step']:3} keys: {'  '.join(cells)}   ({taken})",
            flush=True,
        )
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="forms,times", help="of forms, times and choices")
    parser.add_argument("--seconds", type=float, default=540, help="in which all parts end")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--numbers", help=argparse.SUPPRESS)
    parser.add_argument("--variant", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child(given.child, [int(each) for each in given.numbers.split(",")], given.variant)
    import zefuse

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"zefuse {zefuse.__version__}, {name}, torch {torch.__version__}", flush=True)
    end = time.monotonic() + given.seconds
    parts = given.parts.split(",")
    shares = {"forms": 0.4, "times": 0.6, "choices": 1.0}  # of what is left then
    right = True
    for part in parts:
        left = end - time.monotonic()
        share = 1.0 if part == parts[-1] else shares[part]
        began = time.monotonic()
        right &= {"forms": forms, "times": times, "choices": choices}[part](left * share)
        print(f"{part}: {time.monotonic() - began:.0f} s", flush=True)
    print("ALL RIGHT" if right else "NOT RIGHT", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
