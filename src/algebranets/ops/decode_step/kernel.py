# ruff: noqa: RUF005, Triton does not support (*tuple, one)
"""Kernel of ``decode_step``: the products of all gates and the cell's equations in one launch.

Shapes and tables are those of `decode_linear.kernel`. h and c are the old states, and g is the number of a gate.
"""

from __future__ import annotations

import triton
import triton.language as tl

from algebranets.ops.decode_linear.kernel import places, product
from algebranets.ops.kernel import activate, begin, plus_bias, tanh


@triton.jit
def decode_step_fwd_kernel(
    x, h, c, w_ih, w_hh, b_ih, b_hh, new_h, new_c, num_rows,
    mode: tl.constexpr, gates: tl.constexpr, table: tl.constexpr, starts: tl.constexpr, dim: tl.constexpr,
    size: tl.constexpr, num_copies: tl.constexpr, num_in: tl.constexpr, num_hidden: tl.constexpr,
    x_features: tl.constexpr, h_features: tl.constexpr, x_offset: tl.constexpr, h_offset: tl.constexpr,
    rows: tl.constexpr, out: tl.constexpr, inp: tl.constexpr, lanes: tl.constexpr, warps: tl.constexpr,
    vector: tl.constexpr, pdl: tl.constexpr, frozen: tl.constexpr,
):  # fmt: skip
    """Each program computes all gates and the cell's equations, for ``out`` hidden tuples and ``rows`` rows."""
    begin(pdl, frozen)
    tile, stack, first = tl.program_id(0), tl.program_id(1), tl.program_id(2) * rows
    from_x = product(
        x + x_offset, w_ih, tile, stack, first, num_rows, table, starts, dim, size, num_copies, num_in, num_hidden,
        x_features, gates, rows, out, inp, lanes, warps, vector, frozen,
    )  # fmt: skip
    from_h = product(
        h + h_offset, w_hh, tile, stack, first, num_rows, table, starts, dim, size, num_copies, num_hidden, num_hidden,
        h_features, gates, rows, out, inp, lanes, warps, vector, False,
    )  # fmt: skip
    row, feature, is_here = places(tile, first, num_rows, size, num_copies, num_hidden, rows, out, lanes)
    feature += h_offset
    gx = ()
    gh = ()
    for g in tl.static_range(gates):
        gx = gx + (plus_bias(from_x[g], b_ih, g * h_features + feature, is_here),)
        gh = gh + (plus_bias(from_h[g], b_hh, g * h_features + feature, is_here),)
    offset = row.to(tl.int64) * h_features + feature
    if mode == "GRU":
        old = tl.load(h + offset, mask=is_here, other=0).to(gx[0].dtype)
        z = tl.sigmoid(gx[1] + gh[1])
        n = tanh(gx[2] + tl.sigmoid(gx[0] + gh[0]) * gh[2])
        new = (1 - z) * n + z * old
    elif mode == "LSTM":
        old = tl.load(c + offset, mask=is_here, other=0).to(gx[0].dtype)
        cell = tl.sigmoid(gx[1] + gh[1]) * old + tl.sigmoid(gx[0] + gh[0]) * tanh(gx[2] + gh[2])
        tl.store(new_c + offset, cell, mask=is_here)
        new = tl.sigmoid(gx[3] + gh[3]) * tanh(cell)
    else:
        new = activate(gx[0] + gh[0], "tanh" if mode == "RNN_TANH" else "relu")
    tl.store(new_h + offset, new, mask=is_here)
