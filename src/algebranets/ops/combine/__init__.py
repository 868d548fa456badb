"""``combine``: linear combinations of components in one pass, for rho(w) and bilinear algorithms.

Tensors are *grids*: (stack, p, row, q, column), with component number p * Q + q at (p, q). Examples are activations,
(1, 1, rows, A, channels); stored weights, (stacks, A, out, 1, in) or folded (stacks, k, out, k, in); rho(w),
(stacks, k, out, k, in); and the factors of R products, (1, R, rows, 1, channels).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.ops import device
from algebranets.ops.device import is_transformed, records_gradients, sum_dtype

#: A matrix has one row for each output component, and a row has one coefficient for each input component.
Row = tuple[int | float, ...]
Matrix = tuple[Row, ...]


def combine(
    x: Float[Tensor, "stack p row q column"],
    matrix: Matrix,
    across: int = 1,
    bias: Float[Tensor, " feat"] | None = None,
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "stack r row s column"]:
    """The components ``sum_c matrix[k][c] x_c``, computed by a kernel on a GPU and by torch's operations elsewhere.

    Args:
        x: A grid.
        matrix: One row of coefficients for each component of the result.
        across: The size of axis s of the result: the number of components that are adjacent in a row.
        bias: Numbers to add to each row of the result, whose axis r must then have size 1, or None.
        dtype: The dtype of the result, by default that of ``x``.

    >>> x = torch.tensor([3.0, 5.0]).reshape(1, 1, 1, 2, 1)
    >>> combine(x, ((1, 1), (1, -1)), across=2).flatten()
    tensor([ 8., -2.])
    """
    dtype = dtype or x.dtype
    if not device.is_usable(x):
        return _combine_in_torch(x, matrix, across, bias).to(dtype)
    flat = [float(coefficient) for row in matrix for coefficient in row]
    bias = None if bias is None else bias.contiguous()
    return _Combine.apply(x.contiguous(), flat, len(matrix), across, dtype, bias)


def add_bias(y: Float[Tensor, "*batch feat"], bias: Float[Tensor, " feat"]) -> Float[Tensor, "*batch feat"]:
    """``y + bias``. torch.compile fuses the addition; without it, our kernel is faster than torch's on a GPU."""
    if torch.compiler.is_compiling() or not device.is_usable(y):
        return y + bias.to(y.dtype)
    return combine(y.reshape(1, 1, -1, 1, y.shape[-1]), ((1.0,),), bias=bias).reshape(y.shape)


