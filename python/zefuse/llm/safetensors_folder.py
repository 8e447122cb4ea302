"""The tensors of a folder of safetensors files, as ``save_pretrained()`` writes them: one file, or several with an index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from zefuse.errors import InvalidArgumentError

_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


class SafetensorsFolder:
    """Reads headers when it is made, tensors when they are asked for; the files are mapped.

    Raises InvalidArgumentError for a folder without such files, and for files that are cut short or whose headers cannot be.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self._tensors: dict[str, tuple[Any, tuple[int, ...], str]] = {}  # file, shape, type
        for path in self._files():
            self._open(path)

    def _files(self) -> list[Path]:
        if (self.place / _WHOLE).is_file():
            return [self.place / _WHOLE]
        index = self.place / _INDEX
        if not index.is_file():
            raise InvalidArgumentError(f"{self.place}: no {_WHOLE} and no {_INDEX} in it")
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            bad = [name for name in names if Path(name).name != name]
        except (AttributeError, KeyError, TypeError, UnicodeDecodeError, ValueError) as error:
            raise InvalidArgumentError(f"{index}: not what save_pretrained() writes: {error!r}") from error
        if bad:
            raise InvalidArgumentError(f"{index}: names the file {bad[0]!r}, outside of its folder")
        return [self.place / name for name in names]

    def _open(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            file: Any = safe_open(path, "pt")
            for name in file.keys():  # noqa: SIM118, it is no dictionary
                part = file.get_slice(name)
                self._tensors[name] = file, tuple(part.get_shape()), part.get_dtype()
        except (OSError, SafetensorError) as error:
            raise InvalidArgumentError(f"{path}: damaged, or no safetensors file: {error}") from error

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name][1]

    def expect(self, name: str, shape: tuple[int, ...], types: tuple[torch.dtype, ...]) -> None:
        """Raises InvalidArgumentError where the tensor is missing or another one."""
        if name not in self:
            raise InvalidArgumentError(f"{self.place}: {name} is not in it")
        _, has, kind = self._tensors[name]
        if has != shape or _TYPES.get(kind) not in types:
            names = " or ".join(str(each).removeprefix("torch.") for each in types)
            raise InvalidArgumentError(f"{self.place}: {name} is {kind} {list(has)}; expected {names} {list(shape)}")

    def read(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._tensors[name][0].get_tensor(name)
        return tensor
