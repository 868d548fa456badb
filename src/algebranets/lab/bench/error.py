"""Rounding errors of the lowerings in each precision, measured against float64.

The bilinear lowering adds before and after it multiplies, so it rounds more often than others. `product.auto` uses it
only if its error grows by at most a factor, which was chosen from these measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets import product
from algebranets.algebra import Algebra
from algebranets.lab.bench.case import fit_width
from algebranets.lab.train.environment import commit, device_name
from algebranets.product import Lowering

ALGEBRAS = ("C", "H", "M2R", "M3R", "M4R", "M2C")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDTHS = {"cpu": (256, 1024), "cuda": (1024, 4096, 8192)}
#: The lowerings that are compared.
LOWERINGS: tuple[Lowering, ...] = ("blocks", "bilinear")


@dataclass(frozen=True)
class ErrorRow:
    """The rounding errors of one layer; ``errors[lowering]`` is ||y - exact|| / ||exact||."""

    op: str
    shape: str
    algebra: str
    dtype: str
    device: str
    errors: dict[str, float]
    torch: str
    commit: str


def measure(
    device: str = "cpu",
    names: Iterable[str] = ALGEBRAS,
    widths: Sequence[int] | None = None,
    dtypes: Sequence[torch.dtype] = DTYPES,
    batch: int = 512,
) -> Iterator[ErrorRow]:
    """Measure errors of linear layers. Weights and inputs are exact in each precision, so only the product rounds.

    Args:
        device: ``"cpu"`` or ``"cuda"``.
        names: Algebras.
        widths: Features, in real numbers; by default `WIDTHS` of the device.
        dtypes: Precisions.
        batch: Number of rows.
    """
    for name in names:
        algebra = algebras.get(name)
        for width in widths or WIDTHS[device]:
            features = fit_width(width, algebra)
            for dtype in dtypes:
                torch.manual_seed(0)
                yield ErrorRow(
                    "linear", f"{batch} x {features}", algebra.name, str(dtype).removeprefix("torch."),
                    device_name(device), _errors(algebra, features, dtype, batch, device), torch.__version__, commit(),
                )  # fmt: skip


@torch.no_grad()
def _errors(algebra: Algebra, features: int, dtype: torch.dtype, batch: int, device: str) -> dict[str, float]:
    layer = ann.Linear(features, features, bias=False, device=device, dtype=dtype, algebra=algebra)
    x = torch.randn(batch, features, device=device).to(dtype)

    def through(lowering: Lowering, precision: torch.dtype) -> Tensor:
        return product.linear(x.to(precision), layer.weight.to(precision), algebra=algebra, lowering=lowering)

    exact = through("reference", torch.float64)
    norm = torch.linalg.vector_norm
    return {name: float(norm(through(name, dtype).double() - exact) / norm(exact)) for name in LOWERINGS}
