"""``zefuse tune``: what is quicker is kept by device and kernel, found by other processes, and never in the way."""

from __future__ import annotations

import contextlib
import json
import os
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import children
import pytest
import torch

import zefuse
from zefuse import cache, tuning
from zefuse.cli import main
from zefuse.errors import NotFoundError
from zefuse.tuning import measuring, operators
from zefuse.tuning.measuring import tune
from zefuse.tuning.rows import Limits

DEVICES = ("cpu", "gpu:0")
_USUAL_CACHE = cache.directory()  # before a fixture names another


def normed(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.sin() * 3, -1) + x.t().exp()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "cache"
    monkeypatch.setenv("ZEFUSE_CACHE_DIR", str(made))
    return made


@pytest.fixture
def anything_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every choice counts as quicker, so that a test does not depend on the machine."""
    monkeypatch.setattr(measuring, "_GAIN", 1e9)
    monkeypatch.setattr(measuring, "_SHARE", 0.0)
    monkeypatch.setattr(measuring, "_CALLS", 1)
    monkeypatch.setattr(measuring, "_ROUNDS", 1)
    monkeypatch.setattr(measuring, "_HOPELESS", 1e9)
    monkeypatch.setattr(operators, "_SHARE", 2.0)  # test_tune_operators.py


def schedules(function: Any, *inputs: torch.Tensor, **options: Any) -> list[str]:
    torch._dynamo.reset()
    explained = zefuse.explain(function, *inputs, options=options)
    torch.testing.assert_close(explained.result, function(*inputs))
    return [kernel["schedule"] for kernel in explained.kernels]


@pytest.mark.parametrize("device", DEVICES)
def test_a_choice_is_kept_and_taken(device: str, folder: Path, anything_wins: None) -> None:
    x = torch.randn(64, 64)
    assert not any("tuned" in schedule for schedule in schedules(normed, x, device=device))
    found = tune(normed, (x,), options={"device": device}, limits=Limits(120, 60))
    chosen = [kernel for kernel in found.kernels if kernel.choice]
    assert chosen and not found.stopped and not found.left_out
    assert all(not kernel.discarded for kernel in found.kernels), found
    after = schedules(normed, x, device=device)
    assert sum("tuned: " in schedule for schedule in after) == sum(kernel.launches for kernel in chosen)
    assert all(" instead of " in schedule and " µs" in schedule for schedule in after if "tuned: " in schedule)
    # The cost model decides where that is asked for.
    assert not any("tuned" in schedule for schedule in schedules(normed, x, device=device, tuned=False))


def families(target: str = "cpu") -> dict[str, tuple[Any, tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    functional = torch.nn.functional
    x = torch.randn(96, 200)
    # A row of more fragments: the host's code for them, emulated, takes a minute to make.
    q = torch.randn(1, 2, 80, 16) if target == "sm_90" else torch.randn(2, 2, 80, 64)
    return {
        "pointwise": (lambda x: x.sin() * x + 1, (torch.randn(70, 333),)),
        "transposed": (lambda x: x.sin() + x.t(), (torch.randn(90, 90),)),
        "short rows": (lambda x: functional.layer_norm(x, (40,)), (torch.randn(300, 40),)),
        "rows": (lambda x: functional.layer_norm(x.softmax(-1), (1500,)), (torch.randn(6, 1500),)),
        "odd rows": (lambda x: x.bfloat16().softmax(-1), (torch.randn(9, 1501),)),
        "columns": (lambda x: ((x - x.mean(0)) / x.var(0).sqrt(), x.exp().sum(0)), (x,)),
        "scan": (lambda x: x.cumsum(0) * 2, (x,)),
        "product": (lambda x: functional.gelu(x @ x.t()), (x,)),
        "product bf16": (lambda x: (x @ x.t()).relu(), (x.bfloat16(),)),
        "convolution": (
            lambda x, w: functional.conv2d(x, w).relu(),
            (torch.randn(2, 8, 20, 20), torch.randn(16, 8, 3, 3)),
        ),
        "attention": (lambda q: functional.scaled_dot_product_attention(q, q, q, is_causal=True), (q,)),
        "attention bf16": (lambda q: functional.scaled_dot_product_attention(q, q, q), (q.bfloat16(),)),
    }


# Fragments of matrices are emulated, element by element: minutes for what sm_90 chooses among.
CASES = [
    (family, target)
    for family in families()
    for target in ("cpu", "dg2-g11", "sm_90")
    if not (target == "sm_90" and "bf16" in family)
]


@pytest.mark.parametrize(("family", "target"), CASES)
def test_every_choice_is_right(
    family: str, target: str, folder: Path, anything_wins: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tuner itself compares: no candidate of a family is discarded. A GPU's kernels run on the posing device."""
    # The candidates are the same in each run: their code may be in the cache.
    scratch = types.SimpleNamespace(TemporaryDirectory=lambda prefix: contextlib.nullcontext(_USUAL_CACHE))
    monkeypatch.setattr(measuring, "tempfile", scratch)
    if target != "cpu":
        monkeypatch.setenv("ZEFUSE_GPU_TARGET", target)
    function, inputs = families(target)[family]
    found = tune(function, inputs, options={"device": "cpu" if target == "cpu" else "gpu:0"}, limits=Limits(500, 60))
    discarded = [line for kernel in found.kernels for line in kernel.discarded]
    # The posing device has less local memory than sm_90: such candidates do not run there, and are said.
    assert not found.stopped and not [line for line in discarded if "bytes of local memory" not in line]
    without_choices = family.startswith("attention") and target == "dg2-g11"
    assert target == "cpu" or without_choices or any(kernel.tried for kernel in found.kernels)


