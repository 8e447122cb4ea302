"""The command ``zefuse`` (also ``python -m zefuse``)."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 on success, 1 with one readable message on an error, 2 on wrong usage."""
    parser = argparse.ArgumentParser(prog="zefuse", description="Compile and look at models with zefuse.")
    commands = parser.add_subparsers(dest="command", required=True)

    compile_ = commands.add_parser("compile", help="compile a model to a package (.zefuse)")
    compile_.add_argument(
        "program",
        nargs="+",
        help="what torch.export.save wrote (.pt2), or module:function that returns such programs or what zefuse.capture "
        "returns; several programs are one model exported with different shapes",
    )
    compile_.add_argument("-o", "--output", required=True, help="the package to write")
    compile_.add_argument(
        "--targets",
        default="cpu",
        metavar="LIST",
        help="for which devices, by commas: cpu (any x86-64), avx512, dg2-g11 or its PCI id 0x56a5, ... (zefuse targets lists them); "
        "default: cpu",
    )
    compile_.add_argument(
        "--standalone", action="store_true", help="for programs without torch: refuse operators that only ATen has"
    )
    compile_.add_argument("-q", "--quiet", action="store_true", help="no progress and no tables")
    compile_.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as in torch.compile's options, such as strict=true",
    )
    compile_.set_defaults(run=_compile)

    inspect = commands.add_parser("inspect", help="check every hash of a package and list what it holds")
    inspect.add_argument("package")
    inspect.add_argument("--json", action="store_true", help="plain data instead of text")
    inspect.set_defaults(run=_inspect)

    targets = commands.add_parser("targets", help="the devices that can be compiled for, and what covers them here")
    targets.add_argument("--json", action="store_true", help="plain data instead of tables")
    targets.add_argument("--markdown", action="store_true", help="docs/targets.md: what does not hang on this machine")
    targets.set_defaults(run=_targets)

    devices = commands.add_parser("devices", help="the devices of this machine")
    devices.add_argument("--json", action="store_true", help="plain data instead of text")
    devices.set_defaults(run=_devices)

    toolchain = commands.add_parser("toolchain", help="Intel's compiler for GPUs")
    toolchain.add_argument(
        "action", choices=["install"], help="unpack a current one beside the distribution's (0.5 GB, no root needed)"
    )
    toolchain.set_defaults(run=_toolchain)

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
        sys.stdout.flush()
    except ZefuseError as error:
        print(f"zefuse: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read it has seen enough, as `head`; what is still buffered must go nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _compile(args: argparse.Namespace) -> None:
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


def _inspect(args: argparse.Namespace) -> None:

    from zefuse import _native
    from zefuse.errors import NotFoundError

    if not os.path.isfile(args.package):
        raise NotFoundError(f"inspect: no file {args.package!r}")
    found = _native.load().package_inspect(args.package)
    if args.json:
        print(json.dumps(found))
        return
    print(
        f"{args.package}: format {found['format']}, for runtimes that read format {found['read_by']}, "
        f"by {found['producer']}, every hash is right"
    )
    print(f"  digest {found['digest']}")
    for plan in found["plans"]:
        aten = f", ATen: {', '.join(plan['aten'])}" if plan["aten"] else ""
        print(
            f"plan for {plan['target']} ({plan['section']}): {plan['kernels']} launches, {plan['library_calls']} library calls{aten}"
        )
        for kind in ("inputs", "outputs"):
            print(f"  {kind}: {'; '.join(plan[kind])}")
        if plan["conditions"]:
            print(f"  exported for: {'; '.join(plan['conditions'])}")
    for graph in found["captured"]:
        aten = f", ATen: {', '.join(graph['aten'])}" if graph["aten"] else ""
        print(
            f"torch.compile's graph for {graph['target']} ({graph['section']}): {graph['kernels']} launches, "
            f"{graph['library_calls']} library calls{aten}"
        )
        for kind in ("inputs", "outputs"):
            print(f"  {kind}: {'; '.join(graph[kind])}")
    print("sections:")
    for name, size, digest in found["sections"]:
        print(f"  {name}: {size} bytes, {digest[:12]}")
    print(f"weights: {len(found['weights'])}")
    for name, dtype, sizes in found["weights"]:
        print(f"  {name}: {dtype}{sizes}")


def _targets(args: argparse.Namespace) -> None:
    from zefuse import targets

    if args.json:
        print(json.dumps({**targets.table(), "compilers": targets.compilers()}))
    elif args.markdown:
        print(targets.markdown(), end="")
    else:
        print(targets.here())


def _toolchain(args: argparse.Namespace) -> None:
    from zefuse import toolchain

    toolchain.install()


def _devices(args: argparse.Namespace) -> None:
    from zefuse import targets

    found = targets.devices()
    if args.json:
        print(json.dumps(found))
    else:
        print("\n".join(targets.describe(device) for device in found))


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
    from zefuse.errors import NotFoundError

    folder = cache.directory() if args.dir is None else args.dir
    native = _native.load()
    if not folder and args.action != "stat":
        raise NotFoundError(f"cache {args.action}: {cache.stat('')}; name a folder with --dir")
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
