"""Attention over a sliding window with Transformer-XL's relative positions, over an algebra.

Shapes: B batch, T queries, P positions in memory, S = P + T keys, h heads, d = A * tuples per head, D distances
(distance 0 is the query's own position).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from algebranets import algebra as algebras
from algebranets import product
from algebranets.algebra import Algebra
from algebranets.nn import decoding, windowed
from algebranets.nn.attention import join_heads, split_heads, tuples_per_head
from algebranets.nn.linear import Linear

KERNELS = ("auto", "sdpa", "triton")


@dataclass
class KeyValueCache:
    """Keys and values of the last positions, a ring that `RelativeAttention` writes into, one token a call.

    Position p lies in slot p mod S. No shape ever changes, so a step can be captured as a graph. Gradients do not go
    through it.
    """

    keys: Float[Tensor, "batch heads slots d"]
    values: Float[Tensor, "batch heads slots d"]
    #: The projected position vector of each distance, 0 first.
    distances: Float[Tensor, "heads slots d"]
    #: How many positions there have been.
    position: Int[Tensor, ""]
    #: Zeros between steps: a kernel counts there which of its programs are done, first for each head, then heads.
    arrivals: Int[Tensor, " counters"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        batch, heads = self.keys.shape[:2]
        self.arrivals = self.position.new_zeros(batch * heads + 1, dtype=torch.int32)

    @property
    def window(self) -> int:
        """How many positions before its own a token sees."""
        return self.keys.shape[2] - 1


class RelativeAttention(nn.Module):
    """Causal multi-head attention with Transformer-XL's relative positions, over an algebra.

    The score of query i and key j is ``((q_i + u) k_j + (q_i + v) r_(i-j)) / sqrt(d)``, real inner products of
    flattened tuples; r projects a position vector for each distance. A query sees its own position and as many before
    it as ``positions`` has further distances, those in ``memory`` included. There are no biases; u and v, which
    Transformer-XL shares between layers, are the caller's.

    >>> import torch, algebranets as an
    >>> attention = an.nn.RelativeAttention(64, num_heads=4, algebra=an.M2R)
    >>> x, u, v = torch.randn(2, 5, 64), torch.zeros(64), torch.zeros(64)
    >>> attention(x, sinusoids(8, 64), u, v, memory=torch.randn(2, 7, 64)).shape
    torch.Size([2, 5, 64])

    ``kernel`` is "sdpa" (torch's scaled_dot_product_attention with the relative term as its mask), "triton" (kernels of
    ours: half precision on a GPU, heads of 16, 32, ..., 256 numbers) or "auto", which is "triton" wherever it can be.
    While gradients are recorded, nothing of size T x S is kept: it is computed again in the backward. With "sdpa",
    ``recompute=False`` keeps it, which is faster and takes B h T D numbers more.
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
        if kernel not in KERNELS:
            raise ValueError(f"kernel must be one of {', '.join(KERNELS)}; got {kernel!r}.")
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
        """Attend from ``x`` to ``x`` and to what came before it.

        ``memory`` holds the inputs of earlier positions, or a cache of their keys and values; the cache takes one token
        at a time and knows its distances, so that ``positions`` may be None.
        """
        if isinstance(memory, KeyValueCache):
            return self.out_proj(self._step(x, u, v, memory))
        if positions is None:
            raise ValueError("positions must be given, one vector a distance, unless memory is a cache.")
        if memory is not None:
            _checked_past(memory, positions)
        context = x if memory is None else torch.cat([memory.to(x.dtype), x], dim=1)
        query, key, value = self.q_proj(x), self.k_proj(context), self.v_proj(context)
        distances = self.r_proj(positions[: context.shape[1]].to(x.dtype))
        return self.out_proj(self._attend(query, key, value, distances, u, v))

    def cache(
        self, memory: Float[Tensor, "batch past embed"], positions: Float[Tensor, "slots embed"]
    ) -> KeyValueCache:
        """The cache with which single tokens go on behind ``memory`` (the inputs of the last positions)."""
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
        """Many positions at once."""
        if self._takes_kernel(query):
            content, position = (query + bias.to(query.dtype) for bias in (u, v))
            return windowed.attend(content, position, key, value, distances, self.num_heads, self.algebra.dim)
        queries, *biases = self._queries(query, u, v)
        arguments = (queries, self._heads(key), self._heads(value), self._heads(distances), *biases)
        if self.recompute and torch.is_grad_enabled():
            y = checkpoint(_attend_by_sdpa, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            y = _attend_by_sdpa(*arguments)
        return join_heads(y, self.algebra)

    def _step(
        self, x: Float[Tensor, "batch 1 embed"], u: Tensor, v: Tensor, cache: KeyValueCache
    ) -> Float[Tensor, "batch 1 embed"]:
        """One token: its key and value take the place of those that leave the window."""
        if x.shape[1] != 1:
            raise ValueError(f"with a cache, x must hold one position; got {x.shape[1]}.")
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if decoding.applies(x):
            rings = (cache.keys, cache.values, cache.distances, cache.position, cache.arrivals)
            return decoding.attend(query, key, value, u, v, *rings, self.algebra.dim)
        y = _attend_by_cache(*self._queries(query, u, v), self._heads(key), self._heads(value), cache)
        return join_heads(y, self.algebra)

    def _takes_kernel(self, query: Tensor) -> bool:
        """Whether the queries go through `windowed.attend`."""
        applies = self.kernel != "sdpa" and windowed.applies(query, self.num_heads)
        if self.kernel == "triton" and not applies:
            raise ValueError(
                'kernel="triton" takes float16 or bfloat16 on a GPU with triton, in heads of 16, 32, ..., 256 numbers; '
                f"got {query.dtype} on {query.device} in heads of {self.embed_dim // self.num_heads}. "
                'Use kernel="auto", which goes another way where it must.'
            )
        return applies

    def _queries(self, query: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The queries and both biases, each as heads."""
        content_bias, position_bias = (self._heads(bias[None].to(query.dtype)) for bias in (u, v))
        return self._heads(query), content_bias, position_bias

    def _heads(self, x: Float[Tensor, "*batch time embed"]) -> Float[Tensor, "*batch heads time d"]:
        return split_heads(x, self.num_heads, self.algebra)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, num_heads={self.num_heads}, algebra={self.algebra.name}"


def _checked_past(memory: Tensor, positions: Tensor) -> int:
    """How many positions are in memory, if each of them has a distance."""
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

    All that are farther than ``farthest`` are as far.
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
    """torch's scaled_dot_product_attention, the relative term its additive mask."""
    time, keys, reach = q.shape[2], k.shape[2], r.shape[1]
    scores = (q + position_bias) @ r.flip(1).mT / math.sqrt(q.shape[-1])  # farthest distance first
    # Row i belongs i places further right. A row that is T longer, read as one that is T - 1 longer, moves by one place
    # a row; what was added is -inf, which is the mask of the window.
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
    """One token behind those in the cache: what `decoding.attend` does in one launch."""
    slots = cache.window + 1
    slot = (cache.position % slots)[None]
    for ring, new in ((cache.keys, k), (cache.values, v)):
        ring.index_copy_(2, slot, new.detach().to(ring.dtype))
    distance = (cache.position - torch.arange(slots, device=q.device)) % slots
    scores = ((q + position_bias) @ cache.distances.mT).index_select(-1, distance) / math.sqrt(q.shape[-1])
    bias = scores.masked_fill(distance > cache.position, -math.inf)
    cache.position += 1
    return F.scaled_dot_product_attention(q + content_bias, cache.keys, cache.values, attn_mask=bias)
