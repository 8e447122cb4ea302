"""What random graphs' judge takes for undetermined, and what it does not (tests/fuzz)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import strictness
import torch
from columns import COLUMNS
from compare import TOLERANCE, differences
from execute import eager
from program import Input, Program, Step
from torch.nn.attention import SDPBackend, sdpa_kernel


def test_what_a_program_does_not_determine_is_no_finding() -> None:
    import torch
    from compare import differences
    from execute import eager
    from program import Input, Program, Step

    def found(
        inputs: list[str], steps: list[str], index: tuple[int, ...], value: float, column: str = COLUMNS[0].name
    ) -> list[str]:
        """What is said of a program of which one element of the last step's result is `value`."""
        program = Program(
            column,
            [{}],
            [Input(f"x{number}", text) for number, text in enumerate(inputs)],
            [Step(f"v{number}", text, re.findall(r"\b[xv]\d\b", text)) for number, text in enumerate(steps)],
            [f"v{len(steps) - 1}"],
        )
        expected, ours = eager(program), eager(program)
        ours[0].outputs[0][index] = value
        return [difference.kind for difference in differences(program, expected, ours)]

    # The second element is the mean: normalised it is 0 or a last bit, and so is what it is divided by.
    row = ["torch.tensor([-1.0, 0, -1, -1, 2, 1]).to(torch.bfloat16)"]
    steps = ["F.layer_norm(x0, (6,))", "torch.addcdiv(v0, v0, v0, value=0.5)"]
    assert not found(row, steps, (1,), math.nan)
    assert found(row, steps, (0,), math.nan) == ["nan"]
    # 60,000 twice is infinite in f16, and a number where sums are wider. Another input lies in the same memory.
    inputs = ["torch.tensor([6e4, 6e4, -torch.inf, 1.0]).to(torch.float16)", "x0.detach()"]
    steps = ["x1.index_add(0, torch.arange(4) % 2, x1)"]
    assert not found(inputs, steps, (0,), -math.inf)
    assert found(inputs, steps, (2,), math.nan) == ["nan"]
    # What operators make of integers is of single precision: a group of one is its bias, and eager's the last bit of a product off.
    steps = ["torch.special.i1(x0)", "F.group_norm(v0, 1, torch.full((1,), -0.1), torch.full((1,), -0.1))"]
    integers = ["torch.full((2, 1), 7, dtype=torch.int32)"]
    assert not found(integers, steps, (0, 0), -0.1)
    assert found(integers, steps, (0, 0), -0.11) == ["value"]
    # Of a jagged tensor i0e is 0.98083, which eager, computing in f16, rounds to 0.98047 and not to 0.98096.
    jagged = [
        "torch.nested.nested_tensor([torch.full((1, 1), -0.0194549560546875)], layout=torch.jagged, dtype=torch.float16)"
    ]
    program = Program("jagged", [{}], [Input("x0", jagged[0])], [Step("v0", "torch.special.i0e({0})", ["x0"])], ["v0"])
    program.steps.append(Step("v1", "{0}.to(torch.float64)", ["v0"]))
    program.outputs = ["v1"]
    expected, ours = eager(program), eager(program)
    ours[0].outputs[0].values()[0, 0] = 0.98095703125
    assert differences(program, expected, ours) == []
    ours[0].outputs[0].values()[0, 0] = 1.1
    assert [each.kind for each in differences(program, expected, ours)] == ["value"]
    # inf + -inf of products, which in double precision are numbers.
    matrix = "torch.tensor([[1e30, -torch.inf]])"
    pair = [f"TwoTensor({matrix}, {matrix})"]
    steps = ["x0 @ torch.tensor([[1e30], [1.0]])"]
    assert not found(pair, steps, (0, 0), -math.inf, "subclass")
    assert found(pair, ["x0 @ torch.tensor([[1e3], [1.0]])"], (0, 0), math.nan, "subclass") == ["nan"] * 2
    # Steps of a subclass are disturbed too, here where its inputs change nothing: a cast shows the last bits of single precision.
    pair, steps = (
        ["TwoTensor(torch.tensor([1e-9]), torch.tensor([1e-9]))"],
        ["torch.special.log_ndtr(x0)", "v0.to(torch.float64)"],
    )
    expected = float(torch.special.log_ndtr(torch.tensor(1e-9)))
    assert not found(pair, steps, (0,), expected + 3e-7, "subclass")
    assert found(pair, steps, (0,), expected + 3e-5, "subclass") == ["value"] * 2


