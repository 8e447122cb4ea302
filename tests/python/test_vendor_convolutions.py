"""Convolutions of a GPU vendor's library (cuDNN), end to end without a GPU: the driver over CUDA on a libcuda and a libcudnn of the
tests' own (tests/unit/cuda). There the library computes in f32 and kernels do nothing, so a right result came of the library."""

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
    not (FAKES / "libfake_cudnn.so").is_file() or not (_native.library_dir() / "libze_zefuse_cuda.so.1").is_file(),
    reason="the driver over CUDA is not built, or its tests are not",
)

PROGRAM = """
import json, os, sys, torch, zefuse
from torch.nn import functional as F
from zefuse import backend, reports

torch.manual_seed(0)
last = lambda *sizes: torch.randn(sizes).to(memory_format=torch.channels_last)
x, w, b = last(2, 8, 6, 7), last(12, 8, 3, 3), torch.randn(12)
rows = w.contiguous()
large, wide = last(4, 64, 56, 56).bfloat16(), last(64, 64, 3, 3).bfloat16()

class Residual(torch.nn.Module):
    # Of a ResNet: a batch norm with statistics behind each convolution, a residual that is one too.

    def __init__(self):
        super().__init__()
        conv = lambda *sizes: torch.nn.Conv2d(*sizes, bias=False)
        self.path = torch.nn.Sequential(
            conv(8, 16, 1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), conv(16, 16, 3, 1, 1), torch.nn.BatchNorm2d(16),
        )
        self.skip = torch.nn.Sequential(conv(8, 16, 1), torch.nn.BatchNorm2d(16))
        for module in self.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                for tensor in (module.weight.data, module.running_var):
                    tensor.uniform_(0.5, 2)
                for tensor in (module.bias.data, module.running_mean):
                    tensor.normal_()

    def forward(self, x):
        return torch.relu(self.path(x) + self.skip(x))

residual = Residual().eval()

module = torch.nn.Conv2d(64, 64, 3, padding=1).bfloat16().requires_grad_(False)
first = torch.nn.Conv2d(3, 64, 7, 2, 3).bfloat16().requires_grad_(False)

FORMS = {
    "a module's few images": (module, [large[:1]]),
    "a module's first": (first, [torch.randn(1, 3, 64, 64).bfloat16()]),
    "batch norms": (residual, [x]),
    "plain": (lambda x: F.conv2d(x, w), [x]),
    "bias": (lambda x: F.conv2d(x, w, b, (2, 1), (1, 0), (1, 2)), [x]),
    "relu": (lambda x: F.relu(F.conv2d(x, w, b, padding=1)), [x]),
    "pixels": (lambda x: F.conv2d(x, w[:, :, :1, :1].contiguous(), b), [x]),
    "groups": (lambda x: F.conv2d(x, w[:, :4].to(memory_format=torch.channels_last), b, groups=2), [x]),
    "transposed": (lambda x: F.conv_transpose2d(x, w.transpose(0, 1).to(memory_format=torch.channels_last), None, 2, 1, 1), [last(2, 8, 5, 4)]),
    "by data": (lambda g: torch.ops.aten.convolution_backward(g, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, False, False])[0], [last(2, 12, 6, 7)]),
    "by weight": (lambda g: torch.ops.aten.convolution_backward(g, x, w, None, [2, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False])[1], [last(2, 12, 3, 7)]),
    "rows first": (lambda x: F.conv2d(x, rows, b), [x.contiguous()]),
    "relu alone": (lambda x: F.relu(F.conv2d(x, w)), [x]),
    "sigmoid": (lambda x: torch.sigmoid(F.conv2d(x, w, b)), [x]),
    "large": (lambda x: F.conv2d(x, wide, padding=1), [large]),
    "few images": (lambda x: F.conv2d(x, wide, padding=1), [large[:1]]),
    "few channels": (lambda x: F.conv2d(x, wide[:, :3].to(memory_format=torch.channels_last), padding=1), [last(8, 3, 224, 224).bfloat16()]),
    "few results": (lambda x: F.conv2d(x, wide[:3].to(memory_format=torch.channels_last), padding=1), [last(8, 64, 112, 112).bfloat16()]),
    "few channels' data": (lambda g: F.conv_transpose2d(g, wide[:, :3].to(memory_format=torch.channels_last), padding=1), [last(8, 64, 112, 112).bfloat16()]),
    "f32": (lambda x: F.conv2d(x, wide.float(), padding=1), [large.float()]),
}
asked = json.loads(sys.argv[1])
found = {}
for name in asked["forms"]:
    function, given = FORMS[name]
    torch._dynamo.reset()
    options = {"device": "gpu:0", **asked["options"]}
    graphs = []
    with torch.no_grad():
        run = torch.compile(function, backend="zefuse", options=options, dynamic=False)
        with backend.observe(lambda _, graph: graphs.append(graph)):
            for _ in range(4):
                got = run(*given)
        want = function(*given)
    counters = graphs[0].counters()
    explained = zefuse.explain(function, *given, options=options)
    found[name] = {
        "error": ((got - want).abs().max() / want.abs().max()).item(), "strides": got.stride() == want.stride(),
        "calls": counters["library_calls"] / 4, "launches": counters["launches"] / 4, "replays": counters["replays"],
        "schedules": [kernel["schedule"] for kernel in explained.kernels], "ops": [kernel["name"] for kernel in explained.kernels],
        "packed": counters["weights_packed"], "reused": counters["weight_packs_reused"],
        "not_joined": [pair["reason"] for pair in explained.not_joined],
    }
import ctypes
log = ctypes.CDLL(os.environ["ZEFUSE_CUDA_LIBRARY"]).fake_cuda_log
log.restype = ctypes.c_char_p
found["log"] = log().decode()
found["device"] = next(row for row in reports.ask("devices") if row["device"] == "gpu:0")
print(json.dumps(found))
"""  # noqa: E501


