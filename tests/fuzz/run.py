"""A run over many graphs: hands them to workers, keeps what is done, shrinks and files what is wrong."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ended
from columns import BY_NAME, COLUMNS, column_of
from done import Done
from pool import TimeIsUp, Worker
from program import Program
from reproducer import reproducer
from shrink import smaller


class Run:
    def __init__(self, arguments: argparse.Namespace, names: Sequence[str]) -> None:
        self.arguments = arguments
        self.seconds = 0.0
        self.answers: dict[int, dict[str, Any]] = {}
        chosen = "" if len(names) == len(COLUMNS) else "-" + "-".join(names)
        self._folder: Path = arguments.out / f"{arguments.seed}{chosen}"
        self._done = Done(self._folder / "done.jsonl")
        numbers = range(arguments.first, arguments.first + arguments.graphs)
        self.answers = {answer["number"]: answer for answer in self._done.read() if answer["number"] in numbers}
        # By what the driver poses as: a process has one driver.
        self._left: dict[str, deque[int]] = {}
        for number in numbers:
            if number not in self.answers:
                self._left.setdefault(column_of(number, list(names)).poses_as, deque()).append(number)
        self._names = list(names)
        self._begun: set[str] = set()
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._before = len(self.answers)
        seconds = getattr(arguments, "seconds", 0)
        self._until = self._began + seconds if seconds else float("inf")

    @property
    def findings(self) -> list[dict[str, Any]]:
        return [answer for answer in self.answers.values() if answer["status"] in ("wrong", "broken")]

    def go(self) -> None:
        if self.answers:
            print(f"{len(self.answers)} graphs were run before ({self._done.path})")
        threads = [threading.Thread(target=self.work) for _ in range(max(1, self.arguments.jobs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seconds = time.monotonic() - self._began

    def work(self) -> None:
        """What one thread does, with a worker of its own, until nothing is left or the time is up."""
        worker: Worker | None = None
        try:
            while (taken := self._take(worker)) is not None:
                poses_as, number = taken
                if worker is None or worker.poses_as != poses_as:
                    if worker is not None:
                        worker.close()
                    worker = Worker(poses_as, self.arguments.deadline, until=self._until)
                self._run(worker, number)
        except TimeIsUp:
            pass
        finally:
            if worker is not None:
                worker.close()

    def _take(self, worker: Worker | None) -> tuple[str, int] | None:
        """A graph that the worker's process can run, while there is one."""
        with self._lock:
            left = {poses_as: numbers for poses_as, numbers in self._left.items() if numbers}
            if not left or time.monotonic() > self._until:
                return None
            if worker is not None and worker.poses_as in left:
                poses_as = worker.poses_as
            else:  # what no thread runs yet, so that a run that is cut short has had some of it
                poses_as = max(
                    {name for name in left if name not in self._begun} or left, key=lambda name: len(left[name])
                )
                self._begun.add(poses_as)
            return poses_as, left[poses_as].popleft()

    def _run(self, worker: Worker, number: int) -> None:
        column, seed = column_of(number, self._names), f"{self.arguments.seed}:{number}"
        answer = worker.ask({"seed": seed, "column": column.name})
        answer |= {"number": number, "column": column.name}
        if answer["status"] == "wrong":
            self._file(worker, seed, answer)
        self._note(answer)

    def _file(self, worker: Worker, seed: str, answer: dict[str, Any]) -> None:
        """Shrinks a finding and writes its program, unless it turns out to be none."""
        with contextlib.suppress(TimeIsUp):
            if "program" not in answer:  # it took its process along
                made = worker.ask({"seed": seed, "column": answer["column"], "only_program": True})
                if "program" not in made:  # eager ends the process while the program is made
                    answer["status"] = "torch"
                else:
                    answer["program"] = made["program"]
        if "program" not in answer:
            return
        program = Program.from_json(answer.pop("program"))
        with contextlib.suppress(TimeIsUp):
            answer |= ended.judged(worker, program, answer)
        if answer["status"] != "wrong":
            return
        if self.arguments.shrink:
            with contextlib.suppress(TimeIsUp):
                again, program = smaller(worker, program, self.arguments.shrink)
                if (again["status"], again.get("kind")) == (answer["status"], answer["kind"]):
                    answer["text"] = again["text"]
        kind, last = answer["kind"], answer["text"]
        answer["file"] = str(self._folder / f"{answer['number']}-{kind.replace(' ', '-')}.py")
        head = f"graph {answer['number']} of seed {self.arguments.seed}, column {BY_NAME[answer['column']].name}: {kind}\n{last}"
        Path(answer["file"]).write_text(reproducer(program, head))
        Path(answer["file"]).with_suffix(".json").write_text(json.dumps(program.to_json()))

    def _note(self, answer: dict[str, Any]) -> None:
        with self._lock:
            self.answers[answer["number"]] = answer
            self._done.add(answer)
            if answer["status"] in ("wrong", "broken"):
                where = answer.get("file", "")
                print(
                    f"\ngraph {answer['number']} ({answer['column']}): {answer['kind']}: {answer['text'][:400]}\n  {where}",
                    flush=True,
                )
            if len(self.answers) % 50 == 0 or sys.stdout.isatty():
                rate = (len(self.answers) - self._before) / (time.monotonic() - self._began)
                end = "\r" if sys.stdout.isatty() else "\n"
                left, wrong = sum(map(len, self._left.values())), len(self.findings)
                print(
                    f"{len(self.answers)} graphs, {left} left, {wrong} findings, {rate:.1f} a second",
                    end=end,
                    flush=True,
                )