# A program, an element of its last result and what another way gives there; an element that is determined and a wrong value.
OTHER_WAYS: dict[str, tuple[list[str], list[str], tuple[int, ...], Any, tuple[int, ...], Any]] = {
    "the mean of infinities": (
        ["torch.tensor([[torch.inf] * 4, [1.0] * 4])"],
        ["torch.std_mean({0}, -1)[1]", "torch.minimum({0}, torch.tensor([4.0, 4.0]))"],
        (0,),
        4.0,
        (1,),
        3.0,
    ),
    "equal elements normalised": (
        ["torch.stack([-torch.rand(4, 1), torch.arange(4.0)[:, None]]).to(torch.float16)"],
        ["torch.remainder({0}, 1e4)", "F.layer_norm({0}, (4, 1))", "{0} != 0"],
        (0, 0, 0),
        False,
        (1, 0, 0),
        False,
    ),
    "which of equal elements is the least": (
        ["torch.tensor([[0.0, -0.0, 0.0, -0.0], [1.0, 2.0, 3.0, 4.0]])"],
        ["torch.topk({0}, 1, 1, largest=False)[0]", "{0}.view(torch.int32)"],
        (0, 0),
        -(2**31),
        (1, 0),
        7,
    ),
    "the sign of a NaN in the order of its bits": (
        ["torch.tensor([[-0.5, 1.0], [2.0, 2.0]])"],
        ["torch.pow({0}, {0})", "{0}.view(torch.int32)", "torch.cummax({0}, 0)[1]"],
        (1, 0),
        0,
        (1, 1),
        0,
    ),
    "the sign of a NaN written in place": (
        ["torch.tensor([-1, 5])"],
        ["{0}.view(torch.float64)", "{0}.mul_(-1)", "{0}.view(torch.int64)"],
        (0,),
        2**63 - 1,
        (1,),
        5,
    ),
    "the sign of a NaN beside an input that is negated when it is read": (
        ["torch._neg_view(torch.tensor([0.5, -2.0])).detach().requires_grad_()"],
        ["torch.pow({0}, {0})", "{0}.view(torch.int32)"],
        (0,),
        2143289344,
        (1,),
        7,
    ),
    "padding times NaN": (
        ["torch.randn(2, 4, 5, 5)", "torch.full((4, 1, 1, 1), torch.nan)"],
        ["F.conv2d(x0, x1, stride=2, padding=1, groups=4)", "torch.nan_to_num({0}, 1.0)"],
        (0, 0, 0, 0),
        0.0,
        (0, 0, 1, 1),
        0.0,
    ),
    "padding times NaN, of one dimension": (
        ["torch.randn(2, 4, 5)", "torch.full((4, 1, 1), torch.nan)"],
        ["F.conv1d(x0, x1, stride=2, padding=1, groups=4)", "torch.nan_to_num({0}, 1.0)"],
        (0, 0, 0),
        0.0,
        (0, 0, 1),
        0.0,
    ),
    "which of two zeros is the smaller, in its bits": (
        ["torch.tensor([0.0, 1.0])"],
        ["torch.fmin({0}, torch.tensor([-0.0, 2.0]))", "{0}.view(torch.int32)"],
        (0,),
        0 if torch.fmin(torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 2.0]))[0].signbit() else -(2**31),
        (1,),
        7,
    ),
    "a row of 16 bits whose squares no f32 holds, normalised": (
        ["torch.stack([1e30 ** torch.eye(9)[0], torch.arange(9.0)]).to(torch.bfloat16)"],
        ["F.layer_norm({0}, (9,))", "{0} < 1.5"],
        (0, 0),
        True,
        (1, 0),
        False,
    ),
    "infinity and a product beyond the type's range, in the order in which they are added": (
        ["torch.tensor([[0.5, 0, 1, 1e30, 0], [-1, 6e4, -torch.inf, 1e30, 0], [1, 2, 3, 4, 0]]).repeat(1, 3, 1)"],
        ["torch.bmm({0}, {0}.mT)"],
        (0, 0, 1),
        math.nan,
        (0, 2, 2),
        7.0,
    ),
    "the sign of a sum that begins with a product": (
        ["torch.tensor([[[0.0, 0.0, 2.0]]])"],
        ["F.conv1d({0}, torch.full((2, 1, 1), -1.5))"],
        (0, 0, 1),
        0.0,
        (0, 0, 2),
        3.0,
    ),
    "a subnormal number of bf16 times infinity": (
        ["torch.tensor([[torch.inf, 1.0], [1.0, 2.0]]).to(torch.bfloat16)"],
        ["{0} @ torch.tensor([[1e-40], [1.0]]).to(torch.bfloat16)", "{0} > 1.5"],
        (0, 0),
        False,
        (1, 0),
        False,
    ),
    "the logarithm of 1 as the sum of two halves": (
        ["torch.tensor([-1.0, 3.0])"],
        ["torch.logaddexp2({0}, {0})", "torch.remainder({0}, {0})", "{0}.isnan()"],
        (0,),
        True,
        (1,),
        True,
    ),
    "the middle of a range": (
        ["torch.zeros(11)"],
        ["{0} + torch.linspace(-1, 1, 11)", "{0} == 0"],
        (5,),
        True,
        (3,),
        True,
    ),
    "the sign of a zero that is shrunk": (
        ["torch.tensor([-0.25] * 64 + [2.0])"],
        ["F.softshrink({0}, 0.5)", "1 / {0}"],
        (0,),
        -math.inf,
        (64,),
        3.0,
    ),
    "which of two zeros a pool gives": (
        ["torch.tensor([[0.0, -0.0, -1.0, -1.0, 2.0, 0.0]])"],
        ["F.max_pool1d({0}, 2)", "1 / {0}"],
        (0, 0),
        -math.inf,
        (0, 1),
        3.0,
    ),
    "a group of one element normalised, as an integer": (
        ["torch.tensor([[1e30, 1.0], [2.0, 3.0]]).to(torch.bfloat16)"],
        ["F.group_norm({0}, 2, None, torch.tensor([1.5, 7.5]).to({0}.dtype))", "{0}.to(torch.int16)"],
        (0, 0),
        1,
        (0, 1),
        9,
    ),
    "the middle of a range as a divisor": (
        ["torch.ones(7)"],
        ["{0} * torch.linspace(-1, 1, 7)", "torch.remainder(1.0, {0})", "{0}.isnan()"],
        (3,),
        True,
        (1,),
        True,
    ),
    "a group of one element, divided by zero": (
        ["torch.rand(8, 2) + 0.5"],
        [
            "F.group_norm({0}, 2, torch.tensor([1.1, 1.0]), torch.tensor([0.0, 1.0]))",
            "{0} / torch.zeros(2)",
            "{0}.isnan()",
        ],
        (2, 0),
        True,
        (2, 1),
        True,
    ),
    "a batch norm whose weight is infinite": (
        ["torch.tensor([[0.0, 1.0], [4.0, 2.0]])"],
        ["F.batch_norm(x0, torch.ones(2), torch.ones(2), torch.rsqrt(x0[0]), torch.rsqrt(x0[0]))", "{0} > 1e30"],
        (1, 0),
        True,
        (0, 1),
        True,
    ),
    "what is left of a small number without its tanh": (
        ["torch.tensor([-1e-4, 1e-4, 2.0])"],
        ["F.tanhshrink({0})", "{0}.view(torch.int32)", "{0} < 0"],
        (0,),
        True,
        (2,),
        True,
    ),
    "whether the mean of what cancels is zero": (
        ["torch.tensor([[1e-30, 1.0, -1.0, 1e-40], [1.0, 2.0, 3.0, 4.0]])"],
        ["F.adaptive_avg_pool1d({0}, 1)", "{0} != 0"],
        (0, 0),
        False,
        (1, 0),
        False,
    ),
    "whether a sum of what cancels is zero": (
        ["torch.tensor([[1e-30, 1.0, -1.0, 1e-40], [1.0, 2.0, 3.0, 4.0]])"],
        ["{0}.sum(-1)", "{0} != 0"],
        (0,),
        False,
        (1,),
        False,
    ),
}


