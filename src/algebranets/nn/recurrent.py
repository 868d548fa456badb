"""Recurrent layers and cells over an algebra, with torch.nn's names, arguments and parameter names.

Layers run through torch's fused kernels, one call per layer (see `product.blocks.recurrent`). ``recurrent_bias=False``
leaves out ``bias_hh``: one bias a gate, as most papers write it, where torch has two.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn import init
from algebranets.product.cells import MODES


class _Recurrent(nn.Module):
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
        algebra: Algebra | str,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__()
        product.check_lowering(lowering)
        checks.whole("num_layers", num_layers, least=1)
        checks.share("dropout", dropout)
        self.algebra, self.lowering = algebras.get(algebra), lowering
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
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.num_directions]

    @property
    def weight_names(self) -> list[str]:
        """The names of the weights, whatever parametrizes them."""
        kinds = ("weight_ih", "weight_hh", "weight_hr")[: 3 if self.proj_size else 2]
        suffixes = [suffix for layer in range(self.num_layers) for suffix in self._suffixes(layer)]
        return [kind + suffix for suffix in suffixes for kind in kinds]

    def reset_parameters(self) -> None:
        """Glorot for each component of each gate independently, zero for the biases."""
        _reset(self, self.weight_names, self.algebra, MODES[self.mode].num_gates)

    def flatten_parameters(self) -> None:
        """Nothing to do: torch's layers need it for cuDNN, ours lay their weights out in each forward."""

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
        """The states to begin with: zeros, or those given, in the order in which a packed sequence has its rows."""
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
    """A layer whose state is one tensor, the output itself."""

    def forward(self, x: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Tensor | PackedSequence, Tensor]:
        y, (h,) = self._run(x, None if hx is None else (hx,))
        return y, h


class RNN(_OneState):
    """`torch.nn.RNN` over an algebra; over R it is `torch.nn.RNN`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.mode = _rnn_mode(nonlinearity)
        super().__init__(input_size, hidden_size, num_layers, *args, **kwargs)


class GRU(_OneState):
    """`torch.nn.GRU` over an algebra; over R it is `torch.nn.GRU`.

    >>> import torch, algebranets as an
    >>> gru = an.nn.GRU(64, 128, num_layers=2, algebra=an.M2R)
    >>> y, h = gru(torch.randn(10, 3, 64))
    >>> y.shape, h.shape
    (torch.Size([10, 3, 128]), torch.Size([2, 3, 128]))
    """

    mode = "GRU"


class LSTM(_Recurrent):
    """`torch.nn.LSTM` over an algebra, projections included; over R it is `torch.nn.LSTM`."""

    mode = "LSTM"

    def forward(
        self, x: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        y, (h, c) = self._run(x, hx)
        return y, (h, c)


class _Cell(nn.Module):
    mode: str
    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        recurrent_bias: bool = True,
        algebra: Algebra | str,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__()
        product.check_lowering(lowering)
        self.algebra, self.lowering = algebras.get(algebra), lowering
        self.input_size, self.hidden_size, self.recurrent_bias = input_size, hidden_size, recurrent_bias
        num_in = product.whole_tuples(input_size, self.algebra, "input_size")
        num_hidden = product.whole_tuples(hidden_size, self.algebra, "hidden_size")
        gates = MODES[self.mode].num_gates
        for name, below in (("weight_ih", num_in), ("weight_hh", num_hidden)):
            shape = product.weight_shape(self.algebra, num_hidden, below, stacks=gates)
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        for name, wanted in (("bias_ih", bias), ("bias_hh", bias and recurrent_bias)):
            vector = nn.Parameter(torch.empty(gates * hidden_size, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, vector)
        self.reset_parameters()

    @property
    def weight_names(self) -> list[str]:
        """The names of the weights, whatever parametrizes them."""
        return ["weight_ih", "weight_hh"]

    def reset_parameters(self) -> None:
        """Glorot for each component of each gate independently, zero for the biases."""
        _reset(self, self.weight_names, self.algebra, MODES[self.mode].num_gates)

    def _step(self, x: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        if state is None:
            state = (x.new_zeros(*x.shape[:-1], self.hidden_size),) * MODES[self.mode].num_states
        gates_x, gates_h = (
            product.linear(
                value,
                weight,
                bias,
                algebra=self.algebra,
                lowering=self.lowering,
                stacks=MODES[self.mode].num_gates,
            )
            for value, weight, bias in ((x, self.weight_ih, self.bias_ih), (state[0], self.weight_hh, self.bias_hh))
        )
        return product.step(self.mode, gates_x, gates_h, state)

    def extra_repr(self) -> str:
        biases = f"bias={self.bias_ih is not None}" + ("" if self.recurrent_bias else ", recurrent_bias=False")
        return f"{self.input_size}, {self.hidden_size}, {biases}, algebra={self.algebra.name}"


class _OneStateCell(_Cell):
    def forward(self, x: Float[Tensor, "*batch inp"], hx: Tensor | None = None) -> Float[Tensor, "*batch hid"]:
        return self._step(x, None if hx is None else (hx,))[0]


class RNNCell(_OneStateCell):
    """`torch.nn.RNNCell` over an algebra; over R it is `torch.nn.RNNCell`."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", **kwargs: Any
    ) -> None:
        self.mode = _rnn_mode(nonlinearity)
        super().__init__(input_size, hidden_size, bias, **kwargs)


class GRUCell(_OneStateCell):
    """`torch.nn.GRUCell` over an algebra; over R it is `torch.nn.GRUCell`."""

    mode = "GRU"


class LSTMCell(_Cell):
    """`torch.nn.LSTMCell` over an algebra; over R it is `torch.nn.LSTMCell`."""

    mode = "LSTM"

    def forward(
        self, x: Float[Tensor, "*batch inp"], hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Float[Tensor, "*batch hid"], Float[Tensor, "*batch hid"]]:
        h, c = self._step(x, hx)
        return h, c


def _rnn_mode(nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"nonlinearity must be 'tanh' or 'relu'; got {nonlinearity!r}.")
    return f"RNN_{nonlinearity.upper()}"


def _reset(module: nn.Module, weight_names: list[str], algebra: Algebra, gates: int) -> None:
    for name in weight_names:
        with init.new_value(module, name) as weight:
            init.xavier_uniform_(weight, algebra, stacks=1 if name.startswith("weight_hr") else gates)
    for name in (weight_name.replace("weight", "bias") for weight_name in weight_names):
        if getattr(module, name, None) is not None:
            with init.new_value(module, name) as bias:
                nn.init.zeros_(bias)
