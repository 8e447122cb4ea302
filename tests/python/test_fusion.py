"""What becomes one kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import zefuse.explaining.explanation
from zefuse import backend
from zefuse.testing import assert_compiled, relative_error


def test_pointwise_chain_with_broadcasts_and_views() -> None:
    def chain(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        t = F.gelu(x * y + b) * torch.sigmoid(x.transpose(0, 1).contiguous().t())
        t = (t.view(4, 2, 16) + column[:, None, None]).reshape(8, 16)
        return torch.where(t > 0, t, t * 0.1).permute(1, 0)

    assert_compiled(chain, (torch.randn(8, 16), torch.randn(8, 16), torch.randn(16), torch.randn(4)), kernels=1)


def test_pointwise_probe() -> None:
    import workloads

    inputs = tuple(t[..., :33] if t.dim() == 1 else t[:65, :33] for t in workloads.pointwise_inputs())
    assert_compiled(workloads.pointwise, inputs, kernels=1)


def test_softmax_of_scaled_layer_norm() -> None:
    def rows(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.softmax(F.layer_norm(x, (65,), weight, bias) * c, dim=-1)

    assert_compiled(rows, (torch.randn(33, 65), torch.randn(65), torch.randn(65), torch.randn(65)), kernels=1)


def test_the_gradient_of_a_pool_over_everything_sums_nothing(tmp_path: Path) -> None:
    """A sum, even of one element, would keep its kernel's loops in the order of the dims, whatever the layout of the images."""
    x = torch.randn(2, 5, 4, 6).to(memory_format=torch.channels_last).requires_grad_()
    compiled = torch.compile(
        lambda t: F.adaptive_max_pool2d(t.sin(), 1), backend="zefuse", options={"dump_dir": str(tmp_path)}
    )
    (gradient,) = torch.autograd.grad(compiled(x).square().sum(), x)
    (expected,) = torch.autograd.grad(F.adaptive_max_pool2d(x.sin(), 1).square().sum(), x)
    torch.testing.assert_close(gradient, expected)
    assert "reduction" not in (tmp_path / "graph_1" / "2c_kernels.mlir").read_text()


def _in_two_orders(large: bool) -> tuple[torch.Tensor, ...]:
    sizes = (2, 32, 40, 32) if large else (2, 32, 8, 8)
    return torch.randn(sizes), torch.randn(sizes).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("large", [False, True])
