"""``zefuse compile``: programs of torch.export, and graphs of torch.compile, to a package."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "program",
        nargs="+",
        help="what torch.export.save wrote (.pt2), or module:function that returns such programs or what zefuse.capture "
        "returns; several programs are one model exported with different shapes",
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


def run(args: argparse.Namespace) -> None:
    import time

    from zefuse import targets
    from zefuse.options import Options, parsed

    # What can be wrong before torch is there, which takes seconds.
    checked = Options.make(dict(parsed(text) for text in args.option))
    wanted = [name.strip() for name in args.targets.split(",") if name.strip()]
    targets.resolve(wanted)
    _check_output(args.output)
    for name in args.program:
        _check_program(name)

    import torch  # noqa: F401  # where it is missing, that is what to say first

    import rich  # isort: skip

    from zefuse.aot import compile_package

    programs = [program for name in args.program for program in _programs(name)]

    def progress(kernel: str, target: str, seconds: float, done: int, every: int) -> None:
        how = f"{seconds * 1e3:.0f} ms" if seconds else "cached"
        print(f"[{done}/{every}] {target} {kernel}: {how}", flush=True)

    start = time.perf_counter()
    explanation = compile_package(
        programs,
        args.output,
        targets=wanted,
        standalone=args.standalone,
        options=checked,
        progress=None if args.quiet or args.json else progress,
    )
    if args.json:
        import json

        found = {**explanation.to_dict(), "package": args.output, "bytes": os.path.getsize(args.output)}
        print(json.dumps({**found, "seconds": time.perf_counter() - start}))
    elif not args.quiet:
        rich.print(explanation)
        size = os.path.getsize(args.output) / 1e6
        print(f"wrote {args.output} ({size:.1f} MB) in {time.perf_counter() - start:.1f} s")


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
    from zefuse import file_kinds
    from zefuse.errors import NotFoundError

    if (file := re.fullmatch(r"(?:.*/)?([^/]+)\.py:([\w.]+)", name)) and not os.path.exists(name):
        raise NotFoundError(
            f"compile: {name!r}: a factory is named by its module, as {file[1]}:{file[2]} in the module's folder"
        )
    if not _is_factory(name):
        file_kinds.program(name, "compile")


def _programs(name: str) -> list[Any]:
    """The exported programs that one argument names."""
    import torch

    from zefuse.errors import DamagedError

    if _is_factory(name):
        return _made(name)
    try:
        return [torch.export.load(name)]
    except Exception as error:  # what torch raises for a damaged archive is not one class
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise DamagedError(f"compile: {name!r} is no program of torch.export.save: {first}") from error


def _made(name: str) -> list[Any]:
    """What a factory returns."""
    import torch

    from zefuse import factories
    from zefuse.captured import CapturedGraph
    from zefuse.errors import InvalidArgumentError

    made = factories.call(name, "compile")
    programs = list(made) if isinstance(made, (list, tuple)) else [made]
    for program in programs:
        if not isinstance(program, (torch.export.ExportedProgram, CapturedGraph)):
            raise InvalidArgumentError(
                f"compile: {name!r} returned {type(program).__name__}: expected torch.export.export(...), "
                "zefuse.capture(...), or a list of such"
            )
    return programs
