"""Benchmark of decoding: linear layers on few rows, forward only.

Reading weights takes most of the time. A chain of different layers is timed as one (`bench.chain`). The real chain has
as many layers as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets.algebra import Algebra
from algebranets.lab.bench.case import check_error, difference, fit_width, num_multiply_adds, num_parameters, width_for
from algebranets.lab.bench.chain import chain_length, forward_step
from algebranets.lab.bench.rows import Cost, Row, make_row
from algebranets.lab.bench.timing import Run, Step, race
from algebranets.product import Lowering

ALGEBRAS = ("C", "H", "M2R", "M4R", "M2C")
BATCHES = (1, 2, 4, 8, 16, 32)
WIDTHS = {"cpu": (1024,), "cuda": (4096, 8192, 16384)}


@dataclass(frozen=True)
class _Chains:
    """The chains that are compared, for one width and algebra."""

    ours: nn.Sequential
    real: nn.Sequential
    smaller: nn.Sequential
    loop: nn.Sequential

    @property
    def share(self) -> float:
        return num_parameters(self.ours) / num_parameters(self.real)


def measure(
    run: Run,
    names: Iterable[str] = ALGEBRAS,
    widths: Sequence[int] | None = None,
    batches: Sequence[int] = BATCHES,
    lowering: Lowering = "auto",
    num_layers: int | None = None,
) -> Iterator[Row]:
    """Time chains of square linear layers with bias. Parameters are stored in the run's precision.

    Args:
        run: The device, the precision and how times are taken.
        names: Algebras.
        widths: Features, in real numbers; by default `WIDTHS` of the device.
        batches: Numbers of rows. The paper's loop is slow and is timed with the first number only.
        lowering: How our layers compute the product.
        num_layers: The number of layers in a chain; by default `chain_length`.
    """
    names = list(names)
    for width in widths or WIDTHS[run.device]:
        for name in names:
            algebra = algebras.get(name)
            chains = _make_chains(run, algebra, fit_width(width, algebra), lowering, num_layers)
            for batch in batches:
                yield _measure(run, chains, algebra, batch, lowering, loop=batch == batches[0])
            del chains  # frees gigabytes


@torch.no_grad()
def _measure(run: Run, chains: _Chains, algebra: Algebra, batch: int, lowering: Lowering, loop: bool) -> Row:
    layer = chains.ours[0]
    assert isinstance(layer, ann.Linear)
    shape = f"{batch} x {layer.in_features}"
    x = torch.randn(batch, layer.in_features, device=run.device, dtype=run.dtype)
    error = _disagreement(layer, x, run)
    check_error(error, run, f"decoding over {algebra} at {shape}")
    small = torch.randn(batch, int(chains.smaller[0].in_features), device=run.device, dtype=run.dtype)  # type: ignore[arg-type]
    steps: dict[str, Step] = {
        "ours": forward_step(chains.ours, x),
        "real": forward_step(chains.real, x),
        "smaller": forward_step(chains.smaller, small),
    }
    if loop:
        steps["loop"] = forward_step(chains.loop, x)
    times, captured = race(run, list(steps.values()))
    cost, real_cost = (_cost(chain, x) for chain in (chains.ours, chains.real))
    return make_row(
        run, dict(zip(steps, times, strict=True)), captured, cost,
        op="decode", shape=shape, chain=len(chains.ours), algebra=algebra.name, lowering=lowering,
        parameters=chains.share, error=error, limit=real_cost.bytes / cost.bytes,
    )  # fmt: skip


def _make_chains(run: Run, algebra: Algebra, width: int, lowering: Lowering, num_layers: int | None) -> _Chains:
    def over_algebra(how: Lowering) -> Callable[[], nn.Module]:
        return lambda: ann.Linear(width, width, algebra=algebra, lowering=how)

    one = _chain(run, over_algebra(lowering), 1)
    number = num_layers or chain_length(run, sum(p.nbytes for p in one.parameters()))
    ours, loop = _chain(run, over_algebra(lowering), number), _chain(run, over_algebra("reference"), number)
    loop.load_state_dict(ours.state_dict())
    real = _chain(run, lambda: nn.Linear(width, width), number)
    less = width_for(width, num_parameters(ours) / num_parameters(real))
    return _Chains(ours, real, _chain(run, lambda: nn.Linear(less, less), number), loop)


def _chain(run: Run, layer: Callable[[], nn.Module], number: int) -> nn.Sequential:
    with torch.device(run.device):
        return nn.Sequential(*(layer().to(run.dtype) for _ in range(number))).eval()


def _disagreement(layer: ann.Linear, x: Tensor, run: Run) -> float:
    """The error of one layer of the chain, against the reference in at least float32."""
    exact = ann.Linear(
        layer.in_features, layer.out_features, device=x.device, algebra=layer.algebra, lowering="reference"
    ).to(run.stored)
    exact.load_state_dict(layer.state_dict())
    return difference(layer(x), exact(x.to(run.stored)), run)


def _cost(chain: nn.Sequential, x: Tensor) -> Cost:
    """The cost of a chain: each weight is read once, and each output is the next layer's input."""
    weights = sum(p.nbytes for p in chain.parameters())
    return Cost(weights + (len(chain) + 1) * x.nbytes, len(chain) * num_multiply_adds(chain[0], x, x))
