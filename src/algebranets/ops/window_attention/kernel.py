"""Kernels of ``window_attention`` and its backward.

They compute the content scores and load the position scores. Position scores are (heads and phases, batch and rows,
columns), in the layout of `scores.Layout`: query i has the score of key j in column ``8 * ahead + j - i // 8 * 8``. A
tile is *whole* if each of its queries sees each of its keys. Only the other tiles are masked. So the kernels loop
twice: over the tiles before and after the whole ones, then over the whole ones.

Features are read and written in the order of linear layers, (component, head, tuple), so a head is A pieces of
``tuples`` features each.

Shapes: B batch, T queries, S keys, h heads, d = A * tuples features of a head (``size``, rounded up to a power of two
``width``), E = h * d. A query is i, a key j, a feature of a head d, its place in a row of E numbers f.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: The base-2 logarithm of e: the kernels compute exponentials as powers of 2.
LOG2_E = tl.constexpr(1.4426950408889634)
#: Arguments that change from text to text and do not affect alignment. Kernels are not compiled again for new values.
SIZES = ["num_batch", "num_heads", "num_past", "num_distances", "ahead"]


@triton.jit(do_not_specialize=SIZES)
def window_attention_fwd_kernel(
    q, q_batch, q_time, k, k_batch, k_time, v, v_batch, v_time,
    out, out_batch, out_time, lse, scores,
    num_batch, num_heads, num_queries, num_past, num_distances, ahead, num_columns, scale,
    size: tl.constexpr, tuples: tl.constexpr, width: tl.constexpr, phases: tl.constexpr,
    queries: tl.constexpr, keys: tl.constexpr,
):  # fmt: skip
    """Each program computes the outputs of ``queries`` queries of one head, from all keys that they see."""
    b, h = head_of(num_heads)
    start = (tl.num_programs(0) - 1 - tl.program_id(0)) * queries  # the last queries first: they may see more
    last = tl.minimum(start + queries, num_queries) - 1
    own = start + tl.arange(0, queries)
    i = tl.minimum(own, last)  # queries beyond the end repeat the last one
    d = tl.arange(0, width)
    f = features(d, num_heads, size, tuples)
    q_i = load(rows(q, q_batch, q_time, b, h, i, f, tuples), d, size, width)  # (query, d)
    k += b * k_batch + h * tuples
    v += b * v_batch + h * tuples
    key_0_at = scores_of_key_0(scores, b, h, i, num_batch, num_queries, ahead, num_columns, phases)

    # Tiles of keys count from the farthest column of the first query.
    first = start - ahead * phases
    begin = tl.maximum(-first, 0) // keys
    whole_begin = tl.cdiv(tl.maximum(last + num_past - num_distances + 1 - first, -first), keys)
    whole_end = tl.maximum((start + num_past + 1 - first) // keys, whole_begin)
    end = tl.cdiv(last + num_past + 1 - first, keys)
    top = tl.full([queries], -1e30, tl.float32)
    total = tl.zeros([queries], tl.float32)
    sums = tl.zeros([queries, width], tl.float32)
    scale *= LOG2_E
    for whole in tl.static_range(2):
        for n in range(whole_begin if whole else begin, whole_end if whole else end - whole_end + whole_begin):
            tile = n if whole or n < whole_begin else n + whole_end - whole_begin
            j = first + tile * keys + tl.arange(0, keys)
            held = (j if whole else tl.minimum(tl.maximum(j, 0), num_past + num_queries - 1)).to(tl.int64)[:, None]
            k_j = load(k + held * k_time + f[None, :], d, size, width)  # (key, d)
            v_j = load(v + held * v_time + f[None, :], d, size, width)
            is_column = has_column(i[:, None], j[None, :], ahead, num_columns, phases, 0)
            position = load_scores(key_0_at[:, None] + j[None, :], is_column, whole).to(tl.float32)
            # Scale both terms. Otherwise the position scores would be the dot's accumulator, and not be loaded ahead.
            s = tl.dot(q_i, tl.trans(k_j)) * scale + position * scale  # (query, key)
            if not whole:
                s = tl.where(is_seen(i[:, None], j[None, :], num_past, num_distances), s, -float("inf"))
            highest = tl.maximum(top, tl.max(s, 1))
            weights, kept = tl.exp2(s - highest[:, None]), tl.exp2(top - highest)
            total = total * kept + tl.sum(weights, 1)
            sums = tl.dot(weights.to(v_j.dtype), v_j, sums * kept[:, None])
            top = highest

    result = (sums / total[:, None]).to(out.dtype.element_ty)
    out_at = rows(out, out_batch, out_time, b, h, own, f, tuples)
    tl.store(out_at, result, mask=(own < num_queries)[:, None] & (d < size)[None, :])
    tl.store(lse + (b * num_heads + h) * num_queries + own, top + tl.log2(total), mask=own < num_queries)


@triton.jit(do_not_specialize=["num_heads"])
def window_attention_bwd_delta_kernel(
    out, out_batch, out_time, grad, grad_batch, grad_time, delta,
    num_heads, num_queries, size: tl.constexpr, tuples: tl.constexpr, width: tl.constexpr, queries: tl.constexpr,
):  # fmt: skip
    """Each program computes the inner products of the outputs of ``queries`` queries and their gradients."""
    b, h = head_of(num_heads)
    own = tl.program_id(0) * queries + tl.arange(0, queries)
    i, d = tl.minimum(own, num_queries - 1), tl.arange(0, width)
    f = features(d, num_heads, size, tuples)
    y_i = load(rows(out, out_batch, out_time, b, h, i, f, tuples), d, size, width).to(tl.float32)
    dy_i = load(rows(grad, grad_batch, grad_time, b, h, i, f, tuples), d, size, width).to(tl.float32)
    tl.store(delta + (b * num_heads + h) * num_queries + own, tl.sum(y_i * dy_i, 1), mask=own < num_queries)


@triton.jit(do_not_specialize=SIZES)
def window_attention_bwd_keys_kernel(
    q, q_batch, q_time, k, k_batch, k_time, v, v_batch, v_time,
    grad, grad_batch, grad_time, dk, dk_batch, dk_time, dv, dv_batch, dv_time,
    lse, delta, scores, num_batch, num_heads, num_queries, num_past, num_distances, ahead, num_columns, scale,
    size: tl.constexpr, tuples: tl.constexpr, width: tl.constexpr, phases: tl.constexpr,
    queries: tl.constexpr, keys: tl.constexpr,
):  # fmt: skip
    """Each program computes the gradients of ``keys`` keys and values of one head, from all queries that see them.

    It overwrites the scores with their gradients.
    """
    b, h = head_of(num_heads)
    first = tl.program_id(0) * keys
    j = first + tl.arange(0, keys)
    held = tl.minimum(j, num_past + num_queries - 1)
    d = tl.arange(0, width)
    f = features(d, num_heads, size, tuples)
    k_j = load(rows(k, k_batch, k_time, b, h, held, f, tuples), d, size, width)  # (key, d)
    v_j = load(rows(v, v_batch, v_time, b, h, held, f, tuples), d, size, width)
    lse += (b * num_heads + h) * num_queries
    delta += (b * num_heads + h) * num_queries

    begin = tl.maximum(first - num_past, 0) // queries
    end = tl.cdiv(tl.minimum(first + keys - 1 - num_past + num_distances, num_queries), queries)
    whole_begin = tl.minimum(tl.cdiv(tl.maximum(first + keys - 1 - num_past, 0), queries), end)
    whole_end = tl.maximum(tl.minimum(first - num_past + num_distances, num_queries) // queries, whole_begin)
    base2 = scale * LOG2_E
    dk_j = tl.zeros([keys, width], tl.float32)
    dv_j = tl.zeros([keys, width], tl.float32)
    for whole in tl.static_range(2):
        for n in range(whole_begin if whole else begin, whole_end if whole else end - whole_end + whole_begin):
            tile = n if whole or n < whole_begin else n + whole_end - whole_begin
            own = tile * queries + tl.arange(0, queries)
            i = own if whole else tl.minimum(own, num_queries - 1)
            is_query = (own < num_queries)[None, :]
            q_i = load(rows(q, q_batch, q_time, b, h, i, f, tuples), d, size, width)  # (query, d)
            dy_i = load(rows(grad, grad_batch, grad_time, b, h, i, f, tuples), d, size, width)
            key_0_at = scores_of_key_0(scores, b, h, i, num_batch, num_queries, ahead, num_columns, phases)
            scores_at = key_0_at[None, :] + j[:, None]
            is_column = has_column(i[None, :], j[:, None], ahead, num_columns, phases, 1) & is_query
            position = load_scores(scores_at, is_column, whole).to(tl.float32)
            s = tl.dot(k_j, tl.trans(q_i)) * base2 + position * base2  # (key, query)
            if not whole:
                s = tl.where(is_seen(i[None, :], j[:, None], num_past, num_distances) & is_query, s, -float("inf"))
            weights = tl.exp2(s - tl.load(lse + i)[None, :])
            dv_j = tl.dot(weights.to(dy_i.dtype), dy_i, dv_j)
            dweights = tl.dot(v_j, tl.trans(dy_i))
            ds = (weights * (dweights - tl.load(delta + i)[None, :]) * scale).to(q_i.dtype)
            tl.store(scores_at, ds, mask=None if whole else is_column)
            dk_j = tl.dot(ds, q_i, dk_j)

    is_here = (j < num_past + num_queries)[:, None] & (d < size)[None, :]
    tl.store(rows(dk, dk_batch, dk_time, b, h, j, f, tuples), dk_j.to(dk.dtype.element_ty), mask=is_here)
    tl.store(rows(dv, dv_batch, dv_time, b, h, j, f, tuples), dv_j.to(dv.dtype.element_ty), mask=is_here)


@triton.jit(do_not_specialize=SIZES)
def window_attention_bwd_queries_kernel(
    k, k_batch, k_time, dq, dq_batch, dq_time, scores,
    num_batch, num_heads, num_queries, num_past, num_distances, ahead, num_columns,
    size: tl.constexpr, tuples: tl.constexpr, width: tl.constexpr, phases: tl.constexpr,
    queries: tl.constexpr, keys: tl.constexpr,
):  # fmt: skip
    """Each program computes the gradients of ``queries`` queries of one head: gradients of their scores times keys.

    It writes zeros into the columns that belong to no key.
    """
    b, h = head_of(num_heads)
    start = tl.program_id(0) * queries
    i = start + tl.arange(0, queries)
    d = tl.arange(0, width)
    f = features(d, num_heads, size, tuples)
    k += b * k_batch + h * tuples
    key_0_at = scores_of_key_0(scores, b, h, i, num_batch, num_queries, ahead, num_columns, phases)
    is_row = i < tl.cdiv(num_queries, phases) * phases

    first = start - ahead * phases
    end = tl.cdiv(num_columns + queries - phases, keys)
    whole_begin = tl.cdiv(tl.maximum(start + queries - 1 + num_past - num_distances + 1 - first, -first), keys)
    whole_end = tl.maximum((start + num_past + 1 - first) // keys, whole_begin)
    if start + queries > num_queries:
        whole_begin = end
        whole_end = end
    dq_i = tl.zeros([queries, width], tl.float32)
    for whole in tl.static_range(2):
        for n in range(whole_begin if whole else 0, whole_end if whole else end - whole_end + whole_begin):
            tile = n if whole or n < whole_begin else n + whole_end - whole_begin
            j = first + tile * keys + tl.arange(0, keys)
            scores_at = key_0_at[:, None] + j[None, :]
            is_column = has_column(i[:, None], j[None, :], ahead, num_columns, phases, 0) & is_row[:, None]
            ds = load_scores(scores_at, is_column, whole)  # (query, key)
            if not whole:
                is_here = is_seen(i[:, None], j[None, :], num_past, num_distances) & (i < num_queries)[:, None]
                ds = tl.where(is_here, ds, 0)
                tl.store(scores_at, ds, mask=is_column)
            held = (j if whole else tl.minimum(tl.maximum(j, 0), num_past + num_queries - 1)).to(tl.int64)[:, None]
            dq_i = tl.dot(ds, load(k + held * k_time + f[None, :], d, size, width), dq_i)

    dq_at = rows(dq, dq_batch, dq_time, b, h, i, f, tuples)
    tl.store(dq_at, dq_i.to(dq.dtype.element_ty), mask=(i < num_queries)[:, None] & (d < size)[None, :])


@triton.jit
def head_of(num_heads):
    """The row of the batch and the head of this program."""
    row = tl.program_id(1).to(tl.int64)
    return row // num_heads, row % num_heads


@triton.jit
def features(d, num_heads, size: tl.constexpr, tuples: tl.constexpr):
    """The offsets of the first head's features. These are in pieces, because the order is (component, head, tuple)."""
    if tuples == size:
        return d
    return d // tuples * (num_heads * tuples) + d % tuples


