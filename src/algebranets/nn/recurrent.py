"""Recurrent layers over an algebra, with torch.nn's names, arguments and parameter names.

Each layer is one call of a fused kernel: torch's or, in some cases on a GPU, ours.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.layer import REQUIRED, Layer
from algebranets.nn.weights import AlgebraWeight, reset_weights
from algebranets.product.cells import MODES


class _Recurrent(Layer):
    mode: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        proj_size: int = 0,
        recurrent_bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__()
        product.check_lowering(lowering)
        checks.whole("num_layers", num_layers, least=1)
        checks.share("dropout", dropout)
        self.algebra, self.lowering = self.resolve(algebra), lowering
        self.input_size, self.hidden_size, self.proj_size = input_size, hidden_size, proj_size
        self.num_layers, self.bias, self.recurrent_bias = num_layers, bias, recurrent_bias
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        num_in = product.whole_tuples(input_size, self.algebra, "input_size")
        num_hidden = product.whole_tuples(hidden_size, self.algebra, "hidden_size")
        if not 0 <= checks.whole("proj_size", proj_size) < hidden_size:
            raise ValueError(f"proj_size must be at least 0 and less than hidden_size={hidden_size}; got {proj_size}.")
        if proj_size and self.mode != "LSTM":
            raise ValueError("proj_size is only for the LSTM.")
        num_out = product.whole_tuples(proj_size, self.algebra, "proj_size") if proj_size else num_hidden
        gates = MODES[self.mode].num_gates
        for layer in range(num_layers):
            below = num_out * self.num_directions if layer else num_in
            for suffix in self._suffixes(layer):
                shapes = {
                    "weight_ih": product.weight_shape(self.algebra, num_hidden, below, stacks=gates),
                    "weight_hh": product.weight_shape(self.algebra, num_hidden, num_out, stacks=gates),
                    "bias_ih": (gates * hidden_size,) if bias else None,
                    "bias_hh": (gates * hidden_size,) if bias and recurrent_bias else None,
                    "weight_hr": product.weight_shape(self.algebra, num_out, num_hidden) if proj_size else None,
                }
                for name, shape in shapes.items():
                    if shape is not None:
                        self.register_parameter(
                            name + suffix, nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
                        )
        self.reset_parameters()

    @property
    def num_directions(self) -> int:
        """2 if the layer is bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.num_directions]

    def algebra_weights(self) -> list[AlgebraWeight]:
        """The weights over the algebra, for accounting and pruning: those of every layer and direction."""
        stacks = {"weight_ih": MODES[self.mode].num_gates, "weight_hh": MODES[self.mode].num_gates}
        if self.proj_size:
            stacks["weight_hr"] = 1
        suffixes = [suffix for layer in range(self.num_layers) for suffix in self._suffixes(layer)]
        return [AlgebraWeight(name + suffix, self.algebra, num) for suffix in suffixes for name, num in stacks.items()]

    def reset_parameters(self) -> None:
        """Initialize each component of each gate's weights independently by Glorot's rule, and biases to zero."""
        reset_weights(self, [weight.name.replace("weight", "bias") for weight in self.algebra_weights()])

    def flatten_parameters(self) -> None:
        """Do nothing. torch's layers need this method for cuDNN; ours arrange their weights in each forward."""

    def _direction(self, suffix: str) -> product.Direction:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return product.Direction._make(getattr(self, name + suffix, None) for name in names)

    def _run(
        self, x: Tensor | PackedSequence, state: tuple[Tensor, ...] | None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, ...]]:
        if isinstance(x, PackedSequence):
            data, sizes, order, back = x
            batch: Any = sizes[0] if torch.jit.is_tracing() else int(sizes[0])  # in a trace, a number is a constant
            data, final = self._layers(data, self._start(data, batch, state, order), sizes)
            if back is not None:
                final = tuple(s.index_select(1, back) for s in final)
            return PackedSequence(data, sizes, order, back), final
        if x.dim() not in (2, 3):
            raise ValueError(f"the input must be (time, features) or have a batch axis as well; got {tuple(x.shape)}.")
        batched = x.dim() == 3
        if not batched:
            x, state = x.unsqueeze(1), state and tuple(s.unsqueeze(1) for s in state)
        elif self.batch_first:
            x = x.transpose(0, 1)
        if x.shape[0] == 0:
            raise ValueError("a sequence must have at least one step; got none.")
        y, final = self._layers(x, self._start(x, x.shape[1], state, None), None)
        if not batched:
            return y.squeeze(1), tuple(s.squeeze(1) for s in final)
        return y.transpose(0, 1) if self.batch_first else y, final

    def _start(
        self, x: Tensor, batch: int, state: tuple[Tensor, ...] | None, order: Tensor | None
    ) -> tuple[Tensor, ...]:
        """The initial states: zeros, or ``state`` with its rows in the order of a packed sequence."""
        if x.shape[-1] != self.input_size:
            raise ValueError(f"the input must have input_size={self.input_size} features; got {x.shape[-1]}.")
        sizes = [self.proj_size or self.hidden_size, self.hidden_size][: MODES[self.mode].num_states]
        shapes = [(self.num_layers * self.num_directions, batch, size) for size in sizes]
        if state is None:
            return tuple(x.new_zeros(shape) for shape in shapes)
        for given, shape in zip(state, shapes, strict=True):
            if given.shape != shape:
                raise ValueError(f"a hidden state must have shape {shape}; got {tuple(given.shape)}.")
        return state if order is None else tuple(s.index_select(1, order) for s in state)

    def _layers(
        self, x: Tensor, state: tuple[Tensor, ...], batch_sizes: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        finals = []
        states = [s.split(self.num_directions) for s in state]
        for layer in range(self.num_layers):
            x, final = product.recurrent(
                self.mode,
                x,
                tuple(s[layer] for s in states),
                [self._direction(suffix) for suffix in self._suffixes(layer)],
                algebra=self.algebra,
                lowering=self.lowering,
                batch_sizes=batch_sizes,
            )
            finals.append(final)
            if self.dropout and layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout, self.training)
        return x, tuple(torch.cat(parts) for parts in zip(*finals, strict=True))

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        usual = {
            "num_layers": 1,
            "bias": True,
            "recurrent_bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
            "proj_size": 0,
        }
        parts += [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        return ", ".join([*parts, f"algebra={self.algebra.name}"])


class _OneState(_Recurrent):
    """A layer whose state is one tensor, its output."""

    def forward(self, x: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Tensor | PackedSequence, Tensor]:
        y, (h,) = self._run(x, None if hx is None else (hx,))
        return y, h


class RNN(_OneState):
    """`torch.nn.RNN` over an algebra. Over R it computes the same as torch's layer.

    Args:
        input_size: The number of real input features, a multiple of the algebra's dim.
        hidden_size: The number of real features in the hidden state, a multiple of the algebra's dim.
        num_layers: The number of stacked layers.
        nonlinearity: "tanh" or "relu".
        bias: Whether to add biases.
        batch_first: Whether inputs and outputs are (batch, time, features), not (time, batch, features).
        dropout: The dropout probability after each layer but the last, in training.
        bidirectional: Whether to read the sequence in both directions. In the output, each component then holds the
            forward features followed by the backward features.
        proj_size: Must be 0; only the LSTM has projections.
        recurrent_bias: Whether each gate has a second bias, ``bias_hh``, as in torch. Most papers have only one bias.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> rnn = an.nn.RNN(64, 128, nonlinearity="relu", algebra=an.H)
    >>> y, h = rnn(torch.randn(10, 3, 64))
    >>> y.shape, h.shape
    (torch.Size([10, 3, 128]), torch.Size([1, 3, 128]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        proj_size: int = 0,
        recurrent_bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        self.mode = rnn_mode(nonlinearity)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            proj_size=proj_size, recurrent_bias=recurrent_bias, device=device, dtype=dtype,
            algebra=algebra, lowering=lowering,
        )  # fmt: skip


class GRU(_OneState):
    """`torch.nn.GRU` over an algebra. Over R it computes the same as torch's layer.

    Args:
        input_size: The number of real input features, a multiple of the algebra's dim.
        hidden_size: The number of real features in the hidden state, a multiple of the algebra's dim.
        num_layers: The number of stacked layers.
        bias: Whether to add biases.
        batch_first: Whether inputs and outputs are (batch, time, features), not (time, batch, features).
        dropout: The dropout probability after each layer but the last, in training.
        bidirectional: Whether to read the sequence in both directions. In the output, each component then holds the
            forward features followed by the backward features.
        proj_size: Must be 0; only the LSTM has projections.
        recurrent_bias: Whether each gate has a second bias, ``bias_hh``, as in torch. Most papers have only one bias.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> gru = an.nn.GRU(64, 128, num_layers=2, algebra=an.M2R)
    >>> y, h = gru(torch.randn(10, 3, 64))
    >>> y.shape, h.shape
    (torch.Size([10, 3, 128]), torch.Size([2, 3, 128]))
    """

    mode = "GRU"


class LSTM(_Recurrent):
    """`torch.nn.LSTM` over an algebra, with projections. Over R it computes the same as torch's layer.

    Args:
        input_size: The number of real input features, a multiple of the algebra's dim.
        hidden_size: The number of real features in the hidden state, a multiple of the algebra's dim.
        num_layers: The number of stacked layers.
        bias: Whether to add biases.
        batch_first: Whether inputs and outputs are (batch, time, features), not (time, batch, features).
        dropout: The dropout probability after each layer but the last, in training.
        bidirectional: Whether to read the sequence in both directions. In the output, each component then holds the
            forward features followed by the backward features.
        proj_size: The number of real features that the hidden state is projected to, a multiple of the algebra's dim.
            0 for no projection.
        recurrent_bias: Whether each gate has a second bias, ``bias_hh``, as in torch. Most papers have only one bias.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> lstm = an.nn.LSTM(64, 128, bidirectional=True, algebra=an.M2R)
    >>> y, (h, c) = lstm(torch.randn(10, 3, 64))
    >>> y.shape, h.shape, c.shape
    (torch.Size([10, 3, 256]), torch.Size([2, 3, 128]), torch.Size([2, 3, 128]))
    """

    mode = "LSTM"

    def forward(
        self, x: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        y, (h, c) = self._run(x, hx)
        return y, (h, c)


def rnn_mode(nonlinearity: str) -> str:
    """The mode of an RNN with this nonlinearity, "tanh" or "relu"."""
    checks.one_of("nonlinearity", nonlinearity, ("tanh", "relu"))
    return f"RNN_{nonlinearity.upper()}"
