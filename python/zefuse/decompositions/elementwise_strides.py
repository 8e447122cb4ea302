"""torch's shape rules of elementwise operators, with the strides that eager's kernels give.

Eager allocates an elementwise result by one rule, ATen's TensorIterator. torch's shape rules, which fake tensors follow while a graph is
traced, repeat it in Python and differ, nearly always in dimensions of size 1 alone: no element lies elsewhere, but operators behind tell
channels last from contiguous by those strides (``group_norm``, ``interpolate``, ``cat``), and ``as_strided`` reads by them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from zefuse.decompositions.index_strides import strides_of_index
from zefuse.decompositions.iterator_strides import (
    NUMBER,
    Layout,
    Strides,
    Undecided,
    eager_strides,
    equal,
    in_order,
    is_dense,
    is_one,
    lies_in,
    strides_of_a_copy,
)
from zefuse.decompositions.spectra_strides import strides_of_spectrum

Rule = Callable[["Call"], Strides]


@dataclasses.dataclass(frozen=True)
class Call:
    """Of an operator, and what torch's shape rule says of its result."""

    func: torch._ops.OpOverload
    args: Sequence[Any]
    sizes: Sequence[Any]
    dtype: torch.dtype

    def layouts(self, order: Iterable[int] | None = None) -> list[Layout]:
        """Of tensors, and of numbers that stand in a tensor's place (``x + 2``)."""
        places = list(zip(self.func._schema.arguments, self.args, strict=False))
        return [
            self.layout(each) if isinstance(each, torch.Tensor) else NUMBER
            for place, each in (places if order is None else [places[at] for at in order])
            if isinstance(each, torch.Tensor) or (each is not None and "Tensor" in str(place.type))
        ]

    def layout(self, tensor: torch.Tensor) -> Layout:
        """As the kernel sees it: on a CPU one of another dtype is converted first, and a copy has no gaps."""
        layout = tensor.shape, tensor.stride()
        if tensor.device.type != "cpu" or tensor.dtype == self._computed_in() or is_dense(layout):
            return layout
        if self.func is torch.ops.aten.where.self and tensor is self.args[0]:
            return layout
        return tensor.shape, strides_of_a_copy(layout)

    def _computed_in(self) -> torch.dtype:
        tensors = [each for each in self.args if isinstance(each, torch.Tensor)]
        if self.dtype == torch.bool and len(tensors) == 1:
            return tensors[0].dtype
        if self.dtype != torch.bool:
            return self.dtype
        kind = torch._prims_common.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
        return torch._prims_common.elementwise_dtypes(*self.args, type_promotion_kind=kind)[0]


def _by_tensors(call: Call) -> Strides:
    return eager_strides(call.layouts())


def _beside_a_number(call: Call) -> Strides:
    return eager_strides([*(call.layout(each) for each in call.args if isinstance(each, torch.Tensor)), NUMBER])


def _as_memory(call: Call) -> Strides:
    """``empty_like``'s."""
    return strides_of_a_copy((call.args[0].shape, call.args[0].stride()))


def _contiguous(call: Call) -> Strides:
    return in_order(call.sizes, range(len(call.sizes)))


def _as_image(call: Call) -> Strides:
    """Channels last where the first argument is."""
    last = torch._prims_common.suggest_memory_format(call.args[0]) != torch.contiguous_format
    rank = len(call.sizes)
    return in_order(call.sizes, (0, *range(2, rank), 1) if last else range(rank))


def _as_volume(call: Call) -> Strides:
    """Of one volume without a batch: as in a batch of one, where dimensions of size 1 count for no order. Of more torch's rule is right."""
    sizes, strides = call.args[0].shape, call.args[0].stride()
    if len(sizes) != 4 or call.args[0].device.type != "cpu":
        raise Undecided
    last = lies_in((sizes, strides), (1, 2, 3, 0)) and not lies_in((sizes, strides), range(4))
    return in_order(call.sizes, (1, 2, 3, 0) if last else range(4))


