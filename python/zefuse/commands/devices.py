"""``zefuse devices``: what this machine has."""

from __future__ import annotations

import argparse
import json


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="plain data instead of text")


def run(args: argparse.Namespace) -> None:
    from zefuse import targets

    found = targets.devices()
    if args.json:
        print(json.dumps(found))
    else:
        print("\n".join(targets.describe(device) for device in found))
