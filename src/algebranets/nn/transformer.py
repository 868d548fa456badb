"""`TransformerEncoder`, and `Transformer` over an algebra: stacks of transformer layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.layer import REQUIRED, Layer
from algebranets.nn.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer


class TransformerEncoder(nn.TransformerEncoder):
    """`torch.nn.TransformerEncoder` that never makes nested tensors, which layers over an algebra do not take.

    It takes no ``algebra``, because ``encoder_layer`` has one. It computes the same as torch's class with
    ``enable_nested_tensor=False``, and does not warn that nested tensors are not used.

    Args:
        encoder_layer: The layer. The encoder holds copies of it, all with the same initial parameters.
        num_layers: The number of layers.
        norm: A layer norm to apply to the output, or None.
        enable_nested_tensor: Accepted because torch has this argument. It has no effect.
        mask_check: Accepted because torch has this argument. It has no effect without nested tensors.

    >>> import torch, algebranets as an
    >>> layer = an.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, algebra=an.H)
    >>> encoder = an.nn.TransformerEncoder(layer, num_layers=2)
    >>> encoder(torch.randn(2, 5, 64), src_key_padding_mask=torch.zeros(2, 5, dtype=torch.bool)).shape
    torch.Size([2, 5, 64])
    """

    def __init__(
        self,
        encoder_layer: nn.Module,
        num_layers: int,
        norm: nn.Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        checks.whole("num_layers", num_layers, least=1)
        super().__init__(encoder_layer, num_layers, norm, enable_nested_tensor=False, mask_check=mask_check)  # type: ignore[arg-type]
        self.enable_nested_tensor = enable_nested_tensor  # torch's attribute is the argument; use_nested_tensor decides


class Transformer(Layer, nn.Transformer):
    """`torch.nn.Transformer` over an algebra: an encoder, and a decoder that attends to the encoder's output.

    Over R it computes the same as torch's. Layer norms are torch's own, over all real features.

    Args:
        d_model: The number of real input and output features, a multiple of ``nhead`` times the algebra's dim.
        nhead: The number of heads.
        num_encoder_layers: The number of layers of the encoder.
        num_decoder_layers: The number of layers of the decoder.
        dim_feedforward: The number of real features inside the feed-forward networks, a multiple of the algebra's dim.
        dropout: The dropout probability in training.
        activation: The activation of the feed-forward networks: "relu", "gelu" or a function.
        custom_encoder: A module to use as the encoder, or None. Its parameters are not initialized again.
        custom_decoder: A module to use as the decoder, or None. Its parameters are not initialized again.
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
    >>> model = an.nn.Transformer(64, 4, 2, 2, 128, batch_first=True, algebra=an.H)
    >>> model(torch.randn(3, 7, 64), torch.randn(3, 5, 64)).shape
    torch.Size([3, 5, 64])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        custom_encoder: Any | None = None,
        custom_decoder: Any | None = None,
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
        nn.Module.__init__(self)  # torch's own __init__ makes real layers
        product.check_lowering(lowering)
        self.algebra = self.resolve(algebra)
        product.tuples_per_head(d_model, checks.whole("nhead", nhead, least=1), self.algebra, "d_model")
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        over: dict[str, Any] = {"algebra": self.algebra, "lowering": lowering, **factory}

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory)

        self.encoder, self.decoder = custom_encoder, custom_decoder
        if self.encoder is None:
            num_layers = checks.whole("num_encoder_layers", num_encoder_layers, least=1)
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*sizes, **over), num_layers, norm())
            _reset_layers(self.encoder)
        if self.decoder is None:
            num_layers = checks.whole("num_decoder_layers", num_decoder_layers, least=1)
            layer: Any = TransformerDecoderLayer(*sizes, **over)
            self.decoder = nn.TransformerDecoder(layer, num_layers, norm())
            _reset_layers(self.decoder)

    def _reset_parameters(self) -> None:
        """Initialize all weights over an algebra by Glorot's rule. Torch's rule would use the stored sizes as fans."""
        _reset_layers(self)


def _reset_layers(model: nn.Module) -> None:
    """Initialize each layer of a model that has its own parameters, so that copies of a layer differ."""
    for module in model.modules():
        if module._parameters and hasattr(module, "reset_parameters"):
            module.reset_parameters()  # type: ignore[operator]
