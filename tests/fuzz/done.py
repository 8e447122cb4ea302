"""The file of a run that says what is done, a line each, so that it goes on where it was stopped."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any


class Done:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()

    def read(self) -> list[dict[str, Any]]:
        """Without a line that a run was stopped in the middle of."""
        if not self.path.exists():
            return []
        text = self.path.read_text()
        if not text.endswith("\n"):
            text = text[: text.rfind("\n") + 1]
            self.path.write_text(text)
        return [json.loads(line) for line in text.splitlines()]

    def add(self, answer: dict[str, Any]) -> None:
        with self._lock, self.path.open("a") as file:
            file.write(json.dumps(answer) + "\n")
