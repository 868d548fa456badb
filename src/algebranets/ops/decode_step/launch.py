"""Launches of ``decode_step``, one for each block of the algebra."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.ops.decode_linear.launch import MAX_SUMS, VECTOR, fma_tile, plans
from algebranets.ops.decode_step.kernel import decode_step_fwd_kernel
from algebranets.ops.device import ceil_div
from algebranets.ops.launch import overlap_options, overlaps


def decode_step(
    mode: str,
    x: Tensor,
    state: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    algebra: Algebra,
    frozen: bool = False,
) -> list[Tensor]:
    """The next states of a recurrent cell. If ``frozen``, weights are read before ``x`` (batch, features) is ready."""
    x, state, weights = x.contiguous(), [s.contiguous() for s in state], [w.contiguous() for w in weights]
    biases = [None if b is None else b.contiguous() for b in biases]
    (batch, x_features), h_features = x.shape, state[0].shape[1]
    num_in, num_hidden = x_features // algebra.dim, h_features // algebra.dim
    gates = weights[0].numel() // (algebra.dim * num_in * num_hidden)
    new = [torch.empty_like(s) for s in state]
    if not batch:
        return new
    pdl = overlaps(x)
    for plan in plans(algebra, num_in, num_hidden):
        num_rows = batch * plan.num_copies
        tile = fma_tile(plan, num_rows, x.element_size(), per_thread=1, unroll=1)  # one output of every gate
        rows = max(1, min(num_rows, MAX_SUMS // (gates * plan.size)))
        with torch.cuda.device_of(x):
            decode_step_fwd_kernel[ceil_div(plan.num_out, tile.out), 1, ceil_div(num_rows, rows)](
                x, state[0], state[-1], *weights, *biases, new[0], new[-1], num_rows,
                mode, gates, plan.table, plan.starts, plan.dim, plan.size, plan.num_copies, plan.num_in, plan.num_out,
                x_features, h_features, plan.offset * num_in, plan.offset * num_hidden, rows, tile.out,
                tile.inp, tile.lanes, tile.num_warps, VECTOR // x.element_size(), pdl, pdl and frozen,
                num_warps=tile.num_warps, **overlap_options(pdl),
            )  # fmt: skip
    return new
