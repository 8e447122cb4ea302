"""Pooling, padding, columns of windows; and which cases have a gradient worth comparing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from op_case import ALL_FLOATS, BOTH, Case, mask

X1, X2, X3 = (2, 3, 11), (2, 3, 9, 20), (1, 2, 5, 6, 7)
_F32 = (torch.float32,)

POOLING = [
    Case("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), [X2], ALL_FLOATS),
    Case("max_pool2d_wide", lambda x: F.max_pool2d(x.relu(), 3, 1, 1) * 2, [(1, 2, 6, 70)]),
    Case("max_pool2d_no_padding", lambda x: F.max_pool2d(x, 2) + 1, [X2]),
    Case("max_pool2d_uneven", lambda x: F.max_pool2d(x, (2, 5), (1, 3), (1, 2)), [X2]),
    Case("max_pool2d_ceil", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), [X2], dynamic=False),
    Case("max_pool2d_dilated", lambda x: F.max_pool2d(x, 2, 2, 1, dilation=3), [X2]),
    Case("max_pool2d_indices", lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), [X2]),
    Case("max_pool2d_ties", lambda x: F.max_pool2d(x.floor(), 3, 2, 1, return_indices=True), [X2], low=-1.5, high=1.5),
    Case(
        "max_pool2d_nan",
        lambda x, m: F.max_pool2d(torch.where(m, x, torch.nan), 3, 2, 1, return_indices=True),
        [X2, mask(*X2)],
        (torch.float32, torch.bfloat16),
    ),
    Case("max_pool2d_infinity", lambda x: F.max_pool2d(x * -torch.inf, 3, 2, 1, return_indices=True), [X2], _F32, low=1.0),
    Case("max_pool2d_integers", lambda x: F.max_pool2d(x, 2, 2), [X2], (torch.int64,)),
    Case("max_pool2d_channels_last", lambda x: F.max_pool2d(x.contiguous(memory_format=torch.channels_last), 3, 2, 1), [X2], _F32),
    Case("max_pool2d_unbatched", lambda x: F.max_pool2d(x, 3, 2, 1), [X2[1:]], _F32),
    Case("max_pool1d", lambda x: F.max_pool1d(x, 3, 2, 1), [X1]),
    Case("max_pool3d", lambda x: F.max_pool3d(x, 3, 2, 1), [X3]),
    Case("max_pool2d_gradient_of_ones", lambda x: torch.func.grad(lambda t: F.max_pool2d(t, 3, 2).sum())(x), [X2], _F32),
    Case("avg_pool3d_gradient_of_ones", lambda x: torch.func.grad(lambda t: F.avg_pool3d(t, 2).sum())(x), [X3], _F32),
    Case("adaptive_max_pool2d", lambda x: (F.adaptive_max_pool2d(x, (3, 4)), F.adaptive_max_pool2d(x, 5, return_indices=True)), [X2]),
    Case("adaptive_max_pool2d_one_gradient", lambda x: torch.func.grad(lambda t: F.adaptive_max_pool2d(t, 1).sum())(x), [X2], _F32),
    Case("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, (2, 3, 4)), [X3], _F32),
    Case("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), [X2], ALL_FLOATS),
    Case("avg_pool2d_plain", lambda x: F.avg_pool2d(x.exp(), 2) + 1, [X2]),
    Case("avg_pool2d_valid", lambda x: F.avg_pool2d(x, (3, 4), (2, 3), (1, 2), count_include_pad=False), [X2]),
    Case("avg_pool2d_ceil", lambda x: (F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 4, 3, ceil_mode=True, count_include_pad=False)), [X2], dynamic=False),
    # Windows wider than the input: each element beyond its end would be asked for, here for hours.
    Case("avg_pool2d_beyond", lambda x: F.avg_pool2d(x, 5_000_000, ceil_mode=True), [X2], _F32, dynamic=False),
    Case("pools_beyond", lambda x: (F.avg_pool2d(x, (9, 21), (5, 11), (1, 2), ceil_mode=True), F.max_pool2d(x, (9, 21), (5, 11), (1, 2), ceil_mode=True, return_indices=True), F.max_pool2d(x, 3, 20, dilation=4, ceil_mode=True)), [X2], dynamic=False),
    Case("pools_beyond_gradient", lambda x: torch.func.grad(lambda t: F.avg_pool2d(t.exp(), (9, 21), (2, 11), (3, 2), ceil_mode=True, count_include_pad=False).sum() + F.max_pool2d(t, (9, 21), (2, 11), (3, 2), ceil_mode=True).exp().sum() + F.avg_pool2d(t.exp(), 30, ceil_mode=True).sum())(x), [X2], _F32, dynamic=False),
    Case("avg_pool2d_divisor", lambda x: F.avg_pool2d(x, 2, 2, divisor_override=3), [X2]),
    Case("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, 1), [X1]),
    Case("avg_pool3d", lambda x: F.avg_pool3d(x, 3, 2, 1), [X3], _F32),
    Case("adaptive_avg_pool2d", lambda x: (F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, (4, 7))), [X2], ALL_FLOATS),
    Case("adaptive_avg_pool2d_one", lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), [X2]),
    Case("adaptive_avg_pool2d_larger", lambda x: F.adaptive_avg_pool2d(x, (13, 41)), [X2], _F32),
    Case("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 4), [X1]),
    Case("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), [X3], bf16_atol=1e-2),
    Case("global_pool_mix", lambda x: F.adaptive_avg_pool2d(x, (1, 4)), [X2], _F32),
    Case("im2col", lambda x: F.unfold(x, (2, 3), padding=1, stride=2), [X2]),
    Case("im2col_in_groups", lambda x: F.group_norm(F.unfold(x, 2), 2), [(2, 3, 6, 5)], _F32),  # a group ends within a window
    Case("im2col_dilated", lambda x: F.unfold(x, 2, dilation=3, padding=2) * 2, [X2]),
    Case("col2im", lambda x: F.fold(x, (6, 7), 3, padding=1, stride=2), [(2, 18, 12)], bf16_atol=2e-2),
    Case("col2im_even", lambda x: F.fold(x, (6, 8), 3, padding=(0, 2), stride=2), [(2, 18, 10)], bf16_atol=2e-2),
    Case("col2im_dilated", lambda x: F.fold(x, (8, 9), 2, dilation=2, stride=1), [(2, 12, 42)], dynamic=False, bf16_atol=2e-2),
    Case("lp_pool", lambda x: F.lp_pool2d(x, 2, 2), [X2], _F32, low=0.1),
]  # fmt: skip

PADDING = [
    *(
        Case(f"pad_{mode}", lambda x, mode=mode: (F.pad(x, (1, 3, 2, 1), mode=mode), F.pad(x, (3, 0, 0, 2), mode=mode) * 2), [X2])
        for mode in ("reflect", "replicate", "circular")
    ),
    Case("pad_constant", lambda x: (F.pad(x, (1, 2, 0, 3), value=2), F.pad(x, (-1, 4, 2, -2)), F.pad(x, (0, 0, 0, 0, 1, 1))), [X2], BOTH),
    Case("pad_producer", lambda x: F.pad(x.exp(), (5, 9)).relu() + 1, [(4, 50)]),
    Case("pad_softmax", lambda x: F.pad(x.softmax(-1), (1, 1)) * 2, [(4, 5)]),
    Case("pad_sum", lambda x: F.pad(x, (2, 0, 1, 0)).sum(-1), [(4, 37)]),
    Case("pad_of_rows", lambda x: F.pad(x.sum(-1), (1, 1)), [(7, 5)]),
    Case("pad_bool", lambda m: F.pad(m, (1, 1), value=True), [mask(3, 5)], _F32),
    Case("pad_u8", lambda x: F.pad(x, (1, 1), value=100), [(3, 5)], (torch.uint8, torch.int8, torch.int16), high=0.0),
    Case("pad_empty", lambda x: F.pad(x, (1, 1, 2, 0), value=3.0), [(3, 0)], _F32, dynamic=False),
    Case("shift", lambda x: F.pad(x, (1, -1)) + x, [(3, 40)], _F32),
    Case("roll_dynamic", lambda x: (x.roll(2, 1) + x, x.roll(-1, 0), x.roll((1, -3), (0, 1))), [(5, 7)], _F32),
    Case("roll_by_a_size", lambda x: (x.roll(x.shape[0] // 2, 0) + x, x.roll((3, 2 - x.shape[0], 2 * x.shape[1] - 3), (1, 0, 1)), x.roll(x.shape[1]), torch.fft.fftshift(x)), [(5, 7)], (torch.float32, torch.bool)),
    Case("window_shift", lambda x: torch.roll(x.view(2, 4, 6, 3), (-2, -1), (1, 2)).reshape(2, 2, 2, 3, 2, 3).transpose(2, 3) + 1, [(2, 24, 3)], _F32, dynamic=False),
    Case("pixel_shuffle", lambda x: (F.pixel_shuffle(x, 2) + 1, F.pixel_unshuffle(x, 3) * 2), [(2, 4, 6, 9)]),
]  # fmt: skip

WINDOWS = [*POOLING, *PADDING]
