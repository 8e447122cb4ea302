"""zefuse.check: what it compares, what it finds where something is wrong, and what it says to bad input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import children
import pytest
import torch
from torch import Tensor, nn

import zefuse
from zefuse import backend, cli
from zefuse.checking import comparing, modes, timing
from zefuse.checking.running import Outcome
from zefuse.checking.subject import Subject
from zefuse.errors import InvalidArgumentError
from zefuse.testing import assert_compiled


class Network(nn.Module):
    """Something of each: weights, a batch norm's buffers, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.drop = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Dropout(0.2)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.convolution(x)))
        return self.head(self.drop(x.mean((2, 3))))


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 8, 8)


def planted(monkeypatch: pytest.MonkeyPatch, change: Callable[[list[Any]], list[Any]], operator: str = "tanh") -> None:
    """Compiled graphs with that operator compute something else."""
    compile_parts = backend._compile_in_parts

    class Wrong:
        def __init__(self, compiled: Any) -> None:
            self._compiled = compiled

        def __call__(self, inputs: list[Any]) -> list[Any]:
            return change(list(self._compiled(inputs)))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._compiled, name)

    def compile_wrongly(gm: torch.fx.GraphModule, *rest: Any) -> Any:
        compiled = compile_parts(gm, *rest)
        return Wrong(compiled) if any(operator in str(node.target) for node in gm.graph.nodes) else compiled

    monkeypatch.setattr(backend, "_compile_in_parts", compile_wrongly)


def scaled(results: list[Any]) -> list[Any]:
    return [value * 1.01 if isinstance(value, Tensor) and value.is_floating_point() else value for value in results]


# --- what is right ----------------------------------------------------------------------------------------------------


def test_a_network_in_training_is_right_in_every_usual_mode(images: Tensor) -> None:
    model = Network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    said: list[str] = []
    report = zefuse.check(model, images, seconds=0.05, progress=said.append)
    assert report.ok and bool(report), report
    names = [result.mode for result in report.modes]
    assert {"grad", "no_grad", "inference_mode", "grad,channels_last", "no_grad,bf16", "grad,dynamic"} <= set(names)
    assert all(result.verdict == "same" and result.kernels and not result.fallbacks for result in report.modes), report
    assert all(result.error < 1e-5 for result in report.modes if "bf16" not in result.mode), report
    assert all(result.eager_error is not None for result in report.modes), report  # dropout does not spoil f64
    assert report.between_modes < 1e-5
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.head.weight.grad is None
    assert report.timing is not None and set(report.timing.calls) == {"eager", "zefuse"}
    assert "training step" in report.timing.sentence() and "1 of " in said[0]
    assert f"computes what eager does in {len(names)} modes" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["ok"] is True


def test_all_modes_are_their_combinations() -> None:
    every = modes.every(gradients=True, images=True)
    threads = 2 if torch.get_num_threads() > 1 else 1
    assert len(every) == len(set(every)) == 3 * 2 * 2 * 2 * threads
    assert modes.named("bf16,grad") == [modes.Mode("grad", bf16=True)]
    assert [mode.name for mode in modes.named(["grad", "no_grad,dynamic"])] == ["grad", "no_grad,dynamic"]


