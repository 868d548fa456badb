"""Kernels of ``gru_scan``: the recurrence over a sequence in one launch, with W_hh kept on the chip.

A program has some hidden units of some rows. It loads its part of the weights once. In each step it loads the whole
state of its rows, which other programs wrote. After each step, the programs of the same rows wait for each other. All
programs must run at the same time, so there are at most as many as multiprocessors. Tensors are (time, row, gate, unit)
with gates r, z, n. The copies of a block are adjacent rows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from algebranets.ops.kernel import ceil_log2, tanh


@triton.jit(do_not_specialize=["steps"])
def gru_scan_fwd_kernel(
    gates, states, kept, weight, bias, steps, num_rows,
    num_units: tl.constexpr, num_copies: tl.constexpr, ahead: tl.constexpr, counters, programs: tl.constexpr,
    rows: tl.constexpr, units: tl.constexpr, chunks: tl.constexpr, inner: tl.constexpr, apart: tl.constexpr,
):  # fmt: skip
    """Each program computes some units of some rows, step by step. ``ahead`` is -1 if time runs backwards, else 1."""
    row, unit, is_here, part = tiles(num_rows, num_units, rows, units, chunks, inner)
    counter = counters + tl.program_id(1) * apart
    # (chunk, inner, unit)
    w_at = weight + unit[None] * num_units + part[:, :, None]
    w_here = (unit[None] < num_units) & (part[:, :, None] < num_units)
    w_r = tl.load(w_at, mask=w_here, other=0)
    w_z = tl.load(w_at + num_units * num_units, mask=w_here, other=0)
    w_n = tl.load(w_at + 2 * num_units * num_units, mask=w_here, other=0)
    b_at = bias + row % num_copies * num_units + unit
    b_r = tl.load(b_at, mask=is_here, other=0)
    b_z = tl.load(b_at + num_copies * num_units, mask=is_here, other=0)
    b_xn = tl.load(b_at + 2 * num_copies * num_units, mask=is_here, other=0)
    b_hn = tl.load(b_at + 3 * num_copies * num_units, mask=is_here, other=0)

    own, own3, own4 = row * num_units + unit, row * 3 * num_units + unit, row * 4 * num_units + unit
    h = tl.load(states + own, mask=is_here, other=0).to(tl.float32)
    x_r, x_z, x_n = load3(gates + own3, is_here, num_units)
    for step in range(steps):
        before = load_all(states, row, part, num_rows, num_units, num_units)
        g_r, g_z, g_n = tl.dot(before, w_r), tl.dot(before, w_z), tl.dot(before, w_n)
        g_r, g_z, g_n = over_chunks(g_r), over_chunks(g_z), over_chunks(g_n)
        r = tl.sigmoid(x_r.to(tl.float32) + g_r + b_r)
        z = tl.sigmoid(x_z.to(tl.float32) + g_z + b_z)
        g_n += b_hn
        n = tanh(x_n.to(tl.float32) + b_xn + r * g_n)
        h = (1 - z) * n + z * h
        states += ahead * num_rows * num_units
        tl.store(states + own, h, mask=is_here)
        arrive(counter, programs)
        # No program waits for the following stores and loads.
        if kept is not None:
            store3(kept + own4, r, z, n, is_here, num_units)
            tl.store(kept + 3 * num_units + own4, g_n, mask=is_here)
            kept += ahead * num_rows * 4 * num_units
        if step + 1 < steps:
            gates += ahead * num_rows * 3 * num_units
            x_r, x_z, x_n = load3(gates + own3, is_here, num_units)
        wait(counter, (step + 1) * programs, programs)
    leave(counter, steps * programs, programs)


@triton.jit(do_not_specialize=["steps"])
def gru_scan_bwd_kernel(
    grad, grad_last, before, kept, weight, grad_x, grad_h, grad_state, grad_bias, steps, num_rows,
    num_units: tl.constexpr, ahead: tl.constexpr, counters, programs: tl.constexpr,
    rows: tl.constexpr, units: tl.constexpr, chunks: tl.constexpr, inner: tl.constexpr, apart: tl.constexpr,
):  # fmt: skip
    """Each program computes the gradients of some units of some rows, from the last step to the first."""
    row, unit, is_here, part = tiles(num_rows, num_units, rows, units, chunks, inner)
    counter = counters + tl.program_id(1) * apart
    # (chunk, inner, unit) of the transposed weights
    w_at = weight + part[:, :, None] * num_units + unit[None]
    w_here = (unit[None] < num_units) & (part[:, :, None] < num_units)
    w_r = tl.load(w_at, mask=w_here, other=0)
    w_z = tl.load(w_at + num_units * num_units, mask=w_here, other=0)
    w_n = tl.load(w_at + 2 * num_units * num_units, mask=w_here, other=0)

    own, own3, own4 = row * num_units + unit, row * 3 * num_units + unit, row * 4 * num_units + unit
    dh = tl.zeros([rows, units], tl.float32)
    if grad_last is not None:
        dh += tl.load(grad_last + own, mask=is_here, other=0)
    sum_r, sum_z, sum_xn, sum_hn = dh * 0, dh * 0, dh * 0, dh * 0
    dy, h = tl.load(grad + own, mask=is_here, other=0), tl.load(before + own, mask=is_here, other=0)
    k_r, k_z, k_n = load3(kept + own4, is_here, num_units)
    g_n = tl.load(kept + 3 * num_units + own4, mask=is_here, other=0)
    for step in range(steps):
        dh += dy
        r, z, n = k_r.to(tl.float32), k_z.to(tl.float32), k_n.to(tl.float32)
        d_xn = dh * (1 - z) * (1 - n * n)
        d_z = dh * (h - n) * z * (1 - z)
        d_r = d_xn * g_n * r * (1 - r)
        d_hn = d_xn * r
        dh *= z
        store3(grad_h + own3, d_r, d_z, d_hn, is_here, num_units)
        arrive(counter, programs)
        # No program waits for the following stores and loads.
        store3(grad_x + own3, d_r, d_z, d_xn, is_here, num_units)
        sum_r += d_r
        sum_z += d_z
        sum_xn += d_xn
        sum_hn += d_hn
        if step + 1 < steps:
            grad += ahead * num_rows * num_units
            before += ahead * num_rows * num_units
            kept += ahead * num_rows * 4 * num_units
            dy, h = tl.load(grad + own, mask=is_here, other=0), tl.load(before + own, mask=is_here, other=0)
            k_r, k_z, k_n = load3(kept + own4, is_here, num_units)
            g_n = tl.load(kept + 3 * num_units + own4, mask=is_here, other=0)
        wait(counter, (step + 1) * programs, programs)
        all_r = load_all(grad_h, row, part, num_rows, num_units, 3 * num_units)
        if rows > 16:  # load the gates one by one, because together they do not fit into shared memory
            total = tl.dot(all_r, w_r)
            all_z = load_all(grad_h + num_units, row, part, num_rows, num_units, 3 * num_units)
            total = tl.dot(all_z, w_z, total)
            all_n = load_all(grad_h + 2 * num_units, row, part, num_rows, num_units, 3 * num_units)
            total = tl.dot(all_n, w_n, total)
        else:
            all_z = load_all(grad_h + num_units, row, part, num_rows, num_units, 3 * num_units)
            all_n = load_all(grad_h + 2 * num_units, row, part, num_rows, num_units, 3 * num_units)
            total = tl.dot(all_n, w_n, tl.dot(all_z, w_z, tl.dot(all_r, w_r)))
        dh += over_chunks(total)
        grad_x += ahead * num_rows * 3 * num_units
        grad_h += ahead * num_rows * 3 * num_units
    leave(counter, steps * programs, programs)
    tl.store(grad_state + own, dh, mask=is_here)
    store3(grad_bias + own, sum_r, sum_z, sum_xn, is_here, num_rows * num_units)
    tl.store(grad_bias + 3 * num_rows * num_units + own, sum_hn, mask=is_here)


@triton.jit
def tiles(num_rows, num_units, rows: tl.constexpr, units: tl.constexpr, chunks: tl.constexpr, inner: tl.constexpr):
    """A program's rows and units, a mask of those that exist, and all units of the state, one chunk for each warp."""
    row = tl.program_id(1) * rows + tl.arange(0, rows)[:, None]
    unit = tl.program_id(0) * units + tl.arange(0, units)[None, :]
    part = tl.arange(0, chunks)[:, None] * inner + tl.arange(0, inner)[None, :]
    return row, unit, (row < num_rows) & (unit < num_units), part


