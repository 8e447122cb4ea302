"""The backend as torch.compile sees it: registration, options, what AOTAutograd hands over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import children
import pytest
import torch
from torch import nn

from zefuse import _native, backend, tuning
from zefuse.errors import BY_CODE, NotFoundError, OptionError, ZefuseError
from zefuse.options import Options


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_process_ends_with_graphs_in_use(tmp_path: Path) -> None:
    """In whatever order Python, the libraries and the drivers are taken apart."""
    program = """
import torch, zefuse
from torch import nn

model = nn.Sequential(nn.Linear(8, 8), nn.GELU())
x = torch.ones(4, 8)
alive = [torch.compile(model, backend="zefuse", options={"device": device}) for device in ("cpu", "gpu:0")]
for compiled in alive:
    torch._dynamo.reset()
    compiled(x).sum().backward()
zefuse.compile_package(torch.export.export(model, (x,)), "m.zefuse")
loaded = zefuse.load("m.zefuse")
print(loaded(x).shape)
"""
    done = children.run(program, cwd=tmp_path, whole=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "torch.Size([4, 8])\n", "")


def test_listed_without_import() -> None:
    """The entry point makes the backend known; nobody imports zefuse."""
    run_python(
        "import sys, torch._dynamo as d; assert 'zefuse' in d.list_backends(); "
        "assert not [m for m in sys.modules if m.startswith('zefuse')]"
    )


def test_import_is_cheap() -> None:
    run_python("import sys, zefuse; assert 'torch' not in sys.modules; assert callable(zefuse.explain)")


def test_inductor_stays_out() -> None:
    """Inductor's compiler costs a second to import and is not used."""
    run_python(
        "import sys, torch; torch.compile(lambda x: x + 1, backend='zefuse')(torch.ones(3)); "
        "assert 'torch._inductor.compile_fx' not in sys.modules"
    )


@pytest.mark.parametrize(
    ("options", "first_line"),
    [
        ({"strct": True}, "zefuse option 'strct': no such option; did you mean 'strict'?"),
        ({"dumpdir": "x"}, "did you mean 'dump_dir'?"),
        ({"frobnicate": 1}, "zefuse option 'frobnicate': no such option; no name is close. Known: "),
        ({"strict": 1}, "zefuse option strict=1: expected bool, got int"),
        ({"build_threads": True}, "zefuse option build_threads=True: expected int, got bool"),
        ({"build_threads": -1}, "zefuse option build_threads=-1: use 0 (one per core) or more"),
        ({"dump_dir": 3}, "zefuse option dump_dir=3: expected str or None, got int"),
        ({"device": "tpu"}, 'zefuse option device=\'tpu\': not a device; use "cpu", "gpu:N"'),
    ],
)
def test_wrong_options(options: dict[str, Any], first_line: str) -> None:
    """The first line is ours (Dynamo's wrapping would hide it) and says what to do."""
    with pytest.raises(OptionError) as caught:
        torch.compile(torch.sin, backend="zefuse", options=options)(torch.ones(3))
    assert first_line in str(caught.value).splitlines()[0]


@pytest.mark.parametrize("kind", BY_CODE.values())
def test_every_error_passes_through_dynamo(kind: type[ZefuseError], monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo wraps what it does not know, and the first line would say nothing. Strict: what is unsupported would run in eager."""

    def refuse(*args: Any) -> None:
        raise kind("what, where, what to do")

    monkeypatch.setattr(_native.load(), "compile", refuse)
    with pytest.raises(kind) as caught:
        torch.compile(torch.sin, backend="zefuse", options={"strict": True})(torch.ones(3))
    assert str(caught.value).splitlines()[0] == "what, where, what to do"


def test_mode_refused() -> None:
    with pytest.raises(OptionError, match="zefuse has no modes"):
        torch.compile(torch.sin, backend="zefuse", mode="max-autotune")(torch.ones(3))


def test_device_that_is_not_there() -> None:
    with pytest.raises(ZefuseError, match="gpu:7") as caught:
        torch.compile(torch.sin, backend="zefuse", options={"device": "gpu:7"})(torch.ones(3))
    assert isinstance(caught.value, NotFoundError)


def test_options_are_a_frozen_key() -> None:
    assert hash(Options()) == hash(Options.make({}))
    assert Options.make({"strict": True}) != Options()
    with pytest.raises(AttributeError):
        Options().strict = True  # type: ignore[misc]


class Interpreted:
    """Stands in for the compiled part, so that what reaches it can be looked at."""

    _boxed_call = True
    package_miss = ""

    def __init__(self, gm: torch.fx.GraphModule, parameters: list[int], options: dict[str, Any]) -> None:
        self.gm, self.parameters, self.options, self.forgotten = gm, parameters, options, 0

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        values = list(args)
        args.clear()
        return tuple(torch.fx.Interpreter(self.gm).run(*values))

    def invalidate_weights(self) -> None:
        self.forgotten += 1

    def report(self) -> dict[str, list[Any]]:
        return {"kernels": [], "calls": [], "fallbacks": []}

    def placeholders(self) -> list[torch.fx.Node]:
        return self.gm.graph.find_nodes(op="placeholder")


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[Interpreted]:
    graphs: list[Interpreted] = []

    def compile_(gm: torch.fx.GraphModule, parameters: list[int], options: dict[str, Any]) -> Interpreted:
        graphs.append(Interpreted(gm, parameters, options))
        return graphs[-1]

    monkeypatch.setattr(_native.load(), "compile", compile_)
    return graphs


def test_parameters_are_told_apart(handed_over: list[Interpreted]) -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)).eval()
    x = torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="zefuse")(x), model(x))
    (graph,) = handed_over
    shapes = [tuple(graph.placeholders()[i].meta["val"].shape) for i in graph.parameters]
    assert (3, 4) not in shapes
    assert {(5, 4), (5,)} <= set(shapes)


def test_training_hands_over_two_graphs_and_steps_forget_weights(handed_over: list[Interpreted]) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)  # changes weights without a new version number
    torch.compile(model, backend="zefuse")(torch.randn(2, 4)).sum().backward()
    forward, backward = handed_over
    assert forward.parameters
    assert not backward.parameters
    optimizer.step()
    assert forward.forgotten >= 1


def test_options_reach_the_compiler(handed_over: list[Interpreted]) -> None:
    torch.compile(torch.sin, backend="zefuse", options={"strict": True})(torch.ones(3))
    assert handed_over[0].options == tuning.applied(Options(strict=True).to_dict())


def test_observer_sees_only_its_own_context(handed_over: list[Interpreted]) -> None:
    seen: list[str] = []
    with backend.observe(lambda kind, compiled: seen.append(kind)):
        torch.compile(torch.sin, backend="zefuse")(torch.ones(3))
    torch.compile(torch.cos, backend="zefuse")(torch.ones(3))
    assert seen == ["inference"]
