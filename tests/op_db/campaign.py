"""A run over the database: hands samples to workers, keeps what became of each row (operator, dtype, mode)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from done import Done
from pool import TimeIsUp, Worker

CHILD = Path(__file__).with_name("child.py")
KEPT = 3  # findings of one kind that a row keeps
Row = tuple[str, str, str]


class Campaign:
    def __init__(
        self, rows: Sequence[Row], done: Path, *, samples: int, jobs: int, deadline_s: float, seconds: float = 0
    ) -> None:
        """``samples``: of each row at most, spread over all; 0: all. ``done``: a line per finished row; rows in it are not run.
        ``seconds``: no row is begun or finished after that many; 0: no limit."""
        self._done = Done(done)
        self._samples = samples
        self._jobs = jobs
        self._deadline_s = deadline_s
        found = {tuple(result["row"]): result for result in self._done.read()}
        self.results: dict[Row, dict[str, Any]] = {row: found[row] for row in rows if row in found}
        self._left = [row for row in rows if row not in self.results]
        self._lock = threading.Lock()
        self._until = time.monotonic() + seconds if seconds else float("inf")

    def go(self) -> None:
        if self.results:
            print(f"{len(self.results)} rows were run before ({self._done.path})", flush=True)
        threads = [threading.Thread(target=self.work) for _ in range(max(1, self._jobs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work(self) -> None:
        """What one thread does, with a worker of its own, until nothing is left or the time is up."""
        worker = Worker("gpu", self._deadline_s, script=CHILD, until=self._until)
        try:
            while (row := self._take()) is not None:
                self._note(row, self._of(worker, row))
        except TimeIsUp:
            pass
        finally:
            worker.close()

    def _take(self) -> Row | None:
        with self._lock:
            return self._left.pop(0) if self._left and time.monotonic() < self._until else None

    def _note(self, row: Row, result: dict[str, Any]) -> None:
        with self._lock:
            self.results[row] = result
            self._done.add(result)
            for finding in result["findings"]:
                if finding["status"] == "wrong":
                    print(f"{' '.join(row)} {finding['number']}: {finding['kind']}: {finding['text']}", flush=True)
            if len(self.results) % 20 == 0:
                print(f"{len(self.results)} rows, {len(self._left)} left", flush=True)

    def _of(self, worker: Worker, row: Row) -> dict[str, Any]:
        asked = dict(zip(("operator", "dtype", "mode"), row, strict=True))
        begin = time.monotonic()
        counts: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        result: dict[str, Any] = {"row": row, "findings": []}
        reasons: dict[str, dict[str, None]] = {"fallbacks": {}, "whole": {}}
        size = worker.ask(asked)
        if "samples" not in size:
            result["findings"].append({"number": -1, "status": "wrong", "kind": "samples", "text": size["text"]})
        for number in _spread(size.get("samples", 0), self._samples):
            answer = worker.ask(asked | {"number": number})
            status = "wrong" if answer["status"] == "broken" else answer["status"]
            counts[status] += 1
            for what, found in reasons.items():
                found.update(dict.fromkeys(answer.get(what, ())))
            if "kind" in answer:
                kinds[answer["kind"]] += 1
                if kinds[answer["kind"]] <= KEPT:
                    finding = {key: answer[key] for key in ("kind", "text")}
                    result["findings"].append({"number": number, "status": status} | finding)
        result |= {"counts": counts, "kinds": kinds, "seconds": round(time.monotonic() - begin, 1)}
        return result | {what: [reason[:300] for reason in found] for what, found in reasons.items()}


def _spread(total: int, most: int) -> list[int]:
    if not most or total <= most:
        return list(range(total))
    return [index * (total - 1) // max(1, most - 1) for index in range(most)]
