"""A model's weights in huge pages, where the system gives them.

A decoding step reads every weight once, so it is as fast as memory; with pages of 4 KiB the processor spends half of that time on
looking up where they lie, more in virtual machines: on a 2-core EPYC one thread read 12 to 16 GB/s of them, and 21 to 27 of the
same bytes in pages of 2 MiB.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from zefuse.llm import freed_memory

_PAGE = 2 << 20
LEAST = 4 << 20  # bytes of all weights: fewer lie in a cache
_LINE = 64
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def why_not() -> str | None:
    """Why this system gives no huge pages to who asks for them."""
    try:
        setting = _SETTING.read_text()
    except OSError:
        return f"the system has no {_SETTING}"
    return f"{_SETTING} says never" if "[never]" in setting else None


def move(model: torch.nn.Module) -> tuple[str | None, str | None]:
    """Copies parameters and buffers into memory of huge pages, each tensor staying the object that it is; what was changed or what
    was left, in words. Left where they are: tensors of another device, in shared memory, or that are a part of a larger one.

    The old memory goes one tensor after the other, so little is needed beside the weights. Not while another thread uses the model.
    """
    tensors = list(_movable(model))
    size = sum(_space(tensor) for tensor in tensors)
    if size < LEAST:
        return None, None
    if reason := why_not():
        return None, f"weights in small pages, which are read more slowly ({reason})"
    # Python's default is shared memory, which has a setting of its own.
    memory = mmap.mmap(-1, size + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError as error:
        return None, f"weights in small pages, which are read more slowly ({error})"
    at = -_address(memory) % _PAGE
    freed = freed_memory.Freed()
    for tensor in tensors:
        # A storage of its own for each, as before: who saves or shares one tensor means no other. It keeps the memory alive.
        place = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=at)
        place = place.as_strided(tensor.shape, tensor.stride())
        place.copy_(tensor.detach())
        tensor.data = place
        at += _space(tensor)
        freed.note(_space(tensor))
    freed_memory.give_back()
    return f"weights: {size / 1e6:.1f} MB moved to huge pages", None


def _movable(model: torch.nn.Module) -> Iterator[Any]:
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    owners: dict[int, int] = {}  # how many tensors lie in a storage
    for tensor in tensors.values():
        if tensor.device.type == "cpu" and tensor.layout is torch.strided:
            place = tensor.untyped_storage().data_ptr()
            owners[place] = owners.get(place, 0) + 1
    for tensor in tensors.values():
        if (
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.device.type == "cpu"
            and tensor.layout is torch.strided
            and tensor.numel()
            and not tensor.is_inference()
            and not tensor.untyped_storage().is_shared()
            and tensor.storage_offset() == 0
            and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
            and owners[tensor.untyped_storage().data_ptr()] == 1
        ):
            yield tensor


def _space(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // _LINE) * _LINE


def _address(memory: mmap.mmap) -> int:
    return torch.frombuffer(memory, dtype=torch.uint8, count=1).data_ptr()
