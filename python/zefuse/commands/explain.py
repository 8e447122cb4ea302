"""``zefuse explain``: the kernels, calls and fallbacks of a package."""

from __future__ import annotations

import argparse
import json


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package")
    parser.add_argument("--json", action="store_true", help="plain data instead of tables")


def run(args: argparse.Namespace) -> None:
    from zefuse import file_kinds, reports
    from zefuse.explanation import Explanation

    explanation = Explanation.of(reports.first_plan(file_kinds.package(args.package, "explain")))
    if args.json:
        print(json.dumps(explanation.to_dict()))
    else:
        import rich

        rich.print(explanation)
