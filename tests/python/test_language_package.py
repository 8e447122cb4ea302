"""``zefuse compile --llm`` and what runs its packages, without torch: against ``generate()`` of the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest
import torch
import transformers
from language_model import write_model

import zefuse.llm
from zefuse.cli import main
from zefuse.errors import (
    DamagedError,
    IndexOutOfRangeError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
    UnsupportedError,
    ZefuseError,
)
from zefuse.llm import cache_memory, packaging
from zefuse.llm.sampling import Sampling

_SIZES = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 128}
_GATED = {**_SIZES, "num_key_value_heads": 2, "intermediate_size": 96}
_ENDS = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
_ARCHITECTURES = {
    "Llama": _GATED,
    "Qwen2": _GATED,
    "Mistral": {**_GATED, "sliding_window": 8},
    "Gemma": {**_GATED, "head_dim": 16},
    "Phi3": _GATED,
    "Mixtral": {**_GATED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "GPT2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128},
    "OPT": {**_SIZES, "ffn_dim": 96, "word_embed_proj_dim": 64},
    "Falcon": _SIZES,
}
# What a package's plans have otherwise than those of generate() (test_llm.py, all of them): positions, windows, experts, heads.
_PACKAGED = ("Qwen2", "Mistral", "Gemma", "Phi3", "Mixtral", "GPT2", "OPT", "Falcon")
_BATCHES = (
    "Mistral",
    "Mixtral",
    "OPT",
    "Falcon",
)  # of these packages also serve several sequences; test_language_batches.py: Llama
_PROMPT = [17, 5, 99, 3, 42]


def _model(name: str = "Llama", **changes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**_ARCHITECTURES[name], **_ENDS, **changes})
    kind = {"GPT2": "GPT2LMHeadModel"}.get(name, f"{name}ForCausalLM")
    return getattr(transformers, kind)(config).eval()


def _greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    made = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False)
    return made[0, len(prompt) :].tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def answers(folder: Path) -> Path:
    """The folder's model as a package."""
    made = folder / "model.zefuse"
    assert main(["compile", "--llm", str(folder), "-o", str(made), "--quiet"]) == 0
    return made


@pytest.mark.parametrize("name", _PACKAGED)
def test_greedy_tokens_are_those_of_eager(name: str, tmp_path: Path) -> None:
    model, file = _model(name), tmp_path / "model.zefuse"
    batches = [1, None] if name in _BATCHES else [1]
    graphs = zefuse.llm.compile_package(model, file, batches=name in _BATCHES)
    assert [(graph.kind, graph.batch, graph.fallbacks, graph.copies) for graph in graphs] == [
        (kind, batch, 0, 0) for batch in batches for kind in ("decode", "prefill")
    ]
    loaded = zefuse.llm.load_package(file)
    assert list(loaded.tokens(_PROMPT, 24)) == _greedy(model, _PROMPT, 24)
    one = _PROMPT[:1]  # the prompt takes the single token's plan
    assert list(loaded.tokens(one, 6)) == _greedy(model, one, 6)
    long = torch.randint(2, 128, (90,), generator=torch.Generator().manual_seed(1)).tolist()
    assert list(loaded.tokens(long, 70)) == _greedy(model, long, 70)  # beyond several steps of the cache
    if name in _BATCHES:
        prompts = [long[:70], one, _PROMPT, long[:9]]
        assert loaded.generate(prompts, 12) == [_greedy(model, each, 12) for each in prompts]


@pytest.mark.parametrize(("weights", "activations"), [("int8", None), ("int4", "int8")])
def test_quantized_weights_are_packed_once(weights: str, activations: str | None, tmp_path: Path) -> None:
    model = zefuse.llm.optimize(_model(), weights=weights, activations=activations)
    zefuse.llm.compile_package(model, tmp_path / "model.zefuse", batches=False)
    loaded = zefuse.llm.load_package(tmp_path / "model.zefuse")
    assert list(loaded.tokens(_PROMPT, 16)) == _greedy(model, _PROMPT, 16)
    of_weights = packaging.bytes_of_weights(model)
    from zefuse import reports

    sections = {name: size for name, size, _ in reports.ask("package", str(tmp_path / "model.zefuse"))["sections"]}
    embedding = model.get_input_embeddings().weight.nbytes
    assert of_weights < sections["weights"] < 1.3 * of_weights + embedding


