"""Linear layers of models quantized by export: one call of the codes each, against eager's own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from quantized_layer import RANGES, QuantizedLayer, assert_near, aten, explained, kinds, made_in_part, ops
from torch import nn

import zefuse
from zefuse import backend

_IN, _OUT = 48, 24


class _Linear(QuantizedLayer):
    def __init__(self, *, dynamic: str = "", sizes: tuple[int, int] = (_OUT, _IN), **options: Any) -> None:
        super().__init__(sizes, 500, **options)
        self.dynamic = dynamic

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        if not self.dynamic:
            return super().rounded(x)
        low, high, dtype = self.of_input[2:]
        scale, zero = getattr(ops, self.dynamic).tensor(x, low, high, 2.0**-12, dtype)
        codes = ops.quantize_per_tensor.tensor(x, scale, zero, low, high, dtype)
        return ops.dequantize_per_tensor.tensor(codes, scale, zero, low, high, dtype)

    def product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return aten.linear.default(x, weight, self.bias)


def _assert_near(made: torch.Tensor, expected: torch.Tensor) -> None:
    assert_near(made, expected)
    assert made.stride() == expected.stride()


_CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "codes": ((5,), {"relu": True}),
    "numbers": ((2, 7), {"relu": True, "result": None}),
    "zero_point": ((3, 5), {"zero": 121, "result_zero": 130}),
    "signed": ((4,), {"dtype": torch.int8, "zero": -7, "result": torch.int8, "relu": True, "result_zero": 3}),
    "residual": ((2, 3, 4), {"residual": True, "relu": True, "bias": False}),
    "residual_of_numbers": ((6,), {"residual": True, "result": None}),
    "a_single_row": ((1,), {"zero": 9}),
    "a_vector": ((), {"result": None, "zero": 9}),
    "dynamic": ((2, 7), {"dynamic": "choose_qparams", "result": None}),
    "dynamic_to_codes": ((9,), {"dynamic": "choose_qparams", "relu": True}),
    "dynamic_residual": ((2, 3), {"dynamic": "choose_qparams", "residual": True, "bias": False, "result": None}),
    "dynamic_signed": ((8,), {"dynamic": "choose_qparams", "dtype": torch.int8, "result": None}),
    "dynamic_symmetric": ((8,), {"dynamic": "choose_qparams_symmetric", "dtype": torch.int8, "result": None}),
}


@pytest.mark.parametrize("name", _CASES)
def test_codes_are_eagers_to_one_step(name: str) -> None:
    lead, options = _CASES[name]
    model = _Linear(**options).eval()
    draw = torch.Generator().manual_seed(1)
    x, more = torch.randn(*lead, _IN, generator=draw) + 0.3, torch.randn(*lead, _OUT, generator=draw)
    with torch.no_grad():
        expected = model(x, more.clone())
    explanation = explained(model, x, more.clone())
    assert kinds(explanation) == ["int8 linear"]
    assert any("quantized_linear" in op for op in explanation.calls[0]["ops"])
    _assert_near(explanation.result, expected)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("kind", ["both", "positive", "negative", "zeros"])
def test_chosen_scales_are_eagers(kind: str, dtype: torch.dtype, symmetric: bool) -> None:
    x = torch.randn(3, 50, generator=torch.Generator().manual_seed(2))
    x = {"both": x, "positive": x.abs() + 1, "negative": -x.abs() - 1, "zeros": x * 0}[kind]
    choose = ops.choose_qparams_symmetric.tensor if symmetric else ops.choose_qparams.tensor

    def chosen(x: torch.Tensor) -> Any:
        return choose(x, *RANGES[dtype], 2.0**-12, dtype)

    explanation = explained(chosen, x)  # type: ignore[arg-type]
    assert explanation.fallbacks == []
    for made, expected in zip(explanation.result, chosen(x), strict=True):
        assert made.dtype == expected.dtype and torch.equal(made, expected)


@pytest.mark.parametrize("dynamic", ["", "choose_qparams"])
def test_sums_of_the_largest_codes(dynamic: str) -> None:
    """Pairs of products that 16 bits do not hold. (Without VNNI the sums are f32's.)"""
    model = _Linear(result=None, bias=False, sizes=(16, 4096), dynamic=dynamic).eval()
    model.codes.fill_(127)
    explanation = explained(model, x := torch.full((3, 4096), 100.0), x)
    assert kinds(explanation) == ["int8 linear"]
    number = 255 * 0.015 if not dynamic else 100.0
    expected = 4096 * number * 127 * model.scales
    torch.testing.assert_close(explanation.result, expected.expand(3, -1), rtol=1e-4, atol=0)


def test_what_stays_a_product_of_numbers() -> None:
    x = torch.randn(5, _IN)
    asymmetric = _Linear(weight_zero=3).eval()
    assert kinds(explained(asymmetric, x, x)) == ["matmul"]
    trained = _Linear(result=None).eval()
    trained.bias = nn.Parameter(torch.zeros(_OUT))
    torch._dynamo.reset()
    torch.compile(trained, backend="zefuse")(x, x).sum().backward()
    assert trained.bias.grad is not None


def test_zero_points_that_change_are_an_error() -> None:
    model = _Linear().eval()
    x = torch.randn(5, _IN)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="zefuse")
    with torch.no_grad():
        compiled(x, x)
        model.zeros[2] = 1
        with pytest.raises(ValueError, match="zero points of a quantized layer's weights were 0"):
            compiled(x, x)


