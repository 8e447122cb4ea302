"""Models made without memory for their weights, and filled one tensor after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from zefuse.errors import InvalidArgumentError


class _WithoutMemory(TorchFunctionMode):
    """Parameters that modules make get no memory; what they compute does."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.empty:
            kwargs["device"] = "meta"
        return function(*args, **kwargs)


def empty(config: Any, dtype: torch.dtype) -> Any:
    """The configuration's decoder in evaluation mode, its parameters without memory."""
    from transformers import AutoModelForCausalLM

    with _WithoutMemory():
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model.eval()


def fill(model: Any, values: Mapping[str, torch.Tensor], dtype: torch.dtype, place: Any) -> None:
    """Puts parameters, by their names, into the model; nothing may be left without memory. ``place``: the file, for messages."""
    for name, tensor in values.items():
        owner, _, own = name.rpartition(".")
        model.get_submodule(owner)._parameters[own] = nn.Parameter(tensor.to(dtype), requires_grad=False)
    if isinstance(model.get_output_embeddings(), nn.Linear):
        model.tie_weights()
    missing = [name for name, each in (*model.named_parameters(), *model.named_buffers()) if each.is_meta]
    if missing:
        raise InvalidArgumentError(f"{place}: the model's {missing[0]} is not in it")
