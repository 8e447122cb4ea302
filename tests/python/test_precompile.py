"""The precompile cache: a second process traces nothing, and whatever changed is traced again and gives right numbers."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import pytest
import torch
import zoo
from torch import nn
from transformers import BertConfig, BertModel
from transformers.modeling_outputs import BaseModelOutput

from zefuse.precompile import calls as precompile

PROGRAM = Path(__file__).with_name("precompiled.py")


def run(folder: Path, change: str = "none") -> str:
    """One process; it fails where the result is not eager's."""
    done = children.run(PROGRAM, change, env={**os.environ, "ZEFUSE_CACHE_DIR": str(folder)})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    first = run(folder)
    assert first.startswith("1 frames") and first.endswith("Model.forward: kept"), first
    return folder


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept, tmp_path / "cache")
    return tmp_path / "cache"


@pytest.mark.parametrize("change", ["none", "weights", "training"])  # nothing in it depends on that flag
def test_a_second_process_traces_nothing(folder: Path, change: str) -> None:
    second = run(folder, change)
    assert second.startswith("0 frames") and "taken from the cache" in second and "again" not in second, second


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("global", "SCALE: was 'float 2.0'"),
        ("inlined function", "helper"),
        ("torch function", "relu"),
        ("function inside torch", "linear"),
        ("option", ""),
        ("backend", ""),
        ("dtype", ""),
        ("shape", ""),
        ("strides", "strides [16, 1]"),
        ("argument", ""),
        ("grad", ""),
        ("inference mode", ""),
        ("autocast", ""),
        ("subclass", ""),
        ("method", "forward"),
        ("instance method", "forward"),
        ("attribute", "int 3"),
        ("hook", "_forward_hooks"),
        ("parameter", ""),
        ("tied", "weight"),
    ],
)
def test_a_change_is_traced_again(folder: Path, change: str, why: str) -> None:
    """The program compares with eager under the same change."""
    line = run(folder, change)
    assert not line.startswith("0 frames"), line
    if why:
        assert "compiled again: " in line and why.partition(": was")[0] in line, line
    else:
        assert "taken" not in line, line


def test_a_damaged_entry_is_not_used(folder: Path) -> None:
    (entry,) = folder.glob("*.precompile")
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)
    assert run(folder).startswith("1 frames")


def test_an_entry_that_others_can_write_is_not_used(folder: Path) -> None:
    (entry,) = folder.glob("*.precompile")
    entry.chmod(0o666)
    assert run(folder).startswith("1 frames")


COUNT = [0]


def counts(x: torch.Tensor) -> torch.Tensor:
    COUNT[0] += 1
    return x + 1


def writes(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1)


def views(x: torch.Tensor) -> torch.Tensor:
    return x[1:]


def breaks(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def imports(x: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    return functional.relu(x)


def by_name(x: torch.Tensor) -> torch.Tensor:
    return getattr(nn.functional, "relu")(x)  # noqa: B009


@pytest.fixture
def enabled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch, "compile", torch.compile)  # put back at the end
    monkeypatch.setenv("ZEFUSE_CACHE_DIR", str(tmp_path))
    precompile._events.clear()
    precompile.enable_precompile()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (counts, "it changes an object"),
        (writes, "it changes a tensor"),
        (views, "a view of an input"),
        (breaks, "it is more than one graph"),
    ],
)
def test_what_is_not_covered_is_not_kept(
    enabled: None, tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor], why: str
) -> None:
    x = torch.arange(6.0)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(function, backend="zefuse")(x.clone()), function(x.clone()))
    assert not list(tmp_path.glob("*.precompile"))
    assert any("not kept" in event and why in event for event in precompile.events()), precompile.events()


@pytest.mark.parametrize(
    ("model", "options", "why"),
    [
        (torch.nn.functional.softplus, {}, "no function of Python's"),
        (nn.Linear(3, 3), {"device": "gpu:0"}, "compiled for gpu:0"),
        (nn.Linear(3, 3), {"targets": ["avx2"]}, "the option targets is given"),
    ],
)
def test_what_is_not_looked_for_says_why(enabled: None, model: Any, options: dict[str, Any], why: str) -> None:
    x = torch.arange(3.0)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="zefuse", options=options)(x), model(x))
    assert any("not looked for" in event and why in event for event in precompile.events()), precompile.events()


def test_training_is_as_before(enabled: None, tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    torch.compile(model, backend="zefuse")(torch.ones(2, 4)).sum().backward()
    assert model.weight.grad is not None and not list(tmp_path.glob("*.precompile"))
    assert any("it needs gradients" in event for event in precompile.events()), precompile.events()


def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 if x is y else x + y


CONFIG = {"scale": 2.0, "more": [1, 2]}


class Settings:
    """No module, and one attribute is computed."""

    def __init__(self) -> None:
        self._eps = 1.0

    @property
    def eps(self) -> float:
        return self._eps


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("offset", torch.zeros(4))
        self.sizes = [1, 2]
        self.settings = Settings()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x) + self.offset + self.settings.eps
        return x * CONFIG["scale"] + len(self.sizes) + helper(x, CONFIG["more"][0])