@pytest.mark.parametrize("name", OTHER_WAYS)
def test_what_other_ways_give_is_undetermined(name: str) -> None:
    inputs, steps, index, other, determined, wrong = OTHER_WAYS[name]
    program = Program(
        COLUMNS[0].name,
        [{}],
        [Input(f"x{number}", text) for number, text in enumerate(inputs)],
        [Step(f"v{number}", text, [f"v{number - 1}" if number else "x0"]) for number, text in enumerate(steps)],
        [f"v{len(steps) - 1}"],
    )
    expected, ours = eager(program), eager(program)
    ours[0].outputs[0][index] = other
    assert differences(program, expected, ours) == []
    ours[0].outputs[0][determined] = wrong
    assert {each.kind for each in differences(program, expected, ours)} - {"input value"} == {"value"}


def test_zeros_between_the_elements_of_a_gpus_convolution() -> None:
    """Which a transposed one multiplies by NaN; the CPU's leaves them out."""
    steps = [
        Step("v0", "F.conv_transpose2d({0}, torch.full((1, 2, 1, 1), torch.nan), stride=2)", ["x0"]),
        Step("v1", "{0}.to(torch.bool)", ["v0"]),
    ]
    for column in ("gpu", "direct"):
        program = Program(column, [{}], [Input("x0", "torch.ones(1, 1, 3, 3)")], steps, ["v1"])
        expected, ours = eager(program), eager(program)
        ours[0].outputs[0][0, 0, 0, 1] = True
        assert [each.kind for each in differences(program, expected, ours)] == ["value"] * (column == "direct")
        ours[0].outputs[0][0, 0, 0, 0] = False
        assert [each.kind for each in differences(program, expected, ours)] == ["value"]


