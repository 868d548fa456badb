"""Transformer encoder and decoder layers over an algebra, with torch's own layer norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.attention import MultiheadAttention
from algebranets.nn.layer import REQUIRED, Layer
from algebranets.nn.linear import Linear

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class _TransformerLayer(Layer):
    num_norms: int

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__()
        if isinstance(activation, str):
            activation = _ACTIVATIONS[checks.one_of("activation", activation, _ACTIVATIONS)]
        checks.positive("layer_norm_eps", layer_norm_eps, or_zero=True)
        self.algebra = self.resolve(algebra)
        product.tuples_per_head(d_model, checks.whole("nhead", nhead, least=1), self.algebra, "d_model")
        self.norm_first = norm_first
        self.activation: Callable[[Tensor], Tensor] = activation
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        over: dict[str, Any] = {"algebra": self.algebra, "lowering": lowering, **factory}
        attention: dict[str, Any] = {"dropout": dropout, "bias": bias, "batch_first": batch_first, **over}
        self.self_attn = MultiheadAttention(d_model, nhead, **attention)
        if self.num_norms == 3:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **attention)
        product.whole_tuples(dim_feedforward, self.algebra, "dim_feedforward")
        self.linear1 = Linear(d_model, dim_feedforward, bias, **over)
        self.dropout = nn.Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **over)
        for n in range(1, self.num_norms + 1):
            setattr(self, f"norm{n}", nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory))
            setattr(self, f"dropout{n}", nn.Dropout(dropout))

    def _residual(self, n: int, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply the n-th sublayer with its dropout, its skip connection and its norm, first or last."""
        norm, dropout = getattr(self, f"norm{n}"), getattr(self, f"dropout{n}")
        if self.norm_first:
            return x + dropout(sublayer(norm(x)))
        y: Tensor = norm(x + dropout(sublayer(x)))
        return y

    def _feed_forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return y


class TransformerEncoderLayer(_TransformerLayer):
    """`torch.nn.TransformerEncoderLayer` over an algebra: self-attention, then a feed-forward network.

    It works in `TransformerEncoder`. Layer norms are torch's own, over all real features.

    Args:
        d_model: The number of real input and output features, a multiple of ``nhead`` times the algebra's dim.
        nhead: The number of heads.
        dim_feedforward: The number of real features inside the feed-forward network, a multiple of the algebra's dim.
        dropout: The dropout probability in training.
        activation: The activation of the feed-forward network: "relu", "gelu" or a function.
        layer_norm_eps: The number added to the variance in layer norms.
        batch_first: Whether inputs are (batch, time, features) instead of (time, batch, features).
        norm_first: Whether a layer norm comes before each sublayer instead of after its residual addition.
        bias: Whether linear layers and layer norms have biases.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How products are computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> an.nn.TransformerEncoderLayer(64, 4, 128, algebra=an.H)(torch.randn(5, 2, 64)).shape
    torch.Size([5, 2, 64])
    """

    num_norms = 2

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the output for ``src``. Masks are as in `MultiheadAttention`."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(
                x, x, x, src_key_padding_mask, need_weights=False, attn_mask=src_mask, is_causal=is_causal
            )[0]

        return self._residual(2, self._residual(1, src, attend), self._feed_forward)


class TransformerDecoderLayer(_TransformerLayer):
    """`torch.nn.TransformerDecoderLayer` over an algebra: self-attention, attention to a memory, feed-forward network.

    It works in `torch.nn.TransformerDecoder`. Layer norms are torch's own, over all real features.

    Args:
        d_model: The number of real input and output features, a multiple of ``nhead`` times the algebra's dim.
        nhead: The number of heads.
        dim_feedforward: The number of real features inside the feed-forward network, a multiple of the algebra's dim.
        dropout: The dropout probability in training.
        activation: The activation of the feed-forward network: "relu", "gelu" or a function.
        layer_norm_eps: The number added to the variance in layer norms.
        batch_first: Whether inputs are (batch, time, features) instead of (time, batch, features).
        norm_first: Whether a layer norm comes before each sublayer instead of after its residual addition.
        bias: Whether linear layers and layer norms have biases.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How products are computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> layer = an.nn.TransformerDecoderLayer(64, 4, 128, algebra=an.H)
    >>> layer(torch.randn(5, 2, 64), memory=torch.randn(7, 2, 64)).shape
    torch.Size([5, 2, 64])
    """

    num_norms = 3

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return the output for ``tgt``, attending to itself and ``memory``. Masks are as in `MultiheadAttention`."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(
                x, x, x, tgt_key_padding_mask, need_weights=False, attn_mask=tgt_mask, is_causal=tgt_is_causal
            )[0]

        def look_up(x: Tensor) -> Tensor:
            return self.multihead_attn(
                x,
                memory,
                memory,
                memory_key_padding_mask,
                need_weights=False,
                attn_mask=memory_mask,
                is_causal=memory_is_causal,
            )[0]

        return self._residual(3, self._residual(2, self._residual(1, tgt, attend), look_up), self._feed_forward)
