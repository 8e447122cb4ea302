"""What eager refuses stays whole: through ATen it raises, where the operators that it would be made of compute.

A rule that says too much costs time and nothing else, as eager's own operator decides when the compiled function is called. Rules come
from trials: torch's operator database with types, pairs of types and numbers that it does not list. Of operators that the importer lowers
whole compiler/import/op_table.cpp says the same.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._C import DispatchKey

Arguments = Mapping[str, Any]  # of a call, by the names in the operator's schema; those left out are not there
Rule = Callable[[Arguments], bool]

_COMPOSITE = DispatchKey.CompositeImplicitAutograd
_HALVES = (torch.float16, torch.bfloat16)


def _whole_number(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex


def overflows(number: Any, dtype: torch.dtype) -> bool:
    """As c10::overflows: infinity is an element of a floating-point tensor, a negative whole number one of an unsigned tensor."""
    if type(number) not in (int, float) or dtype == torch.bool or dtype.is_complex:
        return False
    if dtype.is_floating_point:
        return math.isfinite(number) and abs(number) > torch.finfo(dtype).max
    limits = torch.iinfo(dtype)
    least = -limits.max if not limits.min and isinstance(number, int) else limits.min
    return not least <= number <= limits.max


def _tensors(arguments: Arguments) -> list[torch.Tensor]:
    return [value for value in arguments.values() if isinstance(value, torch.Tensor)]


def _of(refused: Callable[[torch.dtype], bool]) -> Rule:
    """By the type of the first tensor."""
    return lambda arguments: refused(_tensors(arguments)[0].dtype)


def _of_halves(arguments: Arguments) -> bool:
    """On the CPU: GPUs have such kernels."""
    first = _tensors(arguments)[0]
    return first.dtype in _HALVES and first.device.type == "cpu"


def _lies_as_an_image(arguments: Arguments) -> bool:
    """Of one volume without a batch, which eager takes for an image then."""
    volume = _tensors(arguments)[0]
    on_cpu = volume.device.type == "cpu"
    return on_cpu and torch._prims_common.suggest_memory_format(volume) == torch.channels_last


def _in_whole_numbers(arguments: Arguments) -> bool:
    """On the CPU, where eager resizes images of bytes with weights that are whole numbers: its operator gives the same bytes."""
    first = _tensors(arguments)[0]
    return first.dtype == torch.uint8 and first.device.type == "cpu"


def _of_results(refused: Callable[[torch.dtype], bool]) -> Rule:
    """By the type asked for."""
    return lambda arguments: refused(arguments.get("dtype") or torch.get_default_dtype())


def _unlike(*names: str) -> Rule:
    """Tensors that eager wants of one type."""
    return lambda arguments: len({arguments[name].dtype for name in names if arguments.get(name) is not None}) > 1


def _beyond(*names: str) -> Rule:
    """Numbers that eager makes elements of the result's type."""

    def refused(arguments: Arguments) -> bool:
        tensors = _tensors(arguments)
        dtype = arguments.get("dtype") or (tensors[0].dtype if tensors else torch.get_default_dtype())
        return any(overflows(arguments.get(name), dtype) for name in names)

    return refused


_RULES: tuple[tuple[str, Rule], ...] = (
    (
        """
        _prelu_kernel celu glu binary_cross_entropy huber_loss smooth_l1_loss logaddexp logaddexp2 nll_loss_forward nll_loss2d_forward
        soft_margin_loss
        """,
        _of(_whole_number),
    ),
    (
        "_softmax_backward_data _log_softmax_backward_data grid_sampler_2d grid_sampler_3d max_unpool2d max_unpool3d",
        _of(lambda dtype: not dtype.is_floating_point),
    ),
    (
        """
        aminmax binary_cross_entropy glu huber_loss index_reduce kthvalue median mode mse_loss nanmedian nansum
        nll_loss_forward nll_loss2d_forward smooth_l1_loss special_xlog1py xlogy
        """,
        _of(lambda dtype: dtype.is_complex),
    ),
    (
        """
        addmv dot vdot kthvalue linalg_cross median nanmedian mv mvlgamma _trilinear trace index_reduce reflection_pad1d
        reflection_pad2d reflection_pad3d
        """,
        _of(lambda dtype: dtype == torch.bool),
    ),
    (
        """
        upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
        _upsample_nearest_exact3d upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
        """,
        _of(lambda dtype: not dtype.is_floating_point and dtype != torch.uint8),
    ),
    ("upsample_bilinear2d upsample_bicubic2d", _in_whole_numbers),  # not refused
    (
        "upsample_linear1d upsample_trilinear3d hardshrink multi_margin_loss multilabel_margin_loss_forward",
        _of(lambda dtype: not dtype.is_floating_point),
    ),
    ("multi_margin_loss multilabel_margin_loss_forward", _of_halves),
    ("special_log_ndtr _cdist_forward _pdist_forward", _of_halves),
    ("linspace logspace", _of_results(lambda dtype: dtype == torch.bool)),
    ("grid_sampler_2d grid_sampler_3d", _unlike("input", "grid")),
    ("_cdist_forward", _unlike("x1", "x2")),
    ("_softmax_backward_data _log_softmax_backward_data", _unlike("grad_output", "output")),
    ("binary_cross_entropy", _unlike("self", "target", "weight")),
    ("index_reduce put", _unlike("self", "source")),
    ("linalg_cross", _unlike("self", "other")),
    ("heaviside", _unlike("self", "values")),
    ("mv", _unlike("self", "vec")),
    ("_embedding_bag _embedding_bag_forward_only", _unlike("weight", "per_sample_weights")),
    ("addmv addr addbmm", _beyond("beta", "alpha")),
    ("linspace logspace", _beyond("start", "end")),
    ("celu", _beyond("alpha")),
    ("logit", _beyond("eps")),
    ("hardshrink", _beyond("lambd")),
    ("multi_margin_loss", _beyond("margin")),
    ("index_fill", _beyond("value")),
)