def test_the_sign_of_a_jagged_nan_is_undetermined() -> None:
    jagged = "torch.nested.nested_tensor([torch.tensor([-2.0, 3.0])], layout=torch.jagged)"
    steps = [Step("v0", "torch.sqrt({0})", ["x0"]), Step("v1", "torch.signbit({0})", ["v0"])]
    program = Program("jagged", [{}], [Input("x0", jagged)], steps, ["v1"])
    expected, ours = eager(program), eager(program)
    ours[0].outputs[0].values()[0] ^= True
    assert differences(program, expected, ours) == []
    ours[0].outputs[0].values()[1] ^= True
    assert [each.kind for each in differences(program, expected, ours)] == ["value"]


@pytest.mark.parametrize("elements", [3, 16])  # fewer than a vector has, and whole vectors
@pytest.mark.parametrize("operator", ["hardtanh", "relu6"])
def test_the_gradient_of_a_hard_bound_at_nan_is_undetermined(operator: str, elements: int) -> None:
    text = f"torch.full(({elements},), 0.5).index_fill(0, torch.tensor([1]), torch.nan).requires_grad_()"
    program = Program("train", [{}], [Input("x0", text)], [Step("v0", f"F.{operator}({{0}})", ["x0"])], ["v0"])
    expected, ours = eager(program), eager(program)
    gradient = ours[0].gradients[0]
    # Zero in eager's vectors, the incoming gradient after the last of them: each is held against the other.
    gradient[1] = 0.0 if elements == 3 else gradient[0]
    assert differences(program, expected, ours) == []
    gradient[2] = 0.0
    assert [each.kind for each in differences(program, expected, ours)] == ["gradient value"]


