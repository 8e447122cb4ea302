"""Chains of views of one computed value: which outputs lie in whose memory, and where."""

from __future__ import annotations

import torch
from draw import Draw, Entry, NoFit, Value
from operators_views import expand, index_text, permute


def computed(draw: Draw) -> tuple[str, list[Value]]:
    """What lies in memory of its own."""
    value = draw.any()
    rank = value.tensor.dim()
    texts = [
        "{0} * 2",
        "{0} + 1",
        "{0}.clone()",
        "torch.neg({0})",
        "F.pad({0} * 2, (-1, 0))",
        "F.pad({0} + 1, (0, -1))",
    ]
    if rank:
        dim = draw.dim(value)
        texts += [f"{{0}}.flip({dim})", f"torch.cumsum({{0}}, {dim})", f"{{0}}.repeat_interleave(2, dim={dim})"]
        texts += [f"torch.cat([{{0}}, {{0}}], {dim})", f"{{0}}[{index_text(draw, value)}] * 3"]
        texts += [f"{{0}}[{index_text(draw, value)}].clone()"]
    if rank >= 2:
        texts += ["{0}.transpose(0, -1) + 1", "{0} @ {0}.mT", "{0}.mT.clone()", "F.pad({0} * 2, (-1, 0, 0, -1))"]
        texts += [f"{{0}}.sum({draw.dim(value)})", "{0}.mT.contiguous()", "{0}.repeat(" + "2, " * (rank - 1) + "1)"]
    if value.tensor.dtype in (torch.float32, torch.float64) and draw.often(0.3):
        return "torch.complex({0} * 1, {0} + 2)", [value]
    return draw.choice(texts), [value]


def _view_source(draw: Draw, rank: int = 0) -> Value:
    return draw.any(lambda t: t.dim() >= rank and t.dim() <= 6)


def _number(draw: Draw, value: Value, dim: int) -> str:
    """A place along a dimension, maybe by its size."""
    size = draw.size(value, dim)
    return draw.choice(["1", "1", "2", f"{size} // 2", f"{size} - 2", f"{size} // 3", f"({size} + 1) // 2"])


def part(draw: Draw) -> tuple[str, list[Value]]:
    value = _view_source(draw, 1)
    dim = draw.dim(value)
    at, count = _number(draw, value, dim), draw.int(2, 3)
    texts = [
        f"{{0}}.narrow({dim}, {at}, {draw.choice(['1', '2', _number(draw, value, dim)])})",
        f"{{0}}.narrow({dim}, {at}, {draw.size(value, dim)} - {at})",
        f"{{0}}.select({dim}, {draw.choice(['0', '-1', at])})",
        f"{{0}}.unbind({dim})[{draw.choice(['0', '-1'])}]",
        f"{{0}}.split({count}, {dim})[{draw.choice(['0', '-1'])}]",
        f"{{0}}.chunk({count}, {dim})[{draw.choice(['0', '1', '-1'])}]",
        f"{{0}}.tensor_split({count}, {dim})[{draw.choice(['0', '1', '-1'])}]",
        f"{{0}}.unfold({dim}, 2, {draw.int(1, 3)})",
        f"{{0}}[{index_text(draw, value)}]",
        f"{{0}}[{index_text(draw, value)}]",
    ]
    if dim in (0, -value.tensor.dim()):
        texts += [f"{{0}}[{at}:]", f"{{0}}[:{at}]", f"{{0}}[{at}::2]"]
    return draw.choice(texts), [value]


def shaped(draw: Draw) -> tuple[str, list[Value]]:
    value = _view_source(draw)
    shape = value.tensor.shape
    kind = draw.choice(["flatten", "flatten", "unflatten", "unflatten", "unsqueeze", "squeeze", "view"])
    if kind == "flatten" and shape:
        first = draw.int(0, len(shape) - 1)
        texts = [f"{{0}}.flatten({first}, {draw.int(first, len(shape) - 1)})", "{0}.flatten()", "{0}.view(-1)"]
        return draw.choice(texts), [value]
    if kind == "unflatten":
        found = [(dim, n) for dim, size in enumerate(shape) for n in (1, 2, 3, 4) if size and size % n == 0]
        if found:
            dim, count = draw.choice(found)
            return f"{{0}}.unflatten({dim}, ({draw.choice([f'{count}, -1', f'-1, {count}'])}))", [value]
    if kind == "squeeze":
        return f"{{0}}.squeeze({draw.dim(value)})", [value]
    if kind == "view" and len(shape) >= 2:
        sizes = [draw.size(value, dim) for dim in range(len(shape))]
        dim = draw.int(0, len(shape) - 2)
        sizes[dim : dim + 2] = [f"{sizes[dim]} * {sizes[dim + 1]}"]
        return f"{{0}}.{draw.choice(['view', 'reshape'])}({', '.join(sizes)})", [value]
    return f"{{0}}.unsqueeze({draw.int(0, len(shape))})", [value]


def turned(draw: Draw) -> tuple[str, list[Value]]:
    value = _view_source(draw, 2)
    one, two = draw.rng.sample(range(value.tensor.dim()), 2)
    if draw.often(0.3):
        return f"{{0}}.diagonal({draw.choice(['0', '1', '-1'])}, {one}, {two})", [value]
    if draw.often(0.3):
        return f"{{0}}.movedim({one}, {two})", [value]
    return permute(draw)


def as_strided(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any(lambda t: t.numel() >= 12 and t.dim() <= 3)
    texts = ["(3, 2), (2, 1), 1", "(4,), (2,)", "(2, 3), (1, 2)", "(3, 3), (1, 1), 2", "(5,), (1,), 3"]
    if value.tensor.dim() == 2:
        rows, columns = draw.size(value, 0), draw.size(value, 1)
        texts += [f"({rows}, {columns} // 2), ({columns}, 2)", f"({rows} - 1,), ({columns},), 1"]
    return f"{{0}}.as_strided({draw.choice(texts)})", [value]


def bits(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any(lambda t: t.is_complex())
    texts = [
        "conj()",
        "real",
        "imag",
        "conj().imag",
        "conj().real",
        "conj().mT",
        "mH",
        "conj()[1:].imag",
        "conj().conj()",
    ]
    return f"{{0}}.{draw.choice([*texts, 'real[1:]', 'imag[..., 1:]'])}", [value]


def expanded(draw: Draw) -> tuple[str, list[Value]]:
    text, values = expand(draw)
    if "expand" not in text:
        raise NoFit
    return text, values


COMPUTED: list[tuple[float, Entry]] = [(1, computed)]
CHAINED: list[tuple[float, Entry]] = [
    (8, part),
    (5, shaped),
    (4, turned),
    (0.7, as_strided),
    (4, bits),
    (1.5, expanded),
    (0.4, computed),
]
