"""Times steps in turn after warming up, as CUDA graphs on a GPU, and measures the limits of a device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

Step = Callable[[], object]

#: On a GPU a step is repeated for about this many seconds, because CUDA events resolve microseconds at best.
MIN_SECONDS = 1e-3
_WARM_UPS = 3


@dataclass(frozen=True)
class Run:
    """The settings that all measurements of a run share.

    >>> Run(dtype=torch.bfloat16).stored
    torch.float32

    Args:
        device: ``"cpu"`` or ``"cuda"``.
        dtype: The precision; half precision means autocast in training.
        rounds: The number of times that each step is timed.
        capture: Whether steps are recorded as CUDA graphs. Otherwise launches dominate the times of small sizes.
    """

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    rounds: int = 11
    capture: bool = True

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def half(self) -> bool:
        return self.dtype.itemsize < 4

    @property
    def stored(self) -> torch.dtype:
        """The precision of the parameters in training: float32 if ``dtype`` is half precision, because of autocast."""
        return torch.float32 if self.half else self.dtype

    def autocast(self) -> torch.autocast:
        """The context of a training step. Make a new one for each step, so that weights are cast once per step."""
        return torch.autocast(self.device, dtype=self.dtype if self.half else None, enabled=self.half)

    def laid_out(self, x: Tensor) -> Tensor:
        """Move an input to the device. Images on a GPU get channels last, which is faster in convolutions."""
        images = self.on_gpu and x.dim() == 4
        return x.to(self.device, memory_format=torch.channels_last if images else torch.preserve_format)


@dataclass(frozen=True)
class Limits:
    """The highest speeds that were measured on a device."""

    #: Bytes per second that a large copy reads and writes.
    bandwidth: float
    #: Multiply-adds per second of a large square matrix product.
    multiply_adds: float


def race(run: Run, steps: Sequence[Step]) -> tuple[list[list[float]], bool]:
    """Time steps in turn.

    Args:
        run: The device, the number of rounds, and whether to capture CUDA graphs.
        steps: Functions without arguments.

    Returns:
        The seconds of each step, round by round, and whether the steps were captured. If one of them cannot be
        captured, none is.
    """
    captured = run.on_gpu and run.capture
    with torch.backends.cudnn.flags(enabled=True, benchmark=run.on_gpu, allow_tf32=True):  # as in training
        if captured:
            try:
                steps = [_recorded(step) for step in steps]
            except RuntimeError:
                torch.cuda.synchronize()
                captured = False
        for step in steps:
            for _ in range(_WARM_UPS):
                step()
        repeats = [_repeats(step) if run.on_gpu else 1 for step in steps]
        times: list[list[float]] = [[] for _ in steps]
        for _ in range(run.rounds):
            for step, number, seconds in zip(steps, repeats, times, strict=True):
                seconds.append(_timed_by_events(step, number) if run.on_gpu else _timed_by_clock(step))
    return times, captured


@cache
def limits(device: str, dtype: torch.dtype) -> Limits:
    """The limits of a device, measured once per process by a large copy and a large matrix product."""
    on_gpu = device == "cuda"
    source = torch.empty(2**30 if on_gpu else 2**26, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    side = 8192 if on_gpu else 1024
    matrix = torch.randn(side, side, device=device).to(dtype)
    product = torch.empty_like(matrix)
    run = Run(device, dtype, rounds=5, capture=False)
    steps = (lambda: target.copy_(source), lambda: torch.mm(matrix, matrix, out=product))
    (copying, multiplying), _ = race(run, steps)
    return Limits(2 * source.nbytes / min(copying), side**3 / min(multiplying))


def _recorded(step: Step) -> Step:
    """Capture a step as a CUDA graph. The tensors that it reads must keep their addresses."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _repeats(step: Step) -> int:
    return max(1, math.ceil(MIN_SECONDS / _timed_by_events(step, 1)))


def _timed_by_events(step: Step, repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / repeats


def _timed_by_clock(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start
