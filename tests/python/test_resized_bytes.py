"""Images of bytes resized on the CPU, where eager's weights are whole numbers: the same bytes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_same_bytes(mode: str, dynamic: bool) -> None:
    def function(image: torch.Tensor) -> list[torch.Tensor]:
        kinds = [{}, {"antialias": True}, {"align_corners": True}]
        smaller = [F.interpolate(image, size=(7, 9), mode=mode, **kind) for kind in kinds]
        return [*smaller, F.interpolate(image, size=(20, 31), mode=mode) + 1]

    image = torch.randint(0, 256, (1, 3, 13, 17), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for format in (torch.contiguous_format, torch.channels_last):
        given = image.contiguous(memory_format=format)
        actual, expected = torch.compile(function, backend="zefuse", dynamic=dynamic)(given), function(given)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        assert [each.stride() for each in actual] == [each.stride() for each in expected]
