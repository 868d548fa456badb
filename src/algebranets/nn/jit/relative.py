"""Attention over a window: softmax of content scores, made here, and position scores, read; and its gradients.

Position scores are (heads and phases, batch and rows, columns) as `nn.windowed` lays them out: key j of query i stands
in column ``nearest - past + j - i // 8 * 8``. A tile is *whole* if each of its queries sees each of its keys; only
others are masked. So kernels loop twice: over the tiles before and behind the whole ones, then over those.

Features are read and written as linear layers have them, (component, head, tuple): a head lies in A pieces.

Shapes: B batch, T queries, S keys, h heads, d = A * tuples features of a head, E = h * d, D distances.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from algebranets.nn.windowed import PHASES
from algebranets.product.kernels.jit import ceil_div, next_power_of_2

#: Exponentials are powers of 2.
LOG2_E = tl.constexpr(1.4426950408889634)
#: Arguments that change from text to text and align nothing: a kernel is not compiled again for them.
SIZES = ["batch", "heads", "past", "distances", "ahead"]


class Tile(NamedTuple):
    """What a program has at a time: queries and keys."""

    queries: int
    keys: int
    num_warps: int
    num_stages: int


#: By the largest head they are for. `backward` loops over queries, the others over keys.
FORWARD = {64: Tile(64, 64, 4, 3), 128: Tile(128, 32, 4, 3), 256: Tile(128, 32, 8, 2)}
BACKWARD = {64: Tile(64, 64, 4, 3), 128: Tile(32, 64, 4, 2), 256: Tile(32, 64, 8, 2)}
QUERIES = {64: Tile(64, 64, 4, 4), 128: Tile(64, 64, 4, 4), 256: Tile(128, 64, 8, 3)}


def choose(tiles: dict[int, Tile], size: int) -> Tile:
    """The tile for heads of ``size`` features."""
    return next(tile for largest, tile in tiles.items() if size <= largest)


def forward(
    q: Float[Tensor, "batch time embed"],
    k: Float[Tensor, "batch keys embed"],
    v: Float[Tensor, "batch keys embed"],
    scores: Float[Tensor, "heads_phases batch_rows columns"],
    heads: int,
    tuples: int,
    num_distances: int,
    nearest: int,
    tile: Tile | None = None,
) -> tuple[Float[Tensor, "batch time embed"], Float[Tensor, "batch heads time"]]:
    """The output, and for `backward` the logarithm of each query's sum, to base 2."""
    batch, time, embed = q.shape
    size = embed // heads
    tile = tile or choose(FORWARD, size)
    out, lse = q.new_empty(q.shape), q.new_empty(batch, heads, time, dtype=torch.float32)
    with torch.cuda.device_of(q):
        relative_fwd_kernel[ceil_div(time, tile.queries), batch * heads](
            *_rows(q), *_rows(k), *_rows(v), *_rows(out), lse, scores,
            *_sizes(q, k, scores, heads, num_distances, nearest), **_options(tile, size, tuples),
        )  # fmt: skip
    return out, lse


