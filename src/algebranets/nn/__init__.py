"""torch.nn's layers over an algebra; those that need no algebra (ReLU, ...) are torch.nn's own."""

from typing import Any

import torch.nn

from algebranets.nn import init
from algebranets.nn.activation import TupleGate
from algebranets.nn.attention import MultiheadAttention
from algebranets.nn.boundary import Lift, Lift1d, Lift2d, Lift3d, TupleNorm
from algebranets.nn.conv import Conv1d, Conv2d, Conv3d
from algebranets.nn.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from algebranets.nn.dropout import TupleDropout
from algebranets.nn.embedding import Embedding
from algebranets.nn.linear import Linear
from algebranets.nn.norm import TupleLayerNorm
from algebranets.nn.recurrent import GRU, LSTM, RNN
from algebranets.nn.recurrent_cells import GRUCell, LSTMCell, RNNCell
from algebranets.nn.relative import RelativeAttention
from algebranets.nn.sparse import SparseConv, SparseLinear
from algebranets.nn.transformer import TransformerDecoderLayer, TransformerEncoderLayer
from algebranets.nn.weights import AlgebraWeight
from algebranets.nn.whitening import Whitening1d, Whitening2d, Whitening3d

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "AlgebraWeight",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Embedding",
    "GRUCell",
    "LSTMCell",
    "Lift",
    "Lift1d",
    "Lift2d",
    "Lift3d",
    "Linear",
    "MultiheadAttention",
    "RNNCell",
    "RelativeAttention",
    "SparseConv",
    "SparseLinear",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
    "TupleDropout",
    "TupleGate",
    "TupleLayerNorm",
    "TupleNorm",
    "Whitening1d",
    "Whitening2d",
    "Whitening3d",
    "init",
]


def __getattr__(name: str) -> Any:
    return getattr(torch.nn, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(torch.nn)})
