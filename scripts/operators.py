"""`make operators`: docs/operators.md, what becomes of each ATen operator: native or ATen, with symbolic sizes, on a GPU's schedule.

.venv/bin/python scripts/operators.py [--deadline 120] [--jobs 2] [name ...]     (nn.functional.gelu, as the database names it)

Sources: the importer's own table, and trials. torch's operator database gives sample calls; each is traced as AOTAutograd does
(with static and with symbolic sizes, and with its backward), imported, fused and lowered to SPIR-V for the CPU and for a GPU.
An operator's row adds up the graphs that held it. The trials run in child processes, each entry under a deadline. With names,
the rows that their trials give are printed and the page stays as it is.
"""

from __future__ import annotations

import argparse
import json
import queue
import re
import subprocess
import sys
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "operators.md"
GPU = "dg2-g11"
ENOUGH = 2  # graphs of one kind that hold an operator; more tell nothing new
DRAW = "draws from torch's generator"  # the importer's words: a library call, with eager's numbers
SAMPLES = 3  # of each entry of the database


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds for the trials of one entry")
    parser.add_argument("--jobs", type=int, default=2, help="child processes at a time")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args.names)
    names = args.names or database_names()
    progress = Progress(len(names))
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(
            pool.map(
                lambda part: try_all(part, args.deadline, progress), [names[i :: args.jobs] for i in range(args.jobs)]
            )
        )
    trials = [trial for found, _ in results for trial in found]
    text = page(trials, sorted(line for _, ended in results for line in ended), whole=not args.names)
    if args.names:
        return print(text)
    PAGE.write_text(text)
    print(f"\nwritten: {PAGE.relative_to(ROOT)}")


class Progress:
    def __init__(self, total: int) -> None:
        self.total, self.done, self.lock = total, 0, threading.Lock()

    def step(self) -> None:
        with self.lock:
            self.done += 1
            print(f"\r{self.done} of {self.total}", end="", file=sys.stderr, flush=True)


def try_all(names: list[str], deadline: float, progress: Progress) -> tuple[list[dict[str, Any]], list[str]]:
    """The trials, and the entries at which a child ended: another goes on behind them."""
    trials: list[dict[str, Any]] = []
    ended: list[str] = []
    left = list(names)
    while left:
        done = 0
        for message in run_child(left, deadline):
            if "done" in message:
                done += 1
                progress.step()
            elif "ended" in message:
                ended.append(f"{left[done]}: {message['ended']}")
            elif "ready" not in message:
                trials.append(message)
        left = left[done + 1 :]
    return trials, ended


def run_child(names: list[str], deadline: float) -> Iterator[dict[str, Any]]:
    """The child's messages; the last is {"ended": why} when it crashed or took too long over one entry."""
    command = [sys.executable, __file__, "--child", *names]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    lines: queue.Queue[str] = queue.Queue()
    stdout = process.stdout

    def read() -> None:
        for line in stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    patience = 300.0  # until it is ready: the database takes its time to import
    while True:
        try:
            line = lines.get(timeout=patience)
        except queue.Empty:
            process.kill()
            yield {"ended": f"not done after {patience:.0f} s"}
            return
        if not line:
            if process.wait() != 0:
                yield {"ended": f"the process ended with {process.returncode}"}
            return
        patience = deadline
        yield json.loads(line)