def test_only_the_device_that_was_measured_takes_it(folder: Path, anything_wins: None) -> None:
    x = torch.randn(64, 64)
    tune(normed, (x,), options={"device": "cpu"})
    assert any("tuned" in schedule for schedule in schedules(normed, x, device="cpu"))
    assert not any("tuned" in schedule for schedule in schedules(normed, x, device="gpu:0"))


SCRIPT = """
import json, torch, zefuse
def normed(x):
    return torch.softmax(x.sin() * 3, -1) + x.t().exp()
explained = zefuse.explain(normed, torch.randn(64, 64))
print(json.dumps([kernel["schedule"] for kernel in explained.kernels]))
"""


def in_another_process(folder: Path) -> list[str]:
    child = children.start(SCRIPT, env=os.environ | {"ZEFUSE_CACHE_DIR": str(folder)})
    code = child.wait(300)
    out, errors = child.output()
    assert code == 0, errors
    found: list[str] = json.loads(out.splitlines()[-1])
    return found


def test_a_second_process_finds_it(folder: Path, anything_wins: None) -> None:
    tune(normed, (torch.randn(64, 64),))
    assert any("tuned: " in schedule for schedule in in_another_process(folder))


def test_compiling_does_not_list_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache in use holds tens of thousands of entries."""
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda place=".": (listed.append(str(place)), scandir(place))[1])
    for device in DEVICES:
        assert schedules(normed, torch.randn(64, 64), device=device)
    assert str(folder) not in listed
    assert list(folder.glob("*.plan")) and str(folder) in listed


def test_what_is_not_quicker_is_not_kept_and_an_old_choice_goes(
    folder: Path, anything_wins: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(64, 64)
    tune(normed, (x,))
    assert tuning.load(str(folder), "cpu")
    monkeypatch.setattr(measuring, "_GAIN", 0.0)
    found = tune(normed, (x,))
    assert not any(kernel.choice for kernel in found.kernels)
    assert tuning.load(str(folder), "cpu") == {}
    assert not any("tuned" in schedule for schedule in schedules(normed, x))


def entry(folder: Path) -> Path:
    (found,) = folder.glob("*.tuning")
    return found


def test_a_damaged_entry_is_ignored_with_a_reason(folder: Path, anything_wins: None) -> None:
    x = torch.randn(64, 64)
    tune(normed, (x,))
    file = entry(folder)
    data = bytearray(file.read_bytes())
    data[-40] ^= 1
    file.write_bytes(data)
    with pytest.warns(UserWarning, match=r"what was tuned .* is not used: .*damaged.*run `zefuse tune` again"):
        assert not any("tuned" in schedule for schedule in schedules(normed, x))


def test_an_entry_that_is_no_table_is_ignored_with_a_reason(folder: Path, anything_wins: None) -> None:
    x = torch.randn(64, 64)
    native = zefuse._native.load()
    for body in ('{"a": {"choice": {"vectors": "many"}}}', "[1]", "{"):
        native.cache_store(str(folder), 1 << 30, tuning.KIND, tuning.fields("cpu"), "", body)
        with pytest.warns(UserWarning, match="is not used"):
            schedules(normed, x)


def test_a_number_that_is_no_choice_is_passed_over(folder: Path, anything_wins: None) -> None:
    """As of an entry that another version made: never wrong code."""
    x = torch.randn(64, 64)
    tune(normed, (x,))
    table = tuning.load(str(folder), "cpu")
    wrong = {key: row | {"choice": {"lanes of a vector": 3, "no such decision": 1}} for key, row in table.items()}
    tuning.update(str(folder), 1 << 30, "cpu", table, wrong)
    assert not any("tuned" in schedule for schedule in schedules(normed, x))


def test_wrong_values_discard_the_candidate(folder: Path, anything_wins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel's candidates are wrong: found among those of a plan, said, and not kept; the others' are."""

    def two(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.softmax(x, -1), y.sin() + y.t()

    honest = measuring._GraphTuner._call
    victim: list[str] = []

    def lying(self: Any, compiled: Any) -> Any:
        outcome = honest(self, compiled)
        if not hasattr(self, "_keys"):  # before kernels are looked at
            return outcome
        first = self._keys[0]
        victim[:] = [first]
        if "tuned" in next(k["schedule"] for k in compiled.report()["kernels"] if self._steps[k["step"]] == first):
            name = next(iter(outcome.values))
            outcome.values[name] = outcome.values[name] + 1
        return outcome

    monkeypatch.setattr(measuring._GraphTuner, "_call", lying)
    found = tune(two, (torch.randn(64, 64), torch.randn(48, 48)))
    kernels = [kernel for kernel in found.kernels if not kernel.is_operator]
    assert len(kernels) > 1
    for kernel in kernels:
        if kernel.key == victim[0]:
            assert not kernel.choice and all("wrong values" in line for line in kernel.discarded)
            assert len(kernel.discarded) == kernel.tried > 0
        else:
            assert kernel.choice and not kernel.discarded


def test_a_candidate_beyond_its_deadline_is_discarded(
    folder: Path, anything_wins: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = measuring._GraphTuner._call
    now = [0.0]
    monkeypatch.setattr(measuring.time, "monotonic", lambda: now[0])

    def slow(self: Any, compiled: Any) -> Any:
        if any("tuned" in kernel["schedule"] for kernel in compiled.report()["kernels"]):
            now[0] += 7
        return honest(self, compiled)

    monkeypatch.setattr(measuring._GraphTuner, "_call", slow)
    found = tune(normed, (torch.randn(64, 64),), limits=Limits(10000, 5))
    tried = [kernel for kernel in found.kernels if kernel.tried]
    assert tried and all("not done within 5 s" in line for kernel in tried for line in kernel.discarded)
    assert all(len(kernel.discarded) == kernel.tried and not kernel.choice for kernel in tried)


def test_the_time_for_all_of_it_ends_the_search(folder: Path, anything_wins: None) -> None:
    found = tune(normed, (torch.randn(64, 64),), limits=Limits(1e-6, 5))
    assert "--seconds" in found.stopped
    assert not any(kernel.tried for kernel in found.kernels)


def test_training_tunes_the_backward_graph_too(folder: Path, anything_wins: None) -> None:
    model = torch.nn.Sequential(torch.nn.LayerNorm(32), torch.nn.GELU())
    x = torch.randn(16, 32)
    found = tune(model, (x,), training=True)
    assert {kernel.graph for kernel in found.kernels} == {0, 1}
    torch._dynamo.reset()
    explained = zefuse.explain(model, x)
    kinds = {graph["graph"]: graph["kind"] for graph in explained.graphs}
    assert {kinds[k["graph"]] for k in explained.kernels if "tuned" in k["schedule"]} == {"forward", "backward"}


def test_packages_hold_what_was_tuned(folder: Path, anything_wins: None, tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return normed(x)

    x = torch.randn(64, 64)
    program = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Model(), (x,)), program)
    assert main(["tune", str(program)]) == 0
    package = tmp_path / "model.zefuse"
    assert main(["compile", str(program), "-o", str(package), "--targets", "host", "--quiet"]) == 0
    os.environ["ZEFUSE_CACHE_DIR"] = ""  # the fixture puts it back
    loaded = zefuse.load(package)
    torch.testing.assert_close(loaded(x), normed(x))
    assert any("tuned: " in kernel["schedule"] for kernel in explained_package(package))


def explained_package(package: Path) -> Iterator[dict[str, Any]]:
    from zefuse import reports
    from zefuse.explaining.explanation import Explanation

    for plan in reports.ask("package", str(package))["plans"]:
        yield from Explanation.of(reports.plan(str(package), plan["section"])).kernels


def test_a_device_that_is_not_there(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotFoundError, match="gpu:7"):
        tune(normed, (torch.randn(4, 4),), options={"device": "gpu:7"})
    (tmp_path / "model.py").write_text("import torch\ndef make():\n    return torch.sin, torch.ones(4)\n")
    assert main(["tune", f"{tmp_path}/model.py:make", "--device", "gpu:7"]) == 1
    assert "gpu:7" in capsys.readouterr().err


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], anything_wins: None) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\ndef make():\n    return (lambda x: torch.softmax(x.sin(), -1)), torch.randn(64, 64)\n"
    )
    assert main(["tune", f"{tmp_path}/model.py:make", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device"] == "cpu" and found["kept_in"] == str(folder) and found["kernels"][0]["choice"]
    assert main(["tune", f"{tmp_path}/model.py:make"]) == 0
    assert "1 kernel of 1 quicker than by the cost model" in capsys.readouterr().out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tuning.load(str(folder), "cpu")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--seconds", "0"], "--seconds"), (["--deadline", "0"], "--deadline"), (["--option", "device=npu"], "npu")],
)
def test_wrong_arguments(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text("def make():\n    raise AssertionError('not called')\n")
    assert main(["tune", f"{tmp_path}/model.py:make", *arguments]) == 1
    assert said in capsys.readouterr().err
