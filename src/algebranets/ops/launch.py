"""Shared parts of launches: memory for sums of several programs, and options for kernels that overlap."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from algebranets.ops.counters import counters
from algebranets.ops.device import sum_dtype
from algebranets.ops.kernel import is_interpreted


def shared_sums(x: Tensor, splits: int, num_programs: int, size: int) -> tuple[Tensor | None, Tensor | None]:
    """Memory for sums that ``splits`` programs share: ``size`` numbers for each program, and a counter for each sum.

    Both are None if ``splits`` is 1.
    """
    if splits == 1:
        return None, None
    parts = x.new_empty(num_programs * size, dtype=sum_dtype(x))
    return parts, counters(x.device, num_programs // splits)


def overlaps(x: Tensor) -> bool:
    """Whether a kernel on the device of ``x`` may start before the previous kernel has ended."""
    return x.is_cuda and not is_interpreted() and _is_hopper(x.device)


@cache
def _is_hopper(device: torch.device) -> bool:
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (9, 0)


def overlap_options(pdl: bool) -> dict[str, Any]:
    """Launch options for kernels that overlap. Only Triton's CUDA backend accepts them."""
    return {"launch_pdl": True} if pdl else {}
