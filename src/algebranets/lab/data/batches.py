"""Batches by number: what a batch holds is a function of the data, the seed and the batch's number.

So a run that stops and goes on sees what a run that never stopped sees, and so do many processes together.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

#: Images: (images, labels). Text: (tokens, targets, whether the state must be dropped before them).
Batch = tuple[Tensor, ...]

#: A label or target that counts for nothing: torch's ``ignore_index``.
IGNORED = -100


class Batches(ABC):
    """Batches by number: batch ``step`` is a function of the data, the seed and ``step`` alone."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are in one pass over the data."""

    @abstractmethod
    def iterate(self, start: int, stop: int) -> Iterator[Batch]:
        """Batches number ``start`` to ``stop - 1``; batch ``step`` belongs to pass ``step // len(self)``."""


@dataclass(frozen=True)
class Share:
    """Which rows of every batch this process takes, one of ``world``.

    >>> Share(rank=1, world=4).rows(32)
    slice(8, 16, None)
    """

    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank must lie between 0 and world - 1; got rank={self.rank} and world={self.world}.")

    def rows(self, batch_size: int) -> slice:
        """Its rows of a batch of ``batch_size``, the rows of all processes together."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
        if batch_size % self.world:
            raise ValueError(
                f"batch_size counts the rows of all {self.world} processes together and must be a multiple of "
                f"{self.world}; got {batch_size}."
            )
        num_rows = batch_size // self.world
        return slice(self.rank * num_rows, (self.rank + 1) * num_rows)

    def at_most(self, batch_size: int, num_examples: int) -> int:
        """``batch_size``, or less where ``num_examples`` need fewer rows, so that nothing is laid out in vain.

        >>> Share(world=4).at_most(1_000_000_000, num_examples=10)
        12
        """
        self.rows(batch_size)  # which checks it
        return min(batch_size, math.ceil(num_examples / self.world) * self.world)


#: All rows: the share of the only process.
WHOLE = Share()


def generator(*numbers: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Random numbers that are a function of ``numbers``; close ones, such as two steps, give unrelated streams.

    >>> draws = [torch.rand(1, generator=generator(seed, step)).item() for seed in (0, 1) for step in (0, 1)]
    >>> len(set(draws)), draws[3] == torch.rand(1, generator=generator(1, 1)).item()
    (4, True)
    """
    return torch.Generator(device).manual_seed(seed_of(*numbers))


def seed_of(*numbers: int) -> int:
    """What `generator` is seeded with."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:8], "big")
