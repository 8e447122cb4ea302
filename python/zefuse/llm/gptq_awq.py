"""Checkpoints of GPTQ and AWQ, as ``save_pretrained()`` and the tools that quantize write them, as models with packed matrices.

A linear layer's weight is ``(q - zero) * scale``, with a scale and a zero for each group of a row. Here lie, for K columns, N rows and
codes of ``bits`` bits, of which 32 / bits stand in a word, the first in its lowest bits:

- GPTQ: ``qweight`` [K * bits / 32, N], words of neighbouring columns; ``qzeros`` [groups, N * bits / 32], of neighbouring rows, each
  less by one than the zero (not so in ``gptq_v2``); ``scales`` [groups, N]; ``g_idx`` [K], each column's group. Columns that were
  quantized in the order of their importance (``desc_act``) have groups of columns from anywhere.
- AWQ ("gemm"): ``qweight`` [K, N / 8] and ``qzeros`` [groups, N / 8], words of eight neighbouring rows in the order 0 2 4 6 1 3 5 7;
  ``scales`` [groups, N].

https://github.com/AutoGPTQ/AutoGPTQ and https://github.com/casper-hansen/AutoAWQ have the layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from zefuse.errors import InvalidArgumentError
from zefuse.llm import filling, stored_codes
from zefuse.llm.packing import Packed
from zefuse.llm.quantized import QuantizedLinear, linear_kinds, replace
from zefuse.llm.safetensors_folder import SafetensorsFolder

METHODS = ("gptq", "awq")
_FORMATS = {"gptq": ("gptq", "gptq_v2"), "awq": ("gemm",)}
_BITS = {"gptq": (2, 4, 8), "awq": (4,)}
_AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]  # where in a word each of eight rows is
_PARTS = ("qweight", "qzeros", "scales", "g_idx")


@dataclass(frozen=True)
class _Form:
    """``quantization_config`` of a checkpoint, as far as it says how its tensors lie."""

    method: str
    bits: int
    group: int  # -1: a whole row
    zeros_less_one: bool

    @classmethod
    def of(cls, settings: dict[str, Any], place: Path) -> _Form:
        def refuse(what: str) -> InvalidArgumentError:
            return InvalidArgumentError(f"{place}: its quantization_config ({method}) has {what}")

        method = settings["quant_method"]
        bits, group = (
            settings.get("bits", settings.get("w_bit")),
            settings.get("group_size", settings.get("q_group_size")),
        )
        names = ("version", "format") if method == "awq" else ("checkpoint_format", "format")
        form = str(next((settings[name] for name in names if settings.get(name)), _FORMATS[method][0])).lower()
        if form not in _FORMATS[method]:
            raise refuse(f"the form {form!r}; read are " + ", ".join(_FORMATS[method]))
        if type(bits) is not int or bits not in _BITS[method]:
            raise refuse(f"bits={bits!r}; read are " + ", ".join(map(str, _BITS[method])))
        if type(group) is not int or (group != -1 and (group < 8 or group % 8)):
            raise refuse(f"group_size={group!r}; read are -1 and multiples of 8")
        return cls(method, bits, group, form == "gptq")


@dataclass(frozen=True)
class _Matrix:
    """A linear layer whose weight the checkpoint has in parts."""

    name: str
    rows: int
    columns: int
    form: _Form

    @property
    def group(self) -> int:
        return self.columns if self.form.group == -1 else self.form.group

    @property
    def groups(self) -> int:
        return self.columns // self.group

    def check(self, files: SafetensorsFolder) -> None:
        """Raises InvalidArgumentError where the parts do not have the sizes and types that the layer asks for."""
        in_word = 32 // self.form.bits
        for what, size, unit in (("columns", self.columns, self.group), ("rows", self.rows, in_word)):
            if size % unit:
                raise InvalidArgumentError(
                    f"{files.place}: {self.name} has {size} {what}, no multiple of "
                    + (f"the group's {unit}" if what == "columns" else f"the {unit} in a word")
                )
        if self.group % 8:
            raise InvalidArgumentError(
                f"{files.place}: {self.name} has groups of {self.group}; read are multiples of 8"
            )
        whole = (torch.int32,)
        zeros = self.groups, self.rows // in_word
        codes = (self.columns // in_word, self.rows) if self.form.method == "gptq" else (self.columns, zeros[1])
        files.expect(f"{self.name}.qweight", codes, whole)
        files.expect(f"{self.name}.qzeros", zeros, whole)
        files.expect(f"{self.name}.scales", (self.groups, self.rows), (torch.float16, torch.bfloat16, torch.float32))
        if self._has_groups(files):
            files.expect(f"{self.name}.g_idx", (self.columns,), whole)
            groups = files.read(f"{self.name}.g_idx")
            if groups.min() < 0 or groups.max() >= self.groups:
                raise InvalidArgumentError(
                    f"{files.place}: {self.name}.g_idx names groups from {int(groups.min())} to {int(groups.max())}; "
                    f"there are {self.groups}"
                )
            if (counts := groups.bincount(minlength=self.groups)).ne(self.group).any():
                raise InvalidArgumentError(
                    f"{files.place}: {self.name}.g_idx has groups of {int(counts.min())} to {int(counts.max())} columns; "
                    f"read are groups of {self.group}"
                )

    def _has_groups(self, files: SafetensorsFolder) -> bool:
        name = f"{self.name}.g_idx"
        return self.form.method == "gptq" and name in files and files.shape(name) != (0,)

    def read(self, files: SafetensorsFolder) -> tuple[Packed, torch.Tensor | None]:
        """The packed matrix, and which of the layer's columns each of its columns is; None: the same."""
        order = None
        if self._has_groups(files):
            groups = files.read(f"{self.name}.g_idx")
            if not torch.equal(groups, groups.sort().values):
                order = groups.argsort(stable=True)
        qweight, qzeros = (files.read(f"{self.name}.{part}") for part in ("qweight", "qzeros"))
        scales = files.read(f"{self.name}.scales").t().contiguous()
        bits = self.form.bits
        if self.form.method == "gptq":
            codes, zeros = _in_words(qweight, bits).permute(1, 0, 2).flatten(1), _in_words(qzeros, bits).flatten(1)
        else:
            codes, zeros = (_in_words(each, bits)[..., _AWQ_PLACES].flatten(1) for each in (qweight, qzeros))
            codes = codes.t()
        if order is not None:
            codes = codes[:, order]
        if self.form.zeros_less_one:
            zeros = (zeros + 1) & ((1 << bits) - 1)
        return _packed(codes.unflatten(1, (-1, self.group)), zeros.t(), scales, bits), order  # type: ignore[no-untyped-call]


