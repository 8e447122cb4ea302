"""Matrix products of a GPU vendor's library (cuBLASLt), end to end without a GPU: the driver over CUDA on a libcuda and a libcublasLt
of the tests' own (tests/unit/cuda). There the library computes in f32 and kernels do nothing, so a right result came of the library."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import children
import pytest

import zefuse
from zefuse import _native
from zefuse.options import Options

FAKES = _native.library_dir().resolve().parent / "tests" / "unit" / "cuda"

pytestmark = pytest.mark.skipif(
    not (FAKES / "libfake_cublaslt.so").is_file() or not (_native.library_dir() / "libze_zefuse_cuda.so.1").is_file(),
    reason="the driver over CUDA is not built, or its tests are not",
)

PROGRAM = """
import json, sys, torch, zefuse
from torch.nn import functional as F
from zefuse import reports

torch.manual_seed(0)
w, b = torch.randn(80, 96), torch.randn(80)
FORMS = {
    "plain": (torch.matmul, [torch.randn(64, 96), w.t()]),
    "linear": (lambda x: F.linear(x, w, b), [torch.randn(4, 16, 96)]),
    "relu": (lambda x: F.relu(F.linear(x, w, b)), [torch.randn(64, 96)]),
    "relu behind a view": (lambda x: F.relu(F.linear(x, w, b)), [torch.randn(4, 16, 96)]),
    "gelu behind a view": (lambda x: F.gelu(F.linear(x, w), approximate="tanh"), [torch.randn(4, 16, 96)]),
    "transposed": (lambda x, y: x.t() @ y.t(), [torch.randn(96, 64), torch.randn(80, 96)]),
    "batches": (torch.bmm, [torch.randn(3, 16, 24), torch.randn(3, 24, 32)]),
    "one for all": (torch.matmul, [torch.randn(3, 16, 96), w.t()]),
    "slices": (lambda x: x[:, 32:] @ w[:, :32].t(), [torch.randn(64, 64)]),
    "heads apart": (lambda q: q.view(2, 16, 4, 8).transpose(1, 2) @ q.view(2, 16, 4, 8).transpose(1, 2).mT, [torch.randn(2, 16, 32)]),
    "heads merged": (lambda q, u: F.linear((q * u).transpose(1, 2).flatten(2), w, b), [torch.randn(2, 6, 8, 16), torch.ones(2, 6, 8, 16)]),
    "one image": (lambda q, u: F.linear((q * u).transpose(1, 2).flatten(2), w, b), [torch.randn(1, 6, 13, 16), torch.ones(1, 6, 13, 16)]),
    "windows": (lambda x: F.linear(x.view(2, 7, 2, 7, 96).transpose(1, 2).reshape(196, 96), w, b), [torch.randn(14, 14, 96)]),
    "odd rows": (lambda x, y: x @ y, [torch.randn(64, 96).bfloat16(), torch.randn(96, 81).bfloat16()]),
    "two readers": (lambda x: (y := F.linear(x, w), F.relu(y)), [torch.randn(64, 96)]),
    "erf": (lambda x: F.gelu(F.linear(x, w, b)), [torch.randn(64, 96)]),
    "few rows": (lambda x: F.linear(x, w, b), [torch.randn(8, 96)]),
    "small": (lambda x: F.linear(x, w, b), [torch.randn(64, 96)]),
    "large": (F.linear, [torch.randn(128, 256), torch.randn(512, 256)]),
}
asked = json.loads(sys.argv[1])
torch.set_float32_matmul_precision(asked.get("precision", "highest"))
found = {}
for name in asked["forms"]:
    function, given = FORMS[name]
    torch._dynamo.reset()
    options = {"device": "gpu:0", **asked["options"]}
    graphs = []
    from zefuse import backend
    with torch.no_grad():
        run = torch.compile(function, backend="zefuse", options=options, dynamic=asked.get("dynamic", False))
        with backend.observe(lambda _, graph: graphs.append(graph)):
            for _ in range(4):
                got = run(*given)
        want = function(*given)
        built = graphs[0].counters()["native_cache_misses"]
        if rows := asked.get("then_rows"):
            run(given[0][:rows], *given[1:])
    first = lambda result: result[0] if isinstance(result, tuple) else result
    counters = graphs[0].counters()
    explained = zefuse.explain(function, *given, options=options)
    found[name] = {
        "error": ((first(got) - first(want)).abs().max() / first(want).abs().max()).item(),
        "calls": counters["library_calls"] / 4, "launches": counters["launches"] / 4, "replays": counters["replays"],
        "built": built, "built_then": counters["native_cache_misses"], "kernels": len(explained.kernels),
        "schedules": [kernel["schedule"] for kernel in explained.kernels],
        "not_joined": [pair["reason"] for pair in explained.not_joined],
    }
