"""Every pointwise operator with a lowering, at the edges of its domain: zeros of both signs, subnormal and huge numbers,
infinities, NaN, negative integers. Compared by bits where eager's answer is a fact, else by relative error.

Eager computes whole vectors and the rest of a tensor by different code; either's answer will do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[..., Tensor]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
REDUCED = (torch.float16, torch.bfloat16)
RELATIVE = {torch.float32: 2e-5, torch.float64: 1e-11, torch.float16: 1e-3, torch.bfloat16: 8e-3}
inf, nan = math.inf, math.nan


@dataclass(frozen=True)
class Difference:
    """Where our answer is not eager's, and why that is right or borne. ``at``: the first operand's values, at most."""

    reason: str
    at: tuple[float, ...]
    dtypes: Sequence[torch.dtype] = FLOATS


_ZEROS = "eager's answer for zeros of both signs depends on the dtype: bf16 takes the second, the others take the first"
EXPECTED = {
    "fmax": Difference(_ZEROS, (0.0,), (torch.bfloat16,)),
    "fmin": Difference(_ZEROS, (0.0,), (torch.bfloat16,)),
    "logaddexp2": Difference("of twice 1/2 it is 0, which we give and eager's f64 misses", (-1.0,)),
}

# No half-precision kernel in eager: nothing to compare with.
NOT_IN_EAGER = {"log_ndtr", "erfcx", "bessel_j0", "ndtri"}

ELEMENTARY = """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal erf erfc sin cos tan asin acos atan sinh cosh
    tanh asinh acosh atanh deg2rad rad2deg ceil floor trunc round frac neg abs square sign sgn relu sigmoid lgamma digamma
    erfinv i0 signbit isnan isinf isfinite logit nan_to_num sinc""".split()
SPECIAL = "i0e i1 i1e ndtr log_ndtr entr erfcx bessel_j0 ndtri".split()
ACTIVATIONS = """silu mish gelu relu6 hardtanh hardswish hardsigmoid leaky_relu elu selu celu softplus softshrink hardshrink
    logsigmoid tanhshrink softsign""".split()
EXPONENTS = (0, 0.5, 1, 2, 3, -0.5, -1, -2, 2.5, -3, 4, 1 / 3)

UNARY: dict[str, Function] = {
    **{name: getattr(torch, name) for name in ELEMENTARY},
    **{name: getattr(torch.special, name) for name in SPECIAL},
    **{name: getattr(F, name) for name in ACTIVATIONS},
    **{f"pow({exponent:.3g})": lambda x, exponent=exponent: x.pow(exponent) for exponent in EXPONENTS},
    "gelu(tanh)": lambda x: F.gelu(x, approximate="tanh"),
    "threshold(0)": lambda x: F.threshold(x, 0.0, 0.0),
    "threshold(-0)": lambda x: F.threshold(x, -0.0, -0.0),
    "clamp(min=0)": lambda x: x.clamp(min=0),
    "clamp(min=-0)": lambda x: x.clamp(min=-0.0),
    "clamp(max=0)": lambda x: x.clamp(max=0.0),
    "clamp(max=-0)": lambda x: x.clamp(max=-0.0),
    "clamp(0, 1)": lambda x: x.clamp(0, 1),
    "clamp(-0, 0)": lambda x: x.clamp(-0.0, 0.0),
    "clamp(nan, 1)": lambda x: x.clamp(nan, 1.0),
    "clamp(0, nan)": lambda x: x.clamp(0.0, nan),
    "clamp(2, 1)": lambda x: x.clamp(2.0, 1.0),
    "clamp_min": lambda x: torch.clamp_min(x, 0.0),
    "clamp_max": lambda x: torch.clamp_max(x, 0.0),
    "hardtanh(0, 1)": lambda x: F.hardtanh(x, 0.0, 1.0),
    "leaky_relu(0)": lambda x: F.leaky_relu(x, 0.0),
    "2**x": lambda x: 2.0**x,
    "0**x": lambda x: torch.pow(0.0, x),
    "x+0": lambda x: x + 0.0,
    "x-0": lambda x: x - 0.0,
    "0-x": lambda x: 0.0 - x,
    "x*0": lambda x: x * 0.0,
    "x/2": lambda x: x / 2,
    "remainder(2)": lambda x: torch.remainder(x, 2),
    "fmod(2)": lambda x: torch.fmod(x, 2),
    "floor(x/3)": lambda x: torch.div(x, 3.0, rounding_mode="floor"),
    "trunc(x/3)": lambda x: torch.div(x, 3.0, rounding_mode="trunc"),
    "x//3": lambda x: torch.floor_divide(x, 3.0),
    "round(1)": lambda x: torch.round(x, decimals=1),
    "masked_fill": lambda x: x.masked_fill(x < 0, -0.0),
    "copysign(-1)": lambda x: torch.copysign(x, -1.0),
    "where(0)": lambda x: torch.where(x > 0, x, 0.0),
    "mantissa": lambda x: torch.frexp(x)[0],
    "exponent": lambda x: torch.frexp(x)[1],
}

BOTH_ARE_TENSORS = """add sub mul div maximum minimum fmax fmin atan2 copysign pow remainder fmod floor_divide hypot nextafter
    xlogy logaddexp logaddexp2 heaviside eq ne lt le gt ge logical_and logical_or logical_xor""".split()
BINARY: dict[str, Function] = {
    **{name: getattr(torch, name) for name in BOTH_ARE_TENSORS},
    "xlog1py": torch.special.xlog1py,
    "floor(a/b)": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc(a/b)": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "clamp(min)": lambda a, b: torch.clamp(a, min=b),
    "clamp(max)": lambda a, b: torch.clamp(a, max=b),
    "clamp(min, max)": lambda a, b: torch.clamp(a, b, b),
    "where(a, b)": lambda a, b: torch.where(a > b, a, b),
    **{
        f"lerp({weight})": lambda a, b, weight=weight: torch.lerp(a, b, weight)
        for weight in (-1.0, 0.0, 0.3, 0.5, 1.0, 3.0)
    },
    "add(alpha)": lambda a, b: torch.add(a, b, alpha=3),
    "sub(alpha)": lambda a, b: torch.sub(a, b, alpha=3),
    "rsub(alpha)": lambda a, b: torch.rsub(a, b, alpha=3),
    **{
        f"addcmul({value})": lambda a, b, value=value: torch.addcmul(a, b, b, value=value) for value in (-0.5, 0.5, 1.0)
    },
    "addcmul(a, a, b)": lambda a, b: torch.addcmul(a, a, b, value=3),
    "addcdiv": lambda a, b: a.addcdiv(b, a, value=0.5),  # Dynamo makes three operators of torch.addcdiv
    "prelu": lambda a, b: torch.where(a > 0, a, a * b),
}


def values(dtype: torch.dtype) -> tuple[Tensor]:
    info = torch.finfo(dtype)
    sizes = [0.0, info.smallest_normal * info.eps, info.smallest_normal / 2, info.smallest_normal, 0.1, 0.25, 0.49, 0.5, 0.7,
             0.75, 0.999, 1.0, 1.0 + info.eps, 1.5, 2.0, 2.5, 3.0, 3.5, 4.5, 5.5, 6.0, 7.0, 8.0, 9.5, 10.0, 15.0, 20.0, 30.0,
             33.5, 50.0, 88.0, 89.0, 100.0, 104.0, 127.5, 128.0, 170.0, 200.0, 255.0, 256.0, 300.0, 710.0, 750.0, 1e3, 1e4,
             32767.0, 32768.0, 65504.0, 65535.0, 65536.0, 1e6, 8388607.5, 2.0**24, 2.0**31, 2.0**32, 1e10, 2.0**63, 2.0**64,
             1e20, 1e30, 1e37, 1e38, info.max, inf, nan]  # fmt: skip
    positive = torch.tensor(sizes, dtype=torch.float64)
    return (torch.cat([positive, -positive]).to(dtype),)


def pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    info = torch.finfo(dtype)
    some = [0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 7.5, 1e-3, info.smallest_normal / 2, info.max, inf]
    each = torch.tensor([*some, *(-value for value in some), nan], dtype=torch.float64).to(dtype)
    a, b = torch.meshgrid(each, each, indexing="ij")
    return a.flatten(), b.flatten()


def same(ours: Tensor, eager: Tensor, exact: Tensor | None) -> Tensor:
    """Per element: the same bits, two NaN, or as near as the dtype's relative error (for subnormal numbers: a few steps)
    or as eager is to f64. The sign of a zero counts."""
    if not eager.is_floating_point():
        return ours == eager
    info = torch.finfo(eager.dtype)
    bits = (ours.isnan() & eager.isnan()) | ((ours == eager) & (ours.signbit() == eager.signbit()))
    a, e = ours.double(), eager.double()
    finite = a.isfinite() & e.isfinite() & ~((a == 0) & (e == 0))
    near = (a - e).abs() <= RELATIVE[eager.dtype] * e.abs() + 4 * info.smallest_normal * info.eps
    if exact is not None:
        near |= (a - exact).abs() <= (e - exact).abs()
    return bits | (near & finite)


def differences(functions: dict[str, Function], inputs: Sequence[Tensor]) -> dict[str, list[str]]:
    """Where the compiled functions differ from eager's, beyond what the table expects."""
    dtype = inputs[0].dtype
    compiled = torch.compile(
        lambda *arguments: [function(*arguments) for function in functions.values()],
        backend="zefuse", dynamic=False, fullgraph=True,
    )  # fmt: skip
    long = [t.repeat_interleave(64) for t in inputs]
    found: dict[str, list[str]] = {}
    for (name, function), ours in zip(functions.items(), compiled(*inputs), strict=True):
        vector = function(*long)[::64]
        alone = torch.cat([function(*(t[at : at + 1].clone() for t in inputs)) for at in range(len(inputs[0]))])
        exact = None if dtype == torch.float64 else function(*(t.double() for t in inputs))
        good = same(ours, vector, exact) | same(ours, alone, exact)
        expected = EXPECTED.get(name)
        if expected is not None and dtype in expected.dtypes:
            good |= torch.isin(inputs[0], torch.tensor(expected.at, dtype=dtype))
        for at in (~good).nonzero().flatten().tolist():
            given = ", ".join(f"{t[at].item():.9g}" for t in inputs)
            found.setdefault(name, []).append(
                f"{name}({given}): {ours[at].item():.9g}, eager {vector[at].item():.9g} or {alone[at].item():.9g}"
            )
    return found