def _by_halves(call: Call) -> Strides:
    strides = call.args[0].stride()
    return eager_strides([(call.sizes, strides), (call.sizes, strides)])


def _by_the_first(call: Call) -> Strides:
    return eager_strides(call.layouts([0]))


def _by_targets(call: Call) -> Strides:
    """``1 - target``, into which the rest is written: in C++ an ``empty_like`` of the target."""
    return strides_of_a_copy((call.args[1].shape, call.args[1].stride()))


def _second_first(call: Call) -> Strides:
    return eager_strides(call.layouts((1, 0)))


def _is_infinite(call: Call) -> Strides:
    """``abs() == inf``; of integers, as a ``full_like``."""
    if not call.args[0].is_floating_point():
        return _as_memory(call)
    return eager_strides([(call.args[0].shape, _by_tensors(call)), NUMBER])


def _is_finite(call: Call) -> Strides:
    """``(self == self) * (abs() != inf)``"""
    if not call.args[0].is_floating_point():
        return _as_memory(call)
    sizes = call.args[0].shape
    return eager_strides([(sizes, _by_tensors(call)), (sizes, _is_infinite(call))])


def _indexed(call: Call) -> Strides:
    return strides_of_index(*call.args[:2])


@cache
def _unlike_torchs() -> dict[torch._ops.OpOverload, Rule]:
    """Of operators that torch's rules lay otherwise in dimensions of more than one element too."""
    aten = torch.ops.aten
    drawn = (
        aten.normal.Tensor_Tensor, aten.normal.Tensor_float, aten.normal.float_Tensor, aten.poisson.default,
        aten.binomial.default, aten._standard_gamma.default,
    )  # fmt: skip
    resized = (
        aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default,
        aten._upsample_nearest_exact1d.default, aten._upsample_nearest_exact2d.default,
        aten._upsample_nearest_exact3d.default,
    )  # fmt: skip
    return {
        **dict.fromkeys(drawn, _contiguous),
        **dict.fromkeys(resized, _as_image),
        aten.binary_cross_entropy.default: _as_memory,
        aten.huber_loss.default: _as_memory,
        aten.binary_cross_entropy_with_logits.default: _by_targets,
        aten.soft_margin_loss.default: _by_the_first,
        aten.index.Tensor: _indexed,
        aten._unsafe_index.Tensor: _indexed,
        **dict.fromkeys((aten._fft_r2c.default, aten._fft_c2c.default, aten._fft_c2r.default), strides_of_spectrum),
    }


@cache
def _rules() -> dict[torch._ops.OpOverload, Rule]:
    """Of operators that are no plain kernel over all their tensors."""
    aten = torch.ops.aten
    alike = (
        aten.full_like.default, aten.zeros_like.default, aten.ones_like.default, aten.empty_like.default,
        aten.rand_like.default, aten.randn_like.default, aten.nan_to_num.default, aten.hardtanh.default,
        aten.randint_like.default, aten.randint_like.low_dtype, aten.sort.default, aten.sort.stable, aten.flip.default,
        aten._prelu_kernel.default, aten.relu6.default, aten.deg2rad.default, aten.rad2deg.default, aten._conj_physical.default,
    )  # fmt: skip
    contiguous = (
        aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.tril.default, aten.triu.default, aten.pow.Scalar,
        aten._softmax.default, aten._log_softmax.default, aten._softmax_backward_data.default,
        aten._log_softmax_backward_data.default,
    )  # fmt: skip
    images = [
        getattr(getattr(aten, name), overload)
        for name in (
            "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
            "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
        )
        for overload in ("default", "vec")
    ]  # fmt: skip
    return {
        **dict.fromkeys(alike, _as_memory),
        **dict.fromkeys(contiguous, _contiguous),
        aten.pow.Tensor_Scalar: _by_tensors,
        aten.lerp.Scalar: _by_tensors,
        aten.rsub.Tensor: _second_first,
        aten.threshold_backward.default: _second_first,
        aten.isinf.default: _is_infinite,
        aten.isfinite.default: _is_finite,
        **dict.fromkeys(images, _as_image),
        aten.mse_loss.default: _by_tensors,
        aten.smooth_l1_loss.default: _by_tensors,
        aten.glu.default: _by_halves,
        aten.max_pool3d_with_indices.default: _as_volume,
        **_unlike_torchs(),
    }