def helper(x: torch.Tensor, number: int, factor: float = 1.0) -> torch.Tensor:
    return x.sum() * number * factor


def set_class(part: Part) -> None:
    class Other(Part):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 100

    part.__class__ = Other


def helper_code() -> None:
    helper.__code__ = (lambda x, number, factor=1.0: x.sum() - number - factor).__code__


def in_a_fresh_table(model: Any, *inputs: Any) -> Any:
    """The compiled callable, its entry read from the cache as a second process would, and used twice."""
    with torch.no_grad():
        torch.compile(model, backend="zefuse")(*inputs)
        assert precompile.events()[-1].endswith(": kept"), precompile.events()
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="zefuse")
        for _ in range(3):
            torch.testing.assert_close(compiled(*inputs), model(*inputs))
    assert precompile.events()[-1].endswith("taken from the cache"), precompile.events()
    return compiled


@pytest.mark.parametrize("function", [imports, by_name])
def test_functions_by_other_roads(enabled: None, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    in_a_fresh_table(function, torch.arange(6.0) - 3)


class Doubled(nn.Sequential):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model[1], "negative_slope", 0.5),
        lambda model: setattr(model[2][0], "dim", 0),
        lambda model: model.append(nn.Tanh()),
        lambda model: model.__setitem__(1, nn.Tanh()),
        lambda model: model.__delitem__(1),
        lambda model: model[0].register_forward_hook(lambda module, args, out: out * 2),
        lambda model: model.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
        lambda model: setattr(model, "forward", lambda x: x * 3),
        lambda model: setattr(model[1], "forward", lambda x: x * 3),
        lambda model: setattr(model, "__class__", Doubled),
        lambda model: setattr(model[0], "bias", None),
        lambda model: model.double(),
    ],
)
def test_modules_of_torch(enabled: None, change: Callable[[nn.Sequential], Any]) -> None:
    """Dynamo traces a wrapper around them, not their forward."""
    model = nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.1), nn.Sequential(nn.Softmax(-1)))
    x = torch.arange(12.0).reshape(3, 4) - 5
    compiled = in_a_fresh_table(model, x)
    change(model)
    x = x.to(next(model.parameters()).dtype)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        torch.testing.assert_close(torch.compile(model, backend="zefuse")(x), model(x))


def test_a_module_compiled_in_place(enabled: None) -> None:
    model, x = Part(), torch.ones(2, 4)
    expected = model(x)
    for event in ("kept", "taken from the cache"):
        torch._dynamo.reset()
        with torch.no_grad():
            model.compile(backend="zefuse")
            for _ in range(3):
                torch.testing.assert_close(model(x), expected)
        assert precompile.events()[-1].endswith(event), precompile.events()
    model.sizes.append(3)
    torch.testing.assert_close(model(x), expected + 1)
    model.register_forward_hook(lambda module, args, out: out * 2)
    torch.testing.assert_close(model(x), expected * 2 + 2)


def test_functions_of_torch(enabled: None) -> None:
    in_a_fresh_table(nn.functional.normalize, torch.arange(12.0).reshape(3, 4) - 5)


def test_one_tensor_twice_is_not_two_tensors(enabled: None) -> None:
    x, y = torch.ones(3), torch.full((3,), 5.0)
    compiled = in_a_fresh_table(both, x, y)
    with torch.no_grad():
        torch.testing.assert_close(compiled(y, y), y * 2)
        torch.testing.assert_close(compiled(x, y), x + y)


