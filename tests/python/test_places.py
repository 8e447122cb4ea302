"""CUDA and XPU tensors where they lie, on the posing GPU (posing_cuda.py, posing_xpu.py): places, order, errors told
later, lifetimes, training.

tests/gpu_cuda/placed.py has the same and more on a machine with CUDA.
"""

from __future__ import annotations

from pathlib import Path

import posing_programs
import pytest
from posing_programs import needs_posing_cuda, needs_posing_xpu

on_each_device = pytest.mark.parametrize(
    "device", [pytest.param("cuda", marks=needs_posing_cuda), pytest.param("xpu", marks=needs_posing_xpu)]
)

BEGIN = """
import copy, torch, zefuse
from torch import nn
from torch.nn import functional as F
from zefuse import backend

torch.manual_seed(0)
graphs = []

def compiled(function, **options):
    run = torch.compile(function, backend="zefuse", options=options or None, dynamic=False)
    def call(*inputs):
        with backend.observe(lambda kind, graph: graphs.append(graph)):
            return run(*inputs)
    return call

def close(actual, expected, tolerance=1e-4):
    error = (actual.detach().cpu() - expected.detach().cpu()).abs().max() / expected.detach().abs().max().cpu().clamp(min=1e-3)
    assert error <= tolerance, error

def count(name):
    return sum(graph.counters()[name] for graph in graphs)

def nothing_copied():
    for name in ("copies_to_device", "copies_to_host", "bytes_to_device", "bytes_to_host", "parameters_uploaded", "host_steps"):
        assert count(name) == 0, name

def raised(kind, function, *inputs):
    try:
        function(*inputs)
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")

mlp = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64))
"""


def run(program: str, whole: bool = False, device: str = "cuda", **environment: str) -> str:
    """The program's output; it has to end well."""
    return posing_programs.run(BEGIN + program, whole=whole, device=device, **environment)


@on_each_device
def test_tensors_are_used_where_they_lie(device: str) -> None:
    """While tensors, a graph and its replays are there, the process ends as any does."""
    run(
        """
want = mlp(torch.ones(8, 64))
mlp.to("cuda")
call = compiled(mlp)
x = torch.ones(8, 64, device="cuda")
kept = []
with torch.no_grad():
    for _ in range(12):  # results stay alive: new addresses for some calls, then replays
        kept = [*kept[-1:], call(x)]
        assert kept[-1].device == torch.device("cuda:0")
close(kept[-1], want)
close(kept[0], want)
nothing_copied()
assert count("replays") >= 4, count("replays")
assert graphs[0].report()["place"] == "cuda:0"
""",
        whole=True,
        device=device,
    )


@needs_posing_cuda
def test_what_is_made_of_parameters_alone_is_kept() -> None:
    """Of inference: while their memory and versions say that they are the same."""
    run("""
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.s = nn.Parameter(torch.randn(64, 64)), nn.Parameter(torch.rand(64))
    def forward(self, x):
        return x @ (self.w * self.s.exp()).cumsum(0)  # no kernel of a product's
def looked_at(kept, model, x, call):
    before = count("weights_packed")
    with torch.no_grad():
        close(call(x.to("cuda")), copy.deepcopy(model).to("cpu")(x))
    made = count("weights_packed") - before
    assert (made > 0) == (not kept), made
x = torch.randn(8, 64)
model = Scaled().to("cuda")
call = compiled(model)
for kept in (False, True, True):
    looked_at(kept, model, x, call)
with torch.no_grad():
    model.w.mul_(2)
looked_at(False, model, x, call)
looked_at(True, model, x, call)
model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()})
looked_at(False, model, x, call)
model.w.data.mul_(3)  # no version says so
zefuse.invalidate_weights()
looked_at(False, model, x, call)
model.w = nn.Parameter(model.w.detach() * 0.5)
looked_at(False, model, x, call)
looked_at(True, model, x, call)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
compiled_loss = compiled(lambda x: model(x).square().mean())
for _ in range(2):  # training keeps nothing
    before = count("weights_packed")
    compiled_loss(x.to("cuda")).backward()
    assert count("weights_packed") == before
    optimizer.step()
    optimizer.zero_grad()
    looked_at(False, model, x, call)
""")


