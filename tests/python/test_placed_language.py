"""Language models of CUDA tensors, on the posing GPU (posing_cuda.py): compiled there, with the cache there, and written in place.

tests/gpu_cuda/language_models.py has the same and more on a machine with CUDA.
"""

from __future__ import annotations

from pathlib import Path

import children
import posing_programs
from posing_programs import needs_posing_cuda

pytestmark = needs_posing_cuda

BEGIN = """
import torch, transformers, zefuse.llm
from zefuse import backend
from test_llm import _model, _prompt
from test_encoder_decoders import _input, _model as _pair

def expected(model, prompt, **arguments):
    return model.generate(prompt, do_sample=False, **arguments)

def made(model, prompt, **arguments):
    graphs = []
    with backend.observe(lambda _, graph: graphs.append(graph)):
        tokens = model.generate(prompt.to("cuda"), do_sample=False, **arguments)
    for graph in graphs:
        counters = graph.counters()
        for name in "copies copies_to_device copies_to_host host_steps aten_calls parameters_uploaded".split():
            assert counters[name] == 0, (name, counters[name])
    assert tokens.device.type == "cuda"
    report = zefuse.llm.report(model)
    assert not report.left, report
    assert sum(graph.calls for graph in report.graphs) > 0
    return tokens.cpu(), sum(graph.counters()["replays"] for graph in graphs)
"""


def run(program: str, **environment: str) -> str:
    """The program's output; it has to end well."""
    return posing_programs.run(BEGIN + program, children.LANGUAGE, **environment)


def test_tokens_are_those_of_the_cpu(tmp_path: Path) -> None:
    """More of them than the cache shows at first. A second model finds its graphs in the cache."""
    program = """
prompt = _prompt(9)
want = expected(_model(), prompt, max_new_tokens=70)
model = zefuse.llm.optimize(_model().to("cuda"))
tokens, replays = made(model, prompt, max_new_tokens=70)
assert torch.equal(tokens, want), (tokens, want)
assert replays > 20, replays
print(*(graph.cache for graph in zefuse.llm.report(model).graphs), sep=chr(10))
"""
    where = {"ZEFUSE_CACHE_DIR": str(tmp_path)}
    assert "not in the cache: the first of its kind" in run(program, **where)
    assert run(program, **where).count("from the cache") == 2


def test_quantized_weights_and_cache() -> None:
    run("""
prompt, options = _prompt(6), {"weights": "int4", "activations": "int8", "cache": "int8"}
want = expected(zefuse.llm.optimize(_model(), **options), prompt, max_new_tokens=8)
tokens, _ = made(zefuse.llm.optimize(_model().to("cuda"), **options), prompt, max_new_tokens=8)
assert torch.equal(tokens, want), (tokens, want)
""")


def test_weights_of_eight_bits_lie_in_words() -> None:
    run("""
prompt = _prompt(6)
want = expected(zefuse.llm.optimize(_model(), weights="int8"), prompt, max_new_tokens=8)
model = zefuse.llm.optimize(_model().to("cuda"), weights="int8")
tokens, _ = made(model, prompt, max_new_tokens=8)
assert torch.equal(tokens, want), (tokens, want)
codes = {module.codes.dtype for module in model.modules() if hasattr(module, "codes")}
assert codes == {torch.int32}, codes
""")


def test_an_encoder_decoder() -> None:
    """The cross-attention's keys are written to their place, once."""
    run("""
prompt = _input("T5", 11)
want = expected(_pair(), prompt, max_new_tokens=8)
tokens, _ = made(zefuse.llm.optimize(_pair().to("cuda")), prompt, max_new_tokens=8)
assert torch.equal(tokens, want), (tokens, want)
""")
