"""Reductions of images with channels innermost whose rows are groups of channels: several rows are walked together.

Against double precision, with the plan: no copy into another order, and which kernels walk so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import zefuse

NOTE = "neighbours in each place"
# Images, groups: vectors that are full, overlap, or hold several rows; several strips of a row of channels, and one.
CASES: dict[str, tuple[tuple[int, int, int, int], int]] = {
    "pieces of ten": ((1, 320, 8, 8), 32),
    "pieces of a vector": ((2, 512, 6, 7), 32),
    "pieces of two vectors": ((1, 256, 8, 8), 8),
    "short pieces": ((2, 128, 9, 7), 32),
    "an odd number of pieces": ((3, 12, 8, 8), 3),
    "prime pieces": ((1, 77, 6, 6), 7),
    "two rows": ((2, 60, 8, 8), 2),
    "long sums": ((1, 48, 70, 70), 16),
}


def channels_last(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(1)).to(memory_format=torch.channels_last) + 2


def interleaved(function: Callable[..., Any], *inputs: Tensor) -> int:
    """How many kernels walk so; there is no other order of memory than the image's."""
    explanation = zefuse.explain(function, *inputs)
    assert not explanation.fallbacks
    assert "layout_copy" not in {kernel["name"] for kernel in explanation.kernels}
    return sum(NOTE in kernel["schedule"] for kernel in explanation.kernels)


def check(function: Callable[..., Any], *inputs: Tensor, bound: float = 2e-6) -> None:
    """As near to double precision as single precision gets, with eager's strides."""
    actual, eager = torch.compile(function, backend="zefuse")(*inputs), function(*inputs)
    exact = function(*[x.double() for x in inputs])
    if isinstance(actual, Tensor):
        actual, eager, exact = [actual], [eager], [exact]
    for one, other, right in zip(actual, eager, exact, strict=True):
        assert one.stride() == other.stride()
        assert (one.double() - right).abs().max() <= bound * right.abs().max()