# A program of one input, an element of its gradient and what another way gives there; one that is determined.
GRADIENTS: dict[str, tuple[str, str, tuple[int, ...], Callable[[torch.Tensor], float], tuple[int, ...]]] = {
    "an activation's at NaN, in a vector": (
        "torch.tensor([torch.nan] + [1.0] * 63)",
        "F.celu({0}, 0.7)",
        (0,),
        lambda gradient: 0.5 + float(torch.rand(64, generator=torch.Generator().manual_seed(1))[0]),
        (1,),
    ),
    "attention's with one key, where the columns are large": (
        "torch.tensor([[-1.0, 1e-30, 1.0, 6e4], [1.0, 2.0, 3.0, 4.0]])[:, None, None]",
        "F.scaled_dot_product_attention({0}, {0}, {0})",
        (0, 0, 0, 3),
        lambda gradient: float(gradient[0, 0, 0, 3]) + 500,
        (1, 0, 0, 3),
    ),
    "attention's with one weight in a row": (
        "torch.tensor([[0.5, -7e4], [1.0, 6e4]])[None, None]",
        "F.scaled_dot_product_attention({0}, {0}, {0})",
        (0, 0, 0, 0),
        lambda gradient: float(gradient[0, 0, 0, 0]) + 0.02,
        (0, 0, 0, 0),
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_that_other_ways_give_are_undetermined(name: str) -> None:
    input, step, index, other, determined = GRADIENTS[name]
    inputs = [Input("x0", f"{input}.requires_grad_()")]
    program = Program("train", [{}], inputs, [Step("v0", step, ["x0"])], ["v0"])
    expected, ours = eager(program), eager(program)
    gradient = ours[0].gradients[0]
    assert gradient is not None
    gradient[index] = other(gradient)
    assert differences(program, expected, ours) == []
    gradient[determined] += 0.1
    assert [each.kind for each in differences(program, expected, ours)] == ["gradient value"]


def test_a_sum_that_begins_with_zero_has_no_sign() -> None:
    program = Program(
        COLUMNS[0].name,
        [{}],
        [Input("x0", "torch.zeros(1, 1, 3)")],
        [Step("v0", "F.conv_transpose1d({0}, torch.full((1, 1, 1), 1.5))", ["x0"])],
        ["v0"],
    )
    expected, ours = eager(program), eager(program)
    assert not expected[0].outputs[0].signbit().any()
    ours[0].outputs[0].neg_()
    assert [each.kind for each in differences(program, expected, ours)] == ["value"]


def test_last_bits_of_jagged_steps_are_undetermined() -> None:
    """The steps' own, which those of the input do not change."""
    rows = "torch.nested.nested_tensor([torch.zeros(2, 1), torch.zeros(1, 1)], layout=torch.jagged)"
    steps = [Step("v0", "torch.exp({0})", ["x0"]), Step("v1", "{0}.to(torch.float64)", ["v0"])]
    program = Program("jagged", [{}], [Input("x0", rows)], steps, ["v1"])
    expected, ours = eager(program), eager(program)
    for wrong, kinds in ((1e-7, []), (1e-5, ["value"])):
        ours[0].outputs[0].values().copy_(expected[0].outputs[0].values() + wrong)
        assert [each.kind for each in differences(program, expected, ours)] == kinds


def test_what_eager_adds_twice_to_a_plain_tensor_is_undetermined() -> None:
    """Where nothing but a recurrent layer's input is a subclass, each of its parts is added to the same gates."""
    weights = "[torch.full((6, 2), 0.3), torch.full((6, 2), 0.2), torch.full((6,), 0.1), torch.full((6,), 0.1)]"
    layer = f"torch.gru({{0}}, torch.zeros(1, 1, 2), {weights}, True, 1, 0.0, False, False, True)[0]"
    inputs = [Input("x0", "(lambda t: TwoTensor(t.clone(), t.clone()))(torch.ones(1, 3, 2))")]
    program = Program("subclass", [{}], inputs, [Step("v0", layer, ["x0"])], ["v0"])
    plain = Program("infer", [{}], [Input("x0", "torch.ones(1, 3, 2)")], program.steps, ["v0"])
    expected, ours, right = eager(program), eager(program), eager(plain)[0].outputs[0]
    assert (expected[0].outputs[0].a - right).abs().max() > 1e-2
    for wrong, kinds in ((0.0, set()), (0.5, {"value"})):
        for part in (ours[0].outputs[0].a, ours[0].outputs[0].b):
            part.copy_(right + wrong)
        assert {each.kind for each in differences(program, expected, ours)} == kinds


def test_the_sign_of_an_inputs_nan_is_determined() -> None:
    program = Program(
        COLUMNS[0].name,
        [{}],
        [Input("x0", "torch.tensor([-torch.nan, torch.nan])")],
        [Step("v0", "{0}.view(torch.int32)", ["x0"])],
        ["v0"],
    )
    expected, ours = eager(program), eager(program)
    ours[0].outputs = [ours[0].outputs[0].flip(0)]
    assert "value" in [each.kind for each in differences(program, expected, ours)]


def test_what_eagers_kernels_of_attention_disagree_on_is_undetermined() -> None:
    """A NaN among the keys that the mask leaves out: it is a score of every row in one of eager's kernels, not in the other."""
    text = "torch.tensor([1.0, -1.0, 2.0, float('nan')]).reshape(1, 1, 4, 1)"
    ones = "torch.ones_like({0})"
    program = Program(
        column="direct",
        sizes=[{}],
        inputs=[Input("x0", text, 0)],
        steps=[Step("v0", f"F.scaled_dot_product_attention({ones}, {{0}}, {ones}, is_causal=True)", ["x0"])],
        outputs=["v0"],
        settings={},
    )
    expected, actual = eager(program), eager(program)
    result = expected[0].outputs[0]
    with sdpa_kernel(SDPBackend.MATH):
        other = eager(program)[0].outputs[0]
    assert (result.isnan() != other.isnan()).any()
    actual[0].outputs = [other]
    assert differences(program, expected, actual) == []
    finite = Program(**{**vars(program), "inputs": [Input("x0", text.replace("float('nan')", "3.0"), 0)]})
    expected, actual = eager(finite), eager(finite)
    actual[0].outputs[0][..., 0, 0] = torch.nan
    assert [found.kind for found in differences(finite, expected, actual)] == ["nan"]


def _written_after_an_lstm(weight_is_trained: bool) -> Program:
    """An input that is overwritten before the backward pass."""
    weights = "torch.linspace(-1, 1, 8).reshape(4, 2), {1}, torch.zeros(4), torch.zeros(4)"
    state = "(torch.zeros(1, 4, 1), torch.zeros(1, 4, 1))"
    steps = [
        Step("v0", "{0} * 1", ["x0"]),
        Step("v1", f"torch.lstm({{0}}, {state}, [{weights}], True, 1, 0.0, False, False, False)[0]", ["v0", "x1"]),
        Step("v2", "{0}.mul_(2)", ["v0"]),
    ]
    trained = ".requires_grad_()"
    inputs = [
        Input("x0", "torch.ones(3, 4, 2)" + (trained if weight_is_trained else ""), 0),
        Input("x1", "torch.ones(4, 1)" + trained, 0),
    ]
    if weight_is_trained:
        steps[1] = Step(
            "v1", steps[1].text.replace("torch.linspace(-1, 1, 8).reshape(4, 2)", "{2}"), ["v0", "x1", "x2"]
        )
        inputs.append(Input("x2", "torch.ones(4, 2)" + trained, 0))
    return Program("direct-train", [{}], inputs, steps, ["v1", "v2"])


def test_what_onednns_lstm_alone_refuses_is_what_the_other_lstm_computes() -> None:
    program = _written_after_an_lstm(weight_is_trained=False)
    expected = eager(program)
    assert "modified by an inplace operation" in str(expected[0].error)
    with torch.backends.mkldnn.flags(enabled=False):
        ours = eager(program)
    assert differences(program, expected, ours) == []
    ours[0].gradients[1] = ours[0].gradients[1] + 0.5  # type: ignore[operator]
    assert [each.kind for each in differences(program, expected, ours)] == ["gradient value"]


def test_what_both_lstms_refuse_is_refused() -> None:
    program = _written_after_an_lstm(weight_is_trained=True)
    expected, ours = eager(program), eager(program)
    assert "modified by an inplace operation" in str(expected[0].error)
    ours[0].error = None
    assert [each.kind for each in differences(program, expected, ours)] == ["no error"]


def test_a_running_product_beyond_single_precision_is_undetermined_on_a_gpu() -> None:
    """Eager's on the CPU is in double precision and comes back from there."""
    inputs = [Input("x0", "torch.tensor([1e30, -1e30, 1e-40, 1e-40])")]
    steps = [Step("v0", "torch.cumprod({0}, 0)", ["x0"]), Step("v1", "{0}.tanh()", ["v0"])]
    for column, kinds in (("gpu", set()), ("direct", {"value"})):
        program = Program(column, [{}], inputs, steps, ["v1"])
        expected, ours = eager(program), eager(program)
        ours[0].outputs[0][3] = -1.0
        assert {each.kind for each in differences(program, expected, ours)} == kinds


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_what_eager_determines_is_held_to_its_tolerance(dtype: str) -> None:
    """That is where eager's number is the one of double precision, and no more than rounding moves it."""

    def found(steps: list[str], tolerances: float) -> bool:
        inputs = [Input("x0", f"torch.linspace(0.5, 1.5, 9).to(torch.{dtype})")]
        made = [
            Step(f"v{number}", text, re.findall(r"\b[xv]\d\b", text.replace("{0}", "x0")))
            for number, text in enumerate(steps)
        ]
        program = Program(COLUMNS[0].name, [{}], inputs, made, [f"v{len(steps) - 1}"])
        expected, ours = eager(program), eager(program)
        relative, absolute = TOLERANCE[getattr(torch, dtype)]
        changed = ours[0].outputs[0]
        changed[4] += tolerances * (relative * changed[4].abs() + absolute)
        return bool(differences(program, expected, ours))

    exact = 12 if dtype in ("bfloat16", "float16") else 3  # their tolerance is two of their last bits
    assert found(["torch.exp(x0)"], exact)
    assert not found(["torch.exp(x0)"], 0.5)
    # A difference of numbers that are nearly equal: its last bits are theirs.
    last_bits = 3 if dtype == "float64" else 100
    assert not found(["torch.exp(x0) * 1000", "v0 - 1000 * torch.exp(torch.ones_like(x0))"], last_bits)


def test_most_planted_faults_are_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["strictness.py", "--count", "6", "--seed", "1"])
    assert strictness.main() == 0
    lines = {line[:40].strip(): line.split() for line in capsys.readouterr().out.splitlines()}
    assert float(lines["off by 3 tolerances"][-4].rstrip("%")) > 40
    assert float(lines["off by 1000 tolerances"][-4].rstrip("%")) > 60