def seen(tmp_path: Path, forms: list[str], library: str = "libfake_cudnn.so", **options: Any) -> dict[str, Any]:
    environment = {name: text for name, text in os.environ.items() if name != "ZEFUSE_CPU_DRIVER_AS"} | {
        "ZEFUSE_CUDA_LIBRARY": str(FAKES / "libfake_cuda.so"),
        "ZEFUSE_CUDNN": str(FAKES / library) if library.startswith("lib") else library,
        "ZEFUSE_CUBLASLT": "off",
        "ZEFUSE_CACHE_DIR": str(tmp_path / "cache"),
        "ZEFUSE_GPU_TARGET": "sm_90",
    }
    asked = {"forms": forms, "options": {"library_convolutions": "always"} | options}
    ran = children.run(PROGRAM, json.dumps(asked), env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


def test_the_library_computes_convolutions_and_their_derivatives(tmp_path: Path) -> None:
    forms = ["plain", "bias", "relu", "pixels", "groups", "transposed", "by data", "by weight"]
    found = seen(tmp_path, forms)
    for form in forms:
        result = found[form]
        assert result["calls"] == 1, (form, result)
        assert any("where the device's cuDNN is there, by that" in words for words in result["schedules"]), (
            form,
            result,
        )
        assert result["replays"] > 0, "recorded lists hold it"
        assert result["strides"], form
        assert result["launches"] == 0, (form, result)
        assert result["error"] < 1e-5, (form, result)
    assert found["device"]["convolution_library"].startswith("cuDNN 9.10.2 (")
    assert found["device"]["no_convolution_library"] is None
    assert "by data of 2x8x6x7/336,1,56,8 by 12x8x3x3/72,1,24,8 to 2x12x6x7/504,1,84,12 type 0" in found["log"]
    assert "by weight of 2x8x6x7/336,1,56,8 by 12x8x3x3/72,1,24,8 to 2x12x3x7/252,1,84,12 type 0" in found["log"]
    assert "bias relu type 0" in found["log"]


def test_its_images_and_weights_lie_channels_last(tmp_path: Path) -> None:
    found = seen(tmp_path, ["rows first"])["rows first"]
    assert (found["calls"], found["launches"]) == (1, 3), (
        "copies of the image, the weight, and the result for the caller"
    )
    assert found["strides"]


def test_a_batch_norm_is_part_of_the_weights_and_a_residual_of_the_call(tmp_path: Path) -> None:
    found = seen(tmp_path, ["batch norms"])
    result = found["batch norms"]
    assert result["calls"] == 3, result
    assert "bias residual relu type 0" in found["log"]
    assert result["packed"] > 0 and result["reused"] == 3 * result["packed"], "weights are made once, in four calls"
    assert result["launches"] == result["packed"] / 4, "and nothing else is launched"
    each = seen(tmp_path, ["batch norms"], kept_weights=False)
    assert (each["batch norms"]["calls"], each["batch norms"]["packed"]) == (3, 0)
    assert "bias" not in each["log"], "made in each call they would cost what is won"


def test_what_the_library_does_not_take_is_a_kernel_with_a_reason(tmp_path: Path) -> None:
    found = seen(tmp_path, ["relu alone", "sigmoid"])
    for form in ("relu alone", "sigmoid"):
        assert (found[form]["calls"], found[form]["launches"]) == (1, 1), (form, found[form])
        assert any("its call takes a bias, and behind one relu" in why for why in found[form]["not_joined"]), form


def test_without_the_library_the_kernels_run(tmp_path: Path) -> None:
    found = seen(tmp_path, ["relu"], library="off")
    assert (found["relu"]["calls"], found["relu"]["launches"]) == (0, 1)
    assert found["device"]["convolution_library"] is None
    assert found["device"]["no_convolution_library"] == "ZEFUSE_CUDNN turns it off"


def test_large_ones_of_16_bits_go_there_by_themselves(tmp_path: Path) -> None:
    small = ["few images", "few results", "few channels' data", "f32"]
    found = seen(tmp_path, ["large", "few channels", *small], library_convolutions="auto")
    assert found["large"]["calls"] == 1
    assert any("by that from 134217728 multiplications on" in words for words in found["large"]["schedules"])
    assert "4x64x56x56/200704,1,3584,64 by 64x64x3x3/576,1,192,64" in found["log"]
    assert found["few channels"]["calls"] == 1, "the first convolution of an image"
    for form in small:
        assert found[form]["calls"] == 0, form
        assert not any("cuDNN" in words for words in found[form]["schedules"]), form
    assert seen(tmp_path, ["large"], library_convolutions="never")["large"]["calls"] == 0


def test_smaller_ones_go_there_where_their_weights_copies_are_kept(tmp_path: Path) -> None:
    forms = ["a module's few images", "a module's first"]
    found = seen(tmp_path, forms, library_convolutions="auto")
    for form in forms:
        assert found[form]["calls"] == 1, form
        assert any("by that from 8388608 multiplications on" in words for words in found[form]["schedules"])
    assert "1x3x64x64/12288,1,192,3 by 64x3x7x7/147,1,21,3" in found["log"]
    each = seen(tmp_path, forms, library_convolutions="auto", kept_weights=False)
    assert [each[form]["calls"] for form in forms] == [0, 0]


def test_a_wrong_word_is_an_option_error() -> None:
    with pytest.raises(zefuse.errors.OptionError, match=r"library_convolutions='nevr'.*did you mean \"never\""):
        Options.make({"library_convolutions": "nevr"})