def test_bf16_and_packages_as_torch_calls_them(tmp_path: Path) -> None:
    """The cache has the model's dtype; ``zefuse.load`` takes the same file."""
    model, file = _model().to(torch.bfloat16), tmp_path / "model.zefuse"
    zefuse.llm.compile_package(model, file, batches=False)
    loaded = zefuse.llm.load_package(file)
    cache = loaded.cache(16)
    ours = loaded.logits(_PROMPT, cache)
    assert cache.bytes == 2 * 3 * 2 * 16 * 16 * 2
    with torch.no_grad():
        expected = model(torch.tensor([_PROMPT])).logits[0, -1].float()
    assert torch.allclose(torch.tensor(ours), expected, atol=0.05)

    called = zefuse.load(file)
    none = torch.zeros(1, dtype=torch.int64)
    memory = [[torch.zeros((16, 1, 2, 16), dtype=torch.bfloat16).permute(1, 2, 0, 3) for _ in range(3)] for _ in "kv"]
    logits = called(torch.tensor([_PROMPT]), none, torch.tensor(0), *memory)
    assert torch.equal(logits[0], torch.tensor(ours))


def test_on_a_gpu(tmp_path: Path) -> None:
    """Which the CPU driver poses as; the cache is the host's."""
    program = """
import torch, transformers, zefuse.llm
torch.manual_seed(0)
sizes = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, vocab_size=128, eos_token_id=None)).eval()
model = zefuse.llm.optimize(model, weights="int8")
zefuse.llm.compile_package(model, "model.zefuse", targets=["cpu", "dg2-g11"], batches=False)
expected = model.generate(torch.tensor([[17, 5, 99]]), max_new_tokens=70, do_sample=False)[0, 3:].tolist()
for device in ("cpu", "gpu:0"):
    assert list(zefuse.llm.load_package("model.zefuse", device=device).tokens([17, 5, 99], 70)) == expected, device
"""
    done = children.run(
        program, cwd=tmp_path, env={**os.environ, "ZEFUSE_CPU_DRIVER_AS": "gpu"}, imports=children.LANGUAGE
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_conversation_goes_on_in_the_cache(tmp_path: Path) -> None:
    model, file = _model(), tmp_path / "model.zefuse"
    zefuse.llm.compile_package(model, file, batches=False)
    loaded = zefuse.llm.load_package(file)
    cache = loaded.cache(40)
    loaded.logits(_PROMPT, cache)
    again = loaded.logits([7, 8, 9], cache)
    assert cache.length == 8
    with torch.no_grad():
        whole = model(torch.tensor([[*_PROMPT, 7, 8, 9]])).logits[0, -1]
    assert torch.allclose(torch.tensor(again), whole, atol=1e-5)


def test_a_second_process_needs_neither_torch_nor_transformers(answers: Path, folder: Path, tmp_path: Path) -> None:
    for name in ("torch", "transformers"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    words = [sys.executable, "-m", "zefuse", "generate", str(answers), "--prompt", "why is the sky", "--max-new-tokens"]

    def run(*more: str, code: int = 0) -> str:
        done = subprocess.run([*words, *more], capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    text = run("5", "--json")
    said = json.loads(text)
    model, tokenizer = zefuse.llm.load(folder)
    ids = tokenizer("why is the sky").input_ids
    assert said["text"] == tokenizer.decode(_greedy(model, ids, 5))
    assert (said["prompt_tokens"], said["tokens"]) == (4, 5) and said["tokens_per_second"] > 0
    out = run("5", "--threads", "1")
    assert out.startswith(said["text"]) and "loading included" in out and "GB/s that this machine reads" in out
    assert run("5", "-q") == said["text"] + "\n"
    both = run("5", "-q", "--prompt", "the sky")
    assert both == f"[1] {said['text']}\n[2] {tokenizer.decode(_greedy(model, tokenizer('the sky').input_ids, 5))}\n"
    beams = model.generate(torch.tensor([ids]), max_new_tokens=5, num_beams=3, do_sample=False)[0, 4:]
    assert run("5", "-q", "--num-beams", "3") == tokenizer.decode(beams) + "\n"
    drawn = [run("8", "-q", "--sample", "--temperature", "5", "--seed", seed) for seed in "112"]
    assert drawn[0] == drawn[1] != drawn[2]
    assert "60 new ones fit" in run("64", code=1)


def test_pieces_of_text_come_with_their_tokens(answers: Path) -> None:
    loaded = zefuse.llm.load_package(answers)
    told: list[int] = []

    def tokens() -> Any:
        for token in (3, 4, 5):
            told.append(token)
            yield token

    pieces = loaded.text_of(tokens())
    assert next(pieces) == "the" and told == [3]
    assert "".join(["the", *pieces]) == "the sky is"


def test_the_end_token_ends_an_answer(tmp_path: Path) -> None:
    model = _model()
    first, second = _greedy(model, _PROMPT, 2)
    assert first != second
    model.generation_config.eos_token_id = [second]
    zefuse.llm.compile_package(model, tmp_path / "model.zefuse", batches=False)
    assert list(zefuse.llm.load_package(tmp_path / "model.zefuse").tokens(_PROMPT, 9)) == [first, second]


# --- Conversations ------------------------------------------------------------------------------------------------------

_TEMPLATE = "{% for m in messages %}<s>{{ m.role }} {{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant {% endif %}"


def test_a_template_as_texts_around_messages(folder: Path) -> None:
    from zefuse.llm.conversation import texts_around

    _, tokenizer = zefuse.llm.load(folder)
    assert texts_around(tokenizer) is None
    tokenizer.chat_template = _TEMPLATE
    assert texts_around(tokenizer) == {
        "before": "<s>user ",
        "after": "</s><s>assistant ",
        "between": "</s><s>user ",
    }
    tokenizer.chat_template = "{{ messages[-1].content }}"  # forgets what came before
    assert texts_around(tokenizer) == {"before": "", "after": ""}
    for other in ("{{ messages[0].content | upper }}", "{{ raise_exception('no') }}", 2 * "{{ messages[0].content }}"):
        tokenizer.chat_template = other
        assert texts_around(tokenizer) is None


def test_a_prompt_is_what_the_template_makes_of_it(folder: Path, tmp_path: Path) -> None:
    model, tokenizer = zefuse.llm.load(folder)
    tokenizer.chat_template = _TEMPLATE
    zefuse.llm.compile_package(model, tmp_path / "model.zefuse", tokenizer=tokenizer, batches=False)
    loaded = zefuse.llm.load_package(tmp_path / "model.zefuse")
    message = [{"role": "user", "content": "why is the sky"}]
    wanted = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert loaded.ids_of("why is the sky") == wanted
    assert loaded.ids_of("why is the sky", raw=True) == tokenizer("why is the sky").input_ids


# --- Sampling -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.7, 5, 1.0), (1.5, 0, 0.6), (2.0, 20, 0.3), (1.0, 999, 1e-9)]
)
@pytest.mark.parametrize("spread", [1, 8])
def test_probabilities_are_those_of_transformers(temperature: float, top_k: int, top_p: float, spread: int) -> None:
    logits = np.random.default_rng(0).normal(size=5000).astype(np.float32) * spread
    kept, probabilities = Sampling(temperature, top_k, top_p).probabilities(logits)
    ours = np.zeros(5000)
    ours[kept] = probabilities
    scores = transformers.TemperatureLogitsWarper(temperature)(None, torch.tensor(logits)[None])
    if top_k:
        scores = transformers.TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = transformers.TopPLogitsWarper(top_p)(None, scores)
    np.testing.assert_allclose(ours, scores.softmax(-1)[0].numpy(), rtol=1e-4)
    if spread == 8 and not top_k and top_p < 1:
        assert len(kept) < 5000  # the vocabulary was not sorted


def test_tokens_are_drawn_by_their_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.2, 0.3], np.float32))
    draws = np.random.default_rng(0)
    counts = np.bincount([Sampling(1.0, 0).next(logits, draws) for _ in range(3000)])
    np.testing.assert_allclose(counts / 3000, [0.5, 0.2, 0.3], atol=0.03)
    assert Sampling().next(logits, draws) == 0


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0}, {"top_p": 2}]
)
def test_settings_that_cannot_be(answers: Path, wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
        zefuse.llm.load_package(answers).tokens([3], 2, **wrong)  # before a token is asked for


# --- Bad input ----------------------------------------------------------------------------------------------------------


def test_a_package_cut_short_or_changed_is_refused(answers: Path, tmp_path: Path) -> None:
    data, file = answers.read_bytes(), tmp_path / "cut.zefuse"
    for length in [0, 7, 100, *range(1000, len(data), len(data) // 20), len(data) - 1]:
        file.write_bytes(data[:length])
        with pytest.raises(DamagedError):
            zefuse.llm.load_package(file)
    changed = bytearray(data)
    changed[-200] ^= 1  # among the weights, which are last
    file.write_bytes(changed)
    loaded = zefuse.llm.load_package(file)
    with pytest.raises(DamagedError, match="the hash of section 'weights' is wrong"):
        next(loaded.tokens([3], 2))


def test_what_does_not_fit_is_refused_before_any_work(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = zefuse.llm.load_package(answers)
    assert loaded.context == 64
    with pytest.raises(InvalidArgumentError, match=r"60 tokens and 5 new ones are more than the 64 .* 4 new ones fit"):
        loaded.tokens([3] * 60, 5)
    with pytest.raises(InvalidArgumentError, match="shorten the prompt"):
        loaded.tokens([3] * 70, 5)
    with pytest.raises(InvalidArgumentError, match="max_new_tokens=0"):
        loaded.tokens([3], 0)
    with pytest.raises(InvalidArgumentError, match="64 at most"):
        loaded.cache(65)
    cache = loaded.cache(4)
    for wrong, said in (
        {(): "at least one", (3, 9): "the model has 9", (-1,): "from -1", (3,) * 5: "5 more do not fit"}
    ).items():
        with pytest.raises(InvalidArgumentError, match=said):
            loaded.logits(wrong, cache)
    cache.length, cache.capacity = 4, 64  # a caller of the C interface who shows fewer tokens than he says
    with pytest.raises(IndexOutOfRangeError):
        loaded._model.call(_inputs_of(loaded, cache, [3]))
    monkeypatch.setattr(cache_memory, "_free_memory", lambda: 1000)
    with pytest.raises(
        OutOfMemoryError, match=r"a key-value cache for 64 tokens takes 0 MB, and 0 MB of memory are free"
    ):
        loaded.cache(64)


def _inputs_of(loaded: Any, cache: Any, ids: list[int]) -> list[Any]:
    from zefuse.packages import c_model

    given, padding, start = np.array([ids], np.int64), np.zeros(1, np.int64), np.array(64, np.int64)
    for tensor in cache.tensors:
        tensor.shape[2] = 4
    inputs = [c_model.tensor(each.ctypes.data, c_model.I64, each.shape) for each in (given, padding, start)]
    inputs[0].kept = given, padding, start
    return [*inputs, *cache.tensors]


def test_packages_of_other_models_and_files_that_are_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.zefuse"
    zefuse.compile_package(torch.export.export(torch.nn.GELU(), (torch.ones(3),)), other)
    with pytest.raises(InvalidArgumentError, match="a package of another kind of model; zefuse compile --llm"):
        zefuse.llm.load_package(other)
    with pytest.raises(NotFoundError, match="zefuse compile --llm MODEL"):
        zefuse.llm.load_package(tmp_path / "nowhere.zefuse")
    zefuse.llm.compile_package(_model(), other, batches=False)  # no tokenizer
    with pytest.raises(NotFoundError, match=r"carries no file 'tokenizer.json'; it has 'language_model.json'"):
        zefuse.llm.load_package(other).tokens("why")
    assert main(["generate", str(other), "--prompt", "x", "--weights", "int8"]) == 1
    assert "is a package: --weights" in capfd.readouterr().err


def test_settings_that_are_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaging, "settings_of", lambda *_: {"context": "many"})
    zefuse.llm.compile_package(_model(), tmp_path / "model.zefuse", batches=False)
    with pytest.raises(DamagedError, match="language_model"):
        zefuse.llm.load_package(tmp_path / "model.zefuse")


def test_a_plan_that_writes_what_the_package_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = packaging._Decoding.__init__

    def quiet(self: Any, *args: Any) -> None:
        made(self, *args)
        for entry in self.inputs:
            entry.pop("written", None)

    monkeypatch.setattr(packaging._Decoding, "__init__", quiet)
    zefuse.llm.compile_package(_model(), tmp_path / "model.zefuse", batches=False)
    with pytest.raises(DamagedError, match="do not belong together"):
        zefuse.llm.load_package(tmp_path / "model.zefuse")


def test_models_that_make_no_package(tmp_path: Path) -> None:
    file = tmp_path / "model.zefuse"
    config = transformers.T5Config(d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2, vocab_size=64)
    with pytest.raises(UnsupportedError, match="an encoder-decoder"):
        zefuse.llm.compile_package(transformers.T5ForConditionalGeneration(config), file)
    with pytest.raises(InvalidArgumentError, match=r"has no tokenizer.json"):
        zefuse.llm.compile_package(_model(), file, tokenizer=object())
    with pytest.raises(NotFoundError, match="no folder"):
        zefuse.llm.compile_package(_model(), tmp_path / "nowhere" / "model.zefuse")
    with pytest.raises(ZefuseError, match="avx1024"):
        zefuse.llm.compile_package(_model(), file, targets=["avx1024"])
    assert not file.exists()


def test_verify_and_run_know_such_packages(answers: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(answers)]) == 0
    out = capfd.readouterr().out
    assert (
        "ok: it runs on cpu" in out
        and "ok: its plans for prompts and for single tokens, of one sequence and of several, agree" in out
    )
    for words in (["run", str(answers)], ["verify", str(answers), "--against", f"{__file__}:_subject"]):
        assert main(words) == 1
        assert "is a language model's" in capfd.readouterr().err


def _subject() -> Any:
    return torch.nn.GELU(), torch.ones(3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--llm", "nowhere"], "no such file or folder"),
        (["--llm", "FOLDER/model.safetensors"], "not a GGUF file"),
        (["--llm", "FOLDER", "--weights", "int8", "--group-size", "7"], "expected a multiple of 8"),
        (["--llm", "FOLDER", "--activations", "int8"], "takes quantized weights"),
        (["--llm", "FOLDER", "model.pt2"], "or a language model with --llm"),
        ([], "or a language model with --llm"),
        (["model.pt2", "--weights", "int8"], "are for a language model"),
    ],
)
def test_what_the_command_refuses(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    given = [word.replace("FOLDER", str(folder)) for word in words]
    assert main(["compile", *given, "-o", str(tmp_path / "model.zefuse")]) == 1
    assert said in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_quantization_of_a_checkpoint(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "bits9"}}))
    assert main(["compile", "--llm", str(tmp_path), "-o", str(tmp_path / "model.zefuse")]) == 1
    assert "quantization 'bits9'" in capfd.readouterr().err
    assert not (tmp_path / "model.zefuse").exists()


