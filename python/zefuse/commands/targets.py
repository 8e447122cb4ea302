"""``zefuse targets``: what can be compiled for."""

from __future__ import annotations

import argparse
import json


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="plain data instead of tables")
    parser.add_argument(
        "--markdown", action="store_true", help="docs/targets.md: the tables alone, which are the same on every machine"
    )


def run(args: argparse.Namespace) -> None:
    from zefuse import targets

    if args.json:
        print(json.dumps({**targets.table(), "compilers": targets.compilers()}))
    elif args.markdown:
        print(targets.markdown(), end="")
    else:
        print(targets.here())
