"""``zefuse check``: whether a compiled model is right, and whether compiling pays."""

from __future__ import annotations

import argparse

from zefuse.commands import factories


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help=factories.HELP)
    parser.add_argument(
        "--modes",
        default="usual",
        metavar="LIST",
        help="usual (default), all, or modes separated by semicolons, each of the words grad, no_grad, inference_mode, "
        'channels_last, bf16, one_thread, dynamic joined by commas: "grad,bf16;no_grad,dynamic"',
    )
    parser.add_argument(
        "--tolerance", type=float, metavar="X", help="relative, instead of what eager's own error allows"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to time; 0: not at all; default: 2")
    parser.add_argument("--inductor", action="store_true", help="time Inductor as well")
    parser.add_argument(
        "--reproducer",
        default=".",
        metavar="FOLDER",
        help="where a program goes that shows a difference; default: here",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as in torch.compile's options, such as fuse=false",
    )
    parser.add_argument("--json", action="store_true", help="plain data instead of tables")


def run(args: argparse.Namespace) -> int:
    from zefuse.options import Options, parsed

    factories.check_name(args.model, "check")
    options = Options.make(dict(parsed(text) for text in args.option))

    from zefuse import checking
    from zefuse.commands.progress import Progress

    made = factories.model_of(args.model, "check")
    progress = Progress()
    try:
        report = checking.check(
            made.model,
            made.inputs,
            made.kwargs,
            modes=args.modes if args.modes in ("usual", "all") else args.modes.split(";"),
            options=options,
            tolerance=args.tolerance,
            timed=args.seconds > 0,
            seconds=args.seconds if args.seconds > 0 else 1.0,
            inductor=args.inductor,
            reproducer=args.reproducer,
            progress=progress,
        )
    finally:
        progress.done()
    if args.json:
        import json

        print(json.dumps(report.to_dict()))
    else:
        from rich.console import Console

        Console().print(report)
    return 0 if report.ok else 1
