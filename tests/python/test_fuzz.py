"""A slice of fixed random graphs against eager: what `make fuzz` runs by the ten thousand (tests/fuzz)."""

from __future__ import annotations

import argparse
import dataclasses
import json
import threading
import time
import types
from pathlib import Path
from typing import Any

import check
import ended
import pytest
import run
from columns import BY_NAME, COLUMNS
from pool import TimeIsUp, Worker
from program import Input, Program, Step
from run import Run
from summary import summary

from zefuse import cache


def _names(poses_as: str) -> list[str]:
    return [column.name for column in COLUMNS if column.poses_as == poses_as]


@pytest.mark.parametrize(
    ("poses_as", "first", "graphs"),
    [("gpu", 0, 35), ("gpu", 35, 35), ("integrated-gpu", 0, 10), ("integrated-gpu-usm", 0, 10)],
)
def test_random_graphs(poses_as: str, first: int, graphs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The graphs are always the same: what an unchanged compiler made of them is in the cache.
    monkeypatch.setenv("ZEFUSE_CACHE_DIR", cache.directory())
    arguments = argparse.Namespace(
        seed="slice", first=first, graphs=graphs, jobs=1, deadline=30.0, shrink=20.0, out=tmp_path
    )
    run = Run(arguments, _names(poses_as))
    run.go()
    assert len(run.answers) == graphs
    programs = "\n".join(Path(finding["file"]).read_text() for finding in run.findings if "file" in finding)
    assert not run.findings, summary(run.answers, run.seconds) + "\n" + programs


class _Answers:
    """A worker that says of each graph that it is the same."""

    def __init__(self, poses_as: str, deadline: float, until: float) -> None:
        self.poses_as = poses_as

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert BY_NAME[question["column"]].poses_as == self.poses_as
        return {"status": "same"}

    def close(self) -> None: ...


def test_a_run_that_its_time_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By a clock that goes on by a hundredth with each answer, once each thread has had a graph.
    now, together, begun = [0.0], threading.Barrier(3), set[int]()

    class Answers(_Answers):
        def ask(self, question: dict[str, Any]) -> dict[str, Any]:
            if len(begun) < 3 and threading.get_ident() not in begun:
                begun.add(threading.get_ident())
                together.wait(60)
            now[0] += 0.01
            return super().ask(question)

    monkeypatch.setattr(run, "Worker", Answers)
    monkeypatch.setattr(run, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    arguments = argparse.Namespace(
        seed="cut", first=0, graphs=300, jobs=3, deadline=30.0, shrink=0, seconds=0.3, out=tmp_path
    )
    names = [column.name for column in COLUMNS]
    first = run.Run(arguments, names)
    first.go()
    assert 0 < len(first.answers) < 300
    # Of the few graphs of the other drivers as well.
    assert {BY_NAME[answer["column"]].poses_as for answer in first.answers.values()} == {c.poses_as for c in COLUMNS}
    with (tmp_path / "cut" / "done.jsonl").open("a") as file:
        file.write('{"status": "sa')  # it was killed
    arguments.seconds = 0
    second = run.Run(arguments, names)
    assert second.answers == first.answers
    second.go()
    assert sorted(second.answers) == list(range(300))
    assert sorted(run.Run(arguments, names).answers) == list(range(300))


def test_what_was_done_on_another_machine_is_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from run_all import go_on

    before, out = tmp_path / "before", tmp_path / "out"
    graphs = [{"number": 0, "status": "same"}, {"number": 2, "status": "wrong"}, {"number": 3, "status": "torch"}]
    rows = [{"row": ["abs"], "findings": []}, {"row": ["exp"], "findings": [{"status": "wrong"}]}]
    for name, answers in (("200", graphs), ("rows", rows)):
        (before / name).mkdir(parents=True)
        (before / name / "done.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    (before / "summary.txt").write_text("an earlier run's")
    out.mkdir()
    (out / "fuzz.log").write_text("")  # the shell's, before the run began
    go_on(before, out)
    said = "200: 2 done before, 1 findings run again\nrows: 1 done before, 1 findings run again\n"
    assert capsys.readouterr().out == said
    names = [column.name for column in COLUMNS]
    arguments = argparse.Namespace(seed="200", first=0, graphs=10, jobs=1, deadline=30.0, shrink=0, out=out)
    assert sorted(run.Run(arguments, names).answers) == [0, 3]
    with (out / "200" / "done.jsonl").open("a") as file:
        file.write('{"number": 5}\n')
    go_on(before, out)  # what this one has begun stays
    assert sorted(run.Run(arguments, names).answers) == [0, 3, 5]
    assert not capsys.readouterr().out


def test_a_worker_is_not_waited_for_when_the_time_is_up(tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("import time\ntime.sleep(100)\n")
    began = time.monotonic()
    worker = Worker("gpu", 30, script=script, until=began + 0.2)
    with pytest.raises(TimeIsUp):
        worker.ask({})
    assert time.monotonic() - began < 20


def test_a_program_that_ends_eager_while_it_is_made_is_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ends(_Answers):
        def ask(self, question: dict[str, Any]) -> dict[str, Any]:
            return {"status": "wrong", "kind": "crash", "text": "the process ended: SIGFPE"}

    monkeypatch.setattr(run, "Worker", Ends)
    arguments = argparse.Namespace(seed="ends", first=0, graphs=1, jobs=1, deadline=30.0, shrink=0, out=tmp_path)
    made = run.Run(arguments, [COLUMNS[0].name])
    made.go()
    assert not made.findings
    assert made.answers[0]["status"] == "torch"


# What a program does with every back end, what aot_eager alone and zefuse alone are answered, and the verdict.
_CRASH = {"status": "wrong", "kind": "crash", "text": "the process ended: SIGSEGV\n"}
_HANG = {"status": "wrong", "kind": "hang", "text": "no answer within 30 s\n"}
_VALUE = {"status": "wrong", "kind": "value", "text": "output 0: 1 of 2 elements wrong"}
_SAME = {"status": "same"}


@pytest.mark.parametrize(
    ("answer", "theirs", "ours", "status", "kind"),
    [
        (_CRASH, _CRASH, _CRASH, "torch", "crash"),
        (_CRASH, _CRASH, _SAME, "torch", "crash"),  # it was aot_eager that ended the process
        (_CRASH, _CRASH, _VALUE, "wrong", "value"),  # as well, and what it was asked about stands
        (_CRASH, _SAME, _CRASH, "wrong", "crash"),
        (_HANG, _HANG, _HANG, "torch", "hang"),
        (_HANG, _CRASH, _HANG, "wrong", "hang"),
        (_HANG, _SAME, _HANG, "wrong", "hang"),
    ],
)
def test_whose_a_crash_is(answer: Any, theirs: Any, ours: Any, status: str, kind: str) -> None:
    class Alone(_Answers):
        def ask(self, question: dict[str, Any]) -> dict[str, Any]:
            return {"aot_eager": theirs, "zefuse": ours}[question["alone"]]

    program = Program("infer", [{}], [Input("x0", "torch.ones(2)")], [], ["x0"], {})
    judged = ended.judged(Alone("gpu", 30, 0), program, answer)  # type: ignore[arg-type]
    assert (judged["status"], judged["kind"]) == (status, kind)


def test_one_back_end_alone() -> None:
    program = Program("infer", [{}], [Input("x0", "torch.ones(2)")], [Step("v0", "{0} + 1", ["x0"])], ["v0"], {})
    assert check.alone(program, "zefuse")["status"] == "same"
    steps = [Step("v0", "{0}.view(3)", ["x0"])]
    assert check.alone(dataclasses.replace(program, steps=steps), "zefuse")["status"] == "refused"
