"""What becomes of single operators of CUDA and XPU tensors, on the posing GPU."""

from __future__ import annotations

import pytest
from placed_programs import run
from posing_programs import needs_posing_cuda, needs_posing_xpu


@needs_posing_cuda
def test_torch_draws_a_dropout_where_it_is_asked_to() -> None:
    """Between compiled parts; test_random_numbers.py has those of kernels."""
    run("""
call = compiled(lambda x: F.dropout(x * 2, 0.25), fallback_random=True)
x = torch.ones(128, 128, device="cuda")
torch.manual_seed(7)
a = call(x)
torch.manual_seed(7)
assert torch.equal(a.cpu(), call(x).cpu()) and not torch.equal(a.cpu(), call(x).cpu())
assert abs((a != 0).float().mean().item() - 0.75) < 0.03
(entry,) = graphs[0].report()["fallbacks"]
assert "draws from the device's generator" in entry["reason"], entry
""")


@needs_posing_cuda
def test_a_projection_to_rows_that_no_vector_divides() -> None:
    """On NVIDIA's GPUs the gradient is copied with longer rows, for both derivatives: zeros that change nothing."""
    run(
        """
x, w, g = torch.randn(512, 512).bfloat16(), (torch.randn(65, 512) / 16).bfloat16(), torch.randn(512, 65).bfloat16()
a, b = x.to("cuda").requires_grad_(), w.to("cuda").requires_grad_()
theirs = [t.float().requires_grad_() for t in (x, w)]
got, want = compiled(F.linear)(a, b), F.linear(*theirs)
with backend.observe(lambda kind, graph: graphs.append(graph)):
    got.backward(g.to("cuda"))
want.backward(g.float())
for mine, other in ((got, want), (a.grad, theirs[0].grad), (b.grad, theirs[1].grad)):
    close(mine.float(), other, 1e-2)
assert sum("rows of 65 elements are copied" in kernel["schedule"] for kernel in graphs[-1].report()["kernels"]) == 2
nothing_copied()
""",
        ZEFUSE_GPU_TARGET="sm_90",
    )


@needs_posing_cuda
def test_cudnn_may_round_f32_to_tf32_as_torch_says() -> None:
    """Allowed unless it is forbidden, as in eager; of CPU tensors that a GPU computes with it is not."""
    run(
        """
x, w = torch.randn(1, 16, 8, 8), torch.randn(16, 16, 3, 3)
want = F.conv2d(x, w)
def seen(place, **options):
    torch._dynamo.reset()
    graphs.clear()
    convolve = torch.compile(F.conv2d, backend="zefuse", options={"library_convolutions": "always"} | options)
    with backend.observe(lambda kind, graph: graphs.append(graph)):
        close(convolve(x.to(place), w.to(place)), want, 1e-4)
    schedules = [kernel["schedule"] for kernel in graphs[-1].report()["kernels"]]
    assert any("cuDNN is there" in schedule for schedule in schedules), schedules
    return any("by that in TF32" in schedule for schedule in schedules)
assert torch.backends.cudnn.allow_tf32 and seen("cuda")
torch.backends.cudnn.allow_tf32 = False
assert not seen("cuda")
torch.backends.cudnn.allow_tf32 = True
assert not seen("cpu", device="gpu:0")
""",
        ZEFUSE_GPU_TARGET="sm_90",
    )


@needs_posing_cuda
def test_windows_that_do_not_overlap() -> None:
    """On NVIDIA's GPUs a convolution of them is a product of patches, and its derivatives are."""
    run(
        """
for shape, weight, dtype in (
    ((8, 3, 64, 67), (96, 3, 4, 4), torch.bfloat16),  # three columns are in no window
    ((8, 2, 8, 32, 32), (64, 2, 2, 4, 4), torch.float32),
):
    convolve = F.conv2d if len(shape) == 4 else F.conv3d
    function = lambda x, w, b: convolve(x, w, b, stride=w.shape[2:])
    given = [torch.randn(sizes, dtype=dtype) for sizes in (shape, weight, weight[:1])]
    mine, theirs = [t.to("cuda").requires_grad_() for t in given], [t.float().requires_grad_() for t in given]
    graphs.clear()
    got, want = compiled(function)(*mine), function(*theirs)
    gradient = torch.randn(want.shape).to(dtype)
    with backend.observe(lambda kind, graph: graphs.append(graph)):
        got.backward(gradient.to("cuda"))
    want.backward(gradient.float())
    for a, b in ((got, want), *((a.grad, b.grad) for a, b in zip(mine, theirs, strict=True))):
        close(a.float(), b, 1e-2 if dtype == torch.bfloat16 else 1e-5)
    # What three columns got no gradient of is no product's.
    products = [kernel for graph in graphs for kernel in graph.report()["kernels"] if "do not overlap" in kernel["schedule"]]
    assert len(products) == (2 if dtype == torch.bfloat16 else 3), products
""",
        ZEFUSE_GPU_TARGET="sm_90",
    )


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *(
            pytest.param(f"{name}_attention", "cuda", marks=needs_posing_cuda)
            for name in ("flash", "efficient", "cudnn")
        ),
        pytest.param("fused_attention_overrideable", "xpu", marks=needs_posing_xpu),
    ],
)
def test_attention_as_the_dispatcher_names_it(name: str, device: str) -> None:
    """What torch makes of it where there is CUDA or XPU, forward and backward: kernels of the plan."""
    run(
        f"""
name = {name!r}
operator = getattr(torch.ops.aten, f"_scaled_dot_product_{{name}}").default
def function(q, k, v):
    if name == "flash_attention":
        return operator(q, k, v, 0.0, True)[0] * 2
    if name == "fused_attention_overrideable":
        return operator(q, k, v, None, 0.0, True)[0] * 2
    return operator(q, k, v, None, True, 0.0, True)[0] * 2

q, k, v, g = (torch.randn(2, 16, 4, 8).transpose(1, 2) for _ in range(4))
call = compiled(function)
mine = [t.to("cuda").requires_grad_() for t in (q, k, v)]
theirs = [t.clone().requires_grad_() for t in (q, k, v)]
for _ in range(4):
    got, want = call(*mine), F.scaled_dot_product_attention(*theirs, is_causal=True) * 2
    close(got, want)
    got.backward(g.to("cuda"))
    want.backward(g)
for a, b in zip(mine, theirs, strict=True):
    close(a.grad, b.grad)
assert not [entry for graph in graphs for entry in graph.report()["fallbacks"]]
nothing_copied()
""",
        device=device,
    )


@needs_posing_cuda
def test_attention_in_eager() -> None:
    """Torch has the lowered operator for the CPU alone: a part that runs in eager computes the same in other words."""
    run("""
from zefuse.decompositions import fused_attention as fused
for causal, heads, mask in ((True, 4, None), (False, 2, torch.randn(2, 1, 9, 9)), (False, 4, torch.rand(9, 9) > 0.2)):
    q, k, v, g = torch.randn(2, 4, 9, 8), torch.randn(2, heads, 9, 8), torch.randn(2, heads, 9, 8), torch.randn(2, 4, 9, 8)
    if mask is not None and mask.dtype == torch.bool:
        mask[:, 0] = True
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    want = F.scaled_dot_product_attention(*leaves, attn_mask=mask, is_causal=causal, enable_gqa=True)
    want.backward(g)
    out, sums = fused.in_eager(q, k, v, 0.0, causal, attn_mask=mask)
    close(out, want)
    for mine, leaf in zip(fused.backward_in_eager(g, q, k, v, out, sums, 0.0, causal, attn_mask=mask), leaves, strict=True):
        close(mine, leaf.grad)
""")