class _Combine(torch.autograd.Function):
    """The operator with its gradients, which are combinations by the transposed matrix."""

    @staticmethod
    def forward(
        x: Tensor, matrix: list[float], num_out: int, across: int, dtype: torch.dtype, bias: Tensor | None
    ) -> Tensor:
        return _combine(x, matrix, num_out, across, dtype, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004, torch's name
        x, ctx.matrix, ctx.num_out, _, _, bias = inputs
        ctx.along, ctx.dtype, ctx.bias_dtype = x.shape[3], x.dtype, None if bias is None else bias.dtype

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        num_in = len(ctx.matrix) // ctx.num_out
        transposed = [ctx.matrix[k * num_in + c] for c in range(num_in) for k in range(ctx.num_out)]
        grad_x = grad_bias = None
        if ctx.needs_input_grad[0]:
            same = ctx.matrix == [1.0] and grad.dtype == ctx.dtype
            grad_x = grad if same else _Combine.apply(grad.contiguous(), transposed, num_in, ctx.along, ctx.dtype, None)
        if ctx.needs_input_grad[5]:
            grad_bias = _SumRows.apply(grad.flatten(3).flatten(0, 2)).to(ctx.bias_dtype)
        return grad_x, None, None, None, None, grad_bias


class _SumRows(torch.autograd.Function):
    """``x.sum(0)`` in at least float32, the gradient of a bias. torch's own sum takes twice as long on a GPU."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return _sum_rows(x.contiguous())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004, torch's name
        ctx.shape, ctx.dtype = inputs[0].shape, inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.to(ctx.dtype).expand(ctx.shape)


def _combine_in_torch(x: Tensor, matrix: Matrix, across: int, bias: Tensor | None) -> Tensor:
    """Compute ``combine`` with torch's operations. Sums are taken in at least float32.

    Activations are multiplied by the matrix. For weights, and while a graph is compiled, sums are written out, and each
    product of a coefficient and a component is computed once. On the meta device, nothing is computed unless
    derivatives are taken, because operations take time there too.
    """
    if x.shape[1] == 1 and across == len(matrix) and not torch.compiler.is_compiling():
        return _multiply(x.to(sum_dtype(x)), matrix, bias)
    if x.is_meta and not records_gradients(x, bias) and not is_transformed():
        return _empty(x, len(matrix), across, x.dtype)
    if bias is not None or any(sum(map(bool, row)) > 1 for row in matrix):
        x = x.to(sum_dtype(x))
    components = [part for row in x.unbind(1) for part in row.unbind(2)]
    scaled: dict[tuple[int | float, int], Tensor] = {}

    def times(coefficient: int | float, c: int) -> Tensor:
        if coefficient == 1:
            return components[c]
        if (coefficient, c) not in scaled:
            scaled[coefficient, c] = coefficient * components[c]
        return scaled[coefficient, c]

    def combined(row: Row) -> Tensor:
        terms = [times(coefficient, c) for c, coefficient in enumerate(row) if coefficient]
        return sum(terms[1:], start=terms[0]) if terms else torch.zeros_like(components[0])

    parts = [combined(row) for row in matrix]
    rows = [torch.stack(parts[k : k + across], dim=2) for k in range(0, len(parts), across)]
    y = torch.stack(rows, dim=1)
    return y if bias is None else y + bias.to(y.dtype).unflatten(0, (across, -1))


def _multiply(
    x: Float[Tensor, "stack 1 row q column"], matrix: Matrix, bias: Tensor | None
) -> Float[Tensor, "stack 1 row s column"]:
    stacks, _, num_rows, num_in, columns = x.shape
    numbers = torch.tensor([float(c) for row in matrix for c in row], dtype=x.dtype, device=x.device)
    by_row = numbers.view(1, len(matrix), num_in).expand(stacks * num_rows, -1, -1)
    rows = x.reshape(stacks * num_rows, num_in, columns)
    if bias is None:
        y = torch.bmm(by_row, rows)
    else:
        y = torch.baddbmm(bias.to(x.dtype).view(1, len(matrix), columns), by_row, rows)
    return y.view(stacks, 1, num_rows, len(matrix), columns)


@torch.library.custom_op(
    "algebranets::combine",
    mutates_args=(),
    schema="(Tensor x, float[] matrix, int num_out, int across, ScalarType dtype, Tensor? bias) -> Tensor",
)
def _combine(
    x: Tensor, matrix: list[float], num_out: int, across: int, dtype: torch.dtype, bias: Tensor | None
) -> Tensor:
    from algebranets.ops.combine import launch  # needs triton

    return launch.combine(x, tuple(matrix), num_out, across, dtype, bias)


@_combine.register_fake
def _(x: Tensor, _matrix: list[float], num_out: int, across: int, dtype: torch.dtype, _bias: Tensor | None) -> Tensor:
    return _empty(x, num_out, across, dtype)


def _empty(x: Tensor, num_out: int, across: int, dtype: torch.dtype) -> Float[Tensor, "stack r row s column"]:
    stacks, _, num_rows, _, columns = x.shape
    return x.new_empty(stacks, num_out // across, num_rows, across, columns, dtype=dtype)


@torch.library.custom_op("algebranets::sum_rows", mutates_args=(), schema="(Tensor x) -> Tensor")
def _sum_rows(x: Tensor) -> Tensor:
    from algebranets.ops.combine import launch  # needs triton

    return launch.sum_rows(x)


@_sum_rows.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[1], dtype=sum_dtype(x))
