"""torch.nn's layers over an algebra. Those that need no algebra (ReLU, ...) are torch.nn's own.

`algebranets.over` gives the same names with an algebra bound.
"""

from typing import TYPE_CHECKING, Any

from algebranets.nn import functional, init, untouched, utils
from algebranets.nn.activation import TupleGate
from algebranets.nn.adaptive_softmax import AdaptiveLogSoftmaxWithLoss
from algebranets.nn.attention import MultiheadAttention
from algebranets.nn.bilinear import Bilinear
from algebranets.nn.boundary import Lift, Lift1d, Lift2d, Lift3d, TupleNorm
from algebranets.nn.conv import Conv1d, Conv2d, Conv3d
from algebranets.nn.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from algebranets.nn.dropout import TupleDropout
from algebranets.nn.embedding import Embedding, EmbeddingBag
from algebranets.nn.glu import GLU
from algebranets.nn.group_norm import GroupNorm
from algebranets.nn.instance_norm import (
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LazyInstanceNorm1d,
    LazyInstanceNorm2d,
    LazyInstanceNorm3d,
)
from algebranets.nn.layer import Layer
from algebranets.nn.lazy import (
    LazyConv1d,
    LazyConv2d,
    LazyConv3d,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    LazyConvTranspose3d,
    LazyLinear,
)
from algebranets.nn.linear import Linear
from algebranets.nn.norm import LocalResponseNorm, RMSNorm, TupleLayerNorm
from algebranets.nn.quantization import QuantizedLinear
from algebranets.nn.recurrent import GRU, LSTM, RNN
from algebranets.nn.recurrent_cells import GRUCell, LSTMCell, RNNCell
from algebranets.nn.refused import REFUSED, unknown_name
from algebranets.nn.relative import RelativeAttention
from algebranets.nn.shuffle import ChannelShuffle, PixelShuffle, PixelUnshuffle
from algebranets.nn.sparse import SparseConv, SparseLinear
from algebranets.nn.transformer import Transformer, TransformerEncoder
from algebranets.nn.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer
from algebranets.nn.untouched import *  # noqa: F403
from algebranets.nn.weights import AlgebraWeight
from algebranets.nn.whitening import Whitening1d, Whitening2d, Whitening3d

__all__ = [
    "GLU",
    "GRU",
    "LSTM",
    "RNN",
    "AdaptiveLogSoftmaxWithLoss",
    "AlgebraWeight",
    "Bilinear",
    "ChannelShuffle",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Embedding",
    "EmbeddingBag",
    "GRUCell",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LSTMCell",
    "Layer",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
    "Lift",
    "Lift1d",
    "Lift2d",
    "Lift3d",
    "Linear",
    "LocalResponseNorm",
    "MultiheadAttention",
    "PixelShuffle",
    "PixelUnshuffle",
    "QuantizedLinear",
    "RMSNorm",
    "RNNCell",
    "RelativeAttention",
    "SparseConv",
    "SparseLinear",
    "Transformer",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "TupleDropout",
    "TupleGate",
    "TupleLayerNorm",
    "TupleNorm",
    "Whitening1d",
    "Whitening2d",
    "Whitening3d",
    "functional",
    "init",
    "utils",
]
__all__ += untouched.__all__


if not TYPE_CHECKING:  # type checkers know the names above, and report others

    def __getattr__(name: str) -> Any:
        raise unknown_name(__name__, name, __all__, REFUSED)
