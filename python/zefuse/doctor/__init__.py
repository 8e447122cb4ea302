"""``zefuse doctor``: what this machine has of what zefuse needs, and what to do about the rest.

Facts are collected by theme, through one `Machine`; what may hang or crash runs in children with deadlines, all at the same
time. Findings are made of the facts afterwards. Neither torch nor zefuse's libraries are loaded into this process.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from zefuse.doctor import (
    build,
    cache_folder,
    compilers,
    graphics,
    level_zero,
    processor,
    render,
    system,
    variables,
)
from zefuse.doctor.finding import AllFacts, Finding, Report, Section
from zefuse.doctor.machine import Machine

# Key, title, what makes its findings.
SECTIONS: list[tuple[str, str, Callable[[AllFacts], list[Finding]]]] = [
    ("system", "System", system.judge),
    ("torch", "Python and torch", build.judge_torch),
    ("build", "zefuse", build.judge),
    ("processor", "Processor", processor.judge),
    ("level_zero", "Level Zero", level_zero.judge),
    ("devices", "Devices", graphics.judge),
    ("compilers", "Compilers for GPUs", compilers.judge),
    ("cache", "Cache", cache_folder.judge),
    ("environment", "Environment", variables.judge),
]


def examine(machine: Machine | None = None) -> Report:
    """Everything; seconds, and bounded by deadlines whatever hangs."""
    from zefuse import __version__

    start = time.monotonic()
    machine = machine or Machine()
    facts = _collect(machine)
    sections = [Section(key, title, facts[key], judge(facts)) for key, title, judge in SECTIONS]
    return Report(__version__, sections, time.monotonic() - start)


def _collect(machine: Machine) -> AllFacts:
    there = build.files(machine)
    with ThreadPoolExecutor(3) as threads:  # each waits for children
        loading = threads.submit(build.examine, machine)
        trials = threads.submit(level_zero.collect, machine, _helper(machine))
        asked = threads.submit(compilers.collect, machine)
        try:
            facts: AllFacts = {
                "system": system.collect(machine),
                "processor": processor.collect(machine),
                "devices": graphics.collect(machine),
                "cache": cache_folder.collect(machine),
                "environment": variables.collect(machine),
            }
            facts["torch"], facts["build"] = build.facts_of(machine, there, loading.result())
            facts["level_zero"] = trials.result()
            facts["compilers"] = compilers.with_products(asked.result(), facts["build"]["compilers"])
        except BaseException:  # Ctrl-C: the threads end when what they wait for does
            machine.end_children()
            raise
    return facts


def why_no_gpu(machine: Machine | None = None, targets: dict[str, Any] | None = None) -> Finding:
    """For ``zefuse devices`` where no GPU was found: the reason, and what to do. Torch is not imported for it. ``targets``:
    `zefuse.targets.table`, with which the GPUs that PCI lists have names."""
    machine = machine or Machine()
    facts: AllFacts = {
        "system": system.collect(machine),
        "devices": graphics.collect(machine),
        "level_zero": level_zero.collect(machine, _helper(machine)),
        "build": {"targets": targets},
    }
    return graphics.why_no_gpu(facts)


def no_gpu_lines(width: int, targets: dict[str, Any] | None = None) -> str:
    """`why_no_gpu` as lines for a terminal."""
    finding = why_no_gpu(targets=targets)
    lines = render.wrap(finding.text, width)
    return "\n".join(lines + render.wrap(finding.fix, width, "  -> "))


def _helper(machine: Machine) -> str:
    return str(build.library_dir(machine).absolute() / build.HELPER)


def main(as_json: bool) -> int:
    """Prints the page, or the same as data; 1 where there is a problem."""
    report = examine()
    if as_json:
        print(json.dumps(report.to_dict()))
    else:
        width = shutil.get_terminal_size((100, 24)).columns
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(render.page(report, width, colour))
    return 0 if report.good() else 1
