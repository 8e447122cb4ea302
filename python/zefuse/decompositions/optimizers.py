"""Optimizers whose step Dynamo leaves to eager, piece by piece, so that compiling it only costs: those that are asked for ``fused``
kernels, whose functions torch keeps from tracing, and Adafactor, which reads numbers back from tensors.

For the whole process, as with recurrent layers: while Dynamo traces, a fused step is the same step on lists of tensors, which
becomes a few kernels, and Adafactor's numbers stay tensors. Steps in eager are torch's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import adagrad, adam, sgd


def let_dynamo_trace_steps() -> None:
    from torch._dynamo.eval_frame import TorchPatcher

    TorchPatcher.patch()  # once: what it keeps from tracing is replaced, not overwritten later
    for module, name in ((adam, "adam"), (sgd, "sgd"), (adagrad, "adagrad")):
        fused, several = getattr(module, f"_fused_{name}", None), getattr(module, f"_multi_tensor_{name}", None)
        if fused is not None and several is not None and not hasattr(fused, "_zefuse_traced"):
            setattr(module, f"_fused_{name}", _traced(fused, several, _is_plain))
    factored: Any = getattr(torch.optim, "_adafactor", None)
    original = getattr(factored, "_single_tensor_adafactor", None)
    # Another torch's step may compute something else.
    if original is not None and not hasattr(original, "_zefuse_traced") and _same_parameters(original, _adafactor):
        factored._single_tensor_adafactor = _traced(original, _adafactor, _is_wide)


def _traced(
    eager: Callable[..., Any], while_tracing: Callable[..., Any], fits: Callable[[Any, dict[str, Any]], bool]
) -> Callable[..., Any]:
    # Not functools.wraps: that copies the mark that keeps Dynamo out.
    def step(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() and fits(args, kwargs):
            return while_tracing(*args, **kwargs)
        return eager(*args, **kwargs)

    step._zefuse_traced = True  # type: ignore[attr-defined]
    return step


def _is_plain(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether lists of tensors do the same: no scaler of gradients, and numbers that are numbers."""
    tensors = any(isinstance(kwargs.get(name), Tensor) for name in ("lr", "beta1", "beta2", "grad_scale", "found_inf"))
    return not tensors and not kwargs.get("differentiable", False) and not kwargs.get("has_sparse_grad", False)


def _is_wide(args: Any, kwargs: dict[str, Any]) -> bool:
    """In a narrow type a weight of one element would be rounded, which eager's number is not."""
    return all(param.dtype in (torch.float32, torch.float64) for param in args[0])


def _same_parameters(first: Callable[..., Any], second: Callable[..., Any]) -> bool:
    return [*inspect.signature(first).parameters] == [*inspect.signature(second).parameters]


def _adafactor(
    params: list[Tensor],
    grads: list[Tensor],
    row_vars: list[Tensor | None],
    col_vars: list[Tensor | None],
    variances: list[Tensor | None],
    state_steps: list[Tensor],
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
    *,
    d: float,
    lr: Tensor | float,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
    has_complex: bool,
) -> None:
    """torch.optim._adafactor's step with tensors of one element where it has numbers of Python."""
    assert grad_scale is None and found_inf is None, "Grad scaling should occur outside of optimizer.step()"
    for param, grad, row, column, variance, step in zip(
        params, grads, row_vars, col_vars, variances, state_steps, strict=True
    ):
        given = -grad if maximize else grad
        # Of the first parameter, and kept: as torch does.
        eps1 = torch.finfo(param.dtype).eps if eps1 is None else eps1
        step += 1
        at = step.to(param.dtype)
        decay = at**beta2_decay
        rate = torch.clamp_max(at.rsqrt(), lr)
        alpha = torch.clamp_min(param.norm(2) / param.numel() ** 0.5, eps2) * rate
        if weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        if given.dim() > 1:
            assert row is not None and column is not None
            row.lerp_(torch.norm(given, dim=-1, keepdim=True).square().div(given.size(-1)), decay)
            column.lerp_(torch.norm(given, dim=-2, keepdim=True).square().div(given.size(-2)), decay)
            estimate = (row @ column) / row.mean(dim=-2, keepdim=True).clamp(min=eps1)
        else:
            assert variance is not None
            variance.lerp_(given * given, decay)
            estimate = variance
        update = estimate.clamp(min=eps1 * eps1).rsqrt() * given
        denominator = torch.clamp_min(update.norm(2) / (update.numel() ** 0.5 * d), 1.0)
        param.sub_(update * (alpha / denominator))