def _in_words(words: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 [.., n] to uint8 [.., n, 32 / bits]."""
    of_bytes = words.contiguous().unsqueeze(-1).view(torch.uint8)
    return torch.stack([(of_bytes >> place) & ((1 << bits) - 1) for place in range(0, 8, bits)], -1).flatten(-2)


def _packed(codes: torch.Tensor, zeros: torch.Tensor, scales: torch.Tensor, bits: int) -> Packed:
    """Of codes [rows, groups, group], zeros and scales [rows, groups]. One zero for all, in the middle, needs no minimums."""
    kept = max(bits, 4)
    if (zeros == 1 << (bits - 1)).all():
        return stored_codes.pack((codes - (1 << (bits - 1))) & ((1 << kept) - 1), scales, kept)
    return stored_codes.pack(codes, scales, kept, zeros.float() * -scales.float())  # exact: at most 8 bits times 11


def load(folder: Path, settings: dict[str, Any], dtype: torch.dtype, keep: bool) -> Any:
    """The model, in evaluation mode. ``settings``: its ``quantization_config``. ``keep``: the matrices stay packed, else they are
    dequantized.

    Everything that the files' headers, and ``g_idx``, say is looked at before any weight is read. Raises InvalidArgumentError for what is
    not read, and for what is damaged.
    """
    from transformers import AutoConfig, GenerationConfig

    form = _Form.of(settings, folder)
    files = SafetensorsFolder(folder)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the model is none of what transformers would make of it
    model = filling.empty(config, dtype)
    matrices = _matrices(model, files, form)
    rest = _rest(model, files, {f"{each.name}.weight" for each in matrices})
    for matrix in matrices:
        packed, order = matrix.read(files)
        _put(model, matrix.name, packed, order, dtype, keep)
    filling.fill(model, {name: files.read(name) for name in rest}, dtype, folder)
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model


def _matrices(model: Any, files: SafetensorsFolder, form: _Form) -> list[_Matrix]:
    kinds = linear_kinds()
    found = []
    for name, module in model.named_modules():
        if type(module) in kinds and f"{name}.qweight" in files:
            rows, columns = module.weight.shape[::-1] if kinds[type(module)] else module.weight.shape
            found.append(_Matrix(name, rows, columns, form))
            found[-1].check(files)
    known = {each.name for each in found}
    for name in files:
        owner, _, own = name.rpartition(".")
        if own in _PARTS and owner not in known:
            raise InvalidArgumentError(
                f"{files.place}: {name} is no part of a linear layer of {type(model).__name__} "
                "(weights of experts and scaled activations are not read)"
            )
    if not found:
        raise InvalidArgumentError(
            f"{files.place}: its config.json says {form.method}, and no tensor is a part of such a matrix"
        )
    return found


def _rest(model: Any, files: SafetensorsFolder, packed: set[str]) -> list[str]:
    """Parameters that the files have as they are."""
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    names = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name in files:
            files.expect(name, tuple(parameter.shape), (torch.float32, torch.float16, torch.bfloat16))
            names.append(name)
        elif name not in packed and name not in tied:
            raise InvalidArgumentError(f"{files.place}: the model's {name} is not in it")
    return names


def _put(model: Any, name: str, packed: Packed, order: torch.Tensor | None, dtype: torch.dtype, keep: bool) -> None:
    module = model.get_submodule(name)
    made = QuantizedLinear(packed, None, dtype, order)
    made.bias = module.bias  # its values come later
    if keep:
        replace(model, name, made)
        return
    transposed = linear_kinds()[type(module)]
    module.weight = nn.Parameter(made.weight.t().contiguous() if transposed else made.weight, requires_grad=False)