@needs_posing_cuda
def test_a_table_that_constant_indices_gather_is_made_once() -> None:
    """Position biases of a Swin, which its softmax would gather in each call; an index out of range is told at once, and each time."""
    run("""
class Biased(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(169, 3))
        self.register_buffer("index", torch.randint(169, (49, 49)))
    def forward(self, x):
        return torch.softmax(x + self.table[self.index.view(-1)].view(49, 49, 3).permute(2, 0, 1), -1)
model = Biased()
x = torch.randn(4, 3, 49, 49)
want = model(x)
model.to("cuda")
call = compiled(model)
with torch.no_grad():
    for _ in range(4):
        close(call(x.to("cuda")), want)
assert count("weights_packed") == 1 and count("launches") == 5, (count("weights_packed"), count("launches"))
model.index[3, 3] = 170
with torch.no_grad():
    for _ in range(2):
        said = raised(IndexError, call, x.to("cuda"))
        assert "out of bounds" in said and "earlier" not in said, said
    model.index[3, 3] = 0
    close(call(x.to("cuda")), model.to("cpu")(x))
""")


@needs_posing_cuda
def test_another_model_in_the_same_memory() -> None:
    """One graph serves models of one kind, and the allocator gives an address again: neither it nor the version tells them apart."""
    run("""
class Doubled(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.w = nn.Parameter(torch.full((64, 64), value))
    def forward(self, x):
        return x @ self.w.exp().cumsum(0)
x = torch.ones(4, 64)
seen = set()
for value in (0.5, 0.25, 0.125):
    model = Doubled(value).to("cuda")
    seen.add((model.w.data_ptr(), model.w._version))
    call = compiled(model)
    with torch.no_grad():
        for _ in range(2):
            close(call(x.to("cuda")), x @ torch.full((64, 64), value).exp().cumsum(0))
    del model, call
    import gc; gc.collect()
assert len(seen) == 1, "the address came again"
""")


@needs_posing_cuda
def test_numbers_of_the_cpu_are_no_copies() -> None:
    """Swin's mask of shifted windows: single numbers written into a tensor of zeros."""
    run("""
def masked(x):
    made = x.new_zeros(8, 8)
    for number, rows in enumerate((slice(0, 3), slice(3, 5), slice(5, None))):
        made[rows] = number
    return torch.where(x > 0, torch.tensor(2.5), x + made)
x = torch.randn(8, 8)
call = compiled(masked)
for _ in range(3):
    close(call(x.to("cuda")), masked(x))
nothing_copied()
""")


@on_each_device
def test_calls_are_in_order_with_each_other_and_with_torch(device: str) -> None:
    run(
        """
call = compiled(lambda x, y: x * 0.5 + y)
x, y = torch.ones(64, 64), torch.rand(64, 64)
a, b = x.to("cuda"), y.to("cuda")
for step in range(20):
    x, a = x * 0.5 + y, call(a, b)  # what is freed is used again at once
    if step % 5 == 0:
        y, b = y + 1, b + 1
close(a, x)
nothing_copied()
""",
        device=device,
    )


@on_each_device
def test_another_stream(device: str) -> None:
    run(
        """
call = compiled(lambda x: (x @ x).relu())
x = torch.randn(64, 64)
for stream in (0, 3, 5, 3):
    library.posing_use_stream(stream)
    close(call(x.to("cuda")), (x @ x).relu())
""",
        device=device,
    )