@pytest.mark.parametrize("case", CASES)
def test_group_norm(case: str) -> None:
    sizes, groups = CASES[case]
    x, w, b = channels_last(*sizes), torch.randn(sizes[1]), torch.randn(sizes[1])

    def norm(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        n, channels, height, width = x.shape
        return torch.ops.aten.native_group_norm(x, w, b, n, channels, height * width, groups, 1e-5)

    check(norm, x, w, b)
    assert interleaved(norm, x, w, b) == 1
    assert interleaved(norm, x.contiguous(), w, b) == 0


@pytest.mark.parametrize("case", CASES)
def test_other_reductions(case: str) -> None:
    sizes, groups = CASES[case]

    def grouped(x: Tensor) -> Tensor:
        n, channels, height, width = x.shape
        return x.permute(0, 2, 3, 1).reshape(n, height * width, groups, channels // groups)

    def largest_and_sum(x: Tensor) -> tuple[Tensor, Tensor]:
        return grouped(x).amax((1, 3)), grouped(x).sum((1, 3))

    def spread(x: Tensor) -> tuple[Tensor, ...]:
        return torch.var_mean(grouped(x), (1, 3))

    for function in largest_and_sum, spread:
        check(function, channels_last(*sizes))
        assert interleaved(function, channels_last(*sizes)) == 1


def test_kept_values() -> None:
    """What costs much is computed once, also of rows that share the memory of what is kept."""
    sizes, groups = CASES["prime pieces"]
    x = channels_last(*sizes)
    check(lambda x: F.silu(F.group_norm(F.gelu(x), groups)), x)
    schedule = zefuse.explain(lambda x: F.group_norm(F.gelu(x), groups), x).kernels[0]["schedule"]
    assert NOTE in schedule and "keeps 1 of a row's values" in schedule


def test_written_in_place() -> None:
    """A vector that overlaps the one before would read what that has written."""
    sizes, groups = CASES["prime pieces"]

    def overwrite(x: Tensor) -> Tensor:
        x.copy_(F.group_norm(x, groups))
        return x

    x = channels_last(*sizes)
    right = F.group_norm(x.double(), groups)
    torch.compile(overwrite, backend="zefuse")(x)
    assert (x.double() - right).abs().max() <= 2e-6 * right.abs().max()


def test_symbolic_places() -> None:
    compiled = torch.compile(lambda x: F.group_norm(x, 8), backend="zefuse", dynamic=True)
    for height, width in (8, 8), (9, 7), (5, 40), (1, 3), (70, 30):
        x = channels_last(2, 48, height, width)
        right = F.group_norm(x.double(), 8)
        assert (compiled(x).double() - right).abs().max() <= 2e-6 * right.abs().max()


def test_bfloat16() -> None:
    x = channels_last(1, 320, 8, 8).bfloat16()
    actual = torch.compile(lambda x: F.group_norm(x, 32), backend="zefuse")(x)
    right = F.group_norm(x.double(), 32)
    assert (actual.double() - right).abs().max() <= 2**-8 * right.abs().max()


@pytest.mark.parametrize("case", ["pieces of ten", "short pieces", "prime pieces"])
def test_gradients(case: str) -> None:
    sizes, groups = CASES[case]

    def gradients(function: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        generator = torch.Generator().manual_seed(2)
        inputs = [
            channels_last(*sizes),
            torch.randn(sizes[1], generator=generator),
            torch.randn(sizes[1], generator=generator),
        ]
        inputs = [x.to(dtype).requires_grad_() for x in inputs]
        y = function(*inputs)
        grad = torch.randn(sizes, generator=generator).to(memory_format=torch.channels_last)
        return list(torch.autograd.grad(y, inputs, grad.to(dtype)))

    def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.silu(F.group_norm(x, groups, w, b))

    exact = gradients(norm, torch.float64)
    for one, right in zip(gradients(torch.compile(norm, backend="zefuse"), torch.float32), exact, strict=True):
        assert (one.double() - right).abs().max() <= 3e-6 * right.abs().max()


def gradient_kernels(images: tuple[int, int, int, int], groups: int) -> list[str]:
    """The schedules of a group norm's derivative."""
    inputs = [channels_last(*images), torch.randn(images[1]), torch.randn(images[1])]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    torch._dynamo.reset()  # else sizes of a second call are symbols
    explanation = zefuse.explain(lambda x, w, b: F.group_norm(x, groups, w, b), *inputs)
    return [kernel["schedule"] for kernel in explanation.kernels if kernel["graph"] == 1]


def test_sums_by_channel() -> None:
    """Beside them is read what a group has one of: the groups' channels are one dimension with lanes all the same."""
    assert any("20 vectors at a time" in schedule for schedule in gradient_kernels((1, 320, 16, 16), 32))
    assert any("24 vectors at a time" in schedule for schedule in gradient_kernels((1, 384, 16, 16), 32))


def test_all_of_a_place_is_walked() -> None:
    """What a later stage reads again is not worth passing over parts of each place."""
    for images in (1, 320, 64, 64), (1, 384, 32, 32):
        assert any("32 rows at a time" in schedule for schedule in gradient_kernels(images, 32))
    x, w = channels_last(8, 128, 32, 32), torch.randn(128)
    explanation = zefuse.explain(lambda x, w: F.batch_norm(x, None, None, w, w, training=True), x, w)
    assert ["8 vectors at a time" in kernel["schedule"] for kernel in explanation.kernels] == [True]


def test_threads_change_no_bit() -> None:
    """Threads share the rows that one walks together, in units of full vectors."""

    def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.group_norm(x, 32, w, b)

    for sizes in (2, 320, 48, 48), (1, 384, 64, 64):
        inputs = [channels_last(*sizes), torch.randn(sizes[1]), torch.randn(sizes[1])]
        inputs = [tensor.requires_grad_() for tensor in inputs]
        compiled, grad = torch.compile(norm, backend="zefuse"), channels_last(*sizes)
        results, before = [], torch.get_num_threads()
        try:
            for threads in 1, 3, 8:
                torch.set_num_threads(threads)
                y = compiled(*inputs)
                results.append([y.detach(), *torch.autograd.grad(y, inputs, grad)])
        finally:
            torch.set_num_threads(before)
        for other in results[1:]:
            assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))
        right = norm(*[tensor.double() for tensor in inputs])
        assert (results[0][0].double() - right).abs().max() <= 2e-6 * right.abs().max()


def test_plan_of_gradients() -> None:
    """Large enough for one order of memory to be enforced: of a reshaped image it is not that of the image's numbers."""
    x, w, b = channels_last(1, 320, 32, 32), torch.randn(320), torch.randn(320)
    inputs = [tensor.requires_grad_() for tensor in (x, w, b)]
    assert interleaved(lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)), *inputs) == 2


