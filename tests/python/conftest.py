"""Shared by the Python tests: expected failures, the order of a parallel run, a clean Dynamo per test, fixed seeds."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._dynamo.guards
import torch._dynamo.utils
import torch._export.utils
from torch._decomp import decompositions_for_rng

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))  # workloads
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # zoo
sys.path.append(str(Path(__file__).resolve().parents[1] / "fuzz"))

# A second device, "gpu:0": the CPU driver posing as a discrete GPU. Before anything loads the driver.
os.environ.setdefault("ZEFUSE_CPU_DRIVER_AS", "gpu")

import kept_memory  # noqa: F401
from expected_failures import EXPECTED_FAILURES

# Dynamo times the guards of each frame that it compiles, for a log, after it has emptied all caches: a quarter of what
# most tests here take.
torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0
# For each compilation, Dynamo writes all of Inductor's settings as JSON for a record that nobody reads here, and AOTAutograd makes
# twelve fake tensors of no elements, states of random numbers that no graph here has as operands. Without: 7 % of a small test.
torch._dynamo.utils._scrubbed_inductor_config_for_logging = lambda: None
_NO_STATE = torch.tensor(())
decompositions_for_rng.PhiloxState.reset = lambda state: state.__dict__.update(  # type: ignore[method-assign]
    seed=_NO_STATE, base_offset=_NO_STATE, relative_offset=0, offset_advanced_at_least_once=False
)
# torch.export looks up every composite operator that C++ registers for each namespace of operators, three times per program.
_materialize, _materialized = torch._export.utils._materialize_cpp_cia_ops, set[int]()


def _materialize_new_ones() -> None:
    count = len(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
    if count not in _materialized:
        _materialize()
        _materialized.add(count)


torch._export.utils._materialize_cpp_cia_ops = _materialize_new_ones

# Full collections of garbage are up to a tenth of what a test that compiles takes: one after some twenty of them, and between files
# (collected_file), where nothing but modules and caches is left, which no collection looks at again.
_THRESHOLDS = 2000, 10, 50


# Tests that take many seconds, which a worker had better not begin when the others are done.
LONG = {
    "test_chat_in_cpp::test_smollm2_answers",
    "test_check::test_a_network_in_training_is_right_in_every_usual_mode",
    "test_documentation::test_the_site_is_built",
    "test_documentation::test_users_pages_run",
    "test_examples::test_an_answer",
    "test_examples::test_minilm_in_cpp",
    "test_examples::test_models_in_a_cmake_project",
    "test_examples::test_semantic_search",
    "test_examples::test_semantic_search_without_what_it_compares_with_and_draws_with",
    "test_examples::test_the_notebook",
    "test_fuzz::test_random_graphs",
    "test_language_package::test_a_killed_compile_leaves_nothing_half_written",
    "test_language_quality::test_greedy_tokens_over_256",
    "test_language_quality::test_perplexity_of_quantized_weights",
}


def longest_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """--dist worksteal gives each worker a piece of the list, from its beginning; its end is what others take over."""
    long = [item for item in items if f"{item.path.stem}::{item.name.partition('[')[0]}" in LONG]
    first = set(long)
    rest, ordered = [item for item in items if item not in first], []
    for worker in range(workers):
        share = len(items) // workers - len(long[worker::workers]) if worker < workers - 1 else len(rest)
        ordered += long[worker::workers] + rest[: max(share, 0)]
        rest = rest[max(share, 0) :]
    return ordered


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what expected_failures.py lists; strict, so that a test that begins to pass fails until its line goes."""
    if workers := getattr(config, "workerinput", {}).get("workercount"):
        items[:] = longest_first(items, workers)
    unknown = set(EXPECTED_FAILURES)
    for item in items:
        name = f"{item.path.stem}::{item.name}"
        if name in EXPECTED_FAILURES:
            item.add_marker(pytest.mark.xfail(reason=EXPECTED_FAILURES[name], strict=True))
            unknown.discard(name)
    whole_files = not any("::" in argument for argument in config.args) and not config.getoption("keyword")
    stale = [name for name in unknown if name.split("::")[0] in {item.path.stem for item in items}]
    if stale and whole_files:
        raise pytest.UsageError(f"expected_failures.py lists tests that do not exist: {', '.join(sorted(stale))}")


@pytest.fixture(autouse=True, scope="module")
def collected_file() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
