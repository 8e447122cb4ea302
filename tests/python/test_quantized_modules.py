"""Modules that torchao quantized, and models quantized by export (PT2E): compiled as they come."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

import zefuse
import zefuse.llm

torchao = pytest.importorskip("torchao.quantization")
from torchao.quantization.granularity import PerGroup  # noqa: E402

_CONFIGS: dict[str, Any] = {
    "int8": torchao.Int8WeightOnlyConfig,
    "int8_groups": lambda: torchao.Int8WeightOnlyConfig(granularity=PerGroup(32)),
    "int4": lambda: torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    "dynamic_int8": torchao.Int8DynamicActivationInt8WeightConfig,
    "dynamic_int8_int4": lambda: torchao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32)
    ),
}


class _Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(128, 96), torch.nn.Linear(96, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("config", _CONFIGS)
def test_torchao_modules_compile_without_fallbacks(config: str, rows: int) -> None:
    torch.manual_seed(0)
    model = _Two().eval()
    torchao.quantize_(model, _CONFIGS[config]())
    x = torch.randn(rows, 128)
    with torch.no_grad():
        expected = model(x)
        made = torch.compile(model, backend="zefuse", options={"strict": True})(x)
    # A code of the inputs may be another one where eager's arithmetic rounds just across.
    assert (made - expected).norm() < (1e-2 if "dynamic" in config else 1e-5) * expected.norm()


@pytest.mark.parametrize("rows", [1, 3])
def test_products_of_int8_are_exact(rows: int) -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-128, 128, size, dtype=torch.int8, generator=draw) for size in ((rows, 2100), (2100, 24)))
    a[0], b[:, :2] = -127, -127  # sums of 2100 odd numbers, beyond those that f32 has each of
    expected = (a.double() @ b.double()).to(torch.int32)
    product = torch.compile(torch._int_mm, backend="zefuse", options={"strict": True})
    assert torch.equal(product(a, b), expected)


def test_a_language_model_of_torchao() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=128,
        bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    for config_name, part in (("int4", "mlp"), ("int8", "lm_head"), ("dynamic_int8", "self_attn")):
        torchao.quantize_(
            model,
            _CONFIGS[config_name](),
            lambda module, name, part=part: type(module) is torch.nn.Linear and part in name,
        )
    prompt = torch.tensor([[1, 17, 42, 99, 5]])
    arguments = {
        "max_new_tokens": 4, "do_sample": False, "return_dict_in_generate": True, "output_logits": True,
    }  # fmt: skip
    expected = model.generate(prompt, **arguments)
    said = expected.sequences[0].tolist()
    optimized = zefuse.llm.optimize(model)
    made = optimized.generate(prompt, prefix_allowed_tokens_fn=lambda _, before: [said[len(before)]], **arguments)
    for logits, without in zip(made.logits, expected.logits, strict=True):
        assert (logits - without).norm() < 0.01 * without.norm()
    report = zefuse.llm.report(optimized)
    assert report.left == [] and [graph.fallbacks for graph in report.graphs] == [0, 0]
    assert [graph.different_layers for graph in report.graphs] == [1, 1]
    assert "weights: 7 matrices of torchao's, packed" in report.changed
    assert "weights: 8 linear layers of torchao's, with its arithmetic" in report.changed


class _Images(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16)
        self.second, self.last = torch.nn.Conv2d(16, 16, 3, stride=2, padding=1, groups=2), torch.nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        return self.last(torch.relu(self.second(x)).mean((2, 3)))  # type: ignore[no-any-return]


def _exported(images: torch.Tensor, calibration: list[torch.Tensor]) -> Any:
    """Quantized by export, as torchao's tutorial for x86 does it."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as of_x86

    quantizer = of_x86.X86InductorQuantizer()
    quantizer.set_global(of_x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(_Images().eval(), (images,)).module(), quantizer)
    for each in calibration:
        prepared(each)
    return convert_pt2e(prepared)


def test_a_model_quantized_by_export_has_no_fallbacks() -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 3, 16, 16)
    model = _exported(images, [images, torch.randn(2, 3, 16, 16)])
    with torch.no_grad():
        explanation = zefuse.explain(model, images)
    assert explanation.fallbacks == []
    assert [call["kind"] for call in explanation.calls] == ["int8 convolution", "int8 convolution", "int8 linear"]
    with torch.no_grad():
        made, expected = torch.compile(model, backend="zefuse")(images), model(images)
    quantum = next(node.args[1] for node in reversed(model.graph.nodes) if "dequantize_per_tensor" in str(node.target))
    weight = model._frozen_param2.float() * model._scale_2.unsqueeze(
        1
    )  # of the last layer, whose input has such quanta
    assert (made - expected).abs().max() <= quantum * weight.abs().sum(1).max()


def test_codes_are_eagers() -> None:
    import torch.ao.quantization.fx._decomposed

    ops = torch.ops.quantized_decomposed
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(4, 6, 5, generator=draw)
    scales, zeros = torch.rand(6, generator=draw) / 8 + 0.01, torch.randint(-5, 5, (6,), generator=draw)

    def codes(x: torch.Tensor) -> Any:
        whole = ops.quantize_per_tensor(x, 0.03, 7, 0, 255, torch.uint8)
        channels = ops.quantize_per_channel(x, scales, zeros, 1, -128, 127, torch.int8)
        tensor = ops.quantize_per_tensor.tensor(x, scales[0], zeros[0], -128, 127, torch.int8)
        return whole, channels, tensor

    def numbers(whole: torch.Tensor, channels: torch.Tensor, tensor: torch.Tensor) -> Any:
        return (
            ops.dequantize_per_tensor(whole, 0.03, 7, 0, 255, torch.uint8),
            ops.dequantize_per_channel(channels, scales, zeros, 1, -128, 127, torch.int8),
            ops.dequantize_per_tensor.tensor(tensor, scales[0], zeros[0], -128, 127, torch.int8),
        )

    expected = codes(x)
    for made, of_eager in zip(
        torch.compile(codes, backend="zefuse", options={"strict": True})(x), expected, strict=True
    ):
        assert made.dtype == of_eager.dtype and torch.equal(made, of_eager)
    compiled = torch.compile(numbers, backend="zefuse", options={"strict": True})
    for made, of_eager in zip(compiled(*expected), numbers(*expected), strict=True):
        torch.testing.assert_close(made, of_eager, rtol=1e-6, atol=0)
