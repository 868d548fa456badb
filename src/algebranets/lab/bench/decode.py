"""Benchmark of decoding: linear layers on few rows, forward only.

Reading weights takes most of the time. A chain of different layers is timed as one (`bench.chain`). The real chain has
as many layers as ours. Quantized layers are compared with real layers in the run's precision, and with our own layers
that are not quantized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets import product
from algebranets.algebra import Algebra
from algebranets.lab.bench.case import check_error, difference, fit_width, num_multiply_adds, num_parameters, width_for
from algebranets.lab.bench.chain import chain_length, forward_step
from algebranets.lab.bench.rows import Cost, Row, make_row
from algebranets.lab.bench.timing import Run, Step, race
from algebranets.nn.quantization import quantize
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
    #: Our layers before they were quantized; None if they are not.
    dense: nn.Sequential | None

    @property
    def share(self) -> float:
        return num_parameters(self.loop) / num_parameters(self.real)  # without the scales of quantized weights


def measure(
    run: Run,
    names: Iterable[str] = ALGEBRAS,
    widths: Sequence[int] | None = None,
    batches: Sequence[int] = BATCHES,
    lowering: Lowering = "auto",
    num_layers: int | None = None,
    weights: str | None = None,
) -> Iterator[Row]:
    """Time chains of square linear layers with bias. Parameters are stored in the run's precision.

    Args:
        run: The device, the precision and how times are taken.
        names: Algebras.
        widths: Features, in real numbers; by default `WIDTHS` of the device.
        batches: Numbers of rows. The paper's loop is slow and is timed with the first number only.
        lowering: How our layers compute the product.
        num_layers: The number of layers in a chain; by default `chain_length`.
        weights: What our weights are quantized to, "int8", or None.
    """
    names = list(names)
    for width in widths or WIDTHS[run.device]:
        for name in names:
            algebra = algebras.get(name)
            chains = _make_chains(run, algebra, fit_width(width, algebra), lowering, num_layers, weights)
            for batch in batches:
                yield _measure(run, chains, algebra, batch, lowering, loop=batch == batches[0])
            del chains  # frees gigabytes


@torch.no_grad()
def _measure(run: Run, chains: _Chains, algebra: Algebra, batch: int, lowering: Lowering, loop: bool) -> Row:
    layer = chains.ours[0]
    assert isinstance(layer, ann.Linear | ann.QuantizedLinear)
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
    if chains.dense is not None:
        steps["dense"] = forward_step(chains.dense, x)
    times, captured = race(run, list(steps.values()))
    cost, real_cost = (_cost(chain, x) for chain in (chains.ours, chains.real))
    return make_row(
        run, dict(zip(steps, times, strict=True)), captured, cost,
        op="decode" if chains.dense is None else "decode int8", shape=shape, chain=len(chains.ours),
        algebra=algebra.name, lowering=lowering,
        parameters=chains.share, error=error, limit=real_cost.bytes / cost.bytes,
    )  # fmt: skip


def _make_chains(
    run: Run, algebra: Algebra, width: int, lowering: Lowering, num_layers: int | None, weights: str | None
) -> _Chains:
    def over_algebra(how: Lowering) -> Callable[[], nn.Module]:
        return lambda: ann.Linear(width, width, algebra=algebra, lowering=how)

    def quantized(chain: nn.Sequential) -> nn.Sequential:
        return chain if weights is None else quantize(chain, weights)

    one = quantized(_chain(run, over_algebra(lowering), 1))
    number = num_layers or chain_length(run, sum(p.nbytes for p in one.parameters()))
    dense, loop = _chain(run, over_algebra(lowering), number), _chain(run, over_algebra("reference"), number)
    loop.load_state_dict(dense.state_dict())
    real = _chain(run, lambda: nn.Linear(width, width), number)
    less = width_for(width, num_parameters(dense) / num_parameters(real))
    smaller = _chain(run, lambda: nn.Linear(less, less), number)
    return _Chains(quantized(dense), real, smaller, loop, None if weights is None else dense)


def _chain(run: Run, layer: Callable[[], nn.Module], number: int) -> nn.Sequential:
    with torch.device(run.device):
        return nn.Sequential(*(layer().to(run.dtype) for _ in range(number))).eval()


def _disagreement(layer: ann.Linear | ann.QuantizedLinear, x: Tensor, run: Run) -> float:
    """The error of one layer of the chain, against the reference in at least float32.

    A quantized layer is compared with the product of its dequantized weight, so its error has no part of quantization.
    """
    weight = layer.dequantized(run.stored) if isinstance(layer, ann.QuantizedLinear) else layer.weight.to(run.stored)
    bias = None if layer.bias is None else layer.bias.to(run.stored)
    exact = product.linear(x.to(run.stored), weight, bias, algebra=layer.algebra, lowering="reference")
    return difference(layer(x), exact, run)


def _cost(chain: nn.Sequential, x: Tensor) -> Cost:
    """The cost of a chain: each weight is read once, and each output is the next layer's input."""
    weights = sum(p.nbytes for p in chain.parameters())
    return Cost(weights + (len(chain) + 1) * x.nbytes, len(chain) * num_multiply_adds(chain[0], x, x))
