"""Batches by number: each batch depends only on the data, the seed and its number.

So a resumed run gets the same batches as an uninterrupted run, and several processes together get the same examples as
one process.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from algebranets import checks

#: Images: (images, labels). Text: (tokens, targets, whether the model's state is dropped first).
Batch = tuple[Tensor, ...]

#: A label or target that does not count: torch's ``ignore_index``.
IGNORED = -100


class Batches(ABC):
    """Batches by number: batch ``step`` depends only on the data, the seed and ``step``."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of batches in one pass over the data."""

    @abstractmethod
    def iterate(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield the batches ``start`` to ``stop - 1``; batch ``step`` belongs to pass ``step // len(self)``."""


@dataclass(frozen=True)
class Share:
    """The rows of each batch that one process takes.

    Args:
        rank: The number of the process.
        world: The number of processes.

    >>> Share(rank=1, world=4).rows(32)
    slice(8, 16, None)
    """

    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank must lie between 0 and world - 1; got rank={self.rank} and world={self.world}.")

    def rows(self, batch_size: int) -> slice:
        """The rows of a batch that this process takes; ``batch_size`` counts the rows of all processes."""
        checks.whole("batch_size", batch_size, least=1)
        if batch_size % self.world:
            raise ValueError(
                f"batch_size counts the rows of all {self.world} processes together and must be a multiple of "
                f"{self.world}; got {batch_size}."
            )
        num_rows = batch_size // self.world
        return slice(self.rank * num_rows, (self.rank + 1) * num_rows)

    def at_most(self, batch_size: int, num_examples: int) -> int:
        """The smaller of ``batch_size`` and ``num_examples``, rounded up to a multiple of ``world``.

        >>> Share(world=4).at_most(1_000_000_000, num_examples=10)
        12
        """
        self.rows(batch_size)  # raises an error if batch_size is wrong
        return min(batch_size, math.ceil(num_examples / self.world) * self.world)


#: The share of a single process: all rows.
WHOLE = Share()


def generator(*numbers: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Create a random generator from ``numbers``. Close numbers, such as two steps, give unrelated streams.

    >>> draws = [torch.rand(1, generator=generator(seed, step)).item() for seed in (0, 1) for step in (0, 1)]
    >>> len(set(draws)), draws[3] == torch.rand(1, generator=generator(1, 1)).item()
    (4, True)
    """
    return torch.Generator(device).manual_seed(seed_of(*numbers))


def seed_of(*numbers: int) -> int:
    """The seed of `generator`: a hash of ``numbers``."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:8], "big")
