"""`make status`: docs/status.md, what becomes of each model of the zoo in its real size, forward and backward, and how fast it is.

.venv/bin/python tests/zoo/status.py [--no-times] [--size small] [--seconds 6] [--deadline 1200] [name ...]

Each model runs in processes of its own under a deadline, so that none can hurt another's row. Only the rows of the models named
(a part of a name is enough; default: all) are measured; the others keep what tests/zoo/status.json holds of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tests", "tests/bench"):
    sys.path.insert(0, str(ROOT / folder))

RECORD = ROOT / "tests" / "zoo" / "status.json"
PAGE = ROOT / "docs" / "status.md"
PHASES = ("inference", "training", "inference times", "training times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models (a part of the name is enough); default: all")
    parser.add_argument("--no-times", action="store_true", help="counts and errors only: about half a minute a model")
    parser.add_argument("--size", choices=("real", "small"), default="real", help="of the models that are counted")
    parser.add_argument("--seconds", type=float, default=6.0, help="measuring time of each row")
    parser.add_argument("--deadline", type=float, default=1200.0, help="seconds that a model's process may take")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)  # the child's part
    args = parser.parse_args()
    if args.phase:
        return child(args.names[0], args.phase, args.size, args.seconds)

    import zoo

    record: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    chosen = [name for name in zoo.MAKERS if not args.names or any(part.lower() in name.lower() for part in args.names)]
    if not chosen:
        parser.error(f"no such model; there are {', '.join(zoo.MAKERS)}")
    for name in chosen:
        row = record.setdefault(name, {})
        for phase in PHASES[:2] if args.no_times else PHASES:
            start = time.perf_counter()
            row[phase] = in_child(name, phase, args.size, args.seconds, args.deadline)
            failure = row[phase].get("failure", "")
            print(f"{name}, {phase}: {time.perf_counter() - start:.0f} s {failure[:200]}", flush=True)
        RECORD.write_text(json.dumps({n: record[n] for n in zoo.MAKERS if n in record}, indent=1) + "\n")
        from zoo.status_page import page

        PAGE.write_text(page({n: record[n] for n in zoo.MAKERS if n in record}))
    print(f"written: {PAGE.relative_to(ROOT)}")


def in_child(name: str, phase: str, size: str, seconds: float, deadline: float) -> dict[str, Any]:
    """What the child wrote, or ``{"failure": why}``."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, name, "--phase", phase, "--size", size, "--seconds", str(seconds)]
        output = Path(folder) / "result.json"
        with open(output, "w") as stream:
            process = subprocess.Popen(command, stdout=stream, stderr=subprocess.PIPE, text=True)
            try:
                _, errors = process.communicate(timeout=deadline)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                return {"failure": f"not done after {deadline:.0f} s"}
        text = output.read_text()
        if process.returncode or not text:
            last = errors.strip().splitlines()[-1:] or ["no message"]
            return {"failure": f"the process ended with {process.returncode}: {last[0]}"}
        return json.loads(text.splitlines()[-1])


def child(name: str, phase: str, size: str, seconds: float) -> None:
    import warnings

    warnings.simplefilter("ignore")
    import zoo
    from zoo import examine

    try:
        example = zoo.make(name, size if phase in PHASES[:2] else "real")
        if phase in ("inference", "training"):
            result = getattr(examine, phase)(example).to_dict()
        else:
            result = times(name, example, training=phase == "training times", seconds=seconds)
    except Exception as error:
        traceback.print_exc()
        result = {"failure": f"{type(error).__name__}: {error}".split("\n")[0]}
    result["size"] = size
    print(json.dumps(result))


def times(name: str, example: Any, training: bool, seconds: float) -> dict[str, Any]:
    """Medians of alternating rounds, and the first calls' seconds beyond aot_eager's, with cold caches."""
    import torch
    from zefuse_bench import CONTENDERS, cold_caches, machine, medians, warm_up_dynamo

    run: Callable[[Callable[..., Any]], Any]
    example.model.train(training)
    if training:

        def run(model: Callable[..., Any]) -> Any:
            example.model.zero_grad()
            return example.step(model)

    else:

        def run(model: Callable[..., Any]) -> Any:
            return model(*example.inputs)

    with torch.set_grad_enabled(training):
        warm_up_dynamo()
        run(example.model)
        first: dict[str, float] = {}
        compiled: dict[str, Callable[..., Any]] = {"eager": example.model}
        for contender in ("aot_eager", "aot_eager", *CONTENDERS):
            if contender == "eager":
                continue
            torch._dynamo.reset()
            with cold_caches():
                model = example.compile(contender)
                start = time.perf_counter()
                run(model)
                took = time.perf_counter() - start
            first[contender] = min(took, first.get(contender, took))
            compiled[contender] = model
        contenders: Sequence[str] = CONTENDERS
        median, rounds = medians({c: (lambda c=c: run(compiled[c])) for c in contenders}, seconds)
    return {
        "median": median,
        "rounds": rounds,
        "beyond_aot_eager": {c: first[c] - first["aot_eager"] for c in contenders if c != "eager"},
        "machine": machine(),
    }


if __name__ == "__main__":
    main()
