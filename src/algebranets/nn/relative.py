"""Attention over a sliding window with Transformer-XL's relative positions, over an algebra.

Shapes: B batch, T queries, P positions in memory, S = P + T keys, h heads, d = A * tuples per head, D distances
(distance 0 is the query's own position).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.attention import join_heads, split_heads, tuples_per_head
from algebranets.nn.linear import Linear
from algebranets.ops.decode_attention import decode_attention
from algebranets.ops.window_attention import window_attention
from algebranets.product import auto

KERNELS = ("auto", "sdpa", "triton")


@dataclass
class KeyValueCache:
    """The keys and values of the last positions, with which `RelativeAttention` takes one token at a time.

    It is a ring: position p lies in slot p mod S, so that a new token overwrites the one that leaves the window. No
    shape ever changes, so a step can be captured in a CUDA graph. No gradients flow through a cache.
    `RelativeAttention.cache` makes one.

    Args:
        keys: The keys of each head; a head's d features are whole tuples.
        values: The values of each head.
        distances: The projected position vector of each distance, 0 first.
        position: How many positions there have been.

    >>> import torch, algebranets as an
    >>> attention = an.nn.RelativeAttention(64, num_heads=4, algebra=an.M2R)
    >>> cache = attention.cache(torch.randn(2, 7, 64), sinusoids(8, 64))
    >>> cache.keys.shape, cache.window, int(cache.position)
    (torch.Size([2, 4, 8, 16]), 7, 7)
    """

    keys: Float[Tensor, "batch heads slots d"]
    values: Float[Tensor, "batch heads slots d"]
    distances: Float[Tensor, "heads slots d"]
    position: Int[Tensor, ""]

    @property
    def window(self) -> int:
        """How many positions before its own a token sees."""
        return self.keys.shape[2] - 1


class RelativeAttention(nn.Module):
    """Causal multi-head attention over a sliding window with Transformer-XL's relative positions, over an algebra.

    The score of query i and key j is ``((q_i + u) k_j + (q_i + v) r_(i-j)) / sqrt(d)``: real inner products of
    flattened tuples, where r projects a position vector for each distance. A query sees its own position and as many
    positions before it as there are further distances. The five projections are algebra-linear and have no biases. u
    and v are arguments of `forward`, because Transformer-XL shares them between layers.

    While gradients are recorded, the T x S scores are not kept: the backward computes them again.

    Args:
        embed_dim: Features of the input and the output, counted in real numbers: a multiple of ``num_heads`` times the
            dimension of the algebra, so that each head holds whole tuples.
        num_heads: The number of heads.
        device: Where the parameters are.
        dtype: The dtype of the parameters.
        algebra: The algebra of the projections, or its name.
        lowering: How products over the algebra are computed; "auto" picks the fastest for device, shape and dtype.
        kernel: "sdpa" is torch's scaled_dot_product_attention with the relative term as its mask. "triton" is a kernel
            that skips what lies outside the window; it takes half precision on a GPU and heads of 16, 32, ..., 256
            features. "auto" is "triton" wherever that is possible.
        recompute: With "sdpa", False keeps the scores for the backward. That is faster and takes memory for B h T D
            more numbers.

    >>> import torch, algebranets as an
    >>> attention = an.nn.RelativeAttention(64, num_heads=4, algebra=an.M2R)
    >>> x, u, v = torch.randn(2, 5, 64), torch.zeros(64), torch.zeros(64)
    >>> attention(x, sinusoids(8, 64), u, v, memory=torch.randn(2, 7, 64)).shape
    torch.Size([2, 5, 64])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str,
        lowering: product.Lowering = "auto",
        kernel: str = "auto",
        recompute: bool = True,
    ) -> None:
        super().__init__()
        checks.one_of("kernel", kernel, KERNELS)
        self.algebra = algebras.get(algebra)
        self.embed_dim, self.num_heads, self.kernel, self.recompute = embed_dim, num_heads, kernel, recompute
        tuples_per_head(embed_dim, num_heads, self.algebra)
        options: dict[str, Any] = {"device": device, "dtype": dtype, "algebra": self.algebra, "lowering": lowering}
        self.q_proj, self.k_proj, self.v_proj, self.r_proj, self.out_proj = (
            Linear(embed_dim, embed_dim, bias=False, **options) for _ in range(5)
        )

    def forward(
        self,
        x: Float[Tensor, "batch time embed"],
        positions: Float[Tensor, "dist embed"] | None,
        u: Float[Tensor, " embed"],
        v: Float[Tensor, " embed"],
        memory: Float[Tensor, "batch past embed"] | KeyValueCache | None = None,
    ) -> Float[Tensor, "batch time embed"]:
        """Attend from ``x`` to ``x`` and to the positions before it.

        Args:
            x: Inputs, planar.
            positions: The vector of each distance, 0 first; with a cache, which holds them, None.
            u: The bias of the queries that meet keys.
            v: The bias of the queries that meet distances.
            memory: The inputs of earlier positions, fewer than there are distances, or a cache of their keys and
                values, with which ``x`` must hold one position.
        """
        if isinstance(memory, KeyValueCache):
            return self.out_proj(self._step(x, u, v, memory))
        if positions is None:
            raise ValueError("positions must be given, one vector for each distance, unless memory is a cache.")
        if memory is not None:
            _checked_past(memory, positions)
        context = x if memory is None else torch.cat([memory.to(x.dtype), x], dim=1)
        query, key, value = self.q_proj(x), self.k_proj(context), self.v_proj(context)
        distances = self.r_proj(positions[: context.shape[1]].to(x.dtype))
        return self.out_proj(self._attend(query, key, value, distances, u, v))

    def cache(
        self, memory: Float[Tensor, "batch past embed"], positions: Float[Tensor, "slots embed"]
    ) -> KeyValueCache:
        """The cache with which single tokens continue after ``memory``, the inputs of the last positions.

        ``positions`` holds a vector for each distance, 0 first. A token sees one position less before it.
        """
        keys, values = self._heads(self.k_proj(memory)), self._heads(self.v_proj(memory))
        past, slots = _checked_past(memory, positions), len(positions)
        room = (0, 0, 0, slots - past)
        distances = self._heads(self.r_proj(positions.to(memory.dtype)))
        position = torch.full((), past, dtype=torch.long, device=memory.device)
        return KeyValueCache(F.pad(keys, room), F.pad(values, room), distances, position)

    def _attend(
        self,
        query: Float[Tensor, "batch time embed"],
        key: Float[Tensor, "batch keys embed"],
        value: Float[Tensor, "batch keys embed"],
        distances: Float[Tensor, "dist embed"],
        u: Float[Tensor, " embed"],
        v: Float[Tensor, " embed"],
    ) -> Float[Tensor, "batch time embed"]:
        """Attention of many positions at once."""
        if self._takes_kernel(query):
            content, position = (query + bias.to(query.dtype) for bias in (u, v))
            return window_attention((content, position), key, value, distances, self.num_heads, dim=self.algebra.dim)
        queries, *biases = self._queries(query, u, v)
        arguments = (queries, self._heads(key), self._heads(value), self._heads(distances), *biases)
        if self.recompute and torch.is_grad_enabled() and not torch.jit.is_tracing():  # a trace keeps no recomputation
            y = checkpoint(_attend_by_sdpa, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            y = _attend_by_sdpa(*arguments)
        return join_heads(y, self.algebra)

    def _step(
        self, x: Float[Tensor, "batch 1 embed"], u: Tensor, v: Tensor, cache: KeyValueCache
    ) -> Float[Tensor, "batch 1 embed"]:
        """One token; its key and value overwrite those that leave the window."""
        if x.shape[1] != 1:
            raise ValueError(f"with a cache, x must hold one position; got {x.shape[1]}.")
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if auto.takes_decode_kernels(x):
            token, rings = (query, key, value), (cache.keys, cache.values)
            return decode_attention(token, (u, v), rings, cache.distances, cache.position, dim=self.algebra.dim)
        y = _attend_by_cache(*self._queries(query, u, v), self._heads(key), self._heads(value), cache)
        return join_heads(y, self.algebra)

    def _takes_kernel(self, query: Tensor) -> bool:
        """Whether the queries go through `window_attention`."""
        takes = self.kernel != "sdpa" and auto.takes_window_attention(query, self.num_heads)
        if self.kernel == "triton" and not takes:
            raise ValueError(
                'kernel="triton" takes float16 or bfloat16 on a GPU with triton, in heads of 16, 32, ..., 256 numbers; '
                f"got {query.dtype} on {query.device} in heads of {self.embed_dim // self.num_heads}. "
                'Use kernel="auto", which takes "sdpa" in such cases.'
            )
        return takes

    def _queries(self, query: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The queries and both biases, each split into heads."""
        content_bias, position_bias = (self._heads(bias[None].to(query.dtype)) for bias in (u, v))
        return self._heads(query), content_bias, position_bias

    def _heads(self, x: Float[Tensor, "*batch time embed"]) -> Float[Tensor, "*batch heads time d"]:
        return split_heads(x, self.num_heads, self.algebra)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, num_heads={self.num_heads}, algebra={self.algebra.name}"


def _checked_past(memory: Tensor, positions: Tensor) -> int:
    """How many positions are in memory; an error unless each of them has a distance."""
    past = memory.shape[1]
    if past >= len(positions):
        raise ValueError(
            f"memory must hold fewer positions than there are distances, {len(positions)}; got {past}. "
            "Keep the last ones only."
        )
    return past


def sinusoids(
    num_distances: int, dim: int, device: torch.device | str | None = None, farthest: int | None = None
) -> Float[Tensor, "dist dim"]:
    """Transformer-XL's position vectors of the distances 0, 1, ...: sines, then cosines, of falling frequencies.

    Args:
        num_distances: The number of vectors.
        dim: The size of a vector, in real numbers.
        device: Where they are.
        farthest: Distances beyond this one get its vector.

    >>> sinusoids(8, 64).shape
    torch.Size([8, 64])
    """
    frequencies = 10000 ** -(torch.arange(0, dim, 2, device=device) / dim)
    distances = torch.arange(num_distances, device=device)
    if farthest is not None:
        distances = distances.clamp(max=farthest)
    angles = distances[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :dim]


def _attend_by_sdpa(
    q: Float[Tensor, "batch heads time d"],
    k: Float[Tensor, "batch heads keys d"],
    v: Float[Tensor, "batch heads keys d"],
    r: Float[Tensor, "heads dist d"],
    content_bias: Float[Tensor, "heads 1 d"],
    position_bias: Float[Tensor, "heads 1 d"],
) -> Float[Tensor, "batch heads time d"]:
    """torch's scaled_dot_product_attention, with the relative term as its additive mask."""
    time, keys, reach = q.shape[2], k.shape[2], r.shape[1]
    scores = (q + position_bias) @ r.flip(1).mT / math.sqrt(q.shape[-1])  # farthest distance first
    # Row i belongs i columns further right. If each row is padded by T columns and the result is read in rows that are
    # one column shorter, each row moves one column more than the one above. The padding is -inf: it masks the window.
    wide = time + reach - 1
    bias = F.pad(scores, (0, time), value=-math.inf).flatten(2)[..., : time * wide].unflatten(2, (time, wide))
    return F.scaled_dot_product_attention(q + content_bias, k, v, attn_mask=bias[..., wide - keys :])


def _attend_by_cache(
    q: Float[Tensor, "batch heads 1 d"],
    content_bias: Float[Tensor, "heads 1 d"],
    position_bias: Float[Tensor, "heads 1 d"],
    k: Float[Tensor, "batch heads 1 d"],
    v: Float[Tensor, "batch heads 1 d"],
    cache: KeyValueCache,
) -> Float[Tensor, "batch heads 1 d"]:
    """One token after those in the cache, in torch's operations: what `decode_attention` does in one launch."""
    slots = cache.window + 1
    slot = (cache.position % slots)[None]
    for ring, new in ((cache.keys, k), (cache.values, v)):
        ring.index_copy_(2, slot, new.detach().to(ring.dtype))
    distance = (cache.position - torch.arange(slots, device=q.device)) % slots
    scores = ((q + position_bias) @ cache.distances.mT).index_select(-1, distance) / math.sqrt(q.shape[-1])
    bias = scores.masked_fill(distance > cache.position, -math.inf)
    cache.position += 1
    return F.scaled_dot_product_attention(q + content_bias, cache.keys, cache.values, attn_mask=bias)
