"""A run over the database: hands samples to workers, keeps what became of each row (operator, dtype, mode)."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import tempfile
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from done import Done
from parts import PART, Part, Row, joined, missing
from pool import TimeIsUp, Worker

CHILD = Path(__file__).with_name("child.py")
KEPT = 3  # findings of one kind that a part keeps
MOST_CALLS = (
    4000  # of one process: torch keeps 10 KB of each, and another process takes as long to start as a hundred calls
)


class Campaign:
    def __init__(
        self,
        rows: Sequence[Row],
        done: Path | Callable[[int], Path],
        *,
        samples: int | Mapping[str, int],
        jobs: int,
        deadline_s: float,
        seconds: float = 0,
    ) -> None:
        """``samples``: of each row at most, spread over all; 0: all; a number, or one for each mode. ``done``: a line per finished row or
        part of one, which are not run again; a file, or one for each number of samples. ``seconds``: no sample is begun after that many;
        0: no limit."""
        self._samples = samples
        self._jobs = jobs
        self._deadline_s = deadline_s
        path = done if callable(done) else lambda _: done
        files = {path(most): Done(path(most)) for most in sorted({self._most(row) for row in rows})}
        self._done = {row: files[path(self._most(row))] for row in rows}
        self._lock = threading.Condition()
        self._parts: dict[Row, list[dict[str, Any]]] = defaultdict(list)
        for file in files.values():
            for line in file.read():
                row = tuple(line["row"])
                if self._done.get(row) is file and line.get("most") in (None, self._most(row)):
                    self._parts[row].append(line)
        self._rows = list(dict.fromkeys(rows))
        self._left = deque(part for row in spread(self._rows) for part in missing(row, self._parts.get(row, [])))
        self._asking = 0  # threads that find out how many samples a row has, of which others can take parts
        self._noted = 0
        self._until = time.monotonic() + seconds if seconds else float("inf")
        if self._parts:
            finished = sum(not result["left"] for result in self.results.values())
            paths = ", ".join(map(str, files))
            print(f"{finished} rows were run before ({paths})", flush=True)

    @property
    def results(self) -> dict[Row, dict[str, Any]]:
        """What became of the rows, those that are not finished among them (``"left"``: samples)."""
        return {row: joined(self._parts[row]) for row in self._rows if self._parts.get(row)}

    def go(self) -> None:
        threads = [threading.Thread(target=self.work) for _ in range(max(1, self._jobs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work(self) -> None:
        """What one thread does, with a worker of its own, until nothing is left or the time is up."""
        with tempfile.TemporaryDirectory(prefix="op-db-", ignore_cleanup_errors=True) as kernels:
            # Samples of a row often differ in numbers alone: their kernels are compiled once.
            environment = {} if "ZEFUSE_CACHE_DIR" in os.environ else {"ZEFUSE_CACHE_DIR": kernels}
            worker = Worker(
                "gpu", self._deadline_s, MOST_CALLS, script=CHILD, until=self._until, environment=environment
            )
            try:
                while (part := self._take()) is not None:
                    if part.end is None:
                        part = self._first(worker, part.row)
                    if part is not None and (result := self._of(worker, part)):
                        self._note(result)
            except TimeIsUp:
                pass
            finally:
                worker.close()

    def _most(self, row: Row) -> int:
        return self._samples if isinstance(self._samples, int) else self._samples[row[2]]

    def _take(self) -> Part | None:
        with self._lock:
            while not self._left and self._asking and time.monotonic() < self._until:
                self._lock.wait(1)
            if not self._left or time.monotonic() > self._until:
                return None
            part = self._left.popleft()
            self._asking += part.end is None
            return part

    def _first(self, worker: Worker, row: Row) -> Part | None:
        """The first part of a row. The others come next, for whoever is free: a long row does not keep one thread busy when nothing
        else is left."""
        parts: list[Part] = []
        try:
            size = worker.ask(_question(row))
            if "samples" in size:
                count = len(_spread(size["samples"], self._most(row)))
                parts = [
                    Part(row, begin, min(begin + PART, count), count, size["samples"])
                    for begin in range(0, max(count, 1), PART)
                ]
        finally:
            with self._lock:
                self._left.extendleft(reversed(parts[1:]))
                self._asking -= 1
                self._lock.notify_all()
        if parts:
            return parts[0]
        finding = {"number": -1, "status": "wrong", "kind": "samples", "text": size["text"]}
        self._note({"row": row, "findings": [finding], "counts": {}, "kinds": {}, "seconds": 0} | _no_reasons())
        return None

    def _note(self, result: dict[str, Any]) -> None:
        with self._lock:
            row = tuple(result["row"])
            self._parts[row].append(result)
            self._done[row].add(result)
            for finding in result["findings"]:
                if finding["status"] == "wrong":
                    print(f"{' '.join(row)} {finding['number']}: {finding['kind']}: {finding['text']}", flush=True)
            self._noted += 1
            if self._noted % 50 == 0:
                print(f"{len(self._parts)} rows, {len(self._left)} left", flush=True)

    def _of(self, worker: Worker, part: Part) -> dict[str, Any] | None:
        """What became of the part, as far as it was run when the time was up; None: nothing."""
        began = time.monotonic()
        counts: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        result: dict[str, Any] = {"row": part.row, "findings": []}
        reasons: dict[str, dict[str, None]] = {"fallbacks": {}, "whole": {}}
        most = self._most(part.row)
        assert part.end is not None
        end = part.begin
        with contextlib.suppress(TimeIsUp):
            for number in _spread(part.samples, most)[part.begin : part.end]:
                if time.monotonic() > self._until:
                    break
                answer = worker.ask(_question(part.row) | {"number": number})
                end += 1
                status = "wrong" if answer["status"] == "broken" else answer["status"]
                counts[status] += 1
                for what, found in reasons.items():
                    found.update(dict.fromkeys(answer.get(what, ())))
                if "kind" in answer:
                    kinds[answer["kind"]] += 1
                    if kinds[answer["kind"]] <= KEPT:
                        finding = {key: answer[key] for key in ("kind", "text")}
                        result["findings"].append({"number": number, "status": status} | finding)
        if end == part.begin and part.of:
            return None
        result |= {"counts": counts, "kinds": kinds, "seconds": round(time.monotonic() - began, 1)}
        result |= {what: [reason[:300] for reason in found] for what, found in reasons.items()}
        if (part.begin, end) != (0, part.of):
            result |= {"from": part.begin, "to": end, "of": part.of, "samples": part.samples, "most": most}
        return result


def spread(rows: Sequence[Row]) -> list[Row]:
    """In an order in which modes, dtypes and the letters of the alphabet get their share of any beginning."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[1:]].append(row)
    placed = []
    for group in groups.values():
        random.Random(str(group[0])).shuffle(group)
        placed += [((place + 0.5) / len(group), row) for place, row in enumerate(group)]
    return [row for _, row in sorted(placed)]


def samples_of(texts: Sequence[str], modes: Sequence[str], otherwise: int) -> dict[str, int]:
    """``texts``: such as "2", "static=0,dynamic=12" or "4 dynamic=1"; of each mode, how many samples of a row."""
    found = {}
    for text in itertools.chain.from_iterable(text.replace(",", " ").split() for text in texts):
        mode, _, number = text.rpartition("=")
        if mode and mode not in modes:
            raise ValueError(f"there is no mode {mode}; there are {', '.join(modes)}")
        if mode:
            found[mode] = int(number)
        else:
            otherwise = int(number)
    return {mode: found.get(mode, otherwise) for mode in modes}


def _question(row: Row) -> dict[str, Any]:
    return dict(zip(("operator", "dtype", "mode"), row, strict=True))


def _no_reasons() -> dict[str, Any]:
    return {"fallbacks": [], "whole": []}


def _spread(total: int, most: int) -> list[int]:
    if not most or total <= most:
        return list(range(total))
    return [index * (total - 1) // max(1, most - 1) for index in range(most)]
