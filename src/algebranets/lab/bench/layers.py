"""Benchmark of linear, conv2d and GRU layers, forward and backward, against torch.nn at the same width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets.algebra import Algebra
from algebranets.lab.bench.case import Case, fit_width
from algebranets.lab.bench.case import measure as measure_case
from algebranets.lab.bench.rows import Row
from algebranets.lab.bench.timing import Run
from algebranets.product import Lowering

#: Channels and height of the images that convolutions are timed on.
IMAGES = ((64, 32), (128, 16), (256, 16), (512, 8))

#: The algebras that are compared by default.
ALGEBRAS = ("C", "H", "M2R", "M3R", "M4R", "M2C", "DUAL", "CROSS", "diagonal(4)")

#: Default widths of linear and GRU layers, and default numbers of rows. Sizes that fill a GPU take minutes on a CPU.
WIDTHS = {"cpu": (1024,), "cuda": (1024, 4096, 8192)}
BATCH = {"cpu": 512, "cuda": 8192}


def measure(
    run: Run,
    names: Iterable[str] = ALGEBRAS,
    ops: Iterable[str] | None = None,
    widths: Sequence[int] | None = None,
    batch: int | None = None,
    lowerings: Sequence[Lowering] = ("auto",),
) -> Iterator[Row]:
    """Time linear layers, convolutions of 64 to 512 channels, and GRUs of 16 steps.

    Args:
        run: The device, the precision and how times are taken.
        names: Algebras.
        ops: Some of `OPS`; by default all.
        widths: Features of linear and GRU layers, in real numbers; by default `WIDTHS` of the device.
        batch: Rows of linear layers, by default `BATCH` of the device; there are 1/64 as many images and 1/32 as many
            sequences.
        lowerings: How our layers compute the product; each lowering gives one row.
    """
    names = list(names)
    for op in ops or OPS:
        for name in names:
            for case in CASES[op](algebras.get(name), widths or WIDTHS[run.device], batch or BATCH[run.device]):
                for lowering in lowerings:
                    yield measure_case(case, run, lowering)


def linear(algebra: Algebra, widths: Iterable[int], batch: int) -> Iterator[Case]:
    """The comparisons of linear layers, one per width."""
    for features in (fit_width(width, algebra) for width in widths):

        def ours(lowering: Lowering, features: int = features) -> nn.Module:
            return ann.Linear(features, features, algebra=algebra, lowering=lowering)

        yield Case(
            "linear",
            f"{batch} x {features}",
            algebra,
            features,
            lambda width: nn.Linear(width, width),
            ours,
            lambda width: torch.randn(batch, width),
        )


def conv2d(algebra: Algebra, _widths: Iterable[int], batch: int) -> Iterator[Case]:
    """The comparisons of 3 x 3 convolutions on `IMAGES`. There are 1/64 as many images as ``batch``."""
    for channels, size in ((fit_width(channels, algebra), size) for channels, size in IMAGES):
        images = max(1, batch // 64)

        def ours(lowering: Lowering, channels: int = channels) -> nn.Module:
            return ann.Conv2d(channels, channels, 3, padding=1, algebra=algebra, lowering=lowering)

        def make_input(channels: int, images: int = images, size: int = size) -> Tensor:
            return torch.randn(images, channels, size, size)

        yield Case(
            "conv2d",
            f"{images} x {channels} x {size}^2",
            algebra,
            channels,
            lambda channels: nn.Conv2d(channels, channels, 3, padding=1),
            ours,
            make_input,
        )


def gru(algebra: Algebra, widths: Iterable[int], batch: int) -> Iterator[Case]:
    """The comparisons of GRUs on 16 steps, one per width. There are 1/32 as many sequences as ``batch``."""
    for width in widths:
        yield gru_case(algebra, width, 16, max(1, batch // 32))


def gru_case(algebra: Algebra, width: int, steps: int, rows: int, recurrent_bias: bool = True) -> Case:
    """The comparison of GRUs of one layer. The first 16 steps are checked against the reference.

    Args:
        algebra: The algebra of our layer.
        width: Features; rounded to the nearest width that fits the algebra.
        steps: Length of the sequences.
        rows: Number of sequences.
        recurrent_bias: Whether our GRU has a recurrent bias. Torch's GRU always has one.
    """
    features = fit_width(width, algebra)
    return Case(
        "gru",
        f"{steps} x {rows} x {features}",
        algebra,
        features,
        lambda width: nn.GRU(width, width),
        lambda lowering: ann.GRU(features, features, recurrent_bias=recurrent_bias, algebra=algebra, lowering=lowering),
        lambda width: torch.randn(steps, rows, width),
        loop=steps <= 16,
        checked=16,
    )


CASES: dict[str, Callable[[Algebra, Iterable[int], int], Iterator[Case]]] = {
    "linear": linear,
    "conv2d": conv2d,
    "gru": gru,
}
OPS = tuple(CASES)