# Channels of several images and their groups: vectors of all channels of a place are full, or overlap.
SLICED: dict[str, tuple[tuple[int, int, int, int], int]] = {
    "one image": ((1, 320, 64, 64), 32),
    "vectors that overlap": ((1, 170, 64, 64), 17),
    "two images": ((2, 96, 64, 64), 8),
}


@pytest.mark.parametrize("case", SLICED)
def test_few_groups_of_large_images_have_units_for_many_threads(case: str, tmp_path: Path) -> None:
    """Slices of their places have means of their own; what is normalized walks all of a place."""
    sizes, groups = SLICED[case]

    def norm(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        n, channels, height, width = x.shape
        return torch.ops.aten.native_group_norm(x, w, b, n, channels, height * width, groups, 1e-5)

    x, w, b = channels_last(*sizes) + 5, torch.randn(sizes[1]), torch.randn(sizes[1])
    check(norm, x, w, b)
    torch._dynamo.reset()
    compiled = torch.compile(norm, backend="zefuse", dynamic=False, options={"dump_dir": str(tmp_path)})
    results, before = [], torch.get_num_threads()
    try:
        for threads in 1, 3, 8:
            torch.set_num_threads(threads)
            results.append(compiled(x, w, b))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))
    plan = json.loads((tmp_path / "graph_0" / "plan.json").read_text())
    launches = [step["kind"] for step in plan["steps"]]
    assert len(launches) == 3, launches
    sums, combined, normalized = ([plan["exprs"][kind["extent"]]["value"], kind["grain"]] for kind in launches)
    assert sums[0] >= 16 * sums[1] and normalized[0] >= 16 * normalized[1], launches
    assert combined[0] <= sizes[0] * groups
    assert "the lanes of 2 values loaded once" in launches[2]["note"]["schedule"]


def test_pieces_of_a_place_are_one_dimension() -> None:
    """Of pointwise kernels as well: what a group has one of is loaded once for all places of an image."""

    def scale(x: Tensor, by: Tensor, to: Tensor, offsets: Tensor) -> Tensor:
        n, channels, height, width = x.shape
        groups = by.shape[1]
        grouped = x.view(n, groups, channels // groups, height, width)
        scaled = grouped * by.view(n, groups, 1, 1, 1) + to.view(groups, 1, 1, 1)
        return scaled.view(x.shape) - offsets.view(-1, 1, 1)

    def in_place(x: Tensor, by: Tensor, to: Tensor, offsets: Tensor) -> Tensor:
        return x.copy_(scale(x, by, to, offsets))

    for sizes, groups in ((1, 320, 8, 9), 32), ((3, 77, 6, 6), 11), ((2, 12, 8, 8), 3):
        inputs = channels_last(*sizes), torch.randn(sizes[0], groups), torch.randn(groups), torch.randn(sizes[1])
        torch._dynamo.reset()
        (kernel,) = zefuse.explain(scale, *inputs).kernels
        assert "the lanes of 2 values loaded once" in kernel["schedule"], kernel["schedule"]
        right = scale(*[tensor.double() for tensor in inputs])
        before = torch.get_num_threads()
        try:
            for function in scale, in_place:
                for threads in 1, 3:
                    torch.set_num_threads(threads)
                    actual = torch.compile(function, backend="zefuse")(inputs[0].clone(), *inputs[1:])
                    assert (actual.double() - right).abs().max() <= 1e-6 * right.abs().max()
        finally:
            torch.set_num_threads(before)
