"""Where a graph's tensors lie: on the CPU, or on one of torch's GPUs that zefuse has a driver for.

A plan's device comes from its tensors. One for a GPU of torch's runs in torch's context of that device, on torch's current stream,
with results from torch's allocator; what no plan can hold (``parts.py``) runs in eager on the same stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.fx import GraphModule

from zefuse.errors import OutOfMemoryError


class DeviceOutOfMemoryError(OutOfMemoryError, torch.OutOfMemoryError):  # type: ignore[misc, name-defined, unused-ignore]
    """A GPU has no room, also after torch's cache was emptied: the message says for how many bytes of what."""


# Types of torch's devices -> what runtime/ze/device.h calls the device with torch's index. A device of another type is not for a
# plan: what works there runs in eager.
NAMES = {"cuda": "cuda:{}", "xpu": "xpu:{}"}


def is_placed(value: Any) -> bool:
    """Whether it is a tensor on a GPU of torch's that plans may be for."""
    return isinstance(value, torch.Tensor) and value.device.type in NAMES


def any_placed(values: Iterable[Any]) -> bool:
    return any(map(is_placed, values))


def of_graph(gm: GraphModule) -> torch.device | None:
    """The device that a functional graph's plan is for; None: the CPU. Where there are several, the one with most of the graph's
    nodes: the others' run in eager (``parts.outside``)."""
    found = Counter(
        value.device for node in gm.graph.nodes for value in tensors_of(node.meta.get("val")) if is_placed(value)
    )
    return max(found, key=lambda device: (found[device], -(device.index or 0))) if found else None


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_of(item)


def settings(place: torch.device | None) -> dict[str, Any]:
    """What the compiled part is told besides the options."""
    if place is None:
        return {}
    index = place.index or 0
    return {"device": NAMES[place.type].format(index), "place": f"{place.type}:{index}", "build_beside": True}
