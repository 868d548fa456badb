"""Decoding: linear layers on few rows, forward only, where reading weights is all there is to do.

A chain of distinct layers is timed as one (`bench.chain`); the real chain has as many layers as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets.algebra import Algebra
from algebranets.lab.bench.case import difference, fit, num_multiply_adds, num_parameters, refuse, width_for
from algebranets.lab.bench.chain import num_layers as long_enough
from algebranets.lab.bench.chain import through
from algebranets.lab.bench.rows import Cost, Row, make
from algebranets.lab.bench.timing import Run, Step, race
from algebranets.product import Lowering

ALGEBRAS = ("C", "H", "M2R", "M4R", "M2C")
BATCHES = (1, 2, 4, 8, 16, 32)
WIDTHS = {"cpu": (1024,), "cuda": (4096, 8192, 16384)}


@dataclass(frozen=True)
class _Chains:
    """Of one width, over one algebra."""

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
    """Layers with bias, as many features out as in; parameters are stored in the run's precision.

    The paper's loop is timed at the first of the ``batches`` only: it is thousands of products.
    """
    names = list(names)
    for width in widths or WIDTHS[run.device]:
        for name in names:
            algebra = algebras.get(name)
            chains = _make_chains(run, algebra, fit(width, algebra), lowering, num_layers)
            for batch in batches:
                yield _measure(run, chains, algebra, batch, lowering, loop=batch == batches[0])
            del chains  # gigabytes


@torch.no_grad()
def _measure(run: Run, chains: _Chains, algebra: Algebra, batch: int, lowering: Lowering, loop: bool) -> Row:
    layer = chains.ours[0]
    assert isinstance(layer, ann.Linear)
    shape = f"{batch} x {layer.in_features}"
    x = torch.randn(batch, layer.in_features, device=run.device, dtype=run.dtype)
    error = _disagreement(layer, x, run)
    refuse(error, run, f"decoding over {algebra} at {shape}")
    small = torch.randn(batch, int(chains.smaller[0].in_features), device=run.device, dtype=run.dtype)  # type: ignore[arg-type]
    steps: dict[str, Step] = {
        "ours": through(chains.ours, x),
        "real": through(chains.real, x),
        "smaller": through(chains.smaller, small),
    }
    if loop:
        steps["loop"] = through(chains.loop, x)
    times, captured = race(run, list(steps.values()))
    cost, real_cost = (_cost(chain, x) for chain in (chains.ours, chains.real))
    return make(
        run, dict(zip(steps, times, strict=True)), captured, cost,
        op="decode", shape=shape, chain=len(chains.ours), algebra=algebra.name, lowering=lowering,
        parameters=chains.share, error=error, limit=real_cost.bytes / cost.bytes,
    )  # fmt: skip


def _make_chains(run: Run, algebra: Algebra, width: int, lowering: Lowering, num_layers: int | None) -> _Chains:
    def over_algebra(how: Lowering) -> Callable[[], nn.Module]:
        return lambda: ann.Linear(width, width, algebra=algebra, lowering=how)

    one = _chain(run, over_algebra(lowering), 1)
    number = num_layers or long_enough(run, sum(p.nbytes for p in one.parameters()))
    ours, loop = _chain(run, over_algebra(lowering), number), _chain(run, over_algebra("reference"), number)
    loop.load_state_dict(ours.state_dict())
    real = _chain(run, lambda: nn.Linear(width, width), number)
    less = width_for(width, num_parameters(ours) / num_parameters(real))
    return _Chains(ours, real, _chain(run, lambda: nn.Linear(less, less), number), loop)


def _chain(run: Run, layer: Callable[[], nn.Module], number: int) -> nn.Sequential:
    with torch.device(run.device):
        return nn.Sequential(*(layer().to(run.dtype) for _ in range(number))).eval()


def _disagreement(layer: ann.Linear, x: Tensor, run: Run) -> float:
    """Of one layer, from the reference in float32 on the same numbers: what a chain of them adds up is not its own."""
    exact = ann.Linear(
        layer.in_features, layer.out_features, device=x.device, algebra=layer.algebra, lowering="reference"
    ).to(run.stored)
    exact.load_state_dict(layer.state_dict())
    return difference(layer(x), exact(x.to(run.stored)), run)


def _cost(chain: nn.Sequential, x: Tensor) -> Cost:
    """Every weight once; each layer's output is the next one's input."""
    weights = sum(p.nbytes for p in chain.parameters())
    return Cost(weights + (len(chain) + 1) * x.nbytes, len(chain) * num_multiply_adds(chain[0], x, x))
