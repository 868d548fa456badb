"""Transformer-XL over an algebra (Section 4.3), with memory, relative positions and real scores.

Every linear layer but the readout is over the algebra. Embeddings are read as tuples, and the real readout shares their
weight. The biases u and v of attention are shared by all layers.

Shapes: B batch, T time, P positions in memory, E = d_model, V characters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn import Embedding, Linear, RelativeAttention
from algebranets.nn.norm import AddNorm
from algebranets.nn.relative import KeyValueCache, sinusoids

#: The inputs of each layer at the last positions, or a cache of their keys and values.
Memory = Sequence[Tensor] | Sequence[KeyValueCache]


class TransformerXLLayer(nn.Module):
    """Attention over the window, then a feed-forward network, each added to its input.

    Layer norms follow the additions or, with ``norm_first``, come before attention and feed-forward network.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        ff_size: int,
        dropout: float,
        algebra: Algebra,
        lowering: product.Lowering,
        norm_first: bool = False,
        **attention: Any,
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = RelativeAttention(d_model, num_heads, algebra=algebra, lowering=lowering, **attention)
        self.norm1 = nn.LayerNorm(d_model) if norm_first else AddNorm(d_model)
        self.norm2 = AddNorm(d_model)
        self.linear1 = Linear(d_model, ff_size, algebra=algebra, lowering=lowering)
        self.linear2 = Linear(ff_size, d_model, algebra=algebra, lowering=lowering)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch time embed"],
        positions: Float[Tensor, "dist embed"] | None,
        u: Float[Tensor, " embed"],
        v: Float[Tensor, " embed"],
        memory: Float[Tensor, "batch past embed"] | KeyValueCache,
    ) -> Float[Tensor, "batch time embed"]:
        if not self.norm_first:
            _, x = self.norm1(x, self.dropout(self.attention(x, positions, u, v, memory)))
            _, x = self.norm2(x, self._feed_forward(x))
            return x
        attended = self.dropout(self.attention(self.norm1(x), positions, u, v, self._normalized(memory)))
        x, normalized = self.norm2(x, attended)
        return x + self._feed_forward(normalized)

    def _feed_forward(self, x: Float[Tensor, "batch time embed"]) -> Float[Tensor, "batch time embed"]:
        return self.dropout(self.linear2(self.dropout(self.linear1(x, activation="relu"))))

    def cache(
        self, memory: Float[Tensor, "batch past embed"], positions: Float[Tensor, "slots embed"]
    ) -> KeyValueCache:
        """Return a cache of the memory's keys and values, to pass to `forward` for one token at a time."""
        return self.attention.cache(self._normalized(memory) if self.norm_first else memory, positions)

    def _normalized(self, memory: Tensor | KeyValueCache) -> Any:
        """The memory for attention: normalized inputs, or a cache, which was computed from normalized inputs."""
        return memory if isinstance(memory, KeyValueCache) else self.norm1(memory)


