"""On a machine with a GPU and zefuse's wheel: the model zoo on it, forward and backward, against eager on the CPU.

Models whose package is missing there are passed over. Each model runs in a process of its own (a lost device harms no other),
several at a time: without arguments all of them, with names those. Prints a line for each model's forward and backward ("NAME forward
ok ..."; FAIL, SKIP); the last one sums up. Status 1 where an error is too large.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent),
]  # where zoo/ lies: beside this in scripts/cuda_check's folder, above in a checkout
OPTIONS = {"device": os.environ.get("ZEFUSE_CHECK_DEVICE", "gpu:0"), "cache_dir": ""}
SECONDS = 150
KINDS = ("forward", "backward")


def one(name: str) -> dict[str, Any]:
    import torch
    import zoo
    from zoo import examine

    found: dict[str, Any] = {}
    with torch.random.fork_rng():
        for kind, run in (("forward", examine.inference), ("backward", examine.training)):
            start = time.time()
            result = run(zoo.make(name), options=OPTIONS)
            found[kind] = {
                "seconds": round(time.time() - start, 1),
                "kernels": sum(counts.kernels for counts in result.counts.values()),
                "fallbacks": {
                    op: number for counts in result.counts.values() for op, number in counts.fallbacks.items()
                },
                "error": result.error,
                "gradient_error": result.gradient_error,
                "exact": result.exact,
            }
            good = result.error <= examine.OUTPUT_ERROR and (result.gradient_error or 0) <= examine.GRADIENT_ERROR
            if result.exact:  # eager is as far from double precision
                ours, eager = result.exact["ours"], result.exact["eager"]
                good = all(a <= max(2 * b, limit) for a, b, limit in zip(ours, eager, (1e-4, 1e-3), strict=True))
            found[kind]["good"] = good
            print(json.dumps(found), flush=True)
    return found


def examined(name: str) -> list[tuple[str, str]]:
    """For forward and backward "ok", "FAIL" or "SKIP", and what is to be said."""
    output, ended = "", f"not ended after {SECONDS} s"
    try:
        command = [sys.executable, __file__, "--one", name]
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        output = run.stdout
        ended = f"exit status {run.returncode}: {run.stderr.strip()[-700:]}" if run.returncode else ""
        if "No module named" in ended:
            return [("SKIP", ended.splitlines()[-1])] * len(KINDS)
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode() if isinstance(error.stdout, bytes) else error.stdout or ""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    found = json.loads(lines[-1]) if lines else {}
    return [
        ("ok" if found[kind]["good"] else "FAIL", json.dumps(found[kind])) if kind in found else ("FAIL", ended)
        for kind in KINDS
    ]


def main(names: list[str]) -> int:
    import zoo

    names = names or list(zoo.MAKERS)
    results = {"ok": 0, "FAIL": 0, "SKIP": 0}
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 3)) as several:
        for name, kinds in zip(names, several.map(examined, names), strict=True):
            for kind, (result, words) in zip(KINDS, kinds, strict=True):
                results[result] += 1
                print(f"{name:16} {kind:8} {result:4} {words}", flush=True)
    print(f"models: {results['ok']} passes right, {results['FAIL']} failed, {results['SKIP']} passed over")
    return 1 if results["FAIL"] else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1:]))
