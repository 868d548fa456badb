"""The lowering "kernels": Triton kernels for what is bound by memory or by launches, not by multiplies.

`linear` is for decoding (few rows), `depthwise` for such convolutions, `recurrent` for single steps, `scan` for a GRU's
long sequences; what they are not for goes through blocks. The kernels themselves are in `jit`, which is imported where
one runs: triton is not on every machine.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor
from torch.autograd import forward_ad

_HAS_TRITON = find_spec("triton") is not None


def usable(x: Tensor) -> bool:
    """Whether a Triton kernel can run where ``x`` is, and may: torch.func follows torch's own operators only."""
    return _has_device(x) and not is_transformed()


def _has_device(x: Tensor) -> bool:
    return x.is_cuda and _HAS_TRITON


def is_transformed() -> bool:
    """Whether torch.func or forward-mode differentiation is at work."""
    if torch.compiler.is_compiling():  # which knows its own operators
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0
