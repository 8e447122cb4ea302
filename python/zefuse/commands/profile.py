"""``zefuse profile``: where a compiled model's time goes."""

from __future__ import annotations

import argparse

from zefuse.commands import factories


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help=factories.HELP)
    parser.add_argument("--picture", metavar="FILE", help="write the roofline as SVG")
    parser.add_argument("--threads", type=int, metavar="N", help="default: one for each core")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="as in torch.compile's options"
    )
    parser.add_argument("--json", action="store_true", help="plain data instead of text")


def run(args: argparse.Namespace) -> None:
    from zefuse.errors import InvalidArgumentError
    from zefuse.options import Options, parsed

    factories.check_name(args.model, "profile")
    options = Options.make(dict(parsed(text) for text in args.option))
    if args.threads is not None and args.threads < 1:
        raise InvalidArgumentError("--threads takes a number from 1 on")

    import torch

    from zefuse.profiling import profile

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    made = factories.model_of(args.model, "profile")
    found = profile(made.model, made.inputs, made.kwargs, options=options)
    if args.picture:
        found.save(args.picture)
    if args.json:
        import json

        print(json.dumps(found.to_dict()))
        return
    from rich.console import Console

    Console().print(found)
