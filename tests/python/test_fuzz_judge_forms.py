"""Forms of what a program does not determine, as random graphs' judge proves them: each with the same form of a true fault, which it
does not excuse (tests/fuzz)."""

from __future__ import annotations

import pytest
import torch
from compare import _disturbed, differences
from execute import eager
from program import Input, Program, Step


def _program(inputs: list[str], steps: list[str], column: str = "direct") -> Program:
    """Each step reads the inputs as x0, x1, ... and the step before as {0}."""
    return Program(
        column,
        [{}],
        [Input(f"x{number}", text) for number, text in enumerate(inputs)],
        [Step(f"v{number}", text, [f"v{number - 1}" if number else "x0"]) for number, text in enumerate(steps)],
        [f"v{len(steps) - 1}"],
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_gradients_of_every_type_are_disturbed(dtype: str) -> None:
    """Of a narrow type a hook must give its own type back, or every disturbed run raises and nothing is excused."""
    program = _program(
        [f"torch.linspace(0.1, 2.0, 40).to(torch.{dtype}).requires_grad_()"],
        ["torch.rsqrt({0})", "torch.asinh({0})"],
        "train",
    )
    right = eager(program)[0].gradients[0]
    assert right is not None
    for seed in range(4):
        (run,) = _disturbed(program, seed)
        assert run.error is None
        assert run.gradients[0] is not None and run.gradients[0].dtype is right.dtype
        assert (run.gradients[0] != right).any()
    expected, ours = eager(program), eager(program)
    wrong = ours[0].gradients[0]
    assert wrong is not None
    wrong[3] *= 3
    assert [each.kind for each in differences(program, expected, ours)] == ["gradient value"]