def test_a_function_has_gradients_of_its_inputs() -> None:
    report = zefuse.check(lambda x, *, y: (x * y).sin(), (torch.randn(5),), {"y": torch.randn(5)}, timed=False)
    assert report.ok and "grad" in [result.mode for result in report.modes], report
    assert zefuse.check(torch.sigmoid, {"input": torch.ones(3)}, modes="no_grad", timed=False).ok


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_a_wrong_kernel_is_found_with_element_operator_and_reproducer(
    images: Tensor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planted(monkeypatch, scaled)
    report = zefuse.check(Network(), images, modes=["no_grad", "grad"], timed=False, reproducer=str(tmp_path))
    assert not report and [result.verdict for result in report.modes] == ["different", "different"]
    difference = report.modes[0].differences[0]
    assert difference.where == "output" and difference.elements > 0 and difference.error > difference.allowed
    assert len(difference.index) == 2 and difference.exact is not None
    assert any(each.where == "gradient of head.weight" for each in report.modes[1].differences)
    culprit = report.culprit
    assert culprit is not None and culprit.operator == "aten.tanh.default" and culprit.alone, report
    line = Network.forward.__code__.co_firstlineno + 1
    assert culprit.source == f"test_check.py:{line}" and "tanh" in culprit.kernel
    text = " ".join(str(report).split())
    assert "Network is wrong in 2 of 2 modes: no_grad; grad." in text and "aten.tanh.default at test_check.py" in text
    # The program runs; without the planted error, nothing differs.
    done = children.run(Path(culprit.reproducer))
    assert done.returncode == 0 and "largest difference:" in done.stdout, done.stderr


def test_wrong_gradients_and_buffers_are_seen(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, scaled, operator="convolution_backward")
    report = zefuse.check(Network(), images, modes=["no_grad", "grad"], timed=False)
    assert [result.verdict for result in report.modes] == ["same", "different"], report
    assert {each.where.partition(" ")[0] for each in report.modes[1].differences} == {"gradient"}


def test_a_compiled_model_that_raises_is_reported(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(results: list[Any]) -> list[Any]:
        raise RuntimeError("out of paper")

    planted(monkeypatch, fail)
    report = zefuse.check(Network(), images, modes="no_grad", timed=False)
    assert not report.ok and report.modes[0].verdict == "failed" and "out of paper" in str(report)


def outcome(**values: Any) -> Outcome:
    return Outcome(values)


def test_the_allowance_is_relative_to_eagers_own_error() -> None:
    exact = torch.ones(4, dtype=torch.float64)
    eager, near, far = (torch.tensor([1.0, 1, 1, 1 + off]) for off in (1e-3, 3e-3, 6e-3))
    assert not comparing.compare(outcome(x=near), outcome(x=eager), outcome(x=exact)).differences
    (difference,) = comparing.compare(outcome(x=far), outcome(x=eager), outcome(x=exact)).differences
    assert difference.index == (3,) and difference.elements == 1 and difference.of == 4
    assert comparing.compare(outcome(x=near), outcome(x=eager), outcome(x=exact), tolerance=1e-4).differences
    # Without f64 eager is the reference; bf16 may be off by its own rounding.
    assert comparing.compare(outcome(x=near), outcome(x=eager), None).differences
    assert not comparing.compare(outcome(x=near), outcome(x=eager), None, computed_in=torch.bfloat16).differences


@pytest.mark.parametrize(
    ("ours", "eager", "text"),
    [
        (torch.ones(2), torch.ones(3), "shape [2], eager [3]"),
        (torch.ones(2), torch.ones(2).double(), "dtype torch.float32"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "compiled 2, eager 3"),
        (torch.tensor([float("nan")]), torch.tensor([1.0]), "compiled nan, eager 1"),
        (torch.tensor([float("inf")]), torch.tensor([-float("inf")]), "compiled inf, eager -inf"),
        (3, 4, "gives 3, eager 4"),
        (torch.ones(1), None, "gives a Tensor, eager a NoneType"),
    ],
)
def test_other_differences(ours: Any, eager: Any, text: str) -> None:
    (difference,) = comparing.compare(outcome(x=ours), outcome(x=eager), None).differences
    assert text in str(difference)
    assert not comparing.compare(outcome(x=eager), outcome(x=eager), None).differences
    assert "eager has it" in str(comparing.compare(outcome(), outcome(x=eager), None).differences[0])


# --- bad input --------------------------------------------------------------------------------------------------------


def fails(x: Tensor) -> Tensor:
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("model", "inputs", "settings", "text"),
    [
        (3, torch.ones(2), {}, "the model is of type int, which cannot be called"),
        (Network, torch.ones(2), {}, "is the class Network; pass an object"),
        (Network(), (torch.ones(2), 3), {}, "do not fit Network.forward(x"),
        (torch.sigmoid, (torch.ones(2),), {"modes": "no_gard"}, "did you mean 'no_grad'?"),
        (torch.sigmoid, (torch.ones(2),), {"modes": ["grad,no_grad"]}, "exclude each other"),
        (torch.sigmoid, (torch.ones(2),), {"modes": []}, "name one at least"),
        (torch.sigmoid, (torch.ones(2),), {"tolerance": -1}, "tolerance=-1"),
        (torch.sigmoid, (torch.ones(2),), {"seconds": 0}, "seconds=0"),
        (fails, torch.ones(2), {}, "fails fails without zefuse, in eager: ValueError: no such thing"),
        (nn.Linear(4, 4), torch.ones(2, 3), {}, "It was called with a tensor float32[2, 3]"),
        (nn.Linear(4, 4, device="meta"), torch.ones(2, 4), {}, "tensors on torch's meta device, which hold no numbers"),
        (torch.sigmoid, (torch.ones(2),), {"options": {"fues": True}}, "did you mean"),
    ],
)
def test_bad_input_is_refused(model: Any, inputs: Any, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError if "fues" not in str(settings) else zefuse.errors.OptionError) as refused:
        zefuse.check(model, inputs, **settings)
    assert text in " ".join(str(refused.value).split())


def test_a_model_that_is_not_deterministic_is_unclear_not_wrong() -> None:
    drawn = torch.Generator().manual_seed(1)
    report = zefuse.check(lambda x: x + torch.rand(3, generator=drawn), torch.ones(3), modes="no_grad", timed=False)
    assert report.modes[0].verdict == "unclear" and not report.wrong() and not report.ok
    assert "eager differs from itself with the same seed" in str(report).replace("\n", " ")


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls = nn.Linear(4, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(x) + self.calls


def test_a_state_in_attributes_is_no_difference() -> None:
    report = zefuse.check(Counting(), torch.ones(2, 4), modes="no_grad", timed=False)
    assert report.ok, report
    assert "a second call gives another result, in eager too" in str(report)


def test_a_model_of_which_nothing_is_compiled_is_said_to_be_so() -> None:
    report = zefuse.check(lambda: 3, modes="no_grad", timed=False)
    assert report.ok and "in 1 mode, but nothing was compiled." in report.sentence()


def test_a_mode_that_eager_refuses_is_left_out() -> None:
    def only_inference(x: Tensor) -> Tensor:
        assert torch.is_inference_mode_enabled() or not torch.is_grad_enabled(), "not here"
        return x * 2

    report = zefuse.check(only_inference, torch.ones(3), modes=["grad", "no_grad"], timed=False)
    assert report.ok and [result.verdict for result in report.modes] == ["left out", "same"]
    assert "eager raises AssertionError: not here" in str(report)


def test_a_module_that_cannot_be_copied_keeps_its_state() -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.kept = (torch.ones(3, requires_grad=True) * 2,)  # no leaf

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x) * 2

    model = Held()
    report = zefuse.check(model, torch.randn(4, 3), modes=["no_grad", "grad"], timed=False)
    assert report.ok and "cannot be copied" in str(report), report
    assert model.norm.weight.dtype == torch.float32


# --- timing -----------------------------------------------------------------------------------------------------------


def timed(eager: float, ours: float, first: float = 1.0, noise: float = 0.0) -> str:
    made = timing.Timing("a call", 1)
    made.first = {"eager": eager, "zefuse": first}
    for name, seconds in (("eager", eager), ("zefuse", ours)):
        made.calls[name] = [seconds * (1 + noise * (number % 3 - 1)) for number in range(12)]
    return made.sentence()


def test_the_sentence_says_whether_compiling_pays() -> None:
    assert "Compiling pays: 2.00 times as fast" in timed(0.002, 0.001) and "after 998 calls" in timed(0.002, 0.001)
    assert "after 1 call." in timed(0.2, 0.1, first=0.1)
    assert "does not pay here: 2.00 times slower" in timed(0.001, 0.002)
    assert "noise" in timed(0.001, 0.00097)
    assert "noise" in timed(0.002, 0.0015, noise=0.5)
    assert timing.Timing("a call", 1).sentence() == "Whether compiling pays was not measured."


def test_a_contender_that_raises_is_left_out() -> None:
    def broken() -> None:
        raise RuntimeError("no compiler")

    made = timing.measure("a call", {"eager": lambda: None, "inductor": broken}, 0.01, lambda text: None)
    assert made.left_out == {"inductor": "RuntimeError: no compiler"} and "inductor" not in made.calls


# --- assert_compiled --------------------------------------------------------------------------------------------------


def test_assert_compiled_takes_a_tensor_dropout_buffers_and_autocast(images: Tensor) -> None:
    model = Network()
    before = model.norm.running_mean.clone()
    assert_compiled(model, images)
    assert torch.equal(model.norm.running_mean, before)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert_compiled(model.eval(), images)
        with pytest.raises(AssertionError, match="leave rtol out"):
            assert_compiled(model.eval(), images, rtol=1e-9)


def test_assert_compiled_names_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, scaled)
    with pytest.raises(AssertionError, match=r"(?s)relative error 1.*output\[1\], element \[") as failed:
        assert_compiled(lambda x: (x + 1, torch.tanh(x) * 3), torch.linspace(-1, 1, 5))
    assert "kernels" in str(failed.value)


