"""Examples of every layer: how to construct it over an algebra, and inputs for it."""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from algebranets import nn as ann
from algebranets.algebra import Algebra


@dataclass(frozen=True)
class Example:
    name: str
    options: dict[str, Any]
    #: Sizes in tuples, in the order of torch's arguments. `make` multiplies them by the algebra's dimension.
    sizes: tuple[int, ...]
    #: Shapes of the inputs. A size that is a string is a number of tuples.
    inputs: tuple[tuple[int | str, ...], ...]
    #: Positional arguments after the sizes.
    rest: tuple[Any, ...] = ()
    #: The names of options that are sizes in tuples.
    sized: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return "-".join([self.name, *(f"{k}={getattr(v, '__name__', v)}" for k, v in self.options.items())])

    def make(self, algebra: Algebra, **factory: Any) -> nn.Module:
        sizes = (size * algebra.dim for size in self.sizes)
        options = {k: v * algebra.dim if k in self.sized else v for k, v in self.options.items()}
        layer = getattr(ann, self.name)
        return layer(*sizes, *self.rest, **options, **taken(layer, factory), algebra=algebra)

    def make_real(self, **factory: Any) -> nn.Module:
        """Return torch's layer of the same name, without options that only our layers have."""
        options = {k: v for k, v in self.options.items() if k != "recurrent_bias"}
        layer = getattr(nn, self.name)
        with warnings.catch_warnings(action="ignore"):  # torch's Transformer warns about its own layers
            return layer(*self.sizes, *self.rest, **options, **taken(layer, factory))

    def feed(self, algebra: Algebra, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        return [
            torch.randn([int(n) * algebra.dim if isinstance(n, str) else n for n in shape], dtype=dtype)
            for shape in self.inputs
        ]

    @property
    def batch_axis(self) -> int | None:
        """The batch axis of the inputs, or None if they have none."""
        if self.name in SEQUENCES:
            return None if len(self.inputs[0]) == 2 else 0 if self.options.get("batch_first") else 1
        return None if self.name == "Conv2d" and len(self.inputs[0]) == 3 else 0

    def rebatch(self, inputs: list[Tensor], change: Callable[[Tensor, int], Tensor]) -> list[Tensor]:
        """Apply ``change(input, axis)`` to each input that has a batch axis."""
        axis = self.batch_axis
        assert axis is not None
        num_batched = 1 if self.name == "RelativeAttention" else len(inputs)
        return [change(x, axis) if n < num_batched else x for n, x in enumerate(inputs)]


def taken(layer: type, options: dict[str, Any]) -> dict[str, Any]:
    """The options that a layer takes. Layers without parameters take no dtype, device or lowering."""
    parameters = inspect.signature(layer).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return {name: value for name, value in options.items() if takes_any or name in parameters}


def outputs(result: Any) -> list[Tensor]:
    """All tensors in a layer's result."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, tuple | list):
        return [tensor for part in result for tensor in outputs(part)]
    return []


def conv(name, options, inputs=((2, "4", 7, 6),), rest=(3,), sizes=(4, 6)):
    return Example(name, options, sizes, inputs, rest)


SEQUENCE = ((5, 2, "3"),)
SEQUENCES = (
    "RNN", "LSTM", "GRU", "MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer",
)  # fmt: skip
FEED_FORWARD = {"nhead": 2, "dim_feedforward": 6, "dropout": 0.0}
#: Layers with a torch.nn counterpart of the same name, arguments and parameters.
TWINS = [
    Example("Linear", {}, (5, 3), ((7, "5"),)),
    Example("Linear", {"bias": False}, (5, 3), ((2, 3, "5"),)),
    Example("Bilinear", {}, (3, 5, 2), ((7, "3"), (7, "5"))),
    Example("Bilinear", {"bias": False}, (3, 1, 2), ((2, 3, "3"), (2, 3, "1"))),
    conv("Conv1d", {"stride": 2, "padding": 1}, ((2, "4", 9),)),
    conv("Conv1d", {"padding": "same", "padding_mode": "circular"}, ((2, "4", 9),)),
    conv("Conv2d", {}),
    conv("Conv2d", {"groups": 4, "padding": 1}, sizes=(4, 4)),
    conv("Conv2d", {"padding": "same", "dilation": 2}),
    conv("Conv2d", {"padding": "valid"}),
    conv("Conv2d", {"padding": (1, 2), "padding_mode": "reflect"}),
    conv("Conv2d", {"padding": 1, "padding_mode": "replicate"}),
    conv("Conv2d", {"padding": "same", "padding_mode": "reflect"}, rest=((2, 3),)),
    conv("Conv2d", {"padding": "valid", "padding_mode": "circular"}),
    conv("Conv2d", {}, rest=(1,)),
    conv("Conv2d", {"padding": 1}, inputs=(("4", 7, 6),)),
    conv("Conv2d", {"groups": 2, "bias": False}),
    conv("Conv3d", {"stride": (1, 2, 1), "padding": (1, 0, 1)}, ((2, "4", 4, 5, 3),)),
    conv("ConvTranspose1d", {"stride": 2, "output_padding": 1}, ((2, "4", 5),)),
    conv("ConvTranspose2d", {"stride": 2, "padding": 1, "groups": 2}),
    conv("ConvTranspose2d", {"dilation": 2, "bias": False}, rest=((2, 3),)),
    conv("ConvTranspose3d", {"stride": (2, 1, 1)}, ((2, "4", 3, 2, 3),)),
    Example("RNN", {}, (3, 4), SEQUENCE),
    Example("RNN", {"nonlinearity": "relu", "bidirectional": True, "num_layers": 2}, (3, 4), SEQUENCE),
    Example("LSTM", {"batch_first": True}, (3, 4), SEQUENCE),
    Example("LSTM", {"num_layers": 2, "bidirectional": True, "bias": False}, (3, 4), SEQUENCE),
    Example("GRU", {}, (3, 4), SEQUENCE),
    Example("GRU", {"num_layers": 3, "bidirectional": True}, (3, 4), SEQUENCE),
    Example("GRU", {"bias": False}, (3, 4), ((5, "3"),)),
    Example("RNNCell", {}, (3, 4), ((2, "3"), (2, "4"))),
    Example("RNNCell", {"nonlinearity": "relu", "bias": False}, (3, 4), ((2, "3"),)),
    Example("LSTMCell", {}, (3, 4), ((2, "3"),)),
    Example("GRUCell", {}, (3, 4), ((2, "3"), (2, "4"))),
    Example("MultiheadAttention", {"num_heads": 2}, (4,), ((5, 2, "4"), (3, 2, "4"), (3, 2, "4"))),
    Example("MultiheadAttention", {"num_heads": 4, "batch_first": True}, (4,), ((2, 5, "4"),) * 3),
    Example("MultiheadAttention", {"num_heads": 2, "bias": False, "add_zero_attn": True}, (4,), ((5, "4"),) * 3),
    Example("MultiheadAttention", {"num_heads": 2, "add_bias_kv": True}, (4,), ((5, 2, "4"),) * 3),
    Example("TransformerEncoderLayer", FEED_FORWARD, (4,), ((5, 2, "4"),), sized=("dim_feedforward",)),
    Example("TransformerEncoderLayer", {**FEED_FORWARD, "norm_first": True, "bias": False, "activation": "gelu",
                                        "batch_first": True}, (4,), ((2, 5, "4"),), sized=("dim_feedforward",)),
    Example("TransformerDecoderLayer", FEED_FORWARD, (4,), ((5, 2, "4"), (3, 2, "4")), sized=("dim_feedforward",)),
    Example("Transformer", {**FEED_FORWARD, "num_encoder_layers": 2, "num_decoder_layers": 1}, (4,),
            ((5, 2, "4"), (3, 2, "4")), sized=("dim_feedforward",)),
    Example("GroupNorm", {"num_groups": 1, "num_channels": 3, "affine": False}, (), ((2, "3"),),
            sized=("num_channels",)),
    Example("GroupNorm", {"num_groups": 3, "num_channels": 6}, (), ((2, "6", 5),), sized=("num_channels",)),
    Example("InstanceNorm1d", {}, (3,), ((2, "3", 5),)),
    Example("InstanceNorm2d", {"affine": True, "track_running_stats": True}, (3,), ((2, "3", 4, 5),)),
    Example("InstanceNorm3d", {"affine": True}, (3,), ((2, "3", 2, 4, 3),)),
    Example("RMSNorm", {"eps": 1e-3, "elementwise_affine": False}, (3,), ((2, "3"),)),
    Example("RMSNorm", {}, (3,), ((2, 5, "3"),)),
    Example("LocalResponseNorm", {"size": 3, "alpha": 0.5}, (), ((2, "5", 4),)),
    Example("GLU", {"dim": 1}, (), ((2, "6", 3),)),
    Example("ChannelShuffle", {"groups": 2}, (), ((2, "6", 3, 2),)),
    Example("PixelShuffle", {"upscale_factor": 2}, (), ((2, "8", 3, 2),)),
    Example("PixelUnshuffle", {"downscale_factor": 2}, (), ((2, "2", 4, 6),)),
]  # fmt: skip

#: Layers that torch does not have, and torch's layers with options that only ours have.
OWN = [
    Example("GRU", {"recurrent_bias": False, "bidirectional": True}, (3, 4), SEQUENCE),
    Example("LSTM", {"recurrent_bias": False, "proj_size": 2}, (3, 4), SEQUENCE, sized=("proj_size",)),
    Example("GRUCell", {"recurrent_bias": False}, (3, 4), ((2, "3"),)),
    Example("Lift", {"channels": 3}, (), ((2, 3),)),
    Example("Lift", {"channels": 3, "num_layers": 2, "hidden_channels": 5}, (), ((2, 3),)),
    Example("Lift1d", {"channels": 3}, (), ((2, 3, 5),)),
    Example("Lift2d", {"channels": 3, "mode": "zeros"}, (), ((2, 3, 5, 4),)),
    Example("Lift2d", {"channels": 3, "num_layers": 2}, (), ((2, 3, 5, 4),)),
    Example("Lift3d", {"channels": 3, "mode": "copy"}, (), ((2, 3, 2, 5, 4),)),
    Example("TupleNorm", {"dim": -1}, (), ((2, "3"),)),
    Example("TupleGate", {"dim": -1}, (), ((2, "3"),)),
    Example("TupleGate", {"g": "determinant", "f": torch.sigmoid, "dim": 1}, (), ((2, "3", 2),)),
    Example("TupleDropout", {"p": 0.5, "dim": 1}, (), ((2, "3", 2),)),
    Example("RelativeAttention", {"num_heads": 2}, (4,), ((2, 5, "4"), (7, "4"), ("4",), ("4",))),
    Example("TupleLayerNorm", {}, (3,), ((2, "3"),)),
    Example("Whitening1d", {}, (3,), ((7, "3"),)),
    Example("Whitening2d", {"affine": False, "momentum": None}, (3,), ((4, "3", 3, 2),)),
    Example("Whitening2d", {}, (3,), ((4, "3", 3, 2),)),
    Example("Whitening3d", {"track_running_stats": False}, (3,), ((4, "3", 3, 2, 2),)),
]

LAYERS = [*TWINS, *OWN]
#: The last example of each class, for tests that take long.
ONE_EACH = list({example.name: example for example in LAYERS}.values())


def plainest(name: str) -> Example:
    """The example of a class that has the fewest options."""
    return min((e for e in LAYERS if e.name == name), key=lambda e: len(e.options))
