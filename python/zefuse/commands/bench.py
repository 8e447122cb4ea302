"""``zefuse bench --llm``: how fast a language model is in eager, compiled, and in llama.cpp."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--llm",
        required=True,
        metavar="MODEL",
        help="a folder that save_pretrained() of transformers wrote, or a GGUF file",
    )
    parser.add_argument("--prompt", type=int, default=512, metavar="N", help="tokens of the prompt; default: 512")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="tokens that are decoded; default: 64")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default: 5; medians are told")
    parser.add_argument("--only", metavar="NAMES", help="such as 'eager,zefuse int8'; default: all there are")
    parser.add_argument("--seconds", type=float, default=900, metavar="S", help="for all of it; default: 900")
    parser.add_argument("--llama-bench", metavar="PROGRAM", help="llama.cpp's; default: what PATH has")
    parser.add_argument("--threads", type=int, metavar="N", help="default: one for each core")
    parser.add_argument("--json", action="store_true", help="plain data instead of text")


def run(args: argparse.Namespace) -> None:
    from zefuse.errors import InvalidArgumentError
    from zefuse.llm import benchmark

    if args.threads is not None and args.threads < 1:
        raise InvalidArgumentError("--threads takes a number from 1 on")
    import torch

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    names = tuple(name.strip() for name in args.only.split(",")) if args.only else benchmark.NAMES
    settings = benchmark.Settings(
        prompt=args.prompt,
        tokens=args.tokens,
        rounds=args.rounds,
        names=names,
        seconds=args.seconds,
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
