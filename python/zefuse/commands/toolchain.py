"""``zefuse toolchain``: Intel's compiler for GPUs."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=["install"], help="unpack a current one beside the distribution's (0.5 GB, no root needed)"
    )


def run(args: argparse.Namespace) -> None:
    from zefuse import toolchain

    toolchain.install()