@on_each_device
def test_errors_are_told_later_or_at_once(device: str) -> None:
    run(
        """
table = torch.randn(10, 16)
on_device = table.to("cuda")
call = compiled(lambda i: F.embedding(i, on_device) * 2)
good, bad = torch.tensor([1, 2, 3]).to("cuda"), torch.tensor([1, 12, 3]).to("cuda")
close(call(good), table[[1, 2, 3]] * 2)
call(bad)
message = raised(IndexError, zefuse.synchronize)
assert "an earlier call" in message and "embedding" in message, message
zefuse.synchronize()  # told once
close(call(good), table[[1, 2, 3]] * 2)
call(bad)
library.posing_wait()
message = raised(IndexError, call, good)  # by the next call of the same function
assert "an earlier call" in message, message
close(call(good), table[[1, 2, 3]] * 2)
torch._dynamo.reset()
at_once = compiled(lambda i: F.embedding(i, on_device) * 3, synchronous=True)
message = raised(IndexError, at_once, bad)
assert "earlier" not in message, message
""",
        device=device,
    )


@on_each_device
def test_tensors_of_two_devices_are_torchs_error(device: str) -> None:
    run(
        """
call = compiled(lambda x, y: x + y)
x = torch.ones(8, 8, device="cuda:0")
y = torch.empty(8, 8, device="cuda:1")
message = raised(RuntimeError, call, x, y)
assert "cuda:0" in message and "cuda:1" in message, message
one = compiled(lambda x: x * 2 + 1)
close(one(x), torch.full((8, 8), 3.0))
message = raised(RuntimeError, graphs[-1], [y])
assert "Expected all tensors to be on the same device" in message and "cuda:0" in message and "cuda:1" in message, message
""",
        device=device,
    )


@on_each_device
def test_cpu_tensors_beside_are_copied_and_counted(device: str) -> None:
    run(
        """
call = compiled(lambda x, s, rows: (x * s)[rows] + 1)
x, s, rows = torch.randn(64, 64), torch.tensor(3.0), torch.tensor([5, 1, 7])
for _ in range(3):
    close(call(x.to("cuda"), s, rows), (x * s)[rows] + 1)
assert count("copies_to_device") == 6 and count("bytes_to_device") == 3 * (4 + 24), count("bytes_to_device")
""",
        device=device,
    )


@on_each_device
def test_results_on_the_cpu(device: str) -> None:
    run(
        """
def function(x):
    y = (x * 2).relu()
    return y.sum(0).cpu() + 1, y

x = torch.randn(32, 32)
a, b = compiled(function)(x.to("cuda"))
assert a.device.type == "cpu" and b.device.type == "cuda"
close(a, function(x)[0])
close(b, function(x)[1])
""",
        device=device,
    )


@on_each_device
def test_a_tensor_that_begins_between_boundaries(device: str) -> None:
    run(
        """
call = compiled(lambda x: x * 2 + 1)
x = torch.randn(257)
for _ in range(3):
    close(call(x.to("cuda")[1:]), x[1:] * 2 + 1)
assert count("copies_to_host") == 0
""",
        device=device,
    )


TRAINING = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(50, 64), nn.LayerNorm(64)
        self.qkv, self.out, self.batch = nn.Linear(64, 192), nn.Linear(64, 50), nn.BatchNorm1d(64)

    def forward(self, i, labels):
        x = self.norm(self.table(i))
        q, k, v = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = self.batch(x.transpose(1, 2)).transpose(1, 2)
        return F.cross_entropy(self.out(x).flatten(0, 1), labels.flatten())

theirs = Model()
ours = copy.deepcopy(theirs).to("cuda")
i, labels = torch.randint(50, (3, 16)), torch.randint(50, (3, 16))
"""


@pytest.mark.parametrize(
    ("optimizer", "device"),
    [
        *(
            pytest.param(optimizer, "cuda", marks=needs_posing_cuda)
            for optimizer in ("AdamW(foreach=True)", "AdamW(foreach=False)", "SGD(momentum=0.9)")
        ),
        pytest.param("AdamW(foreach=True)", "xpu", marks=needs_posing_xpu),
    ],
)
def test_training_stays_on_the_device(optimizer: str, device: str) -> None:
    name, arguments = optimizer[:-1].split("(")
    run(
        TRAINING
        + f"""
