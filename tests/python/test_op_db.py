"""A few rows of torch's operator database, as `make test-full` runs all of them (tests/op_db), and what the run makes of a crash."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "op_db"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "fuzz"))

import campaign as module_of_campaign
import torch
from campaign import Campaign, samples_of, spread
from database import Call, questions
from parts import Part
from pool import TimeIsUp
from table import table, unexpected
from trial import trial

ROWS = [
    *questions(["lgamma", "nn.functional.batch_norm"], ["float32", "bfloat16"], ["static", "training"]),
    *questions(["_batch_norm_with_update"], ["float16"], ["dynamic", "training"]),
    ("masked_scatter", "int64", "static"),
    ("add", "float32", "inplace"),
    ("cat", "float32", "errors"),
    ("nonzero", "float32", "dynamic"),
]


def test_rows_of_the_database(tmp_path: Path) -> None:
    done = tmp_path / "done.jsonl"
    campaign = Campaign(ROWS, done, samples=2, jobs=1, deadline_s=60)
    campaign.go()
    assert set(campaign.results) == set(ROWS)
    assert not unexpected(campaign.results), table(campaign.results)
    assert all(result["counts"] for result in campaign.results.values())
    again = Campaign(ROWS, done, samples=2, jobs=1, deadline_s=60)
    again.go()  # nothing is left
    assert again.results == campaign.results


class _Answers:
    """A worker that was asked for three samples, of which the second ended it."""

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        if "number" not in question:
            return {"samples": 3}
        if question["number"] == 1:
            return {"status": "wrong", "kind": "crash", "text": "the process ended: SIGSEGV"}
        return {"status": "same", "fallbacks": [], "whole": [], "graphs": 1}


def test_a_crash_is_one_finding_of_its_row(tmp_path: Path) -> None:
    row = ("add", "float32", "static")
    campaign = Campaign([row], tmp_path / "done.jsonl", samples=0, jobs=1, deadline_s=1)
    result = campaign._of(_Answers(), Part(row, 0, 3, 3, 3))  # type: ignore[arg-type]
    assert result is not None and result["counts"] == {"same": 2, "wrong": 1}
    assert [finding["kind"] for finding in result["findings"]] == ["crash"]
    assert "crash: the process ended: SIGSEGV" in table({row: result})


class _Many:
    """A worker of rows with as many samples as their operator's name says. The last of each is wrong."""

    asked: ClassVar[list[tuple[str, int]]] = []
    most = 1 << 30  # answers, then the time is up

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        total = int(question["operator"])
        if "number" not in question:
            return {"samples": total}
        if len(self.asked) >= self.most:
            raise TimeIsUp
        self.asked.append((question["operator"], question["number"]))
        if question["number"] == total - 1:
            return {"status": "wrong", "kind": "value", "text": "the last"}
        return {"status": "same", "fallbacks": ["aten::a: no"], "whole": [], "graphs": 1}

    def close(self) -> None: ...


def test_a_long_row_is_run_in_parts_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_of_campaign, "Worker", _Many)
    monkeypatch.setattr(_Many, "asked", [])
    rows = [("250", "float32", "static"), ("7", "float32", "static"), ("250", "float32", "dynamic")]
    done = tmp_path / "done.jsonl"
    old = {"row": ["7", "float32", "static"], "findings": [], "counts": {"same": 7}, "kinds": {}, "seconds": 0.1}
    done.write_text(
        json.dumps(old | {"fallbacks": [], "whole": []}) + "\n"
    )  # as rows were recorded before there were parts

    def run(most: int) -> Campaign:
        monkeypatch.setattr(_Many, "most", most)
        campaign = Campaign(rows, done, samples={"static": 0, "dynamic": 3}, jobs=3, deadline_s=1)
        campaign.go()
        return campaign

    begun = run(120).results
    assert sum(sum(result["counts"].values()) for result in begun.values()) == 127
    assert sum(result["left"] for result in begun.values()) == 253 - 120
    whole = run(1 << 30).results
    assert sorted(_Many.asked) == sorted(  # each once
        [("250", number) for number in range(250)] + [("250", number) for number in (0, 124, 249)]
    )
    assert [whole[row]["counts"] for row in rows] == [{"same": 249, "wrong": 1}, {"same": 7}, {"same": 2, "wrong": 1}]
    assert not any(result["left"] for result in whole.values())
    assert [finding["number"] for finding in whole[rows[0]]["findings"]] == [249]
    assert whole[rows[0]]["fallbacks"] == ["aten::a: no"]
    assert (
        max(line["to"] - line["from"] for line in map(json.loads, done.read_text().splitlines()) if "of" in line) == 100
    )
    assert run(1 << 30).results == whole


def test_the_beginning_of_a_run_has_every_mode_and_dtype() -> None:
    rows = list(questions([], ["float32", "int64"], ["static", "training"]))
    order = spread(rows)
    assert sorted(order) == sorted(rows)
    for group in {row[1:] for row in rows}:
        total, share = (sum(row[1:] == group for row in some) for some in (rows, order[: len(order) // 10]))
        assert abs(share - total / 10) <= 1, group
    assert len({row[0][0] for row in order[:60]}) > 10  # initials


def test_samples_of_each_mode() -> None:
    modes = ["static", "dynamic"]
    assert samples_of(["0", "dynamic=12"], modes, 2) == {"static": 0, "dynamic": 12}
    assert samples_of(["static=0,dynamic=12"], modes, 2) == {"static": 0, "dynamic": 12}
    assert samples_of(["dynamic=1"], modes, 2) == {"static": 2, "dynamic": 1}
    with pytest.raises(ValueError, match="no mode dinamic"):
        samples_of(["dinamic=1"], modes, 2)


@pytest.mark.parametrize("wrong", ["value", "strides", "no error"])
def test_a_difference_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(x: torch.Tensor) -> torch.Tensor:
        if wrong == "no error":
            return x
        return x + 1 + 1e-3 if wrong == "value" else torch.empty(3, 2).t().copy_(x + 1)

    def eager(x: torch.Tensor) -> torch.Tensor:
        if wrong == "no error":
            raise RuntimeError("refused")
        return x + 1

    import trial as module

    real = module._compiled
    answers = {"zefuse": compiled}
    monkeypatch.setattr(
        module,
        "_compiled",
        lambda call, mode, backend: (
            (module._run(call, answers[backend], mode), module.Road())
            if backend in answers
            else real(call, mode, backend)
        ),
    )
    answer = trial(Call(eager, (torch.randn(2, 3),), "x + 1"), "static")
    assert (answer["status"], answer["kind"]) == ("wrong", wrong)
