"""The lowering "kernels": Triton kernels that read compact weights once and expand them in registers.

`linear` is for decoding (few rows), `conv` for depthwise convolutions, `recurrent` for single steps; what they are not
for goes through blocks. The kernels themselves are in `jit`, which is imported where one runs: triton is not on every
machine.
"""

from __future__ import annotations

from importlib.util import find_spec

from torch import Tensor

_HAS_TRITON = find_spec("triton") is not None


def usable(x: Tensor) -> bool:
    """Whether a Triton kernel can run where ``x`` is."""
    return x.is_cuda and _HAS_TRITON
