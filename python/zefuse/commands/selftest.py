"""``zefuse selftest``: kernels and models compared with eager, with a report to send."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", help="cpu (default), or gpu:0")
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="where the report goes, in JSON; default: zefuse-selftest-DEVICE.json in this folder",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="plain data on standard output instead of the table; no report unless --report names one",
    )
    parser.add_argument("--deadline", type=float, default=60.0, metavar="SECONDS", help="of each part; default: 60")


def run(args: argparse.Namespace) -> int:
    from zefuse import selftest

    if args.json:
        return selftest.as_json(args.device, args.report, args.deadline)
    return selftest.main(args.device, args.report, args.deadline)
