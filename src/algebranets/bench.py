"""Speed as ratios: a torch.nn layer and ours of the same width, timed in turn in one run; medians, warmed up.

A layer that disagrees with its reference is not timed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import median, quantiles

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import files
from algebranets import nn as ann
from algebranets.algebra import Algebra
from algebranets.nn.relative import sinusoids, window_mask
from algebranets.product import Geometry
from algebranets.product.blocks.matrix import matrix, multiply
from algebranets.train.environment import commit, device_name

#: Channels and height of the images that convolutions are timed on.
IMAGES = ((64, 32), (128, 16), (256, 16), (512, 8))

#: The algebras a plain run compares.
ALGEBRAS = ("C", "H", "M2R", "M3R", "M4R", "M2C", "DUAL", "CROSS", "diagonal(4)")


@dataclass(frozen=True)
class Case:
    """One comparison: how to make the real layer, ours, and their input."""

    op: str
    shape: str
    algebra: Algebra
    real: Callable[[], nn.Module]
    ours: Callable[[str], nn.Module]
    make_input: Callable[[], Tensor]


class _Spans(nn.Module):
    """A layer over an algebra of one block, dense or without its structural zeros."""

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


@dataclass(frozen=True)
class Row:
    """A measured case; ``speedup`` is the real layer's time over ours, ``spread`` the middle half of its values."""

    op: str
    shape: str
    algebra: str
    dtype: str
    device: str
    lowering: str
    speedup: float
    spread: tuple[float, float]
    parameters: float
    error: float
    torch: str
    commit: str


def layers(
    names: Iterable[str] = ALGEBRAS,
    ops: Iterable[str] | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    rounds: int = 11,
    width: int = 1024,
    batch: int = 512,
) -> Iterator[Row]:
    """Forward and backward of linear (``width``, ``batch`` rows), conv2d (64 to 512 channels) and GRU layers.

    Half precision means autocast with float32 parameters, as in training.
    """
    for op in ops or OPS:
        for name in names:
            for case in _CASES[op](algebras.get(name), width, batch):
                yield _measure(case, device, dtype, rounds)


def zeros(
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    rounds: int = 11,
    widths: Iterable[int] = (256, 512, 1024),
    batch: int = 512,
) -> Iterator[Row]:
    """The dense product's time over that of the one that skips structural zeros, whatever the threshold says."""
    for algebra in (algebras.DUAL, algebras.CROSS, algebras.tensor(algebras.DUAL, algebras.H)):
        linear = (case for width in widths for case in _linear(algebra, width, batch))
        for case in chain(linear, _conv2d(algebra, 0, batch)):
            yield _measure(_without_zeros(case), device, dtype, rounds)


def attention(
    names: Iterable[str] = ("R", "M2R"),
    dtype: torch.dtype = torch.bfloat16,
    rounds: int = 11,
    windows: Iterable[int] = (512, 1536),
    batch: int = 8,
) -> Iterator[Row]:
    """On a GPU: relative attention through torch's scaled_dot_product_attention over the same through FlexAttention.

    A segment and a memory of ``window`` positions each, four heads of 128, forward and backward, compiled.
    """
    for window in windows:
        for recompute in (False, True):
            for name in names:
                torch._dynamo.reset()  # each case is a graph of its own
                yield _measure(_attention(algebras.get(name), window, recompute, batch), "cuda", dtype, rounds)


def save(rows: list[Row], path: Path) -> None:
    """Write the rows as JSON lines, whole or not at all."""
    files.write(path, "".join(json.dumps(asdict(row)) + "\n" for row in rows))


def _linear(algebra: Algebra, width: int, batch: int) -> Iterator[Case]:
    features = _fit(width, algebra)
    yield Case(
        "linear",
        f"{batch} x {features}",
        algebra,
        lambda: nn.Linear(features, features),
        lambda lowering: ann.Linear(features, features, algebra=algebra, lowering=lowering),  # type: ignore[arg-type]
        lambda: torch.randn(batch, features),
    )


