"""Benchmark of MobileNet-v1's depthwise convolutions, forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets.algebra import Algebra
from algebranets.lab.bench.case import Case, fit_width
from algebranets.lab.bench.case import measure as measure_case
from algebranets.lab.bench.rows import Row
from algebranets.lab.bench.timing import Run
from algebranets.models.mobilenet import BLOCKS
from algebranets.product import Lowering

ALGEBRAS = ("C", "H", "M2R", "M4R")
BATCH = {"cpu": 4, "cuda": 256}


def measure(
    run: Run,
    names: Iterable[str] = ALGEBRAS,
    batch: int | None = None,
    image_size: int = 224,
    lowering: Lowering = "auto",
) -> Iterator[Row]:
    """Time each distinct depthwise layer of the network. Memory limits the speed of these layers.

    Args:
        run: The device, the precision and how times are taken.
        names: Algebras.
        batch: Number of images; by default `BATCH` of the device.
        image_size: Height and width of the network's input.
        lowering: How our layers compute the product.
    """
    names = list(names)
    for channels, size, stride in sizes(image_size):
        for name in names:
            algebra = algebras.get(name)
            case = _case(algebra, fit_width(channels, algebra), size, stride, batch or BATCH[run.device])
            yield measure_case(case, run, lowering)


def sizes(image_size: int = 224) -> list[tuple[int, int, int]]:
    """The (channels, height, stride) of each distinct depthwise layer.

    >>> sizes()[:3]
    [(32, 112, 1), (64, 112, 2), (128, 56, 1)]
    """
    found = []
    channels, size = 32, image_size // 2
    for out, stride in BLOCKS:
        found.append((channels, size, stride))
        channels, size = out, -(-size // stride)
    return list(dict.fromkeys(found))


def _case(algebra: Algebra, channels: int, size: int, stride: int, batch: int) -> Case:
    def real(channels: int) -> nn.Module:
        return nn.Conv2d(channels, channels, 3, stride, padding=1, groups=channels, bias=False)

    def ours(lowering: Lowering) -> nn.Module:
        groups, how = channels // algebra.dim, {"algebra": algebra, "lowering": lowering}
        return ann.Conv2d(channels, channels, 3, stride, padding=1, groups=groups, bias=False, **how)  # type: ignore[arg-type]

    def make_input(channels: int) -> Tensor:
        return torch.randn(batch, channels, size, size)

    shape = f"{batch} x {channels} x {size}^2" + (f" / {stride}" if stride > 1 else "")
    return Case("depthwise", shape, algebra, channels, real, ours, make_input, bound="bytes")
