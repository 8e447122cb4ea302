"""Forms of what a program does not determine, as random graphs' judge proves them: each with the same form of a true fault, which it
does not excuse (tests/fuzz)."""

from __future__ import annotations

from typing import Any

import ended
import pytest
import torch
from compare import _disturbed, differences
from execute import eager
from known import reason_of
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


# An element that equals its row's mean, times infinity: NaN in eager, or not.
_OF_ITS_MEAN = bool(
    torch.layer_norm(torch.tensor([0.1, 0.2, 0.3]).double(), (3,), torch.tensor([1, torch.inf, 1]).double())[1].isnan()
)
# A program; an element of its last result and what another way gives there; an element that is determined and a wrong value; a column.
FORMS: dict[str, tuple[list[str], list[str], tuple[int, ...], Any, tuple[int, ...], Any, str]] = {
    "a row of single precision whose squares are infinite, normalised": (
        ["torch.tensor([[1e30, 1.0, 2.0], [1.0, 2.0, 3.0]])"],
        ["F.layer_norm({0}, (3,))", "torch.nan_to_num({0}, 1.0) != 0"],
        (0, 0),
        False,
        (1, 0),
        False,
        "direct",
    ),
    "an element that equals its row's mean, times infinity": (
        ["torch.tensor([[0.1, 0.2, 0.3], [0.1, 0.7, 0.3]], dtype=torch.float64)"],
        ["F.layer_norm({0}, (3,), torch.tensor([1, torch.inf, 1], dtype=torch.float64))", "{0}.isnan()"],
        (0, 1),
        not _OF_ITS_MEAN,
        (1, 1),
        True,
        "direct",
    ),
    "the variance of equal elements, as a divisor": (
        ["torch.stack([torch.full((320,), -4.1588831), torch.linspace(0, 1, 320)])"],
        ["{0}.var(-1)", "torch.remainder({0}, torch.tensor(-4.0))"],
        (0,),
        0.0 if torch.full((320,), -4.1588831).var() else -4.0,
        (1,),
        0.0,
        "direct",
    ),
    "which variance of equal elements is the largest": (
        ["torch.cat([torch.arange(1, 10.0)[:, None].mul(0.1).expand(9, 7), torch.linspace(0, 1, 7).expand(1, 7)])[:9]"],
        ["{0}.var(-1)", "{0}.argmax(0, keepdim=True)"],
        (0,),
        3,
        (0,),
        80,
        "direct",
    ),
    "a variance of squares that exceed single precision, on a GPU": (
        ["torch.tensor([[1e30, 1.0, 2.0], [1.0, 2.0, 4.0]])"],
        ["{0}.std(-1)", "torch.nan_to_num({0}, 1.0, 2.0, 3.0).clamp(-100, 100).to(torch.int64)"],
        (0,),
        2,
        (1,),
        2,
        "gpu",
    ),
    "a product of what overflows and what vanishes, counted": (
        ["torch.tensor([[1e-40, 1e-30, 1e30], [1.0, 2.0, 3.0]])"],
        ["{0}.prod(-1, keepdim=True)", "{0}.count_nonzero(1)"],
        (0,),
        1 - int(torch.tensor([1e-40, 1e-30, 1e30]).prod() != 0),
        (1,),
        0,
        "direct",
    ),
    "a remainder whose quotient is beyond the type's range": (
        ["torch.full((9,), 5.0, dtype=torch.float64)"],
        ["torch.fmod({0}, torch.full((9,), 5e-324, dtype=torch.float64).index_fill(0, torch.tensor([1]), 3.0))"],
        (0,),
        0.0,
        (1,),
        1.0,
        "direct",
    ),
    "which of two zeros kthvalue takes, in its bits": (
        ["torch.tensor([[0.0, -0.0, 0.0, -0.0], [1.0, 2.0, 3.0, 4.0]])"],
        ["{0}.kthvalue(1, -1)[0]", "{0}.view(torch.int32)"],
        (0,),
        0 if torch.tensor([0.0, -0.0, 0.0, -0.0]).kthvalue(1)[0].signbit() else -(2**31),
        (1,),
        7,
        "direct",
    ),
    "a sum of doubles asked for in single precision, which cancels": (
        ["torch.tensor([[0.1, 60000.1, -60000.2, 1e-3], [1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)"],
        ["{0}.sum(-1, dtype=torch.float32)", "{0}.view(torch.int32)"],
        (0,),
        torch.tensor(0.001 + 0.1 + 60000.1 - 60000.2).view(torch.int32).item(),
        (1,),
        7,
        "direct",
    ),
    "infinity less a complex number": (
        ["torch.complex(torch.tensor([[1.0, -torch.inf, 0, 2]]), torch.tensor([[2.0, 0.5, 1, 3]]))"],
        ["torch.diff({0}, dim=1)", "torch.view_as_real({0})", "{0}.isnan()"],
        (0, 1, 1),
        False,
        (0, 2, 1),
        True,
        "direct",
    ),
    "one unit of a subnormal number, in its bits": (
        ["torch.tensor([1e-40, 0.5])"],
        ["torch.log1p({0})", "{0}.view(torch.int32)"],
        (0,),
        int(torch.tensor(1e-40).log1p().view(torch.int32)) + 1,
        (0,),
        7,
        "direct",
    ),
    "the last bit of what was written in place, in its bits": (
        ["torch.tensor([0.3, 0.7])"],
        ["{0}.exp_()", "{0}.view(torch.int32)"],
        (0,),
        int(torch.tensor(0.3).exp().view(torch.int32)) + 1,
        (0,),
        int(torch.tensor(0.3).exp().view(torch.int32)) + 1000,
        "direct",
    ),
    "infinity as an integer, summed": (
        ["torch.tensor([[torch.inf, 1.5, 2.5, 1.5], [1.5, 2.5, 3.5, 4.5]])"],
        ["{0}.sum(-1, dtype=torch.int32)"],
        (0,),
        3,
        (1,),
        2**31 - 7,
        "direct",
    ),
    "infinity as an integer by a choice of the other value, summed": (
        ["torch.tensor([[True, False, False], [True, True, True]])"],
        ["torch.where({0}, 100.5, torch.inf)", "{0}.sum(-1, dtype=torch.int32)"],
        (0,),
        300,
        (1,),
        100,
        "direct",
    ),
    "a number beyond an integer's range": (
        ["torch.tensor([3e9, 2e9, -3e9])"],
        ["{0}.to(torch.int32)"],
        (0,),
        3 * 10**9 - 2**32,
        (1,),
        2**31 - 1,
        "direct",
    ),
    "a number beyond 32 bits as a byte, which keeps the lowest of -1's": (
        ["torch.tensor([1e20, 300.5, -1.5])"],
        ["{0}.to(torch.uint8)"],
        (0,),
        255,
        (2,),
        0,
        "direct",
    ),
    "NaN as an integer, compared": (
        ["torch.tensor([torch.nan, 0.0])"],
        ["{0}.to(torch.int64)", "{0} < 0"],
        (0,),
        False,
        (1,),
        True,
        "direct",
    ),
    "which NaN a sort gives, in its bits": (
        ["torch.tensor([[torch.nan, 1.0], [1.2, 0.5]])"],
        ["{0}.sort(-1)[0]", "{0}.view(torch.int32)", "({0} >> 12) & 1"],
        (0, 1),
        1,
        (1, 1),
        0,
        "direct",
    ),
    "a tanh's last bit, once around a remainder": (
        ["torch.tensor([-0.10789257287979126, -0.5])"],
        ["F.tanhshrink({0})", "torch.fmod(torch.tensor(12.0), {0})"],
        (0,),
        12.0 % 0.00041671842336654663,
        (1,),
        0.01,
        "direct",
    ),
    "padding times NaN, counted": (
        ["torch.randn(2, 4, 5, 5)"],
        [
            "F.conv2d({0}, torch.full((4, 1, 1, 1), torch.nan), padding=1, groups=4)",
            "torch.nan_to_num({0}).count_nonzero(1)",
        ],
        (0, 0, 0),
        0,
        (0, 3, 3),
        4,
        "direct",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_excused_and_a_fault_of_its_form_is_not(name: str) -> None:
    inputs, steps, index, other, determined, wrong, column = FORMS[name]
    program = _program(inputs, steps, column)
    expected, ours = eager(program), eager(program)
    ours[0].outputs[0][index] = other
    assert differences(program, expected, ours) == []
    ours[0].outputs[0][determined] = wrong
    assert {each.kind for each in differences(program, expected, ours)} - {"input value"} == {"value"}


# As a last step: an output of the input, so that its gradient is not one term's alone.
BESIDE = "another output: {0}.permute(1, 0)"

# A program of one input, an element of its gradient, how far another way is there, and how far a fault.
GRADIENTS: dict[str, tuple[str, list[str], tuple[int | slice, ...], float, float]] = {
    "a group of one element, of which a last bit times 316 is left": (
        "torch.linspace(-1, 1, 12).reshape(4, 3)",
        ["F.group_norm({0}, 3, torch.tensor([1.0, 2.0, 3.0]))"],
        (1, 2),
        3 * 316.0 * torch.finfo(torch.float32).eps,
        0.01,
    ),
    "a sum in single precision of what was written in place, as a double": (
        "torch.linspace(1, 2, 9, dtype=torch.float64)",
        ["torch.zeros(50, 9).add_({0}.expand(50, 9))"],
        (2,),
        4e-6,
        1e-3,
    ),
    "a recurrent layer's of single precision, of differences of numbers near 1, as a double": (
        "torch.linspace(1, 2, 6, dtype=torch.float64).reshape(1, 2, 3)",
        [
            "{0}.to(torch.float32)",
            "torch.gru({0}, torch.zeros(1, 1, 2), [torch.full((6, 3), 0.5), torch.full((6, 2), 0.2), torch.full((6,), 0.1), "
            "torch.full((6,), 0.1)], True, 1, 0.0, False, False, True)[0]",
        ],
        (0, 1, 1),
        1e-6,
        1e-4,
    ),
    "the deviation of equal elements": (
        "torch.full((3, 7), 0.3)",
        ["{0}.std(-1)"],
        (1, 1),
        0.3,
        100.0,
    ),
    "the deviation of an expanded row, whose elements no disturbance makes unlike": (
        "torch.linspace(0.3, 1, 8)[:, None].expand(8, 5).detach()",
        ["{0}.std(-1)", BESIDE],
        (3, slice(None)),
        5**-0.5 / 2,
        100.0,
    ),
    "the deviation and the mean of an expanded row": (
        "torch.linspace(0.3, 1, 8)[:, None].expand(8, 6).detach()",
        ["torch.std_mean({0}, -1)[0]", BESIDE],
        (3, slice(None)),
        6**-0.5 / 2,
        100.0,
    ),
    "no form: the deviation of elements that are not equal": (
        "torch.linspace(0.3, 1, 40).reshape(8, 5)",
        ["{0}.std(-1)", BESIDE],
        (3, slice(None)),
        0.0,
        0.1,
    ),
}


@pytest.mark.parametrize(
    "convolution",
    [
        "F.conv1d(torch.ones(1, 1, 9), {w}.reshape(2, 1, 3), padding=30)",
        "F.conv2d(torch.ones(1, 9, 2, 3), {w}[0].expand(1, 9, 1, 1), padding=2)",
        "F.conv2d(torch.ones(1, 4, 5, 5), {w}.reshape(2, 1, 3, 1).expand(2, 2, 3, 3), padding=(1, 2), groups=2)",
        "F.conv3d(torch.ones(1, 1, 3, 4, 5), {w}.reshape(2, 1, 3, 1, 1), padding=1, stride=(1, 1, 2))",
    ],
)
def test_padding_times_infinite_weights_is_excused_and_a_fault_beside_it_is_not(convolution: str) -> None:
    """As eager has it or as it has not: NaN or none."""
    weights = "torch.full((6,), torch.inf)"
    program = _program(["torch.zeros(1)"], [f"{convolution.replace('{w}', weights)} + {{0}}"])
    expected = eager(program)
    numbers = eager(_program(["torch.zeros(1)"], [convolution.replace("{w}", "torch.ones(6)")]))[0].outputs[0]
    touches_padding = numbers < numbers.max()
    # The products of padding left out, and multiplied.
    for padded in (torch.where(numbers > 0, torch.inf, 0.0), torch.where(touches_padding, torch.nan, torch.inf)):
        ours = eager(program)
        ours[0].outputs[0].copy_(padded)
        assert differences(program, expected, ours) == []
        ours[0].outputs[0][tuple((~touches_padding).nonzero()[0])] = torch.nan
        assert [each.kind for each in differences(program, expected, ours)] == ["nan"]
    # Of finite weights an element beside the padding is determined.
    program = _program(["torch.zeros(1)"], [f"{convolution.replace('{w}', 'torch.ones(6)')} + {{0}}"])
    expected, ours = eager(program), eager(program)
    ours[0].outputs[0][tuple(touches_padding.nonzero()[-1])] += 0.1
    assert [each.kind for each in differences(program, expected, ours)] == ["value"]


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_form_of_gradients_is_excused_and_a_fault_of_its_form_is_not(name: str) -> None:
    input, steps, index, way, fault = GRADIENTS[name]
    chain = [step for step in steps if step != BESIDE]
    program = _program([f"{input}.requires_grad_()"], chain, "train")
    if BESIDE in steps:
        program.steps.append(Step("beside", BESIDE.partition(": ")[2], ["x0"]))
        program.outputs.append("beside")
    for off, kinds in ((way, []), (fault, ["gradient value"])):
        expected, ours = eager(program), eager(program)
        gradient = ours[0].gradients[0]
        assert gradient is not None
        gradient[index] += off
        assert [each.kind for each in differences(program, expected, ours)] == kinds


def test_a_double_that_passed_through_single_precision_is_held_to_that() -> None:
    """Eager's own distance from double precision says so, where half of the elements have it."""
    for through, off, kinds in (("float32", 1e-7, []), ("float32", 1e-4, ["value"]), ("float64", 1e-7, ["value"])):
        steps = [f"torch.special.i0e({{0}}.to(torch.{through})).to(torch.float64)"]
        program = _program(["torch.linspace(0.1, 3, 64, dtype=torch.float64)"], steps)
        expected, ours = eager(program), eager(program)
        ours[0].outputs[0].mul_(1 + off)
        assert [each.kind for each in differences(program, expected, ours)] == kinds


class _Answers:
    """A worker of which ``aot_eager`` ends the process in the last of some tries."""

    def __init__(self, tries: int) -> None:
        self.asked = 0
        self._tries = tries

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        if question["alone"] == "zefuse":
            return {"status": "same"}
        self.asked += 1
        crash = {"status": "wrong", "kind": "crash", "text": "the process ended: SIGSEGV"}
        return crash if self.asked == self._tries else {"status": "same"}


@pytest.mark.parametrize(("tries", "status"), [(1, "torch"), (3, "torch"), (4, "wrong")])
def test_a_crash_is_tried_three_times_under_aot_eager(tries: int, status: str) -> None:
    """What reads memory that is not its own does not end the process each time."""
    program = _program(["torch.ones(2)"], ["{0} + 1"])
    worker: Any = _Answers(tries)
    found = {"status": "wrong", "kind": "crash", "text": "the process ended: SIGSEGV"}
    assert ended.judged(worker, program, found)["status"] == status
    assert worker.asked == min(tries, 3)


@pytest.mark.parametrize(
    ("step", "wrong", "known"),
    [
        ("torch.fft.fft({0}).imag", "0.5, eager nan", True),
        ("torch.fft.fft({0}).imag", "nan, eager 0.5", False),  # ours is the one that spreads it
        ("{0}.exp()", "0.5, eager nan", False),
    ],
)
def test_a_nan_that_eagers_sum_of_complex_gradients_spreads(step: str, wrong: str, known: bool) -> None:
    text = f"gradient 0: 3 of 3 elements wrong; at [0] {wrong} (allowed 1.6e-05; float32, shape (3,))"
    program = _program(["torch.ones(3).requires_grad_()"], [step, "{0}[::2].copy_({0}[::2])"], "train")
    assert (reason_of(program, "gradient nan", text) is not None) == known


def test_a_plain_tensor_of_a_subclass_is_known_of_recurrent_layers_alone() -> None:
    text = "output 0: <class 'torch.testing._internal.two_tensor.TwoTensor'>, eager <class 'torch.Tensor'>"
    inputs = ["TwoTensor(torch.ones(1, 3, 2), torch.ones(1, 3, 2))"]
    for step, known in (("torch.gru({0}, x1)", True), ("{0}.exp()", False)):
        assert (reason_of(_program(inputs, [step], "subclass"), "type", text) is not None) == known
