"""A GGUF file's experts, kept packed: gate and up are tensors of their own there, one parameter in ``transformers``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from zefuse.llm import experts, gguf_blocks

_NAME = re.compile(r"(?P<name>blk\.\d+\.ffn_(?P<part>gate|up|down)_exps)\.weight")


class Experts:
    """Of a model whose weights come. ``names``: of the file's tensors, without ``.weight``, to the model's."""

    def __init__(self, model: Any, names: Mapping[str, str], tensors: list[Any], dtype: torch.dtype) -> None:
        self.model, self.dtype = model, dtype
        modules = dict(model.named_modules())
        self._places = {
            f"{place}.{name}": (module, name)
            for place, module in modules.items()
            for name in experts.matrices(module)
            if not module.is_transposed
        }
        # The tensors of each parameter, in the order of its rows; those of other kinds are none of ours.
        self._parts: dict[str, dict[str, Any]] = {}
        for tensor in tensors:
            found = _NAME.fullmatch(tensor.name)
            target = names.get(found["name"], "") if found else ""
            if found and target in self._places:
                self._parts.setdefault(target, {})[found["part"]] = tensor
        self._target = {tensor.name: target for target, parts in self._parts.items() for tensor in parts.values()}

    def take(self, tensor: Any) -> int | None:
        """Puts what the file has of this tensor's parameter into the model, once. None: it is not kept so. Else how many bytes it is."""
        target = self._target.get(tensor.name)
        if target is None:
            return None
        parts = self._parts[target]
        wanted = {"down"} if "down" in parts else {"gate", "up"}
        kinds = {part.tensor_type for part in parts.values()}
        module, name = self._places[target]
        if parts.keys() != wanted or len(kinds) != 1 or not gguf_blocks.is_known(tensor.tensor_type.name):
            return None
        if name not in module._parameters:
            return 0  # with its other part
        data = [parts[part].data for part in ("gate", "up", "down") if part in parts]
        count = module.num_experts
        if any(each.ndim != 3 or len(each) != count for each in data):
            return None
        rows = sum(each.shape[1] for each in data)
        packed = (
            gguf_blocks.pack(tensor.tensor_type.name, np.concatenate([each[expert] for each in data]))
            for expert in range(count)
        )
        made = experts.QuantizedExperts.joined(count, rows, packed, self.dtype)
        experts.put(module, name, made)
        self.model.set_experts_implementation(experts.IMPLEMENTATION)
        return made.packed.bytes()
