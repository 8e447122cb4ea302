"""Random inputs: texts that make a tensor of some dtype, values and layout."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

FLOATS = ["float32"] * 6 + ["float64", "bfloat16", "bfloat16", "float16", "float16"]
OTHERS = "int64 int64 int32 bool bool int16 int8 uint8".split()
SPECIAL = "[0.0, -0.0, 1.0, -1.0, float('nan'), float('inf'), float('-inf'), 1e-40, 1e-30, 6e4, -7e4, 0.5, 1e30]"
SMALL = "[0.0, 1.0, -1.0, 0.5, 2.0, -2.5]"  # many equal values


def values(rng: random.Random, shape: str, dtype: str) -> str:
    """A contiguous tensor. ``shape``: sizes by commas."""
    if dtype == "bool":
        return f"(torch.rand({shape}) > 0.5)" if shape else "torch.tensor(True)"
    wanted = f"({shape}{',' if shape else ''})"
    if dtype.startswith(("float", "bfloat")):
        cast = "" if dtype == "float32" else f".to(torch.{dtype})"
        kind = rng.random()
        if kind < 0.08:
            return f"torch.tensor({SPECIAL})[torch.randint(13, {wanted})]{cast}"
        if kind < 0.2:
            return f"torch.tensor({SMALL})[torch.randint(6, {wanted})]{cast}"
        if kind < 0.3:
            return f"(torch.rand({shape if shape else '()'}) + 0.5){cast}"
        return f"torch.randn({shape if shape else '()'}){cast}"
    if dtype.startswith("complex"):
        return f"torch.randn({shape if shape else '()'}, dtype=torch.{dtype})"
    low, high = ("0", "256") if dtype == "uint8" else rng.choice([("-9", "10"), ("0", "5"), ("-100", "101")])
    return f"torch.randint({low}, {high}, {wanted}, dtype=torch.{dtype})"


def _permuted(rng: random.Random, make: Callable[[str], str], dims: list[str]) -> str:
    order = rng.sample(range(len(dims)), len(dims))  # the result's dims are those of the base in this order
    base = [""] * len(dims)
    for place, dim in zip(order, dims, strict=True):
        base[place] = dim
    return f"{make(', '.join(base))}.permute({', '.join(map(str, order))})"


def laid_out(rng: random.Random, make: Callable[[str], str], dims: list[str], negative: bool) -> str:
    """``make(shape)`` gives the text of a contiguous tensor; the result has the sizes ``dims``."""
    plain = make(", ".join(dims))
    if not dims:
        return plain
    kind = rng.choice(
        ["plain"] * 6 + ["permuted", "strided", "offset", "expanded", "channels_last", "inner", "row", "windows"]
    )
    if rng.random() < 0.03:
        kind = "negative"
    if kind == "permuted" and len(dims) > 1:
        return _permuted(rng, make, dims)
    if kind == "strided":
        return make(", ".join([*dims[:-1], f"2 * {dims[-1]}"])) + "[..., ::2]"
    if kind == "offset":
        return make(", ".join([f"{dims[0]} + 2", *dims[1:]])) + "[2:]"
    if kind == "inner":
        return make(", ".join([*dims[:-1], f"{dims[-1]} + 3"])) + "[..., 1:-2]"
    if kind == "row":
        return make(", ".join(["3", *dims])) + "[1]"
    if kind == "expanded":
        at = rng.randrange(len(dims))
        return (
            make(", ".join(["1" if dim == at else size for dim, size in enumerate(dims)]))
            + f".expand({', '.join(dims)})"
        )
    if kind == "windows" and len(dims) in (2, 3):
        # Each begins an element after the one before it: elements in several places of the tensor.
        rows, size = dims[-2:]
        outer = [f"({rows} + {size})"] * (len(dims) - 2)
        base = make(", ".join([*dims[:-2], f"{rows} + {size}"]))
        return f"{base}.as_strided(({', '.join(dims)}), ({', '.join([*outer, '1', '1'])}))"
    if kind == "channels_last" and len(dims) in (4, 5):
        layout = "channels_last" if len(dims) == 4 else "channels_last_3d"
        return f"{plain}.contiguous(memory_format=torch.{layout})"
    if kind == "negative" and negative:
        return f"torch._neg_view({plain})"
    return plain


def shared(rng: random.Random, name: str, rank: int) -> str:
    """A view of an input before it."""
    kinds = [f"{name}.detach()", f"{name}.view_as({name})"]
    if rank >= 1:
        kinds += [f"{name}[1:]", f"{name}[:-1]", f"{name}[..., ::2]"]
    if rank >= 2:
        kinds += [f"{name}.mT", f"{name}[:, :1]", f"{name}[0]"]
    return rng.choice(kinds)


def symbols(text: str) -> list[str]:
    return sorted(set(re.findall(r"\b[A-E]\b", text)))
