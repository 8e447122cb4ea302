"""Pointwise operators, casts, choices by a mask."""

from __future__ import annotations

import torch
from draw import Draw, Entry, NoFit, Value, broadcasts

FLOAT_UNARY = """sin cos tan sinh cosh asin acos atan asinh acosh atanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal
    tanh sigmoid erf erfc erfinv lgamma digamma logit sinc deg2rad rad2deg special.i0 special.i0e special.i1 special.ndtr
    special.log_ndtr special.entr special.xlog1py special.bessel_j0""".split()
ANY_UNARY = (
    "neg abs sign square floor ceil trunc round frac sgn positive isnan isinf isfinite signbit nan_to_num relu".split()
)
ACTIVATIONS = """relu gelu silu mish hardtanh relu6 hardswish hardsigmoid leaky_relu elu selu celu softplus softshrink hardshrink
    logsigmoid tanhshrink softsign""".split()
BINARY = "add sub mul div maximum minimum fmax fmin remainder fmod floor_divide pow".split()
FLOAT_BINARY = "atan2 copysign hypot logaddexp logaddexp2 nextafter xlogy special.zeta".split()
INTEGER_BINARY = "bitwise_and bitwise_or bitwise_xor gcd lcm".split()
COMPARE = "eq ne lt le gt ge logical_and logical_or logical_xor".split()
DTYPES = "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool".split()


