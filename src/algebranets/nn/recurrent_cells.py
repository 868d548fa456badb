"""Recurrent cells over an algebra: one step of a recurrent layer."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import product
from algebranets.algebra import Algebra
from algebranets.nn.layer import REQUIRED, Layer
from algebranets.nn.recurrent import rnn_mode
from algebranets.nn.weights import AlgebraWeight, reset_weights
from algebranets.product.cells import MODES


class _Cell(Layer):
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
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__()
        product.check_lowering(lowering)
        self.algebra, self.lowering = self.resolve(algebra), lowering
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

    def algebra_weights(self) -> list[AlgebraWeight]:
        """The weights over the algebra, for accounting and pruning: one for the input and one for the state."""
        gates = MODES[self.mode].num_gates
        return [AlgebraWeight(name, self.algebra, gates) for name in ("weight_ih", "weight_hh")]

    def reset_parameters(self) -> None:
        """Initialize each component of each gate's weights independently by Glorot's rule, and biases to zero."""
        reset_weights(self, biases=["bias_ih", "bias_hh"])

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
    """`torch.nn.RNNCell` over an algebra. Over R it computes the same as torch's layer.

    Args:
        input_size: The number of real input features, a multiple of the algebra's dim.
        hidden_size: The number of real features in the hidden state, a multiple of the algebra's dim.
        bias: Whether to add biases.
        nonlinearity: "tanh" or "relu".
        device, dtype: The device and dtype of the parameters.
        recurrent_bias: Whether each gate has a second bias, ``bias_hh``, as in torch. Most papers have only one bias.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> cell = an.nn.RNNCell(8, 16, algebra=an.H)
    >>> h = cell(torch.randn(3, 8))
    >>> cell(torch.randn(3, 8), h).shape
    torch.Size([3, 16])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        recurrent_bias: bool = True,
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        self.mode = rnn_mode(nonlinearity)
        over: dict[str, Any] = {"algebra": algebra, "lowering": lowering}
        super().__init__(input_size, hidden_size, bias, device, dtype, recurrent_bias=recurrent_bias, **over)


class GRUCell(_OneStateCell):
    """`torch.nn.GRUCell` over an algebra. Over R it computes the same as torch's layer.

    Args:
        input_size: The number of real input features, a multiple of the algebra's dim.
        hidden_size: The number of real features in the hidden state, a multiple of the algebra's dim.
        bias: Whether to add biases.
        device, dtype: The device and dtype of the parameters.
        recurrent_bias: Whether each gate has a second bias, ``bias_hh``, as in torch. Most papers have only one bias.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> cell = an.nn.GRUCell(8, 16, algebra=an.M2R)
    >>> h = cell(torch.randn(3, 8))
    >>> cell(torch.randn(3, 8), h).shape
    torch.Size([3, 16])
    """

    mode = "GRU"


class LSTMCell(_Cell):
    """`torch.nn.LSTMCell` over an algebra. Over R it computes the same as torch's layer.

    Args:
        input_size: The number of real input features, a multiple of the algebra's dim.
        hidden_size: The number of real features in the hidden state, a multiple of the algebra's dim.
        bias: Whether to add biases.
        device, dtype: The device and dtype of the parameters.
        recurrent_bias: Whether each gate has a second bias, ``bias_hh``, as in torch. Most papers have only one bias.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> cell = an.nn.LSTMCell(8, 16, algebra=an.M2R)
    >>> h, c = cell(torch.randn(3, 8))
    >>> h, c = cell(torch.randn(3, 8), (h, c))
    >>> h.shape, c.shape
    (torch.Size([3, 16]), torch.Size([3, 16]))
    """

    mode = "LSTM"

    def forward(
        self, x: Float[Tensor, "*batch inp"], hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Float[Tensor, "*batch hid"], Float[Tensor, "*batch hid"]]:
        h, c = self._step(x, hx)
        return h, c
