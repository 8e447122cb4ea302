"""A package through the C interface (zefuse.h), in a process without torch: what starts in milliseconds.

``zefuse.load`` is for torch's tensors; this is for commands and language models, which need no more than NumPy.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from zefuse import _native
from zefuse.errors import BY_CODE, InstallationError, InternalError

_CPU = 1  # DLPack's device type


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    """DLPack's DLTensor: describes memory and owns none of it. Strides are in elements."""

    owner: Any

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Managed._fields_ = [
    ("tensor", Tensor),
    ("context", ctypes.c_void_p),
    ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))),
]


class _Info(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", _DType),
        ("ndim", ctypes.c_int32),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("size_text", ctypes.POINTER(ctypes.c_char_p)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


class _LoadOptions(ctypes.Structure):
    """As far as it is used; the library takes an older caller's size."""

    _fields_ = [("size", ctypes.c_size_t), ("device", ctypes.c_char_p), ("cache_dir", ctypes.c_char_p)]


class _CallOptions(ctypes.Structure):
    """Likewise."""

    _fields_ = [("size", ctypes.c_size_t), ("results_on_device", ctypes.c_int32), ("in_stream", ctypes.c_int32)]


class OwnTensor:
    """A tensor that the library made, in CPU memory or on the model's GPU; it goes with this object, and may outlive the model."""

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        self._managed.contents.deleter(self._managed)

    @property
    def tensor(self) -> Tensor:
        described: Tensor = self._managed.contents.tensor
        described.owner = self  # its sizes and memory live as long
        return described

    @property
    def on_device(self) -> bool:
        return self.tensor.device_type != _CPU


@dataclass(frozen=True)
class Info:
    """An input or output; ``sizes`` has -1 where a call decides."""

    name: str
    sizes: tuple[int, ...]
    dtype: tuple[int, int, int]  # DLPack's code, bits, lanes

    @property
    def element_bytes(self) -> int:
        return self.dtype[1] // 8


class CModel:
    """A loaded package. Thread-safe; it is given back when nobody has it any more.

    Raises what ``zefuse.errors`` names, with the C interface's own sentences: NotFoundError, DamagedError, UnsupportedError.
    """

    def __init__(self, path: str, device: str = "cpu", cache_dir: str | None = None) -> None:
        self._library = _library()
        self._model = ctypes.c_void_p()
        options = _LoadOptions(ctypes.sizeof(_LoadOptions), device.encode(), cache_dir and os.fsencode(cache_dir))
        load = self._library.zefuse_model_load_file
        self._check(load(os.fsencode(path), ctypes.byref(options), ctypes.byref(self._model)))
        self.inputs = [self._info("input", number) for number in range(self._count("inputs"))]
        self.outputs = [self._info("output", number) for number in range(self._count("outputs"))]

    def __del__(self) -> None:
        if model := getattr(self, "_model", None):
            self._library.zefuse_model_release(model)

    def file(self, name: str) -> bytes:
        """What the package carries under this name. Raises NotFoundError."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._check(self._library.zefuse_model_file(self._model, name.encode(), ctypes.byref(data), ctypes.byref(size)))
        return ctypes.string_at(data, size.value)

    def call(self, inputs: Sequence[Tensor]) -> list[np.ndarray[Any, Any]]:
        """Runs the model on tensors that stay the caller's, of which it writes those that it changes in place. Gives copies of its
        outputs, of f32 and i64."""
        results = (ctypes.POINTER(_Managed) * len(self.outputs))()
        self._check(self._library.zefuse_model_call(self._model, *_listed(inputs), results, len(results)))
        return [_copied(each.tensor) for each in map(OwnTensor, results)]

    def call_on_device(self, inputs: Sequence[Tensor]) -> list[OwnTensor | None]:
        """As ``call``, on a GPU, where its outputs stay: the next call's inputs. Inputs may lie there, or in CPU memory."""
        results = (ctypes.POINTER(_Managed) * len(self.outputs))()
        options = _CallOptions(ctypes.sizeof(_CallOptions), 1, 0)
        self._check(
            self._library.zefuse_model_call_with(
                self._model, ctypes.byref(options), *_listed(inputs), results, len(results)
            )
        )
        return [OwnTensor(each) if each else None for each in results]

    def copied(self, given: Tensor, to_device: bool) -> OwnTensor:
        """A row-major tensor with the same elements, on the model's GPU or in CPU memory."""
        result = ctypes.POINTER(_Managed)()
        copy = self._library.zefuse_model_copy_tensor
        self._check(copy(self._model, ctypes.byref(given), int(to_device), ctypes.byref(result)))
        return OwnTensor(result)

    def array(self, given: OwnTensor) -> np.ndarray[Any, Any]:
        """Its elements, of f32 or i64, wherever it lies."""
        return _copied(self.copied(given.tensor, to_device=False).tensor)

    def _count(self, kind: str) -> int:
        return int(getattr(self._library, f"zefuse_model_num_{kind}")(self._model))

    def _info(self, kind: str, number: int) -> Info:
        info = _Info()
        self._check(getattr(self._library, f"zefuse_model_{kind}")(self._model, number, ctypes.byref(info)))
        dtype = info.dtype.code, info.dtype.bits, info.dtype.lanes
        return Info(info.name.decode(), tuple(info.sizes[: info.ndim]), dtype)

    def _check(self, status: int) -> None:
        if status:
            code = self._library.zefuse_status_name(status).decode().replace(" ", "_")
            raise BY_CODE.get(code, InternalError)(self._library.zefuse_error_message().decode(errors="replace"))


def _listed(inputs: Sequence[Tensor]) -> tuple[Any, int]:
    return (ctypes.POINTER(Tensor) * len(inputs))(*map(ctypes.pointer, inputs)), len(inputs)


def tensor(
    data: int, dtype: tuple[int, int, int], sizes: Sequence[int], strides: Sequence[int] | None = None
) -> Tensor:
    """Of memory at an address, row-major without strides."""
    numbers = ctypes.c_int64 * len(sizes)
    made = Tensor(data, _CPU, 0, len(sizes), _DType(*dtype), numbers(*sizes))
    if strides is not None:
        made.strides = numbers(*strides)
    return made


def num_threads(wanted: int | None = None) -> int:
    """How many threads calls of this thread use; sets it where ``wanted``."""
    library = _library()  # with the OpenMP that it is linked with
    if wanted is not None:
        library.omp_set_num_threads(ctypes.c_int(wanted))
    return int(library.omp_get_max_threads())


I64 = (0, 64, 1)
_NUMPY: dict[tuple[int, int, int], Any] = {I64: np.int64, (2, 32, 1): np.float32}


def _copied(given: Tensor) -> np.ndarray[Any, Any]:
    """Of a row-major tensor."""
    kind = np.dtype(_NUMPY[given.dtype.code, given.dtype.bits, given.dtype.lanes])
    shape = tuple(given.shape[: given.ndim])
    count = int(np.prod(shape))
    memory = ctypes.string_at(given.data + given.byte_offset, count * kind.itemsize)
    return np.frombuffer(memory, kind).reshape(shape)


@cache
def _library() -> ctypes.CDLL:
    file = _native.library_dir() / "libzefuse_runtime.so.1"
    try:
        library = ctypes.CDLL(os.fspath(file))
        library.zefuse_model_copy_tensor  # noqa: B018  # the newest function that is used
    except (OSError, AttributeError) as error:
        raise InstallationError(_native.broken(file, error)) from error
    size, pointer, text = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("status_name", text, [ctypes.c_int]),
        ("error_message", text, []),
        ("model_load_file", ctypes.c_int, [text, pointer, pointer]),
        ("model_release", None, [pointer]),
        ("model_num_inputs", size, [pointer]),
        ("model_num_outputs", size, [pointer]),
        ("model_input", ctypes.c_int, [pointer, size, pointer]),
        ("model_output", ctypes.c_int, [pointer, size, pointer]),
        ("model_file", ctypes.c_int, [pointer, text, pointer, pointer]),
        ("model_call", ctypes.c_int, [pointer, pointer, size, pointer, size]),
        ("model_call_with", ctypes.c_int, [pointer, pointer, pointer, size, pointer, size]),
        ("model_copy_tensor", ctypes.c_int, [pointer, pointer, ctypes.c_int32, pointer]),
    ):
        function = getattr(library, f"zefuse_{name}")
        function.restype, function.argtypes = result, arguments
    return library
