"""`make status`: docs/status.md, what becomes of each model of the zoo in its real size, forward and backward, and how fast it is.

.venv/bin/python tests/zoo/status.py [--no-times] [--no-training-times] [--one-thread] [--size small] [--minutes 45] [name ...]

Each model and phase runs in a process of its own under a deadline, so that none can hurt another's row. Only the rows of the models
named (a part of a name is enough; default: all) are measured; what is not measured, or not reached in the minutes given, keeps what
tests/zoo/status.json holds of it. The record and the page are written after each phase. No phase begins after --minutes, and none
takes longer than --deadline: 45 + 5 minutes at most; by estimate 40 on two quiet cores, of which 15 are training's times.

Times are by the clock, with torch's threads: for a quiet machine. On a shared one use --one-thread: processor time of one
thread, which other programs lengthen little.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tests", "tests/bench"):
    sys.path.insert(0, str(ROOT / folder))

RECORD = ROOT / "tests" / "zoo" / "status.json"
PAGE = ROOT / "docs" / "status.md"
PHASES = ("inference", "inference times", "training", "training times")
COUNTS = ("inference", "training")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models (a part of the name is enough); default: all")
    parser.add_argument("--no-times", action="store_true", help="counts and errors only: about half a minute a model")
    parser.add_argument("--no-training-times", action="store_true", help="times of inference only")
    parser.add_argument("--only", choices=PHASES, action="append", help="these phases only")
    parser.add_argument("--one-thread", action="store_true", help="processor time of one thread, for a shared machine")
    parser.add_argument("--size", choices=("real", "small"), default="real", help="of the models that are counted")
    parser.add_argument("--seconds", type=float, default=5.0, help="measuring time of each row")
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds that a model's phase may take")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds that a first call of Inductor may take")
    parser.add_argument("--minutes", type=float, default=45.0, help="after these no phase is begun")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)  # the child's part
    args = parser.parse_args()
    if args.phase:
        return child(args.names[0], args.phase, args)

    import zoo

    record: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    chosen = [name for name in zoo.MAKERS if not args.names or any(part.lower() in name.lower() for part in args.names)]
    if not chosen:
        parser.error(f"no such model; there are {', '.join(zoo.MAKERS)}")
    phases = [
        phase
        for phase in PHASES
        if phase in (args.only or PHASES)
        and (phase in COUNTS or not args.no_times)
        and (phase != "training times" or not args.no_training_times)
    ]
    end = time.monotonic() + 60 * args.minutes
    for phase in phases:  # the first phase of every model, then the second: a run that is cut short has whole columns
        for name in chosen:
            if time.monotonic() > end:
                print(f"{name}, {phase}: not measured, {args.minutes:g} minutes are over", flush=True)
                continue
            start = time.monotonic()
            result = in_child(name, phase, args)
            record.setdefault(name, {})[phase] = result
            print(f"{name}, {phase}: {time.monotonic() - start:.0f} s {summary(result)}", flush=True)
            write({n: record[n] for n in zoo.MAKERS if n in record})
    print(f"written: {PAGE.relative_to(ROOT)}")


def write(record: dict[str, Any]) -> None:
    from zoo.status_page import page

    for path, text in ((RECORD, json.dumps(record, indent=1) + "\n"), (PAGE, page(record))):
        new = path.with_suffix(path.suffix + ".new")
        new.write_text(text)
        new.replace(path)


def summary(result: dict[str, Any]) -> str:
    if "failure" in result:
        return result["failure"][:300]
    if "median" in result:
        median, left_out = result["median"], result["left_out"]
        texts = [f"{c} {median[c] / median['zefuse']:.2f}" for c in median if c != "zefuse"]
        return ", ".join(texts + [f"{c}: {why[:100]}" for c, why in left_out.items()])
    return f"error {result['error']:.0e} " + " ".join(f"{k} {c['kernels']}" for k, c in result["counts"].items())


def in_child(name: str, phase: str, args: argparse.Namespace) -> dict[str, Any]:
    """What the child wrote, or ``{"failure": why}``."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, name, "--phase", phase, "--size", args.size]
        command += ["--seconds", str(args.seconds), "--patience", str(args.patience)]
        environment = dict(os.environ)
        if args.one_thread:
            command.append("--one-thread")
            environment["OMP_NUM_THREADS"] = "1"
        output = Path(folder) / "result.json"
        with open(output, "w") as stream, open(Path(folder) / "errors.txt", "w+") as errors:
            # A session of its own, so that Inductor's compilers end with it.
            process = subprocess.Popen(command, stdout=stream, stderr=errors, env=environment, start_new_session=True)
            try:
                process.wait(timeout=args.deadline)
            except subprocess.TimeoutExpired:
                return {"failure": f"not done after {args.deadline:.0f} s", "size": args.size}
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            errors.seek(0)
            last = errors.read().strip().splitlines()[-1:] or ["no message"]
        text = output.read_text()
        if not text.strip():
            return {"failure": f"the process ended with {process.returncode}: {last[0]}", "size": args.size}
        return json.loads(text.splitlines()[-1])