@triton.jit
def rows(x, x_batch, x_time, b, h, i, f, tuples: tl.constexpr):
    """Pointers to the features of a head at the positions i: (position, d)."""
    return x + b * x_batch + h * tuples + i.to(tl.int64)[:, None] * x_time + f[None, :]


@triton.jit
def load(x_at, d, size: tl.constexpr, width: tl.constexpr):
    """Load the features at (position, d), with zeros after the last feature of the head."""
    if size == width:
        return tl.load(x_at)
    return tl.load(x_at, mask=(d < size)[None, :], other=0)


@triton.jit
def scores_of_key_0(scores, b, h, i, num_batch, num_queries, ahead, num_columns, phases: tl.constexpr):
    """Pointers to the score of key 0 in the row of each query. For query 0 it is in column ``8 * ahead``."""
    row = ((h * phases + i % phases) * num_batch + b) * tl.cdiv(num_queries, phases) + i // phases
    return scores + row * num_columns + (ahead - i // phases) * phases


@triton.jit
def has_column(i, j, ahead, num_columns, phases: tl.constexpr, axis: tl.constexpr):
    """Whether the row of a query has a column for a key. ``axis`` is the axis of queries.

    The answer is the same for eight aligned keys, and `tl.max_constancy` tells the compiler so.
    """
    column = j + (ahead - i // phases) * phases
    is_column = (column >= 0) & (column < num_columns)
    return tl.max_constancy(is_column, [phases, 1] if axis == 1 else [1, phases])


@triton.jit
def load_scores(scores_at, is_column, whole: tl.constexpr):
    """Load the scores of a tile, with zeros if there is no column for them."""
    if whole:
        return tl.load(scores_at)
    return tl.load(scores_at, mask=is_column, other=0)


@triton.jit
def is_seen(i, j, num_past, num_distances):
    """Whether key j is in the window of query i."""
    distance = i + num_past - j
    return (distance >= 0) & (distance < num_distances) & (j >= 0)
