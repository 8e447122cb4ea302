"""``zefuse inspect``: what a package holds, every hash checked."""

from __future__ import annotations

import argparse
import json
from typing import Any


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package")
    parser.add_argument("--json", action="store_true", help="plain data instead of text")


def run(args: argparse.Namespace) -> None:
    from zefuse import reports
    from zefuse.commands import file_kinds

    found = reports.ask("package", file_kinds.package(args.package, "inspect"))
    if args.json:
        print(json.dumps(found))
        return
    print(
        f"{args.package}: format {found['format']}, for runtimes that read format {found['read_by']}, "
        f"by {found['producer']}, every hash is right"
    )
    print(f"  digest {found['digest']}")
    for plan in found["plans"]:
        aten = f", ATen: {', '.join(plan['aten'])}" if plan["aten"] else ""
        print(f"plan for {plan['target']} ({plan['section']}): {_counts(plan)}{aten}")
        for kind in ("inputs", "outputs"):
            print(f"  {kind}: {'; '.join(plan[kind])}")
        if plan["conditions"]:
            print(f"  exported for: {'; '.join(plan['conditions'])}")
    for graph in found["captured"]:
        aten = f", ATen: {', '.join(graph['aten'])}" if graph["aten"] else ""
        print(f"torch.compile's graph for {graph['target']} ({graph['section']}): {_counts(graph)}{aten}")
        for kind in ("inputs", "outputs"):
            print(f"  {kind}: {'; '.join(graph[kind])}")
    print("sections:")
    for name, size, digest in found["sections"]:
        print(f"  {name}: {size} bytes, {digest[:12]}")
    print(f"weights: {len(found['weights'])}")
    for name, dtype, sizes in found["weights"]:
        print(f"  {name}: {dtype}{sizes}")


def _counts(plan: dict[str, Any]) -> str:
    launches, calls = plan["kernels"], plan["library_calls"]
    return f"{launches} launch{'' if launches == 1 else 'es'}, {calls} library call{'' if calls == 1 else 's'}"