def database_names() -> list[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(dict.fromkeys(info.name for info in op_db))


def child(names: list[str]) -> None:
    """One JSON line per graph that was tried: the operators in it, which fall back and why, and what did not lower."""
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

    import zefuse.decompositions.table
    import zefuse.graphs.complex_pairs
    import zefuse.graphs.parts  # noqa: F401  what is wrong with us must not look like a sample that is refused

    entries = defaultdict(list)
    for info in op_db:
        entries[info.name].append(info)
    seen: Counter[tuple[str, str]] = Counter()
    print(json.dumps({"ready": True}), flush=True)
    for name in names:
        for info in entries[name]:
            for kind, function, inputs in samples(info):
                try:
                    trial = tried(kind, function, inputs, seen)
                except Exception:  # eager itself, or tracing, refuses this sample: it tells nothing about us
                    continue
                if trial:
                    print(json.dumps({"entry": name, **trial}), flush=True)
        print(json.dumps({"done": name}), flush=True)


def samples(info: Any) -> Iterator[tuple[str, Callable[..., Any], list[Any]]]:
    """(static, dynamic or backward), a function of tensors only, and these."""
    import torch
    from torch.utils import _pytree as pytree

    preferred = (torch.float32, torch.int64, torch.bool)
    dtype = next((dtype for dtype in preferred if dtype in info.supported_dtypes("cpu")), None)
    if dtype is None:
        return
    try:
        given = [sample for _, sample in zip(range(SAMPLES), info.sample_inputs("cpu", dtype), strict=False)]
    except Exception:
        return
    for sample in given:
        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def forward(*tensors: Any, leaves: Any = leaves, spec: Any = spec, places: Any = places) -> Any:
            values = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                values[place] = tensor
            first, rest, keywords = pytree.tree_unflatten(values, spec)
            return [
                leaf for leaf in pytree.tree_leaves(info.op(first, *rest, **keywords)) if isinstance(leaf, torch.Tensor)
            ]

        def backward(*tensors: Any, forward: Any = forward) -> Any:
            variable = [place for place, t in enumerate(tensors) if t.is_floating_point()]

            def of_variables(*values: Any) -> Any:
                given = list(tensors)
                for place, value in zip(variable, values, strict=True):
                    given[place] = value
                return tuple(t for t in forward(*given) if t.is_floating_point())

            results, pull = torch.func.vjp(of_variables, *(tensors[place] for place in variable))
            return pull(tuple(torch.ones_like(t) for t in results))

        inputs = [leaves[place] for place in places]
        yield "static", forward, inputs
        yield "dynamic", forward, inputs
        if info.supports_autograd and dtype.is_floating_point:
            yield "backward", backward, inputs


def tried(
    kind: str, function: Callable[..., Any], inputs: list[Any], seen: Counter[tuple[str, str]]
) -> dict[str, Any] | None:
    import torch
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    from zefuse import _native
    from zefuse.decompositions.table import decompositions
    from zefuse.errors import UnsupportedError
    from zefuse.graphs import complex_pairs, parts, zero_tensors

    native = _native.load()
    # As AOTAutograd traces: what Python takes apart before autograd (upsampling, ...) is apart.
    # Twice, since what torch's decompositions write in place lies below functionalize: AOTAutograd's graphs hold none of it.
    gm: Any = function
    with torch.no_grad(), enable_python_dispatcher():
        for table in (decompositions(), {}):
            gm = make_fx(
                torch.func.functionalize(gm),
                decomposition_table=table,
                tracing_mode="symbolic" if kind == "dynamic" else "fake",
                _allow_non_fake_inputs=True,
            )(*(t.detach() for t in inputs))
    gm.graph.eliminate_dead_code()
    gm.recompile()
    nodes = [
        node for node in gm.graph.nodes if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    ]
    targets = sorted({str(node.target) for node in nodes if node.target.namespace == "aten"})
    if not targets or all(seen[kind, target] >= ENOUGH for target in targets):
        return None
    seen.update((kind, target) for target in targets)
    trial: dict[str, Any] = {"kind": kind, "targets": targets, "fallbacks": {}, "failed": {}, "draws": []}
    for node in gm.graph.nodes:
        node.meta.setdefault("val", None)  # of one without results, as AOTAutograd notes it
    zero_tensors.fill(gm)
    pairs = complex_pairs.rewritten(gm)
    names = {node.name for node in gm.graph.nodes}
    gm = gm if pairs is None else pairs.graph
    for node, reason in parts.outside(gm).items():
        # What a rewritten graph has besides makes complex tensors for operators without a rule: theirs is the reason.
        if isinstance(node.target, torch._ops.OpOverload) and node.name in names:
            trial["fallbacks"][str(node.target)] = f"in eager: {reason}"
    if trial["fallbacks"]:
        return trial
    try:
        text = native.import_to_text(gm, [])
        for op, overload, reason in re.findall(
            r'zefuse\.aten "([^"]+)".*?overload = "([^"]*)".*?reason = "([^"]*)"', text
        ):
            target = f"{op.replace('::', '.')}.{overload or 'default'}"
            if reason == DRAW:
                trial["draws"].append(target)
            else:
                trial["fallbacks"][target] = reason
        for target in ("cpu", GPU):
            if why := native.why_not_lowered(gm, target):
                trial["failed"][target] = why
    except UnsupportedError as error:
        trial["failed"]["import"] = str(error).splitlines()[0]
    return trial


def page(trials: list[dict[str, Any]], ended: list[str], whole: bool) -> str:
    """``whole``: with the operators that no trial held as well."""
    import torch

    by_target: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for trial in trials:
        for target in trial["targets"]:
            by_target[target].append(trial)
    listed = set(by_target)
    if whole:
        listed |= {target for target in table() if target.startswith("aten.")} | set(core_targets(torch))
    rows, counts = [], Counter[str]()
    for target in sorted(listed):
        tried_here = by_target.get(target, [])
        kinds = {kind: [t for t in tried_here if t["kind"] == kind] for kind in ("static", "dynamic", "backward")}
        native = _share(kinds["static"] + kinds["backward"], target, "cpu")
        dynamic = _share(kinds["dynamic"], target, "cpu")
        gpu = _share(kinds["static"] + kinds["backward"], target, GPU)
        reasons = dict.fromkeys(t["fallbacks"][target] for t in tried_here if target in t["fallbacks"])
        lowering = [
            why
            for t in tried_here
            if target not in t["fallbacks"] and not t["fallbacks"]
            for why in (re.sub(r"^kernel \w+: ", "", reason) for reason in t["failed"].values())
        ]
        notes = [*reasons, *dict.fromkeys(lowering)]
        if not tried_here and target in table():
            native, notes = "in the table", ["no sample of the database reaches it"]
        elif not tried_here:
            notes = ["decomposed before it reaches the importer, or no sample reaches it"]
        counts["in part" if "/" in native else native or "not tried"] += 1
        note = "; ".join(re.sub(r"\s+", " ", text)[:160].replace("|", "\\|") for text in notes[:3])
        rows.append(f"| `{target.removeprefix('aten.')}` | {native} | {dynamic} | {gpu} | {note} |")
    summary = ", ".join(f"{number} {what}" for what, number in counts.most_common())
    lines = [
        "# Operators",
        "",
        "Generated by `make operators` (scripts/operators.py) from the importer's table and trials with the samples of torch's",
        "operator database: each traced, imported, fused and lowered to SPIR-V, with static sizes and in backward graphs (native), with",
        f"symbolic sizes (dynamic), and with the schedule for a GPU ({GPU}). `yes`: every trial; `n/m`: n of m; empty: none tried.",
        "`draw`: a library call that draws from torch's generator, with eager's numbers. A fallback runs through ATen in the plan, or in",
        "eager where no plan can hold it. Operators that torch's decompositions take apart first have no row of their own, except core",
        f"ATen's. In all: {summary}.",
        "",
        "| operator (aten) | native | dynamic | GPU | fallback: reason |",
        "|---|---|---|---|---|",
        *rows,
    ]
    if ended:
        lines += ["", "Entries of the database whose trials did not end:", "", *(f"- {line}" for line in ended)]
    return "\n".join(lines) + "\n"


def _share(trials: list[dict[str, Any]], target: str, device: str) -> str:
    """How many of the graphs with the operator left it native."""

    def fine(trial: dict[str, Any]) -> bool:
        return target not in trial["fallbacks"] and not {device, "import"} & set(trial["failed"])

    good = sum(map(fine, trials))
    if not trials:
        return ""
    if any(target in trial["draws"] for trial in trials):
        return "draw"
    return "yes" if good == len(trials) else "no" if good == 0 else f"{good}/{len(trials)}"


def core_targets(torch: Any) -> Iterator[str]:
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            for overload in packet.overloads():
                if torch.Tag.core in getattr(packet, overload).tags:
                    yield str(getattr(packet, overload))


def table() -> frozenset[str]:
    from zefuse import _native

    return frozenset(_native.load().lowered_targets())


if __name__ == "__main__":
    main()
