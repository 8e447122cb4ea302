"""Checkpoints of GPTQ and AWQ, made here by a packer of our own from the formats' description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from language_model import write_model
from safetensors.torch import load_file, save_file

import zefuse.llm
from zefuse.errors import InvalidArgumentError
from zefuse.llm import generating, quantized
from zefuse.llm.quantized import QuantizedLinear

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def _words(codes: torch.Tensor, dim: int, bits: int, order: tuple[int, ...]) -> torch.Tensor:
    """Codes of neighbours along ``dim`` into words, ``order[i]`` of each word's at bit ``i * bits``."""
    count = 32 // bits
    groups = codes.long().unflatten(dim, (-1, count)).movedim(dim + 1, 0)
    word = sum(groups[order[place]] << (bits * place) for place in range(count))
    return torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.int32)


def _parts(
    method: str, weight: torch.Tensor, bits: int, group: int, sym: bool, act_order: bool, less_one: bool = True
) -> Any:
    """A checkpoint's tensors for a weight [N, K], and what they stand for."""
    draw = torch.Generator().manual_seed(int(weight.numel()))
    rows, columns = weight.shape
    size = columns if group == -1 else group
    of_group = torch.arange(columns, dtype=torch.int32) // size
    if act_order:
        of_group = of_group[torch.randperm(columns, generator=draw)]
    most = (1 << bits) - 1
    scales = torch.empty(columns // size, rows, dtype=torch.float16)
    zeros = torch.full((columns // size, rows), 1 << (bits - 1))
    for number in range(columns // size):
        part = weight[:, of_group == number]
        scales[number] = 2 * part.abs().amax(1) / most
        if not sym:
            zeros[number] = torch.randint(0, most + 1, (rows,), generator=draw)
    by_column = scales.float()[of_group.long()], zeros[of_group.long()]
    codes = (weight.t() / by_column[0] + by_column[1]).round().clamp(0, most).long()
    stands_for = ((codes - by_column[1]) * by_column[0]).t()
    if method == "awq":
        words = {"qweight": _words(codes, 1, 4, _AWQ_ORDER), "qzeros": _words(zeros, 1, 4, _AWQ_ORDER)}
        return {**words, "scales": scales}, stands_for
    plain = tuple(range(32 // bits))
    stored = (zeros - 1) & most if less_one else zeros
    words = {"qweight": _words(codes, 0, bits, plain), "qzeros": _words(stored, 1, bits, plain)}
    return {**words, "scales": scales, "g_idx": of_group}, stands_for


def _write(place: Path, settings: dict[str, Any], **how: Any) -> Any:
    """A checkpoint in a folder; gives the model that it stands for. All but the vocabulary's matrix are quantized."""
    write_model(place)
    tensors = load_file(place / "model.safetensors")
    plain = transformers.AutoModelForCausalLM.from_pretrained(place)
    for name in [name for name in tensors if "_proj" in name]:
        made, stands_for = _parts(
            settings["quant_method"], tensors.pop(name), settings["bits"], settings["group_size"], **how
        )
        owner = name.removesuffix(".weight")
        tensors |= {f"{owner}.{part}": tensor.contiguous() for part, tensor in made.items()}
        plain.get_submodule(owner).weight.data = stands_for
    save_file(tensors, place / "model.safetensors")
    _change(place, lambda config: config.update(quantization_config=settings))
    return plain


def _change(place: Path, change: Any) -> None:
    config = json.loads((place / "config.json").read_text())
    change(config)
    (place / "config.json").write_text(json.dumps(config))


def _gptq(**changes: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True, **changes}


_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
_CASES = {
    "gptq": (_gptq(), {"sym": True, "act_order": False}),
    "gptq_zeros": (_gptq(group_size=16), {"sym": False, "act_order": False}),
    "gptq_v2": (_gptq(checkpoint_format="gptq_v2"), {"sym": False, "act_order": False, "less_one": False}),
    "gptq_act_order": (_gptq(desc_act=True), {"sym": False, "act_order": True}),
    "gptq_8_bits": (_gptq(bits=8, group_size=-1), {"sym": True, "act_order": False}),
    "gptq_8_bits_zeros": (_gptq(bits=8), {"sym": False, "act_order": False}),
    "gptq_2_bits": (_gptq(bits=2), {"sym": False, "act_order": False}),
    "awq": (_AWQ, {"sym": False, "act_order": False}),
}


@pytest.mark.parametrize("case", _CASES)
def test_a_matrix_is_the_files(case: str, tmp_path: Path) -> None:
    settings, how = _CASES[case]
    plain = _write(tmp_path, settings, **how)
    model, tokenizer = zefuse.llm.load(tmp_path)
    assert tokenizer.encode("the sky") == [3, 4]
    assert type(model.lm_head) is torch.nn.Linear and torch.equal(model.lm_head.weight, plain.lm_head.weight)
    matrices = {name: module for name, module in model.named_modules() if isinstance(module, QuantizedLinear)}
    assert len(matrices) == 14
    for name, module in matrices.items():
        assert module.packed.bits == (8 if settings["bits"] == 8 else 4)
        assert (module.packed.minimums is None) == how["sym"]
        assert torch.equal(module.weight, plain.get_submodule(name).weight), name


def test_a_model_computes_with_the_files_codes(tmp_path: Path) -> None:
    settings, how = _CASES["gptq_act_order"]  # with zeros, and columns in another order
    plain = _write(tmp_path, settings, **how)
    arguments = {
        "max_new_tokens": 6, "do_sample": False, "return_dict_in_generate": True, "output_logits": True,
    }  # fmt: skip
    prompt = torch.tensor([[3, 4, 5, 6]])
    expected = plain.generate(prompt, **arguments)
    said = expected.sequences[0].tolist()
    for activations, tolerance in ((None, 1e-4), ("int8", 0.05)):
        optimized = zefuse.llm.optimize(zefuse.llm.load(tmp_path)[0], activations=activations)
        made = optimized.generate(prompt, prefix_allowed_tokens_fn=lambda _, before: [said[len(before)]], **arguments)
        for logits, without in zip(made.logits, expected.logits, strict=True):
            assert (logits - without).norm() <= tolerance * without.norm()
        report = zefuse.llm.report(optimized)
        assert report.left == [] and all(graph.fallbacks == 0 for graph in report.graphs)
        assert any(line.startswith("weights: 14 matrices quantized before") for line in report.changed)


def test_products_with_eight_bits_and_zeros(tmp_path: Path) -> None:
    plain = _write(tmp_path, _CASES["gptq_8_bits_zeros"][0], **_CASES["gptq_8_bits_zeros"][1])
    name = "model.layers.0.mlp.down_proj"
    module, weight = zefuse.llm.load(tmp_path)[0].get_submodule(name), plain.get_submodule(name).weight
    row = torch.randn(1, weight.shape[1], generator=torch.Generator().manual_seed(0))
    for activations, tolerance in ((None, 1e-5), ("int8", 0.02)):
        quantized.arrange(module, activations)
        made = torch.compile(module, backend="zefuse", options={"strict": True}, dynamic=False)(row)
        assert (made - row @ weight.t()).norm() < tolerance * (row @ weight.t()).norm()


def test_a_dequantized_model(tmp_path: Path) -> None:
    plain = _write(tmp_path, _CASES["gptq_act_order"][0], **_CASES["gptq_act_order"][1])
    dequantized, _ = generating.load(str(tmp_path), "float32")
    for name, tensor in plain.state_dict().items():
        assert torch.equal(dequantized.state_dict()[name], tensor), name


def test_several_files(tmp_path: Path) -> None:
    plain = _write(tmp_path, _AWQ, sym=False, act_order=False)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    files = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(sorted(tensors))}
    for file in set(files.values()):
        save_file({name: tensors[name] for name, of in files.items() if of == file}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    model, _ = zefuse.llm.load(tmp_path)
    assert torch.equal(model.model.layers[1].mlp.up_proj.weight, plain.model.layers[1].mlp.up_proj.weight)
    index.write_text(json.dumps({"weight_map": dict.fromkeys(files, "../model.safetensors")}))
    with pytest.raises(InvalidArgumentError, match="outside of its folder"):
        zefuse.llm.load(tmp_path)
    index.write_text("[1")
    with pytest.raises(InvalidArgumentError, match=r"index\.json: not what save_pretrained"):
        zefuse.llm.load(tmp_path)


_Q = "model.layers.0.self_attn.q_proj"


def _tensor(name: str, change: Any) -> Any:
    def damage(place: Path) -> None:
        tensors = load_file(place / "model.safetensors")
        made = change(tensors.pop(name))
        save_file(tensors if made is None else {**tensors, name: made.contiguous()}, place / "model.safetensors")

    return damage


def _cut(place: Path) -> None:
    path = place / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _header(place: Path) -> None:
    path = place / "model.safetensors"
    path.write_bytes((1 << 60).to_bytes(8, "little") + path.read_bytes()[8:])


def _settings(**changes: Any) -> Any:
    return lambda place: _change(place, lambda config: config["quantization_config"].update(changes))


_DAMAGES: dict[str, tuple[Any, str]] = {
    "cut short": (_cut, "damaged, or no safetensors file"),
    "a hostile header": (_header, "damaged, or no safetensors file"),
    "no file": (lambda place: (place / "model.safetensors").unlink(), "no model.safetensors and no"),
    "a part is missing": (_tensor(f"{_Q}.scales", lambda _: None), "q_proj.scales is not in it"),
    "another size": (_tensor(f"{_Q}.qweight", lambda t: t[:-1]), r"q_proj.qweight is I32 \[7, 64\]; expected int32 \[8, 64\]"),
    "another type": (_tensor(f"{_Q}.qzeros", lambda t: t.float()), r"q_proj.qzeros is F32 \[2, 8\]; expected int32"),
    "a group that is none": (
        _tensor(f"{_Q}.g_idx", lambda t: t.index_fill(0, torch.tensor(5), 2)), "names groups from 0 to 2; there are 2"
    ),
    "a negative group": (_tensor(f"{_Q}.g_idx", lambda t: t - 1), "names groups from -1 to 0; there are 2"),
    "groups of unequal sizes": (
        _tensor(f"{_Q}.g_idx", lambda t: t.index_fill(0, torch.tensor(5), 1)), "has groups of 31 to 33 columns"
    ),
    "groups that do not divide": (_settings(group_size=48), "q_proj has 64 columns, no multiple of the group's 48"),
    "a strange group": (_settings(group_size=12), "group_size=12; read are -1 and multiples of 8"),
    "no group": (_settings(group_size=None), "group_size=None"),
    "three bits": (_settings(bits=3), "bits=3; read are 2, 4, 8"),
    "another form": (_settings(checkpoint_format="marlin"), "the form 'marlin'; read are gptq, gptq_v2"),
    "another method": (_settings(quant_method="magic"), "the unknown quantization 'magic'"),
    "nothing quantized": (_settings(quant_method="awq", version="gemv"), "the form 'gemv'; read are gemm"),
    "a weight is missing": (_tensor("model.norm.weight", lambda _: None), "the model's model.norm.weight is not in it"),
    "parts of no layer": (
        lambda place: save_file(
            {**load_file(place / "model.safetensors"), "model.layers.0.mlp.act.scales": torch.ones(4)}, place / "model.safetensors"
        ), "mlp.act.scales is no part of a linear layer",
    ),
    "damaged settings": (lambda place: (place / "config.json").write_text('{"quantization_config": 3}'), "its config.json is not"),
}  # fmt: skip


@pytest.mark.parametrize("damage", _DAMAGES)
def test_what_is_refused(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any weight is read."""
    from zefuse.llm import gptq_awq

    change, message = _DAMAGES[damage]
    _write(tmp_path, _gptq(), sym=True, act_order=False)
    change(tmp_path)
    monkeypatch.setattr(gptq_awq._Matrix, "read", None)
    with pytest.raises(InvalidArgumentError, match=message):
        zefuse.llm.load(tmp_path)
