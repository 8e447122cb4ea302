"""``zefuse bench``: how fast a model is in eager, compiled, and elsewhere."""

from __future__ import annotations

import argparse

from zefuse.commands import factories


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", help=factories.HELP)
    parser.add_argument(
        "--llm", metavar="MODEL", help="a folder that save_pretrained() of transformers wrote, or a GGUF file, instead"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="for all of it; default: 5, with --llm 900")
    parser.add_argument("--threads", type=int, metavar="N", help="default: one for each core")
    parser.add_argument("--json", action="store_true", help="plain data instead of text")
    model = parser.add_argument_group("of a model")
    model.add_argument("--no-inductor", action="store_true", help="eager and zefuse alone")
    model.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="as in torch.compile's options"
    )
    llm = parser.add_argument_group("with --llm")
    llm.add_argument("--prompt", type=int, default=512, metavar="N", help="tokens of the prompt; default: 512")
    llm.add_argument("--tokens", type=int, default=64, metavar="N", help="tokens that are decoded; default: 64")
    llm.add_argument("--rounds", type=int, default=5, metavar="N", help="default: 5; medians are told")
    llm.add_argument("--only", metavar="NAMES", help="such as 'eager,zefuse int8'; default: all there are")
    llm.add_argument("--llama-bench", metavar="PROGRAM", help="llama.cpp's; default: what PATH has")


def run(args: argparse.Namespace) -> None:
    from zefuse.errors import InvalidArgumentError

    if args.threads is not None and args.threads < 1:
        raise InvalidArgumentError("--threads takes a number from 1 on")
    if (args.model is None) == (args.llm is None):
        raise InvalidArgumentError(
            "bench: name a model, as in `zefuse bench model.py:make`, or a language model with --llm"
        )
    if args.seconds is not None and not 0 < args.seconds <= 86400:
        raise InvalidArgumentError("--seconds takes a number above 0, a day at most")
    if args.llm is None:
        _model(args)
    else:
        _language_model(args)


def _model(args: argparse.Namespace) -> None:
    from zefuse.options import Options, parsed

    factories.check_name(args.model, "bench")
    options = Options.make(dict(parsed(text) for text in args.option))

    import torch

    from zefuse.checking import timing
    from zefuse.checking.subject import Subject
    from zefuse.commands.progress import Progress

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    made = factories.model_of(args.model, "bench")
    subject = Subject.of(made.model, made.inputs, made.kwargs)
    subject.require_eager()
    progress = Progress()
    try:
        timed = timing.of_model(subject, options, not args.no_inductor, args.seconds or 5.0, progress)
    finally:
        progress.done()
    if args.json:
        import json

        print(json.dumps({"name": subject.name, **timed.to_dict()}))
        return
    from rich.console import Console

    Console().print(timed.table())
    for name, reason in timed.left_out.items():
        print(f"{timing.NAMES.get(name, name)} was not timed: {reason}")
    print(timed.sentence())


def _language_model(args: argparse.Namespace) -> None:
    from zefuse.llm import benchmark

    import torch  # isort: skip

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    names = tuple(name.strip() for name in args.only.split(",")) if args.only else benchmark.NAMES
    settings = benchmark.Settings(
        prompt=args.prompt,
        tokens=args.tokens,
        rounds=args.rounds,
        names=names,
        seconds=args.seconds or 900.0,
        llama_bench=args.llama_bench,
    )
    result = benchmark.run(args.llm, settings)
    if args.json:
        print(result.as_json())
        return
    import rich

    rich.print(result.table())
    for line in result.left_out():
        print(line)
    print(f"This machine reads {result.bandwidth / 1e9:.1f} GB/s. {result.sentence()}")
