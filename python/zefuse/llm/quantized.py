"""Modules with quantized weights in place of a model's linear layers and token embedding."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from zefuse.llm import packing
from zefuse.llm.operators import linear_bf16
from zefuse.llm.packing import Packed
from zefuse.wording import counted


class Quantized(nn.Module):
    """A matrix of codes; ``rows`` of it are some."""

    codes: torch.Tensor
    scales: torch.Tensor
    minimums: torch.Tensor | None
    activations: str | None = None
    products = 0  # that a single token takes part in

    def __init__(self, packed: Packed, dtype: torch.dtype) -> None:
        super().__init__()
        # Buffers: no optimizer and no .to(dtype) is to see the codes; scales stay as they were rounded.
        self.register_buffer("codes", packed.codes)
        self.register_buffer("scales", packed.scales)
        self.register_buffer("minimums", packed.minimums)
        self.bits, self.rows = packed.bits, packed.rows
        self.dtype = dtype

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        # Another dtype is for the results alone.
        before = {name: getattr(self, name) for name in ("scales", "minimums")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, tensor in before.items():
            if tensor is not None and getattr(self, name).dtype != tensor.dtype:
                setattr(self, name, tensor.to(getattr(self, name).device))
        self.dtype = fn(torch.empty(0, dtype=self.dtype)).dtype
        return self

    @property
    def packed(self) -> Packed:
        return Packed(self.codes, self.scales, self.bits, self.rows, self.minimums)

    @property
    def weight(self) -> torch.Tensor:
        """A copy, dequantized, for what looks at a layer's weight."""
        return packing.unpack(self.packed, self.dtype)

    def extra_repr(self) -> str:
        packed = self.packed
        return f"{packed.columns}, {packed.rows}, int{packed.bits}, groups of {packed.group}"