def _is_integer(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()


def unary_float(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any() if draw.often(0.15) else draw.floating()
    name = draw.choice(FLOAT_UNARY[:-2] if draw.often(0.9) else FLOAT_UNARY)
    if name == "special.xlog1py":
        return "torch.special.xlog1py({0}, {1})", [value, draw.broadcast(value)]
    return f"torch.{name}({{0}})", [value]


def unary_any(draw: Draw) -> tuple[str, list[Value]]:
    return f"torch.{draw.choice(ANY_UNARY)}({{0}})", [draw.any()]


def activation(draw: Draw) -> tuple[str, list[Value]]:
    name = draw.choice(ACTIVATIONS)
    more = {
        "gelu": ["", ", approximate='tanh'"],
        "leaky_relu": ["", ", 0.2"],
        "elu": ["", ", 1.5"],
        "softplus": ["", ", beta=2, threshold=3"],
        "hardtanh": ["", ", -0.5, 2.0"],
        "celu": ["", ", 0.7"],
        "softshrink": ["", ", 0.25"],
        "hardshrink": ["", ", 0.25"],
    }.get(name, [""])
    return f"F.{name}({{0}}{draw.choice(more)})", [draw.floating()]


def binary(draw: Draw) -> tuple[str, list[Value]]:
    one = draw.any()
    name = draw.choice(BINARY)
    if draw.often(0.3):
        if name in ("maximum", "minimum", "fmax", "fmin"):
            name = "mul"
        if draw.often(0.15):
            sign = draw.choice(["+", "-", "*", "/", "**", "//", "%"])
            return f"{draw.scalar(one)} {sign} {{0}}", [one]
        return f"torch.{name}({{0}}, {draw.scalar(one)})", [one]
    other = draw.broadcast(one)
    if name in ("add", "sub") and draw.often(0.2):
        return f"torch.{name}({{0}}, {{1}}, alpha={draw.choice(['2', '-1', '3'])})", [one, other]
    if name == "div" and draw.often(0.3):
        return f"torch.div({{0}}, {{1}}, rounding_mode='{draw.choice(['floor', 'trunc'])}')", [one, other]
    return f"torch.{name}({{0}}, {{1}})", [one, other]


def binary_float(draw: Draw) -> tuple[str, list[Value]]:
    one = draw.floating()
    return f"torch.{draw.choice(FLOAT_BINARY)}({{0}}, {{1}})", [
        one,
        draw.broadcast(one, lambda t: t.dtype == one.tensor.dtype),
    ]


def binary_integer(draw: Draw) -> tuple[str, list[Value]]:
    one = draw.any(_is_integer)
    if draw.often(0.2):
        return draw.choice(["~{0}", "torch.bitwise_left_shift({0}, 2)", "torch.bitwise_right_shift({0}, 1)"]), [one]
    return f"torch.{draw.choice(INTEGER_BINARY)}({{0}}, {{1}})", [one, draw.broadcast(one, _is_integer)]


def compare(draw: Draw) -> tuple[str, list[Value]]:
    one = draw.any()
    if draw.often(0.4):
        return f"torch.{draw.choice(COMPARE[:6])}({{0}}, {draw.scalar(one)})", [one]
    return f"torch.{draw.choice(COMPARE)}({{0}}, {{1}})", [one, draw.broadcast(one)]


def ternary(draw: Draw) -> tuple[str, list[Value]]:
    one = draw.number()
    two = draw.broadcast(one, lambda t: t.dtype == one.tensor.dtype)
    kind = draw.choice(["clamp", "clamp_tensor", "lerp", "lerp_tensor", "addcmul", "addcdiv"])
    if kind == "clamp":
        text = draw.choice(["-1, 1", "min=0", "max=1", "0.5, 2", "2, 1", "min=-0.5"])
        return f"torch.clamp({{0}}, {text})", [one]
    if kind == "clamp_tensor":
        return draw.choice(["torch.clamp({0}, min={1})", "torch.clamp({0}, max={1})"]), [one, two]
    if kind == "lerp":
        return "torch.lerp({0}, {1}, 0.3)", [one, two]
    shape = torch.broadcast_shapes(one.tensor.shape, two.tensor.shape)
    three = draw.any(lambda t: t.dtype == one.tensor.dtype and broadcasts(shape, t.shape))
    if kind == "lerp_tensor":
        return "torch.lerp({0}, {1}, {2})", [one, two, three]
    value = draw.choice(["0.5", "-2", "3"]) if one.tensor.is_floating_point() else "3"
    return f"torch.{kind}({{0}}, {{1}}, {{2}}, value={value})", [one, two, three]


def where(draw: Draw) -> tuple[str, list[Value]]:
    one = draw.any()
    mask = draw.broadcast(one, lambda t: t.dtype == torch.bool)
    if draw.often(0.3):
        return f"{{1}}.masked_fill({{0}}, {draw.scalar(one)})", [mask, one]
    if draw.often(0.3):
        sides = ["{1}", draw.scalar(one)]
        draw.rng.shuffle(sides)
        return f"torch.where({{0}}, {', '.join(sides)})", [mask, one]
    shape = torch.broadcast_shapes(one.tensor.shape, mask.tensor.shape)
    return "torch.where({0}, {1}, {2})", [mask, one, draw.any(lambda t: broadcasts(shape, t.shape))]


def cast(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any()
    dtype = draw.choice(DTYPES)
    if not value.tensor.is_floating_point() or dtype.startswith(("float", "bfloat")) or draw.often(0.25):
        return f"{{0}}.to(torch.{dtype})", [value]
    # What eager makes of a float out of range depends on the processor's instructions.
    if dtype == "bool":
        return "({0} > 0)", [value]
    return (
        f"torch.nan_to_num({{0}}, 1.0, 2.0, 3.0).clamp({'0' if dtype == 'uint8' else '-100'}, 100).to(torch.{dtype})",
        [value],
    )


def make(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.ranked(1)
    dim = draw.dim(value)
    size = draw.size(value, dim)
    text = draw.choice(
        [
            "torch.zeros_like({0})",
            "torch.ones_like({0})",
            "torch.full_like({0}, 3)",
            f"torch.arange({size})",
            f"torch.arange({size}, dtype={{0}}.dtype)",
            f"torch.ones({size}, {size}, dtype=torch.bool).tril()",
            f"torch.linspace(-1, 1, {size})",
            f"torch.eye({size})",
            "{0}.new_full((), 2)",
            "torch.empty_like({0}).fill_(1)",
        ]
    )
    return text, [value]


def glu(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.floating(1)
    even = [dim for dim, size in enumerate(value.tensor.shape) if size % 2 == 0]
    if not even:
        raise NoFit
    return f"F.glu({{0}}, {draw.choice(even)})", [value]


POINTWISE: list[tuple[float, Entry]] = [
    (5, unary_float),
    (4, unary_any),
    (3, activation),
    (9, binary),
    (1.5, binary_float),
    (2, binary_integer),
    (3, compare),
    (3, ternary),
    (4, where),
    (4, cast),
    (1.5, make),
    (0.5, glu),
]
