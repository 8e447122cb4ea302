"""Measuring, shared by `make demo` and `make bench`: alternating rounds, medians, ratios, and what the machine was.

Alternating matters: on a shared machine one contender's minute is not another's. Ratios of medians from one such run
count; absolute times do not. Nothing here decides a test.
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from zefuse import backend
from zefuse.explaining.explanation import Explanation
from zefuse.testing import relative_error

CONTENDERS = ("eager", "inductor", "zefuse")


def machine() -> str:
    """One line: processor, instruction set, cores, torch and its threads, load."""
    model, flags = platform.machine(), ""
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    model = value.strip()
                elif key.strip() == "flags":
                    flags = value
                    break
    except OSError:
        pass
    best = next((name for name in ("amx_tile", "avx512f", "avx2") if name in flags.split()), "no AVX2")
    return (
        f"{model} ({best}), {os.cpu_count()} cores, torch {torch.__version__} with {torch.get_num_threads()} threads, "
        f"load {os.getloadavg()[0]:.1f}"
    )


@dataclass
class Row:
    """One model: what it became and the seconds each contender took."""

    name: str
    explanation: Explanation
    first_call: dict[str, float]  # seconds: compile and first run
    median: dict[str, float]  # seconds per call
    rounds: int
    error: dict[str, float] = field(default_factory=dict)  # relative, against eager

    def ratio(self, other: str) -> float:
        """How many times faster zefuse is than ``other``."""
        return self.median[other] / self.median["zefuse"]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "first_call": self.first_call,
            "median": self.median,
            "rounds": self.rounds,
            "error": self.error,
            "kernels": len(self.explanation.kernels),
            "calls": len(self.explanation.calls),
            "fallbacks": sorted({entry["op"] for entry in self.explanation.fallbacks}),
        }


def warm_up_dynamo(contenders: Sequence[str] = CONTENDERS) -> None:
    """The first use of torch.compile imports for a second: no contender should pay for the others."""
    for name in ("aot_eager", *(contender for contender in contenders if contender != "eager")):
        torch.compile(_nothing, backend=name)(torch.ones(3))
        torch._dynamo.reset()


def _nothing(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@contextmanager
def cold_caches() -> Iterator[None]:
    """Inductor's caches and zefuse's native-code cache are empty inside: first calls show what compiling costs."""
    from torch._inductor.utils import fresh_cache

    before = os.environ.get("ZEFUSE_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder, fresh_cache():
        os.environ["ZEFUSE_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["ZEFUSE_CACHE_DIR"]
            else:
                os.environ["ZEFUSE_CACHE_DIR"] = before


def measure(
    name: str,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    seconds: float = 6.0,
    contenders: Sequence[str] = CONTENDERS,
    report: Callable[[str], None] = lambda text: None,
    cold: bool = True,
) -> Row:
    """Compiles ``function`` with each contender, checks the results against eager, then measures for about ``seconds``. Not
    ``cold``: first calls find what earlier processes compiled."""
    torch._dynamo.reset()
    explanation = Explanation()
    runs: dict[str, Callable[..., Any]] = {}
    first_call: dict[str, float] = {}
    error: dict[str, float] = {}
    expected = function(*inputs)
    for contender in contenders:
        report(f"{name}: {contender}, first call")
        run = function if contender == "eager" else torch.compile(function, backend=contender)
        with cold_caches() if cold else nullcontext(), backend.observe(explanation.add):
            start = time.perf_counter()
            result = run(*inputs)
            first_call[contender] = time.perf_counter() - start
        error[contender] = relative_error(result, expected)
        runs[contender] = run
        run(*inputs)

    report(f"{name}: measuring")
    median, rounds = medians({contender: partial(run, *inputs) for contender, run in runs.items()}, seconds)
    return Row(name, explanation, first_call, median, rounds, error)


def medians(
    runs: dict[str, Callable[[], Any]],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    before: Callable[[], Any] | None = None,
) -> tuple[dict[str, float], int]:
    """Median seconds per call of each contender, and the number of rounds: alternating, for about ``seconds``, at least three.

    ``clock``: what is measured, such as ``time.process_time``; ``seconds`` are always by the wall. ``before``: is called ahead of
    each call that is measured, and not measured itself.
    """
    contenders = list(runs)
    times: dict[str, list[float]] = {contender: [] for contender in contenders}
    end = time.perf_counter() + seconds
    rounds = 0
    while time.perf_counter() < end or rounds < 3:
        order = [contenders[(rounds + shift) % len(contenders)] for shift in range(len(contenders))]
        for contender in order:  # whoever ran before leaves its data in the cache: take turns at that too
            runs[contender]()
            if before:
                before()
            start = clock()
            runs[contender]()
            times[contender].append(clock() - start)
        rounds += 1
    return {contender: statistics.median(values) for contender, values in times.items()}, rounds


def table(rows: Sequence[Row], title: str) -> Any:
    """A rich table, one column per model (so that it fits a narrow terminal)."""
    from rich.table import Table

    result = Table(title=title, title_justify="left", caption_justify="left", caption=machine())
    result.add_column("")
    for row in rows:
        result.add_column(row.name, justify="right")
    lines: dict[str, Callable[[Row], str]] = {
        "device": lambda row: row.explanation.device,
        "kernels": lambda row: str(len(row.explanation.kernels)),
        "library calls": lambda row: str(len(row.explanation.calls)),
        "fallbacks": lambda row: str(len(row.explanation.fallbacks)),
        "largest error against eager": lambda row: f"{row.error['zefuse']:.1e}",
        "first call, Inductor": lambda row: f"{row.first_call['inductor']:.2f} s",
        "first call, zefuse": lambda row: f"{row.first_call['zefuse']:.2f} s",
        "time per call, eager": lambda row: f"{row.median['eager'] * 1e3:.2f} ms",
        "time per call, Inductor": lambda row: f"{row.median['inductor'] * 1e3:.2f} ms",
        "time per call, zefuse": lambda row: f"{row.median['zefuse'] * 1e3:.2f} ms",
        "faster than eager": lambda row: _ratio(row.ratio("eager")),
        "faster than Inductor": lambda row: _ratio(row.ratio("inductor")),
    }
    for name, cell in lines.items():
        if "Inductor" in name and not all("inductor" in row.median for row in rows):
            continue
        result.add_row(
            name,
            *(cell(row) for row in rows),
            end_section=name
            in ("device", "largest error against eager", "first call, zefuse", "time per call, zefuse"),
        )
    return result


def _ratio(value: float) -> str:
    return f"[{'green' if value >= 1 else 'red'}]{value:.2f} times[/]"


def bar_chart(rows: Sequence[Row], path: str) -> None:
    """Time per call of each contender, relative to eager."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(1.6 + 2.2 * len(rows), 4), layout="constrained")
    contenders = list(rows[0].median)
    width = 0.8 / len(contenders)
    for position, contender in enumerate(contenders):
        heights = [row.median[contender] / row.median["eager"] for row in rows]
        bars = axes.bar([index + position * width for index in range(len(rows))], heights, width, label=contender)
        axes.bar_label(bars, [f"{row.median[contender] * 1e3:.1f}" for row in rows], fontsize=8)
    axes.set_xticks([index + width for index in range(len(rows))], [row.name for row in rows])
    axes.set_ylabel("relative to eager (lower is better)")
    axes.set_title("ms per call, medians", fontsize=10)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=len(contenders))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
