"""A run over many graphs: hands them to workers, keeps what is done, shrinks and files what is wrong."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from columns import BY_NAME, COLUMNS, column_of
from pool import Worker
from program import Program
from reproducer import reproducer
from shrink import shrink


class Run:
    def __init__(self, arguments: argparse.Namespace, names: Sequence[str]) -> None:
        self.arguments = arguments
        self.seconds = 0.0
        self.answers: dict[int, dict[str, Any]] = {}
        chosen = "" if len(names) == len(COLUMNS) else "-" + "-".join(names)
        self._folder: Path = arguments.out / f"{arguments.seed}{chosen}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._done = self._folder / "done.jsonl"
        numbers = range(arguments.first, arguments.first + arguments.graphs)
        if self._done.exists():
            for line in self._done.read_text().splitlines():
                answer = json.loads(line)
                if answer["number"] in numbers:
                    self.answers[answer["number"]] = answer
        # By what the driver poses as: a process has one driver.
        left = [(column_of(number, list(names)), number) for number in numbers if number not in self.answers]
        self._left = sorted(left, key=lambda entry: (entry[0].poses_as, entry[1]))
        self._lock = threading.Lock()
        self._began = time.monotonic()

    @property
    def findings(self) -> list[dict[str, Any]]:
        return [answer for answer in self.answers.values() if answer["status"] in ("wrong", "broken")]

    def go(self) -> None:
        if self.answers:
            print(f"{len(self.answers)} graphs were run before ({self._done})")
        threads = [threading.Thread(target=self._work) for _ in range(max(1, self.arguments.jobs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seconds = time.monotonic() - self._began

    def _work(self) -> None:
        worker: Worker | None = None
        while True:
            with self._lock:
                if not self._left:
                    break
                column, number = self._left.pop(0)
            if worker is None or worker.poses_as != column.poses_as:
                if worker is not None:
                    worker.close()
                worker = Worker(column.poses_as, self.arguments.deadline)
            seed = f"{self.arguments.seed}:{number}"
            answer = worker.ask({"seed": seed, "column": column.name})
            answer |= {"number": number, "column": column.name}
            if answer["status"] == "wrong":
                self._file(worker, seed, answer)
            self._note(answer)
        if worker is not None:
            worker.close()

    def _file(self, worker: Worker, seed: str, answer: dict[str, Any]) -> None:
        """Shrinks a finding and writes its program."""
        if "program" not in answer:  # it took its process along
            made = worker.ask({"seed": seed, "column": answer["column"], "only_program": True})
            if "program" not in made:
                return
            answer["program"] = made["program"]
        program = Program.from_json(answer.pop("program"))
        kind, last = answer["kind"], answer["text"]

        def fails(candidate: Program) -> bool:
            nonlocal last
            result = worker.ask({"program": candidate.to_json()})
            if result["status"] != "wrong" or result["kind"] != kind:
                return False
            last = result["text"]
            return True

        if self.arguments.shrink:
            program = (
                shrink(program.without_unused(), fails, self.arguments.shrink)
                if fails(program.without_unused())
                else program
            )
        answer["text"] = last
        answer["file"] = str(self._folder / f"{answer['number']}-{kind.replace(' ', '-')}.py")
        head = f"graph {answer['number']} of seed {self.arguments.seed}, column {BY_NAME[answer['column']].name}: {kind}\n{last}"
        Path(answer["file"]).write_text(reproducer(program, head))

    def _note(self, answer: dict[str, Any]) -> None:
        with self._lock:
            self.answers[answer["number"]] = answer
            with self._done.open("a") as file:
                file.write(json.dumps(answer) + "\n")
            if answer["status"] in ("wrong", "broken"):
                where = answer.get("file", "")
                print(
                    f"\ngraph {answer['number']} ({answer['column']}): {answer['kind']}: {answer['text'][:400]}\n  {where}",
                    flush=True,
                )
            if len(self.answers) % 50 == 0 or sys.stdout.isatty():
                rate = len(self.answers) / (time.monotonic() - self._began)
                end = "\r" if sys.stdout.isatty() else "\n"
                left, wrong = len(self._left), len(self.findings)
                print(
                    f"{len(self.answers)} graphs, {left} left, {wrong} findings, {rate:.1f} a second",
                    end=end,
                    flush=True,
                )
