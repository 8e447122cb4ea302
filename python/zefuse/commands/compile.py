"""``zefuse compile``: programs of torch.export, and graphs of torch.compile, to a package."""

from __future__ import annotations

import argparse
import json
import os
import sys
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
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as in torch.compile's options, such as strict=true",
    )


def run(args: argparse.Namespace) -> None:
    import time

    import rich

    from zefuse.aot import compile_package
    from zefuse.options import Options

    checked = Options.make(dict(_option(text) for text in args.option))
    programs = [program for name in args.program for program in _programs(name)]

    def progress(kernel: str, target: str, seconds: float, done: int, every: int) -> None:
        how = f"{seconds * 1e3:.0f} ms" if seconds else "cached"
        print(f"[{done}/{every}] {target} {kernel}: {how}", flush=True)

    start = time.perf_counter()
    explanation = compile_package(
        programs,
        args.output,
        targets=[name.strip() for name in args.targets.split(",") if name.strip()],
        standalone=args.standalone,
        options=checked,
        progress=None if args.quiet else progress,
    )
    if not args.quiet:
        rich.print(explanation)
        size = os.path.getsize(args.output) / 1e6
        print(f"wrote {args.output} ({size:.1f} MB) in {time.perf_counter() - start:.1f} s")


def _programs(name: str) -> list[Any]:
    """The exported programs that one argument names."""
    import importlib
    import re
    import zipfile

    import torch

    from zefuse.captured import CapturedGraph
    from zefuse.errors import DamagedError, InvalidArgumentError, NotFoundError

    if (file := re.fullmatch(r"(?:.*/)?([^/]+)\.py:([\w.]+)", name)) and not os.path.exists(name):
        raise NotFoundError(
            f"compile: {name!r}: a factory is named by its module, as {file[1]}:{file[2]} in the module's folder"
        )
    if re.fullmatch(r"[\w.]+:[\w.]+", name) and not os.path.exists(name):
        module_name, _, function_name = name.partition(":")
        sys.path.insert(0, os.getcwd())
        try:
            factory = getattr(importlib.import_module(module_name), function_name)
        except (ImportError, AttributeError) as error:
            raise NotFoundError(f"compile: no factory {name!r}: {error}") from error
        finally:
            sys.path.pop(0)
        made = factory()
        programs = list(made) if isinstance(made, (list, tuple)) else [made]
        for program in programs:
            if not isinstance(program, (torch.export.ExportedProgram, CapturedGraph)):
                raise InvalidArgumentError(
                    f"compile: {name!r} returned {type(program).__name__}: expected torch.export.export(...), "
                    "zefuse.capture(...), or a list of such"
                )
        return programs
    if not os.path.isfile(name):
        raise NotFoundError(
            f"compile: no file {name!r}; write one with torch.export.save(torch.export.export(model, inputs), path)"
        )
    if not zipfile.is_zipfile(name):
        raise DamagedError(f"compile: {name!r} is no program of torch.export.save (not a zip archive)")
    try:
        return [torch.export.load(name)]
    except Exception as error:  # what torch raises for a damaged archive is not one class
        raise DamagedError(f"compile: {name!r} is no program of torch.export.save: {error}") from error


def _option(text: str) -> tuple[str, Any]:
    from zefuse.errors import OptionError

    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"--option {text!r}: expected NAME=VALUE")
    try:
        return name, json.loads(value)  # true, 4
    except ValueError:
        return name, value
