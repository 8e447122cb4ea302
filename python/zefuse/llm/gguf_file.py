"""What is looked at in a GGUF file before anything reads it: that it is whole, and that its numbers hold."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from zefuse.errors import InvalidArgumentError

# Bytes of metadata values by their type; 8 is a string, 9 an array.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
# Tensor types: their name, elements of a block, bytes of a block.
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 30: ("BF16", 1, 2),
}  # fmt: skip
_MOST_NUMBERS, _MOST_DIMENSIONS = 1 << 20, 4


def check(path: Path) -> None:
    """Raises InvalidArgumentError for a file that is cut short, or says what cannot be, or holds unknown quantizations."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise InvalidArgumentError(f"{path}: not a GGUF file, and no folder that save_pretrained() wrote")
        try:
            _check(_Reader(file, size), size)
        except _Damaged as error:
            raise InvalidArgumentError(f"{path}: damaged GGUF file: {error}") from None


class _Damaged(Exception):
    pass


class _Reader:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size = file, size

    def skip(self, count: int) -> None:
        if self.file.tell() + count > self.size:
            raise _Damaged("it is cut short")
        self.file.seek(count, 1)

    def take(self, form: str) -> int:
        data = self.file.read(struct.calcsize(form))
        if len(data) < struct.calcsize(form):
            raise _Damaged("it is cut short")
        return int(struct.unpack(form, data)[0])

    def text(self) -> str:
        length = self.take("<Q")
        if length > self.size - self.file.tell():
            raise _Damaged(f"a text of {length} bytes is longer than the file")
        return self.file.read(length).decode(errors="replace")

    def value(self, kind: int) -> int | None:
        """Passes over a value; gives it where it is a u32."""
        if kind == _STRING:
            self.text()
        elif kind == _ARRAY:
            inner, count = self.take("<I"), self.take("<Q")
            if inner == _STRING:
                if count > self.size:
                    raise _Damaged(f"an array of {count} texts is longer than the file")
                for _ in range(count):
                    self.text()
            elif inner in _SIZES:
                self.skip(_SIZES[inner] * count)
            else:
                raise _Damaged(f"an array of type {inner}")
        elif kind == 4:
            return self.take("<I")
        elif kind in _SIZES:
            self.skip(_SIZES[kind])
        else:
            raise _Damaged(f"a value of type {kind}")
        return None


def _check(read: _Reader, size: int) -> None:
    version, tensors, values = read.take("<I"), read.take("<Q"), read.take("<Q")
    if version not in (2, 3):
        raise _Damaged(f"version {version}, where 2 and 3 are known")
    if max(tensors, values) > _MOST_NUMBERS:
        raise _Damaged(f"{tensors} tensors and {values} values")
    alignment = 32
    for _ in range(values):
        name = read.text()
        number = read.value(read.take("<I"))
        if name == "general.alignment" and number is not None:
            alignment = number
    if alignment == 0 or alignment & (alignment - 1):
        raise _Damaged(f"an alignment of {alignment}")
    ends = []
    for _ in range(tensors):
        name, rank = read.text(), read.take("<I")
        if rank > _MOST_DIMENSIONS:
            raise _Damaged(f"tensor {name!r} of {rank} dimensions")
        shape = [read.take("<Q") for _ in range(rank)]
        kind, offset = read.take("<I"), read.take("<Q")
        if kind not in TYPES:
            known = ", ".join(name for name, _, _ in TYPES.values())
            raise _Damaged(
                f"tensor {name!r} has the unknown quantization {kind}; known: {known}. "
                "llama.cpp's llama-quantize makes one of the other"
            )
        _, block, of_block = TYPES[kind]
        if shape and shape[0] % block:
            raise _Damaged(f"tensor {name!r} has rows of {shape[0]}, no multiple of its blocks' {block}")
        if offset % alignment:
            raise _Damaged(f"tensor {name!r} at {offset}, no multiple of {alignment}")
        count = 1
        for each in shape:
            count *= each
        ends.append((offset + count // block * of_block, name))
    start = -(-read.file.tell() // alignment) * alignment
    end, name = max(ends, default=(0, ""))
    if start + end > size:
        raise _Damaged(f"tensor {name!r} ends at {start + end}, after the file's {size} bytes: it is cut short")
