"""primitives::Matmul against torch eager, alternating in one process.

    ninja -C build/<dir> zefuse_primitives_probe && \\
    python tests/bench/primitives/matmul.py build/<dir>/lib/libzefuse_primitives_probe.so [threads]

Prints the best microseconds of many alternating calls: other work on the machine only ever adds time. Ratios of one run
count, absolute times do not.
"""

import ctypes
import sys
import time

import torch
import torch.nn.functional as F

lib = ctypes.CDLL(sys.argv[1])
lib.probe_create.restype = lib.ip_create.restype = ctypes.c_void_p
lib.probe_error.restype = lib.probe_implementation.restype = ctypes.c_char_p
lib.probe_implementation.argtypes = [ctypes.c_void_p]
lib.probe_run.argtypes = [ctypes.c_void_p] * 6
lib.ip_run.argtypes = [ctypes.c_void_p] * 4
KINDS = ["relu", "gelu_erf", "gelu_tanh", "silu", "tanh", "sigmoid", "add", "mul"]


def geometry(t):
    return None if t is None else (ctypes.c_int64 * (1 + 2 * t.dim()))(t.dim(), *t.shape, *t.stride())


def ours(a, b, out, bias=None, post=(), operand=None, alpha=1.0, pack=False, bf16_math=False):
    """A function that computes post(alpha * a @ b + bias) into out, and the implementation's name."""
    kinds = (ctypes.c_int * max(len(post), 1))(*[KINDS.index(p) for p in post])
    shapes = [geometry(operand) if p in ("add", "mul") else None for p in post]
    operands = (ctypes.c_void_p * max(len(post), 1))(*[ctypes.addressof(s) if s else None for s in shapes])
    probe = lib.probe_create(
        int(a.dtype == torch.bfloat16),
        geometry(a),
        geometry(b),
        geometry(out),
        geometry(bias),
        kinds,
        operands,
        len(post),
        ctypes.c_float(alpha),
        int(pack),
        int(bf16_math),
        ctypes.c_void_p(b.data_ptr()),
        int(out.dtype == torch.float32),
        0,
    )
    if not probe:
        raise RuntimeError(lib.probe_error().decode())
    pointers = [ctypes.c_void_p(t.data_ptr() if t is not None else None) for t in (a, b, bias, out, operand)]
    keep = (a, b, bias, out, operand)
    return (lambda: (lib.probe_run(probe, *pointers), keep)[0]), lib.probe_implementation(probe).decode()


def inner_product(a, weight, out, bias):
    ip = lib.ip_create(
        int(a.dtype == torch.bfloat16),
        ctypes.c_int64(a.shape[0]),
        ctypes.c_int64(a.shape[1]),
        ctypes.c_int64(weight.shape[0]),
        ctypes.c_void_p(weight.data_ptr()),
    )
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, bias, out)]
    keep = (a, weight, out, bias)
    return lambda: (lib.ip_run(ip, *pointers), keep)[0]


def compare(title, candidates, note=""):
    times = {name: [] for name in candidates}
    for f in candidates.values():
        for _ in range(3):
            f()
    end = time.perf_counter() + 1.2
    while time.perf_counter() < end:
        for name, f in candidates.items():
            start = time.perf_counter()
            f()
            times[name].append(time.perf_counter() - start)
    row = "  ".join(f"{name} {min(t) * 1e6:8.1f}" for name, t in times.items())
    print(f"{title:34s} {row}   {note}", flush=True)


def linears():
    for dtype in (torch.float32, torch.bfloat16):
        for m, k, n in [
            (128, 384, 1536),
            (128, 1536, 384),
            (128, 384, 384),
            (1, 768, 3072),
            (512, 768, 768),
            (16, 384, 1536),
            (1, 768, 32000),
        ]:
            a, w, bias = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype), torch.randn(n).to(dtype)
            out = torch.empty(m, n, dtype=dtype)
            packed, name = ours(a, w.t(), out, bias, pack=True)
            # Every candidate has weights of its own: shared ones would stay in the cache for the next candidate.
            w_gelu, w_plain = w.clone(), w.clone()
            plain, _ = ours(a, w_plain.t(), out, bias)
            gelu, gelu_name = ours(a, w.t(), out, bias, post=["gelu_erf"], pack=True)
            packed()
            error = (out - F.linear(a, w, bias)).abs().max().item()
            compare(
                f"linear {m}x{k}x{n} {str(dtype)[6:]}",
                {
                    "torch": lambda: F.linear(a, w, bias),
                    "packed": packed,
                    "plain": plain,
                    "inner_product": inner_product(a, w, out, bias),
                    "torch+gelu": lambda: F.gelu(F.linear(a, w_gelu, bias)),
                    "packed+gelu": gelu,
                },
                f"{name} | {gelu_name} | {error:.1e}",
            )


def batched_linear():
    a, w, bias = torch.randn(8, 128, 384), torch.randn(1536, 384), torch.randn(1536)
    out, residual = torch.empty(8, 128, 1536), torch.randn(8, 128, 1536)
    folded, name = ours(a, w.t().unsqueeze(0), out, bias.view(1, 1, -1), pack=True)
    added, added_name = ours(a, w.t().unsqueeze(0), out, bias.view(1, 1, -1), post=["add"], operand=residual, pack=True)
    compare(
        "linear [8,128,384]x1536 f32",
        {
            "torch": lambda: F.linear(a, w, bias),
            "folded": folded,
            "torch+add": lambda: F.linear(a, w, bias) + residual,
            "folded+add": added,
        },
        f"{name} | {added_name}",
    )


def attention():
    for dtype in (torch.float32, torch.bfloat16):
        for batch, heads, seq, dim in [(1, 12, 128, 32), (1, 12, 128, 64), (16, 12, 128, 32)]:
            q, k, v = (torch.randn(batch, seq, heads, dim).to(dtype).transpose(1, 2) for _ in range(3))
            scores = torch.empty(batch, heads, seq, seq, dtype=dtype)
            probabilities = torch.rand(batch, heads, seq, seq).to(dtype)
            context = torch.empty(batch, seq, heads, dim, dtype=dtype).transpose(1, 2)
            mask = torch.randn(batch, 1, 1, seq).to(dtype)
            qk, qk_name = ours(q, k.transpose(-1, -2), scores, alpha=0.125)
            masked, masked_name = ours(q, k.transpose(-1, -2), scores, alpha=0.125, post=["add"], operand=mask)
            pv, pv_name = ours(probabilities, v, context)
            label = f"{batch}x{heads}x{seq}x{dim} {str(dtype)[6:]}"
            compare(f"q k^T {label}", {"torch": lambda: torch.matmul(q, k.transpose(-1, -2)), "ours": qk}, qk_name)
            compare(
                f"q k^T + mask {label}",
                {"torch": lambda: torch.matmul(q, k.transpose(-1, -2)) * 0.125 + mask, "ours": masked},
                masked_name,
            )
            compare(f"p v {label}", {"torch": lambda: torch.matmul(probabilities, v), "ours": pv}, pv_name)


if len(sys.argv) > 2:
    torch.set_num_threads(int(sys.argv[2]))
print("threads", torch.get_num_threads(), "capability", torch.backends.cpu.get_cpu_capability())
linears()
batched_linear()
attention()