def groups(functions: dict[str, Function], size: int) -> list[list[str]]:
    """Compiled together, since one kernel of several costs little more than of one."""
    names = list(functions)
    return [names[start : start + size] for start in range(0, len(names), size)]


def named(group: object) -> str | None:
    return f"{group[0]}..{group[-1]}" if isinstance(group, list) else str(group).removeprefix("torch.")


@pytest.mark.parametrize("dtype", FLOATS, ids=named)
@pytest.mark.parametrize("group", groups(UNARY, 20), ids=named)
def test_unary(group: list[str], dtype: torch.dtype) -> None:
    chosen = {name: UNARY[name] for name in group if dtype not in REDUCED or name not in NOT_IN_EAGER}
    assert differences(chosen, values(dtype)) == {}


@pytest.mark.parametrize("dtype", FLOATS, ids=named)
@pytest.mark.parametrize("group", groups(BINARY, 20), ids=named)
def test_binary(group: list[str], dtype: torch.dtype) -> None:
    assert differences({name: BINARY[name] for name in group}, pairs(dtype)) == {}


NUMBERS = [0.0, 0.5, 0.99, 1.0, 1.5, 2.5, 126.9, 127.0, 127.9, 128.0, 129.0, 200.0, 254.5, 255.0, 255.9, 256.0, 257.0, 300.0,
           511.0, 32766.5, 32767.0, 32767.9, 32768.0, 40000.0, 65504.0, 65535.0, 65536.0, 65537.0, 1e5, 2.0**24 + 1,
           2.0**31 - 128, 2.0**31 - 1, 2.0**31, 2.0**31 + 256, 2.0**31 + 300, 3e9, 2.0**32 - 1, 2.0**32, 2.0**32 + 5,
           2.0**32 + 512, 1e10, 2.0**40 + 300, 2.0**53, 2.0**62, 2.0**63 - 1024, 2.0**63, 2.0**63 + 4096, 1e19, 2.0**64, 1e30,
           1e38, 1e300, inf, nan, 5e-324, 1e-40]  # fmt: skip


