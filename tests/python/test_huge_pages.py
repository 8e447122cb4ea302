"""A language model's weights in huge pages: the same tensors in other memory."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import zefuse.llm
from zefuse.llm import huge_pages

needs_huge_pages = pytest.mark.skipif(huge_pages.why_not() is not None, reason=str(huge_pages.why_not()))


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(1024, 1024)
        self.tied = torch.nn.Linear(1024, 1024)
        self.tied.weight = self.first.weight
        self.register_buffer("codes", torch.randint(-128, 127, (1000, 999), dtype=torch.int8))
        self.register_buffer("columns", torch.randn(64, 32).t())
        self.register_buffer("empty", torch.zeros(0))
        whole = torch.randn(8, 8)
        self.register_buffer("part", whole[2:4])
        self.register_buffer("one", whole.view(-1))
        self.register_buffer("shared", torch.randn(16).share_memory_())


def _flags(tensor: torch.Tensor) -> list[str]:
    """What the kernel notes about the memory that a tensor lies in."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            begin, end = (int(each, 16) for each in first.split("-"))
            inside = begin <= tensor.data_ptr() < end
        elif inside and first == "VmFlags:":
            return line.split()[1:]
    raise AssertionError("the tensor lies nowhere")


def _of_all(name: str) -> str:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


@needs_huge_pages
def test_tensors_stay_what_they_are() -> None:
    model = _Model()
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    before = {name: (id(each), each.detach().clone(), each.stride(), each.data_ptr()) for name, each in named}
    changed, left = huge_pages.move(model)
    assert left is None
    assert changed == "weights: 5.2 MB moved to huge pages"
    for name, tensor in [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]:
        identity, values, strides, place = before[name]
        assert id(tensor) == identity
        assert torch.equal(tensor, values)
        assert tensor.stride() == strides
        stays = name in ("empty", "part", "one", "shared")
        assert (tensor.data_ptr() == place) == stays, name
        assert stays or "hg" in _flags(tensor), name
    assert int(_of_all("AnonHugePages")) > 0  # the kernel had at least one
    assert model.tied.weight is model.first.weight
    assert model.first.weight.requires_grad
    model.first(torch.ones(1024)).sum().backward()


@needs_huge_pages
def test_a_tensor_is_saved_and_copied_by_itself() -> None:
    model = _Model()
    huge_pages.move(model)
    file = io.BytesIO()
    torch.save(model.first.bias, file)
    assert file.tell() < 8192
    other = copy.deepcopy(model)
    assert torch.equal(other.codes, model.codes)
    assert other.tied.weight is other.first.weight
    weight = model.first.weight
    expected = weight.detach().clone()
    del model  # the tensor keeps its memory
    assert torch.equal(weight, expected)


def test_the_reason_where_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_SETTING", tmp_path / "enabled")
    assert huge_pages.why_not() == f"the system has no {tmp_path / 'enabled'}"
    (tmp_path / "enabled").write_text("always madvise [never]\n")
    changed, left = huge_pages.move(_Model())
    assert changed is None
    assert left == f"weights in small pages, which are read more slowly ({tmp_path / 'enabled'} says never)"
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    assert huge_pages.why_not() is None


def _llama(size: int) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=size, intermediate_size=size, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=2048, bos_token_id=1, eos_token_id=None, pad_token_id=0, tie_word_embeddings=True,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@needs_huge_pages
def test_an_optimized_model_has_its_weights_there(tmp_path: Path) -> None:
    model = _llama(512)
    prompt = torch.tensor([[1, 17, 42, 99]])
    expected = model.generate(prompt, max_new_tokens=4, do_sample=False)
    model = zefuse.llm.optimize(model)
    assert any("moved to huge pages" in line for line in zefuse.llm.report(model).changed)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert "hg" in _flags(model.lm_head.weight)
    assert torch.equal(model.generate(prompt, max_new_tokens=4, do_sample=False), expected)
    model.save_pretrained(tmp_path)
    saved = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(saved.lm_head.weight, model.lm_head.weight)


def test_small_models_stay_where_they_are() -> None:
    model = zefuse.llm.optimize(_llama(64))
    assert not any("huge pages" in line for line in zefuse.llm.report(model).changed)
    assert zefuse.llm.report(model).left == []


@needs_huge_pages
def test_the_old_memory_goes_back_to_the_system() -> None:
    """Also what malloc would keep, since something lies behind it."""
    freed = torch.ones(30 << 20, dtype=torch.uint8)
    del freed  # from now on blocks of this size come from the heap
    model = torch.nn.Module()
    for number in range(40):
        model.register_buffer(f"codes{number}", torch.ones(2 << 20, dtype=torch.uint8))
    behind = torch.ones(1 << 20, dtype=torch.uint8)
    before = _anonymous_megabytes()
    huge_pages.move(model)
    assert _anonymous_megabytes() < before + 40 and behind.all()


def _anonymous_megabytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:"))
