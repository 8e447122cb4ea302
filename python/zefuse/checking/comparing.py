"""Whether two runs are the same: each tensor against eager's, as far as eager itself is from f64."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from zefuse.checking.running import Outcome

# Of the largest magnitude: rounding that nobody can blame on a compiler, whatever eager's own distance from f64 is.
RELATIVE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
_TIMES_EAGER = 4.0  # so many times eager's distance from f64 is as good as eager: the order of a sum is free
_SMALL_GRADIENT = (
    0.1  # of the largest gradient: below, rounding counts against this (a bias before a batch norm has none)
)


@dataclass(frozen=True)
class Difference:
    """The worst element of one tensor, or what else differs. ``allowed`` and ``error`` are absolute."""

    where: str
    index: tuple[int, ...] = ()
    compiled: Any = None
    eager: Any = None
    exact: float | None = None
    error: float = math.inf
    allowed: float = 0.0
    elements: int = 0  # how many are off
    of: int = 0
    text: str = ""  # instead of numbers

    def __str__(self) -> str:
        if self.text:
            return f"{self.where}: {self.text}"
        at = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        exact = "" if self.exact is None else f", f64 {self.exact:.7g}"
        return (
            f"{self.where}, element {at or '()'}: compiled {self.compiled:.7g}, eager {self.eager:.7g}{exact}; "
            f"off by {self.error:.2g}, allowed {self.allowed:.2g}; {self.elements} of {self.of} elements are off"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "index": list(self.index)}


@dataclass
class Compared:
    differences: list[Difference]
    error: float = 0.0  # the largest, over the largest magnitude of its tensor
    eager_error: float | None = None  # the same of eager against f64; None without f64


def compare(
    ours: Outcome,
    eager: Outcome,
    exact: Outcome | None,
    *,
    computed_in: torch.dtype | None = None,
    tolerance: float | None = None,
) -> Compared:
    """``exact``: the same in f64, or None where that could not be had; then eager is the reference.

    ``computed_in``: the dtype of autocast, which is not the results'. ``tolerance``: relative, instead of RELATIVE.
    """
    made = Compared([])
    largest = max(
        (_magnitude(value) for name, value in eager.tensors().items() if name.startswith("gradient")), default=0.0
    )
    for name in dict.fromkeys([*eager.values, *ours.values]):
        if name not in ours.values or name not in eager.values:
            who = "eager has it, the compiled model has not" if name in eager.values else "eager has not got it"
            made.differences.append(Difference(name, text=who))
            continue
        mine, theirs = ours.values[name], eager.values[name]
        if problem := _other_kind(mine, theirs):
            made.differences.append(Difference(name, text=problem))
        elif isinstance(theirs, Tensor) and theirs.numel():
            reference = exact.values.get(name) if exact is not None else None
            if not isinstance(reference, Tensor) or reference.shape != theirs.shape:
                reference = None
            least = largest * _SMALL_GRADIENT if name.startswith("gradient") else 0.0
            _compare_tensors(made, name, mine, theirs, reference, least, computed_in, tolerance)
    return made


def distance(one: Outcome, other: Outcome) -> float:
    """The largest difference over the largest magnitude of its tensor; infinite where they are not alike."""
    worst = 0.0
    for name, tensor in one.tensors().items():
        twin = other.values.get(name)
        if not isinstance(twin, Tensor) or twin.shape != tensor.shape:
            return math.inf
        if tensor.numel():
            left, right = tensor.double(), twin.double()
            error = _largest(_error(left, right))
            worst = max(worst, error / max(_magnitude(right), torch.finfo(torch.float32).tiny) if error else 0.0)
    return worst


def _compare_tensors(
    made: Compared,
    name: str,
    mine: Tensor,
    theirs: Tensor,
    reference: Tensor | None,
    least: float,
    computed_in: torch.dtype | None,
    tolerance: float | None,
) -> None:
    left, right = _plain(mine), _plain(theirs)
    exact = right if reference is None else _plain(reference)
    # A result that is infinite or NaN in eager is held to eager: f64 has room where f32 overflows.
    exact = torch.where(right.isfinite() & exact.isfinite(), exact, right)
    scale = max(_magnitude(exact), least)
    error, eagers = _error(left, exact), _error(right, exact)
    allowed = 0.0
    if theirs.is_floating_point() or theirs.is_complex():
        dtypes = [dtype for dtype in (theirs.dtype, computed_in) if dtype is not None]
        relative = max(RELATIVE.get(dtype, RELATIVE[torch.float32]) for dtype in dtypes)
        allowed = (relative if tolerance is None else tolerance) * scale
        allowed = max(allowed, _TIMES_EAGER * _largest(eagers)) if tolerance is None else allowed
    tiny = torch.finfo(torch.float32).tiny
    worst = _largest(error)
    made.error = max(made.error, worst / max(scale, tiny) if worst else 0.0)
    if reference is not None:
        made.eager_error = max(made.eager_error or 0.0, _largest(eagers) / max(scale, tiny))
    off = error > allowed
    if not off.any():
        return
    flat = int(error.flatten().argmax())
    index = tuple(int(number) for number in torch.unravel_index(torch.tensor(flat), error.shape))
    made.differences.append(
        Difference(
            name,
            index,
            left[index].item(),
            right[index].item(),
            None if reference is None else exact[index].item(),
            worst,
            allowed,
            int(off.sum()),
            off.numel(),
        )
    )


def _error(left: Tensor, right: Tensor) -> Tensor:
    """Absolute; zero where both are the same infinity or NaN, infinite where one is not."""
    error = (left - right).abs()
    same = (left == right) | (left.isnan() & right.isnan())
    return torch.where(same, 0.0, torch.where(error.isnan(), math.inf, error))


def _plain(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double()


def _magnitude(tensor: Tensor) -> float:
    finite = _plain(tensor)
    finite = finite[finite.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _largest(error: Tensor) -> float:
    return float(error.max())


def _other_kind(mine: Any, theirs: Any) -> str:
    if not isinstance(theirs, Tensor) or not isinstance(mine, Tensor):
        if isinstance(mine, Tensor) or isinstance(theirs, Tensor):
            return f"compiled gives a {type(mine).__name__}, eager a {type(theirs).__name__}"
        if isinstance(theirs, float) and isinstance(mine, float):
            same = math.isclose(mine, theirs, rel_tol=1e-5) or (math.isnan(mine) and math.isnan(theirs))
        elif isinstance(theirs, int | float | bool | str | bytes | type(None)):
            same = type(mine) is type(theirs) and mine == theirs
        else:  # an object of which nothing is known: its class is all that can be held against it
            same = type(mine).__qualname__ == type(theirs).__qualname__
        return "" if same else f"compiled gives {mine!r}, eager {theirs!r}"
    if mine.shape != theirs.shape:
        return f"compiled has the shape {list(mine.shape)}, eager {list(theirs.shape)}"
    if mine.dtype != theirs.dtype:
        return f"compiled has the dtype {mine.dtype}, eager {theirs.dtype}"
    if mine.layout != theirs.layout:
        return f"compiled has the layout {mine.layout}, eager {theirs.layout}"
    return ""
