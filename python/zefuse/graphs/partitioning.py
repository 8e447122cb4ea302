"""What torch's partitioner of joint graphs is told of operators that only our graphs have whole."""

from __future__ import annotations

import dataclasses
from functools import cache

import torch


@cache
def know_whole_gradients() -> None:
    """A derivative reads its inputs as its pieces did: in a kernel that may compute them anew. An operator that torch does not know
    would have to find them in memory: of a cast to f32, say, forward would save the wider one. Other backends' graphs have
    the pieces."""
    from torch._functorch import partitioners

    from zefuse.decompositions.table import GRADIENTS

    if (torchs := getattr(partitioners, "get_default_op_list", None)) is None:
        return
    whole = {getattr(torch.ops.aten, name) for name in GRADIENTS}

    def with_ours() -> partitioners.OpTypes:
        types: partitioners.OpTypes = torchs()
        return dataclasses.replace(types, fusible_ops=types.fusible_ops | whole)

    partitioners.get_default_op_list = with_ours