class TransformerXL(nn.Module):
    """A Transformer-XL character model over an algebra.

    Each position sees itself and ``window`` positions before it, in every layer. So the logits do not depend on how a
    text is cut into segments; only gradients stop at the cuts. Processing one token at a time gives the same logits.

    Args:
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        num_layers: The number of layers.
        d_model: The number of real features at each position, a multiple of ``num_heads`` times the algebra's dim.
        num_heads: The number of attention heads. Each head holds whole tuples.
        ff_size: The number of real features inside the feed-forward network, a multiple of the algebra's dim.
        vocab_size: The number of different tokens.
        window: The number of earlier positions that each position sees.
        dropout: The dropout probability in training.
        norm_first: Whether layer norms come before attention and feed-forward network, with one more at the end,
            instead of after the residual additions. Deep networks then train with higher learning rates.
        attention_kernel: How attention is computed: "auto", "sdpa" (torch's attention) or "triton" (our kernels).
        recompute_attention: Whether "sdpa" computes its mask again in the backward pass. False is faster and keeps one
            tensor of the size of the attention matrix for each layer.
        lowering: How products are computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> model = an.models.create("transformer_xl", algebra="M2R", num_layers=2, d_model=64, ff_size=128, window=16)
    >>> logits, memory = model(torch.randint(256, (2, 10)))
    >>> logits, memory = model(torch.randint(256, (2, 10)), memory)
    >>> logits.shape, memory[0].shape
    (torch.Size([2, 10, 256]), torch.Size([2, 16, 64]))
    """

    #: The batch axis of a memory.
    state_batch_axis: ClassVar[int] = 0

    def __init__(
        self,
        *,
        algebra: Algebra | str,
        num_layers: int = 24,
        d_model: int = 512,
        num_heads: int = 4,
        ff_size: int = 1536,
        vocab_size: int = 256,
        window: int = 1536,
        dropout: float = 0.0,
        norm_first: bool = False,
        attention_kernel: str = "auto",
        recompute_attention: bool = True,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__()
        self.algebra = algebras.get(algebra)
        for name, size in (("num_layers", num_layers), ("window", window), ("vocab_size", vocab_size)):
            checks.whole(name, size, least=1)
        checks.share("dropout", dropout)
        product.whole_tuples(ff_size, self.algebra, "ff_size")
        product.tuples_per_head(d_model, num_heads, self.algebra, "d_model")
        checks.size("a window", (window, d_model))
        self.d_model, self.num_heads, self.ff_size, self.window = d_model, num_heads, ff_size, window
        self.vocab_size = vocab_size
        self.embedding = Embedding(vocab_size, d_model, algebra=self.algebra)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.u, self.v = (nn.Parameter(torch.zeros(d_model)) for _ in range(2))
        attention: dict[str, Any] = {"kernel": attention_kernel, "recompute": recompute_attention}
        self.layers = nn.ModuleList(
            TransformerXLLayer(d_model, num_heads, ff_size, dropout, self.algebra, lowering, norm_first, **attention)
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(d_model) if norm_first else nn.Identity()
        self.readout = nn.Linear(d_model, vocab_size, bias=False)
        self.readout.weight = self.embedding.weight

    def forward(
        self, tokens: Int[Tensor, "batch time"], memory: Memory | None = None, window: int | None = None
    ) -> tuple[Float[Tensor, "batch time vocab"], Memory]:
        """Return the logits for the next token at each position, and the memory for the next segment.

        Args:
            tokens: A batch of segments of texts.
            memory: The memory that an earlier call returned, or None at the beginning of a text. With a cache from
                `cache`, ``tokens`` must hold one token of each text, and the same cache is returned.
            window: The number of earlier positions that each position sees, by default the model's ``window``. Larger
                distances count as the model's ``window`` (Transformer-XL's ``clamp_len``).
        """
        x = self.dropout(self.embedding(tokens) * math.sqrt(self.d_model))
        memory = memory or self._no_memory(tokens.shape[0])
        caches = [state for state in memory if isinstance(state, KeyValueCache)]
        if caches:
            if window not in (None, caches[0].window):
                raise ValueError(f"the cache was made for window={caches[0].window}; got window={window}.")
            for layer, cache in zip(self.layers, caches, strict=True):
                x = layer(x, None, self.u, self.v, cache)
            return self.readout(self.norm(x)), caches
        window = self._checked_window(window)
        positions = self._positions(window)
        befores = [state[:, -window:].to(x.dtype) for state in memory if isinstance(state, Tensor)]
        following = []
        for layer, before in zip(self.layers, befores, strict=True):
            enough = x.shape[1] >= window
            following.append((x if enough else torch.cat([before, x], dim=1))[:, -window:].detach())
            x = layer(x, positions, self.u, self.v, before)
        return self.readout(self.dropout(self.norm(x))), following

    @torch.no_grad()
    def cache(
        self, memory: Sequence[Tensor] | None = None, window: int | None = None, batch_size: int = 1
    ) -> list[KeyValueCache]:
        """Return the keys and values of a memory, to pass to `forward` as its memory for one token at a time.

        Args:
            memory: The memory that `forward` returned, or None at the beginning of a text.
            window: The number of earlier positions that each token sees, by default the model's ``window``.
            batch_size: The number of texts, if ``memory`` is None.
        """
        window = self._checked_window(window)
        positions = self._positions(window)
        caches = []
        for layer, state in zip(self.layers, memory or self._no_memory(batch_size), strict=True):
            assert isinstance(layer, TransformerXLLayer)
            caches.append(layer.cache(state[:, -window:], positions))
        return caches

    def _checked_window(self, window: int | None) -> int:
        return self.window if window is None else checks.whole("window", window, least=1)

    def _positions(self, window: int) -> Float[Tensor, "dist embed"]:
        """The position vectors of all distances in a window. Distances beyond the model's ``window`` count as it."""
        return sinusoids(window + 1, self.d_model, self.u.device, farthest=self.window)

    def _no_memory(self, batch_size: int) -> list[Tensor]:
        return [self.u.new_zeros(batch_size, 0, self.d_model)] * len(self.layers)

    def example_inputs(self) -> tuple[Tensor, list[KeyValueCache]]:
        """One token and a full cache, for `account`."""
        full = [self.u.new_zeros(1, self.window, self.d_model)] * len(self.layers)
        return torch.zeros(1, 1, dtype=torch.long, device=self.u.device), self.cache(full)
