"""Text as bytes. Each row of a batch continues in the next batch, so a model can carry its state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import UInt8
from torch import Tensor

from algebranets import checks
from algebranets.lab.data.batches import IGNORED, WHOLE, Batch, Batches, Share, generator

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False, repr=False)
class Text:
    """A text in three parts; a token is a byte.

    Args:
        name: The text's name.
        train: The bytes to train on.
        valid: The bytes to evaluate on.
        test: The bytes to test on.
        vocab_size: The number of different tokens.

    >>> data = Text("alphabet", *(torch.arange(97, 123, dtype=torch.uint8) for _ in SPLITS))
    >>> batches = data.evaluation(batch_size=2, length=8)
    >>> for tokens, targets, fresh in batches.iterate(0, len(batches)):
    ...     print([bytes(row.tolist()).decode() for row in tokens], targets[1].tolist(), fresh.item())
    ['abcdefgh', 'nopqrstu'] [111, 112, 113, 114, 115, 116, 117, 118] True
    ['ijklmnop', 'vwxyzzzz'] [119, 120, 121, 122, -100, -100, -100, -100] False
    """

    name: str
    train: UInt8[Tensor, " train"]
    valid: UInt8[Tensor, " valid"]
    test: UInt8[Tensor, " test"]
    vocab_size: int = 256

    def __post_init__(self) -> None:
        for split in SPLITS:
            text = getattr(self, split)
            if text.dtype != torch.uint8 or text.dim() != 1:
                raise ValueError(f"{split} must be one row of uint8; got {text.dtype} {tuple(text.shape)}.")

    def __repr__(self) -> str:
        counts = " + ".join(f"{len(getattr(self, split)):,}" for split in SPLITS)
        return f"<{self.name}: {counts} characters>"

    def part(self, split: str) -> UInt8[Tensor, " part"]:
        """The part named ``split``, one of `SPLITS`."""
        return getattr(self, checks.one_of("split", split, SPLITS))

    def training(
        self,
        batch_size: int,
        length: int,
        *,
        fresh_every: int = 0,
        seed: int = 0,
        device: torch.device | str = "cpu",
        share: Share = WHOLE,
    ) -> Batches:
        """Batches of rows; each row continues in the next batch until the pass ends.

        Each pass starts at a random character, so that rows are cut at different places.

        Args:
            batch_size: Rows in a batch, over all processes.
            length: Characters in a row.
            fresh_every: If not 0, the model's state is dropped every ``fresh_every`` batches, so that the model learns
                to start without context. The state is always dropped when a pass starts.
            seed: Decides where each pass starts.
            device: The device of the text.
            share: The rows that this process takes.
        """
        _check_sizes(batch_size, length)
        if fresh_every < 0:
            raise ValueError(f"fresh_every must be a number of batches, or 0 for never; got {fresh_every}.")
        if len(self.train) < (least := length * (batch_size + 1)):
            raise ValueError(
                f"{self.name}'s training text must hold at least {least:,} characters, (batch_size + 1) * length, for "
                f"one batch; it has {len(self.train):,}. Use a smaller batch_size={batch_size} or length={length}."
            )
        return TrainingText(self.train.to(device), length, batch_size, share.rows(batch_size), fresh_every, seed)

    def evaluation(
        self,
        batch_size: int,
        length: int,
        *,
        split: str = "valid",
        device: torch.device | str = "cpu",
        share: Share = WHOLE,
    ) -> Batches:
        """Batches in which each character of a part, except for the first, is a target exactly once.

        Targets that pad the rows are `IGNORED`.

        Args:
            batch_size: Rows in a batch, over all processes.
            length: Characters in a row.
            split: The part, one of `SPLITS`.
            device: The device of the text.
            share: The rows that this process takes.
        """
        _check_sizes(batch_size, length)
        text = self.part(split)
        if len(text) < 2:
            raise ValueError(f"{self.name}'s {split} text must hold at least 2 characters; it has {len(text)}.")
        batch_size = share.at_most(batch_size, len(text) - 1)
        stride = math.ceil((len(text) - 1) / batch_size)
        return EvaluationText(text.to(device), min(length, stride), batch_size, share.rows(batch_size))


@dataclass(frozen=True, eq=False, repr=False)
class TrainingText(Batches):
    """The training batches of a `Text`."""

    text: UInt8[Tensor, " train"]
    length: int
    batch_size: int
    rows: slice
    fresh_every: int
    seed: int

    @property
    def stride(self) -> int:
        """The number of characters from one row's start to the next; it leaves room for the offset of each pass."""
        return (len(self.text) - self.length) // self.batch_size

    def __len__(self) -> int:
        return self.stride // self.length

    def iterate(self, start: int, stop: int) -> Iterator[Batch]:
        for step in range(start, stop):
            epoch, place = divmod(step, len(self))
            offset = int(torch.randint(self.length, (), generator=generator(self.seed, epoch)))
            begin = offset + place * self.length
            is_fresh = place % (self.fresh_every or len(self)) == 0
            yield self._segment(begin), self._segment(begin + 1), torch.tensor(is_fresh)

    def _segment(self, begin: int) -> Tensor:
        return self.text[begin:].unfold(0, self.length, self.stride)[: self.batch_size][self.rows].long()


@dataclass(frozen=True, eq=False, repr=False)
class EvaluationText(Batches):
    """The evaluation batches of a `Text`."""

    text: UInt8[Tensor, " text"]
    length: int
    batch_size: int
    rows: slice

    @property
    def stride(self) -> int:
        """The number of targets in a row, over all batches."""
        return math.ceil((len(self.text) - 1) / self.batch_size)

    def __len__(self) -> int:
        return math.ceil(self.stride / self.length)

    def iterate(self, start: int, stop: int) -> Iterator[Batch]:
        device, last = self.text.device, len(self.text) - 1
        begins = torch.arange(self.batch_size, device=device)[self.rows, None] * self.stride
        for step in range(start, stop):
            place = step % len(self)
            inside = torch.arange(place * self.length, (place + 1) * self.length, device=device)
            at = begins + inside
            targets = self.text[(at + 1).clamp(max=last)].long()
            is_ignored = (inside >= self.stride) | (at >= last)  # belongs to the next row, or is after the end
            yield (
                self.text[at.clamp(max=last)].long(),
                targets.masked_fill(is_ignored, IGNORED),
                torch.tensor(place == 0),
            )


def _check_sizes(batch_size: int, length: int) -> None:
    checks.whole("batch_size", batch_size, least=1)
    checks.whole("length", length, least=1)
