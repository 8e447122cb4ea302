"""docs/gpu_speed.md and its picture, from what speed.py measured, model_speed.py and queueing.py where there is that too.

speed_page.py KERNELS.json [--models MODELS.json] [--queueing QUEUEING.json] [--host TEXT] docs/gpu_speed.md
"""

from __future__ import annotations

import argparse
import json
import math
import textwrap
from pathlib import Path
from typing import Any

DTYPES = ("f32", "bf16")
NAMED = 0.85  # of the better's speed: what is slower has its name in the picture
Row = dict[str, Any]


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def better(row: Row) -> float:
    """ms of eager or Inductor."""
    return min((time for time in (row["eager"], row["Inductor"]) if not math.isnan(time)), default=math.nan)


def against(row: Row) -> float:
    """How many times as fast as the better of the two."""
    return better(row) / row["zefuse"]


def goal(row: Row) -> float:
    """What ``against`` is to be: attention in f32 above torch's, in 16 bits at 0.8 of it; products at 0.85 and 0.6 of cuBLAS's."""
    f32 = row["dtype"] == "f32"
    if row["name"].startswith("attention"):
        return 1.0 if f32 else 0.8
    return 1.0 if not row["product"] else 0.85 if f32 else 0.6


def below(rows: list[Row]) -> str:
    """What misses its goal as it is printed, the farthest first."""
    missed = [row for row in rows if round(against(row), 2) < goal(row)]
    missed.sort(key=lambda row: against(row) / goal(row))
    listed = ", ".join(f"{row['name']} {row['dtype']} {against(row):.2f}" for row in missed)
    return f"Below their goals ({len(missed)} of {len(rows)}): {listed or 'none'}."


