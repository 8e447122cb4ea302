"""``zefuse verify``: whether a package is whole, runs here and computes what its model does."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package")
    parser.add_argument(
        "--against",
        metavar="MODEL",
        help="compare with a model in eager: FILE.py:function that returns (model, inputs)",
    )
    parser.add_argument("--device", default="cpu", help="cpu (default), or gpu:0")
    parser.add_argument("--json", action="store_true", help="plain data instead of text")


def run(args: argparse.Namespace) -> int:
    from zefuse.commands import factories, file_kinds
    from zefuse.packages import verifying as packages

    path = file_kinds.package(args.package, "verify")
    against = None
    if args.against is not None:
        factories.check_name(args.against, "verify")
        made = factories.model_of(args.against, "verify")
        against = (made.model, made.inputs, made.kwargs)
    found = packages.verify(path, against, args.device)
    if args.json:
        import json

        print(json.dumps(found.to_dict()))
    else:
        for good, text in found.steps:
            print(f"{'ok' if good else 'wrong'}: {text}")
    return 0 if found.ok else 1
