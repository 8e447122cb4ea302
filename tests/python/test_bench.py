"""``zefuse bench --llm``."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from language_model import write_model

from zefuse.cli import main
from zefuse.llm import benchmark
from zefuse.llm.benchmark import Result, Row


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def test_all_take_turns(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [
        "bench",
        "--llm",
        str(folder),
        "--prompt",
        "20",
        "--tokens",
        "4",
        "--rounds",
        "2",
        "--llama-bench",
        "/bin/true",
    ]
    names = ["eager", "zefuse f32", "zefuse bf16", "zefuse int8", "zefuse int4", "zefuse Q4_0 x int8", "llama.cpp Q8_0"]
    assert main([*words, "--json", "--only", ", ".join(names)]) == 0
    said = capfd.readouterr()
    result = json.loads(said.out)
    assert [row["name"] for row in result["rows"]] == names
    for row in result["rows"][:5]:
        assert len(row["prefill"]) == len(row["decode"]) == 2 and row["left_out"] == ""
        assert row["decode_tokens_per_second"] > 0 and row["prefill_tokens_per_second"] > 0
    sizes = {row["name"]: row["bytes_per_token"] for row in result["rows"]}
    assert 0 < sizes["zefuse int4"] < sizes["zefuse int8"] < sizes["zefuse bf16"] < sizes["zefuse f32"]
    for row in result["rows"][5:]:
        assert "GGUF files alone" in row["left_out"]
    assert result["sentence"].startswith("Compiling ") and "decoding with int" in result["sentence"]
    assert "round 2 of 2" in said.err
    assert main([*words, "--only", "eager"]) == 0
    out = capfd.readouterr().out
    assert "eager" in out and "GB/s" in out and "was not measured" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "eager,vllm"], "'vllm' is not measured; known: eager, "),
        (["--prompt", "64"], "more than the 64 of the model's context"),
        (["--rounds", "0"], "at least one each"),
        (["--threads", "0"], "a number from 1 on"),
    ],
)
def test_refusals(folder: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["bench", "--llm", str(folder), *words]) == 1
    assert said in capfd.readouterr().err


def test_who_is_not_ready_in_time_is_left_out(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--prompt", "20", "--tokens", "4", "--seconds", "0.01", "--json", "--only", "zefuse f32"]
    assert main(["bench", "--llm", str(folder), *words]) == 0
    (row,) = json.loads(capfd.readouterr().out)["rows"]
    assert "not ready within" in row["left_out"]


def _too_late_and_silent(then: Callable[[], object]) -> None:
    with benchmark._deadline(0.001):
        with contextlib.suppress(benchmark._TooLate):
            time.sleep(1)
        then()


def test_a_dropped_deadline_is_too_late_all_the_same() -> None:
    """As torch's native parsers of arguments drop it, for an error of their own or none."""
    for then in (lambda: None, lambda: torch.empty([], size="what is no size")):
        with pytest.raises(benchmark._TooLate):
            _too_late_and_silent(then)


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (
            {"eager": (1, 1), "inductor": (2, 1), "zefuse f32": (4, 3)},
            "Compiling helps: decoding 3.00 times, prompts 2.00",
        ),
        ({"eager": (1, 1), "zefuse f32": (1, 0.5)}, "Compiling does not help here: decoding 0.50 times"),
        ({"eager": (2, 1), "zefuse f32": (1, 2)}, "Compiling helps to decode alone: "),
        ({"eager": (1, 2), "zefuse f32": (2, 2)}, "Compiling helps with prompts alone: "),
        ({"eager": (1, 1), "zefuse f32": (2, 2), "zefuse int4": (1, 5)}, "decoding with int4 weights 5.00 times."),
        (
            {"eager": (1, 1), "zefuse f32": (2, 2), "zefuse int8": (1, 5), "zefuse int4 x int8": (1, 6)},
            "decoding with int4 weights and int8 activations 6.00 times.",
        ),
        ({"zefuse f32": (1, 1)}, "was not measured"),
    ],
)
def test_one_sentence(rates: dict[str, tuple[float, float]], said: str) -> None:
    rows = [Row(name, 0, [1 / prefill], [1 / decode]) for name, (prefill, decode) in rates.items()]
    assert said in Result("model", 1, 1, 1, 1.0, rows).sentence()
