"""``zefuse compile``: programs of torch.export, graphs of torch.compile, or a language model to a package."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "program",
        nargs="*",
        help="what torch.export.save wrote (.pt2), or module:function that returns such programs or what zefuse.capture "
        "returns; several programs are one model exported with different shapes",
    )
    parser.add_argument(
        "--llm", metavar="MODEL", help="a folder that save_pretrained() of transformers wrote, or a GGUF file, instead"
    )
    parser.add_argument("-o", "--output", required=True, help="the package to write")
    parser.add_argument(
        "--targets",
        default="cpu",
        metavar="LIST",
        help="for which devices, by commas: cpu (any x86-64), avx512, dg2-g11 or its PCI id 0x56a5, ... (zefuse targets lists them); "
        "default: cpu",
    )
    parser.add_argument(
        "--standalone", action="store_true", help="for programs without torch: refuse operators that only ATen has"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress and no tables")
    parser.add_argument("--json", action="store_true", help="plain data instead of tables, and no progress")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as in torch.compile's options, such as strict=true",
    )
    llm = parser.add_argument_group("with --llm")
    llm.add_argument("--weights", choices=("int8", "int4"), help="quantize them; default: as they are")
    llm.add_argument(
        "--activations", choices=("int8",), help="quantize them too: faster, less exact; default: as they are"
    )
    llm.add_argument(
        "--cache", choices=("int8",), help="keep keys and values in it; default: as the model computes them"
    )
    llm.add_argument("--group-size", type=int, default=32, metavar="N", help="weights for each scale; default: 32")
    llm.add_argument(
        "--no-batches",
        action="store_true",
        help="leave out the plans for batches and beams: one sequence at a time",
    )
    llm.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="default: float32")


def run(args: argparse.Namespace) -> None:
    import time

    from zefuse import targets
    from zefuse.errors import InvalidArgumentError
    from zefuse.options import Options, parsed

    # What can be wrong before torch is there, which takes seconds.
    checked = Options.make(dict(parsed(text) for text in args.option))
    wanted = [name.strip() for name in args.targets.split(",") if name.strip()]
    targets.resolve(wanted)
    _check_output(args.output)
    if bool(args.program) == (args.llm is not None):
        raise InvalidArgumentError(
            "compile: name a program, as in `zefuse compile model.pt2 -o model.zefuse`, or a language model with --llm"
        )
    if args.llm is None and (args.weights or args.activations or args.cache or args.no_batches):
        raise InvalidArgumentError(
            "compile: --weights, --activations, --cache and --no-batches are for a language model (--llm)"
        )
    for name in args.program:
        _check_program(name)
    if args.llm is not None:
        from zefuse.llm import generating

        generating.check(args.llm)

    import torch  # noqa: F401  # where it is missing, that is what to say first

    def progress(kernel: str, target: str, seconds: float, done: int, every: int) -> None:
        how = f"{seconds * 1e3:.0f} ms" if seconds else "cached"
        print(f"[{done}/{every}] {target} {kernel}: {how}", flush=True)

    start = time.perf_counter()
    work = _language_model if args.llm is not None else _exported
    made = work(args, wanted, checked, None if args.quiet or args.json else progress)
    seconds = time.perf_counter() - start
    if args.json:
        import json

        found = {**made.to_dict(), "package": args.output, "bytes": os.path.getsize(args.output)}
        print(json.dumps({**found, "seconds": seconds}))
    elif not args.quiet:
        import rich

        (print if args.llm is not None else rich.print)(made)
        print(f"wrote {args.output} ({os.path.getsize(args.output) / 1e6:.1f} MB) in {seconds:.1f} s")


def _exported(args: argparse.Namespace, targets: list[str], options: Any, progress: Any) -> Any:
    from zefuse.packages.aot import compile_package

    programs = [program for name in args.program for program in _programs(name)]
    return compile_package(
        programs, args.output, targets=targets, standalone=args.standalone, options=options, progress=progress
    )


def _language_model(args: argparse.Namespace, targets: list[str], options: Any, progress: Any) -> Any:
    from zefuse.llm import compile_package, generating, optimizing

    model, tokenizer = generating.load(args.llm, args.dtype, keep=args.weights is None)
    model, report = optimizing.prepare(
        model, weights=args.weights, group_size=args.group_size, activations=args.activations, cache=args.cache
    )
    report.graphs += compile_package(
        model, args.output, tokenizer=tokenizer, targets=targets, options=options, progress=progress, cache=args.cache,
        batches=not args.no_batches,
    )  # fmt: skip
    return report


def _check_output(path: str) -> None:
    from zefuse.errors import InvalidArgumentError, NotFoundError

    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise InvalidArgumentError(f"compile: -o {path!r} is a folder; name the package to write")
    if not os.path.isdir(folder):
        raise NotFoundError(f"compile: no folder {folder!r} to write {os.path.basename(path)!r} into")
    if not os.access(folder, os.W_OK):
        raise NotFoundError(f"compile: no permission to write into {folder!r}; choose another folder for -o")


def _is_factory(name: str) -> bool:
    return re.fullmatch(r"[\w.]+:[\w.]+", name) is not None and not os.path.exists(name)


def _check_program(name: str) -> None:
    from zefuse.commands import file_kinds
    from zefuse.errors import NotFoundError

    if (file := re.fullmatch(r"(?:.*/)?([^/]+)\.py:([\w.]+)", name)) and not os.path.exists(name):
        raise NotFoundError(
            f"compile: {name!r}: a factory is named by its module, as {file[1]}:{file[2]} in the module's folder"
        )
    if not _is_factory(name):
        file_kinds.program(name, "compile")


def _programs(name: str) -> list[Any]:
    """The exported programs that one argument names."""
    from zefuse.commands import file_kinds

    return _made(name) if _is_factory(name) else [file_kinds.load_program(name, "compile")]


def _made(name: str) -> list[Any]:
    """What a factory returns."""
    import torch

    from zefuse.commands import factories
    from zefuse.errors import InvalidArgumentError
    from zefuse.packages.captured import CapturedGraph

    made = factories.call(name, "compile")
    programs = list(made) if isinstance(made, (list, tuple)) else [made]
    for program in programs:
        if not isinstance(program, (torch.export.ExportedProgram, CapturedGraph)):
            raise InvalidArgumentError(
                f"compile: {name!r} returned {type(program).__name__}: expected torch.export.export(...), "
                "zefuse.capture(...), or a list of such"
            )
    return programs
