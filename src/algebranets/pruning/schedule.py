"""The pruning schedule: the share of tuples that is zero after each training step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from algebranets import checks

#: Schedules by name: functions from the elapsed share of the time between begin and end to the share of the target.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "cubic": lambda done: 1 - (1 - min(1.0, max(0.0, done))) ** 3,
    "one-shot": lambda done: float(done >= 0),
    "constant": lambda _: 1.0,
}


@dataclass(frozen=True)
class Schedule:
    """The share of tuples that is zero after each training step, and the steps at which to prune.

    Args:
        target: The share of tuples that is zero in the end.
        steps: The length of training in steps. With 0, the target is reached at once, regardless of ``name``.
        begin: The share of training after which pruning begins.
        end: The share of training after which the target is reached.
        every: The number of steps between two updates.
        name: "cubic" (the share grows from ``begin`` to ``end``; Zhu and Gupta, 2017), "one-shot" (the target is
            reached at ``begin``) or "constant" (the target is reached before the first step).

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
        if not 0 < self.target < 1:
            raise ValueError(
                f"target, the share of tuples to prune, must be larger than 0 and less than 1; got {self.target}."
            )
        checks.one_of("schedule", self.name, SCHEDULES)
        if not 0 <= self.begin < self.end <= 1:
            raise ValueError(
                f"begin and end must be shares of training with begin < end; got {self.begin} and {self.end}."
            )
        if self.steps < 0:
            raise ValueError(f"steps must be the length of training, or 0 to prune at once; got {self.steps}.")
        if self.every < 1 or (self.name == "cubic" and self.steps // self.every * self.every < self.end * self.steps):
            raise ValueError(
                f"every must be at least 1 and have a multiple among the last steps, from {self.end:g} of {self.steps} "
                f"on, or the target is not reached; got {self.every}."
            )

    def share(self, step: int) -> float:
        """The share of tuples that is zero after ``step`` steps."""
        if not self.steps:
            return self.target
        return self.target * SCHEDULES[self.name]((step / self.steps - self.begin) / (self.end - self.begin))

    def due(self, step: int) -> bool:
        """Whether to prune after ``step`` steps. Step 0 is before training."""
        first, last = self.begin * self.steps, self.end * self.steps
        if step == 0 and (self.name == "constant" or not self.steps):
            return True
        if self.name == "one-shot" and step - 1 < first <= step:
            return True
        return step % self.every == 0 and first < step < (last + self.every if self.steps else math.inf)
