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
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.layer import REQUIRED, Layer
from algebranets.nn.linear import Linear, is_plain_linear
from algebranets.ops.decode_attention import decode_attention
from algebranets.ops.window_attention import window_attention
from algebranets.product import auto

KERNELS = ("auto", "sdpa", "triton")


@dataclass
class KeyValueCache:
    """The keys and values of the last positions, with which `RelativeAttention` processes one token at a time.

    The cache is a ring buffer: position p is stored in slot p modulo the number of slots, so a new token overwrites the
    one that leaves the window. Shapes never change, so a step can be captured in a CUDA graph. No gradients flow
    through a cache. `RelativeAttention.cache` makes one.

    Args:
        keys: The keys of each head. The d features of a head are whole tuples.
        values: The values of each head.
        distances: The projected position vector of each distance, starting with distance 0.
        position: The number of positions so far.

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
        """The number of earlier positions that a token sees."""
        return self.keys.shape[2] - 1


class RelativeAttention(Layer):
    """Causal multi-head attention over a sliding window with Transformer-XL's relative positions, over an algebra.

    The score of query i and key j is ``((q_i + u) k_j + (q_i + v) r_(i-j)) / sqrt(d)``. The products are real inner
    products of flattened tuples, and r_n is the projected position vector of distance n. With D distances, a query sees
    its own position and the D - 1 positions before it. The five projections are linear over the algebra and have no
    biases. u and v are arguments of `forward`, because Transformer-XL shares them between layers.

    By default the T x S scores are not kept for the backward pass, which computes them again.

    Args:
        embed_dim: The number of real features of the input and the output, a multiple of ``num_heads`` times the
            algebra's dim, so that each head holds whole tuples.
        num_heads: The number of heads.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        algebra: The algebra of the projections, or its name.
        lowering: How products are computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.
        kernel: "sdpa" is torch's scaled_dot_product_attention with the relative term as its mask. "triton" is a kernel
            that skips positions outside the window. It needs half precision, a GPU, and heads with a multiple of 16
            features, at most 256. "auto" is "triton" if possible, else "sdpa".
        recompute: With "sdpa", whether the backward pass computes the scores again. False is faster and keeps B h T D
            more numbers in memory.

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
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
        kernel: str = "auto",
        recompute: bool = True,
    ) -> None:
        super().__init__()
        checks.one_of("kernel", kernel, KERNELS)
        self.algebra = self.resolve(algebra)
        self.embed_dim, self.num_heads, self.kernel, self.recompute = embed_dim, num_heads, kernel, recompute
        product.tuples_per_head(embed_dim, num_heads, self.algebra)
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
        """Attend from ``x`` to itself and to earlier positions.

        Args:
            x: The inputs.
            positions: The position vector of each distance, starting with distance 0. It may be None with a cache,
                which has its own.
            u: The bias added to queries before their products with keys.
            v: The bias added to queries before their products with distances.
            memory: The inputs at earlier positions, fewer than there are distances; or a cache of their keys and
                values. With a cache, ``x`` must hold one position.
        """
        if isinstance(memory, KeyValueCache):
            return self.out_proj(self._step(x, u, v, memory))
        if positions is None:
            raise ValueError("positions must be given, one vector for each distance, unless memory is a cache.")
        if memory is not None:
            _checked_past(memory, positions)
        context = x if memory is None else torch.cat([memory.to(x.dtype), x], dim=1)
        positions = positions[: context.shape[1]].to(x.dtype)
        options = {}
        if self._keeps_stored(x):
            past, options = context.shape[1] - x.shape[1], {"stored": True}
            context, positions, u, v = (product.change_inputs(t, self.algebra) for t in (context, positions, u, v))
            x = context[:, past:]
        query, key = self.q_proj(x, **options), self.k_proj(context, **options)
        value, distances = self.v_proj(context, **options), self.r_proj(positions, **options)
        y = self.out_proj(self._attend(query, key, value, distances, u, v), **options)
        return product.change_outputs(y, self.algebra) if options else y

    def _keeps_stored(self, x: Tensor) -> bool:
        """Whether all activations between the input and the output stay in the basis in which weights are stored.

        Scores are inner products, which are the same in both bases.
        """
        projections = (self.q_proj, self.k_proj, self.v_proj, self.r_proj, self.out_proj)
        are_plain = all(is_plain_linear(projection, self.algebra) for projection in projections)
        return are_plain and product.keeps_stored(x, self.algebra, self.out_proj.lowering)

    def cache(
        self, memory: Float[Tensor, "batch past embed"], positions: Float[Tensor, "slots embed"]
    ) -> KeyValueCache:
        """Return a cache with which single tokens continue after ``memory``.

        ``memory`` holds the inputs at the last positions, and ``positions`` a vector for each distance, starting with
        distance 0. With D distances, a token sees the D - 1 positions before it.
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
        if self.recompute and torch.is_grad_enabled() and not torch.jit.is_tracing():  # a trace cannot recompute
            y = checkpoint(_attend_by_sdpa, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            y = _attend_by_sdpa(*arguments)
        return product.join_heads(y, algebra=self.algebra)

    def _step(
        self, x: Float[Tensor, "batch 1 embed"], u: Tensor, v: Tensor, cache: KeyValueCache
    ) -> Float[Tensor, "batch 1 embed"]:
        """Attend from one token. Its key and value overwrite those that leave the window."""
        if x.shape[1] != 1:
            raise ValueError(f"with a cache, x must hold one position; got {x.shape[1]}.")
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if auto.takes_decode_kernels(x):
            token, rings = (query, key, value), (cache.keys, cache.values)
            return decode_attention(token, (u, v), rings, cache.distances, cache.position, dim=self.algebra.dim)
        y = _attend_by_cache(*self._queries(query, u, v), self._heads(key), self._heads(value), cache)
        return product.join_heads(y, algebra=self.algebra)

    def _takes_kernel(self, query: Tensor) -> bool:
        """Whether the queries go through `window_attention`."""
        takes = self.kernel != "sdpa" and auto.takes_window_attention(query, self.num_heads)
        if self.kernel == "triton" and not takes:
            raise ValueError(
                'kernel="triton" takes float16 or bfloat16 on a GPU with triton, in heads of a multiple of 16 numbers, '
                f"at most 256; got {query.dtype} on {query.device} in heads of {self.embed_dim // self.num_heads}. "
                'Use kernel="auto", which takes "sdpa" in such cases.'
            )
        return takes

    def _queries(self, query: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The queries and both biases, each split into heads."""
        content_bias, position_bias = (self._heads(bias[None].to(query.dtype)) for bias in (u, v))
        return self._heads(query), content_bias, position_bias

    def _heads(self, x: Float[Tensor, "*batch time embed"]) -> Float[Tensor, "*batch heads time d"]:
        return product.split_heads(x, self.num_heads, algebra=self.algebra)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, num_heads={self.num_heads}, algebra={self.algebra.name}"


def _checked_past(memory: Tensor, positions: Tensor) -> int:
    """Return the number of positions in memory. Raise an error if some of them have no distance."""
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
        device: The device of the vectors.
        farthest: The largest distance with its own vector. Larger distances get the same vector. None for no limit.

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
    """Attend from one token to the cache with torch's operations. `decode_attention` does the same in one launch."""
    slots = cache.window + 1
    slot = (cache.position % slots)[None]
    for ring, new in ((cache.keys, k), (cache.values, v)):
        ring.index_copy_(2, slot, new.detach().to(ring.dtype))
    distance = (cache.position - torch.arange(slots, device=q.device)) % slots
    scores = ((q + position_bias) @ cache.distances.mT).index_select(-1, distance) / math.sqrt(q.shape[-1])
    bias = scores.masked_fill(distance > cache.position, -math.inf)
    cache.position += 1
    return F.scaled_dot_product_attention(q + content_bias, cache.keys, cache.values, attn_mask=bias)
