"""Operators: one folder each, with a function, its schema and gradient, its launches and its kernels.

``__init__.py`` has the function, ``launch.py`` the tiles and grids, ``kernel.py`` the Triton code. Only ``kernel.py``
imports triton, and it is imported when a kernel runs. Operators know plain tensors and tables, but no module, layout or
lowering.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from algebranets.ops import (
    add_norm,
    combine,
    counter,
    decode_attention,
    decode_linear,
    decode_step,
    depthwise,
    gru_scan,
    sparse_linear,
    torch_rnn,
    whitening_sums,
    window_attention,
)

#: The FLOP formula of each operator that multiplies, for torch's FLOP counter. Combinations of components, norms and
#: whitening's sums are not counted. torch does not count such operations either.
FLOPS: dict[Any, Callable[..., int]] = {
    torch.ops.algebranets.decode_linear: decode_linear.flops,
    torch.ops.algebranets.decode_step: decode_step.flops,
    torch.ops.algebranets.sparse_linear: sparse_linear.flops,
    torch.ops.algebranets.depthwise: depthwise.flops,
    torch.ops.algebranets.depthwise_sums: depthwise.flops_sums,
    torch.ops.algebranets.gru_scan: gru_scan.flops,
    torch.ops.algebranets.gru_scan_backward: gru_scan.flops_backward,
    torch.ops.algebranets.torch_rnn: torch_rnn.flops,
    torch.ops.algebranets.torch_rnn_backward: torch_rnn.flops_backward,
    torch.ops.algebranets.window_attention: window_attention.flops,
    torch.ops.algebranets.window_attention_backward: window_attention.flops_backward,
    torch.ops.algebranets.decode_attention: decode_attention.flops,
}
counter.register(counter.FORMULAS | FLOPS)

__all__ = [
    "FLOPS",
    "add_norm",
    "combine",
    "decode_attention",
    "decode_linear",
    "decode_step",
    "depthwise",
    "gru_scan",
    "sparse_linear",
    "torch_rnn",
    "whitening_sums",
    "window_attention",
]
