"""Views, joins, copies, and writes into values and into views of them."""

from __future__ import annotations

import torch
from draw import Draw, Entry, NoFit, Value, broadcasts


def reshape(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any()
    shape = value.tensor.shape
    kind = draw.choice(["flat", "merge", "split", "unsqueeze", "squeeze", "view", "any"])
    if kind == "flat":
        return draw.choice(["{0}.reshape(-1)", "{0}.flatten()", "{0}.ravel()"]), [value]
    if kind == "merge" and len(shape) > 1:
        first = draw.int(0, len(shape) - 2)
        return f"{{0}}.flatten({first}, {first + 1})", [value]
    if kind == "split":
        found = [(dim, n) for dim, size in enumerate(shape) for n in (2, 3, 4, 5) if size and size % n == 0]
        if found:
            dim, part = draw.choice(found)
            return f"{{0}}.unflatten({dim}, ({draw.choice([f'{part}, -1', f'-1, {part}'])}))", [value]
    if kind == "squeeze":
        return draw.choice(["{0}.squeeze()", f"{{0}}.squeeze({draw.dim(value)})"]), [value]
    if kind == "view" and not draw.dynamic and value.tensor.dim() > 0:
        return f"{{0}}.view({', '.join(map(str, (*shape[1:], shape[0])))})", [value]
    if kind == "any" and not draw.dynamic and value.tensor.dim() > 0:
        mixed = draw.rng.sample(list(shape), len(shape))
        return f"{{0}}.reshape({', '.join(map(str, mixed))})", [value]
    return f"{{0}}.unsqueeze({draw.int(0, len(shape))})", [value]


def permute(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.ranked(2)
    rank = value.tensor.dim()
    kind = draw.choice(["permute", "transpose", "t", "movedim", "swap"])
    if kind == "permute":
        order = draw.rng.sample(range(rank), rank)
        return f"{{0}}.permute({', '.join(map(str, order))})", [value]
    if kind == "t":
        return "{0}.mT" if rank != 2 else "{0}.t()", [value]
    name = {"transpose": "transpose", "movedim": "movedim", "swap": "swapaxes"}[kind]
    return f"{{0}}.{name}({draw.dim(value)}, {draw.dim(value)})", [value]


def index_text(draw: Draw, value: Value) -> str:
    """What stands between the brackets: slices, numbers, None, an ellipsis."""
    parts = []
    for size in value.tensor.shape[: draw.int(1, value.tensor.dim())]:
        kind = draw.choice([":", "1:", ":-1", "::2", "1::3", "-2:", ":2", "number", "2:1", ":"])
        if kind == "2:1" and draw.often(0.7):
            kind = ":3"
        parts.append(draw.choice(["0", "-1"]) if kind == "number" and size else kind.replace("number", ":"))
    if draw.often(0.15):
        parts.insert(draw.int(0, len(parts)), "None")
    if draw.often(0.2):
        parts.insert(0, "...")
    return ", ".join(parts)


def slicing(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.ranked(1)
    dim = draw.dim(value)
    text = draw.choice(
        [
            f"{{0}}[{index_text(draw, value)}]",
            f"{{0}}[{index_text(draw, value)}]",
            f"{{0}}[{index_text(draw, value)}]",
            f"{{0}}.narrow({dim}, {draw.choice(['0', '1'])}, 1)",
            f"{{0}}.select({dim}, 0)",
            f"{{0}}.unbind({dim})[-1]",
            f"{{0}}.split(2, {dim})[{draw.choice(['0', '-1'])}]",
            f"{{0}}.chunk(2, {dim})[{draw.choice(['0', '-1'])}]",
            f"torch.tensor_split({{0}}, 3, {dim})[1]",
            f"{{0}}.unfold({dim}, 2, {draw.int(1, 2)})",
        ]
    )
    return text, [value]


def expand(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any(lambda t: t.numel() <= 512)
    shape = value.tensor.shape
    kind = draw.choice(["new", "ones", "as", "repeat", "tile", "repeat_interleave"])
    sizes = ["-1"] * len(shape)
    if kind == "new":
        return f"{{0}}.expand({', '.join(['3', *sizes])})", [value]
    if kind == "ones" and 1 in shape:
        sizes[draw.choice([dim for dim, size in enumerate(shape) if size == 1])] = "4"
        return f"{{0}}.expand({', '.join(sizes)})", [value]
    if kind == "as":
        other = draw.any(
            lambda t: (
                t.dim() >= len(shape)
                and broadcasts(shape, t.shape)
                and torch.broadcast_shapes(shape, t.shape) == t.shape
            )
        )
        return "{0}.expand_as({1})", [value, other]
    if kind == "repeat":
        counts = [str(draw.choice([1, 1, 2, 3])) for _ in shape]
        return f"{{0}}.repeat({', '.join([*(['2'] if draw.often(0.3) or not counts else []), *counts])})", [value]
    if kind == "tile":
        return "{0}.tile(2)", [value]
    return f"{{0}}.repeat_interleave(2, dim={draw.dim(value)})", [value]


def unusual(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.ranked(2)
    rank = value.tensor.dim()
    one, two = draw.rng.sample(range(rank), 2)
    text = draw.choice(
        [
            f"{{0}}.flip({', '.join(map(str, draw.dims(value)))})",
            f"{{0}}.flip({draw.dim(value)})",
            f"{{0}}.roll({draw.choice(['1', '-1', '2', '5'])}, {draw.dim(value)})",
            f"{{0}}.diagonal({draw.choice(['0', '1', '-1'])}, {one}, {two})",
            f"{{0}}.tril({draw.int(-1, 1)})",
            f"{{0}}.triu({draw.int(-1, 1)})",
            "torch.rot90({0})",
            "torch.diag_embed({0})",
            "{0}.contiguous()",
            "{0}.clone()",
            "{0}.detach()",
            "{0}.view_as({0})",
        ]
    )
    return text, [value]


def as_strided(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any(lambda t: t.numel() >= 12)
    if draw.dynamic:
        raise NoFit
    text = draw.choice(
        [
            "(3, 2), (2, 1), 1",
            "(4,), (2,)",
            "(2, 3), (1, 2)",
            "(3, 3), (1, 1), 2",
            "(2, 2, 2), (4, 0, 1)",
            "(5,), (1,), 0",
        ]
    )
    return f"{{0}}.as_strided({text})", [value]


def view_dtype(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any(lambda t: t.dtype in (torch.float32, torch.int32, torch.bfloat16, torch.float16, torch.int64))
    same = {2: ["int16", "bfloat16", "float16"], 4: ["int32", "float32"], 8: ["int64", "float64"]}
    return f"{{0}}.view(torch.{draw.choice(same[value.tensor.element_size()])})", [value]


def join(draw: Draw) -> tuple[str, list[Value]]:
    one = draw.ranked(1)
    others = [draw.like(one) if draw.often(0.6) else one for _ in range(draw.int(1, 2))]
    values = [one, *others]
    places = ", ".join(f"{{{number}}}" for number in range(len(values)))
    kind = draw.choice(["cat", "cat", "stack", "promote", "hstack", "uneven"])
    if kind == "promote":
        other = draw.any(lambda t: t.shape == one.tensor.shape)
        return f"torch.cat([{{0}}, {{1}}], {draw.dim(one)})", [one, other]
    if kind == "uneven":
        dim = draw.dim(one)
        at = dim % one.tensor.dim()
        rest = list(one.tensor.shape)
        other = draw.any(
            lambda t: (
                t.dim() == len(rest)
                and all(a == b for d, (a, b) in enumerate(zip(rest, t.shape, strict=True)) if d != at)
            )
        )
        return f"torch.cat([{{0}}, {{1}}], {dim})", [one, other]
    if kind == "hstack":
        return f"torch.hstack([{places}])", values
    return f"torch.{kind}([{places}], {draw.dim(one)})", values


def pad(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.ranked(1)
    rank = value.tensor.dim()
    amounts = [draw.choice([0, 1, 2, -1, 3]) for _ in range(2 * draw.int(1, min(rank, 3)))]
    if draw.often(0.25) and rank in (2, 3, 4):
        mode = draw.choice(["reflect", "replicate", "circular"])
        count = {2: 2, 3: 2, 4: 4}[rank]
        return f"F.pad({{0}}, {tuple(draw.int(0, 2) for _ in range(count))}, mode='{mode}')", [
            draw.floating(rank, rank)
        ]
    fill = f", value={draw.choice(['1', '-2.5', '0'])}" if draw.often(0.5) else ""
    return f"F.pad({{0}}, {tuple(amounts)}{fill})", [value]


def write(draw: Draw) -> tuple[str, list[Value]]:
    """In place, into a value or a view of it. The statement's result is the value written."""
    value = draw.any(lambda t: True)
    if value.leaf:
        raise NoFit
    kind = draw.choice(
        ["scalar", "other", "unary", "view", "view_unary", "setitem", "copy", "setitem_scalar", "masked", "zero"]
    )
    scalar = draw.choice(["2", "0.5", "-1"]) if value.tensor.is_floating_point() else "2"
    fits = lambda t: torch.can_cast(t.dtype, value.tensor.dtype)  # noqa: E731
    if kind == "scalar":
        return f"{{0}}.{draw.choice(['add_', 'mul_', 'sub_'])}({scalar})", [value]
    if kind == "unary":
        return (
            f"{{0}}.{draw.choice(['sin_', 'relu_', 'neg_', 'abs_', 'sigmoid_', 'tanh_', 'exp_', 'square_', 't_'])}()",
            [value],
        )
    if kind == "zero":
        return draw.choice(["{0}.zero_()", "{0}.fill_(3)", "{0}.clamp_(-1, 1)"]), [value]
    if kind == "masked":
        return f"{{0}}.masked_fill_({{1}}, {scalar})", [value, draw.broadcast(value, lambda t: t.dtype == torch.bool)]
    if kind in ("view", "view_unary", "setitem", "setitem_scalar", "copy") and value.tensor.dim():
        index = index_text(draw, value)
        if kind == "view":
            return f"{{0}}[{index}].{draw.choice(['add_', 'mul_'])}({scalar})", [value]
        if kind == "view_unary":
            views = ["t()", "reshape(-1)", "view(-1)", "diagonal()", "flatten()[1:]", "transpose(0, -1)[1:]"]
            return f"{{0}}.{draw.choice(views)}.neg_()", [value]
        if kind == "copy":
            other = draw.any(lambda t: broadcasts(t.shape, value.tensor.shape) and t.dim() <= value.tensor.dim())
            return "{0}.copy_({1})", [value, other]
        if kind == "setitem_scalar":
            return f"{{0}}[{index}].fill_({scalar})", [value]
        try:
            part = eval(f"tensor[{index}]", {"tensor": value.tensor})
        except IndexError:  # the first of none: eager refuses it when the program is made
            return f"{{0}}[{index}].fill_({scalar})", [value]
        other = draw.any(lambda t: t.shape == part.shape)
        return f"{{0}}[{index}].copy_({{1}})", [value, other]
    other = draw.any(lambda t: fits(t) and t.dim() <= value.tensor.dim() and broadcasts(t.shape, value.tensor.shape))
    return f"{{0}}.{draw.choice(['add_', 'mul_', 'sub_'])}({{1}})", [value, other]


VIEWS: list[tuple[float, Entry]] = [
    (4, reshape),
    (4, permute),
    (6, slicing),
    (3, expand),
    (3, unusual),
    (0.7, as_strided),
    (0.5, view_dtype),
    (4, join),
    (2, pad),
]
WRITES: list[tuple[float, Entry]] = [(6, write)]
