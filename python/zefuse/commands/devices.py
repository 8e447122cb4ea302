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
        if all(device["kind"] != "gpu" for device in found):
            import shutil

            from zefuse import doctor

            print(doctor.no_gpu_lines(shutil.get_terminal_size((100, 24)).columns, targets.table()))
