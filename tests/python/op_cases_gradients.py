"""Derivatives that reach the importer whole, as autograd asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from op_case import ALL_FLOATS, Case, strided, transposed
from torch import Tensor

aten = torch.ops.aten
S = (5, 7)
T = (3, 5, 7)
ALL = (True, True, True)


def layer_norm(shape: tuple[int, ...], mask: tuple[bool, bool, bool] = ALL) -> Callable[..., Any]:
    def gradients(grad: Tensor, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> list[Tensor]:
        _, mean, rstd = aten.native_layer_norm(x, shape, weight, bias, 1e-5)
        found = aten.native_layer_norm_backward(grad, x, shape, mean, rstd, weight, bias, list(mask))
        return [each for each, wanted in zip(found, mask, strict=True) if wanted]

    return gradients


def elu(result: bool) -> Callable[..., Any]:
    return lambda grad, x: aten.elu_backward(grad, 1.3, 1.1, 0.9, result, x)


GRADIENTS = [
    Case("gelu_gradient", lambda g, x: aten.gelu_backward(g, x), [S, S], ALL_FLOATS),
    Case("gelu_tanh_gradient", lambda g, x: aten.gelu_backward(g, x, approximate="tanh"), [S, S], ALL_FLOATS),
    Case("gelu_gradient_strided", lambda g, x: aten.gelu_backward(g, x), [transposed(7, 5), strided(*S)], dynamic=False),
    Case("silu_gradient", lambda g, x: aten.silu_backward(g, x), [S, S], ALL_FLOATS),
    Case("sigmoid_gradient", lambda g, y: aten.sigmoid_backward(g, y), [S, S], ALL_FLOATS, low=0.0, high=1.0),
    Case("tanh_gradient", lambda g, y: aten.tanh_backward(g, y), [S, S], ALL_FLOATS, low=-1.0, high=1.0),
    Case("relu_gradient", lambda g, y: aten.threshold_backward(g, y.relu(), 0), [S, S], ALL_FLOATS),
    Case("threshold_gradient", lambda g, x: aten.threshold_backward(g, x, 0.3), [S, S], ALL_FLOATS),
    Case("relu_gradient_nan", lambda g, y: aten.threshold_backward(g, y / 0 * 0, 0), [S, S]),
    Case("leaky_relu_gradient", lambda g, x: aten.leaky_relu_backward(g, x, 0.2, False), [S, S]),
    Case("hardtanh_gradient", lambda g, x: aten.hardtanh_backward(g, x, -0.7, 1.2), [S, S]),
    Case("hardswish_gradient", lambda g, x: aten.hardswish_backward(g, x), [S, S], low=-5.0, high=5.0),
    Case("hardsigmoid_gradient", lambda g, x: aten.hardsigmoid_backward(g, x), [S, S], low=-5.0, high=5.0),
    Case("elu_gradient", elu(False), [S, S], ALL_FLOATS),
    Case("elu_gradient_of_result", elu(True), [S, S], low=-1.0),
    Case("layer_norm_gradient", layer_norm((7,)), [T, T, (7,), (7,)], ALL_FLOATS),
    Case("layer_norm_gradient_two_dims", layer_norm((5, 7)), [T, T, S, S], dynamic=False),
    Case("layer_norm_gradient_all_dims", layer_norm(S), [S, S, S, S], (torch.float32,), dynamic=False),
    Case("layer_norm_gradient_plain", layer_norm((7,), (True, False, False)), [T, T]),
    Case("layer_norm_gradient_of_weights", layer_norm((7,), (False, True, True)), [T, T, (7,), (7,)]),
    Case("layer_norm_gradient_strided", lambda *given: [each.contiguous() for each in layer_norm((5,))(*given)], [transposed(3, 5, 7), transposed(3, 5, 7), (5,), (5,)], (torch.float32,)),
]  # fmt: skip
