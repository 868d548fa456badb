"""Memory layouts of activations and of stored weights.

Activations are planar: a channel axis of size A * n holds n tuples component by component, in `Algebra.order`.
A weight with ``first`` x ``second`` tuples has as many axes as torch's. It is stored as a weight over
`Algebra.stored`: the algebra itself, or the direct sum of matrix algebras as which its products are computed. It is

- folded, ``(k * first, k * second, *kernel)``, if that algebra is `Algebra.folded` (R and M_n(R)). The stored weight is
  then rho(w), the matrix that multiplies;
- planar, ``(A * first, second, *kernel)``, component by component in table order, for every other algebra.

``first`` and ``second`` are torch's axes: (out, in), or (in, out) in a transposed convolution. ``stacks`` weights may
follow one another along the first axis, as in torch's ``weight_ih`` (gates) and ``in_proj_weight`` (q, k, v).
"""

from __future__ import annotations

from math import floor, prod

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from algebranets import algebra as algebras
from algebranets import checks
from algebranets.algebra import Algebra
from algebranets.ops.combine import Matrix, combine
from algebranets.ops.device import is_channels_last


def tuples(x: Tensor, algebra: Algebra | str, dim: int = -1) -> Tensor:
    """Split the channel axis of a tensor into two: (component in the order of the algebra's table, tuple).

    The result is a view if `Algebra.order` is the order of the table (R, C, H, ...), else a copy. Gradients flow
    through it.

    Args:
        x: Activations, whose channel axis holds tuples component by component in `Algebra.order`.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        dim: The channel axis, -1 by default. Its size must be a multiple of the algebra's dim.

    >>> tuples(torch.zeros(7, 12), "H").shape
    torch.Size([7, 4, 3])
    """
    algebra = algebras.get(algebra)
    dim = tuple_axis(x, algebra, dim)
    split = x.unflatten(dim, (algebra.dim, -1))
    return _reorder(split, dim, [algebra.order.index(k) for k in range(algebra.dim)])


def from_tuples(t: Tensor, algebra: Algebra | str, dim: int = -2) -> Tensor:
    """Join the component axis of a tensor and the axis after it to one channel axis. This is the inverse of `tuples`.

    Args:
        t: Tuples, with components in the order of the algebra's table.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        dim: The component axis, -2 by default. The axis after it counts tuples.

    >>> from algebranets import M2R
    >>> x = torch.randn(7, 12)
    >>> torch.equal(from_tuples(tuples(x, M2R), M2R), x)
    True
    """
    algebra = algebras.get(algebra)
    dim = _axis(t, dim)
    if t.shape[dim] != algebra.dim or dim + 1 == t.dim():
        raise ValueError(
            f"axis {dim} must hold the {algebra.dim} components of {algebra.name}, with the channels after it; "
            f"got shape {tuple(t.shape)}."
        )
    return _reorder(t, dim, list(algebra.order)).flatten(dim, dim + 1)


def tuple_axis(x: Tensor, algebra: Algebra | str, dim: int, hint: str = "") -> int:
    """The axis ``dim`` of ``x``, counted from the first. Raises an error unless it holds whole tuples.

    ``hint`` is a sentence for the end of the error that says what to do.
    """
    dim = _axis(x, dim)
    _check_whole_tuples(x.shape[dim], algebras.get(algebra), f"the size of axis {dim}", hint)
    return dim


def whole_tuples(features: int, algebra: Algebra | str, what: str, hint: str = "") -> int:
    """The number of tuples in ``features`` real numbers.

    Args:
        features: The number of real numbers.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        what: The name of ``features`` in errors.
        hint: A sentence for the end of the error that says what to do.
    """
    algebra = algebras.get(algebra)
    features = checks.whole(what, features)
    _check_whole_tuples(features, algebra, what, hint)
    return features // algebra.dim


def nearest_multiple(size: float, unit: int) -> int:
    """Round ``size`` to the nearest multiple of ``unit``, and to at least one unit. Halves are rounded up.

    Every width is rounded to whole tuples (``unit=algebra.dim``) or to whole heads of tuples by this rule.

    Args:
        size: The desired size, a positive number, such as a width times a number of channels.
        unit: The result is a multiple of this number.

    >>> nearest_multiple(1000, 9), nearest_multiple(10, 4), nearest_multiple(1, 4)
    (999, 12, 4)
    """
    # `floor` fails on infinity. Layers refuse sizes that torch cannot address.
    return max(1, floor(min(size / unit + 0.5, checks.MOST_NUMBERS))) * unit


def in_format_of(x: Tensor, y: Tensor) -> Tensor:
    """Return ``y``, in channels_last format if the image ``x`` is in that format and has as many axes as ``y``."""
    if not is_channels_last(x) or y.dim() != x.dim():
        return y
    return y.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


def weight_shape(
    algebra: Algebra | str, first: int, second: int, kernel: tuple[int, ...] = (), stacks: int = 1
) -> tuple[int, ...]:
    """The shape in which a weight of ``first`` x ``second`` tuples is stored."""
    algebra = algebras.get(algebra)
    size = max(block.size for block in (*algebra.blocks, *algebra.stored.blocks))  # rho(w) may be larger than w
    checks.size("a weight", (stacks * size * first, size * second, *kernel))
    rows, columns = _unit(algebra)
    return checks.size("a weight", (stacks * rows * first, columns * second, *kernel))


