"""The order of examples: which examples are in each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Int
from torch import Tensor

from algebranets import checks
from algebranets.lab.data.batches import generator


@dataclass(frozen=True)
class Order:
    """The numbers of the examples in each batch.

    With a seed, each pass has a new random order, and examples that do not fill a batch are left out. Without a seed,
    examples are in order, and the last batch is padded with -1.

    Args:
        num_examples: The number of examples.
        batch_size: The number of examples in a batch.
        seed: Decides the order; None for no shuffling.

    >>> [rows.tolist() for _, _, rows in Order(5, batch_size=2).steps(0, 3)]
    [[0, 1], [2, 3], [4, -1]]
    >>> len(Order(5, batch_size=2, seed=0))
    2
    """

    num_examples: int
    batch_size: int
    seed: int | None = None

    def __post_init__(self) -> None:
        checks.whole("batch_size", self.batch_size, least=1)
        if self.num_examples < (1 if self.seed is None else self.batch_size):
            raise ValueError(
                f"{self.num_examples} examples do not fill one batch of {self.batch_size}: "
                f"batch_size must be at most {self.num_examples}."
            )

    def __len__(self) -> int:
        whole, rest = divmod(self.num_examples, self.batch_size)
        return whole + (self.seed is None and rest > 0)

    def examples(self, epoch: int) -> Int[Tensor, "batches batch"]:
        """The examples of all batches in the pass ``epoch``."""
        if self.seed is None:
            order = torch.full((len(self) * self.batch_size,), -1)
            order[: self.num_examples] = torch.arange(self.num_examples)
        else:
            order = torch.randperm(self.num_examples, generator=generator(self.seed, epoch))
        return order[: len(self) * self.batch_size].view(len(self), self.batch_size)

    def steps(
        self, start: int, stop: int, device: torch.device | str = "cpu"
    ) -> Iterator[tuple[int, int, Int[Tensor, " batch"]]]:
        """Yield ``(pass, place in it, examples)`` of batches ``start`` to ``stop - 1``; examples are on ``device``."""
        for epoch, steps in groupby(range(start, stop), lambda step: step // len(self)):
            examples = self.examples(epoch).to(device)
            for step in steps:
                yield epoch, step % len(self), examples[step % len(self)]
