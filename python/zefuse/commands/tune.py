"""``zefuse tune``: measure the schedules of a model's kernels and who carries its operators out, and keep what is quicker."""

from __future__ import annotations

import argparse
from typing import Any

from zefuse.commands import factories


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help=f"what torch.export.save wrote (.pt2), or {factories.HELP}")
    parser.add_argument("--device", metavar="NAME", help="cpu or gpu:N; default: cpu")
    parser.add_argument("--training", action="store_true", help="the forward and backward of a training step as well")
    parser.add_argument("--seconds", type=float, default=120.0, metavar="S", help="for all of it; default: 120")
    parser.add_argument(
        "--deadline",
        type=int,
        default=20,
        metavar="S",
        help="for one candidate's calls, then it is discarded; default: 20",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="default: one for each core")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="as in torch.compile's options"
    )
    parser.add_argument("--json", action="store_true", help="plain data instead of text")


def run(args: argparse.Namespace) -> None:
    from zefuse.errors import InvalidArgumentError
    from zefuse.options import Options, parsed

    exported = args.model.endswith(".pt2")
    if exported:
        from zefuse.commands import file_kinds

        file_kinds.program(args.model, "tune")
    else:
        factories.check_name(args.model, "tune")
    given = dict(parsed(text) for text in args.option)
    options = Options.make(given if args.device is None else {**given, "device": args.device})
    if args.threads is not None and args.threads < 1:
        raise InvalidArgumentError("--threads takes a number from 1 on")
    if not 0 < args.seconds <= 86400 or not 0 < args.deadline <= 3600:
        raise InvalidArgumentError("--seconds takes a number above 0, a day at most; --deadline an hour at most")
    if exported and args.training:
        raise InvalidArgumentError("tune: --training is for a model that a function makes, not for a program")

    import torch

    from zefuse import tuning
    from zefuse.commands.progress import Progress
    from zefuse.tuning.measuring import tune
    from zefuse.tuning.rows import Limits

    tuning.fields(options.to_dict()["device"])  # whether it is there, before the work
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    made = _exported(args.model) if exported else factories.model_of(args.model, "tune")
    progress = Progress()
    try:
        found = tune(
            made.model,
            made.inputs,
            made.kwargs,
            options=options,
            training=args.training,
            limits=Limits(args.seconds, args.deadline),
            progress=progress,
        )
    finally:
        progress.done()
    if args.json:
        import json

        print(json.dumps(found.to_dict()))
        return
    from rich.console import Console

    Console().print(found)


def _exported(name: str) -> Any:
    from zefuse.commands import file_kinds
    from zefuse.errors import InvalidArgumentError

    program = file_kinds.load_program(name, "tune")
    if program.example_inputs is None:
        raise InvalidArgumentError(
            f"tune: {name!r} holds no example inputs; name a function that returns (model, inputs)"
        )
    positional, named = program.example_inputs
    return factories.Made(program.module(), tuple(positional), dict(named))
