"""``zefuse generate``, and what it refuses to read."""

from __future__ import annotations

import contextlib
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from language_model import WORDS, write_model

from zefuse.cli import main
from zefuse.errors import InvalidArgumentError
from zefuse.llm import generating, gguf_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def test_an_answer_and_how_fast_it_came(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["generate", str(folder), "--prompt", "why is the sky blue ?", "--max-new-tokens", "5"]
    assert main([*words, "-q"]) == 0
    answer = capfd.readouterr().out.strip()
    assert len(answer.split()) == 5 and set(answer.split()) <= set(WORDS)
    assert main([*words, "--weights", "int8", "--threads", str(torch.get_num_threads())]) == 0
    out = capfd.readouterr().out
    assert "matrices to int8" in out
    assert "5 tokens for a prompt of 6; the first after" in out
    assert "tokens/s" in out and "GB/s that this machine reads" in out
    assert main([*words, "-q", "--sample", "--seed", "3", "--raw"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "--prompt", "the"], "no such file or folder"),
        (
            ["FOLDER", "--prompt", "the", "--max-new-tokens", "64"],
            "more than the 64 of the model's context; 63 new ones fit",
        ),
        (["FOLDER", "--prompt", "the", "--max-new-tokens", "0"], "a number from 1 on"),
        (["FOLDER/model.safetensors", "--prompt", "the"], "not a GGUF file"),
        (["FOLDER/..", "--prompt", "the"], "no config.json in it"),
    ],
)
def test_refusals(folder: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["generate", *(word.replace("FOLDER", str(folder)) for word in words)]) == 1
    assert said in capfd.readouterr().err


def test_a_folder_without_a_tokenizer(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        if "token" not in file.name:
            (tmp_path / file.name).symlink_to(file)
    with pytest.raises(InvalidArgumentError, match="no tokenizer that transformers can read"):
        generating.load(str(tmp_path), "float32")


def test_bytes_of_a_token_are_those_of_weights_and_cache(folder: Path) -> None:
    model, _ = generating.load(str(folder), "float32")
    made = model.generate(torch.tensor([[3, 4]]), max_new_tokens=2, return_dict_in_generate=True, do_sample=False)
    every = sum(each.numel() for each in (*model.parameters(), *model.buffers()))
    own = model.get_input_embeddings().weight.numel()
    cache = 2 * 2 * 2 * 16 * made.past_key_values.get_seq_length()  # layers, keys and values, heads, dimensions
    assert generating.bytes_per_token(model, made.past_key_values) == 4 * (every - own + cache)


# --- GGUF ---------------------------------------------------------------------------------------------------------------


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _gguf(kind: int = 8, shape: tuple[int, ...] = (64, 3), offset: int = 0, **changes: Any) -> bytes:
    values = [_text("general.alignment") + struct.pack("<II", 4, changes.get("alignment", 64))]
    values.append(_text("words") + struct.pack("<IIQ", 9, 8, 2) + _text("a") + _text("b"))
    values.append(_text("numbers") + struct.pack("<IIQ", 9, changes.get("inner", 6), 3) + bytes(12))
    head = b"GGUF" + struct.pack("<IQQ", changes.get("version", 3), changes.get("tensors", 1), len(values))
    tensor = _text("weight") + struct.pack("<I", changes.get("rank", len(shape)))
    tensor += struct.pack(f"<{len(shape)}QIQ", *shape, kind, offset)
    head += b"".join(values) + tensor
    return head + bytes(-len(head) % 64) + bytes(64 // 32 * 34 * 3)


def test_a_whole_file_passes_and_each_cut_one_does_not(tmp_path: Path) -> None:
    file, data = tmp_path / "model.gguf", _gguf()
    file.write_bytes(data)
    gguf_file.check(file)
    for length in range(4, len(data)):
        file.write_bytes(data[:length])
        with pytest.raises(InvalidArgumentError, match="damaged GGUF file"):
            gguf_file.check(file)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 9}, "version 9"),
        ({"tensors": 1 << 40}, "tensors and 3 values"),
        ({"kind": 99}, "unknown quantization 99; known: F32, "),
        ({"shape": (40, 3)}, "no multiple of its blocks' 32"),
        ({"shape": (1 << 60, 1 << 60)}, "it is cut short"),
        ({"offset": 1}, "no multiple of 64"),
        ({"offset": 1 << 50}, "it is cut short"),
        ({"alignment": 0}, "an alignment of 0"),
        ({"alignment": 3}, "an alignment of 3"),
        ({"rank": 9}, "of 9 dimensions"),
        ({"inner": 77}, "an array of type 77"),
    ],
)
def test_numbers_that_cannot_be(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(_gguf(**changes))
    with pytest.raises(InvalidArgumentError, match="damaged GGUF file") as caught:
        gguf_file.check(file)
    assert said in str(caught.value)


def test_any_bytes_pass_or_are_refused(tmp_path: Path) -> None:
    file, data, draw = tmp_path / "model.gguf", _gguf(), random.Random(0)
    for _ in range(500):
        changed = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(4, len(changed))] = draw.randrange(256)
        file.write_bytes(changed)
        with contextlib.suppress(InvalidArgumentError):
            gguf_file.check(file)
