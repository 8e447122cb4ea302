"""make fuzz: random graphs, compiled and compared with eager.

    python tests/fuzz/fuzz.py --graphs 10000 --seed 0

A run is continued where it was stopped: what is done stands in build/fuzz/<seed>/done.jsonl. Findings are files beside it, each a
program that shows one by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import ended
from columns import BY_NAME, CHAINS, COLUMNS, column_of
from pool import Worker
from program import Program
from reproducer import reproducer
from run import Run
from shrink import smaller
from summary import summary


def _again(arguments: argparse.Namespace) -> int:
    program = Program.from_json(json.loads(arguments.again.read_text()))
    worker = Worker(BY_NAME[program.column].poses_as, arguments.deadline)
    answer, program = smaller(worker, program, arguments.shrink)
    answer = ended.judged(worker, program, answer)
    worker.close()
    text = "\n".join(str(answer[key]) for key in ("status", "kind", "text", "reason") if key in answer)
    print(reproducer(program, text) if answer["status"] == "wrong" else text)
    return 1 if answer["status"] == "wrong" else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="random graphs against eager")
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first graph")
    parser.add_argument("--seed", default="0")
    parser.add_argument(
        "--columns",
        default="",
        help=f"of {', '.join(BY_NAME)}; default: all but {', '.join(column.name for column in CHAINS)}",
    )
    parser.add_argument("--device", choices=["cpu", "gpu"], help="only columns that run there; default: both")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--deadline", type=float, default=30, help="seconds of processor time for one graph")
    parser.add_argument(
        "--shrink", type=float, default=60, help="seconds for making one finding smaller; 0: not at all"
    )
    parser.add_argument(
        "--seconds", type=float, default=0, help="for the run, which goes on another time; default: no limit"
    )
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--show", action="store_true", help="print the program of the first graph, and run nothing")
    parser.add_argument(
        "--again", type=Path, help="a finding's file (.json): run it, and make it smaller if it still fails"
    )
    arguments = parser.parse_args()
    names = arguments.columns.split(",") if arguments.columns else [column.name for column in COLUMNS]
    if arguments.device:
        names = [name for name in names if name not in BY_NAME or BY_NAME[name].device.startswith(arguments.device)]
    if unknown := set(names) - set(BY_NAME):
        parser.error(f"no column {', '.join(sorted(unknown))}")
    if arguments.show:
        column = column_of(arguments.first, names)
        worker = Worker(column.poses_as, arguments.deadline)
        made = worker.ask({"seed": f"{arguments.seed}:{arguments.first}", "column": column.name, "only_program": True})
        worker.close()
        print(reproducer(Program.from_json(made["program"]), f"graph {arguments.first}, column {column.name}"))
        return 0
    if arguments.again:
        return _again(arguments)
    run = Run(arguments, names)
    run.go()
    print(summary(run.answers, run.seconds))
    return 1 if run.findings else 0


if __name__ == "__main__":
    sys.exit(main())
