"""Multi-head attention over an algebra, with whole tuples in each head and real scores.

Shapes: B batch, T queries, S keys, h heads, d = A * tuples per head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn import init
from algebranets.nn.layer import REQUIRED, Layer
from algebranets.nn.linear import Linear, is_plain_linear
from algebranets.nn.weights import AlgebraWeight, reset_weights


class MultiheadAttention(Layer):
    """`torch.nn.MultiheadAttention` over an algebra. Over R it computes the same as torch's layer.

    The projections of queries, keys, values and outputs are linear over the algebra. Each head holds whole tuples. A
    score is the real inner product of the flattened query and key, so the attention matrix stays real (Section 4.3).

    Args:
        embed_dim: The number of real features of queries and outputs, a multiple of ``num_heads`` times the algebra's
            dim.
        num_heads: The number of heads.
        dropout: The dropout probability of attention weights in training.
        bias: Whether the projections have biases, one for each real feature.
        add_bias_kv: Whether to append a learned key and value.
        add_zero_attn: Whether to append a key and a value of zeros.
        kdim: The number of real features of keys, ``embed_dim`` by default.
        vdim: The number of real features of values, ``embed_dim`` by default.
        batch_first: Whether inputs are (batch, time, features) instead of (time, batch, features).
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        algebra: The algebra of the projections, or its name.
        lowering: How products are computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> attention = an.nn.MultiheadAttention(64, num_heads=4, batch_first=True, algebra=an.M2R)
    >>> x = torch.randn(2, 5, 64)
    >>> y, weights = attention(x, x, x)
    >>> y.shape, weights.shape
    (torch.Size([2, 5, 64]), torch.Size([2, 5, 5]))
    """

    in_proj_weight: nn.Parameter | None
    q_proj_weight: nn.Parameter | None
    k_proj_weight: nn.Parameter | None
    v_proj_weight: nn.Parameter | None
    in_proj_bias: nn.Parameter | None
    bias_k: nn.Parameter | None
    bias_v: nn.Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__()
        product.check_lowering(lowering)
        self.algebra, self.lowering = self.resolve(algebra), lowering
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, checks.share("dropout", dropout)
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.kdim, self.vdim = (embed_dim if size is None else size for size in (kdim, vdim))
        num = num_heads * product.tuples_per_head(embed_dim, num_heads, self.algebra)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        packed = self.kdim == self.vdim == embed_dim
        shapes: dict[str, tuple[int, ...] | None] = dict.fromkeys(
            ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        )
        if packed:
            shapes["in_proj_weight"] = product.weight_shape(self.algebra, num, num, stacks=3)
        else:
            for name, size in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
                what = {"q": "embed_dim", "k": "kdim", "v": "vdim"}[name]
                num_in = product.whole_tuples(size, self.algebra, what)
                shapes[f"{name}_proj_weight"] = product.weight_shape(self.algebra, num, num_in)
        shapes["in_proj_bias"] = (3 * embed_dim,) if bias else None
        shapes["bias_k"] = shapes["bias_v"] = (1, 1, embed_dim) if add_bias_kv else None
        for name, shape in shapes.items():
            self.register_parameter(name, None if shape is None else nn.Parameter(torch.empty(shape, **factory)))
        self.out_proj = Linear(embed_dim, embed_dim, bias, **factory, algebra=self.algebra, lowering=lowering)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize each component of each projection independently by Glorot's rule, and their biases to zero.

        The learned key and value of ``add_bias_kv`` are initialized as in torch.
        """
        self.out_proj.reset_parameters()
        reset_weights(self, biases=["in_proj_bias"])
        for name in ("bias_k", "bias_v"):
            if getattr(self, name) is not None:
                with init.new_value(self, name) as bias:
                    nn.init.xavier_normal_(bias)

    def algebra_weights(self) -> list[AlgebraWeight]:
        """The weights over the algebra, for accounting and pruning: the projections of queries, keys and values."""
        if self.kdim == self.vdim == self.embed_dim:
            return [AlgebraWeight("in_proj_weight", self.algebra, stacks=3)]
        return [AlgebraWeight(f"{letter}_proj_weight", self.algebra) for letter in "qkv"]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output, and the attention weights if ``need_weights``, like `torch.nn.MultiheadAttention`.

        Args:
            query: Queries of shape (time, batch, embed_dim), or (batch, time, embed_dim) with ``batch_first``, or
                (time, embed_dim).
            key: Keys, with the axes of ``query`` and ``kdim`` features.
            value: Values, with the axes of ``query`` and ``vdim`` features.
            key_padding_mask: (batch, keys): True, or -inf, for keys that no query may see.
            need_weights: Whether to return the weights. Without them attention is faster.
            attn_mask: (queries, keys) or (batch * heads, queries, keys): True, or -inf, where attention is forbidden;
                other numbers are added to the scores.
            average_attn_weights: Whether to average the returned weights over heads.
            is_causal: Whether ``attn_mask`` is the causal mask. The mask may then be left out, and attention is faster.
        """
        if query.dim() not in (2, 3):
            raise ValueError(f"query must have 2 or 3 axes; got shape {tuple(query.shape)}.")
        batched, same = query.dim() == 3, query is key and key is value
        if not batched:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        if same:  # one product computes all three
            key = value = query
        extends = self.bias_k is not None or self.add_zero_attn
        stored = self._keeps_stored(query)
        if stored:
            query, key, value = _changed((query, key, value), self.algebra)
        q, k, v = self._project(query, key, value, stored)
        causal_only = is_causal and key_padding_mask is None and not need_weights and not extends
        mask = None if causal_only else self._mask(q, k.shape[1], attn_mask, key_padding_mask, is_causal)
        k, v, mask = self._extend(k, v, mask)
        q, k, v = (product.split_heads(x, self.num_heads, algebra=self.algebra) for x in (q, k, v))
        weights = None
        if need_weights:
            scores = q @ k.mT / math.sqrt(q.shape[-1])
            weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
            weights = F.dropout(weights, self.dropout, self.training)
            y = weights @ v
        else:
            rate = self.dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate, is_causal=causal_only)
        y = product.join_heads(y, algebra=self.algebra)
        y = product.change_outputs(self.out_proj(y, stored=True), self.algebra) if stored else self.out_proj(y)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return y[0], None if weights is None else weights[0]
        return y if self.batch_first else y.transpose(0, 1), weights

    def _keeps_stored(self, x: Tensor) -> bool:
        """Whether all activations between the inputs and the output stay in the basis in which weights are stored.

        Scores are inner products, which are the same in both bases. A learned key is in the basis of the table.
        """
        is_plain = is_plain_linear(self.out_proj, self.algebra) and self.bias_k is None
        return is_plain and product.keeps_stored(x, self.algebra, self.lowering)

    def _project(
        self, query: Tensor, key: Tensor, value: Tensor, stored: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        options: dict[str, Any] = {"algebra": self.algebra, "lowering": self.lowering, "stored": stored}
        bias = self.in_proj_bias
        if self.in_proj_weight is not None and query is key and key is value:
            q, k, v = product.linear(query, self.in_proj_weight, bias, **options, stacks=3).chunk(3, -1)
            return q, k, v
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)  # type: ignore[assignment]
        biases = (None, None, None) if bias is None else bias.chunk(3)
        q, k, v = (
            product.linear(x, w, b, **options) for x, w, b in zip((query, key, value), weights, biases, strict=True)
        )
        return q, k, v

    def _mask(
        self,
        query: Tensor,
        num_keys: int,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool,
    ) -> Tensor | None:
        """Combine all masks into one that is added to the scores and broadcasts to (B, h, T, S). None without masks."""
        if is_causal and attn_mask is None:
            ones = torch.ones(query.shape[1], num_keys, dtype=torch.bool, device=query.device)
            attn_mask = ones.triu(1)
        mask = None
        if attn_mask is not None:
            mask = _additive(attn_mask, query)
            if mask.dim() == 3:
                mask = mask.unflatten(0, (-1, self.num_heads))
        if key_padding_mask is not None:
            padding = _additive(key_padding_mask, query)[:, None, None, :]
            mask = padding if mask is None else mask + padding
        return mask

    def _extend(self, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append the learned key and value of ``add_bias_kv`` and the zeros of ``add_zero_attn``."""
        for extra in ((self.bias_k, self.bias_v), (0.0, 0.0) if self.add_zero_attn else (None, None)):
            if extra[0] is None:
                continue
            k, v = (
                torch.cat([t, e.expand(t.shape[0], 1, -1) if isinstance(e, Tensor) else torch.zeros_like(t[:, :1])], 1)
                for t, e in zip((k, v), extra, strict=True)
            )
            mask = None if mask is None else F.pad(mask, (0, 1))
        return k, v, mask

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, num_heads={self.num_heads}, algebra={self.algebra.name}"


def _changed(inputs: Sequence[Tensor], algebra: Algebra) -> Iterator[Tensor]:
    """Change inputs to the basis in which weights are stored. A tensor that comes twice is changed once."""
    changed = {id(x): x for x in inputs}
    changed = {key: product.change_inputs(x, algebra) for key, x in changed.items()}
    return (changed[id(x)] for x in inputs)


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)
