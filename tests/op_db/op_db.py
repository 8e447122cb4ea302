"""make test-full: the samples of torch's operator database, compiled and compared with eager.

    python tests/op_db/op_db.py                          all operators
    python tests/op_db/op_db.py --samples 4 sin cos      some, four samples of each row at most

A row is an operator, a dtype and a mode. A run goes on where it was stopped: what is done stands in build/op_db/done.jsonl. Remove
the file after a mend, or name the operators to run them anew.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "fuzz"))
sys.path.insert(2, str(Path(__file__).resolve().parents[1] / "python"))

from campaign import Campaign, samples_of
from table import table, unexpected


def main() -> int:
    from database import DTYPES, MODES, questions

    parser = argparse.ArgumentParser(description="torch's operator database against eager")
    parser.add_argument("operators", nargs="*", help="as the database names them; default: all")
    parser.add_argument("--dtypes", default="float32,float64,bfloat16,int64,bool", help=f"of {', '.join(DTYPES)}")
    parser.add_argument("--modes", default=",".join(MODES), help=f"of {', '.join(MODES)}")
    parser.add_argument(
        "--samples", default="0", help="of each row at most, such as 4 or static=0,dynamic=12; default: all"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=60, help="seconds of processor time for one sample")
    parser.add_argument(
        "--seconds", type=float, default=0, help="for the run, which goes on another time; default: no limit"
    )
    parser.add_argument("--out", type=Path, default=Path("build/op_db"))
    arguments = parser.parse_args()
    rows = list(questions(arguments.operators, arguments.dtypes.split(","), arguments.modes.split(",")))
    done = arguments.out / ("some.jsonl" if arguments.operators else "done.jsonl")
    if arguments.operators:
        done.unlink(missing_ok=True)
    campaign = Campaign(
        rows,
        done,
        samples=samples_of([arguments.samples], list(MODES), 0),
        jobs=arguments.jobs,
        deadline_s=arguments.deadline,
        seconds=arguments.seconds,
    )
    campaign.go()
    text = table(campaign.results)
    (arguments.out / "report.txt").write_text(text + "\n")
    print(text)
    return 1 if unexpected(campaign.results) else 0


if __name__ == "__main__":
    sys.exit(main())