def test_a_sum_over_large_images_in_two_orders_copies_one_of_them_first(large: bool) -> None:
    """Of small ones the copy costs what it saves."""

    def sums(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x + y
        return z, z.sum((0, 2, 3))

    assert_compiled(sums, _in_two_orders(large), kernels=2 if large else 1, rtol=1e-4)


@pytest.mark.parametrize("large", [False, True])
def test_a_sum_over_large_images_writes_as_they_lie(large: bool) -> None:
    """Though a convolution reads what it writes channels last: that is copied."""

    def sums(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x + y
        return F.conv2d(z, w, padding=1).contiguous(memory_format=torch.channels_last), z.sum((0, 2, 3))

    x = _in_two_orders(large)[0]
    inputs = (x, torch.randn_like(x), torch.randn(8, 32, 3, 3))
    assert_compiled(sums, inputs, kernels=2 if large else 1, calls=1, rtol=1e-4)


def test_large_images_in_two_orders_are_found_behind_slices_and_concatenations() -> None:
    """As in the derivative of a norm between complex convolutions, each of whose halves is a convolution's."""

    def sums(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return (x[..., 1:] * torch.cat([a, b], 1) + torch.cat([c, a], 1)).sum((0, 2, 3))

    a, b, c = (_in_two_orders(True)[1] for _ in range(3))
    explanation = assert_compiled(sums, (torch.randn(2, 64, 40, 33), a, b, c), kernels=2, rtol=1e-4)
    assert explanation.kernels[0]["name"] == "layout_copy"


def test_the_positions_of_a_pool_are_found_among_the_elements_that_are_stored(tmp_path: Path) -> None:
    """What a batch norm's kernel leaves in bf16 is not stored once more in f32."""
    norm = torch.nn.BatchNorm2d(5).bfloat16()

    def largest(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.relu(norm(x))
        return y, *F.adaptive_max_pool2d(y, 1, return_indices=True)

    x = torch.randn(2, 5, 4, 6).bfloat16()
    with torch.no_grad():
        y, value, place = torch.compile(largest, backend="zefuse", options={"dump_dir": str(tmp_path)})(x)
    expected = F.adaptive_max_pool2d(y, 1, return_indices=True)
    assert torch.equal(value, expected[0]) and torch.equal(place, expected[1])
    results = re.findall(r"zefuse\.kernel[^\n]*->([^\n]*)\{", (tmp_path / "graph_0" / "2c_kernels.mlir").read_text())
    assert any("2x5x4x6xbf16" in each for each in results) and not any("2x5x4x6xf32" in each for each in results)


@pytest.mark.parametrize("dim", [0, 1, (0, 1), -1])
def test_reduction_takes_producer_and_epilogue(dim: Any) -> None:
    def reduce(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x * 0.5).sum(dim, keepdim=True).log() + 1

    assert_compiled(reduce, (torch.randn(12, 7, 9),), kernels=1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("shape", "expanded"), [((9, 1), (9, 33)), ((1, 9), (16, 9)), ((9, 1), (9, 200))])
def test_a_value_of_an_expanded_tensor_is_kept_in_every_place(
    shape: tuple[int, ...], expanded: tuple[int, ...], dynamic: bool
) -> None:
    """The sine is the same along the expanded dimension, and later stages read it at each of its places."""

    def rows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sine = x.sin().reshape(-1)
        return sine.softmax(0), sine.argmin(0), (sine - sine.amax(0)).double().sum()

    x = torch.randn(shape).expand(expanded)
    if dynamic:
        for dim in range(2):
            torch._dynamo.maybe_mark_dynamic(x, dim)
    assert_compiled(rows, (x,), kernels=2 if dynamic else 1)  # flattened symbolic sizes are apart


def test_a_tensor_and_its_first_rows_have_a_copy_each() -> None:
    """The convolution wants both channels last, and x[:3] is the same view of x as x itself but for its sizes."""

    def rows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = F.layer_norm(x, (5,))[..., :3] + 2
        return wide.chunk(2, 2)[0], wide

    assert_compiled(rows, (torch.randn(5, 3, 5, 5).contiguous(memory_format=torch.channels_last),), fallbacks=0)

    def filters(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = torch.fmod(x, 3.0).repeat_interleave(2, 0)
        return F.conv2d(wide, wide.reshape(-1)[:108].reshape(3, 9, 2, 2), padding=1), wide

    assert_compiled(filters, (torch.randn(9, 9, 2, 2),), fallbacks=0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1, x * 2),
        lambda x: x.mean(-1, keepdim=True) - x,
        lambda x: x.amax(-1) + x.amin(-1),
        lambda x: torch.cat([x.sin(), x.cos()], dim=-1) * 2,
        lambda x: (x + 1, (x.t() * 2).contiguous()),
        lambda x: (x > 0, x.double(), x.to(torch.bfloat16) * 2),
        lambda x: (x.sum(-1), x.amax(-1), x * 2),
        lambda x: (x * 2, x.sum(0)),
        lambda x: (x.sum(0), (x * x.tanh()).sum(0)),
        lambda x: (x.softmax(-1), x * 2, (x * x).sum(-1)),
    ],
    ids=[
        "siblings",
        "mean centred",
        "max and min",
        "cat",
        "transposed sibling",
        "types",
        "reductions beside their input",
        "outer reduction beside its input",
        "bias gradients",
        "softmax and siblings",
    ],
)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("rows", [6, 40])
def test_one_kernel(function: Callable[[torch.Tensor], Any], dynamic: bool, rows: int) -> None:
    x = torch.randn(rows, 40)
    if dynamic:
        for dim in range(2):
            torch._dynamo.maybe_mark_dynamic(x, dim)
    assert_compiled(function, (x,), kernels=1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.tanh(), x.tanh().sum(0)),
        lambda x: (x - x.mean(0)) * torch.rsqrt((x - x.mean(0)).square().mean(0) + 1e-5),
        lambda x: (x.amax(0), (x > 0).sum(0), x.double().sum(0)),
        lambda x: (x * 2).view(4, -1, x.shape[1]).sum(1, keepdim=True).exp(),
        lambda x: x.softmax(0),
        lambda x: x.log_softmax(0),
    ],
    ids=["bias gradient", "batch norm", "types", "lines", "softmax", "log_softmax"],
)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("columns", [37, 64, 2100])
def test_outer_reductions_read_memory_as_it_lies(
    function: Callable[[torch.Tensor], Any], dynamic: bool, columns: int
) -> None:
    x = torch.randn(132, columns) + 1
    if dynamic:
        torch._dynamo.maybe_mark_dynamic(x, 1)
    explanation = assert_compiled(function, (x,), kernels=1)
    (kernel,) = explanation.kernels
    assert "lanes across rows" in kernel["schedule"] and "vectors at a time" in kernel["schedule"], kernel["schedule"]
    # What an output stores early is not computed for it again, and one exponential is sooner computed again than read.
    assert "keeps" not in kernel["schedule"]


def test_what_costs_much_is_kept_in_outer_reductions() -> None:
    x = torch.randn(132, 64)
    explanation = assert_compiled(lambda x: F.gelu(x.sin().cos()).softmax(0), (x,), kernels=1)
    assert "keeps 2 of a row's values" in explanation.kernels[0]["schedule"], explanation.kernels[0]["schedule"]


def test_the_logarithm_of_log_softmax_is_one_of_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEFUSE_DUMP", str(tmp_path))
    assert_compiled(lambda x: x.log_softmax(1), (torch.randn(3, 70, 48),), kernels=1)
    imported = (tmp_path / "graph_0" / "1_imported.mlir").read_text()
    assert re.search(r"math\.log [^\n]*\n[^\n]*yield[^\n]*\n *\} -> tensor<3x48xf32>", imported), imported


def test_a_table_behind_a_view_is_part_of_the_kernel() -> None:
    """The gathered log_softmax is reached through a view, from inside the gather's body."""

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target)

    explanation = assert_compiled(loss, (torch.randn(2, 3, 1), torch.randint(0, 3, (2, 1))), kernels=2)
    assert any("another iteration space" in pair["reason"] for pair in explanation.not_joined), explanation