@pytest.mark.parametrize("source", FLOATS, ids=named)
def test_conversions_out_of_range(source: torch.dtype) -> None:
    """What C++ leaves open x86 decides, for eager and for us."""
    targets = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]
    x = torch.tensor([*NUMBERS, *(-number for number in NUMBERS)], dtype=torch.float64).to(source)

    def convert(x: Tensor) -> list[Tensor]:
        return [x.to(target) for target in targets]

    ours = torch.compile(convert, backend="zefuse", dynamic=False, fullgraph=True)(x)
    for target, mine in zip(targets, ours, strict=True):
        vector = x.repeat_interleave(64).to(target)[::64]
        alone = torch.cat([x[at : at + 1].clone().to(target) for at in range(len(x))])
        wrong = (mine != vector) & (mine != alone)
        assert not wrong.any(), (
            f"to {target}: {x[wrong].tolist()} give {mine[wrong].tolist()}, eager {vector[wrong].tolist()}"
        )


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_infinity_that_has_become_a_constant_as_an_integer(dtype: torch.dtype, device: str) -> None:
    """It is some number: less it, NaN is NaN."""

    def function(nothing: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        infinite = nothing.logsumexp((0, 1))
        return nothing.mean() - infinite.to(dtype), infinite.to(dtype)

    nothing = torch.zeros(0, 8)
    actual = torch.compile(function, backend="zefuse", options={"device": device})(nothing)
    torch.testing.assert_close(actual, function(nothing), equal_nan=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_remainder_by_subnormal_numbers_is_eagers_of_each_element(dtype: torch.dtype, dynamic: bool) -> None:
    """Of whole vectors of bf16, 32 numbers and more, eager has NaN where the quotient is beyond f32."""

    def remainders(x: Tensor, whole: Tensor) -> list[Tensor]:
        return [3 % x, -2.5 % x, whole % x, torch.fmod(whole, x), x.shape[0] % x]

    x = torch.arange(1, 71, dtype=torch.int16).view(dtype) * torch.tensor([1, -1], dtype=dtype).repeat(35)
    whole = torch.arange(70) * 3 - 7
    alone = [[each[0] for each in remainders(x[i : i + 1], whole[i : i + 1])] for i in range(70)]
    expected = [torch.stack(column) for column in zip(*alone, strict=True)]
    expected[-1] = torch.stack([(70 % x[i : i + 1])[0] for i in range(70)])
    actual = torch.compile(remainders, backend="zefuse", dynamic=dynamic)(x, whole)
    for result, wanted in zip(actual, expected, strict=True):
        assert torch.equal(result, wanted)
