"""A few rows of torch's operator database, as `make test-full` runs all of them (tests/op_db), and what the run makes of a crash."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "op_db"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "fuzz"))

import torch
from campaign import Campaign
from database import Call, questions
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
    assert again.results == {row: result | {"row": list(row)} for row, result in campaign.results.items()}


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
    result = campaign._of(_Answers(), row)  # type: ignore[arg-type]
    assert result["counts"] == {"same": 2, "wrong": 1}
    assert [finding["kind"] for finding in result["findings"]] == ["crash"]
    assert "crash: the process ended: SIGSEGV" in table({row: result})


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
