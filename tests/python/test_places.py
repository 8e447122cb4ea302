"""CUDA and XPU tensors where they lie, on the posing GPU (posing_cuda.py, posing_xpu.py): places, order, errors told
later, lifetimes, training.

tests/gpu_cuda/placed.py has the same and more on a machine with CUDA.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from placed_programs import TRAINING, on_each_device, run
from posing_programs import needs_posing_cuda, needs_posing_xpu


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
