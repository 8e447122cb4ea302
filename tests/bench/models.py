"""`make bench`: every workload, eager, Inductor and zefuse alternating. Writes build/bench/models.json.

.venv/bin/python tests/bench/models.py [--seconds 6] [name ...]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import workloads
from rich.console import Console
from zefuse_bench import Row, cold_caches, machine, measure, table, warm_up_dynamo

ROOT = Path(__file__).resolve().parents[2]


def minilm(sentences: int) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    model = workloads.SentenceEncoder()
    text = "The quick brown fox jumps over the lazy dog, while the cat watches from the warm window sill."
    return model, model.tokens([text] * sentences, length=32)


WORKLOADS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]] = {
    "pointwise 4096x1024": lambda: (workloads.pointwise, workloads.pointwise_inputs()),
    "norm+softmax 4096x1024": lambda: (workloads.norm_softmax, workloads.norm_softmax_inputs()),
    "MiniLM 1x32": lambda: minilm(1),
    "MiniLM 16x32": lambda: minilm(16),
    "ResNet-18": workloads.resnet18,
    "GPT-2 small 128": workloads.gpt2_small,
}


def compile_seconds(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], backend: str) -> float:
    """The first call's time in this process, with cold caches."""
    torch._dynamo.reset()
    with cold_caches():
        start = time.perf_counter()
        torch.compile(function, backend=backend)(*inputs)
        return time.perf_counter() - start


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(WORKLOADS)} (a part is enough)")
    parser.add_argument("--seconds", type=float, default=6.0, help="measuring time of each workload")
    args = parser.parse_args()
    chosen = [name for name in WORKLOADS if not args.names or any(part.lower() in name.lower() for part in args.names)]

    console = Console()
    rows: list[Row] = []
    beyond: dict[str, tuple[float, float]] = {}
    with console.status("starting") as status:
        warm_up_dynamo()
        for name in chosen:
            function, inputs = WORKLOADS[name]()
            capture = min(compile_seconds(function, inputs, "aot_eager") for _ in range(2))
            rows.append(measure(name, function, inputs, seconds=args.seconds, report=status.update))
            first = rows[-1].first_call
            beyond[name] = (first["zefuse"] - capture, first["inductor"] - capture)
    console.print(table(rows, "time per call, medians of alternating rounds"))
    for name, (ours, theirs) in beyond.items():
        console.print(
            f"compile beyond Dynamo and AOTAutograd, {name}: zefuse {ours:.2f} s, Inductor {theirs:.2f} s (cold caches)"
        )
    out = ROOT / "build" / "bench"
    out.mkdir(parents=True, exist_ok=True)
    record = {"machine": machine(), "rows": [row.to_dict() for row in rows], "compile_beyond_capture": beyond}
    (out / "models.json").write_text(json.dumps(record, indent=1))
    console.print(f"written to {(out / 'models.json').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
