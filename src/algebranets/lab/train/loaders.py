"""Loaders that pass batches to Lightning's Trainer."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from algebranets.lab.data import Batches


class TrainingLoader:
    """A loader of training batches. Lightning saves its position, and a resumed run continues from there.

    Args:
        batches: Batches by number.
        stop: The number of batches to train on, over all passes.
    """

    def __init__(self, batches: Batches, stop: int) -> None:
        self.batches, self.position, self.stop = batches, 0, stop

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self.batches.iterate(self.position, self.stop):
            self.position += 1
            yield batch

    def __len__(self) -> int:
        return self.stop

    def state_dict(self) -> dict[str, int]:
        """The position, for Lightning's checkpoint."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class EvaluationLoader:
    """A loader of evaluation batches: one pass, from the start each time.

    Args:
        batches: Batches by number.
        most: If given, only the first ``most`` batches are used.
    """

    def __init__(self, batches: Batches, most: int | None = None) -> None:
        self.batches, self.most = batches, most

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return self.batches.iterate(0, len(self))

    def __len__(self) -> int:
        return min(len(self.batches), self.most or len(self.batches))
