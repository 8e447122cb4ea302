"""Reductions, scans, normalisations, sorts."""

from __future__ import annotations

from draw import Draw, Entry, Value

FLOAT_REDUCTIONS = "mean std var logsumexp".split()
ANY_REDUCTIONS = "sum prod amax amin argmax argmin any all count_nonzero nansum".split()


def reduction(draw: Draw) -> tuple[str, list[Value]]:
    name = draw.choice(ANY_REDUCTIONS)
    value = draw.any()
    if draw.often(0.4):
        value, name = draw.floating(), draw.choice(FLOAT_REDUCTIONS)
    if draw.often(0.15) and name not in ("logsumexp", "count_nonzero"):
        return f"{{0}}.{name}()", [value]
    keep = ", keepdim=True" if draw.often(0.4) and name != "count_nonzero" else ""
    several = name in ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "nansum", "any", "all")
    dims = draw.dims(value) if several and draw.often(0.3) else draw.dim(value)
    return f"{{0}}.{name}({dims if isinstance(dims, int) else tuple(dims)}{keep})", [value]


def reduction_with_option(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.floating(1)
    dim = draw.dim(value)
    text = draw.choice(
        [
            f"{{0}}.sum({dim}, dtype=torch.float64)",
            f"{{0}}.mean({dim}, dtype=torch.float32)",
            f"{{0}}.var({dim}, correction=0)",
            f"torch.var_mean({{0}}, {dim})[0]",
            f"torch.std_mean({{0}}, {dim}, correction=2)[1]",
            f"{{0}}.norm(dim={dim})",
            f"torch.linalg.vector_norm({{0}}, {draw.choice(['1', '2', '3', '0', 'float(chr(105)+chr(110)+chr(102))'])}, {dim})",
            f"{{0}}.max({dim})[{draw.int(0, 1)}]",
            f"{{0}}.min({dim}, keepdim=True)[{draw.int(0, 1)}]",
            f"{{0}}.median({dim})[0]",
            f"{{0}}.kthvalue(1, {dim})[0]",
            f"{{0}}.aminmax(dim={dim})[{draw.int(0, 1)}]",
            "{0}.max()",
            "{0}.min()",
        ]
    ).replace("float(chr(105)+chr(110)+chr(102))", 'float("inf")')
    return text, [value]


def reduction_of_integers(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.ranked(1)
    dim = draw.dim(value)
    text = draw.choice(
        [
            f"{{0}}.max({dim})[{draw.int(0, 1)}]",
            f"{{0}}.min({dim})[{draw.int(0, 1)}]",
            f"{{0}}.sum({dim}, dtype=torch.int32)",
            f"{{0}}.sum({dim}, dtype=torch.float32)",
            "{0}.max()",
            f"{{0}}.argmax({dim})",
        ]
    )
    return text, [value]


def scan(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any()
    dim = draw.dim(value)
    name = draw.choice(["cumsum", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "diff"])
    if name == "logcumsumexp":
        return f"torch.logcumsumexp({{0}}, {dim})", [
            draw.any(lambda t: t.is_floating_point() and t.dim() == value.tensor.dim())
        ]
    more = {"cummax": f")[{draw.int(0, 1)}]", "cummin": f")[{draw.int(0, 1)}]", "diff": ")"}.get(name, ")")
    if name == "diff":
        return f"torch.diff({{0}}, dim={dim}{more}", [value]
    return f"torch.{name}({{0}}, {dim}{more}", [value]


def softmax(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.floating()
    name = draw.choice(["softmax", "log_softmax", "softmin"])
    more = ", dtype=torch.float32" if draw.often(0.15) else ""
    return f"F.{name}({{0}}, {draw.dim(value)}{more})", [value]


def norm(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.floating(1)
    shape = value.tensor.shape
    kind = draw.choice(["layer", "layer", "rms", "normalize", "group", "batch", "instance"])
    if kind in ("layer", "rms"):
        count = draw.int(1, min(2, len(shape)))
        sizes = ", ".join(draw.size(value, dim - count) for dim in range(count))
        if draw.often(0.4) and count == 1 and kind == "layer":
            weight = draw.any(lambda t: t.shape == shape[-1:] and t.dtype == value.tensor.dtype)
            return f"F.layer_norm({{0}}, ({sizes},), {{1}})", [value, weight]
        return f"F.{kind}_norm({{0}}, ({sizes},))", [value]
    if kind == "normalize":
        return f"F.normalize({{0}}, dim={draw.dim(value)})", [value]
    value = draw.floating(3, 4)
    if kind == "group":
        groups = draw.choice([n for n in (1, 2, 3, 4) if value.tensor.shape[1] % n == 0])
        return f"F.group_norm({{0}}, {groups})", [value]
    if kind == "batch":
        return "F.batch_norm({0}, None, None, training=True)", [value]
    return "F.instance_norm({0})", [value]


def sort(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.ranked(1)
    dim = draw.dim(value)
    descending = draw.choice(["True", "False"])
    index = draw.int(0, 1)
    count = f"min(2, {{0}}.shape[{dim}])" if draw.dynamic else min(2, value.tensor.shape[dim])
    text = draw.choice(
        [
            f"torch.sort({{0}}, {dim}, descending={descending})[0]",
            f"torch.sort({{0}}, dim={dim}, descending={descending}, stable=True)[{index}]",
            f"torch.argsort({{0}}, dim={dim}, stable=True)",
            f"torch.topk({{0}}, {count}, {dim}, largest={descending})[0]",
            "torch.msort({0})",
        ]
    )
    return text, [value]


REDUCTIONS: list[tuple[float, Entry]] = [
    (7, reduction),
    (3, reduction_with_option),
    (2, reduction_of_integers),
    (2.5, scan),
    (2.5, softmax),
    (2.5, norm),
    (2, sort),
]
