"""One comparison: our layer is checked against its reference, then timed in turn with torch's."""

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
from algebranets.lab.bench.rows import Cost, Row, make_row
from algebranets.lab.bench.timing import Run, Step, race
from algebranets.product import Lowering, nearest_multiple


@dataclass(frozen=True)
class Case:
    """A comparison of our layer with the real one.

    Args:
        op: The name of the operation.
        shape: The shape of the input, as text.
        algebra: The algebra of our layer.
        width: The width of the layers, in real numbers.
        real: Makes the real layer of a given width.
        ours: Makes our layer with a given lowering.
        make_input: Makes an input of a given width.
        bound: The cost that limits the speed of a good implementation; see `Row.limit`.
        against: The name of the layer or library that ours is compared with.
        smaller: Whether a real layer with as many parameters as ours is timed too.
        loop: Whether the paper's loop, the lowering "reference", is timed too.
        checked: The number of rows of the input that are checked against the reference; None for all.
    """

    op: str
    shape: str
    algebra: Algebra
    width: int
    real: Callable[[int], nn.Module]
    ours: Callable[[Lowering], nn.Module]
    make_input: Callable[[int], Tensor]
    bound: Literal["multiply_adds", "bytes"] = "multiply_adds"
    against: str = "torch.nn"
    smaller: bool = True
    loop: bool = True
    checked: int | None = None


def measure(case: Case, run: Run, lowering: Lowering = "auto") -> Row:
    """Time forward and backward of one case, with input and gradient in the precision of the run."""
    torch.manual_seed(0)
    real, ours, loop = (
        make_on_device(lambda: case.real(case.width), run),
        make_on_device(lambda: case.ours(lowering), run),
        make_on_device(lambda: case.ours("reference"), run),
    )
    loop.load_state_dict(ours.state_dict())
    x = _input(case, run, case.width)
    error = disagreement(ours, loop, x[: case.checked], run)
    check_error(error, run, f"{case.op} over {case.algebra} at {case.shape}")
    share = num_parameters(ours) / num_parameters(real)
    steps = {"ours": training_step(ours, x, run), "real": training_step(real, x, run)}
    if case.smaller and share < 1:
        width = width_for(case.width, share)
        small = make_on_device(lambda: case.real(width), run)
        steps["smaller"] = training_step(small, _input(case, run, width), run)
    if case.loop:
        steps["loop"] = training_step(loop, x, run)
    times, captured = race(run, list(steps.values()))
    cost, real_cost = (cost_of(layer, x, run) for layer in (ours, real))
    return make_row(
        run, dict(zip(steps, times, strict=True)), captured, cost,
        op=case.op, shape=case.shape, algebra=case.algebra.name, lowering=lowering, against=case.against,
        parameters=share, error=error,
        limit=getattr(real_cost, case.bound) / getattr(cost, case.bound) if cost and real_cost else None,
    )  # fmt: skip


def make_on_device(make_layer: Callable[[], nn.Module], run: Run) -> nn.Module:
    """Make a layer on the run's device, with parameters in the precision ``run.stored``."""
    with torch.device(run.device):  # a CPU is slow to initialize large layers
        layer = make_layer()
    layer.to(run.device, run.stored)
    has_volumes = any(p.dim() == 5 for p in layer.parameters())  # torch has channels_last for 4 axes only
    return layer.to(memory_format=torch.channels_last) if run.on_gpu and not has_volumes else layer


def fit_width(width: int, algebra: Algebra) -> int:
    """The nearest width that is a whole number of tuples and a multiple of 8; a GPU is slow at other widths."""
    return nearest_multiple(width, lcm(algebra.dim, 8))


def width_for(width: int, share: float) -> int:
    """The width at which a real layer has about ``share`` of the parameters that it has at ``width``.

    It is a round number, because GPUs are faster at these.

    >>> width_for(4096, 0.2502), width_for(4096, 0.5001)
    (2048, 2880)
    """
    return nearest_multiple(width * sqrt(share), 64 if width >= 1024 else 8)


def num_parameters(layer: nn.Module) -> int:
    """The number of parameters of a layer."""
    return sum(p.numel() for p in layer.parameters())


def check_error(error: float, run: Run, what: str) -> None:
    """Raise an error if a layer disagrees with its reference by more than rounding.

    Args:
        error: The error, from `disagreement` or `difference`.
        run: The run, whose precision sets the tolerance.
        what: The layer's name in the error.
    """
    # In half precision the error is a ratio of norms, and rounding of the inputs dominates it.
    tolerance = 4 * torch.finfo(run.dtype).eps if run.half else 1000 * torch.finfo(run.stored).eps
    if not error <= tolerance:
        raise RuntimeError(
            f"{what} disagrees with its reference by {error:.1e} (at most {tolerance:.1e} is rounding): not timed."
        )


def disagreement(ours: nn.Module, reference: nn.Module, x: Tensor, run: Run) -> float:
    """The largest relative difference of the output and all gradients, as `difference` defines it.

    Our layer computes as it does when it is timed. The reference computes in the precision of the stored parameters.
    """
    results: list[list[Tensor]] = []
    upstream = None
    for layer, value, context in ((ours, x, run.autocast()), (reference, x.to(run.stored), nullcontext())):
        leaf = value.detach().clone().requires_grad_()
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # TF32 rounds more than we allow
            with context:
                y = output(layer(leaf))
            upstream = torch.randn_like(y) if upstream is None else upstream.to(y.dtype)
            gradients = torch.autograd.grad(y, [leaf, *layer.parameters()], upstream)
        results.append([y.detach(), *gradients])
    return max(difference(a, b, run) for a, b in zip(*results, strict=True))


def difference(value: Tensor, exact: Tensor, run: Run) -> float:
    """The largest difference over the largest value of ``exact``. In half precision, norms replace largest values."""
    size = torch.linalg.vector_norm if run.half else _largest
    return float(size(value.to(exact.dtype) - exact) / size(exact).clamp(min=1e-30))


def training_step(layer: nn.Module, x: Tensor, run: Run) -> Step:
    """A function that runs forward and backward of a layer, with gradients for its input and parameters."""
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
    """The output of a layer; a recurrent layer returns its last state too."""
    return result if isinstance(result, Tensor) else result[0]


def cost_of(layer: nn.Module, x: Tensor, run: Run) -> Cost | None:
    """The bytes and multiplies that forward and backward need at least; None if no formula is known for the layer.

    Forward reads the input and the weights and writes the output. Backward reads the input, the weights and the
    output's gradient, and writes the gradients of the input and the weights. It multiplies twice as much as forward.
    """
    with torch.no_grad(), run.autocast():
        y = layer(x)
    if accounting.work(layer, (x,), y) is None:
        return None
    weights = sum(p.nbytes for p in layer.parameters())
    return Cost(3 * x.nbytes + 2 * output(y).nbytes + 3 * weights, 3 * num_multiply_adds(layer, x, y))


def num_multiply_adds(layer: nn.Module, x: Tensor, y: Any) -> int:
    """The multiply-adds of one forward by the table of `Algebra.stored`, even if a lowering needs fewer."""
    work = accounting.work(layer, (x,), y)
    assert work is not None
    uses = (p.tuples.numel() // p.algebra.dim * p.times * p.algebra.stored.multiplies for p in work.products)
    return sum(uses) + work.others


def _input(case: Case, run: Run, width: int) -> Tensor:
    with torch.device(run.device):
        return run.laid_out(case.make_input(width).to(run.dtype))


def _largest(x: Tensor) -> Tensor:
    return x.abs().max()
