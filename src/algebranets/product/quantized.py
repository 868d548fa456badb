"""int8 weights: whole numbers from -127 to 127, with one scale for each output tuple.

The numbers have the shape of the stored weight (see `product.layout`). A scale is a real factor of an output tuple,
``y_o = scale_o * sum_i q_oi . x_i``, so it may be applied after the product, over every algebra.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets import product
from algebranets.algebra import Algebra
from algebranets.ops.device import precision
from algebranets.product import auto, kernels
from algebranets.product.layout import num_tuples

#: The largest whole number of an int8 weight. -128 is not used, so that a weight and its negative are rounded alike.
MOST = 127


@dataclass(frozen=True)
class Quantized:
    """A linear weight of int8 numbers.

    Args:
        numbers: The whole numbers, in the shape in which the weight is stored.
        scale: One number for each output tuple, in float32.
        algebra: The algebra of the weight.
    """

    numbers: Tensor
    scale: Float[Tensor, " out"]
    algebra: Algebra


def quantize(weight: Tensor, algebra: Algebra) -> Quantized:
    """Round a stored linear weight to int8 numbers. A number is off by at most half of its output tuple's scale.

    Raises a `ValueError` if a number is NaN, infinite or too large for float32.

    >>> import torch, algebranets as an
    >>> weight = torch.tensor([[3.0], [-1.27]])  # one complex number
    >>> w = quantize(weight, an.C)
    >>> w.numbers.tolist(), dequantize(w, torch.float32)
    ([[127], [-54]], tensor([[ 3.0000],
            [-1.2756]]))
    """
    grid = _by_output(weight, algebra).to(torch.promote_types(weight.dtype, torch.float32))
    scale = (grid.abs().amax((0, 2)) / MOST).float()
    if not scale.is_meta and not scale.isfinite().all():
        raise ValueError(
            f"a weight must be finite to be quantized, but output tuple {int(scale.isfinite().int().argmin())} of this "
            "one has NaN, infinity or a number that is too large for float32: find out why training made it."
        )
    scale = torch.where(scale > 0, scale, 1)  # an output whose weights are all zero
    numbers = (grid / scale[:, None]).round().clamp(-MOST, MOST).to(torch.int8)
    return Quantized(numbers.reshape(weight.shape), scale, algebra)


def dequantize(w: Quantized, dtype: torch.dtype) -> Tensor:
    """Multiply an int8 weight by its scales: a stored weight of numbers in ``dtype``."""
    grid = _by_output(w.numbers, w.algebra).to(torch.promote_types(dtype, torch.float32))
    return (grid * w.scale[:, None]).to(dtype).reshape(w.numbers.shape)


def linear(
    x: Float[Tensor, "*batch inp"],
    w: Quantized,
    bias: Tensor | None = None,
    *,
    lowering: product.Lowering = "auto",
    activation: str | None = None,
) -> Float[Tensor, "*batch out"]:
    """``activation(w . x + b)`` for an int8 weight ``w``. The other arguments are as in `product.linear`.

    A kernel reads the int8 numbers for few rows on a GPU. Otherwise the weight is dequantized to the dtype of ``x``,
    and the product is that of any weight. Gradients flow to ``x`` and the bias.
    """
    fits = x.shape[-1] == num_tuples(w.numbers, w.algebra)[1] * w.algebra.dim  # if not, `product.linear` says why
    if fits and lowering in ("auto", "kernels") and auto.decodes_int8(x, w.numbers, bias, w.algebra, lowering):
        return kernels.decode(x, w.numbers, bias, w.algebra, activation=activation, scale=w.scale)
    weight = dequantize(w, precision(x))
    return product.linear(x, weight, bias, algebra=w.algebra, lowering=lowering, activation=activation)


def _by_output(weight: Tensor, algebra: Algebra) -> Tensor:
    """A stored weight as (row of a tuple, output tuple, the rest): all numbers of an output tuple have its index."""
    num_out, _ = num_tuples(weight, algebra)
    return weight.reshape(-1, num_out, weight.shape[1])