devices = reports.ask("devices")
import ctypes, os
log = ctypes.CDLL(os.environ["ZEFUSE_CUDA_LIBRARY"]).fake_cuda_log
log.restype = ctypes.c_char_p
found["log"] = log().decode()
found["device"] = next(row for row in devices if row["device"] == "gpu:0")
print(json.dumps(found))
"""


def seen(tmp_path: Path, forms: list[str], library: str = "libfake_cublaslt.so", **asked: Any) -> dict[str, Any]:
    environment = {name: text for name, text in os.environ.items() if name != "ZEFUSE_CPU_DRIVER_AS"} | {
        "ZEFUSE_CUDA_LIBRARY": str(FAKES / "libfake_cuda.so"),
        "ZEFUSE_CUBLASLT": str(FAKES / library) if library.startswith("lib") else library,
        "ZEFUSE_NVJITLINK": "off",  # whose cubins that libcuda does not read
        "ZEFUSE_CACHE_DIR": str(tmp_path / "cache"),
        "ZEFUSE_GPU_TARGET": "sm_90",
    }
    options = {"library_products": "always"} | asked.pop("options", {})
    ran = children.run(PROGRAM, json.dumps({"forms": forms, "options": options, **asked}), env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


def test_the_library_computes_products_with_what_it_takes_besides(tmp_path: Path) -> None:
    forms = "plain, linear, relu, relu behind a view, gelu behind a view, transposed, batches, one for all, slices"
    found = seen(tmp_path, forms.split(", "))
    for form in forms.split(", "):
        result = found[form]
        assert result["error"] < 1e-5, (form, result)
        assert (result["calls"], result["launches"]) == (1, 0), (form, result)
        assert result["replays"] > 0, "recorded lists hold it"
        assert (result["built"], result["kernels"]) == (0, 1), (
            "native code of what the library computes is made at need"
        )
        assert "where the device's cuBLASLt is there, by that" in result["schedules"][0], (form, result)
    assert found["device"]["product_library"].startswith("cuBLASLt 13.1.2 (")
    assert found["device"]["no_product_library"] is None


@pytest.mark.parametrize(("precision", "compute"), [("highest", 68), ("high", 77), ("medium", 77)])
def test_f32_is_rounded_to_tf32_where_torchs_precision_permits_it(tmp_path: Path, precision: str, compute: int) -> None:
    found = seen(tmp_path, ["plain"], precision=precision)
    assert (found["plain"]["calls"], found["plain"]["launches"]) == (1, 0)
    assert ("by that in TF32" in found["plain"]["schedules"][0]) == (compute == 77)
    assert f"compute {compute} type 0" in found["log"] and f"compute {145 - compute}" not in found["log"]


def test_windows_of_an_image_are_copied_for_the_library(tmp_path: Path) -> None:
    """As rows they lie in no strides."""
    found = seen(tmp_path, ["windows"])["windows"]
    assert (found["calls"], found["launches"]) == (1, 1)
    assert found["schedules"][0].startswith("pointwise") and "cuBLASLt is there" in found["schedules"][1]


def test_what_the_library_does_not_take_is_a_kernel_with_a_reason(tmp_path: Path) -> None:
    found = seen(tmp_path, ["heads apart", "odd rows", "two readers", "erf"])
    for form in ("heads apart", "odd rows"):
        assert (found[form]["calls"], found[form]["launches"]) == (0, 1), form
    for form in ("two readers", "erf"):
        assert (found[form]["calls"], found[form]["launches"]) == (1, 1), form
        assert any("its call takes a bias, relu and gelu by tanh" in why for why in found[form]["not_joined"]), form
        assert (found[form]["built"], found[form]["kernels"]) == (1, 2), form
    assert found["two readers"]["error"] < 1e-5


def test_what_a_kernel_makes_for_the_library_lies_as_that_wants_it(tmp_path: Path) -> None:
    """As attention's result, whose heads stand before its rows."""
    found = seen(tmp_path, ["heads merged", "one image"])
    for form in ("heads merged", "one image"):
        assert (found[form]["calls"], found[form]["launches"]) == (1, 1), form
    assert "by 96x13/96 to" in found["log"], "rows are contiguous, where columns could be as well"


def test_without_the_library_the_kernels_run(tmp_path: Path) -> None:
    found = seen(tmp_path, ["linear", "relu"], library="off")
    assert [(found[form]["calls"], found[form]["launches"]) for form in ("linear", "relu")] == [(0, 1)] * 2
    assert found["linear"]["built"] == found["relu"]["built"] == 1
    assert found["device"]["product_library"] is None
    assert found["device"]["no_product_library"] == "ZEFUSE_CUBLASLT turns it off"


def test_small_products_stay_kernels(tmp_path: Path) -> None:
    found = seen(tmp_path, ["few rows", "small", "large"], options={"library_products": "auto"})
    for form in ("few rows", "small"):
        assert (found[form]["calls"], found[form]["launches"]) == (0, 1)
        assert "cuBLASLt" not in found[form]["schedules"][0]
    assert (found["large"]["calls"], found["large"]["launches"]) == (1, 0)
    assert "by that from 8388608 multiplications on" in found["large"]["schedules"][0]
    found = seen(tmp_path, ["linear"], options={"library_products": "never"})
    assert found["linear"]["calls"] == 0


def test_the_kernel_is_made_when_a_size_is_not_for_the_library(tmp_path: Path) -> None:
    found = seen(tmp_path, ["large"], options={"library_products": "auto"}, dynamic=True, then_rows=8)["large"]
    assert (found["built"], found["built_then"]) == (0, 1), found


def test_a_wrong_word_is_an_option_error() -> None:
    with pytest.raises(zefuse.errors.OptionError, match=r"library_products='alway'.*did you mean \"always\""):
        Options.make({"library_products": "alway"})