def _conv2d(algebra: Algebra, _width: int, batch: int) -> Iterator[Case]:
    for channels, size in IMAGES:
        count = _fit(channels, algebra)
        images = max(1, batch // 64)

        def real(count: int = count) -> nn.Module:
            return nn.Conv2d(count, count, 3, padding=1)

        def ours(lowering: str, count: int = count) -> nn.Module:
            return ann.Conv2d(count, count, 3, padding=1, algebra=algebra, lowering=lowering)  # type: ignore[arg-type]

        def make_input(count: int = count, images: int = images, size: int = size) -> Tensor:
            return torch.randn(images, count, size, size)

        yield Case("conv2d", f"{images} x {count} x {size}^2", algebra, real, ours, make_input)


def _gru(algebra: Algebra, width: int, batch: int) -> Iterator[Case]:
    features, rows, steps = _fit(width, algebra), max(1, batch // 32), 16
    yield Case(
        "gru",
        f"{steps} x {rows} x {features}",
        algebra,
        lambda: nn.GRU(features, features),
        lambda lowering: ann.GRU(features, features, algebra=algebra, lowering=lowering),  # type: ignore[arg-type]
        lambda: torch.randn(steps, rows, features),
    )


class _Segment(nn.Module):
    """Relative attention from a segment to itself and to the memory before it."""

    def __init__(self, algebra: Algebra, window: int, recompute: bool, kernel: str) -> None:
        super().__init__()
        self.layer = ann.RelativeAttention(512, 4, algebra=algebra, recompute=recompute, kernel=kernel)
        self.u, self.v = (nn.Parameter(torch.randn(512)) for _ in range(2))
        self.positions = nn.Buffer(sinusoids(window + 1, 512))
        self.mask = window_mask(window, window, window + 1, torch.device("cuda")) if kernel == "flex" else None
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        memory, segment = x[:, : self.window].detach(), x[:, self.window :]
        return self.layer(segment, self.positions, self.u, self.v, memory, self.mask)


def _attention(algebra: Algebra, window: int, recompute: bool, batch: int) -> Case:
    def segment(kernel: str) -> nn.Module:
        module = _Segment(algebra, window, recompute, kernel)
        module.compile(fullgraph=True)
        return module

    return Case(
        "attention, recomputed" if recompute else "attention",
        f"{batch} x {window}",
        algebra,
        lambda: segment("sdpa"),
        lambda lowering: segment("sdpa" if lowering == "reference" else "flex"),
        lambda: torch.randn(batch, 2 * window, 512),
    )


def _without_zeros(case: Case) -> Case:
    """The same layer, dense in the place of the real one and skipping in the place of ours."""

    def ours(lowering: str) -> nn.Module:
        return case.ours(lowering) if lowering == "reference" else _Spans(case.ours(lowering), skip=True)

    return replace(case, real=lambda: _Spans(case.ours("auto"), skip=False), ours=ours)


_CASES = {"linear": _linear, "conv2d": _conv2d, "gru": _gru}
OPS = tuple(_CASES)


def _fit(width: int, algebra: Algebra) -> int:
    """The nearest width that holds whole tuples."""
    return max(1, round(width / algebra.dim)) * algebra.dim


def _measure(case: Case, device: str, dtype: torch.dtype, rounds: int) -> Row:
    torch.manual_seed(0)
    half = dtype.itemsize < 4
    stored = torch.float32 if half else dtype
    real = case.real().to(device, stored)
    ours = case.ours("auto").to(device, stored)
    oracle = case.ours("reference").to(device, stored)
    oracle.load_state_dict(ours.state_dict())
    x = case.make_input().to(device, stored)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # its rounding is not a disagreement
        error = _disagreement(ours, oracle, x)
    tolerance = 1000 * torch.finfo(stored).eps
    if error > tolerance:
        raise RuntimeError(
            f"{case.op} over {case.algebra} at {case.shape} disagrees with its reference by {error:.1e} of the largest "
            f"value (at most {tolerance:.1e} is rounding): not timed."
        )
    steps = [_training_step(layer, x) for layer in (real, ours)]
    with torch.autocast(device, dtype=dtype if half else None, enabled=half):
        for step in steps * 5:
            _timed(step, device)
        ratios = [_timed(steps[0], device) / _timed(steps[1], device) for _ in range(rounds)]
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    count = [sum(p.numel() for p in layer.parameters()) for layer in (ours, real)]
    return Row(
        case.op,
        case.shape,
        case.algebra.name,
        str(dtype).removeprefix("torch."),
        device_name(device),
        "auto",
        median(ratios),
        (low, high),
        count[0] / count[1],
        error,
        torch.__version__,
        commit(),
    )


def _disagreement(ours: nn.Module, oracle: nn.Module, x: Tensor) -> float:
    """The largest difference of outputs and gradients, as a share of the largest value of each."""
    results = []
    for layer in (ours, oracle):
        leaf = x.clone().requires_grad_()
        y = _output(layer(leaf))
        results.append([y.detach(), *torch.autograd.grad(y.square().mean(), [leaf, *layer.parameters()])])
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in zip(*results, strict=True))


def _training_step(layer: nn.Module, x: Tensor) -> Callable[[], None]:
    leaf = x.clone().requires_grad_()
    wanted = [leaf, *layer.parameters()]
    grad = torch.randn_like(_output(layer(leaf)))

    def step() -> None:
        y = _output(layer(leaf))
        torch.autograd.grad(y, wanted, grad.to(y.dtype))

    return step


def _output(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    return result if isinstance(result, Tensor) else result[0]


def _timed(step: Callable[[], None], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
