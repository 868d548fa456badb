"""One comparison: check our layer against its reference, then time it in turn with torch's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from math import lcm, sqrt
from typing import Any, Literal

import torch
from torch import Tensor, nn

from algebranets import accounting
from algebranets.algebra import Algebra
from algebranets.lab.bench.rows import Cost, Row, make
from algebranets.lab.bench.timing import Run, Step, race
from algebranets.product import Lowering


@dataclass(frozen=True)
class Case:
    """How to make the real layer of a width, ours, and an input of a width."""

    op: str
    shape: str
    algebra: Algebra
    width: int
    real: Callable[[int], nn.Module]
    ours: Callable[[Lowering], nn.Module]
    make_input: Callable[[int], Tensor]
    #: What our speed is bound by, where it is good: see `Row.limit`.
    bound: Literal["multiply_adds", "bytes"] = "multiply_adds"
    against: str = "torch.nn"
    #: Whether a real layer with as many parameters as ours is timed as well, and the paper's loop.
    smaller: bool = True
    loop: bool = True
    #: How many rows of the input are checked; None for all.
    checked: int | None = None


def measure(case: Case, run: Run, lowering: Lowering = "auto") -> Row:
    """Forward and backward, as a layer within a network sees it: in half precision input and gradient are half."""
    torch.manual_seed(0)
    real, ours, loop = (
        placed(lambda: case.real(case.width), run),
        placed(lambda: case.ours(lowering), run),
        placed(lambda: case.ours("reference"), run),
    )
    loop.load_state_dict(ours.state_dict())
    x = _input(case, run, case.width)
    error = disagreement(ours, loop, x[: case.checked], run)
    refuse(error, run, f"{case.op} over {case.algebra} at {case.shape}")
    share = num_parameters(ours) / num_parameters(real)
    steps = {"ours": training_step(ours, x, run), "real": training_step(real, x, run)}
    if case.smaller and share < 1:
        width = width_for(case.width, share)
        small = placed(lambda: case.real(width), run)
        steps["smaller"] = training_step(small, _input(case, run, width), run)
    if case.loop:
        steps["loop"] = training_step(loop, x, run)
    times, captured = race(run, list(steps.values()))
    cost, real_cost = (cost_of(layer, x, run) for layer in (ours, real))
    return make(
        run, dict(zip(steps, times, strict=True)), captured, cost,
        op=case.op, shape=case.shape, algebra=case.algebra.name, lowering=lowering, against=case.against,
        parameters=share, error=error,
        limit=getattr(real_cost, case.bound) / getattr(cost, case.bound) if cost and real_cost else None,
    )  # fmt: skip


def placed(make_layer: Callable[[], nn.Module], run: Run) -> nn.Module:
    """A layer on the run's device, made there, its parameters as they are stored."""
    with torch.device(run.device):  # large layers are slow to initialise elsewhere
        layer = make_layer()
    layer.to(run.device, run.stored)
    return layer.to(memory_format=torch.channels_last) if run.on_gpu else layer


def fit(width: int, algebra: Algebra) -> int:
    """The nearest width that holds whole tuples, and eights of numbers: a GPU's real layers are slow without."""
    unit = lcm(algebra.dim, 8)
    return max(1, round(width / unit)) * unit


def width_for(width: int, share: float) -> int:
    """The real width at which a layer has about this ``share`` of its parameters; round, to be fair to it.

    >>> width_for(4096, 0.2502), width_for(4096, 0.5001)
    (2048, 2880)
    """
    unit = 64 if width >= 1024 else 8
    return max(1, round(width * sqrt(share) / unit)) * unit


def num_parameters(layer: nn.Module) -> int:
    """Numbers to learn."""
    return sum(p.numel() for p in layer.parameters())


def refuse(error: float, run: Run, what: str) -> None:
    """Nothing that disagrees with its reference by more than rounding is timed."""
    # In float32 the largest value's error, in half precision the whole's, which rounding of inputs dominates.
    tolerance = 4 * torch.finfo(run.dtype).eps if run.half else 1000 * torch.finfo(run.stored).eps
    if not error <= tolerance:
        raise RuntimeError(
            f"{what} disagrees with its reference by {error:.1e} (at most {tolerance:.1e} is rounding): not timed."
        )


def disagreement(ours: nn.Module, reference: nn.Module, x: Tensor, run: Run) -> float:
    """The largest difference of an output or a gradient: of values, or in half precision of norms, as a share.

    Ours computes as it will when timed, the reference in the precision in which parameters are stored.
    """
    results: list[list[Tensor]] = []
    upstream = None
    for layer, value, context in ((ours, x, run.autocast()), (reference, x.to(run.stored), nullcontext())):
        leaf = value.detach().clone().requires_grad_()
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # its rounding is not a disagreement
            with context:
                y = output(layer(leaf))
            upstream = torch.randn_like(y) if upstream is None else upstream.to(y.dtype)
            gradients = torch.autograd.grad(y, [leaf, *layer.parameters()], upstream)
        results.append([y.detach(), *gradients])
    return max(difference(a, b, run) for a, b in zip(*results, strict=True))


def difference(value: Tensor, exact: Tensor, run: Run) -> float:
    """Of two tensors, as `disagreement` says."""
    size = torch.linalg.vector_norm if run.half else _largest
    return float(size(value.to(exact.dtype) - exact) / size(exact).clamp(min=1e-30))


def training_step(layer: nn.Module, x: Tensor, run: Run) -> Step:
    """Forward and backward of a layer: gradients of its input and of its parameters."""
    leaf = x.detach().clone().requires_grad_()
    wanted = [leaf, *layer.parameters()]
    with run.autocast():
        gradient = torch.randn_like(output(layer(leaf)))

    def step() -> None:
        with run.autocast():
            y = output(layer(leaf))
        torch.autograd.grad(y, wanted, gradient)

    return step


def output(result: Any) -> Tensor:
    """A recurrent layer gives its last state as well."""
    return result if isinstance(result, Tensor) else result[0]


def cost_of(layer: nn.Module, x: Tensor, run: Run) -> Cost | None:
    """Of forward and backward, or None where no formula is known for the layer.

    Forward reads input and weights and writes the output, backward reads them and the gradient and writes two others;
    it multiplies twice as much as forward.
    """
    if accounting.work.dispatch(type(layer)) is accounting.work.dispatch(nn.Module):
        return None
    with torch.no_grad(), run.autocast():
        y = layer(x)
    weights = sum(p.nbytes for p in layer.parameters())
    return Cost(3 * x.nbytes + 2 * output(y).nbytes + 3 * weights, 3 * num_multiply_adds(layer, x, y))


def num_multiply_adds(layer: nn.Module, x: Tensor, y: Any) -> int:
    """Of one forward, by the algebra's table: what a lowering saves is not taken off."""
    work = accounting.work(layer, (x,), y)
    assert work is not None
    uses = (p.tuples.numel() // p.algebra.dim * p.times * p.algebra.multiplies for p in work.products)
    return sum(uses) + work.others


def _input(case: Case, run: Run, width: int) -> Tensor:
    with torch.device(run.device):
        return run.laid_out(case.make_input(width).to(run.dtype))


def _largest(x: Tensor) -> Tensor:
    return x.abs().max()
