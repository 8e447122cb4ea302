"""The command ``zefuse`` (also ``python -m zefuse``)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 on success, 1 with one readable message on an error, 2 on wrong usage."""
    parser = argparse.ArgumentParser(prog="zefuse", description="Compile and look at models with zefuse.")
    commands = parser.add_subparsers(dest="command", required=True)

    compile_ = commands.add_parser("compile", help="compile a torch.export program (.pt2) to a package (.zefuse)")
    compile_.add_argument("program", help="what torch.export.save wrote")
    compile_.add_argument("-o", "--output", required=True, help="the package to write")
    compile_.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as in torch.compile's options, such as strict=true",
    )
    compile_.set_defaults(run=_compile)

    explain = commands.add_parser("explain", help="say what a package holds")
    explain.add_argument("package")
    explain.add_argument("--json", action="store_true", help="plain data instead of tables")
    explain.set_defaults(run=_explain)

    cache = commands.add_parser("cache", help="look after the cache of plans and native code")
    cache.add_argument("--dir", help="the folder; default: ZEFUSE_CACHE_DIR, else zefuse in the user's cache folder")
    actions = cache.add_subparsers(dest="action", required=True)
    actions.add_parser("stat", help="how many entries, how large, where")
    why = actions.add_parser(
        "why", help="why the newest entries had to be made: what differs from the nearest earlier one"
    )
    why.add_argument("-n", "--count", type=int, default=20, help="how many of the newest")
    actions.add_parser("clear", help="remove every entry")
    actions.add_parser("export", help="all entries into one file").add_argument("file")
    actions.add_parser("import", help="entries from such a file, which must come from somebody you trust").add_argument(
        "file"
    )
    cache.set_defaults(run=_cache)

    args = parser.parse_args(arguments)
    from zefuse.errors import ZefuseError

    try:
        args.run(args)
    except ZefuseError as error:
        print(f"zefuse: {error}", file=sys.stderr)
        return 1
    return 0


def _compile(args: argparse.Namespace) -> None:
    import os
    import zipfile

    import rich
    import torch

    from zefuse.aot import compile_package
    from zefuse.errors import DamagedError, NotFoundError
    from zefuse.options import Options

    checked = Options.make(dict(_option(text) for text in args.option))
    if not os.path.isfile(args.program):
        raise NotFoundError(
            f"compile: no file {args.program!r}; write one with torch.export.save(torch.export.export(model, inputs), path)"
        )
    if not zipfile.is_zipfile(args.program):
        raise DamagedError(f"compile: {args.program!r} is no program of torch.export.save (not a zip archive)")
    try:
        program = torch.export.load(args.program)
    except Exception as error:  # what torch raises for a damaged archive is not one class
        raise DamagedError(f"compile: {args.program!r} is no program of torch.export.save: {error}") from error
    explanation = compile_package(program, args.output, options=checked)
    rich.print(explanation)
    print(f"wrote {args.output} ({os.path.getsize(args.output) / 1e6:.1f} MB)")


def _option(text: str) -> tuple[str, Any]:
    from zefuse.errors import OptionError

    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"--option {text!r}: expected NAME=VALUE")
    try:
        return name, json.loads(value)  # true, 4
    except ValueError:
        return name, value


def _explain(args: argparse.Namespace) -> None:
    import rich

    from zefuse.aot import load

    explanation = load(args.package).explain()
    if args.json:
        print(json.dumps(explanation.to_dict()))
    else:
        rich.print(explanation)


def _cache(args: argparse.Namespace) -> None:
    from zefuse import _native, cache

    folder = cache.directory() if args.dir is None else args.dir
    native = _native.load()
    if args.action == "stat":
        print(cache.stat(folder))
    elif args.action == "why":
        print("\n".join(cache.why(folder, args.count)) or f"{folder}: no entries")
    elif args.action == "clear":
        print(f"removed {native.cache_clear(folder)} entries from {folder}")
    elif args.action == "export":
        print(f"wrote {native.cache_export(folder, args.file)} entries to {args.file}")
    else:
        print(f"took {native.cache_import(folder, args.file)} entries into {folder}")
