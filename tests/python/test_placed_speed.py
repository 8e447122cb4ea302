"""What of tests/gpu_cuda/placed_speed.py needs no GPU: which cases it takes, and the tables of --profile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpu_cuda"))

import placed_profile
import placed_speed
from device_time import Share


def test_cases() -> None:
    everything = placed_speed.chosen([])
    assert len(everything) == 30 and everything[:2] == ["GPT-2/train/8", "BERT-base/train/8"]
    assert placed_speed.chosen(["train"]) == everything[:6]
    assert placed_speed.chosen(["Swin/f32/1", "GPT-2/train/4"]) == ["Swin/f32/1", "GPT-2/train/4"]


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
    text = placed_profile.text(
        {"zefuse": {"matmul_1": Share(40, 2), "sum": Share(5, 1)}, "eager": {"gemm": Share(30, 3)}}
    )
    rows = {line[:28].strip(): line[28:].split() for line in text.splitlines()}
    assert rows["products"] == ["40", "(", "2)", "30", "(", "3)"] and rows["all"] == ["45", "(", "3)", "30", "(", "3)"]
    assert "20.0  matmul_1" in text
    assert placed_profile.text({"zefuse": {}}) == "the profiler saw no device"
