"""Matrix products, convolutions, windows, attention; reads and writes by index."""

from __future__ import annotations

import torch
from draw import Draw, Entry, NoFit, Value


def product(draw: Draw) -> tuple[str, list[Value]]:
    one = draw.number(1)
    shape, dtype = one.tensor.shape, one.tensor.dtype

    def fits(t: torch.Tensor) -> bool:
        return t.dtype == dtype and t.dim() >= 1 and t.shape[max(t.dim() - 2, 0)] == shape[-1]

    if draw.often(0.3):
        other = draw.any(lambda t: t.dtype == dtype and t.dim() == 2 and t.shape[-1] == shape[-1])
        if draw.often(0.3):
            bias = draw.any(lambda t: t.dtype == dtype and t.dim() == 1 and t.shape[0] == other.tensor.shape[0])
            return "F.linear({0}, {1}, {2})", [one, other, bias]
        return draw.choice(["F.linear({0}, {1})", "{0} @ {1}.t()"]), [one, other]
    if draw.often(0.2) and one.tensor.dim() >= 2:
        return draw.choice(["{0} @ {0}.mT", "{0}.mT @ {0}"]), [one]
    other = draw.any(fits)
    ranks = one.tensor.dim(), other.tensor.dim()
    if ranks == (2, 2) and draw.often(0.3):
        rows, columns = shape[0], other.tensor.shape[1]
        third = draw.any(lambda t: t.dtype == dtype and _fits(t, rows, columns))
        return (
            f"torch.addmm({{2}}, {{0}}, {{1}}, beta={draw.choice(['1', '0.5', '0'])}, alpha={draw.choice(['1', '2'])})",
            [one, other, third],
        )
    return "torch.matmul({0}, {1})", [one, other]


def _fits(t: torch.Tensor, rows: int, columns: int) -> bool:
    return t.dim() <= 2 and all(a in (1, b) for a, b in zip(reversed(t.shape), (columns, rows), strict=False))


def outer(draw: Draw) -> tuple[str, list[Value]]:
    one = draw.number()
    fits = lambda t: t.dtype == one.tensor.dtype and t.dim() == one.tensor.dim()  # noqa: E731
    if one.tensor.dim() == 1:
        return draw.choice(["torch.outer({0}, {1})", "torch.einsum('i,j->ji', {0}, {1})"]), [one, draw.any(fits)]
    if one.tensor.dim() == 3:
        return "torch.einsum('bij,bkj->bik', {0}, {1})", [one, draw.like(one)]
    raise NoFit


