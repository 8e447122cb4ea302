"""What eager has no kernel of for a type stays whole: through ATen it raises, where the operators that it would be made of compute.

Of operators that the importer lowers whole compiler/import/op_table.cpp says the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

# By the type of the first tensor.
_REFUSED = {
    """
    _prelu_kernel celu glu binary_cross_entropy huber_loss smooth_l1_loss logaddexp logaddexp2 nll_loss_forward nll_loss2d_forward
    """: lambda dtype: not dtype.is_floating_point and not dtype.is_complex,
    "dot vdot median nanmedian": lambda dtype: dtype == torch.bool,
    "special_log_ndtr": lambda dtype: dtype in (torch.float16, torch.bfloat16),
}

# By the type asked for.
_REFUSED_RESULTS = {"linspace logspace": lambda dtype: dtype == torch.bool}


def _unless(
    refused: Callable[[torch.dtype], bool], decomposition: Callable[..., Any], type_of: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(decomposition)
    def taken_apart(*args: Any, **named: Any) -> Any:
        if refused(type_of(*args, **named)):
            return NotImplemented
        return decomposition(*args, **named)

    return taken_apart


def _of_the_first(self: torch.Tensor, *rest: Any, **named: Any) -> torch.dtype:
    return self.dtype


def _asked_for(*args: Any, dtype: torch.dtype | None = None, **named: Any) -> torch.dtype | None:
    return dtype


def kept_where_refused(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    kept = dict(table)
    for refusals, type_of in ((_REFUSED, _of_the_first), (_REFUSED_RESULTS, _asked_for)):
        for names, refused in refusals.items():
            for name in names.split():
                packet = getattr(torch.ops.aten, name)
                for overload in packet.overloads():
                    if (op := getattr(packet, overload)) in kept:
                        kept[op] = _unless(refused, kept[op], type_of)
    return kept
