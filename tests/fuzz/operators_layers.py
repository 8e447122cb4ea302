"""What models are made of: layers with weights, masks and states, linear algebra, products of small integers, recurrent layers,
dropout."""

from __future__ import annotations

import torch
from draw import Draw, Entry, NoFit, Value


def constant_or_cut(draw: Draw, value: Value, shape: str, number: int) -> tuple[str, list[Value]]:
    """The text of a tensor of some shape and the value's dtype: constant, or cut out of a value so that a gradient goes there."""
    count = 1
    for size in shape.split(", "):
        count *= int(size)
    if draw.often(0.5):
        source = draw.any(lambda t: t.dtype == value.tensor.dtype and t.numel() >= count)
        if not draw.dynamic or source.tensor.numel() >= 4 * count:
            return f"{{{number}}}.reshape(-1)[:{count}].reshape({shape})", [source]
    low, high = draw.choice([("-0.9", "1.1"), ("-0.45", "1.55"), ("1.05", "-2.05")])  # no poles of functions
    # Of doubles: single precision's last bit is known to differ.
    return f"torch.linspace({low}, {high}, {count}, dtype=torch.float64).to({{0}}.dtype).reshape({shape})", []


def long_convolution(draw: Draw) -> tuple[str, list[Value]]:
    """One-dimensional, with a kernel as long as the signal and longer."""
    value = draw.any(lambda t: t.is_floating_point() and t.dim() == 3 and 0 < t.shape[1] <= 17 and t.shape[2] > 0)
    channels, out = value.tensor.shape[1], draw.choice([1, 2, 5, 8])
    size, stride = draw.choice([7, 8, 15, 31, 64]), draw.choice([1, 1, 2, 4])
    weight, of = constant_or_cut(draw, value, f"{out}, {channels}, {size}", 1)
    bias = f", torch.full(({out},), 0.3).to({{0}}.dtype)" if draw.often(0.3) else ""
    padding = draw.choice([size // 2, size - 1, size])
    return f"F.conv1d({{0}}, {weight}{bias}, stride={stride}, padding={padding})", [value, *of]


def wide_convolution(draw: Draw) -> tuple[str, list[Value]]:
    """Of a window of 3x3 and channels enough for Winograd's; its errors are of the largest input of a window."""
    value = draw.any(lambda t: t.is_floating_point() and t.dim() == 4 and t.shape[0] <= 4 and 0 < t.shape[1] <= 17)
    repeats = -(-16 // value.tensor.shape[1])
    channels, out, dilation = value.tensor.shape[1] * repeats, draw.choice([16, 17, 40]), draw.choice([1, 1, 1, 2])
    if any(not 0 < size <= 32 for size in value.tensor.shape[2:]):
        raise NoFit
    weight, of = constant_or_cut(draw, value, f"{out}, {channels}, 3, 3", 1)
    wide = f"{{0}}.clamp(-3, 3).repeat(1, {repeats}, 1, 1)"
    if draw.often(0.3):
        wide += ".to(memory_format=torch.channels_last)"
    return f"F.conv2d({wide}, {weight}, padding={draw.choice([2, 1, 1]) * dilation}, dilation={dilation})", [value, *of]


def norm_with_weights(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.floating(2, 5)
    channels = value.tensor.shape[1]
    if channels == 0:
        raise NoFit
    weight, of = constant_or_cut(draw, value, str(channels), 1)
    bias, more = constant_or_cut(draw, value, str(channels), 1 + len(of))
    values = [value, *of, *more]
    if draw.often(0.4):
        groups = draw.choice([n for n in (1, 2, 3, 4, channels) if channels % n == 0])
        return f"F.group_norm({{0}}, {groups}, {weight}, {bias})", values
    training = draw.choice(["True", "False"])
    state = f"torch.zeros({channels}).to({{0}}.dtype), torch.ones({channels}).to({{0}}.dtype)"
    return f"F.batch_norm({{0}}, {state}, {weight}, {bias}, training={training})", values


def masked_attention(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.floating(3, 4)
    rows, key = draw.size(value, -2), draw.like(value)
    values = [value, key, draw.like(value)]
    kind = draw.choice(["lower", "band", "bias", "value", "shared heads"])
    if kind == "shared heads" and value.tensor.dim() == 4 and value.tensor.shape[1] > 1:
        return "F.scaled_dot_product_attention({0}, {1}[:, :1], {2}[:, :1], enable_gqa=True)", values
    if kind == "value":
        mask = draw.any(
            lambda t: (
                t.dtype in (torch.bool, value.tensor.dtype)
                and 1 <= t.dim() <= value.tensor.dim()
                and t.shape[-1] == value.tensor.shape[-2]
                and all(
                    a in (1, b) for a, b in zip(reversed(t.shape[:-1]), reversed(value.tensor.shape[:-1]), strict=False)
                )
            )
        )
        return "F.scaled_dot_product_attention({0}, {1}, {2}, attn_mask={3})", [*values, mask]
    at = f"torch.arange({rows})"
    mask = {
        "lower": f"torch.ones({rows}, {rows}, dtype=torch.bool).tril({draw.int(0, 1)})",
        "band": f"({at}[:, None] - {at}).abs() < {draw.int(1, 3)}",
    }.get(kind, f"-0.5 * ({at}[:, None] - {at}).abs().to({{0}}.dtype)")
    scale = f", scale={draw.choice(['1.0', '0.25'])}" if draw.often(0.3) else ""
    return f"F.scaled_dot_product_attention({{0}}, {{1}}, {{2}}, attn_mask={mask}{scale})", values


def linear_algebra(draw: Draw) -> tuple[str, list[Value]]:
    """Of a matrix that is positive definite, so that the answer is one and well determined."""
    value = draw.any(
        lambda t: t.dtype in (torch.float32, torch.float64) and t.dim() in (2, 3) and 0 < min(t.shape[-2:]) <= 9
    )
    rows = draw.size(value, -2)
    # tanh: of bounded condition, whatever the value's size.
    text = f"(lambda a: a @ a.mT + {value.tensor.shape[-1]} * torch.eye({rows}, dtype=a.dtype))({{0}}.tanh())"
    return draw.choice(
        [
            f"torch.linalg.solve({text}, {{0}})",
            f"torch.linalg.inv({text})",
            f"torch.linalg.cholesky({text})",
            f"torch.linalg.det({text}).log()",
            f"torch.linalg.slogdet({text})[1]",
            f"torch.linalg.eigvalsh({text})",
            f"torch.linalg.solve_triangular({text}.tril(), {{0}}, upper=False)",
            f"torch.linalg.matrix_power({text}, 2)",
            f"torch.cholesky_solve({{0}}, torch.linalg.cholesky({text}))",
        ]
    ), [value]


def integer_product(draw: Draw) -> tuple[str, list[Value]]:
    """Of numbers of 8 bits: exact in 32, or scaled as quantized models do."""
    value = draw.any(lambda t: 2 <= t.dim() <= 3 and t.dtype != torch.bool)
    if value.tensor.is_floating_point():
        codes = "torch.nan_to_num({0} * 16, 0.0, 90.0, -90.0).round().clamp(-128, 127).to(torch.int8)"
    else:
        codes = "{0}.clamp(0, 100).to(torch.int8)"
    rank = value.tensor.dim()
    kinds = [
        f"(lambda q: q.to(torch.int32) @ q.to(torch.int32).mT)({codes})",
        f"(lambda q: q @ q.mT)({codes})",
        f"(lambda q: (q.to(torch.float32) * 0.0625) @ (q.to(torch.float32) * 0.0625).mT)({codes})",
    ]
    if rank == 2 and (value.tensor.shape[1] > 1 or draw.dynamic):
        # Of one column eager's _int_mm leaves its result unwritten.
        if draw.dynamic:
            codes = f"F.pad({codes}, (0, 2))"
        kinds += [
            f"(lambda q: torch._int_mm(q, q.t()))({codes})",
            f"(lambda q: torch._int_mm(q, q.t()) * 0.01)({codes})",
        ]
    return draw.choice(kinds), [value]


def recurrent(draw: Draw) -> tuple[str, list[Value]]:
    """A layer over the steps of a sequence, padded or packed, with weights that are constants or cut out of a value."""
    value = draw.any(
        lambda t: (
            t.dtype in (torch.float32, torch.float64) and t.dim() == 3 and 0 < t.shape[2] <= 9 and min(t.shape) > 0
        )
    )
    kind = draw.choice(["lstm", "gru", "rnn_tanh"])
    gates, width = {"lstm": 4, "gru": 3, "rnn_tanh": 1}[kind], draw.choice([2, 3, 8])
    inner = value.tensor.shape[2]
    both = draw.often(0.3)
    outputs = draw.int(1, width - 1) if kind == "lstm" and draw.often(0.3) else width  # fewer: a projection
    projection = [f"{outputs}, {width}"] if outputs < width else []
    values, parts = [value], []
    of_inner = f"{gates * width}, {inner}"
    for _ in range(2 if both else 1):
        for number, shape in enumerate(
            [of_inner, f"{gates * width}, {outputs}", *[f"{gates * width}"] * 2, *projection]
        ):
            if number == 0 and draw.dynamic:  # eager reads behind a weight of fewer features than the input has
                size = f"({gates * width}, {{0}}.shape[2])"
                parts.append(f"torch.full({size}, 0.3, dtype={{0}}.dtype)")
                continue
            text, of = constant_or_cut(draw, value, shape, len(values))
            values += of
            parts.append(text)
    batch_first = draw.often(0.5)
    packed = draw.often(0.4)
    rows = draw.size(value, 0 if batch_first else 1)
    state, cell = (f"torch.zeros({2 if both else 1}, {rows}, {units}, dtype={{0}}.dtype)" for units in (outputs, width))
    states = f"({state}, {cell})" if kind == "lstm" else state
    tail = f"[{', '.join(parts)}], True, 1, 0.0, False, {both}"
    if not packed:
        result = draw.choice(["[0]", "[0]", "[1]"])
        return f"torch.{kind}({{0}}, {states}, {tail}, {batch_first}){result}", values
    result = draw.choice(["[0]", "[0]", "[1]"])
    steps = draw.size(value, 1 if batch_first else 0)
    if draw.often(0.3):  # of equal lengths, without a break of the graph
        data = ("{0}.transpose(0, 1)" if batch_first else "{0}") + ".flatten(0, 1)"
        return f"torch.{kind}({data}, torch.full(({steps},), {rows}), {states}, {tail}){result}", values
    if draw.dynamic:
        apart = draw.choice([0, 1, 2])
        lengths = f"({steps} - {apart} * torch.arange({rows})).clamp(min=1)"
    else:
        batch, most = (value.tensor.shape[each] for each in ((0, 1) if batch_first else (1, 0)))
        lengths = f"torch.tensor({sorted((draw.int(1, most) for _ in range(batch)), reverse=True)})"
    called = f"torch.{kind}(p.data, p.batch_sizes, {states}, {tail})"
    pack = f"torch.nn.utils.rnn.pack_padded_sequence({{0}}, {lengths}, batch_first={batch_first})"
    return f"(lambda p: {called}{result})({pack})", values


def random_numbers(draw: Draw) -> tuple[str, list[Value]]:
    """Drawn as eager draws them, whatever the strides: inputs are made from a seed, and the draws go on from there."""
    value = draw.floating(1, 5)
    chance = draw.choice(["0.1", "0.5"])
    kinds = [f"F.dropout({{0}}, {chance}, True)"] * 2
    kinds += [
        f"F.alpha_dropout({{0}}, {chance}, True)",
        "torch.rand_like({0})",
        "torch.bernoulli({0}.isfinite() * 0.3)",
    ]
    return draw.choice(kinds), [value]


LAYERS: list[tuple[float, Entry]] = [
    (2, long_convolution),
    (2, wide_convolution),
    (2, norm_with_weights),
    (2, masked_attention),
    (2, linear_algebra),
    (1.5, integer_product),
    (1.5, recurrent),
    (1.5, random_numbers),
]