def test_a_killed_compile_leaves_nothing_half_written(folder: Path, tmp_path: Path) -> None:
    """Killed at two places, by the time that the command takes with its kernels in the cache."""
    made = tmp_path / "made.zefuse"
    began = time.perf_counter()
    done = children.zefuse(*_compile_words(folder, made), imports=children.LANGUAGE)
    assert done.returncode == 0, done.stderr
    usual = time.perf_counter() - began
    file = tmp_path / "killed" / "model.zefuse"
    file.parent.mkdir()
    for share in (0.6, 0.97):
        child = children.start(children.ZEFUSE, *_compile_words(folder, file), imports=children.LANGUAGE)
        time.sleep(share * usual)
        child.kill()
        if file.exists():  # it was done
            assert list(zefuse.llm.load_package(file).tokens([3], 2))
            file.unlink()
    assert main(_compile_words(folder, file)) == 0
    assert sorted(each.name for each in file.parent.iterdir()) == ["model.zefuse"]
    assert file.read_bytes() == made.read_bytes()


def _compile_words(folder: Path, file: Path) -> list[str]:
    return ["compile", "--llm", str(folder), "-o", str(file), "--quiet", "--no-batches"]


def test_the_command_says_what_it_made(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["compile", "--llm", str(folder), "-o", str(tmp_path / "model.zefuse"), "--weights", "int4"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["model"] == "LlamaForCausalLM" and found["bytes"] == (tmp_path / "model.zefuse").stat().st_size
    assert "matrices to int4" in found["changed"][0]
    # For one sequence, and for any number of them.
    assert [each["kind"] for each in found["graphs"]] == ["decode", "prefill"] * 2
    assert main([*words, "--dtype", "bfloat16", "--no-batches"]) == 0
    out = capfd.readouterr().out
    assert "matrices to int4" in out and "decode, batch 1: " in out and "wrote " in out