# Of operators that the importer lowers whole, by what it does not know: where a tensor is, and how it lies.
_RULES_OF_LOWERED: Mapping[str, Rule] = {
    "aten::avg_pool3d": _of_halves,
    "aten::max_pool3d_with_indices": _lies_as_an_image,
}


def refuses_lowered(op: Any, args: tuple[Any, ...]) -> bool:
    """Whether eager refuses the call of an operator that the importer lowers: it has to run in eager."""
    rule = _RULES_OF_LOWERED.get(op._schema.name)
    return rule is not None and rule({"self": args[0]})


@functools.cache
def _rules() -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for names, rule in _RULES:
        for name in names.split():
            found.setdefault(name, []).append(rule)
    return found


def refuses(op: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether eager refuses the call of an operator (an OpOverload), as far as the rules say."""
    rules = _rules().get(op._schema.name.removeprefix("aten::"), ())
    if not rules:
        return False
    names = (argument.name for argument in op._schema.arguments)
    arguments = dict(zip(names, args, strict=False)) | dict(named)
    return any(rule(arguments) for rule in rules)


def _unless_refused(op: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(decomposition)
    def taken_apart(*args: Any, **named: Any) -> Any:
        return NotImplemented if refuses(op, args, named) else decomposition(*args, **named)

    return taken_apart


_tracing = contextvars.ContextVar("zefuse_tracing", default=False)


@contextlib.contextmanager
def also_before_autograd() -> Iterator[None]:
    """While AOTAutograd traces, rules hold for what torch takes apart before it asks for decompositions (``interpolate``)."""
    _let_torch_keep_refused()
    token = _tracing.set(True)
    try:
        yield
    finally:
        _tracing.reset(token)


@functools.cache
def _let_torch_keep_refused() -> None:
    """Once for the process; back ends beside this one find torch as it was."""
    for name in _rules():
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            op = getattr(packet, overload)
            if (original := op.py_kernels.get(DispatchKey.Autograd)) is None:
                continue
            op.py_kernels[DispatchKey.Autograd] = _or_whole(op, original, _below_autograd)
            if (original := op.py_kernels.get(_COMPOSITE)) is not None:
                op.py_kernels[_COMPOSITE] = _or_whole(op, original, _not_taken_apart)
            op._dispatch_cache.clear()


def _or_whole(op: Any, original: Callable[..., Any], whole: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **named: Any) -> Any:
        if _tracing.get() and refuses(op, args, named):
            return whole(op, *args, **named)
        return original(*args, **named)

    return kernel


def _below_autograd(op: Any, *args: Any, **named: Any) -> Any:
    """What eager refuses has no derivative."""
    if _is_composite(op):
        return op._op_dk(_COMPOSITE, *args, **named)
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args, **named)


def _not_taken_apart(op: Any, *args: Any, **named: Any) -> Any:
    return op._op_dk(_COMPOSITE, *args, **named) if _is_composite(op) else NotImplemented


def _is_composite(op: Any) -> bool:
    """In C++: the overload of ``upsample_nearest2d`` that finds out sizes, and calls the one that has a kernel."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), _COMPOSITE)


def kept_where_refused(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    kept = dict(table)
    for name in _rules():
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            if (op := getattr(packet, overload)) in kept:
                kept[op] = _unless_refused(op, kept[op])
    return kept
