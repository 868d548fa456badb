"""Transformer-XL's attention on a GPU, through FlexAttention and through torch's with a mask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets.algebra import Algebra
from algebranets.bench.case import Case
from algebranets.bench.case import measure as measure_case
from algebranets.bench.rows import Row
from algebranets.bench.timing import Run
from algebranets.nn.relative import sinusoids, window_mask

ALGEBRAS = ("R", "M2R")
WINDOWS = (512, 1536)


def measure(
    run: Run, names: Iterable[str] = ALGEBRAS, windows: Iterable[int] = WINDOWS, batch: int = 8
) -> Iterator[Row]:
    """The time through torch's scaled_dot_product_attention over that through FlexAttention.

    A segment and a memory of ``window`` positions each, four heads of 128, forward and backward, compiled.
    """
    names = list(names)
    for window in windows:
        for recompute in (False, True):
            for name in names:
                torch._dynamo.reset()  # each case is a graph of its own
                yield measure_case(_case(algebras.get(name), window, recompute, batch), run)


class _Segment(nn.Module):
    """Relative attention from a segment to itself and to the memory before it."""

    def __init__(self, algebra: Algebra, window: int, recompute: bool, kernel: str) -> None:
        super().__init__()
        self.layer = ann.RelativeAttention(512, 4, algebra=algebra, recompute=recompute, kernel=kernel)
        self.u, self.v = (nn.Parameter(torch.randn(512)) for _ in range(2))
        self.positions = nn.Buffer(sinusoids(window + 1, 512))
        self.mask = window_mask(window, window, window + 1, torch.device("cuda")) if kernel == "flex" else None
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        memory, segment = x[:, : self.window].detach(), x[:, self.window :]
        return self.layer(segment, self.positions, self.u, self.v, memory, self.mask)


def _case(algebra: Algebra, window: int, recompute: bool, batch: int) -> Case:
    def segment(kernel: str) -> nn.Module:
        module = _Segment(algebra, window, recompute, kernel)
        module.compile(fullgraph=True)
        return module

    return Case(
        "attention, recomputed" if recompute else "attention",
        f"{batch} x {window}",
        algebra,
        512,
        lambda _: segment("sdpa"),
        lambda lowering: segment("sdpa" if lowering == "reference" else "flex"),
        lambda width: torch.randn(batch, 2 * window, width),
        against="sdpa",
        loop=False,
    )
