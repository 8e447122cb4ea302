"""The importer alone: what it writes, and why the rest falls back. That every operator we claim is imported, static and dynamic, and
nothing of it falls back, ops/test_ops.py shows on the whole road."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from capture_graph import graph_of, imported, native


def fallbacks(text: str) -> list[str]:
    return re.findall(r'reason = "([^"]*)"', text)


def one(function: Any, *inputs: Any, dynamic: bool = False) -> str:
    return imported(function, list(inputs), dynamic)


@pytest.mark.parametrize(
    ("function", "inputs", "reason"),
    [
        (lambda x: torch.histc(x, 4), [torch.ones(4)], "no lowering for aten::histc"),
        (lambda x: torch.cholesky_inverse(x), [torch.eye(4)], "no lowering for aten::cholesky_inverse"),
        (lambda x: 100**x, [torch.arange(4)], "aten::pow: an integer to a power given as a tensor is not lowered"),
        (lambda x: x**x, [torch.arange(4)], "aten::pow: an integer to a power given as a tensor is not lowered"),
        (lambda x: torch.nn.functional.conv1d(x, x), [torch.ones(1, 1, 4, dtype=torch.float64)], "aten::convolution: convolution of f64 is not lowered"),
    ],
)  # fmt: skip
def test_fallback_reason(function: Any, inputs: list[Any], reason: str) -> None:
    assert fallbacks(one(function, *inputs)) == [reason]


def test_aten_arguments() -> None:
    text = one(lambda x: torch.ops.aten.linalg_lu_factor_ex(x * 2, pivot=True, check_errors=False), torch.ones(4, 6))
    assert re.search(r'zefuse\.aten "aten::linalg_lu_factor_ex"\(%\w+\)', text)
    assert "args = [{tensor = 0 : i64}, true, false]" in text
    assert "(tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4xi32>, tensor<i32>)" in text


def test_random_draws_stay_apart() -> None:
    text = one(lambda x: torch.rand_like(x) - torch.rand_like(x), torch.ones(4))
    assert len(re.findall(r'zefuse\.aten "aten::rand_like".*ordered', text)) == 2


def test_custom_operator() -> None:
    @torch.library.custom_op("zefuse_test::triple", mutates_args=())
    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @triple.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    assert fallbacks(one(lambda x: triple(x) + 1, torch.ones(4))) == ["no lowering for zefuse_test::triple"]


def test_symbols_and_outputs() -> None:
    text = one(lambda x: ((x + 1).transpose(0, 1), x.shape[0]), torch.ones(5, 7), dynamic=True)
    symbols = re.search(r"zefuse\.symbols = \[([^\]]*)\]", text)
    assert symbols is not None and symbols.group(1).count('"') == 4
    assert "zefuse.symbol_sources = [{input = 0 : i64}, {input = 1 : i64}]" in text
    assert "zefuse.inputs = [{symbol = 0 : i64}, {symbol = 1 : i64}, {arg = 0 : i64}]" in text
    assert "zefuse.view %" in text and "tensor<?x?xf32, #map" in text


def test_parameters_and_locations() -> None:
    gm = graph_of(torch.nn.functional.linear, [torch.ones(2, 3), torch.ones(4, 3)])
    text = native().import_to_text(gm, [1], True)
    assert re.findall(r'zefuse\.kind = "(\w+)"', text) == ["user", "parameter"]
    gm = graph_of(lambda x: torch.nn.functional.gelu(x), [torch.ones(2, 3)])
    text = native().import_to_text(gm, [], True)
    location = re.search(r'loc\("aten\.gelu\.default\|gelu"\((#loc\d+)\)\)', text)
    assert location is not None
    assert re.search(location.group(1) + r' = loc\(".*test_import\.py":\d+:0\)', text)


def test_constants() -> None:
    table = torch.arange(4.0)
    gm = graph_of(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.tensor(0.5), [table])
    constants = native().constants(gm)
    assert [c.tolist() for c in constants] == [[1.0, 2.0, 3.0, 4.0]]  # the 0-d one is folded
    text = native().import_to_text(gm)
    assert re.findall(r'zefuse\.kind = "(\w+)"', text) == ["user", "constant"]
    assert "arith.constant 5.000000e-01" in text


def test_size_without_affine_form() -> None:
    text = one(lambda x: x.diagonal() + 1, torch.ones(5, 7), dynamic=True)
    assert re.search(r'zefuse\.symbols = \["s\d+", "s\d+", "Min\(s\d+, s\d+\)"\]', text)
    assert re.search(r'zefuse\.symbol_sources = .*\["min", #map\d*, #map\d*\]\]', text)


def test_size_that_no_plan_computes() -> None:
    with pytest.raises(RuntimeError, match=r"symbolic size .* is neither the size of an input nor .*mark_static"):
        one(lambda x: torch.zeros(int(round(x.shape[0] / 3, 1))) + 1, torch.ones(9, 2), dynamic=True)


def test_real_numbers_are_computed_as_the_nodes_say() -> None:
    """Not as sympy says, which has multiplied the constants."""
    text = one(lambda x: torch.zeros(int(x.shape[0] * 0.7 * 3)) + 1, torch.ones(10, 2), dynamic=True)
    assert '"trunc"' in text and "0.69999999999999996" in text and "3.000000e+00" in text


def test_graph_without_fake_values() -> None:
    gm = torch.fx.symbolic_trace(lambda x: torch.relu(x))
    with pytest.raises(RuntimeError, match="has no meta\\['val'\\]"):
        native().import_to_text(gm)


def test_kept_operators_are_known() -> None:
    """What the decomposition table keeps as 'lowered' must be in the importer's table."""
    from zefuse.decompositions import table as decompositions

    known = {target.split(".")[1] for target in native().targets() if target.startswith("aten.")}
    composite = {"log_sigmoid", "hardsigmoid"}
    names = set(decompositions._LOWERED.split()) | set(decompositions._PRODUCTS.split())
    assert sorted(names - known - composite) == []