# --- the command ------------------------------------------------------------------------------------------------------

MODEL = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval(), torch.randn(4, 8)

def with_words():
    return nn.Linear(8, 8), (), {"input": torch.randn(4, 8)}

def wrong():
    return 3

def raises():
    raise ValueError("no weights")

def ends():
    raise SystemExit(3)

def state():
    return nn.Linear(8, 8).state_dict(), torch.randn(4, 8)

number = 3
"""


@pytest.fixture
def model_file(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "own_model.py"
    file.write_text(MODEL)
    path, names = list(sys.path), set(sys.modules)
    yield file
    sys.path[:] = path
    for name in set(sys.modules) - names:
        if "own_model" in name:
            del sys.modules[name]


def test_the_command(model_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", f"{model_file}:make", "--modes", "no_grad;grad,bf16", "--seconds", "0.05"]) == 0
    out = capsys.readouterr().out
    assert "Sequential computes what eager does in 2 modes." in " ".join(out.split()) and "Compiling" in out
    words = ["check", f"{model_file}:with_words", "--json", "--seconds", "0", "--modes", "no_grad"]
    assert cli.main(words) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] and data["timing"] is None and data["modes"][0]["mode"] == "no_grad"


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_the_table_fits(
    columns: int, model_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(["check", f"{model_file}:make", "--modes", "no_grad;grad,bf16,dynamic", "--seconds", "0"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    words = set(out.replace("│", " ").replace(";", " ").split())
    assert {"grad,", "bf16,", "dynamic", "same"} <= words, "a cell is cut into pieces"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own_model.py", "expected FILE.py:function or module:function, as in own_model.py:make"),
        ("own_modle.py:make", "no file 'own_modle.py'; did you mean 'own_model.py'?"),
        ("own_model.py:mak", "has no 'mak'; did you mean 'make'?"),
        ("own_model.py:number", "is of type int: expected a function"),
        ("own_model.py:wrong", "returned int: expected (model, inputs)"),
        ("own_model.py:raises", "raised ValueError: no weights"),
        ("own_model.py:ends", "raised SystemExit: 3"),
        ("own_model.py:state", "returned a tuple of 2, of which the first is of type OrderedDict and cannot be called"),
        ("no_such_module:make", "No module named 'no_such_module'"),
    ],
)
def test_a_wrong_name_is_explained(
    name: str, text: str, model_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(model_file.parent)
    assert cli.main(["check", name]) == 1
    assert text in capsys.readouterr().err


def test_inputs_keep_their_strides_and_what_they_share() -> None:
    base = torch.randn(6, 4)
    view = base[::2, 1:3]
    copy = Subject.of(torch.add, (view, view)).copy()
    assert copy.args[0] is copy.args[1] and copy.args[0].stride() == view.stride()
    assert torch.equal(copy.args[0], view) and copy.args[0].data_ptr() != view.data_ptr()
