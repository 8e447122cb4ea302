"""torch's operator database: which operators, dtypes and modes there are, and their sample calls."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal import common_methods_invocations
from torch.utils._pytree import tree_map_only

# Random operators set the seed themselves in the database, which a trace cannot hold: here the caller sets it.
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

DTYPES = {
    name: getattr(torch, name)
    for name in "float32 float64 bfloat16 int64 bool float16 int32 int16 int8 uint8 complex64 complex128".split()
}
MODES = {
    "static": "forward, every size a constant",
    "dynamic": "forward through Dynamo, every size a symbol",
    "training": "forward and backward",
    "inplace": "the variant that overwrites its first argument",
    "errors": "calls that eager refuses",
}
# What gives no value to compare.
NO_VALUE = {
    "empty": "memory that nobody wrote",
    "empty_like": "memory that nobody wrote",
    "empty_permuted": "memory that nobody wrote",
    "empty_strided": "memory that nobody wrote",
    "new_empty": "memory that nobody wrote",
    "new_empty_strided": "memory that nobody wrote",
}


@dataclasses.dataclass(frozen=True)
class Call:
    """One sample: ``function(*tensors)`` is what the database calls."""

    function: Callable[..., Any]
    tensors: tuple[Tensor, ...]
    text: str


def operators() -> dict[str, Any]:
    return {info.full_name: info for info in common_methods_invocations.op_db if info.name not in NO_VALUE}


def questions(names: Sequence[str], dtypes: Sequence[str], modes: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Operator, dtype and mode of each row of the table."""
    infos = operators()
    for name in names or infos:
        info = infos[name]
        for dtype in dtypes:
            if DTYPES[dtype] not in info.dtypes:
                continue
            for mode in modes:
                if mode == "training" and not _trains(info, DTYPES[dtype]):
                    continue
                if mode == "inplace" and info.inplace_variant is None:
                    continue
                # They are the same for each dtype.
                if mode == "errors" and (info.error_inputs_func is None or dtype != dtypes[0]):
                    continue
                yield name, dtype, mode


def _trains(info: Any, dtype: torch.dtype) -> bool:
    floats = dtype.is_floating_point or dtype.is_complex
    return floats and info.supports_autograd and dtype in info.backward_dtypes


def calls(name: str, dtype: str, mode: str) -> list[Call]:
    info = operators()[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if mode == "errors":
            samples = [error.sample_input for error in info.error_inputs("cpu")]
        else:
            samples = list(info.sample_inputs("cpu", DTYPES[dtype], requires_grad=mode == "training"))
    function = info.inplace_variant if mode == "inplace" else info.op
    return [_call(function, sample) for sample in samples]


def _call(op: Callable[..., Any], sample: Any) -> Call:
    """Source that names the tensors x0, x1, ... and whatever is no tensor or number c0, c1, ...: Dynamo follows it without a tree's
    code in between."""
    tensors: list[Tensor] = []
    constants: dict[str, Any] = {"op": op}

    def text(value: Any) -> str:
        if isinstance(value, Tensor):
            tensors.append(value)
            return f"x{len(tensors) - 1}"
        if type(value) in (list, tuple):
            inner = "".join(f"{text(entry)}, " for entry in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner})"
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        constants[f"c{len(constants) - 1}"] = value
        return f"c{len(constants) - 2}"

    arguments = [text(value) for value in (sample.input, *sample.args)]
    arguments += [f"{key}={text(value)}" for key, value in sample.kwargs.items()]
    names = ", ".join(f"x{n}" for n in range(len(tensors)))
    called = f"op({', '.join(arguments)})"
    exec(f"def function({names}):\n    return {called}", constants)
    shapes = ", ".join(f"x{n} {_described(t)}" for n, t in enumerate(tensors))
    others = ", ".join(f"{key}={value}" for key, value in constants.items() if key[0] == "c" and key[1:].isdigit())
    return Call(constants["function"], tuple(tensors), f"{called}; {shapes}; {others}"[:300])


def _described(tensor: Tensor) -> str:
    strides = "" if tensor.layout is not torch.strided or tensor.is_contiguous() else f" strides {tensor.stride()}"
    return f"{str(tensor.dtype)[6:]}{list(tensor.shape)}{strides}"


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Of the same strides and, from the start of what was allocated, at the same place; leaves where those are."""

    def copy(tensor: Tensor) -> Tensor:
        plain = type(tensor) is Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
        if not plain or not tensor.untyped_storage().nbytes():
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        storage = tensor.detach().untyped_storage().clone()
        same = torch.empty(0, dtype=tensor.dtype).set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
        if tensor.is_conj():
            same = same.conj()
        if tensor.is_neg():
            same = torch._neg_view(same)
        return same.requires_grad_(tensor.requires_grad)

    return [copy(tensor) for tensor in tensors]


def in_double(call: Call) -> Call:
    """The same call of double precision."""
    reals = dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), torch.float64)
    wide = reals | {torch.complex64: torch.complex128}
    convert = lambda t: t.to(wide[t.dtype]).requires_grad_(t.requires_grad) if t.dtype in wide else t  # noqa: E731
    space = dict(call.function.__globals__)
    for key, value in space.items():
        if isinstance(value, torch.dtype) and value in wide:
            space[key] = wide[value]
    function = type(call.function)(call.function.__code__, space)
    return Call(function, tuple(tree_map_only(Tensor, convert, list(copies(call.tensors)))), call.text)
