"""``zefuse generate``: a language model answers a prompt, or several."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zefuse.llm.generating import Speed
    from zefuse.llm.several import Answers


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        help="a folder that save_pretrained() of transformers wrote, a GGUF file, or a package of zefuse compile --llm, which "
        "needs neither torch nor transformers",
    )
    parser.add_argument(
        "--prompt", required=True, action="append", help="what to say to it; several are answered at the same time"
    )
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="default: 128")
    parser.add_argument("--weights", choices=("int8", "int4"), help="quantize them; default: as they are")
    parser.add_argument(
        "--activations", choices=("int8",), help="quantize them too: faster, less exact; default: as they are"
    )
    parser.add_argument(
        "--cache", choices=("int8",), help="keep keys and values in it; default: as the model computes them"
    )
    parser.add_argument("--group-size", type=int, default=32, metavar="N", help="weights for each scale; default: 32")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="default: float32")
    parser.add_argument(
        "--num-beams", type=int, default=1, metavar="N", help="search for the likeliest answer with N beams; default: 1"
    )
    parser.add_argument("--length-penalty", type=float, default=1.0, metavar="P", help="of --num-beams; default: 1")
    parser.add_argument(
        "--early-stopping", choices=("false", "true", "never"), default="false", help="of --num-beams; default: false"
    )
    parser.add_argument("--sample", action="store_true", help="draw tokens; default: the likeliest one each time")
    parser.add_argument("--temperature", type=float, default=1.0, help="of --sample; default: 1")
    parser.add_argument("--top-k", type=int, default=50, metavar="N", help="of --sample; default: 50")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="of --sample; default: 1")
    parser.add_argument("--seed", type=int, default=0, help="of --sample; default: 0")
    parser.add_argument(
        "--repetition-penalty",
        type=float,
        default=1.0,
        metavar="P",
        help="above 1: against tokens that came; default: 1",
    )
    parser.add_argument(
        "--no-repeat-ngram-size",
        type=int,
        default=0,
        metavar="N",
        help="no N tokens come twice in a row; default: 0, they may",
    )
    parser.add_argument("--min-new-tokens", type=int, default=0, metavar="N", help="before an answer ends; default: 0")
    parser.add_argument("--raw", action="store_true", help="the prompt as it is, not as a message of a conversation")
    parser.add_argument("--threads", type=int, metavar="N", help="default: one for each core")
    parser.add_argument("--json", action="store_true", help="plain data at the end, instead of text as it comes")
    parser.add_argument("-q", "--quiet", action="store_true", help="the text alone")


_PROCESSING = ("repetition_penalty", "no_repeat_ngram_size", "min_new_tokens")


def run(args: argparse.Namespace) -> None:
    from zefuse.errors import InvalidArgumentError

    if args.max_new_tokens < 1 or (args.threads is not None and args.threads < 1):
        raise InvalidArgumentError("--max-new-tokens and --threads take a number from 1 on")
    from zefuse.commands import file_kinds

    stopping = {"false": False, "true": True}.get(args.early_stopping, args.early_stopping)
    args.search = {"length_penalty": args.length_penalty, "early_stopping": stopping}
    from zefuse.llm import several

    several.check(args.num_beams, **args.search, drawn=args.sample)
    from zefuse.llm.processing import Processing

    args.processing = {name: getattr(args, name) for name in _PROCESSING}
    Processing(**args.processing)
    made = (_from_package if file_kinds.is_package(args.model) else _from_model)(args)
    if isinstance(made, several.Answers):
        if not args.json:
            made.tell(print)
    elif args.json or not args.quiet:
        made.measure_bandwidth()
    if args.json:
        import json

        print(json.dumps(made.to_dict()))
    elif not args.quiet:
        print(f"\n{made}")


def _are_several(args: argparse.Namespace) -> bool:
    return len(args.prompt) > 1 or args.num_beams > 1


def _from_package(args: argparse.Namespace) -> Speed | Answers:
    import time

    from zefuse.errors import InvalidArgumentError

    began = time.perf_counter()
    if args.weights or args.activations or args.cache or args.dtype:
        raise InvalidArgumentError(
            f"{args.model!r} is a package: --weights, --activations, --cache and --dtype are of zefuse compile --llm"
        )
    from zefuse.llm import generating, load_package, several
    from zefuse.packages import c_model

    threads = c_model.num_threads(args.threads)
    options = {"raw": args.raw, **args.processing}
    if args.sample:
        options |= {name: getattr(args, name) for name in ("temperature", "top_k", "top_p", "seed")}
    model = load_package(args.model)
    if _are_several(args):
        options |= {"num_beams": args.num_beams, **args.search}
        return several.from_package(model, args.prompt, args.max_new_tokens, began, **options)
    return generating.generate_from_package(
        model, args.prompt[0], args.max_new_tokens, began, _tell(args), threads, **options
    )


def _from_model(args: argparse.Namespace) -> Speed | Answers:
    import contextlib
    import io

    from zefuse.llm import generating, limits, optimize, package, several

    model, tokenizer = generating.load(args.model, args.dtype or "float32", keep=args.weights is None)
    import torch

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    ids = [generating.ids_of(tokenizer, prompt, args.raw) for prompt in args.prompt]
    package.check_length(limits.context_of(model), max(each.shape[1] for each in ids), args.max_new_tokens)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        quantized = {"weights": args.weights, "activations": args.activations, "cache": args.cache}
        model = optimize(model, group_size=args.group_size, **quantized)
    if not args.quiet and not args.json:
        print(said.getvalue())
    options = {"do_sample": args.sample, **args.processing}
    if args.sample:
        torch.manual_seed(args.seed)
        options |= {"temperature": args.temperature, "top_k": args.top_k, "top_p": args.top_p}
    if _are_several(args):
        if args.num_beams > 1:
            options |= {"num_beams": args.num_beams, **args.search}
        return several.from_model(model, tokenizer, ids, args.max_new_tokens, **options)
    return generating.generate(model, tokenizer, ids[0], _tell(args), max_new_tokens=args.max_new_tokens, **options)


def _tell(args: argparse.Namespace) -> Callable[[str], None]:
    return (lambda _: None) if args.json else (lambda text: print(text, end="", flush=True))
