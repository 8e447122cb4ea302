"""On a machine with an NVIDIA GPU: what queueing costs the host, by the driver (queueing.c) and for a CUDA graph of torch's.

    queueing.py PROGRAM KERNEL.spv [--json FILE]

PROGRAM is queueing.c, which finds the driver as Level Zero's loader does. FILE gets a list of sentences.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path

import torch

LAUNCHES, ROUNDS, FIRST = 100, 51, 5


def graph_of_torch() -> str:
    x = torch.zeros(1, device="cuda")
    x += 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            x += 1
    queued, whole = [], []
    for _ in range(FIRST + ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        graph.replay()
        queued.append((time.perf_counter() - start) * 1e6)
        torch.cuda.synchronize()
        whole.append((time.perf_counter() - start) * 1e6)
    times = [statistics.median(each[FIRST:]) for each in (queued, whole)]
    return "a CUDA graph of {} of torch's: {:.2f} us of the host; with the wait {:.1f} us".format(LAUNCHES, *times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("kernel")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    ran = subprocess.run([given.program, given.kernel], capture_output=True, text=True, timeout=60, check=True)
    said = [*ran.stdout.splitlines(), graph_of_torch()]
    print("\n".join(said))
    if given.json:
        given.json.write_text(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
