"""The number of steps of a run, and where each step lies in the run's schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Length:
    """The number of steps of a run. A run with a time budget may change it once while it trains.

    After the change, the rest of the schedule is spread over the steps that are left. So the learning rate has no jump,
    and its decay ends with the run.

    Args:
        steps: The number of training steps.
        replanned_at: The step after which the number was changed; 0 if it never was.
        replanned_from: The number of steps before the change; 0 if there was no change.

    >>> length = Length(60, replanned_at=20, replanned_from=100)
    >>> [length.scheduled(step) for step in (0, 20, 40, 60)]
    [0, 20, 60.0, 100.0]
    """

    steps: int
    replanned_at: int = 0
    replanned_from: int = 0

    @property
    def scheduled_steps(self) -> int:
        """The number of steps that schedules are made for: the number before a change."""
        return self.replanned_from or self.steps

    def scheduled(self, step: int) -> float:
        """The place of a step in a schedule of `scheduled_steps` steps."""
        if not self.replanned_at or step <= self.replanned_at:
            return step
        left_before, left = self.replanned_from - self.replanned_at, self.steps - self.replanned_at
        return self.replanned_at + (step - self.replanned_at) * left_before / left

    def evaluate_every(self, step: int, evaluations: int) -> int:
        """The number of steps between two evaluations, around ``step``, for ``evaluations`` in the whole run."""
        return math.ceil((self.replanned_from if step < self.replanned_at else self.steps) / evaluations)
