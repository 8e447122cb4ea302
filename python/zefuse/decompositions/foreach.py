"""``_foreach_*`` taken apart into one operator per tensor: fusion joins what belongs to one tensor, and the kernels that
compute the same of different tensors become one launch (compiler/fuse/batches.cpp).

On the CPU eager runs them one tensor after the other with these very operators, so the results are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from zefuse.installing import torch_versions

# The name without "_foreach_" -> what computes one tensor of the list. Where torch has a function of that name and with
# those arguments, the name is enough.
_SAME_NAME = """
    abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min clone cos cosh div erf erfc exp expm1 floor frac lerp
    lgamma log log10 log1p log2 mul neg pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc
"""
_OTHERS: dict[str, Callable[..., Any]] = {
    "maximum.List": torch.maximum,
    "maximum.Scalar": torch.clamp_min,
    "maximum.ScalarList": torch.clamp_min,
    "minimum.List": torch.minimum,
    "minimum.Scalar": torch.clamp_max,
    "minimum.ScalarList": torch.clamp_max,
    "max": torch.max,
    "zero": torch.zeros_like,
    "copy": torch.ops.aten.copy.default,
    "norm.Scalar": torch.linalg.vector_norm,
}
# Their scalars come in a tensor that eager reads on the host.
_LEFT_OUT = frozenset({"addcdiv.Tensor", "addcmul.Tensor"})


def _for_each(overload: Any, function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """The operator on lists, from the one on their elements: lists are zipped, other arguments go to each."""
    schema = overload._schema.arguments
    lists = {a.name for a in schema if str(a.type) in ("List[Tensor]", "List[number]")}
    # addcdiv.ScalarList calls "scalars" what addcdiv calls "value"; the names of the rest agree where they are keywords.
    keywords = {a.name for a in schema if a.kwarg_only} | {"value"}

    def call(*args: Any, **kwargs: Any) -> list[Any]:
        named = dict(zip((a.name for a in schema), args, strict=False)) | kwargs
        if "addc" in overload.name() and "scalars" in named:
            named["value"] = named.pop("scalars")
        zipped = {
            name for name in named if name in lists or (name == "value" and isinstance(named[name], (list, tuple)))
        }
        length = len(next(value for name, value in named.items() if name in zipped))
        results = []
        for i in range(length):
            mine = {name: value[i] if name in zipped else value for name, value in named.items()}
            positional = [value for name, value in mine.items() if name not in keywords]
            results.append(function(*positional, **{name: mine[name] for name in mine if name in keywords}))
        return results

    return call


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Overload -> decomposition, for those with one."""
    table: dict[Any, Callable[..., Any]] = {}
    for name in [*_SAME_NAME.split(), *{key.split(".")[0] for key in _OTHERS}]:
        packet = torch_versions.aten_operator(f"_foreach_{name}")
        if packet is None:
            continue
        for overload_name in packet.overloads():
            key = name if overload_name == "default" else f"{name}.{overload_name}"
            function = _OTHERS.get(key) or getattr(torch, name, None)
            overload = getattr(packet, overload_name)
            if (
                function is None
                or "out" in overload_name
                or key in _LEFT_OUT
                or (name in ("maximum", "minimum", "norm") and key not in _OTHERS)
            ):
                continue
            table[overload] = _for_each(overload, function)
    return table
