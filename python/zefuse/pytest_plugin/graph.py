"""What the fixture ``zefuse_graph`` is: one check of a model against limits, eager and a snapshot."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from zefuse.checking import comparing, running
from zefuse.checking.modes import Mode
from zefuse.checking.subject import State, Subject
from zefuse.explaining.explanation import Explanation, fresh, watch
from zefuse.options import Options
from zefuse.pytest_plugin.changes import changes
from zefuse.pytest_plugin.snapshot import Snapshot
from zefuse.pytest_plugin.stale import FOLDER
from zefuse.wording import counted


class GraphFixture:
    """Of one test. ``record`` keeps a number or text with the test's report."""

    def __init__(self, test: str, file: Path, update: bool, record: Callable[[str, Any], None]) -> None:
        self._test, self._file, self._update, self._record = test, file, update, record
        self._checks = 0

    def check(
        self,
        model: Callable[..., Any],
        inputs: Any = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        max_kernels: int | None = None,
        max_calls: int | None = None,
        max_fallbacks: int | None = 0,
        max_graph_breaks: int | None = 0,
        max_recompiles: int | None = 1,
        more_inputs: Sequence[Any] = (),
        rtol: float | None = None,
        snapshot: bool = True,
        options: Mapping[str, Any] | Options | None = None,
    ) -> Explanation:
        """Fails, saying what changed, unless the model compiles within these limits and to its snapshot, and computes what
        eager does: outputs, and with gradients on also gradients and buffers. ``None``: no limit.

        ``inputs`` as for ``zefuse.check``. The model is called twice with them, then with each of ``more_inputs``: what is
        compiled again after the first call counts as recompiled. ``rtol`` as for ``zefuse.testing.assert_compiled``.
        ``snapshot=False``: there is none. Runs copies of the model, under the caller's grad mode and autocast.
        """
        __tracebackhide__ = True
        self._checks += 1
        subject = Subject.of(model, inputs, kwargs)
        more = [Subject.of(model, each, kwargs if not isinstance(each, Mapping) else None) for each in more_inputs]
        explanation, recompiles, differences = self._run(subject, more, Options.make(options), rtol)
        wrong = [
            f"numbers differ from eager: {difference}" for difference in list(dict.fromkeys(map(str, differences)))[:3]
        ]
        found = {
            "kernels": (len(explanation.kernels), max_kernels),
            "calls": (len(explanation.calls), max_calls),
            "fallbacks": (len(explanation.fallbacks), max_fallbacks),
            "graph_breaks": (sum(explanation.graph_breaks.values()), max_graph_breaks),
            "recompiles": (len(recompiles), max_recompiles),
        }
        for name, (number, most) in found.items():
            self._record(name, number)
            if most is not None and number > most:
                wrong.append(_too_many(name, number, most, explanation, recompiles))
        if explanation.nothing_compiled and max_kernels != 0:
            wrong.append(f"nothing was compiled: {explanation.nothing_compiled}")
        made = Snapshot.of(self._graphs, sum(explanation.graph_breaks.values()))
        self._record("bytes", sum(step.size for graph in made.graphs for step in graph.steps))
        if snapshot:
            wrong += self._against(made)
        if wrong:
            raise AssertionError("\n".join(wrong) + f"\n\n{explanation}")
        return explanation

    def _run(
        self, subject: Subject, more: Sequence[Subject], options: Options, rtol: float | None
    ) -> tuple[Explanation, list[str], list[comparing.Difference]]:
        """The explanation of the first call, why it was compiled again in others, and where results differ from eager's."""
        mode = Mode(
            "inference_mode" if torch.is_inference_mode_enabled() else "grad" if torch.is_grad_enabled() else "no_grad"
        )
        computed_in = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        prepared = subject.copy()
        state = State(prepared.model)
        compiled = torch.compile(fresh(prepared.model), backend="zefuse", options=options.to_dict())
        explanation, later = Explanation(), Explanation()
        explanation.device = options.device
        with watch(explanation, options) as graphs:
            results = [(subject, running.run(compiled, prepared, mode, state))]
        self._graphs = [(graph.kind, graph.compiled) for graph in graphs]
        with watch(later) as again:
            for each in (subject, *more):
                inputs = each.copy()
                called = Subject(prepared.model, inputs.args, inputs.kwargs)
                results.append((each, running.run(compiled, called, mode, state)))
        number = sum(graph.kind != "backward" for graph in again)
        reasons = [entry["reason"] for entry in later.recompiles]
        recompiles = [*reasons[:number], *["Dynamo does not say why"] * (number - len(reasons))]
        differences = []
        for each, outcome in results:
            eager = each.copy()
            expected = running.run(eager.model, eager, mode, State(eager.model))
            differences += comparing.compare(
                outcome, expected, None, computed_in=computed_in, tolerance=rtol
            ).differences
        return explanation, recompiles, differences

    def _against(self, made: Snapshot) -> list[str]:
        path = self._path()
        text = made.text()
        shown = os.path.relpath(path)
        self._record("snapshot", shown)
        if self._update:
            if not path.exists() or path.read_text() != text:
                _write(path, text)
                self._record("snapshot_written", shown)
            return []
        if not path.exists():
            return [f"there is no snapshot yet: pytest --zefuse-update writes {shown}; look at it and commit it"]
        said = changes(Snapshot.read(path.read_text(), shown), made)
        if not said:
            return []
        self._record("change", "\n".join(said))
        return [*said, f"If this is meant: pytest --zefuse-update writes {shown} anew"]

    def _path(self) -> Path:
        name = re.sub(r"[^\w.-]+", "_", self._test).strip("_")
        if len(name) > 100:  # a test's parameters can be of any length
            name = f"{name[:80]}_{hashlib.sha256(self._test.encode()).hexdigest()[:12]}"
        number = f".{self._checks}" if self._checks > 1 else ""
        return self._file.parent / FOLDER / self._file.stem / f"{name}{number}.txt"


def _too_many(name: str, number: int, most: int, explanation: Explanation, recompiles: Sequence[str]) -> str:
    noun = name.replace("_", " ").removesuffix("s")
    text = f"{counted(number, noun)}, at most {most} allowed"
    if name == "fallbacks":
        reasons = dict.fromkeys(f"{entry['op']}: {entry['reason']}" for entry in explanation.fallbacks)
        text += "".join(f"\n  {reason}" for reason in reasons)
    elif name == "recompiles":
        text += "".join(f"\n  {reason}" for reason in recompiles)
    elif name == "graph_breaks":
        text += "".join(f"\n  {reason.splitlines()[0]}" for reason in explanation.graph_breaks)
        text += "".join(f"\n  at {entry['source']}: {entry['line']}" for entry in explanation.breaks)
    return text


def _write(path: Path, text: str) -> None:
    """Whole or not at all: workers of xdist may write beside each other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(name, 0o644)
    os.replace(name, path)