def convolution(draw: Draw) -> tuple[str, list[Value]]:
    rank = draw.choice([1, 2, 2, 2])
    value = draw.any(lambda t: t.is_floating_point() and t.dim() == rank + 2 and t.shape[1] > 0)
    size, channels, out = draw.int(1, 3), value.tensor.shape[1], draw.choice([1, 2, 3, 4])
    groups = channels if draw.often(0.2) else 1
    if groups > 1:
        out = groups
    kernel = ", ".join([str(size)] * rank)
    weight = draw.any(lambda t: t.dtype == value.tensor.dtype and t.numel() >= out * channels // groups * size**rank)
    flat = (
        f"{{1}}.reshape(-1)[:{out * (channels // groups) * size**rank}].reshape({out}, {channels // groups}, {kernel})"
    )
    padding = draw.int(0, 2)
    more = f"stride={draw.int(1, 2)}, padding={padding}, dilation={draw.choice([1, 1, 2])}, groups={groups}"
    if draw.often(0.15) and groups == 1:
        flat = flat.replace(f"reshape({out}, {channels // groups}", f"reshape({channels // groups}, {out}")
        return f"F.conv_transpose{rank}d({{0}}, {flat}, stride={draw.int(1, 2)})", [value, weight]
    return f"F.conv{rank}d({{0}}, {flat}, {more})", [value, weight]


def window(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.floating(3, 4)
    rank = value.tensor.dim() - 2
    size = draw.int(1, 3)
    kinds = [
        f"F.max_pool{rank}d({{0}}, {size}, {draw.int(1, 2)})",
        f"F.avg_pool{rank}d({{0}}, {size}, padding={size // 2})",
    ]
    kinds.append(f"F.adaptive_avg_pool{rank}d({{0}}, {draw.choice([1, 2, 3])})")
    kinds.append("F.interpolate({0}, scale_factor=2, mode='nearest')")
    if rank == 2:
        kinds.append("F.interpolate({0}, scale_factor=2, mode='bilinear')")
        kinds.append("F.unfold({0}, 2)")
        kinds.append("F.interpolate({0}, size=(5, 3), mode='bicubic')")
    return draw.choice(kinds), [value]


def attention(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.floating(3, 4)
    key = draw.like(value)
    causal = ", is_causal=True" if draw.often(0.3) else ""
    return f"F.scaled_dot_product_attention({{0}}, {{1}}, {{2}}{causal})", [value, key, draw.like(value)]


def _indices(draw: Draw, value: Value, dim: int, place: int) -> tuple[str, list[Value]]:
    """The text of indices that are in range along a dimension, of a value or constants."""
    if value.tensor.shape[dim] == 0:
        raise NoFit
    if draw.often(0.5):
        index = draw.any(lambda t: t.dtype in (torch.int64, torch.int32) and 0 < t.dim() <= 2 and t.numel() <= 64)
        return f"({{{place}}}.long() % {{0}}.shape[{dim}])", [index]
    top = value.tensor.shape[dim] if not draw.dynamic else 1
    return f"torch.tensor({[draw.rng.randrange(top) for _ in range(draw.int(1, 5))]})", []


def read_by_index(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any(lambda t: t.dim() >= 1 and t.numel() <= 2048)
    dim = draw.dim(value) % value.tensor.dim()
    kind = draw.choice(["index_select", "index", "gather", "take_along", "embedding", "mask_sum"])
    text, more = _indices(draw, value, dim, 1)
    if kind == "index_select":
        return f"{{0}}.index_select({dim}, {text}.reshape(-1))", [value, *more]
    if kind == "index":
        return f"{{0}}[{':, ' * dim}{text}]", [value, *more]
    if kind == "embedding" and value.tensor.dim() == 2 and dim == 0:
        return f"F.embedding({text}, {{0}})", [value, *more]
    if kind == "take_along":
        return f"torch.take_along_dim({{0}}, {{0}}.argsort({dim}, stable=True), {dim})", [value]
    if kind == "mask_sum":
        mask = draw.any(lambda t: t.dtype == torch.bool and t.shape == value.tensor.shape)
        return "({0} * {1}).sum()", [value, mask]
    index = draw.any(
        lambda t: (
            t.dtype == torch.int64
            and t.dim() == value.tensor.dim()
            and all(a <= b for a, b in zip(t.shape, value.tensor.shape, strict=True))
        )
    )
    return f"{{0}}.gather({dim}, {{1}} % {{0}}.shape[{dim}])", [value, index]


def write_by_index(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any(lambda t: t.dim() >= 1 and t.numel() > 0)
    dim = draw.dim(value) % value.tensor.dim()
    source = draw.like(value)
    kind = draw.choice(
        [
            "scatter",
            "scatter_add",
            "index_add",
            "index_copy",
            "index_fill",
            "put",
            "masked_scatter",
            "slice_scatter",
            "select_scatter",
            "scatter_reduce",
            "put pairs",
        ]
    )
    size = draw.size(value, dim)
    if kind in ("scatter", "scatter_add", "scatter_reduce"):
        index = draw.any(
            lambda t: (
                t.dtype == torch.int64
                and t.dim() == value.tensor.dim()
                and all(a <= b for a, b in zip(t.shape, value.tensor.shape, strict=True))
            )
        )
        text = f"{dim}, {{1}} % {size}"
        if kind == "scatter":
            # One index twice: which value stays is nobody's promise.
            return f"{{0}}.scatter({text}, {draw.scalar(value)})", [value, index]
        if kind == "scatter_reduce":
            return f"{{0}}.scatter_reduce({text}, {{2}}, '{draw.choice(['sum', 'amax', 'amin', 'prod', 'mean'])}')", [
                value,
                index,
                source,
            ]
        return f"{{0}}.scatter_add({text}, {{2}})", [value, index, source]
    if kind == "slice_scatter":
        return f"torch.slice_scatter({{0}}, {{1}}.narrow({dim}, 0, 1), {dim}, 0, 1)", [value, source]
    if kind == "select_scatter":
        return f"torch.select_scatter({{0}}, {{1}}.select({dim}, 0), {dim}, -1)", [value, source]
    if kind == "masked_scatter":
        mask = draw.any(lambda t: t.dtype == torch.bool and t.shape == value.tensor.shape)
        return "{0}.masked_scatter({1}, {2})", [value, mask, source]
    whole = f"torch.arange({size})" + (f" % {draw.int(1, 3)}" if kind == "index_add" else ".flip(0)")
    if kind == "put pairs" and value.tensor.dim() >= 2:
        # Pairs of indices, several of them the same.
        rows, columns = (f"torch.arange(6) * {draw.int(1, 3)} % {draw.size(value, at)}" for at in (0, 1))
        update = draw.any(lambda t: t.dtype == value.tensor.dtype and t.numel() >= 6)
        more = f"{{1}}.reshape(-1)[:6].reshape(6{', 1' * (value.tensor.dim() - 2)})"
        return draw.choice(
            [
                f"torch.index_put({{0}}, ({rows}, {columns}), {more}, accumulate=True)",
                f"torch.index_put({{0}}, ({{0}} > {draw.scalar(value)},), {{1}}.reshape(-1)[0])",
            ]
        ), [value, update]
    if kind == "put":
        return (
            f"torch.index_put({{0}}, ({whole},), {{1}}, accumulate={draw.choice(['True', 'False'])})"
            if dim == 0
            else f"{{0}}.index_copy({dim}, {whole}, {{1}})",
            [value, source],
        )
    if kind == "index_fill":
        return f"{{0}}.index_fill({dim}, torch.tensor([0]), {draw.choice(['1', '2'])})", [value]
    if kind == "put pairs":
        raise NoFit
    return f"{{0}}.{kind}({dim}, {whole}, {{1}})", [value, source]


def write_by_index_in_place(draw: Draw) -> tuple[str, list[Value]]:
    """The same, into a value, or into a part of one that has the shape: ``scatter_add_``, ``index_put_``."""
    text, values = write_by_index(draw)
    if values[0].leaf:
        raise NoFit
    if text.startswith("torch.index_put({0}, "):
        return "{0}.index_put_(" + text.removeprefix("torch.index_put({0}, "), values
    name, _, rest = text.removeprefix("{0}.").partition("(")
    if text.startswith("torch.") or not name.isidentifier():
        raise NoFit
    view = draw.choice(["", "", "[...]", ".view_as({0})", ".mT.mT"])
    return f"{{0}}{view}.{name}_({rest}", values


PRODUCTS: list[tuple[float, Entry]] = [(4, product), (1, outer), (2, convolution), (1.5, window), (1, attention)]
INDEXING: list[tuple[float, Entry]] = [(4, read_by_index), (3, write_by_index), (1.5, write_by_index_in_place)]
