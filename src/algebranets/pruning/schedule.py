"""How much is to be zero after each step of training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

#: The share of the target that is reached when this share of the time between begin and end is over.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "cubic": lambda done: 1 - (1 - min(1.0, max(0.0, done))) ** 3,
    "one-shot": lambda done: float(done >= 0),
    "constant": lambda _: 1.0,
}


@dataclass(frozen=True)
class Schedule:
    """``target`` of the tuples are zero in the end: see `SCHEDULES` for the way there.

    - cubic: more and more from the share ``begin`` of ``steps`` to the share ``end``, every ``every`` steps, as Zhu and
      Gupta (2017) have it;
    - one-shot: all at once at ``begin``; the rest of training mends what it can;
    - constant: from the beginning.

    With no ``steps`` there is no way to go: it is all at once, whatever the name.

    >>> [round(Schedule(0.8, 1000).share(step), 3) for step in (0, 200, 350, 500, 800, 1000)]
    [0.0, 0.0, 0.462, 0.7, 0.8, 0.8]
    """

    target: float
    steps: int = 0
    begin: float = 0.2
    end: float = 0.8
    every: int = 100
    name: str = "cubic"

    def __post_init__(self) -> None:
        if not 0 <= self.target < 1:
            raise ValueError(f"target must lie between 0 and 1, the share of tuples to prune; got {self.target}.")
        if self.name not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}; got {self.name!r}.")
        if not 0 <= self.begin < self.end <= 1:
            raise ValueError(
                f"begin and end must be shares of training with begin < end; got {self.begin} and {self.end}."
            )
        if self.steps < 0:
            raise ValueError(f"steps must be the length of training, or 0 to prune at once; got {self.steps}.")
        if self.every < 1 or (self.name == "cubic" and self.steps // self.every * self.every < self.end * self.steps):
            raise ValueError(
                f"every must be at least 1 and have a multiple among the last steps, from {self.end:g} of {self.steps} "
                f"on, for the target to be reached; got {self.every}."
            )

    def share(self, step: int) -> float:
        """The share that is to be zero when ``step`` steps are done."""
        if not self.steps:
            return self.target
        return self.target * SCHEDULES[self.name]((step / self.steps - self.begin) / (self.end - self.begin))

    def due(self, step: int) -> bool:
        """Whether it is time to prune behind ``step``; 0 is before the first."""
        first, last = self.begin * self.steps, self.end * self.steps
        if step == 0 and (self.name == "constant" or not self.steps):
            return True
        if self.name == "one-shot" and step - 1 < first <= step:
            return True
        return step % self.every == 0 and first < step < (last + self.every if self.steps else math.inf)
