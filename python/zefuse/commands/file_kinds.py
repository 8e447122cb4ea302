"""What a file is, by its first bytes: for messages about a file of another kind than a command takes."""

from __future__ import annotations

import os
import shlex
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from zefuse.errors import DamagedError, InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    import torch

_MAGIC = 8
_PACKAGE = "a package"
_PROGRAM = "a program of torch.export.save"
_EMPTY = "empty"
_KINDS = (
    (b"ZFPACK\r\n", _PACKAGE),
    (b"ZFEXPORT", "entries of a cache, which `zefuse cache import` takes"),
    (b"\x7fELF", "a program or library"),
    (b"\x03\x02\x23\x07", "SPIR-V"),
    (b"\x80\x02", "a pickle"),
    (b"\x93NUMPY", "an array of NumPy"),
    (b"\x89PNG", "a picture"),
    (b"GGUF", "weights in GGUF"),
)


def package(path: str, command: str) -> str:
    """``path``, where it may be a package. Raises what is wrong with it otherwise, and what to run instead."""
    _check_file(path, command, f"make one with: zefuse compile model.pt2 -o {shlex.quote(path)}")
    kind = _kind(path)
    if kind == _PACKAGE:
        return path
    if kind == _PROGRAM:
        made = shlex.quote(str(Path(path).with_suffix(".zefuse")))
        raise InvalidArgumentError(
            f"{command}: {path!r} is {kind}, not a package; compile it first: zefuse compile {shlex.quote(path)} -o {made}"
        )
    if kind == _EMPTY:
        raise DamagedError(f"{command}: {path!r} is no package: it is empty")
    raise InvalidArgumentError(
        f"{command}: {path!r} is {kind or 'a file of another kind'}, not a package; zefuse compile makes one"
    )


def is_package(path: str) -> bool:
    return os.path.isfile(path) and _kind(path) == _PACKAGE


def program(path: str, command: str) -> str:
    """``path``, where it may be a program of torch.export.save; as ``package``."""
    how = "torch.export.save(torch.export.export(model, inputs), path)"
    _check_file(path, command, f"write one with {how}")
    kind = _kind(path)
    if kind == _PROGRAM:
        return path
    if kind == _PACKAGE:
        raise InvalidArgumentError(f"{command}: {path!r} is a package already: zefuse inspect {shlex.quote(path)}")
    if kind == _EMPTY:
        raise DamagedError(f"{command}: {path!r} is no program of torch.export.save: it is empty")
    raise DamagedError(
        f"{command}: {path!r} is {kind or 'a file of another kind'}, no program of torch.export.save; write one with {how}"
    )


def load_program(path: str, command: str) -> torch.export.ExportedProgram:
    """What torch.export.save wrote. Raises DamagedError where it cannot be read."""
    import torch

    try:
        return torch.export.load(path)
    except Exception as error:  # what torch raises for a damaged archive is not one class
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise DamagedError(f"{command}: {path!r} is no program of torch.export.save: {first}") from error


def _check_file(path: str, command: str, advice: str) -> None:
    if os.path.isdir(path):
        raise InvalidArgumentError(f"{command}: {path!r} is a folder; name a file")
    if not os.path.exists(path):
        from zefuse.commands.command_parser import suggestion

        folder = Path(path).parent
        names = os.listdir(folder) if folder.is_dir() else []
        hint = suggestion(Path(path).name, names)
        raise NotFoundError(f"{command}: no file {path!r}{hint}; {advice}")


def _kind(path: str) -> str:
    """In words; nothing for one that is not known."""
    with open(path, "rb") as file:
        start = file.read(_MAGIC)
    if not start:
        return _EMPTY
    for magic, kind in _KINDS:
        if start.startswith(magic):
            return kind
    if start.startswith(b"PK"):
        return _kind_of_archive(path)
    if path.endswith(".safetensors"):
        return "weights in safetensors"
    if path.endswith(".onnx"):
        return "a model in ONNX"
    return "text" if start.isascii() and start.decode().replace("\n", " ").isprintable() else ""


def _kind_of_archive(path: str) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.partition("/")[2] for name in archive.namelist()}
    except zipfile.BadZipFile:
        return "a damaged archive"
    if "archive_format" in names or "models/model.json" in names:
        return _PROGRAM
    if "constants.pkl" in names and any(name.startswith("code/") for name in names):
        return "a model of torch.jit.save (TorchScript)"
    if "data.pkl" in names:
        return "what torch.save wrote (weights, or a pickled model)"
    return "a zip archive"
