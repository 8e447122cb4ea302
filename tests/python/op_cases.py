"""Operators with a lowering: what each test of the importer and of the compiled results runs over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from op_case import ALL_FLOATS, BOTH, FLOATS, INTEGERS, SMALL_INTEGERS, Case, indices, mask, strided, transposed
from op_cases_composites import COMPOSITES
from op_cases_gradients import GRADIENTS
from op_cases_scans import SCANS
from op_cases_scatter import SCATTER
from op_cases_sorts import SORTS
from op_cases_special import SPECIAL
from op_cases_windows import WINDOWS

S = (5, 7)
T = (3, 5, 7)

_UNARY = "neg abs sign square floor ceil trunc round exp exp2 expm1 sin cos tan atan sinh cosh asinh erf erfc tanh sigmoid".split()
_POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal".split()

POINTWISE: list[Case] = [
    *(Case(name, getattr(torch, name), [S], ALL_FLOATS) for name in _UNARY),
    *(Case(name, getattr(torch, name), [S], ALL_FLOATS, low=0.1) for name in _POSITIVE),
    *(Case(name, getattr(torch, name), [S], low=-0.99, high=0.99) for name in ("asin", "acos", "atanh")),
    Case("acosh", torch.acosh, [S], low=1.0),
    Case("frac", torch.frac, [S]),
    *(
        Case(f"{name}_int", getattr(torch, name), [S], (torch.int64, torch.int32, torch.bool))
        for name in ("exp", "sqrt", "sin", "sigmoid")
    ),
    *(
        Case(f"{name}_int", getattr(torch, name), [S], INTEGERS)
        for name in ("neg", "abs", "sign", "floor", "square", "bitwise_not")
    ),
    Case("bitwise_not_bool", torch.bitwise_not, [S], (torch.bool,)),
    Case("deg2rad", torch.deg2rad, [S]),
    *(Case(name, getattr(torch, name), [S, S], BOTH) for name in ("add", "sub", "mul", "maximum", "minimum")),
    Case("add_bool", torch.add, [S, S], (torch.bool,)),
    Case("mul_bool", torch.mul, [S, S], (torch.bool,)),
    Case("maximum_bool", torch.maximum, [S, S], (torch.bool,)),
    Case("div", torch.div, [S, S], BOTH, low=0.5),
    Case("div_scalar_int", lambda x: x / 3, [S], INTEGERS),
    Case("fmod", torch.fmod, [S, S]),
    Case("remainder", torch.remainder, [S, S]),
    Case("remainder_scalar", lambda x: (x % 3, x % -3, torch.fmod(x, 3)), [S], BOTH),
    Case("remainder_of_scalar", lambda x: (7 % x, -7 % x, 2.3 % x), [S]),
    Case("floor_divide", torch.floor_divide, [S, S]),
    Case("floor_divide_scalar", lambda x: (x // 3, x // -1, torch.div(x, 4, rounding_mode="trunc")), [S], BOTH),
    Case("floor_divide_number_first", lambda x: (0.0 // x, 7.5 // x), [S], low=0.5),
    Case("div_trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), [S, S]),
    Case("atan2", torch.atan2, [S, S]),
    Case("copysign", torch.copysign, [S, S]),
    Case("fmax", torch.fmax, [S, S]),
    Case("pow_tensor", torch.pow, [S, S], low=0.1),
    Case("pow_scalars", lambda x: (x**2, x**3, x**0.5, x**-1, x**-2, x**2.5, x**-0.5, x**0), [S], low=0.1),
    Case("pow_int", lambda x: (x**2, x**3, x**5, x**0), [S], INTEGERS),
    Case("scalar_pow", lambda x: 2.5**x, [S]),
    Case("add_alpha", lambda x, y: torch.add(x, y, alpha=3), [S, S], BOTH),
    Case("rsub", lambda x: 2 - x, [S], BOTH),
    Case("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), [S, S, S]),
    Case("addcmul_int", lambda x, y, z: [torch.addcmul(x, y, z, value=v) for v in (0.5, -1.5, 2)], [S, S, S], INTEGERS),
    Case("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), [S, S, S], low=0.5),
    Case("lerp", lambda x, y, z: (torch.lerp(x, y, 0.3), torch.lerp(x, y, z)), [S, S, S]),
    Case("clamp", lambda x: (x.clamp(-1, 1), x.clamp(min=0), x.clamp(max=1)), [S], BOTH),
    Case("clamp_tensor", lambda x, y: (torch.clamp(x, min=y), torch.clamp(x, max=y)), [S, S], BOTH),
    *(Case(name, getattr(torch, name), [S, S], BOTH) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    Case("compare_scalar", lambda x: (x > 0, x <= 1.5, x == 2), [S], (*BOTH, torch.bool)),
    *(
        Case(name, getattr(torch, name), [S, S], (torch.float32, torch.int64, torch.bool))
        for name in ("logical_and", "logical_or", "logical_xor")
    ),
    Case("logical_not", torch.logical_not, [S], (torch.float32, torch.int64, torch.bool)),
    *(
        Case(name, getattr(torch, name), [S, S], (*INTEGERS, torch.bool))
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    Case("shifts", lambda x: (x << 3, x >> 2, x << 70), [S], INTEGERS),
    Case("where", torch.where, [mask(*S), S, S], BOTH),
    Case("where_scalar", lambda m, x: (torch.where(m, x, 0.0), torch.where(m, 1, x)), [mask(*S), S], FLOATS),
    Case("masked_fill", lambda x, m: x.masked_fill(m, -1.5), [S, mask(*S)]),
    Case("masked_fill_inf", lambda x, m: x.masked_fill(m, float("-inf")), [S, mask(7)]),
    Case("isnan", lambda x: (torch.isnan(x / (x - x)), torch.isinf(1 / (x - x)), torch.isfinite(x)), [S]),
    Case("nan_max", lambda x, y: torch.maximum((x - x) / (x - x), y), [S, S]),
    Case("broadcast", lambda x, y, z: x * y + z, [T, (7,), (3, 1, 1)], BOTH),
    Case("broadcast_inner", lambda x, y: x + y, [T, (1, 5, 1)]),
    Case("broadcast_outer", lambda x, y: x * y, [(5, 1), (1, 7)]),
    Case("zero_dim", lambda x, y: x * y + y, [S, ()], BOTH),
    Case("promote_int_float", lambda x, y: (x + y, x * 2.5, x + True), [indices(9, *S), S], FLOATS),
    *(
        Case(f"small_{name}", function, [S, S], SMALL_INTEGERS)
        for name, function in {
            "arithmetic": lambda x, y: (x + y, x - y, x * y, x * 3, x + 300, x - 1, -x, torch.square(x), x**3),
            "compare": lambda x, y: (x > y, x <= y, x == y, x > 3, torch.maximum(x, y), x.clamp(2, 100), x.sign()),
            "bits": lambda x, y: (x & y, x | y, x ^ y, ~x, x << 1, x >> 2, x >> 70, x.abs(), x.logical_not()),
            "convert": lambda x, y: (
                x.float(),
                x.bool(),
                x.half(),
                x.to(torch.uint8),
                x.to(torch.int8),
                x.double(),
                x / 3,
                x.exp(),
            ),
            "where": lambda x, y: (
                torch.where(x > 3, x, y),
                x.masked_fill(y > 5, 7),
                torch.cat([x, y]),
                x[:, ::2].clone(),
            ),
        }.items()
    ),
    Case(
        "u8_from_float_then",
        lambda x: ((x * 50).to(torch.uint8) + 1, (x * 50).to(torch.uint8) // 3, (x * 50).to(torch.uint8).long()),
        [S],
        low=0.0,
    ),
    Case("u8_from_float", lambda x: (x.to(torch.uint8), (x * 50).to(torch.uint8)), [S], low=0.0),
    Case(
        "promote_u8",
        lambda x, y: (x + y, x * y.to(torch.int8), x + y.to(torch.int16)),
        [indices(99, *S, dtype=torch.uint8), S],
        BOTH,
    ),
    Case(
        "divide_integers",
        lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), x // 3, x % 3),
        [S, indices(7, *S, low=1)],
        (*INTEGERS, *SMALL_INTEGERS),
    ),
    Case("promote_zero_dim", lambda x: (x + torch.tensor(2.5), x * torch.tensor(3)), [S], FLOATS),
    Case("promote_bool", lambda m, x: m * x + m, [mask(*S), S], BOTH),
    Case("transposed", lambda x, y: x + y.relu(), [transposed(7, 5), transposed(7, 5)], (torch.float32,)),
    Case("strided", lambda x, y: x * y, [strided(4, 6), (4, 6)], (torch.float32,)),
    Case("one_element", lambda x: (x + 1).tanh(), [(1,)]),
    Case("scalar_tensor_input", lambda x: x.exp() + 1, [()]),
    Case("empty", lambda x: x * 2 + 1, [(0, 4)], dynamic=False),
    Case("chain", lambda x, y: torch.sigmoid(x) * torch.tanh(y) + x.exp().log1p() - y.abs(), [T, T]),
    Case(
        "to_dtypes",
        lambda x: (x.to(torch.float64), x.to(torch.int32), x.to(torch.bool), x.half(), x.bfloat16()),
        [S],
        BOTH,
    ),
    Case("bool_to", lambda m: (m.float(), m.long(), m.int().to(torch.bool)), [mask(*S)], (torch.float32,)),
    Case("symbolic_value", lambda x: x * x.shape[0] + x.shape[1], [S], (torch.float32,)),
]

_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish,
    "hardtanh": F.hardtanh, "relu6": F.relu6, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid,
    "leaky_relu": F.leaky_relu, "elu": F.elu, "selu": F.selu, "celu": F.celu, "softplus": F.softplus,
    "softplus_beta": lambda x: F.softplus(x, beta=2, threshold=3), "softshrink": F.softshrink, "hardshrink": F.hardshrink,
    "logsigmoid": F.logsigmoid, "threshold": lambda x: F.threshold(x, 0.5, 9.0), "glu": F.glu, "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
}  # fmt: skip
ACTIVATIONS = [Case(name, function, [(4, 6)]) for name, function in _ACTIVATIONS.items()] + [
    Case("prelu", F.prelu, [(2, 3, 4), (3,)]),
    Case("gelu_wide", F.gelu, [(33, 17)], ALL_FLOATS, low=-10, high=10),
]

REDUCTIONS = [
    Case("sum", torch.sum, [T], BOTH),
    Case("sum_dims", lambda x: (x.sum(0), x.sum(-1), x.sum((0, 2)), x.sum(1, keepdim=True)), [T], BOTH),
    Case("sum_bool", torch.sum, [T], (torch.bool,)),
    Case("sum_dtype", lambda x: x.sum(-1, dtype=torch.float32), [T], BOTH),
    Case("sum_zero_dim", lambda x: x.sum(), [()]),
    Case("sum_empty", lambda x: x.sum(0), [(0, 4)], dynamic=False),
    Case("mean", lambda x: (x.mean(), x.mean(-1), x.mean((0, 1), keepdim=True)), [T]),
    Case("amax", lambda x: (x.amax(), x.amax(-1), x.amin((0, 2)), x.amin(1, keepdim=True)), [T], BOTH),
    Case("max_all", lambda x: (x.max(), x.min()), [T], BOTH),
    Case("max_dim_values", lambda x: (x.max(-1).values, x.min(0).values), [T], BOTH),
    Case("max_dim", lambda x: (x.max(-1), x.min(0, keepdim=True), x.max(1)), [T], (*BOTH, *SMALL_INTEGERS, torch.bool)),
    Case("argmax", lambda x: (x.argmax(), x.argmax(-1), x.argmin(0, keepdim=True), x.argmin(1)), [T], (*ALL_FLOATS, *INTEGERS, *SMALL_INTEGERS)),
    Case("argmax_ties", lambda x: (x.floor().argmax(-1), x.floor().argmin(-1)), [(3, 50)], low=-1.0, high=1.0),
    Case("argmax_nan", lambda x, m: (torch.where(m, x, torch.nan).argmax(-1), torch.where(m, x, torch.nan).min(0)), [S, mask(*S)], (torch.float32, torch.bfloat16)),
    Case("argmax_infinity", lambda x: (x * -torch.inf).argmax(-1), [S], (torch.float32,), low=1.0),
    Case("argmax_zero_dim", lambda x: (x.argmax(), x.max(0)), [()]),
    Case("argmax_softmax", lambda x: (x.softmax(-1).argmax(-1), x.softmax(-1)), [S], (torch.float32,)),
    Case("sum_small", lambda x: (x.sum(-1), x.prod(-1), x.amax(0), x.any(-1), x.all(0)), [S], SMALL_INTEGERS),
    Case("norms", lambda x: (x.norm(), x.norm(p=1, dim=-1), torch.linalg.vector_norm(x, float("inf"), 0), x.norm(p=3, dim=1)), [S]),
    Case("max_nan", lambda x: ((x - x) / (x - x)).amax(-1), [T], (torch.float32,)),
    Case("any_all", lambda x: ((x > 1).any(), (x > -2).all(-1), x.any(0, keepdim=True)), [T], BOTH),
    Case("prod", lambda x: (x.prod(), x.prod(1)), [(2, 3, 2)]),
    Case("var", lambda x: (x.var(), x.var(-1), x.std(0, keepdim=True), x.var(-1, correction=0)), [T]),
    Case("var_mean", lambda x: torch.var_mean(x, -1), [T]),
    Case("norm", lambda x: x.norm(dim=-1), [T], (torch.float32,)),
    Case("logsumexp", lambda x: torch.logsumexp(x, -1), [T]),
    Case("sum_broadcast_back", lambda x: x / x.sum(-1, keepdim=True), [T], low=0.5),
    Case("reduce_transposed", lambda x: x.sum(-1), [transposed(7, 5)], (torch.float32,)),
]  # fmt: skip

NORMALIZATION = [
    Case("softmax", lambda x: (x.softmax(-1), x.softmax(0), x.softmax(1)), [T]),
    Case("log_softmax", lambda x: (x.log_softmax(-1), x.log_softmax(1)), [T]),
    Case("softmax_zero_dim", lambda x: [f(y, -1) for f in (torch.softmax, torch.log_softmax) for y in (x, x / 0, x / 0 * 0)], [()]),
    Case("softmax_float", lambda x: F.softmax(x, -1, dtype=torch.float32), [T]),
    Case("softmax_large", lambda x: (x * 1000).softmax(-1), [T], (torch.float32,)),
    Case("layer_norm", lambda x, w, b: F.layer_norm(x, (7,), w, b), [T, (7,), (7,)]),
    Case("layer_norm_plain", lambda x: F.layer_norm(x, (5, 7)), [T], dynamic=False),
    Case("rms_norm", lambda x, w: F.rms_norm(x, (7,), w, eps=1e-6), [T, (7,)]),
    Case("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), [(2, 4, 3, 5), (4,), (4,)]),
    Case("batch_norm", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), [(2, 4, 3, 5), (4,), (4,), (4,), (4,)], low=0.5),
    Case("softmax_layer_norm", lambda x, c: torch.softmax(F.layer_norm(x, (7,)) * c, -1), [T, (7,)]),
]  # fmt: skip

VIEWS = [
    Case("reshape", lambda x: (x.reshape(15, 7) + 1, x.reshape(-1) * 2, x.reshape(7, 15).neg()), [T], BOTH),
    Case("reshape_split", lambda x: x.reshape(2, 3, 4, 2).exp(), [(6, 8)]),
    Case("reshape_merge_permuted", lambda x: x.transpose(0, 1).reshape(-1, 7) + 1, [T]),
    Case("view_dtype_none", lambda x: x.view(-1, x.shape[-1]) * 2, [T]),
    Case("permute", lambda x: x.permute(2, 0, 1) + 1, [T], BOTH),
    Case("transpose_t", lambda x: (x.t() * 2, x.transpose(0, 1) + x.mT), [S]),
    Case("expand", lambda x: x.expand(4, 5, 7) * 2, [(1, 5, 1)]),
    Case("slice", lambda x: (x[1:, ::2] + 1, x[:, -3:] * 2, x[..., 1:4]), [T], BOTH),
    Case("slice_beyond", lambda x: x[:100, -100:2] + 1, [S], dynamic=False),
    Case("select", lambda x: (x[0] + x[-1], x[:, 2] * 2), [T], BOTH),
    Case("squeeze", lambda x: (x.squeeze() + 1, x.squeeze(1) * 2, x.unsqueeze(-1).neg()), [(3, 1, 5)]),
    Case("split", lambda x: tuple(p + 1 for p in x.split(3, -1)), [T]),
    Case("chunk", lambda x: tuple(p * 2 for p in x.chunk(3, 1)), [(2, 9, 4)]),
    Case("split_sizes", lambda x: tuple(p * 2 for p in x.split([1, 4], 1)), [T]),
    Case("unbind", lambda x: sum(x.unbind(1)), [T]),
    Case("flip", lambda x: (x.flip(0) + x, x.flip(-1, 0) * 2), [S], BOTH),
    Case("roll", lambda x: (x.roll(2, 1) + x, x.roll(-1, 0), x.roll(3)), [S], (torch.float32,), dynamic=False),
    Case("repeat", lambda x: (x.repeat(2, 3) + 1, x.tile(2)), [S]),
    Case("repeat_interleave", lambda x: x.repeat_interleave(2, dim=1) + 1, [S], (torch.float32,), dynamic=False),
    Case("diagonal", lambda x: (x.diagonal() + 1, x.diagonal(1), x.diagonal(-2)), [S], (torch.float32,), dynamic=False),
    Case("as_strided", lambda x: x.as_strided((3, 2), (2, 1), 1) + 1, [S], (torch.float32,), dynamic=False),
    Case("unfold", lambda x: x.unfold(-1, 3, 2) + 1, [S], (torch.float32,)),
    Case("cat", lambda x, y: (torch.cat([x, y], 0) + 1, torch.cat([x, y, x], -1)), [S, S], BOTH),
    Case("cat_uneven", lambda x, y: torch.cat([x * 2, y.exp()], 1).relu(), [(5, 3), (5, 4)]),
    Case("cat_promote", lambda x, y: torch.cat([x, y]), [S, indices(9, *S)]),
    Case("stack", lambda x, y: (torch.stack([x, y]), torch.stack([x, y], -1) + 1), [S, S]),
    Case("pad", lambda x: (F.pad(x, (1, 2)) + 1, F.pad(x, (0, 0, 2, 1), value=3.0), F.pad(x, (-1, 1))), [S]),
    Case("pad_reflect", lambda x: F.pad(x, (1, 2), mode="reflect"), [(2, 3, 5)], (torch.float32,), dynamic=False),
    Case("clone", lambda x: (x.clone() + 1, x.contiguous() * 2), [transposed(7, 5)], (torch.float32,)),
    Case("clone_only", lambda x: x.clone(), [S]),
    Case("permute_output", lambda x: (x + 1).permute(1, 0), [S]),
    Case("channel_shuffle", lambda x: x.view(2, 2, 3, 5).transpose(1, 2).reshape(2, 6, 5) * 2, [(2, 6, 5)], dynamic=False),
    Case("broadcast_to_cat", lambda x, y: torch.cat([x.expand(5, 7), y], 0), [(1, 7), S]),
    Case("rotate_half", lambda x: torch.cat([-x[..., 4:], x[..., :4]], -1) * 2, [(3, 5, 8)]),
]  # fmt: skip

INDEXING = [
    Case("embedding", F.embedding, [indices(10, 3, 5), (10, 6)]),
    Case("embedding_int32", F.embedding, [indices(10, 4, dtype=torch.int32), (10, 6)]),
    Case("embedding_add", lambda i, w, p: F.embedding(i, w) * 2 + p, [indices(10, 3, 5), (10, 6), (5, 6)]),
    Case("index_select", lambda x, i: (x.index_select(0, i), x.index_select(-1, i) + 1), [(5, 6), indices(5, 4)], BOTH),
    Case("gather", lambda x, i: x.gather(1, i) * 2, [(5, 6), indices(6, 4, 3)], BOTH),
    Case("index", lambda x, i: (x[i] + 1, x[:, i] * 2), [(5, 6, 2), indices(5, 4)], BOTH),
    Case("index_negative", lambda x, i: x[i], [(5, 6), indices(5, 4, low=-5)]),
    Case("index_two", lambda x, i, j: x[i, j] + 1, [(5, 6, 2), indices(5, 4), indices(6, 3, 4)]),
    Case("index_apart", lambda x, i, j: x[i, :, j], [(5, 3, 6), indices(5, 4), indices(6, 4)]),
    Case("index_middle", lambda x, i: x[:, i, :].sum(-1), [(2, 5, 6), indices(5, 3, 1)]),
    Case("index_fused", lambda x, i: torch.softmax(x.exp()[i], -1), [(5, 6), indices(5, 4)]),
]

MATMUL = [
    Case("mm", torch.mm, [(4, 6), (6, 5)]),
    Case("mm_transposed", lambda x, y: x @ y.t(), [(4, 6), (5, 6)]),
    Case("bmm", torch.bmm, [(3, 4, 6), (3, 6, 5)]),
    Case("matmul_broadcast", torch.matmul, [(2, 3, 4, 6), (6, 5)]),
    Case("matmul_batches", torch.matmul, [(2, 3, 4, 6), (3, 6, 5)]),
    Case("matvec", torch.matmul, [(4, 6), (6,)], (torch.float32,)),
    Case("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), [(5,), (4, 6), (6, 5)]),
    Case("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, beta=1, alpha=0.25), [(3, 4, 5), (3, 4, 6), (3, 6, 5)]),
    Case("linear", F.linear, [(4, 6), (5, 6), (5,)]),
    Case("linear_3d", F.linear, [(2, 4, 6), (5, 6), (5,)]),
    Case("linear_1d", F.linear, [(6,), (5, 6), (5,)]),
    Case("linear_no_bias", F.linear, [(2, 4, 6), (5, 6)]),
    Case("linear_gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)), [(2, 4, 6), (5, 6), (5,)]),
    Case("linear_residual", lambda x, w, b: F.linear(x, w, b) + x, [(2, 4, 6), (6, 6), (6,)]),
    Case("einsum", lambda x, y: torch.einsum("bij,bkj->bik", x, y), [(2, 4, 6), (2, 5, 6)]),
]

CONVOLUTION = [
    Case("conv1d", lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=2), [(2, 4, 17), (6, 4, 5), (6,)]),
    Case("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), [(2, 3, 8, 7), (5, 3, 3, 3), (5,)]),
    Case("conv2d_strided", lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 2)), [(2, 4, 9, 8), (6, 4, 3, 2)]),
    Case("conv2d_dilated", lambda x, w: F.conv2d(x, w, dilation=(2, 3)), [(1, 4, 9, 11), (6, 4, 3, 3)]),
    Case("conv2d_groups", lambda x, w, b: F.conv2d(x, w, b, groups=3), [(2, 6, 7, 7), (9, 2, 3, 3), (9,)]),
    Case("conv2d_depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=16), [(2, 16, 7, 5), (16, 1, 3, 3)]),
    Case("conv2d_1x1", F.conv2d, [(2, 6, 5, 4), (8, 6, 1, 1), (8,)]),
    Case("conv2d_unbatched", F.conv2d, [(3, 8, 7), (5, 3, 3, 3)]),
    Case("conv2d_channels_last", lambda x, w: F.conv2d(x.to(memory_format=torch.channels_last), w), [(2, 3, 8, 7), (5, 3, 3, 3)]),
    Case("conv2d_flipped", lambda x, w: F.conv2d(x.flip(2), w.flip(2, 3)), [(2, 3, 8, 7), (5, 3, 3, 3)]),
    Case("conv2d_slice", lambda x, w: F.conv2d(x[:, 1:4, ::2], w), [(2, 5, 12, 7), (5, 3, 3, 3)]),
    Case("conv2d_computed_weight", lambda x, w: F.conv2d(x, w.exp() * 0.1), [(2, 3, 8, 7), (5, 3, 3, 3)], (torch.float32,)),
    # The image lies channels last, so that the weight, the same values in their order, is no strided view of it.
    Case("conv1d_weight_of_image", lambda x: (lambda y: F.conv1d(y, y.reshape(-1)[:324].reshape(4, 27, 3), padding=2))(torch.cat([x, x, x], -2)), [(2, 9, 6)], (torch.float32,)),
    Case("conv2d_chain", lambda x, v, w: F.conv2d(F.relu(F.conv2d(x, v, padding=1)) + 1, w), [(2, 3, 8, 7), (4, 3, 3, 3), (5, 4, 3, 3)], (torch.float32,)),
    Case("conv3d", lambda x, w, b: F.conv3d(x, w, b, stride=(1, 2, 1), padding=1), [(1, 3, 5, 6, 7), (4, 3, 3, 2, 3), (4,)]),
    Case("conv_transpose1d", lambda x, w: F.conv_transpose1d(x, w, stride=2), [(2, 4, 9), (4, 3, 3)]),
    Case("conv_transpose2d", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1), [(2, 6, 5, 4), (6, 4, 3, 3), (4,)]),
    Case("conv_transpose2d_groups", lambda x, w: F.conv_transpose2d(x, w, stride=(2, 3), groups=2, dilation=2), [(2, 6, 5, 4), (6, 2, 3, 3)]),
    Case("conv_transpose3d", F.conv_transpose3d, [(1, 3, 4, 3, 5), (3, 2, 2, 3, 2)], (torch.float32,)),
]  # fmt: skip

_Q = (2, 3, 4, 8)
ATTENTION = [
    Case("sdpa", F.scaled_dot_product_attention, [_Q, _Q, _Q], bf16_atol=1e-2),
    Case("sdpa_causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [_Q, _Q, _Q], bf16_atol=1e-2),
    Case("sdpa_bool_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), [_Q, _Q, _Q, mask(2, 1, 4, 4)], bf16_atol=1e-2),
    Case("sdpa_float_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), [_Q, _Q, _Q, (4, 4)], bf16_atol=1e-2),
    Case("sdpa_scale", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), [_Q, _Q, _Q], bf16_atol=1e-2),
    Case("sdpa_cross", F.scaled_dot_product_attention, [_Q, (2, 3, 5, 8), (2, 3, 5, 8)], bf16_atol=1e-2),
    Case("sdpa_gqa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), [(2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)], (torch.float32,), bf16_atol=1e-2),
    Case("sdpa_flipped", lambda q: F.scaled_dot_product_attention(q.rot90(), q.flip(0, 1).transpose(0, 1), q.rot90()), [_Q], bf16_atol=1e-2),
    Case("sdpa_permuted", lambda x: F.scaled_dot_product_attention(*(t.view(2, 5, 3, 8).transpose(1, 2) for t in x.chunk(3, -1))).transpose(1, 2).reshape(2, 5, 24), [(2, 5, 72)], bf16_atol=1e-2),
]  # fmt: skip

CREATION = [
    Case("full", lambda x: (x + torch.full((5, 7), 2.5), torch.full((2,), 7)), [S], (torch.float32,)),
    Case("zeros_ones", lambda x: (torch.zeros_like(x), torch.ones_like(x) + x, x.new_zeros(3), torch.ones(2, dtype=torch.int64)), [S], BOTH),
    Case("arange", lambda x: (torch.arange(7) + x, torch.arange(1, 8, dtype=torch.float32) * x, torch.arange(0, 1, 0.25)), [S], (torch.float32,)),
    Case("arange_cut", lambda x: (torch.arange(-3.7, 8.2, 1.9, dtype=torch.int64) + x, torch.arange(1.5, 13, dtype=torch.int32) + x), [(1,)], (torch.int64,)),
    Case("arange_size", lambda x: torch.arange(x.shape[1], device=x.device) + x, [S], (torch.float32,)),
    Case("triu_tril", lambda x: (x.triu(), x.tril(-1), x.triu(2)), [S], BOTH),
    Case("causal_mask", lambda x: torch.where(torch.ones(5, 5, dtype=torch.bool).tril(), x, float("-inf")), [(5, 5)]),
    Case("eye", lambda x: x @ torch.eye(7), [S], (torch.float32,)),
    Case("scalar_tensor", lambda x: torch.where(x > 0, x, torch.tensor(-2.0)), [S], (torch.float32,)),
    Case("one_hot_compare", lambda i: (i.unsqueeze(-1) == torch.arange(9)).to(torch.float32), [indices(9, 4)], (torch.float32,)),
    Case("linspace", lambda x: torch.linspace(0, 1, 7) + x, [S], (torch.float32,)),
]  # fmt: skip

CASES: list[Case] = [
    *POINTWISE, *ACTIVATIONS, *GRADIENTS, *REDUCTIONS, *NORMALIZATION, *VIEWS, *INDEXING, *SCATTER, *SCANS, *SORTS, *COMPOSITES, *SPECIAL, *WINDOWS, *MATMUL, *CONVOLUTION,
    *ATTENTION, *CREATION,
]  # fmt: skip
