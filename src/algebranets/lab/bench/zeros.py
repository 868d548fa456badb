"""Benchmark of products with and without their structural zeros."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import torch.nn.functional as F
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets.lab.bench import layers
from algebranets.lab.bench.case import Case
from algebranets.lab.bench.case import measure as measure_case
from algebranets.lab.bench.rows import Row
from algebranets.lab.bench.timing import Run
from algebranets.product import Geometry, Lowering
from algebranets.product.blocks.matrix import matrix, multiply


def measure(run: Run, widths: Iterable[int] = (256, 512, 1024), batch: int = 512) -> Iterator[Row]:
    """Measure the time of the dense product over that of the product that skips structural zeros.

    The threshold above which layers skip zeros was chosen from these times. The benchmark itself has no threshold.

    Args:
        run: The device, the precision and how times are taken.
        widths: Features of linear layers, in real numbers.
        batch: Rows of linear layers; there are 1/64 as many images.
    """
    widths = list(widths)
    for algebra in (algebras.DUAL, algebras.CROSS, algebras.tensor(algebras.DUAL, algebras.H)):
        for case in chain(layers.linear(algebra, widths, batch), layers.conv2d(algebra, (), batch)):
            yield measure_case(_without_zeros(case), run)


class _Spans(nn.Module):
    """A layer over an algebra of one block, with or without its structural zeros."""

    def __init__(self, layer: nn.Module, skip: bool) -> None:
        super().__init__()
        assert isinstance(layer, ann.Linear | ann.Conv2d)
        self.weight, self.bias, self.algebra = layer.weight, layer.bias, layer.algebra
        (self.block,) = layer.algebra.blocks
        self.spans = self.block.spans if skip else None
        padded = Geometry((1, 1), (1, 1), (1, 1))
        self.product = F.linear if isinstance(layer, ann.Linear) else padded.convolve

    def forward(self, x: Tensor) -> Tensor:
        w = matrix(self.weight, self.algebra, self.block)
        return multiply(self.product, x, w, self.bias, self.spans, self.block.size)


def _without_zeros(case: Case) -> Case:
    """Change a case: the real layer becomes our dense layer, and our layer skips zeros."""

    def ours(lowering: Lowering) -> nn.Module:
        return case.ours(lowering) if lowering == "reference" else _Spans(case.ours(lowering), skip=True)

    return replace(case, real=lambda _: _Spans(case.ours("auto"), skip=False), ours=ours, against="dense", loop=False)