def backward(
    grad: Float[Tensor, "batch time embed"],
    q: Float[Tensor, "batch time embed"],
    k: Float[Tensor, "batch keys embed"],
    v: Float[Tensor, "batch keys embed"],
    scores: Float[Tensor, "heads_phases batch_rows columns"],
    out: Float[Tensor, "batch time embed"],
    lse: Float[Tensor, "batch heads time"],
    tuples: int,
    num_distances: int,
    nearest: int,
    tile: Tile | None = None,
    queries_tile: Tile | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``q``, ``k`` and ``v``; ``scores`` become their own, zero where there is no key."""
    batch, heads, time = lse.shape
    size = q.shape[2] // heads
    tile, queries_tile = tile or choose(BACKWARD, size), queries_tile or choose(QUERIES, size)
    delta = torch.empty_like(lse)
    grad_q, grad_k, grad_v = (x.new_empty(x.shape) for x in (q, k, v))
    sizes = _sizes(q, k, scores, heads, num_distances, nearest)
    with torch.cuda.device_of(q):
        relative_delta_kernel[ceil_div(time, queries_tile.queries), batch * heads](
            *_rows(out), *_rows(grad), delta, heads, time, size, tuples, next_power_of_2(size), queries_tile.queries,
        )  # fmt: skip
        relative_bwd_kernel[ceil_div(k.shape[1], tile.keys), batch * heads](
            *_rows(q), *_rows(k), *_rows(v), *_rows(grad), *_rows(grad_k), *_rows(grad_v), lse, delta, scores,
            *sizes, **_options(tile, size, tuples),
        )  # fmt: skip
        relative_bwd_queries_kernel[ceil_div(time, queries_tile.queries), batch * heads](
            *_rows(k), *_rows(grad_q), scores, *sizes[:-1], **_options(queries_tile, size, tuples)
        )
    return grad_q, grad_k, grad_v


def _rows(x: Float[Tensor, "batch time embed"]) -> tuple[Tensor | int, ...]:
    """A tensor and how far its rows are apart; if their numbers are not side by side, one in which they are."""
    x = x if x.stride(2) == 1 else x.contiguous()
    return x, *x.stride()[:2]


def _sizes(
    q: Tensor, k: Tensor, scores: Tensor, heads: int, num_distances: int, nearest: int
) -> tuple[int | float, ...]:
    batch, time, embed = q.shape
    past = k.shape[1] - time
    assert (nearest - past) % PHASES == 0, f"rows must begin at keys that are aligned: {nearest=}, {past=}"
    scale = (embed // heads) ** -0.5
    return batch, heads, time, past, num_distances, (nearest - past) // PHASES, scores.shape[2], scale


def _options(tile: Tile, size: int, tuples: int) -> dict[str, Any]:
    return {"size": size, "tuples": tuples, "width": next_power_of_2(size), "phases": PHASES, **tile._asdict()}


@triton.jit(do_not_specialize=SIZES)
def relative_fwd_kernel(
    q, q_batch, q_time, k, k_batch, k_time, v, v_batch, v_time,
    out, out_batch, out_time, lse, scores,
    batch, heads, time, past, distances, ahead, columns, scale,
    size: tl.constexpr, tuples: tl.constexpr, width: tl.constexpr, phases: tl.constexpr,
    queries: tl.constexpr, keys: tl.constexpr,
):  # fmt: skip
    """A program: some queries of one head, and all keys they see."""
    b, h = head_of(heads)
    start = (tl.num_programs(0) - 1 - tl.program_id(0)) * queries  # the last ones first: they may see the most
    last = tl.minimum(start + queries, time) - 1
    own = start + tl.arange(0, queries)
    i = tl.minimum(own, last)  # rows beyond the end are the last one again
    d = tl.arange(0, width)
    f = features(d, heads, size, tuples)
    q_here = load(rows(q, q_batch, q_time, b, h, i, f, tuples), d, size, width)
    k += b * k_batch + h * tuples
    v += b * v_batch + h * tuples
    line = lines(scores, b, h, i, batch, time, ahead, columns, phases)

    # Tiles of keys count from the first query's farthest column.
    first = start - ahead * phases
    begin = tl.maximum(-first, 0) // keys
    whole_begin = tl.cdiv(tl.maximum(last + past - distances + 1 - first, -first), keys)
    whole_end = tl.maximum((start + past + 1 - first) // keys, whole_begin)
    end = tl.cdiv(last + past + 1 - first, keys)
    top = tl.full([queries], -1e30, tl.float32)
    total = tl.zeros([queries], tl.float32)
    sums = tl.zeros([queries, width], tl.float32)
    scale *= LOG2_E
    for whole in tl.static_range(2):
        for n in range(whole_begin if whole else begin, whole_end if whole else end - whole_end + whole_begin):
            tile = n if whole or n < whole_begin else n + whole_end - whole_begin
            j = first + tile * keys + tl.arange(0, keys)
            held = (j if whole else tl.minimum(tl.maximum(j, 0), past + time - 1)).to(tl.int64)[:, None]
            k_here = load(k + held * k_time + f[None, :], d, size, width)
            v_here = load(v + held * v_time + f[None, :], d, size, width)
            inside = within(i[:, None], j[None, :], ahead, columns, phases, 0)
            position = load_scores(line[:, None] + j[None, :], inside, whole).to(tl.float32)
            # Scaled one by one: a sum would start the product, and what starts one is not loaded ahead.
            s = tl.dot(q_here, tl.trans(k_here)) * scale + position * scale
            if not whole:
                s = tl.where(sees(i[:, None], j[None, :], past, distances), s, -float("inf"))
            highest = tl.maximum(top, tl.max(s, 1))
            weights, kept = tl.exp2(s - highest[:, None]), tl.exp2(top - highest)
            total = total * kept + tl.sum(weights, 1)
            sums = tl.dot(weights.to(v_here.dtype), v_here, sums * kept[:, None])
            top = highest

    result = (sums / total[:, None]).to(out.dtype.element_ty)
    at = rows(out, out_batch, out_time, b, h, own, f, tuples)
    tl.store(at, result, mask=(own < time)[:, None] & (d < size)[None, :])
    tl.store(lse + (b * heads + h) * time + own, top + tl.log2(total), mask=own < time)


@triton.jit(do_not_specialize=["heads"])
def relative_delta_kernel(
    out, out_batch, out_time, grad, grad_batch, grad_time, delta,
    heads, time, size: tl.constexpr, tuples: tl.constexpr, width: tl.constexpr, queries: tl.constexpr,
):  # fmt: skip
    """A program: the inner products of some queries' outputs with their gradients."""
    b, h = head_of(heads)
    own = tl.program_id(0) * queries + tl.arange(0, queries)
    i, d = tl.minimum(own, time - 1), tl.arange(0, width)
    f = features(d, heads, size, tuples)
    y = load(rows(out, out_batch, out_time, b, h, i, f, tuples), d, size, width).to(tl.float32)
    dy = load(rows(grad, grad_batch, grad_time, b, h, i, f, tuples), d, size, width).to(tl.float32)
    tl.store(delta + (b * heads + h) * time + own, tl.sum(y * dy, 1), mask=own < time)


@triton.jit(do_not_specialize=SIZES)
def relative_bwd_kernel(
    q, q_batch, q_time, k, k_batch, k_time, v, v_batch, v_time,
    grad, grad_batch, grad_time, dk, dk_batch, dk_time, dv, dv_batch, dv_time,
    lse, delta, scores, batch, heads, time, past, distances, ahead, columns, scale,
    size: tl.constexpr, tuples: tl.constexpr, width: tl.constexpr, phases: tl.constexpr,
    queries: tl.constexpr, keys: tl.constexpr,
):  # fmt: skip
    """A program: some keys of one head, and all queries that see them. Tiles are (key, query)."""
    b, h = head_of(heads)
    first = tl.program_id(0) * keys
    j = first + tl.arange(0, keys)
    held = tl.minimum(j, past + time - 1)
    d = tl.arange(0, width)
    f = features(d, heads, size, tuples)
    k_here = load(rows(k, k_batch, k_time, b, h, held, f, tuples), d, size, width)
    v_here = load(rows(v, v_batch, v_time, b, h, held, f, tuples), d, size, width)
    lse += (b * heads + h) * time
    delta += (b * heads + h) * time

    begin = tl.maximum(first - past, 0) // queries
    end = tl.cdiv(tl.minimum(first + keys - 1 - past + distances, time), queries)
    whole_begin = tl.minimum(tl.cdiv(tl.maximum(first + keys - 1 - past, 0), queries), end)
    whole_end = tl.maximum(tl.minimum(first - past + distances, time) // queries, whole_begin)
    base2 = scale * LOG2_E
    dk_here = tl.zeros([keys, width], tl.float32)
    dv_here = tl.zeros([keys, width], tl.float32)
    for whole in tl.static_range(2):
        for n in range(whole_begin if whole else begin, whole_end if whole else end - whole_end + whole_begin):
            tile = n if whole or n < whole_begin else n + whole_end - whole_begin
            own = tile * queries + tl.arange(0, queries)
            i = own if whole else tl.minimum(own, time - 1)
            q_here = load(rows(q, q_batch, q_time, b, h, i, f, tuples), d, size, width)
            dy = load(rows(grad, grad_batch, grad_time, b, h, i, f, tuples), d, size, width)
            at = lines(scores, b, h, i, batch, time, ahead, columns, phases)[None, :] + j[:, None]
            inside = within(i[None, :], j[:, None], ahead, columns, phases, 1) & (own < time)[None, :]
            position = load_scores(at, inside, whole).to(tl.float32)
            s = tl.dot(k_here, tl.trans(q_here)) * base2 + position * base2
            if not whole:
                s = tl.where(sees(i[None, :], j[:, None], past, distances) & (own < time)[None, :], s, -float("inf"))
            weights = tl.exp2(s - tl.load(lse + i)[None, :])
            dv_here = tl.dot(weights.to(dy.dtype), dy, dv_here)
            dweights = tl.dot(v_here, tl.trans(dy))
            ds = (weights * (dweights - tl.load(delta + i)[None, :]) * scale).to(q_here.dtype)
            tl.store(at, ds, mask=None if whole else inside)
            dk_here = tl.dot(ds, q_here, dk_here)

    is_here = (j < past + time)[:, None] & (d < size)[None, :]
    tl.store(rows(dk, dk_batch, dk_time, b, h, j, f, tuples), dk_here.to(dk.dtype.element_ty), mask=is_here)
    tl.store(rows(dv, dv_batch, dv_time, b, h, j, f, tuples), dv_here.to(dv.dtype.element_ty), mask=is_here)


@triton.jit(do_not_specialize=SIZES)
def relative_bwd_queries_kernel(
    k, k_batch, k_time, dq, dq_batch, dq_time, scores,
    batch, heads, time, past, distances, ahead, columns,
    size: tl.constexpr, tuples: tl.constexpr, width: tl.constexpr, phases: tl.constexpr,
    queries: tl.constexpr, keys: tl.constexpr,
):  # fmt: skip
    """A program: some queries of one head. Their scores' gradients times keys; those of no key become zero."""
    b, h = head_of(heads)
    start = tl.program_id(0) * queries
    i = start + tl.arange(0, queries)
    d = tl.arange(0, width)
    f = features(d, heads, size, tuples)
    k += b * k_batch + h * tuples
    line = lines(scores, b, h, i, batch, time, ahead, columns, phases)
    is_line = i < tl.cdiv(time, phases) * phases

    first = start - ahead * phases
    end = tl.cdiv(columns + queries - phases, keys)
    whole_begin = tl.cdiv(tl.maximum(start + queries - 1 + past - distances + 1 - first, -first), keys)
    whole_end = tl.maximum((start + past + 1 - first) // keys, whole_begin)
    if start + queries > time:
        whole_begin = end
        whole_end = end
    sums = tl.zeros([queries, width], tl.float32)
    for whole in tl.static_range(2):
        for n in range(whole_begin if whole else 0, whole_end if whole else end - whole_end + whole_begin):
            tile = n if whole or n < whole_begin else n + whole_end - whole_begin
            j = first + tile * keys + tl.arange(0, keys)
            at = line[:, None] + j[None, :]
            inside = within(i[:, None], j[None, :], ahead, columns, phases, 0) & is_line[:, None]
            ds = load_scores(at, inside, whole)
            if not whole:
                ds = tl.where(sees(i[:, None], j[None, :], past, distances) & (i < time)[:, None], ds, 0)
                tl.store(at, ds, mask=inside)
            held = (j if whole else tl.minimum(tl.maximum(j, 0), past + time - 1)).to(tl.int64)[:, None]
            sums = tl.dot(ds, load(k + held * k_time + f[None, :], d, size, width), sums)

    at = rows(dq, dq_batch, dq_time, b, h, i, f, tuples)
    tl.store(at, sums.to(dq.dtype.element_ty), mask=(i < time)[:, None] & (d < size)[None, :])


@triton.jit
def head_of(heads):
    """Text and head of this program."""
    row = tl.program_id(1).to(tl.int64)
    return row // heads, row % heads


@triton.jit
def features(d, heads, size: tl.constexpr, tuples: tl.constexpr):
    """Where a position has the features of its first head: a piece for each component, all heads' tuples apart."""
    if tuples == size:
        return d
    return d // tuples * (heads * tuples) + d % tuples


@triton.jit
def rows(x, of_batch, of_time, b, h, at, f, tuples: tl.constexpr):
    """Pointers to the features of a head in some positions."""
    return x + b * of_batch + h * tuples + at.to(tl.int64)[:, None] * of_time + f[None, :]


@triton.jit
def load(at, d, size: tl.constexpr, width: tl.constexpr):
    """Features of some positions, zeros behind the last."""
    if size == width:
        return tl.load(at)
    return tl.load(at, mask=(d < size)[None, :], other=0)


@triton.jit
def lines(scores, b, h, i, batch, time, ahead, columns, phases: tl.constexpr):
    """Where the scores of each query would have key 0: ``ahead`` eights before the first query's column 0."""
    line = ((h * phases + i % phases) * batch + b) * tl.cdiv(time, phases) + i // phases
    return scores + line * columns + (ahead - i // phases) * phases


@triton.jit
def within(i, j, ahead, columns, phases: tl.constexpr, axis: tl.constexpr):
    """Whether a query's row has a place for a key, which eight aligned keys share; ``axis`` is that of queries."""
    column = j + (ahead - i // phases) * phases
    inside = (column >= 0) & (column < columns)
    return tl.max_constancy(inside, [phases, 1] if axis == 1 else [1, phases])


@triton.jit
def load_scores(at, inside, whole: tl.constexpr):
    """Scores of a tile, zeros where there is no place for them."""
    if whole:
        return tl.load(at)
    return tl.load(at, mask=inside, other=0)


@triton.jit
def sees(i, j, past, distances):
    """Whether the window of a query has a key."""
    distance = i + past - j
    return (distance >= 0) & (distance < distances) & (j >= 0)
