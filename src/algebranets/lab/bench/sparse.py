"""Benchmark of tuple-sparse linear layers on few rows, forward only, against dense and CSR layers.

Our layer is timed in turn with the dense layer over the same algebra, the real layer of the same width, and a real
matrix of that width with as many nonzeros, in torch's CSR format (cuSPARSE, or MKL on a CPU). Each is timed as a chain
of layers (`bench.chain`), and chains differ in length. Times are per layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets import product
from algebranets.algebra import Algebra
from algebranets.lab.bench.case import check_error, difference, fit_width
from algebranets.lab.bench.chain import chain_length, forward_step
from algebranets.lab.bench.rows import Cost, Row, make_row
from algebranets.lab.bench.timing import Run, Step, race
from algebranets.product.compressed import TupleSparse, compress, expand
from algebranets.product.sparse import in_format

ALGEBRAS = ("M2R", "H")
BATCHES = (1, 8, 64)
SPARSITIES = (0.7, 0.8, 0.9, 0.95)
WIDTHS = {"cpu": (1024,), "cuda": (4096, 8192)}


@dataclass(frozen=True)
class _Csr:
    """A chain of real sparse matrices. Features are the first axis of its input, because CSR products need that."""

    matrices: list[Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        for matrix in self.matrices:
            x = matrix @ x
        return x

    def __len__(self) -> int:
        return len(self.matrices)


def measure(
    run: Run,
    names: Iterable[str] = ALGEBRAS,
    widths: Sequence[int] | None = None,
    batches: Sequence[int] = BATCHES,
    sparsities: Sequence[float] = SPARSITIES,
    keep_dense: bool = False,
) -> Iterator[Row]:
    """Time square layers without bias, stored in the run's precision. The tuples that are zero are random.

    Args:
        run: The device, the precision and how times are taken.
        names: Algebras.
        widths: Features, in real numbers; by default `WIDTHS` of the device.
        batches: Numbers of rows.
        sparsities: Shares of tuples that are zero.
        keep_dense: Whether our layers keep their dense weights too (`algebranets.sparse`).
    """
    names = list(names)
    for width in widths or WIDTHS[run.device]:
        for name in names:
            algebra = algebras.get(name)
            for sparsity in sparsities:
                yield from _measure(run, algebra, fit_width(width, algebra), batches, sparsity, keep_dense)


@torch.no_grad()
def _measure(
    run: Run, algebra: Algebra, width: int, batches: Sequence[int], sparsity: float, keep_dense: bool
) -> Iterator[Row]:
    torch.manual_seed(0)
    weight = _pruned(run, algebra, width, sparsity)
    dense = ann.Linear(width, width, bias=False, device=run.device, dtype=run.dtype, algebra=algebra)
    dense.weight.copy_(expand(weight))
    real = nn.Linear(width, width, bias=False, device=run.device, dtype=run.dtype)
    csr = _csr(run, width, weight.values.numel())
    chains: dict[str, nn.Sequential | _Csr] = {
        "ours": _layers(run, ann.SparseLinear(weight, None, keep_dense)),
        "real": _layers(run, real),
        "dense": _layers(run, dense),
        "csr": _Csr([csr.clone() for _ in range(chain_length(run, _csr_bytes(csr)))]),
    }
    for batch in batches:
        x = torch.randn(batch, width, device=run.device, dtype=run.dtype)
        error = _disagreement(weight, x, run)
        shape = f"{batch} x {width}, {100 * sparsity:g} %"
        check_error(error, run, f"a sparse layer over {algebra} at {shape}")
        steps: dict[str, Step] = {
            name: forward_step(chain, x.T.contiguous() if name == "csr" else x) for name, chain in chains.items()
        }
        times, captured = _race(run, list(steps.values()))
        lengths = {name: len(chain) for name, chain in chains.items()}
        each = {name: [t / lengths[name] for t in taken] for name, taken in zip(steps, times, strict=True)}
        moved = _bytes(weight.starts, weight.indices, weight.values) + 2 * x.nbytes
        yield make_row(
            run, each, captured, Cost(moved, batch * len(weight.values) * algebra.multiplies),
            op="sparse (dense kept)" if keep_dense else "sparse", shape=shape, chain=lengths["ours"],
            algebra=algebra.name, lowering="auto", parameters=weight.values.numel() / width**2, error=error,
            sparsity=sparsity, limit=(_bytes(real.weight) + 2 * x.nbytes) / moved,
        )  # fmt: skip


def _race(run: Run, steps: list[Step]) -> tuple[list[list[float]], bool]:
    """Time the steps with `race`; if CSR, the last step, cannot be captured, time it alone after the others."""
    times, captured = race(run, steps)
    if captured or not (run.on_gpu and run.capture):
        return times, captured
    (*others, csr) = steps
    times, captured = race(run, others)
    return [*times, *race(run, [csr])[0]], captured


def _pruned(run: Run, algebra: Algebra, width: int, sparsity: float) -> TupleSparse:
    """A weight with a random share ``sparsity`` of tuples zero, scaled so that outputs are as large as inputs."""
    num = width // algebra.dim
    tuples = torch.randn(algebra.dim, num, num, device=run.device)
    tuples *= torch.rand(num, num, device=run.device) >= sparsity
    scale = ((1 - sparsity) * num * algebra.multiplies / algebra.dim) ** -0.5
    return compress(product.weight_from_tuples((scale * tuples).to(run.dtype), algebra), algebra)


def _csr(run: Run, width: int, nonzeros: int) -> Tensor:
    """A random real CSR matrix. The numbers of nonzeros in its rows differ by at most one."""
    places = torch.rand(width, width, device=run.device).argsort(1)
    counts = torch.full((width,), nonzeros // width, device=run.device)
    counts[: nonzeros % width] += 1
    mask = torch.zeros_like(places, dtype=torch.bool)
    mask.scatter_(1, places, torch.arange(width, device=run.device) < counts[:, None])
    columns = mask.nonzero()[:, 1].int()
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
    values = torch.randn(len(columns), device=run.device).to(run.dtype) * (max(1, nonzeros) / width) ** -0.5
    return in_format(torch.sparse_csr_tensor, starts, columns, values, (width, width))


def _layers(run: Run, layer: nn.Module) -> nn.Sequential:
    """A chain of copies of a layer, of length `chain_length`."""
    size = _bytes(*layer.state_dict().values())
    return nn.Sequential(*(deepcopy(layer) for _ in range(chain_length(run, size)))).eval()


def _bytes(*tensors: Tensor) -> int:
    return sum(t.nbytes for t in tensors)


def _csr_bytes(csr: Tensor) -> int:
    return _bytes(csr.crow_indices(), csr.col_indices(), csr.values())


def _disagreement(weight: TupleSparse, x: Tensor, run: Run) -> float:
    """The error of one layer, against the dense reference product in at least float32."""
    exact = expand(weight).to(run.stored)
    reference = product.linear(x.to(run.stored), exact, algebra=weight.algebra, lowering="reference")
    return difference(ann.SparseLinear(weight, None)(x), reference, run)
