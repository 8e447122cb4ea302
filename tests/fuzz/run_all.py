"""Random graphs and what is left of torch's operator database side by side, for a machine with many cores that has nothing of
this repository but the folder that scripts/fuzz_check made, and the installed wheel:

    python FOLDER/fuzz/run_all.py --jobs 16 --seconds 550 --seed 200 --rows static:int32,bool training:float32 --out OUT

Ends at its time and goes on another time: what lies in FOLDER/before, an earlier OUT, counts as done, but for its findings.
OUT/SEED/done.jsonl: a line per graph, beside it a finding's program; OUT/rows-2/done.jsonl (rows-all): a line per row of two samples
(of all) or part of one; OUT/summary.txt. Rows alone, those of the mode `dynamic` with at most 12 samples each:

    python FOLDER/fuzz/run_all.py --jobs 64 --graphs 0 --rows static:float32 dynamic:float32 --samples 0 dynamic=12 --out OUT
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "fuzz"))
sys.path.insert(2, str(Path(__file__).resolve().parents[1] / "op_db"))
sys.path.insert(3, str(Path(__file__).resolve().parents[1] / "python"))

from campaign import Campaign, samples_of
from columns import BY_NAME, COLUMNS
from done import Done
from parts import Row
from run import Run
from summary import summary
from table import table, unexpected

FOLDER = Path(__file__).resolve().parents[1]


def rows(chosen: Sequence[str]) -> Iterator[Row]:
    """``chosen``: MODE:DTYPE,DTYPE each, as the database names them."""
    from database import questions  # torch with all that it tests its operators by: seconds

    for each in chosen:
        mode, _, dtypes = each.partition(":")
        yield from questions([], dtypes.split(","), [mode])


def go_on(before: Path, out: Path) -> None:
    """Takes over what an earlier run has done (SEED/ and rows-2/) and this one has not begun; a log may lie in OUT already. What was a
    finding runs again: it may be mended."""
    out.mkdir(parents=True, exist_ok=True)
    for done in sorted(before.glob("*/done.jsonl")):
        here = out / done.parent.name / done.name
        if here.exists():
            continue
        answers = Done(done).read()
        right = [answer for answer in answers if not _finding(answer)]
        here.parent.mkdir(exist_ok=True)
        here.write_text("".join(json.dumps(answer) + "\n" for answer in right))
        print(
            f"{done.parent.name}: {len(right)} done before, {len(answers) - len(right)} findings run again", flush=True
        )


def _finding(answer: dict[str, Any]) -> bool:
    """A graph's answer, or a row's."""
    states = {answer.get("status"), *(finding["status"] for finding in answer.get("findings", []))}
    return not states.isdisjoint({"wrong", "broken", "decomposition"})


def main() -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description="random graphs and rows of the operator database against eager")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes of one core each")
    parser.add_argument("--rows", nargs="*", default=[], metavar="MODE:DTYPES", help="of the operator database")
    parser.add_argument(
        "--row-jobs", type=int, help="of them for rows, until none is left; default: a third (all without graphs)"
    )
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", default="200")
    parser.add_argument("--graphs", type=int, default=100_000)
    parser.add_argument(
        "--columns", type=lambda text: text.split(","), default=[column.name for column in COLUMNS], metavar="NAME,NAME"
    )
    parser.add_argument(
        "--samples", nargs="+", default=["2"], metavar="N|MODE=N", help="of each row at most; 0: all; default: 2"
    )
    parser.add_argument("--shrink", type=float, default=0, help="seconds for making one finding smaller")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.columns if name not in BY_NAME]:
        parser.error(f"no column {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    arguments.deadline, arguments.first = 30.0, 0
    row_jobs = arguments.jobs // 3 if arguments.graphs else arguments.jobs
    row_jobs = row_jobs if arguments.row_jobs is None else arguments.row_jobs
    row_jobs = row_jobs if arguments.rows else 0
    # No GPU of the machine: gpu:0 is the driver over the CPU, posing.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).resolve().parents[1] / "lib"), os.environ.get("PYTHONPATH", "")]
    )
    go_on(FOLDER / "before", arguments.out)
    graphs = Run(arguments, arguments.columns)
    threads = [threading.Thread(target=graphs.work) for _ in range(arguments.jobs - row_jobs)]
    for thread in threads:
        thread.start()
    campaign = None
    if row_jobs:
        wanted = list(rows(arguments.rows))  # takes seconds
        campaign = Campaign(
            wanted,
            lambda most: arguments.out / f"rows-{most or 'all'}" / "done.jsonl",
            samples=samples_of(arguments.samples, sorted({mode for _, _, mode in wanted}), 2),
            jobs=row_jobs,
            deadline_s=60,
            seconds=arguments.seconds - (time.monotonic() - began),
        )

        def rows_then_graphs(campaign: Campaign = campaign) -> None:
            campaign.work()
            graphs.work()

        more = [threading.Thread(target=rows_then_graphs) for _ in range(row_jobs)]
        for thread in more:
            thread.start()
        threads += more
    for thread in threads:
        thread.join()
    text = summary(graphs.answers, time.monotonic() - began)
    text += f"\n{len(graphs.findings)} findings in {len(graphs.answers)} graphs of seed {arguments.seed}\n"
    if campaign is not None:
        text += table(campaign.results) + "\n"
    (arguments.out / "summary.txt").write_text(text)
    print(text)
    return 1 if graphs.findings or (campaign is not None and unexpected(campaign.results)) else 0


if __name__ == "__main__":
    sys.exit(main())
