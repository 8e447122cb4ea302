"""A package accepts and refuses the arguments that the exported program does: torch.export's own guards are the oracle, for
programs of random constraints. Where they differ on purpose is in one table."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import zefuse
from zefuse.errors import InvalidArgumentError

# What the exported program accepts and the package refuses.
DIFFERENCES = {
    "None": "the program ignores what comes in place of an argument that was None; a package says that it would",
    "dtype": "the program computes in whatever dtype comes; a package's kernels are of one",
    "strides": "the program computes with any strides; a package's kernels are of those it was exported with",
    "rank": "the program looks at the sizes of the dimensions that it was exported with, not at how many there are",
    "float": "a size that comes as a float is computed with as such where the operators take it",
}

Call = tuple[tuple[Any, ...], dict[str, Any]]


def outcome(function: Any, call: Call) -> Any:
    try:
        return function(*call[0], **call[1])
    except Exception as error:
        return error


def compare(module: Any, package: Any, call: Call, difference: str = "") -> bool:
    """Whether both accept. A package refuses by InvalidArgumentError alone."""
    wanted, got = outcome(module, call), outcome(package, call)
    if isinstance(got, Exception):
        assert isinstance(got, InvalidArgumentError), got
        assert isinstance(wanted, Exception) != bool(difference), (call, got)
        return False
    assert not isinstance(wanted, Exception), (call, wanted)
    assert not difference, f"a difference that is none any more: {difference}"
    torch.testing.assert_close(got, wanted, equal_nan=True)
    return True


def load(program: torch.export.ExportedProgram, path: Path) -> Any:
    zefuse.compile_package(program, path / "m.zefuse")
    return zefuse.load(path / "m.zefuse")


class Options(nn.Module):
    def forward(
        self, x: torch.Tensor, k: int = 2, flag: bool = True, name: str = "a", scale: float = 1.5, no: Any = None
    ) -> Any:
        y = x * k * scale
        return y * 3 if name == "a" and flag and no is None else y


@pytest.mark.parametrize("keywords", [False, True])
def test_constants(keywords: bool, tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    values = {"k": 2, "flag": True, "name": "b", "scale": 0.1, "no": None}
    make = (
        (lambda **changed: ((x,), {**values, **changed}))
        if keywords
        else (lambda **changed: ((x, *{**values, **changed}.values()), {}))
    )
    program = torch.export.export(Options(), *make())
    package = load(program, tmp_path)
    compiled_for = make()
    torch.testing.assert_close(
        package(*compiled_for[0], **compiled_for[1]), Options()(*compiled_for[0], **compiled_for[1])
    )
    for changed in (
        {"k": 3},
        {"k": True},
        {"flag": False},
        {"name": "a"},
        {"scale": 0.2},
        {"scale": 1},
        {"no": 3},
        {"k": "2"},
    ):
        args, kwargs = make(**changed)
        (name,) = changed
        with pytest.raises(InvalidArgumentError, match=rf"exported for {name} = .*, but {name} is "):
            package(*args, **kwargs)


def test_words(tmp_path: Path) -> None:
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.reshape(-1, 2, 4).sum(1) + y[:, None]

    half = Dim("half", min=2, max=32)
    program = torch.export.export(
        Halves(), (torch.randn(8, 4), torch.randn(4)), dynamic_shapes=({0: 2 * half}, {0: half})
    )
    package = load(program, tmp_path)
    for x, y, words in (
        (66, 33, r"x.size\(\)\[0\] <= 64, but x.size\(\)\[0\] is 66"),
        (8, 5, r"x.size\(\)\[0\] == 2 \* y.size\(\)\[0\], but x.size\(\)\[0\] is 8, y.size\(\)\[0\] is 5"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            package(torch.randn(x, 4), torch.randn(y))
    with pytest.raises(InvalidArgumentError, match="but x has 1 dimension;"):
        package(torch.randn(8), torch.randn(4))
    with pytest.raises(InvalidArgumentError, match="but x is no tensor;"):
        package(3, torch.randn(4))


def test_several_programs_are_told_apart_by_their_constants(tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    programs = [torch.export.export(Options(), (x,), {"k": k}) for k in (2, 3)]
    zefuse.compile_package(programs, tmp_path / "m.zefuse")
    package = zefuse.load(tmp_path / "m.zefuse")
    for k in (3, 2):
        torch.testing.assert_close(package(x, k=k), Options()(x, k=k))
    with pytest.raises(InvalidArgumentError, match="exported for k = 3, but k is 4"):
        package(x, k=4)


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_differences(difference: str, tmp_path: Path) -> None:
    class Plain(nn.Module):
        def forward(self, x: torch.Tensor, n: int, no: Any = None) -> torch.Tensor:
            return x * n

    program = torch.export.export(
        Plain(), (torch.randn(4, 6), 3, None), dynamic_shapes=({0: Dim.AUTO}, Dim.DYNAMIC, None)
    )
    x = torch.randn(4, 6)
    calls: dict[str, Call] = {
        "None": ((x, 3, 1), {}),
        "dtype": ((x.double(), 3, None), {}),
        "strides": ((torch.randn(6, 4).t(), 3, None), {}),
        "rank": ((torch.randn(4, 6, 1), 3, None), {}),
        "float": ((x, 3.5, None), {}),
    }
    compare(program.module(), load(program, tmp_path), calls[difference], difference)


class Drawn(nn.Module):
    """Of a random list of uses; each makes constraints of its own."""

    def __init__(self, uses: list[str]) -> None:
        super().__init__()
        self.uses = uses

    def forward(
        self, x: torch.Tensor, more: dict[str, torch.Tensor], *, k: int = 2, way: str = "up", s: float = 0.5
    ) -> Any:
        y, total = more["y"], x.sum() * k * s
        for use in self.uses:
            if use == "add":
                total = total + (x + y).sum()
            elif use == "pairs":
                total = total + x.reshape(-1, 2).sum(0).prod()
            elif use == "product":
                total = total + (x @ y.t()).mean()
            elif use == "check":
                torch._check(x.shape[0] > 2)
            elif use == "check_both":
                torch._check(x.shape[0] + 1 <= y.shape[0] * 4)
            elif use == "branch":
                total = total * 2 if x.shape[0] > y.shape[0] else total - 1
            elif use == "thirds":
                total = total + x[: x.shape[0] // 3 + 1].sum()
            elif use == "way":
                total = total + 1 if way == "up" else total - 1
        return total


USES = ["add", "pairs", "product", "check", "check_both", "branch", "thirds", "way"]


@dataclasses.dataclass
class Case:
    program: torch.export.ExportedProgram
    x: tuple[int, int]
    y: tuple[int, int]
    kwargs: dict[str, Any]

    def call(self, x: tuple[int, ...], y: tuple[int, ...], **kwargs: Any) -> Call:
        generator = torch.Generator().manual_seed(0)
        made = [torch.randn(size, generator=generator) for size in (x, y)]
        return (made[0], {"y": made[1]}), {**self.kwargs, **kwargs}


def draw(chance: random.Random) -> Case | None:
    """None: torch.export refuses the constraints that were drawn."""
    rows, columns = chance.choice([3, 4, 6, 8]), chance.choice([4, 6])
    low = chance.choice([0, 2, rows - 1])
    d = Dim("d", min=low, max=chance.choice([rows, rows + 1, 40])) if chance.random() < 0.6 else Dim.AUTO
    of_x, y_rows, of_y = {0: d}, rows, {0: d}
    kind = chance.choice(["equal", "free", "static", "twice", "next", "columns"])
    if kind == "free":
        y_rows, of_y = chance.choice([2, rows, rows + 3]), {0: Dim.AUTO}
    elif kind == "static":
        of_y = {}
    elif kind == "twice" and d is not Dim.AUTO:
        y_rows, of_y = 2 * rows, {0: 2 * d}
    elif kind == "next" and d is not Dim.AUTO:
        y_rows, of_y = rows + 1, {0: d + 1}
    elif kind == "columns":
        of_x, of_y = {0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO}
    kwargs = {name: value for name, value in (("k", 3), ("way", "down"), ("s", 0.1)) if chance.random() < 0.5}
    x, y = (rows, columns), (y_rows, columns)
    model = Drawn(chance.sample(USES, chance.randint(1, 3)))
    try:
        program = torch.export.export(
            model,
            (torch.randn(x), {"y": torch.randn(y)}),
            kwargs,
            dynamic_shapes={"x": of_x, "more": {"y": of_y}, **dict.fromkeys(kwargs)},
        )
    except Exception:
        return None
    return Case(program, x, y, kwargs)


def changes(case: Case, chance: random.Random) -> list[Call]:
    (m, n), (p, q) = case.x, case.y
    calls = [case.call(case.x, case.y), case.call(case.x, (p, q + 1))]
    for rows in {0, 1, 2, 3, m - 1, m + 1, m + 2, 2 * m, 39, 40, 41}:
        calls += [case.call((rows, n), (other, q)) for other in {p, rows, 2 * rows, rows + 1}]
    calls += [case.call((m, c), (p, c)) for c in (1, 2, n + 1, n + 2)]
    for name, value in case.kwargs.items():
        calls.append(case.call(case.x, case.y, **{name: value * 2}))
        calls.append((case.call(case.x, case.y)[0], {key: each for key, each in case.kwargs.items() if key != name}))
    (x, more), kwargs = case.call(case.x, case.y)
    calls.append(((x, {**more, "z": x}), kwargs))
    calls.append(((x, more), dict(reversed(kwargs.items()))))
    calls.append(((x, more["y"]), kwargs))
    chance.shuffle(calls)
    return calls[:24]


@pytest.mark.parametrize("seed", range(24))
def test_random_constraints(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    case = next(found for _ in range(100) if (found := draw(chance)) is not None)
    module, package = case.program.module(), load(case.program, tmp_path)
    assert compare(module, package, case.call(case.x, case.y))
    for call in changes(case, chance):
        compare(module, package, call)
