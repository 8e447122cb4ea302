"""`.venv/bin/python tests/fuzz/strictness.py [--count 200] [--seed 1] [--column direct]`: how strict the judge is.

Random programs run in eager twice, and a fault is planted in one element of an output, or of a gradient, of the second run, as if
a back end had made it: the share of faults that the judge reports, by their size in the tolerances of the element's type.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
from typing import Any

import torch
from columns import BY_NAME
from compare import TOLERANCE, differences
from execute import Outcome, eager
from generate import generate
from known import reason_of
from program import Program

SIZES = (3.0, 10.0, 100.0, 1000.0)  # in tolerances of the element


def _places(outcomes: list[Outcome], gradients: bool) -> list[torch.Tensor]:
    found: list[Any] = [
        value for outcome in outcomes for value in (outcome.gradients if gradients else outcome.outputs)
    ]
    return [t for t in found if type(t) is torch.Tensor and t.layout == torch.strided and t.numel() > 0]


def _plant(rng: random.Random, tensor: torch.Tensor, size: float) -> str | None:
    """What was done; nothing: the tensor has no element for such a fault."""
    index = tuple(rng.randrange(length) for length in tensor.shape)
    number = tensor[index].clone()
    if tensor.dtype == torch.bool:
        tensor[index] = ~number
        return "a bool turned"
    if not tensor.dtype.is_floating_point and not tensor.dtype.is_complex:
        tensor[index] = number + 1 if number < torch.iinfo(tensor.dtype).max else number - 1
        return "an integer off by one"
    if not number.isfinite():
        tensor[index] = 1.0
        return "a number for NaN or infinity"
    relative, absolute = TOLERANCE[tensor.dtype]
    off = size * (absolute + relative * abs(complex(number)))
    changed = number + rng.choice((-1, 1)) * off
    if changed == number or not changed.isfinite():
        return None
    tensor[index] = changed
    return f"off by {size:g} tolerances"


def _judged(program: Program, ours: list[Outcome]) -> str:
    """Whether a fault was "found", known.py "excused" it, or nothing was "missed"."""
    found = differences(program, eager(program), ours)
    if not found:
        return "missed"
    return "excused" if reason_of(program, found[0].kind, found[0].text) else "found"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="programs; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--column", default="direct", choices=sorted(BY_NAME), help="default: %(default)s")
    parser.add_argument("--missed", action="store_true", help="print the programs whose largest faults were missed")
    given = parser.parse_args()
    torch.set_num_threads(1)
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for number in range(given.count):
        program = generate(f"{given.seed}/{number}", BY_NAME[given.column])
        rng = random.Random(f"{given.seed} {number} strictness")
        for gradients in (False, True):
            for size in SIZES:
                ours = eager(program)
                places = _places(ours, gradients)
                if any(outcome.error for outcome in ours) or not places:
                    break
                tensor = rng.choice(places)
                if len(tensor.untyped_storage()) == 0 or tensor.is_conj() or tensor.is_neg():
                    continue
                with torch.no_grad():
                    what = _plant(rng, tensor.detach(), size)
                if what is None:
                    continue
                verdict = _judged(program, ours)
                counts[("gradient: " if gradients else "") + what][verdict] += 1
                if given.missed and verdict == "missed" and size == SIZES[-1]:
                    print(f"program {number}: {what}: {[step.text for step in program.steps]}", flush=True)
    for what, verdicts in sorted(counts.items()):
        total = sum(verdicts.values())
        print(f"{what:40}{total:6}{verdicts['found'] / total:8.1%} found{verdicts['excused'] / total:8.1%} excused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