def child(name: str, phase: str, args: argparse.Namespace) -> None:
    import warnings

    warnings.simplefilter("ignore")
    import zoo
    from zoo import examine

    try:
        example = zoo.make(name, args.size if phase in COUNTS else "real")
        if phase in COUNTS:
            result = getattr(examine, phase)(example).to_dict()
        else:
            result = times(example, phase == "training times", args)
    except Exception as error:
        traceback.print_exc()
        result = {"failure": f"{type(error).__name__}: {error}".split("\n")[0]}
    result["size"] = args.size
    print("\n" + json.dumps(result), flush=True)
    os._exit(0)  # what a library does at its end is no part of the row


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raises TimeoutError inside after so many seconds."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"no first result after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def end_children() -> None:
    """Compilers that an interrupted contender has started would run beside what is measured next."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                os.kill(int(entry.parent.name), signal.SIGKILL)


def times(example: Any, training: bool, args: argparse.Namespace) -> dict[str, Any]:
    """Medians of alternating rounds, and the first calls' seconds beyond aot_eager's, with cold caches."""
    import torch
    from zefuse_bench import CONTENDERS, cold_caches, machine, medians, warm_up_dynamo

    run: Callable[[Callable[..., Any]], Any]
    before: Callable[[], Any] | None = None
    example.model.train(training)
    if training:
        # Its step changes every weight's version, though no number: what was derived from weights cannot be used again.
        before = torch.optim.SGD(example.model.parameters(), lr=0.0).step

        def run(model: Callable[..., Any]) -> Any:
            example.model.zero_grad()
            return example.step(model)

    else:

        def run(model: Callable[..., Any]) -> Any:
            return model(*example.inputs)

    left_out: dict[str, str] = {}
    with torch.set_grad_enabled(training):
        warm_up_dynamo()
        run(example.model)
        first: dict[str, float] = {}
        compiled: dict[str, Callable[..., Any]] = {"eager": example.model}
        # aot_eager twice: its first run is Dynamo's first look at the model's libraries, which nobody is to pay for.
        for contender in ("aot_eager", "aot_eager", "zefuse", "inductor"):
            torch._dynamo.reset()
            try:
                with cold_caches(), patience(args.patience if contender == "inductor" else args.deadline):
                    model = example.compile(contender)
                    start = time.perf_counter()
                    run(model)
                    took = time.perf_counter() - start
            except Exception as error:
                if contender != "inductor":
                    raise
                last = str(error).strip().splitlines()[-1:] or [""]
                timeout = "no first result" in str(error)
                end_children()
                left_out[contender] = (
                    f"no result in {args.patience:.0f} s" if timeout else f"{type(error).__name__}: {last[0]}"
                )
                continue
            first[contender] = min(took, first.get(contender, took))
            compiled[contender] = model
        contenders: Sequence[str] = [c for c in CONTENDERS if c in compiled]
        clock = time.process_time if args.one_thread else time.perf_counter
        median, rounds = medians({c: (lambda c=c: run(compiled[c])) for c in contenders}, args.seconds, clock, before)
    return {
        "median": median,
        "rounds": rounds,
        "left_out": left_out,
        "beyond_aot_eager": {c: first[c] - first["aot_eager"] for c in contenders if c != "eager"},
        "machine": machine().rsplit(", load", 1)[0] + (", processor time" if args.one_thread else ""),
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    main()
