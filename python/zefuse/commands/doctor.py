"""``zefuse doctor``: what this machine has of what zefuse needs."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="plain data instead of text")


def run(args: argparse.Namespace) -> int:
    from zefuse import doctor

    return doctor.main(args.json)