class QuantizedLinear(Quantized):
    """``x @ weight.T + bias``. A single row is multiplied by the codes themselves, several by dequantized weights.

    ``activations``: "int8" quantizes a single row first, so that its products are those of integers. ``order``: which of the
    layer's columns each column of ``packed`` is, i64 [columns]; None: the same.
    """

    order: torch.Tensor | None
    products = 1

    def __init__(
        self, packed: Packed, bias: torch.Tensor | None, dtype: torch.dtype, order: torch.Tensor | None = None
    ) -> None:
        super().__init__(packed, dtype)
        self.register_buffer("order", order)
        self.in_features, self.out_features = packed.columns, packed.rows
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    @property
    def weight(self) -> torch.Tensor:
        weights = super().weight
        return weights if self.order is None else torch.empty_like(weights).index_copy_(1, self.order, weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.order is not None:
            x = x.index_select(-1, self.order)
        if all(isinstance(size, int) and size == 1 for size in x.shape[:-1]):
            result = self._times(x.reshape(-1).float())
            if self.bias is not None:
                result = result + self.bias.float()
            return result.to(x.dtype).reshape(*x.shape[:-1], -1)
        linear = nn.functional.linear if self.activations is None or x.dtype != torch.float32 else linear_bf16
        return linear(x, packing.unpack(self.packed, x.dtype), self.bias)

    def _times(self, row: torch.Tensor) -> torch.Tensor:
        packed = self.packed
        if self.activations is None:
            return packing.times_row(packed, row)
        return packing.times_quantized_row(packed, packing.quantize_row(row, packed.chunk))


class QuantizedEmbedding(Quantized):
    """Rows of quantized weights, dequantized; shares them with the last layer's where the model ties the two."""

    def __init__(self, packed: Packed, scale: torch.Tensor | float | None, dtype: torch.dtype) -> None:
        super().__init__(packed, dtype)
        self.num_embeddings, self.embedding_dim = packed.rows, packed.columns
        self.embed_scale = scale

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = packing.unpack_rows(self.packed, ids.reshape(-1))
        result = rows.to(self.dtype).reshape(*ids.shape, -1)
        return result if self.embed_scale is None else result * self.embed_scale


def quantize(model: Any, weights: str, group: int) -> tuple[list[str], list[str]]:
    """Replaces the model's linear layers and, where it is tied to the last one, its token embedding.

    Gives what was changed and what was left, in words. With ``int4`` the matrix of the vocabulary has int8: it decides between
    tokens, and is a small part of a large model.
    """
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = head is not None and embedding is not None and head.weight is embedding.weight
    kinds = linear_kinds()
    changed: dict[str, list[int]] = {}
    left: list[str] = []
    shared: dict[int, Packed] = {}
    for name, module in list(model.named_modules()):
        transposed = kinds.get(type(module))
        if transposed is None:
            continue
        matrix = module.weight.detach().t() if transposed else module.weight.detach()
        if reason := packing.why_not(matrix.shape[1], group):
            left.append(f"weights of {name} ({reason})")
            continue
        kind = "int8" if module is head else weights
        packed = shared.get(id(module.weight))
        if packed is None:
            packed = shared[id(module.weight)] = packing.pack(matrix, kind, group)
        count = changed.setdefault(kind, [0, 0, 0])
        count[0] += 1
        count[1] += matrix.numel() * matrix.element_size()
        count[2] += packed.bytes()
        replace(model, name, QuantizedLinear(packed, module.bias, module.weight.dtype))
        if module is head and tied:
            for place, each in list(model.named_modules()):  # an encoder-decoder has several
                plain = type(each) is nn.Embedding or hasattr(each, "embed_scale")
                if plain and getattr(each, "weight", None) is embedding.weight:
                    scale = getattr(each, "embed_scale", None)
                    replace(model, place, QuantizedEmbedding(packed, scale, module.weight.dtype))
    if hasattr(model, "set_experts_implementation"):
        _quantize_experts(model, weights, group, changed, left)
    return (
        [
            f"weights: {count} {'matrix' if count == 1 else 'matrices'} to {kind}, groups of {group}: "
            f"{_megabytes(before)} to {_megabytes(after)}"
            for kind, (count, before, after) in changed.items()
        ],
        left,
    )


def _quantize_experts(model: Any, kind: str, group: int, changed: dict[str, list[int]], left: list[str]) -> None:
    """A mixture's: parameters that hold a matrix for each expert."""
    from zefuse.llm import experts

    for place, module in list(model.named_modules()):
        for name in experts.matrices(module):
            weights = module._parameters[name]
            made = experts.quantize(module, name, kind, group)
            if isinstance(made, str):
                left.append(f"weights of {place}.{name} ({made})")
                continue
            count = changed.setdefault(kind, [0, 0, 0])
            count[0] += len(weights)
            count[1] += weights.numel() * weights.element_size()
            count[2] += made.packed.bytes()
            model.set_experts_implementation(experts.IMPLEMENTATION)


def is_quantized(model: nn.Module) -> bool:
    return any(isinstance(module, Quantized) for module in model.modules())


def quantized_before(model: nn.Module) -> list[str]:
    """What a model has of quantized weights, in words."""
    found = {module.codes.data_ptr(): module.packed for module in model.modules() if isinstance(module, Quantized)}
    if not found:
        return []
    size = _megabytes(sum(packed.bytes() for packed in found.values()))
    return [f"weights: {counted(len(found), 'matrix', 'matrices')} quantized before: {size}"]


def arrange(model: nn.Module, activations: str | None) -> str | None:
    """Sets what quantized linear layers do with what they multiply, and lays their codes as that wants them. In words."""
    count = 0
    made: dict[int, Packed] = {}  # some share their codes
    for module in model.modules():
        if not isinstance(module, Quantized):
            continue
        if module.products:
            module.activations = activations
            count += module.products
        packed, place = module.packed, module.codes.data_ptr()
        if place not in made:
            made[place] = _arranged(packed, activations)
        module.codes = made[place].codes
    if activations is None:
        return None
    return f"activations: int8 for {count} products of a single token, with a scale for each {packing.CHUNK} at most"


def _arranged(packed: Packed, activations: str | None) -> Packed:
    # A GPU's lane takes four words of neighbouring rows at once; of bytes that would be four.
    on_gpu = packed.codes.device.type == "cuda"
    by_bytes = activations is None and packed.bits == 8 and packed.minimums is None and not on_gpu
    return packed.by_bytes() if by_bytes else packed.by_words()


def linear_kinds() -> dict[type, bool]:
    """Classes of linear layers, and whether their weight is transposed."""
    from transformers.pytorch_utils import Conv1D

    return {nn.Linear: False, Conv1D: True}


def replace(model: nn.Module, name: str, module: nn.Module) -> None:
    """``module``, in evaluation mode, in place of the one of that name."""
    owner, _, own = name.rpartition(".")
    setattr(model.get_submodule(owner), own, module.train(False))


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