run_it = compiled(ours)
make = lambda model: torch.optim.{name}(model.parameters(), lr=1e-2, {arguments})
mine, other = make(ours), make(theirs)
update = compiled(mine.step)
for step in range(6):
    for _ in range(1 + step % 2):  # gradients add up
        a, b = run_it(i.to("cuda"), labels.to("cuda")), theirs(i, labels)
        a.backward()
        b.backward()
    assert abs(a.item() - b.item()) <= 1e-4 * abs(b.item()), (step, a.item(), b.item())
    update()
    other.step()
    mine.zero_grad(set_to_none=step < 3)
    other.zero_grad(set_to_none=step < 3)
close(ours.batch.running_var, theirs.batch.running_var, 1e-3)
zefuse.synchronize()
nothing_copied()
assert not [entry for graph in graphs for entry in graph.report()["fallbacks"]]
assert count("replays") > 0
""",
        device=device,
    )


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


@on_each_device
def test_no_memory(device: str) -> None:
    """Of 96 MiB: torch's cache is emptied once; then it is an error of torch's that says for what there was no room."""
    run(
        """
call = compiled(lambda x: (x / x.sum(1, keepdim=True)).cumsum(0).cumsum(1).sum(0))
def check(rows):
    x = torch.rand(rows, 1024) + 1
    close(call(x.to("cuda")), (x / x.sum(1, keepdim=True)).cumsum(0).cumsum(1).sum(0), 1e-3)
check(64)
torch._dynamo.reset()
torch.empty(60 << 20, dtype=torch.uint8, device="cuda")  # freed at once, and kept by the allocator
before = library.posing_emptied()
check(4096)
assert library.posing_emptied() > before
torch._dynamo.reset()
x = torch.ones(12 << 10, 1024, device="cuda")
message = raised(torch.OutOfMemoryError, call, x)
assert "bytes" in message, message
check(64)
""",
        ZEFUSE_CPU_DRIVER_GPU_MEMORY_MB="96",
        device=device,
    )


@on_each_device
def test_a_package_of_cuda_tensors(tmp_path: Path, device: str) -> None:
    """Its weights are moved once, and nothing else; what a program changes in place is the caller's tensor."""
    run(
        f"""
from zefuse.errors import InvalidArgumentError

class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = mlp
    def forward(self, x, seen):
        seen.add_(x.sum(1))
        return self.layers(x), x[:4]

model = Counting().eval()
rows = torch.export.Dim("rows", min=4, max=64)
program = torch.export.export(model, (torch.ones(8, 64), torch.zeros(8)), dynamic_shapes=({{0: rows}}, {{0: rows}}))
path = {str(tmp_path / "m.zefuse")!r}
zefuse.compile_package(program, path, targets=["dg2-g11"])
with torch.no_grad():
    loaded = zefuse.load(path, place="cuda")
    for size in (8, 5):
        x, seen = torch.randn(size, 64), torch.zeros(size)
        want = model(x, seen.clone())[0]
        placed = torch.zeros(size, device="cuda")
        for call in range(4):
            got, view = loaded(x.cuda(), placed)
        assert got.device == view.device == torch.device("cuda:0")
        close(got, want)
        close(view, x[:4])
        close(placed, 4 * x.sum(1))
    counters = loaded._plans[0][0].counters()
    assert counters["copies_to_device"] + counters["copies_to_host"] + counters["parameters_uploaded"] == 0, counters
    raised(InvalidArgumentError, loaded, torch.ones(8, 63).cuda(), torch.zeros(8).cuda())
    placed = torch.zeros(8)
    close(loaded(torch.ones(8, 64), placed)[0], model(torch.ones(8, 64), torch.zeros(8))[0])  # copied there, and back
    close(placed, torch.full((8,), 64.0))
raised(InvalidArgumentError, lambda: zefuse.load(path, place="meta"))
""",
        device=device,
    )