def num_tuples(weight: Tensor, algebra: Algebra | str, stacks: int = 1) -> tuple[int, int]:
    """The number of tuples along the ``first`` and the ``second`` axis of a stored weight."""
    algebra = algebras.get(algebra)
    rows, columns = _unit(algebra)
    first, second = weight.shape[:2]
    if first % (rows * stacks) or second % columns:
        raise ValueError(
            f"a weight over {algebra.name} must be stored as product.weight_shape says, its first axis a multiple of "
            f"{rows * stacks} and its second of {columns}; got shape {tuple(weight.shape)}."
        )
    return first // (rows * stacks), second // columns


def weight_tuples(
    weight: Tensor, algebra: Algebra | str, transposed: bool = False, stacks: int = 1
) -> Shaped[Tensor, "comp first second *kernel"]:
    """Split a stored weight into (component in table order, first, second, ...). Stacks are part of ``first``."""
    algebra = algebras.get(algebra)
    t = stored_tuples(weight, algebra, transposed, stacks)
    return t if algebra.change is None else _change(t, algebra.change.tuples, algebra)


def weight_from_tuples(
    t: Shaped[Tensor, "comp first second *kernel"], algebra: Algebra | str, transposed: bool = False, stacks: int = 1
) -> Tensor:
    """Store a weight that is given by its components. This is the inverse of `weight_tuples`."""
    algebra = algebras.get(algebra)
    t = t if algebra.change is None else _change(t, algebra.change.weights, algebra)
    return weight_from_stored_tuples(t, algebra, transposed, stacks)


def stored_tuples(
    weight: Shaped[Tensor, "first second *kernel"], algebra: Algebra, transposed: bool = False, stacks: int = 1
) -> Shaped[Tensor, "comp first second *kernel"]:
    """Split a stored weight into (component of `Algebra.stored` in table order, first, second, ...).

    Every number stays as it is, so the weight may also be a mask.
    """
    stored = algebra.stored
    if not stored.folded:
        return weight.unflatten(0, (stacks, stored.dim, -1)).transpose(0, 1).flatten(1, 2)
    size = stored.blocks[0].size
    cells = weight.unflatten(1, (size, -1)).unflatten(0, (stacks, size, -1))  # (stack, row, first, column, second, ...)
    return torch.stack([cells[:, p, :, q].flatten(0, 1) for p, q in _places(stored, transposed)])


def weight_from_stored_tuples(
    t: Shaped[Tensor, "comp first second *kernel"], algebra: Algebra, transposed: bool = False, stacks: int = 1
) -> Shaped[Tensor, "first second *kernel"]:
    """Store a weight that is given by its components over `Algebra.stored`. This is the inverse of `stored_tuples`."""
    stored, split = algebra.stored, t.unflatten(1, (stacks, -1))
    if not stored.folded:
        return split.transpose(0, 1).flatten(0, 2)
    size = stored.blocks[0].size
    places = _places(stored, transposed)
    rows = [torch.cat([split[places.index((p, q))] for q in range(size)], dim=2) for p in range(size)]
    return torch.cat(rows, dim=1).flatten(0, 1)


def _change(
    t: Shaped[Tensor, "comp first second *kernel"], matrix: Matrix, algebra: Algebra
) -> Float[Tensor, "comp first second *kernel"]:
    """Change the basis of tuples. Row n of ``matrix`` has the coefficients of new component n."""
    if not t.is_floating_point():
        raise ValueError(
            f"weights over {algebra.name} are stored in another basis (see Algebra.stored), so they must be "
            f"floating-point numbers; got {t.dtype}. For a mask, use stored_tuples and weight_from_stored_tuples."
        )
    first, second, *kernel = t.shape[1:]
    grid = t.reshape(1, algebra.dim, first, 1, second * prod(kernel))
    return combine(grid, matrix).reshape(algebra.dim, first, second, *kernel)


def _axis(x: Tensor, dim: int) -> int:
    """The axis ``dim`` of ``x``, counted from the first. Raises torch's error if ``x`` has no such axis."""
    num_axes = x.dim()
    if not num_axes:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if not -num_axes <= dim < num_axes:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-num_axes}, {num_axes - 1}], but got {dim})"
        )
    return dim % num_axes


def _check_whole_tuples(features: int, algebra: Algebra, what: str, hint: str = "") -> None:
    """Raise an error unless ``features`` make whole tuples. While a graph is traced, it may be a symbol or a tensor."""
    if features <= 0 or features % algebra.dim:
        below = features // algebra.dim * algebra.dim
        near = f"{below} or {below + algebra.dim}" if below > 0 else str(algebra.dim)
        raise ValueError(
            f"{what} is {features}, which does not hold whole {algebra.name} tuples: "
            f"it must be a multiple of {algebra.dim}, such as {near}.{hint and ' '}{hint}"
        )


def _unit(algebra: Algebra) -> tuple[int, int]:
    """The size of one tuple along the first and along the second axis of a stored weight."""
    stored = algebra.stored
    return (stored.blocks[0].size,) * 2 if stored.folded else (stored.dim, 1)


def _places(algebra: Algebra, transposed: bool) -> list[tuple[int, int]]:
    """The (first, second) place of each component in the folded block."""
    entries = algebra.blocks[0].entries
    where = {entry[0][0]: (p, q) for p, row in enumerate(entries) for q, entry in enumerate(row)}
    return [where[i][::-1] if transposed else where[i] for i in range(algebra.dim)]


def _reorder(t: Tensor, dim: int, order: list[int]) -> Tensor:
    if order == sorted(order):
        return t
    return torch.stack([t.select(dim, k) for k in order], dim)