@cache
def _rule(func: torch._ops.OpOverload) -> Rule | None:
    """None: not elementwise, or not into one new tensor, or made of several kernels."""
    schema = func._schema
    if rule := _rules().get(func):
        return rule
    if (
        func.namespace != "aten"
        or torch.Tag.pointwise not in func.tags
        or schema.is_mutable
        or len(schema.returns) != 1
    ):
        return None
    if any(each.alias_info for each in schema.arguments):
        return None
    if func._schema.name in ("aten::ldexp", "aten::mvlgamma", "aten::_to_copy", "aten::clone"):
        return None
    return _beside_a_number if "scalar" in func._overloadname.lower() else _by_tensors


def strides_in_eager(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Strides | None:
    """Of ``result`` of a call; None where it lies so already, or where that is not known."""
    rule = _rule(func) if isinstance(func, torch._ops.OpOverload) else None
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    if (
        rule is None or not tensors or any(each.layout != torch.strided for each in (*tensors, result))
        or result.dim() < 2 or kwargs.get("memory_format") not in (None, torch.preserve_format)
    ):  # fmt: skip
        return None
    if func not in _unlike_torchs() and any(map(_has_symbols, tensors)) and not any(map(is_one, result.shape)):
        return None  # torch says the same, and many comparisons of symbols take their time
    try:
        strides = rule(Call(func, args, result.shape, result.dtype))
        return None if len(strides) != result.dim() or equal(strides, result.stride()) else strides
    except Undecided:
        return None


def lying_as_eagers(func: torch._ops.OpOverload, way: Callable[..., Any]) -> Callable[..., Any]:
    """``way``, a decomposition of ``func``, whose last operator may lay the result otherwise than ``func``'s kernel."""
    if _rule(func) is None:
        return way

    def laid(*args: Any, **kwargs: Any) -> Any:
        result = way(*args, **kwargs)
        if not isinstance(result, torch.Tensor) or (strides := strides_in_eager(func, args, kwargs, result)) is None:
            return result
        places = torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)
        return torch.ops.aten.copy(places, result)

    return laid


def _laid(mode: FakeTensorMode, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    """``result`` of torch's shape rule, with eager's strides."""
    if isinstance(result, tuple):  # all alike
        alike = isinstance(func, torch._ops.OpOverload) and _rule(func) is not None
        return type(result)([_laid(mode, func, args, kwargs, each) for each in result]) if alike else result
    if not isinstance(result, FakeTensor) or result.constant is not None or result.real_tensor is not None:
        return result
    if (strides := strides_in_eager(func, args, kwargs, result)) is None:
        return result
    with mode:
        return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)


def _has_symbols(tensor: torch.Tensor) -> bool:
    return any(isinstance(number, torch.SymInt) for number in (*tensor.shape, *tensor.stride()))


def let_shape_rules_follow_eager() -> None:
    """For the whole process: Dynamo, AOTAutograd's notes and its trace must say the same. Fake tensors remember what a rule has said."""
    rules = FakeTensorMode._dispatch_impl

    def as_eager(self: FakeTensorMode, func: Any, types: Any, args: Sequence[Any], kwargs: Any) -> Any:
        return _laid(self, func, args, kwargs, rules(self, func, types, args, kwargs))

    FakeTensorMode._dispatch_impl = as_eager  # type: ignore[method-assign]
    FakeTensorMode.cache_clear()
