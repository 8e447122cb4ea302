"""Mixtures of experts as zefuse compiles them: rows sorted by expert, and each expert's rows a product of their own.

``transformers`` asks a configuration how its experts are computed; IMPLEMENTATION is one more way. Its own ways are operators that only
torch has (``grouped_mm``), or copy an expert's weights for each token (``batched_mm``), which is right for a single token alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from transformers.integrations import moe

from zefuse.llm import packing
from zefuse.llm.operators import group_index, grouped_linear
from zefuse.llm.packing import Packed, QuantizedRow
from zefuse.llm.quantized import Quantized

IMPLEMENTATION = "zefuse"
# Whether what is traced runs on the CPU, where one expert's matrix is made after the other.
_host: ContextVar[bool] = ContextVar("zefuse_llm_experts_on_host", default=False)


def matrices(module: Any) -> list[str]:
    """The names of a module's weights that are [experts, rows, columns], or with ``is_transposed`` [experts, columns, rows]."""
    if not all(hasattr(module, name) for name in ("has_gate", "has_bias", "is_transposed", "num_experts")):
        return []
    names = ["gate_up_proj" if module.has_gate else "up_proj", "down_proj"]
    return [name for name in names if getattr(module._parameters.get(name), "ndim", 0) == 3]


class QuantizedExperts(Quantized):
    """The matrices of all experts, quantized, in place of a parameter; ``rows`` of each, in whole blocks."""

    def __init__(self, packed: Packed, experts: int, rows: int, dtype: torch.dtype) -> None:
        super().__init__(packed, dtype)
        self.experts = self.products = experts
        self.rows_of_expert = rows

    @classmethod
    def of(cls, weights: torch.Tensor, transposed: bool, kind: str, group: int) -> QuantizedExperts:
        each = (matrix.t() if transposed else matrix for matrix in weights.detach())
        rows = weights.shape[2 if transposed else 1]
        return cls.joined(len(weights), rows, (packing.pack(matrix, kind, group) for matrix in each), weights.dtype)

    @classmethod
    def joined(cls, experts: int, rows: int, parts: Iterable[Packed], dtype: torch.dtype) -> QuantizedExperts:
        """Of a matrix of ``rows`` rows for each expert; in memory is one of them at a time beside the result."""
        whole = -(-rows // packing.BLOCK) * packing.BLOCK
        return cls(Packed.joined(whole * experts, parts), experts, rows, dtype)

    @property
    def weight(self) -> torch.Tensor:
        every = super().weight
        return every.reshape(self.experts, -1, every.shape[1])[:, : self.rows_of_expert]

    def _of(self, expert: torch.Tensor) -> Packed:
        """The matrices of these experts, i64 [n], one below the other."""

        def chosen(tensor: torch.Tensor | None) -> Any:
            if tensor is None:
                return None
            return tensor.unflatten(0, (self.experts, -1)).index_select(0, expert).flatten(0, 1)  # type: ignore[no-untyped-call]

        rows = len(expert) * (self.rows // self.experts)
        return Packed(chosen(self.codes), chosen(self.scales), self.bits, rows, chosen(self.minimums))

    def groups(self, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Rows of ``x``, sorted by expert, each times its expert's matrix."""
        if not _host.get():
            return grouped_linear(x, self.weight.to(x.dtype), offsets)
        bf16 = self.activations is not None and x.dtype == torch.float32
        index = group_index(offsets)
        matrix = packing.unpack(self._of(index.reshape(1)), x.dtype)[: self.rows_of_expert]
        return grouped_linear(x, matrix, offsets, index, bf16)

    def each(self, x: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        """The row ``x`` [1, K], or a row for each, times the matrices of these experts: [experts, N]."""
        packed = self._of(experts)
        count = len(experts)
        blocks = len(packed.codes) // count

        def for_blocks(tensor: torch.Tensor) -> torch.Tensor:
            if len(x) == 1:
                return tensor.squeeze(0)
            return tensor.unsqueeze(1).expand(-1, blocks, *tensor.shape[1:]).flatten(0, 1)

        rows = x.float()
        if self.activations is None:
            made = packing.times_row(packed, for_blocks(rows))
        else:
            row = packing.quantize_row(rows.reshape(-1), packed.chunk)
            parts = (for_blocks(part.unflatten(0, (len(x), -1))) for part in (row.words, row.totals, row.scales))  # type: ignore[no-untyped-call]
            made = packing.times_quantized_row(packed, QuantizedRow(*parts))
        return made.reshape(count, -1)[:, : self.rows_of_expert].to(x.dtype)


def count_in(module: Any) -> int:
    """How many experts' weights are the module's own; 0 for another module."""
    if isinstance(module, QuantizedExperts):
        return module.experts
    return int(module.num_experts) if matrices(module) else 0


def quantize(module: Any, name: str, kind: str, group: int) -> QuantizedExperts | str:
    """Puts quantized matrices in the place of a parameter of ``matrices``; or why not."""
    weights = module._parameters[name]
    if reason := packing.why_not(weights.shape[1 if module.is_transposed else 2], group):
        return reason
    made = QuantizedExperts.of(weights, module.is_transposed, kind, group)
    put(module, name, made)
    return made


def put(module: Any, name: str, made: QuantizedExperts) -> None:
    """In the place of a parameter of ``matrices``; the model's experts are to be computed by IMPLEMENTATION then."""
    del module._parameters[name]
    setattr(module, name, made.train(False))


def _forward(
    self: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """As ``transformers``' ``grouped_mm_experts_forward``."""
    names = ("gate_up_proj" if self.has_gate else "up_proj", "down_proj")
    weights = [getattr(self, name) for name in names]
    tokens, chosen = hidden_states.shape[0], top_k_index.shape[-1]
    one = isinstance(tokens, int) and tokens == 1
    if self._is_expert_parallel:
        result: torch.Tensor = moe.grouped_mm_experts_forward(self, hidden_states, top_k_index, top_k_weights)
        return result
    experts, shares = top_k_index.reshape(-1), top_k_weights.reshape(-1)
    x = hidden_states
    order = offsets = None
    if not one:
        counts = (experts.unsqueeze(1) == torch.arange(self.num_experts, device=x.device)).sum(0)
        offsets = counts.cumsum(0).to(torch.int32)
        experts, order = torch.sort(experts, stable=True)
        shares, x = shares[order], x[order // chosen]

    def times(weight: Any, x: torch.Tensor) -> torch.Tensor:
        return _each(self, weight, x, experts) if offsets is None else _groups(self, weight, x, offsets)

    x = times(weights[0], x)
    if self.has_bias:
        x = x + getattr(self, f"{names[0]}_bias")[experts]
    x = times(weights[1], self._apply_gate(x) if self.has_gate else self.act_fn(x))
    if self.has_bias:
        x = x + self.down_proj_bias[experts]
    if self.has_post_expert_norm:
        x = self.post_expert_norm(x)
    x = x * shares.unsqueeze(-1)
    if order is not None:
        place = torch.empty_like(order).scatter(0, order, torch.arange(order.shape[0], device=order.device))
        x = x[place]
    return x.reshape(tokens, chosen, x.shape[-1]).sum(1).to(hidden_states.dtype)


def _each(module: Any, weight: Any, x: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    """The row ``x`` [1, K], or a row for each, times the matrices of these experts."""
    if isinstance(weight, QuantizedExperts):
        return weight.each(x, experts)
    # As sums: a kernel that reads the weights where they lie (single_rows), where a product wants a copy of the experts'.
    of, row = weight.index_select(0, experts).float(), x.float()
    products = of * row.unsqueeze(-1 if module.is_transposed else -2)
    return products.sum(1 if module.is_transposed else 2).to(x.dtype)


def _groups(module: Any, weight: Any, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Rows of ``x``, sorted by expert, each times its expert's matrix."""
    if isinstance(weight, QuantizedExperts):
        return weight.groups(x, offsets)
    return grouped_linear(x.to(weight.dtype), weight.transpose(1, 2) if module.is_transposed else weight, offsets)


moe.ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, _forward)


@contextmanager
def compiled(model: Any, one_row: bool, host: bool) -> Iterator[None]:
    """The model's experts are computed for a graph of the CPU (``host``), or of another device, while it is traced."""
    if not model._can_set_experts_implementation():
        yield
        return
    before = model.get_experts_implementation()
    quantized = any(isinstance(module, QuantizedExperts) for module in model.modules())
    if host or quantized:
        model.set_experts_implementation(IMPLEMENTATION)
    elif one_row:
        model.set_experts_implementation("batched_mm")
    token = _host.set(host)
    try:
        yield
    finally:
        _host.reset(token)
        model.set_experts_implementation(before)
