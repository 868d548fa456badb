"""Batches by number as Lightning takes them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from algebranets.lab.data import Batches


class Resumable:
    """Batches to train on: from where training stands to its end."""

    def __init__(self, batches: Batches, stop: int) -> None:
        self.batches, self.position, self.stop = batches, 0, stop

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self.batches.iterate(self.position, self.stop):
            self.position += 1
            yield batch

    def __len__(self) -> int:
        return self.stop

    def state_dict(self) -> dict[str, int]:
        """Where it stands; Lightning saves it."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Whole:
    """All batches of one pass, or the first ``most`` of them, each time anew."""

    def __init__(self, batches: Batches, most: int | None = None) -> None:
        self.batches, self.most = batches, most

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return self.batches.iterate(0, len(self))

    def __len__(self) -> int:
        return min(len(self.batches), self.most or len(self.batches))
