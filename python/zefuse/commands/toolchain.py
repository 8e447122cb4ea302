"""``zefuse toolchain``: Intel's compiler for GPUs."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=["install"], help="unpack a current one beside the distribution's (0.5 GB, no root needed)"
    )
    parser.add_argument("--json", action="store_true", help="plain data about the compiler instead of progress")


def run(args: argparse.Namespace) -> None:
    from zefuse.installing import toolchain

    if not args.json:
        toolchain.install()
        return
    import json

    said: list[str] = []
    command = toolchain.install(lambda text: said.append(text))
    print(json.dumps({"command": str(command), "version": said[-1].removeprefix(f"{command}: ")}))