def test_siblings_of_different_shapes() -> None:
    def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.view(3, 2, 40) + 1, (x.view(12, 20) * 2).exp(), x.view(3, 2, 40).permute(2, 0, 1).contiguous() * 3

    assert_compiled(views, (torch.randn(6, 40),), kernels=1)


def test_rows_and_columns_of_one_tensor_stay_apart() -> None:
    def sums(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sum(0), x.sum(1)

    explanation = assert_compiled(sums, (torch.randn(40, 40),), kernels=1)
    (kernel,) = explanation.kernels
    assert kernel["schedule"].startswith("side by side: reduction, lanes a"), kernel["schedule"]

    def chained(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(0).sum(1)

    explanation = assert_compiled(chained, (torch.randn(40, 40),), kernels=2)
    (pair,) = explanation.not_joined
    assert {pair["first"], pair["second"]} == {0, 1}
    assert "iteration space" in pair["reason"]
    printed = re.sub(r"[\s│]", "", str(explanation))  # the table breaks lines
    assert re.sub(r"\s", "", pair["reason"]) in printed


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("rows", [5, 3000])
def test_kernels_side_by_side(rows: int, dynamic: bool) -> None:
    """Three iteration spaces over one input, one that keeps a row in scratch memory, one that checks indices."""

    def three(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.softmax(1), x.t().cos().cumsum(0), x[at] + 1

    x, at = torch.randn(rows, 33), torch.tensor([0, 2, -1])
    if dynamic:
        torch._dynamo.maybe_mark_dynamic(x, 0)
        torch._dynamo.maybe_mark_dynamic(x, 1)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            torch._dynamo.reset()
            explanation = assert_compiled(three, (x, at), kernels=1)
            assert explanation.kernels[0]["schedule"].count(";") == 2, explanation
            with pytest.raises(IndexError, match=r"out of range|out of bounds"):
                torch.compile(three, backend="zefuse")(x, torch.tensor([0, rows, 1]))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("step", [0, 7], ids=["equal tables", "unequal tables"])
def test_gradients_of_many_tables_are_one_launch(step: int, dynamic: bool) -> None:
    tables = [torch.randn(50 + step * number, 16, requires_grad=True) for number in range(26)]
    indices = [torch.randint(0, len(table), (9, 4)) for table in tables]

    def vectors(*inputs: torch.Tensor) -> torch.Tensor:
        bags = [F.embedding_bag(at, table, mode="sum") for table, at in zip(inputs[:26], inputs[26:], strict=True)]
        return torch.stack(bags, 1)

    graphs: dict[str, Any] = {}
    if dynamic:
        for at in indices:
            torch._dynamo.maybe_mark_dynamic(at, 0)
    torch._dynamo.reset()
    with backend.observe(lambda kind, graph: graphs.__setitem__(kind, graph)):
        made = torch.compile(vectors, backend="zefuse")(*tables, *indices)
        gradient = torch.randn_like(made)
        mine = torch.autograd.grad(made, tables, gradient)
    expected = torch.autograd.grad(vectors(*tables, *indices), tables, gradient)
    assert relative_error(mine, expected) < 1e-5
    report = graphs["backward"].report()
    assert not report["fallbacks"]
    assert len(report["kernels"]) == 1, [kernel["schedule"] for kernel in report["kernels"]]


def test_running_sums_along_memory_take_a_row_at_a_time() -> None:
    """Lanes in rows of 2^n bytes would all meet in one set of the cache; in columns, lanes are neighbours."""
    x = torch.randn(64, 1024)
    along = assert_compiled(lambda x: x.cumsum(1), (x,), kernels=1)
    assert along.kernels[0]["schedule"].endswith("a row at a time")
    across = assert_compiled(lambda x: x.cumsum(0), (x,), kernels=1)
    assert not across.kernels[0]["schedule"].endswith("a row at a time")


def test_what_waits_is_not_side_by_side() -> None:
    """A kernel that moved past its reader, or past who overwrites its input, would give other values."""

    def waits(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sum(0)
        return x.sum(1), (y @ w)[:, None] * x.amax(1)

    assert_compiled(waits, (torch.randn(40, 40), torch.randn(40, 40)), kernels=None, calls=None)

    def overwrites(x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        old = x.index_add(0, torch.arange(40), state)
        state.mul_(2)
        return old, (x + state @ x).sum(1)

    x, mine, theirs = torch.randn(40, 40), torch.ones(40, 40), torch.ones(40, 40)
    torch.testing.assert_close(torch.compile(overwrites, backend="zefuse")(x, mine), overwrites(x, theirs))
    explanation = zefuse.explain(overwrites, x, torch.ones(40, 40))
    assert any("overwrites an input" in pair["reason"] for pair in explanation.not_joined), explanation
    torch.testing.assert_close(mine, theirs)


def test_a_step_between_keeps_kernels_apart() -> None:
    def around(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        return y @ x + y

    explanation = assert_compiled(around, (torch.randn(8, 8),), kernels=2)
    assert ["step between" in pair["reason"] for pair in explanation.not_joined] == [True]


def test_one_long_row_stays_alone() -> None:
    def centred(x: torch.Tensor) -> torch.Tensor:
        return x.exp() - x.mean()

    explanation = assert_compiled(centred, (torch.randn(512, 512),))
    assert any("several threads" in pair["reason"] for pair in explanation.not_joined), explanation


@pytest.mark.parametrize("rows", [8, 16])
@pytest.mark.parametrize("dynamic", [False, True])
def test_concatenation_of_reduced_rows(rows: int, dynamic: bool) -> None:
    """A piece's sums do not exist for the other piece's rows: they are not computed there."""

    def rotate(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        s = x.sum(1) * c
        half = s.shape[-1] // 2
        return torch.cat([-s[..., half:], s[..., :half]], -1) + s * c

    inputs = torch.randn(2, 3, 4, 2 * rows), torch.randn(4, 2 * rows)
    actual = torch.compile(rotate, backend="zefuse", dynamic=dynamic)(*inputs)
    torch.testing.assert_close(actual, rotate(*inputs))


@pytest.mark.parametrize("shape", [(1, 10), (1, 16), (3, 1, 10), (1, 1, 10)], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_concatenations_of_the_same_along_several_dims(shape: tuple[int, ...], dynamic: bool) -> None:
    """What both read of a piece says where one lies in the other only inside of that piece."""

    def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.cat([x, x], -2), torch.cat([x, x], -1), torch.cat([x + 1, x], 0)

    x = torch.randn(shape)
    for actual, expected in zip(torch.compile(both, backend="zefuse", dynamic=dynamic)(x), both(x), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    ("function", "kernels"),
    [
        (lambda x: x.sum(), 2),
        (lambda x: ((x.exp() - 1) ** 2).mean() * 3, 2),
        (lambda x: (x * 2).amax(), 2),
        (lambda x: x.view(-1, 8).sum(0), 2),
        (lambda x: x.view(8, -1).logsumexp(1), 4),
        (lambda x: torch.var_mean(x), 4),
        (lambda x: (x > 0).sum(), 2),
        (lambda x: (x == 7).any(), 2),
    ],
    ids=["sum", "mean of squares", "amax", "outer", "rows", "var_mean", "count", "any"],
)
def test_few_results_are_shared_by_threads(function: Callable[[torch.Tensor], Any], kernels: int) -> None:
    x = torch.randn(960, 512)
    explanation = assert_compiled(function, (x,), kernels=kernels)
    compiled = torch.compile(function, backend="zefuse")
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for mine, other in zip(
                pytree.tree_leaves(compiled(x)), pytree.tree_leaves(explanation.result), strict=True
            ):
                assert torch.equal(mine, other), f"{threads} threads give other bits"
    finally:
        torch.set_num_threads(before)


def test_equal_work_on_many_tensors_is_one_launch() -> None:
    def step(tensors: list[torch.Tensor], scale: torch.Tensor) -> list[torch.Tensor]:
        halved = torch._foreach_mul(tensors, 0.5)
        return [t + scale for t in torch._foreach_tanh(halved)]

    shapes = [(64, 64), (64,), (7, 3, 5), (1, 33), (64, 64), (2,)]
    explanation = assert_compiled(step, ([torch.randn(shape) for shape in shapes], torch.tensor(0.3)), kernels=1)
    assert "batch of 6" in explanation.kernels[0]["schedule"]


def test_more_tensors_than_a_kernel_takes() -> None:
    def total(tensors: list[torch.Tensor]) -> torch.Tensor:
        result = tensors[0]
        for t in tensors[1:]:
            result = result + t
        return result

    explanation = assert_compiled(total, ([torch.randn(8) for _ in range(300)],), kernels=2)
    assert any("more than 240 tensors" in pair["reason"] for pair in explanation.not_joined)


@pytest.mark.parametrize(
    "make",
    [
        lambda params: torch.optim.Adam(params, lr=0.01, foreach=True),
        lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=0.1, amsgrad=True, foreach=True),
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, foreach=False),
    ],
    ids=["adam", "adamw", "sgd", "sgd, one tensor at a time"],
)
def test_optimizer_step(make: Callable[[list[torch.Tensor]], torch.optim.Optimizer]) -> None:
    shapes = [(32, 16), (32,), (16, 32), (16,), (3, 5, 7)]
    ours, theirs = ([torch.nn.Parameter(torch.randn(s)) for s in shapes] for _ in range(2))
    optimizers = make(ours), make(theirs)
    graphs: list[tuple[str, Any]] = []
    compiled = torch.compile(optimizers[0].step, backend="zefuse")
    for mine, other in zip(ours, theirs, strict=True):
        other.data.copy_(mine.data)
    for _ in range(3):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        with backend.observe(lambda kind, graph: graphs.append((kind, graph))):
            compiled()
        optimizers[1].step()
        assert relative_error(ours, theirs) < 1e-6
    assert graphs
    for kind, graph in graphs:
        explanation = zefuse.explaining.explanation.Explanation.of(graph, kind)
        assert len(explanation.kernels) <= 2, explanation  # the parameters, and their step counters
        assert not explanation.fallbacks, explanation
        assert graph.counters()["copies"] == 0  # new values are written where the old ones lie
        assert any("in place" in kernel["schedule"] for kernel in explanation.kernels), explanation


def _rotary(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    def turned(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return torch.cat([-second, first], -1)

    return q * cos + turned(q) * sin, k * cos + turned(k) * sin


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("function", "shapes", "kernels", "calls"),
    [
        (_rotary, [(2, 8, 33, 64), (2, 2, 33, 64), (1, 1, 33, 64), (1, 1, 33, 64)], 1, 0),  # q and k of different heads
        (lambda x, g, u, d: (F.silu(x @ g) * (x @ u)) @ d, [(9, 64), (64, 172), (64, 172), (172, 64)], 1, 3),
        (lambda x, g, u, d: (F.gelu(x @ g) * (x @ u)) @ d, [(9, 64), (64, 172), (64, 172), (172, 64)], 1, 3),
        (lambda x, w, b: F.gelu(torch.addmm(b, x, w)), [(9, 64), (64, 172), (172,)], 0, 1),
        (lambda x, m: torch.softmax(x * 0.125 + m, -1), [(2, 4, 33, 35), (2, 1, 33, 35)], 1, 0),
        (lambda x, m: torch.softmax((x / 8).masked_fill(m > 1, -1e9), -1), [(2, 4, 33, 35), (2, 1, 33, 35)], 1, 0),
        (lambda x, w: (x @ w).argmax(-1), [(9, 64), (64, 172)], 1, 1),
        (lambda x, r, w, b: (F.layer_norm(x + r, (64,), w, b), x + r), [(9, 64), (9, 64), (64,), (64,)], 1, 0),
        (lambda x, r, w: (F.rms_norm(x + r, (64,), w, 1e-6), x + r), [(9, 64), (9, 64), (64,)], 1, 0),
    ],
    ids=["rope", "swiglu", "geglu", "bias gelu", "softmax", "masked softmax", "argmax", "layer norm", "rms norm"],
)
def test_counts_of_common_patterns(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], kernels: int, calls: int, dynamic: bool
) -> None:
    torch._dynamo.reset()
    inputs = [torch.randn(shape) for shape in shapes]
    if dynamic:
        for x in inputs:
            for dim in range(x.dim()):
                torch._dynamo.maybe_mark_dynamic(x, dim)
    explanation = assert_compiled(function, tuple(inputs), kernels=kernels)
    assert len(explanation.calls) == calls, explanation


_WEIGHTS = torch.linspace(0.5, 2, 100)
_TARGET = torch.arange(40).where(torch.arange(40) % 7 != 3, -100)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("make", "parameters", "forward", "backward"),
    [
        (lambda x: F.cross_entropy(x, _TARGET), 0, 2, 1),  # the mean over the rows is a kernel of its own
        (lambda x: F.cross_entropy(x * 2, _TARGET, reduction="sum"), 0, 2, 1),
        (lambda x: F.cross_entropy(x, _TARGET, reduction="none"), 0, 1, 1),
        (lambda x: F.cross_entropy(x, _TARGET, _WEIGHTS, label_smoothing=0.1), 0, 2, 1),
        (lambda x: F.cross_entropy(x, _TARGET.abs().clamp(max=99), _WEIGHTS, ignore_index=99), 0, 2, 1),
        (lambda x: F.layer_norm(x, (100,)), 0, 1, 1),
        (lambda x, w, b: F.layer_norm(x, (100,), w, b), 2, 1, 1),  # the input's gradient beside both parameters'
        (lambda x, w: F.rms_norm(x, (100,), w, 1e-6), 1, 1, 1),
        (lambda x, w, b: F.layer_norm((x + 1).view(5, 8, 100), (100,), w, b), 2, 1, 1),
        (lambda x: F.gelu(x).sum(0), 0, 1, 1),
    ],
    ids=[
        "cross entropy",
        "cross entropy, sum",
        "cross entropy, none",
        "cross entropy, weights and smoothing",
        "cross entropy, another ignored index",
        "layer norm",
        "layer norm, parameters",
        "rms norm, parameters",
        "layer norm of a batch",
        "gelu",
    ],
)
def test_counts_of_training_patterns(
    make: Callable[..., torch.Tensor], parameters: int, forward: int, backward: int, dynamic: bool
) -> None:
    torch._dynamo.reset()
    inputs = [torch.randn(40, 100, requires_grad=True)]
    inputs += [torch.randn(100, requires_grad=True) for _ in range(parameters)]
    graphs: dict[str, Any] = {}
    with backend.observe(lambda kind, graph: graphs.__setitem__(kind, graph)):
        made = torch.compile(make, backend="zefuse", dynamic=dynamic)(*inputs)
        gradient = torch.randn_like(made)
        mine = torch.autograd.grad(made, inputs, gradient)
    expected = torch.autograd.grad(make(*inputs), inputs, gradient)
    assert relative_error(mine, expected) < 1e-5
    counts = {kind: len(graph.report()["kernels"]) for kind, graph in graphs.items()}
    assert counts == {"forward": forward, "backward": backward}


def test_more_tensors_are_joined_than_a_kernel_takes() -> None:
    torch.manual_seed(0)
    tensors = tuple(torch.randn(2, rows % 3 + 1, 3) for rows in range(300))
    assert_compiled(lambda *tensors: torch.cat(tensors, 1), tensors, kernels=2)
    x = torch.randn(510, 2)
    # Views of one tensor are one that a kernel takes.
    assert_compiled(lambda x: torch.stack(x.unbind(0)[::-1]), (x,), kernels=1)


def test_the_gradient_of_few_of_many_pieces_is_one_kernel() -> None:
    """The other pieces' are zeros: views of one tensor, of which each had a copy, so that a kernel took more tensors than it may."""
    torch._dynamo.reset()
    x = torch.randn(300, requires_grad=True)
    graphs: dict[str, Any] = {}
    with backend.observe(lambda kind, graph: graphs.__setitem__(kind, graph)):
        torch.compile(lambda x: x.unbind(0)[-1] * 2, backend="zefuse")(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0] * 299 + [2.0]
    assert len(graphs["backward"].report()["kernels"]) == 1


def test_a_resized_image_that_is_resized_again_is_stored() -> None:
    """Of each element sixteen are read, and each of those is of sixteen: one kernel took LLVM 40 s."""
    graphs: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        smaller = F.interpolate(x, size=(5, 3), mode="bicubic")
        return F.interpolate(smaller, size=(5, 3), mode="bicubic")

    x = torch.randn(6, 5, 5, 2)
    with torch.no_grad(), backend.observe(lambda _, graph: graphs.append(graph)):
        actual = torch.compile(function, backend="zefuse", dynamic=False)(x)
    torch.testing.assert_close(actual, function(x))
    (graph,) = graphs
    assert any("too many places" in entry["reason"] for entry in graph.report()["not_joined"])


@pytest.mark.parametrize("channels", [1, 64])
def test_addresses_that_channels_share_are_computed_once(channels: int) -> None:
    """Of a grid's positions: in the gather's kernel they would be computed for each channel anew."""
    image, grid = torch.randn(2, channels, 32, 32), torch.rand(2, 32, 32, 2) * 2.2 - 1.1

    def sample(image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(image, grid, align_corners=False)

    with torch.no_grad():
        explanation = zefuse.explain(sample, image, grid)
    torch.testing.assert_close(explanation.result, sample(image, grid))
    assert len(explanation.kernels) == (1 if channels == 1 else 2)
    assert [
        "aten.floor.default" in kernel["ops"]
        for kernel in explanation.kernels
        if "aten.gather.default" in kernel["ops"]
    ] == [channels == 1]