@pytest.mark.parametrize("dynamic", ["", "choose_qparams"])
def test_any_number_of_rows(dynamic: str) -> None:
    model = _Linear(zero=7, relu=True, residual=True, dynamic=dynamic).eval()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="zefuse", dynamic=True)
    with torch.no_grad():
        for lead in ((2, 9), (3, 6), (17, 40)):
            x, more = torch.randn(*lead, _IN), torch.randn(*lead, _OUT)
            difference = (compiled(x, more.clone()).float() - model(x, more.clone()).float()).abs()
            assert difference.max() <= 1 and difference.mean() < 0.01


@pytest.mark.parametrize("name", ["residual", "signed", "dynamic_residual", "a_vector"])
def test_a_part_in_eager(name: str) -> None:
    lead, options = _CASES[name]
    model = _Linear(**options).eval()
    x, more = torch.randn(*lead, _IN), torch.randn(*lead, _OUT)
    made = made_in_part(model, x, more.clone())
    with torch.no_grad():
        expected = model(x, more.clone())
    assert (made.float() - expected.float()).abs().max() <= (1e-4 if made.is_floating_point() else 1)


def test_weights_are_packed_once() -> None:
    model = _Linear(result=None, sizes=(256, 256)).eval()
    graphs: list[Any] = []
    torch._dynamo.reset()
    with torch.no_grad(), backend.observe(lambda _, graph: graphs.append(graph)):
        compiled = torch.compile(model, backend="zefuse")
        for _ in range(4):
            compiled(x := torch.randn(3, 256), x)
    # The first call keeps nothing, the second what it packs, and what two kernels make of the weight's scales.
    counters = graphs[0].counters()
    assert (counters["weights_streamed"], counters["weights_packed"], counters["weight_packs_reused"]) == (1, 3, 6)


@pytest.mark.parametrize("dynamic", ["", "choose_qparams"])
def test_a_package(dynamic: str, tmp_path: Path) -> None:
    model = _Linear(relu=True, zero=7, dynamic=dynamic).eval()
    x, more = torch.randn(2, 9, _IN), torch.randn(2, 9, _OUT)
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(model, (x, more), dynamic_shapes=({1: rows}, {1: rows}))
    explanation = zefuse.compile_package(program, tmp_path / "model.zefuse", standalone=True)
    assert kinds(explanation) == ["int8 linear"]
    loaded = zefuse.load(tmp_path / "model.zefuse")
    with torch.no_grad():
        for count in (9, 5):
            given = x[:, :count].contiguous(), more[:, :count].contiguous()
            assert (loaded(*given).float() - model(*given).float()).abs().max() <= 1


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_what_pt2e_makes(is_dynamic: bool) -> None:
    quantizers = pytest.importorskip("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)).eval()
    x = torch.randn(3, 7, 64)
    config = quantizers.get_default_x86_inductor_quantization_config(is_dynamic=is_dynamic)
    prepared = prepare_pt2e(
        torch.export.export(model, (x,)).module(), quantizers.X86InductorQuantizer().set_global(config)
    )
    prepared(x)
    converted = convert_pt2e(prepared)
    explanation = explained(converted, x)
    assert kinds(explanation) == ["int8 linear"] * 2
    with torch.no_grad():
        # One code of what is between the layers, times a weight.
        bound = 0.01 * float(converted(x).abs().max())
        torch.testing.assert_close(explanation.result, converted(x), rtol=0, atol=bound)