def page(found: dict[str, Any], picture: str | None) -> str:
    rows, machine = found["rows"], found["machine"]
    good = [row for row in rows if row["right"] and not math.isnan(row["zefuse"])]
    memory = {dtype: [against(row) for row in good if row["dtype"] == dtype and not row["product"]] for dtype in DTYPES}
    lines = [
        "# Kernels on a GPU, beside eager and Inductor",
        "",
        f"{machine['gpu']}, driver {machine['driver']}, torch {machine['torch']}, {machine['day']};"
        f" a copy on the device moves {machine['GB/s']:.0f} GB/s.",
        "Made by `scripts/gpu-bench` on that machine, with nothing else on the GPU.",
        *textwrap.wrap(found.get("host", ""), 120),
        "",
        "Each number is the time on the device of a call's kernels, as CUPTI reports them: the median of 7 calls, in ms, with the L2",
        "cache overwritten before each. Host time and copies are not in it. The largest error is that against eager in f32, of the",
        "largest value. Eager and Inductor are torch's, without TF32; Inductor's kernels are Triton's, its products cuBLAS's.",
        "",
        f"Without a product: {', '.join(f'{geomean(ratios):.2f} times the better in {dtype}' for dtype, ratios in memory.items())}"
        " (geometric mean; goal 1.2).",
        "Goals: without a product as fast as the better, attention in f32 too, in bf16 0.8 times, products 0.85 (f32) and 0.6.",
        *textwrap.wrap(below(good), 120),
        "Why, and what was tried: [GPUs](gpu.md#not-there-yet).",
        "",
        "| what | dtype | zefuse | eager | Inductor | better / zefuse | rate of zefuse | largest error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["product"]:
            rate = f"{row['operations'] / row['zefuse'] / 1e9:.1f} TFLOP/s"
        else:
            moved = row["bytes"] / row["zefuse"] / 1e6
            rate = f"{moved:.0f} GB/s, {moved / machine['GB/s'] * 100:.0f} %"
        lines.append(
            f"| {row['name']} | {row['dtype']} | {row['zefuse']:.3f} | {row['eager']:.3f} | {row['Inductor']:.3f} |"
            f" {against(row):.2f} | {rate} | {row.get('zefuse error', math.nan):.0e}{'' if row['right'] else ' WRONG'} |"
        )
    if "models" in found:
        lines += models(found["models"])
    if "queueing" in found:
        lines += queueing(found["queueing"])
    if picture:
        lines += [
            "",
            f"![roofline]({picture})",
            "",
            "Rooflines (Williams, Waterman, Patterson: CACM 2009). Operations count one for each element that an operator makes or",
            "reduces, two for each term of a product; bytes are those of inputs and results, once. The slanted roof is the copy's",
            "bandwidth, the level ones the fastest product seen in each dtype. Filled: zefuse; hollow: the better of the others.",
            f"Named: what has less than {NAMED:.0%} of its speed.",
        ]
    return "\n".join([*lines, ""])


def models(rows: list[Row]) -> list[str]:
    """A table of whole models."""
    good = [row for row in rows if row["right"] and not math.isnan(row["zefuse"])]
    lines = [
        "",
        "## Whole models, from a package",
        "",
        "A package made on that machine, loaded and called through the C interface: parameters, inputs and results lie on the GPU.",
        "Times in ms as above; in brackets from a call's first kernel's start to its last one's end. Eager and Inductor have CUDA tensors.",
        "Goal: at most the better's time, and a first call within 1 s of loading.",
        f"{geomean([against(row) for row in good]):.2f} times the better (geometric mean).",
        "",
        "| model, dtype, batch | zefuse | eager | Inductor | better / zefuse | load, s | first call, s | largest error |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def time(row: Row, way: str) -> str:
        return f"{row[way]:.3f} ({row.get(way + ' span', math.nan):.2f})"

    for row in rows:
        lines.append(
            f"| {row['case'].replace('/', ', ')} | {time(row, 'zefuse')} | {time(row, 'eager')} | {time(row, 'Inductor')} |"
            f" {against(row):.2f} | {row.get('load s', math.nan):.2f} | {row.get('first call s', math.nan):.2f} |"
            f" {row.get('zefuse error', math.nan):.0e}{'' if row['right'] else ' WRONG'} |"
        )
    return lines


def queueing(sentences: list[str]) -> list[str]:
    return ["", "## Queueing", "", "Goal: 2 us of the host for a launch, a recorded list as a CUDA graph.", ""] + [
        f"- {each}" for each in sentences
    ]


def draw(found: dict[str, Any], file: Path) -> bool:
    """False where there is no matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    rows = [row for row in found["rows"] if row["right"] and row["operations"] and not math.isnan(row["zefuse"])]
    if not rows:
        return False

    def rate(row: Row, ms: float) -> float:
        return float(row["operations"]) / ms / 1e9  # TFLOP/s

    bandwidth = found["machine"]["GB/s"] / 1e3  # TB/s
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    intensities = [row["operations"] / row["bytes"] for row in rows]
    low, high = min(intensities) / 2, max(intensities) * 2
    for dtype, colour in zip(DTYPES, ("tab:blue", "tab:orange"), strict=True):
        mine = [row for row in rows if row["dtype"] == dtype]
        peak = max((rate(row, min(row["zefuse"], better(row))) for row in mine if row["product"]), default=math.inf)
        roof = [low, min(high, peak / bandwidth), high] if peak < math.inf else [low, high]
        axes.plot(roof, [min(peak, x * bandwidth) for x in roof], color=colour, linewidth=1)
        for row in mine:
            x, own, other = row["operations"] / row["bytes"], rate(row, row["zefuse"]), rate(row, better(row))
            axes.plot([x, x], [own, other], color=colour, linewidth=0.5)
            axes.plot([x], [other], "o", markerfacecolor="none", color=colour, markersize=5)
            axes.plot([x], [own], "o", color=colour, markersize=5, label=dtype if row is mine[0] else None)
            if against(row) < NAMED:
                axes.annotate(
                    row["name"], (x, own), xytext=(6, -3), textcoords="offset points", fontsize=7, color=colour
                )
    axes.set(xscale="log", yscale="log", xlabel="operations / byte", ylabel="TFLOP/s", title=found["machine"]["gpu"])
    axes.grid(visible=True, which="major", linewidth=0.3)
    axes.legend(loc="upper left")
    figure.savefig(file, metadata={"Date": None})
    return True


def write(found: dict[str, Any], file: Path) -> None:
    """The page, and beside it the picture, or a word why there is none."""
    picture = file.with_suffix(".svg")
    drawn = draw(found, picture)
    if not drawn:
        print(
            f"no picture: matplotlib is not installed, or nothing was right; {Path(__file__).name} makes it elsewhere"
        )
    file.write_text(page(found, picture.name if drawn else None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--queueing", type=Path)
    parser.add_argument("--host", default="", help="what else is to be said of the machine then")
    parser.add_argument("page", type=Path)
    given = parser.parse_args()
    found = json.loads(given.kernels.read_text()) | {"host": given.host}
    for part, file in (("models", given.models), ("queueing", given.queueing)):
        if file is not None:
            found[part] = json.loads(file.read_text())
    write(found, given.page)


if __name__ == "__main__":
    main()
