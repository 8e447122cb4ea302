"""``zefuse explain``: the kernels, calls and fallbacks of a package."""

from __future__ import annotations

import argparse
import json


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package")
    parser.add_argument("--json", action="store_true", help="plain data instead of tables")


def run(args: argparse.Namespace) -> None:
    import rich

    from zefuse.aot import load

    explanation = load(args.package).explain()
    if args.json:
        print(json.dumps(explanation.to_dict()))
    else:
        rich.print(explanation)