@pytest.mark.parametrize(
    "change",
    [
        lambda part: CONFIG.update(scale=3.0),
        lambda part: CONFIG["more"].__setitem__(0, 7),  # type: ignore[attr-defined]
        lambda part: part.sizes.append(3),
        lambda part: setattr(part.settings, "_eps", 4.0),
        lambda part: setattr(part, "layer", nn.Linear(4, 4, bias=False)),
        lambda part: setattr(part, "offset", torch.ones(1)),
        lambda part: setattr(part.layer, "weight", nn.Parameter(torch.ones(4, 4))),
        lambda part: part.layer.weight.data.fill_(2.0),
        lambda part: setattr(part.layer.weight, "data", torch.ones(4, 4).t().contiguous().t() * 3),
        lambda part: part.layer.register_forward_hook(lambda module, args, out: out * 2),
        lambda part: part.register_forward_hook(lambda module, args, out: out * 2),
        lambda part: part.double(),
        lambda part: setattr(part, "__dict__", {**part.__dict__, "sizes": [1]}),
        lambda part: setattr(part.layer, "forward", lambda x: x),
        lambda part: setattr(helper, "__defaults__", (9.0,)),
        lambda part: helper_code(),
        set_class,
    ],
)
def test_a_change_after_many_calls_is_seen(
    enabled: None, change: Callable[[Part], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later calls compare only what changes leave a trace in: none may be missed."""
    monkeypatch.setitem(globals(), "CONFIG", {"scale": 2.0, "more": [1, 2]})
    monkeypatch.setattr(helper, "__defaults__", (1.0,))
    monkeypatch.setattr(helper, "__code__", helper.__code__)
    part = Part().eval()
    compiled = in_a_fresh_table(part, torch.randn(3, 4))
    change(part)
    x = torch.randn(3, 4, dtype=part.layer.weight.dtype)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), part(x))


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="CPython 3.13 gives dictionaries no versions: all is compared")
def test_later_calls_compare_little(enabled: None) -> None:
    """Nothing of the model is described again, and few of its attributes are looked up."""
    part = Part().eval()
    compiled = in_a_fresh_table(part, torch.randn(3, 4))
    (entry,) = compiled.forward._entries.values()
    watched = entry._watched
    assert watched._watch.unchanged()
    names = [entry.table.name(node) for node in watched._nodes]
    assert names == ["x"], names
    part.unrelated = 1  # looked at again, found the same, watched anew
    assert not watched._watch.unchanged()
    with torch.no_grad():
        compiled(torch.randn(3, 4))
    assert entry._watched is not watched and entry._watched._watch.unchanged()


@pytest.mark.parametrize("name", ["MiniLM", "BERT", "GPT-2", "ViT", "ResNet-18", "T5"])
def test_models_of_transformers(enabled: None, name: str) -> None:
    example = zoo.make(name)
    in_a_fresh_table(example.model, *example.inputs)


def test_a_model_of_transformers_by_itself(enabled: None) -> None:
    """Not in a module of ours: comparing its guards calls Python of transformers, which Dynamo sees as frames of their own."""
    config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=50)
    in_a_fresh_table(BertModel(config).eval(), torch.randint(0, 50, (2, 8)))


def test_a_recurrent_network(enabled: None) -> None:
    """Its weights are guarded behind weak references."""
    example = zoo.make("LSTM")
    with torch._dynamo.config.patch(example.dynamo_options):
        compiled = in_a_fresh_table(example.model, *example.inputs)
        with torch.no_grad():
            example.model.layers.weight_hh_l0 = nn.Parameter(torch.ones_like(example.model.layers.weight_hh_l0))
            torch.testing.assert_close(compiled(*example.inputs), example.model(*example.inputs))


class Encoder(nn.Module):
    def forward(self, x: torch.Tensor) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=x.tanh(), hidden_states=(x * 2,))


def test_a_result_of_transformers_own_class(enabled: None) -> None:
    x = torch.randn(3)
    compiled = in_a_fresh_table(Encoder(), x)
    actual = compiled(x)
    assert type(actual) is BaseModelOutput and list(actual) == ["last_hidden_state", "hidden_states"]
    torch.testing.assert_close(actual["hidden_states"], (x * 2,))


class AnySize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.shape[0] % 2 == 0:
            return torch.softmax(self.layer(x), -1) * x.shape[0]
        return self.layer(x).sum(0) + y[0] * y.shape[0]


@pytest.mark.parametrize("how", ["marked", "automatic", "option"])
def test_any_size(enabled: None, how: str) -> None:
    """One entry for many sizes; what torch guards of them is held to."""
    model = AnySize().eval()

    def inputs(rows: int, other: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = torch.randn(rows, 6), torch.randn(other, 4)
        if how == "marked":
            torch._dynamo.mark_dynamic(x, 0)
        return x, y

    def use(compiled: Any, rows: int, other: int = 3) -> None:
        given = inputs(rows, other)
        torch.testing.assert_close(compiled(*given), model(*given))

    option = {"dynamic": True} if how == "option" else {}
    with torch.no_grad():
        compiled = torch.compile(model, backend="zefuse", **option)
        for rows in (8, 10):
            use(compiled, rows)
        assert precompile.events()[-1].endswith(": kept"), precompile.events()
        torch._dynamo.reset()
        precompile._events.clear()
        compiled = torch.compile(model, backend="zefuse", **option)
        for _ in range(3):
            for rows in (12, 30, 4):
                use(compiled, rows)
        assert [event.partition(": ")[2] for event in precompile.events()] == ["taken from the cache"]
        for rows, other in ((7, 3), (12, 5), (1, 3), (0, 3), (12, 3)):
            use(compiled, rows, other)
        assert any("holds" in event or "strides" in event for event in precompile.events()), precompile.events()


def test_a_size_that_is_returned(enabled: None) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x * 2, x.shape[0]

    with torch.no_grad():
        compiled = torch.compile(f, backend="zefuse", dynamic=True)
        for rows in (4, 5):
            assert compiled(torch.ones(rows))[1] == rows
        torch._dynamo.reset()
        compiled = torch.compile(f, backend="zefuse", dynamic=True)
        for rows in (4, 5, 6):
            assert compiled(torch.ones(rows))[1] == rows
