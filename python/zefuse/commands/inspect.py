"""``zefuse inspect``: what a package holds, every hash checked."""

from __future__ import annotations

import argparse
import json
import os


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package")
    parser.add_argument("--json", action="store_true", help="plain data instead of text")


def run(args: argparse.Namespace) -> None:

    from zefuse import _native
    from zefuse.errors import NotFoundError

    if not os.path.isfile(args.package):
        raise NotFoundError(f"inspect: no file {args.package!r}")
    found = _native.load().package_inspect(args.package)
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
        print(
            f"plan for {plan['target']} ({plan['section']}): {plan['kernels']} launches, {plan['library_calls']} library calls{aten}"
        )
        for kind in ("inputs", "outputs"):
            print(f"  {kind}: {'; '.join(plan[kind])}")
        if plan["conditions"]:
            print(f"  exported for: {'; '.join(plan['conditions'])}")
    for graph in found["captured"]:
        aten = f", ATen: {', '.join(graph['aten'])}" if graph["aten"] else ""
        print(
            f"torch.compile's graph for {graph['target']} ({graph['section']}): {graph['kernels']} launches, "
            f"{graph['library_calls']} library calls{aten}"
        )
        for kind in ("inputs", "outputs"):
            print(f"  {kind}: {'; '.join(graph[kind])}")
    print("sections:")
    for name, size, digest in found["sections"]:
        print(f"  {name}: {size} bytes, {digest[:12]}")
    print(f"weights: {len(found['weights'])}")
    for name, dtype, sizes in found["weights"]:
        print(f"  {name}: {dtype}{sizes}")
