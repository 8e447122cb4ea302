"""What ``zefuse tune`` says of each kernel and operator, and the limits that it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

Choice = dict[str, int]


@dataclass
class Limits:
    """``seconds``: for all of it. ``deadline``: whole seconds for one candidate's calls; on a GPU for each of its launches."""

    seconds: float = 120.0
    deadline: int = 20


@dataclass
class Kernel:
    """One kernel of a graph, whatever number of launches it has, or an operator whose implementation was measured. Times are
    seconds a launch; an operator's are of all steps that it shares with others."""

    key: str
    name: str
    graph: int
    launches: int = 0
    before: float = 0.0
    after: float = 0.0
    tried: int = 0
    choice: Choice = field(default_factory=dict)
    schedule: str = ""  # what it became
    discarded: list[str] = field(default_factory=list)
    left: str = ""  # why nothing was tried
    words: str = ""  # of a choice whose number says nothing

    @property
    def is_operator(self) -> bool:
        return self.key.startswith("operator ")

    def said(self) -> str:
        return self.words or ", ".join(f"{name} {number}" for name, number in self.choice.items())


class Stop(Exception):
    """The time for all of it is over."""
