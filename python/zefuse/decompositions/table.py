"""Which composite operators are taken apart before the graph reaches zefuse's importer, and which stay whole.

Start from torch's core ATen decompositions and take out what should stay: an operator that the importer lowers itself (one node
instead of ten, with eager's own formula), or one that ATen runs better whole than zefuse runs its pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from zefuse.decompositions import (
    composites,
    decomposed_quantization,
    distances,
    dropout,
    dropped_attention,
    eager_strides,
    elementwise_strides,
    embedding_bags,
    foreach,
    fused_attention,
    order_statistics,
    packed_products,
    random_numbers,
    resampling,
    transformer_layers,
    without_kernels,
)

# Ours, in place of torch's or where torch has none.
_FAMILIES = (
    composites,
    distances,
    dropout,
    eager_strides,
    embedding_bags,
    foreach,
    fused_attention,
    order_statistics,
    packed_products,
    resampling,
    transformer_layers,
)

# The importer has the formula (compiler/import). Taken apart, each would be several nodes that fusion joins again, and
# low-precision inputs would be rounded between the pieces, where eager rounds once.
_LOWERED = """
    elu gelu hardsigmoid hardswish hardtanh leaky_relu log_sigmoid mish prelu relu relu6 sigmoid silu softplus softshrink
    hardshrink threshold tanh
    addcdiv addcmul lerp rsub clamp_min clamp_max fmin fmax logical_and logical_or logical_xor logical_not
    deg2rad rad2deg frac sgn square masked_fill where isfinite isinf isnan
    eye full_like zeros_like ones_like new_full new_zeros new_ones new_empty zeros ones tril triu
    max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices max_pool3d_with_indices_backward
    avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool3d
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d im2col col2im
    split split_with_sizes unbind stack roll t transpose detach
    slice_scatter select_scatter diagonal_scatter as_strided_scatter index_add index_copy scatter scatter_add scatter_reduce
    std std_mean var_mean mean sum prod any all
    _softmax _log_softmax softmax log_softmax _safe_softmax
    native_layer_norm native_group_norm _fused_rms_norm native_batch_norm _native_batch_norm_legit_no_training
    native_batch_norm_backward
"""

# Derivatives whose formulas the importer has: each would be 3 to 25 nodes to trace, cut in two and read.
GRADIENTS = tuple(
    """
    elu_backward gelu_backward hardsigmoid_backward hardswish_backward hardtanh_backward leaky_relu_backward
    native_layer_norm_backward sigmoid_backward silu_backward tanh_backward threshold_backward
""".split()
)

# Matrix products become one oneDNN call each; attention is two of them around a softmax.
_PRODUCTS = """
    mm bmm addmm baddbmm linear matmul scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu
"""

# Lowered whole; the pieces would be gathers over index tensors.
_WHOLE = "convolution convolution_backward embedding embedding_dense_backward"

# Drawn by ATen's own kernels, so that a seed gives eager's numbers.
_RANDOM = "bernoulli normal uniform rand randn rand_like randn_like randint randperm exponential multinomial"

KEPT = frozenset((*GRADIENTS, *" ".join((_LOWERED, _PRODUCTS, _WHOLE, _RANDOM)).split()))


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import core_aten_decompositions, get_decompositions

    # Core ATen keeps a norm whole; its pieces (power, sum, root) are one kernel with what stands around it. So with these.
    aten = torch.ops.aten
    kept: dict[Any, Callable[..., Any]] = dict(
        get_decompositions(
            [aten.linalg_vector_norm, aten.tril_indices, aten.triu_indices, aten.rrelu_with_noise_backward]
        )
    )
    # Not by items(), which looks for composite operators in every library of the process: those take themselves apart.
    cores = core_aten_decompositions()
    for op, decomposition in getattr(cores, "decomp_table", cores).items():
        if op.namespace == "aten" and op._schema.name.removeprefix("aten::") in KEPT:
            continue
        kept[op] = decomposition
    for family in _FAMILIES:
        kept |= family.decompositions()
    kept = {op: elementwise_strides.lying_as_eagers(op, way) for op, way in kept.items()}
    return without_kernels.kept_where_refused(kept)


def decompositions(random_in_kernels: bool = True) -> dict[Any, Callable[..., Any]]:
    """The table for ``aot_autograd(decompositions=...)``; a new dictionary each time, since torch adds to it. ``random_in_kernels``: of
    CUDA tensors; else torch draws."""
    table = _table() | decomposed_quantization.decompositions()
    if not random_in_kernels:
        return table
    return table | random_numbers.decompositions() | dropped_attention.decompositions()
