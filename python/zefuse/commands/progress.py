"""What a command is at, on standard error: one line that is written over on a terminal, nothing but its end elsewhere."""

from __future__ import annotations

import shutil
import sys
import time

_PATIENCE = 1.0  # seconds in which nobody asks


class Progress:
    """Call it with what begins now; nothing is shown before a second has passed. ``done()`` clears the line."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shown = False

    def __call__(self, text: str) -> None:
        if sys.stderr is None or time.monotonic() - self._began < _PATIENCE:
            return
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\x1b[2K{text[:width]}")
            self._shown = True
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def done(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
