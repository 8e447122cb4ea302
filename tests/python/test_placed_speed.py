"""What of tests/gpu_cuda's measurements needs no GPU of NVIDIA's: which cases are taken, the tables and the page, a package's results."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpu_cuda"))

import gpu_models
import model_speed
import placed_profile
import placed_speed
import speed_page
import torch
from device_time import Share


def test_cases() -> None:
    everything = placed_speed.chosen([])
    assert len(everything) == 30 and everything[:2] == ["GPT-2/train/8", "BERT-base/train/8"]
    assert placed_speed.chosen(["train"]) == everything[:6]
    assert placed_speed.chosen(["Swin/f32/1", "GPT-2/train/4"]) == ["Swin/f32/1", "GPT-2/train/4"]
    for unknown in ("BERT/f32/2", "GPT-2/f64/1", "GPT-2/f32/x", "VGG"):
        with pytest.raises(ValueError, match="no case has"):
            placed_speed.chosen([unknown])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("attention_gradient_keys_8x12x128x64", "attention, backward"),
        ("_scaled_dot_product_flash_attention_for_cpu_backward", "attention, backward"),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...>", "attention, backward"),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(...)", "attention, backward"),
        ("void cudnn::fusion::convert_dq_to_16bits<true>(...)", "attention, backward"),
        ("attention_8x12x128x64", "attention, forward"),
        ("matmul_1024x768", "products"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "products"),
        ("embedding_dense_backward", "scatters and gathers"),
        ("_to_copy", "copies and fills"),
        ("triton_red_fused_native_layer_norm_backward_12", "other kernels"),
        ("_to_copy_mul_add_tanh_rsub", "other kernels"),
    ],
)
def test_kinds_of_kernels(name: str, kind: str) -> None:
    assert placed_profile.kind_of(name) == kind


def test_tables() -> None:
    ways = {"zefuse": {"sum": Share(5, 1), "matmul_1": Share(40, 2)}, "eager": {"gemm": Share(30, 3)}}
    text = placed_profile.text(ways)
    rows = {line[:28].strip(): line[28:].split() for line in text.splitlines()}
    assert rows["products"] == ["40", "(", "2)", "30", "(", "3)"] and rows["all"] == ["45", "(", "3)", "30", "(", "3)"]
    assert rows["other kernels"] == ["5", "(", "1)", "0", "(", "0)"]
    slowest = [line.split()[-1] for line in text.splitlines() if " x " in line]
    assert slowest == ["matmul_1", "sum", "gemm"]  # the slowest of each way first
    assert "20.0  matmul_1" in text
    assert "sum" not in placed_profile.text(ways, most=1)
    assert placed_profile.text({"zefuse": {}}) == "the profiler saw no device"


def test_package_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_speed, "target", lambda: "dg2-g11")
    model, given = gpu_models.SMALL["BERT-base"].make().eval(), gpu_models.SMALL["BERT-base"].input(2)
    found: model_speed.Row = {}
    with torch.no_grad():
        way = model_speed.prepared("zefuse", model, given, torch.bfloat16, tmp_path, found)
        expected = model(given)
    got = way.values(way.run())
    assert got.dtype == torch.float32 and got.device.type == "cpu"
    assert (got - expected).abs().max() <= 2e-2 * expected.abs().max()
    assert found["load s"] > 0 and found["first call s"] > 0


def test_page() -> None:
    kernel = {"name": "add", "dtype": "f32", "product": False, "operations": 1, "bytes": 2**20, "right": True}
    kernel |= {"zefuse": 0.5, "eager": 1.0, "Inductor": 0.4, "zefuse error": 0.0}
    model = {
        "case": "ViT/bf16/1",
        "right": True,
        "zefuse": 2.0,
        "eager": float("nan"),
        "Inductor": 4.0,
        "zefuse span": 3.0,
    }
    machine = {"gpu": "G", "driver": "1", "torch": "2", "day": "1 May 2026", "GB/s": 100.0}
    text = speed_page.page(
        {"machine": machine, "rows": [kernel], "models": [model], "queueing": ["a launch: 1 us"]}, None
    )
    assert "Below their goals (1 of 1): add f32 0.80." in text
    assert (
        "| ViT, bf16, 1 | 2.000 (3.00) | nan (nan) | 4.000 (nan) | 2.00 |" in text and "2.00 times the better" in text
    )
    assert "- a launch: 1 us" in text
    assert "Whole models" not in speed_page.page({"machine": machine, "rows": [kernel]}, None)