@triton.jit
def over_chunks(x):
    """The sum over chunks. Halves are added in registers, because `tl.sum` would use shared memory several times."""
    x = tl.permute(x, (1, 2, 0))
    for _ in tl.static_range(ceil_log2(x.shape[2])):
        first, second = tl.split(tl.reshape(x, (x.shape[0], x.shape[1], x.shape[2] // 2, 2)))
        x = first + second
    return tl.reshape(x, (x.shape[0], x.shape[1]))


@triton.jit
def load_all(x, row, part, num_rows, num_units, stride):
    """Load what all programs wrote for these rows, (chunk, row, inner), past the L1 cache of this multiprocessor."""
    is_here = (row[None] < num_rows) & (part[:, None, :] < num_units)
    return tl.load(x + row[None] * stride + part[:, None, :], mask=is_here, other=0, cache_modifier=".cg")


@triton.jit
def load3(x, is_here, stride):
    """Load a tile for each of the gates r, z and n."""
    first, second = tl.load(x, mask=is_here, other=0), tl.load(x + stride, mask=is_here, other=0)
    return first, second, tl.load(x + 2 * stride, mask=is_here, other=0)


@triton.jit
def store3(x, first, second, third, is_here, stride):
    """Store a tile for each of the gates r, z and n."""
    tl.store(x, first, mask=is_here)
    tl.store(x + stride, second, mask=is_here)
    tl.store(x + 2 * stride, third, mask=is_here)


@triton.jit
def arrive(counter, programs: tl.constexpr):
    """Count this program, and let the programs that `wait` see what it has stored."""
    tl.debug_barrier()
    if programs > 1:
        tl.atomic_add(counter, 1, sem="release", scope="gpu")


@triton.jit
def wait(counter, count, programs: tl.constexpr):
    """Wait until the counter has reached ``count``. The first thread polls it, and the other threads wait for that."""
    if programs > 1:
        tl.inline_asm_elementwise(
            """
            {
                .reg .pred %p;
                .reg .u32 %a;
                mov.u32 %a, %tid.x;
                setp.ne.u32 %p, %a, 0;
                @%p bra DONE;
            AGAIN:
                ld.acquire.gpu.global.u32 %a, [$1];
                setp.lt.u32 %p, %a, $2;
                @%p bra AGAIN;
            DONE:
                mov.u32 $0, 0;
            }
            """,
            "=r,l,r", [counter, count], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    tl.debug_barrier()


@triton.jit
def leave(counter, count, programs: tl.constexpr):
    """Reset the counter to zero when all programs have finished their last wait, for ``count`` arrivals."""
    if programs > 1:  # noqa: SIM102, known when the kernel is compiled
        if tl.atomic_add(counter, 1, sem="relaxed") == count + programs - 1:
            tl.store(counter, 0)
