"""Functions that cut and join the channel axis and keep tuples whole.

The channel axis holds all first components, then all second components, and so on. `torch.cat`, `torch.split` and
`torch.chunk` along it would put components of different tuples together. Along other axes, torch's functions
are right. See `layout` for the order of components.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets import algebra as algebras
from algebranets import checks
from algebranets.algebra import Algebra
from algebranets.product.layout import nearest_multiple, tuple_axis, whole_tuples


def cat(tensors: Sequence[Tensor], dim: int, *, algebra: Algebra | str) -> Tensor:
    """Join tensors along their channel axis: `torch.cat` for tuples.

    The tuples of the result are those of the first tensor, followed by those of the second, and so on.

    Args:
        tensors: Activations with the same shape, except for the number of tuples on the channel axis.
        dim: The channel axis: 1 for images, -1 for features. Use `torch.cat` along every other axis.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])  # 1 + 2i and 3 + 4i
    >>> an.cat([x, y], dim=-1, algebra=an.C)
    tensor([1., 3., 2., 4.])
    """
    over = algebras.get(algebra)
    if not tensors:
        raise ValueError("tensors must contain at least one tensor; got none.")
    hint = "Along an axis that does not hold tuples, use torch.cat."
    dim = tuple_axis(tensors[0], over, dim, hint)
    sizes = [x.shape[tuple_axis(x, over, dim, hint)] // over.dim for x in tensors]
    planes = [x.narrow(dim, k * size, size) for k in range(over.dim) for x, size in zip(tensors, sizes, strict=True)]
    return torch.cat(planes, dim)


def split(x: Tensor, split_size: int | Sequence[int], dim: int, *, algebra: Algebra | str) -> tuple[Tensor, ...]:
    """Cut a tensor along its channel axis into parts of given sizes: `torch.split` for tuples.

    Args:
        x: Activations.
        split_size: The number of real channels in each part, a multiple of the algebra's dim. The last part may be
            smaller. Or a list with one such number for each part.
        dim: The channel axis: 1 for images, -1 for features. Use `torch.split` along every other axis.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> x = torch.tensor([1.0, 3.0, 2.0, 4.0])  # 1 + 2i and 3 + 4i
    >>> an.split(x, [2, 2], dim=-1, algebra=an.C)
    (tensor([1., 2.]), tensor([3., 4.]))
    """
    over = algebras.get(algebra)
    dim = tuple_axis(x, over, dim, "Along an axis that does not hold tuples, use torch.split.")
    if isinstance(split_size, Sequence):
        sizes = [whole_tuples(size, over, "a size in split_size") for size in split_size]
        if sum(sizes) * over.dim != x.shape[dim]:
            raise ValueError(
                f"split_size must add up to the {x.shape[dim]} channels of axis {dim}; got {list(split_size)}, which "
                f"add up to {sum(split_size)}."
            )
        return _cut(x, sizes, dim, over)
    return _cut(x, _equal_parts(x.shape[dim] // over.dim, whole_tuples(split_size, over, "split_size")), dim, over)


def chunk(x: Tensor, chunks: int, dim: int, *, algebra: Algebra | str) -> tuple[Tensor, ...]:
    """Cut a tensor along its channel axis into a number of parts: `torch.chunk` for tuples.

    Args:
        x: Activations.
        chunks: The number of parts. If it does not divide the number of tuples, the last part is smaller, or there are
            fewer parts, as with `torch.chunk`.
        dim: The channel axis: 1 for images, -1 for features. Use `torch.chunk` along every other axis.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> x = torch.tensor([1.0, 3.0, 2.0, 4.0])  # 1 + 2i and 3 + 4i
    >>> an.chunk(x, 2, dim=-1, algebra=an.C)
    (tensor([1., 2.]), tensor([3., 4.]))
    """
    over = algebras.get(algebra)
    dim = tuple_axis(x, over, dim, "Along an axis that does not hold tuples, use torch.chunk.")
    count = x.shape[dim] // over.dim
    return _cut(x, _equal_parts(count, -(-count // checks.whole("chunks", chunks, least=1))), dim, over)


def split_heads(
    x: Float[Tensor, "*batch time embed"], num_heads: int, *, algebra: Algebra | str
) -> Float[Tensor, "*batch heads time d"]:
    """Divide features among attention heads, with whole tuples in each head.

    Over R it is ``x.unflatten(-1, (num_heads, -1)).transpose(-3, -2)``.

    Args:
        x: Features, (..., time, features).
        num_heads: The number of heads, which must divide the number of tuples.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.split_heads(torch.randn(2, 5, 64), num_heads=4, algebra=an.H).shape
    torch.Size([2, 4, 5, 16])
    """
    over = algebras.get(algebra)
    if num_heads < 1 or x.shape[-1] % (num_heads * over.dim):
        tuples_per_head(x.shape[-1], num_heads, over, "features")
    return x.unflatten(-1, (over.dim, num_heads, -1)).movedim(-2, -4).flatten(-2)


def join_heads(
    y: Float[Tensor, "*batch heads time d"], *, algebra: Algebra | str
) -> Float[Tensor, "*batch time embed"]:
    """Join the features of all heads into one axis, the inverse of `split_heads`.

    Args:
        y: The heads, (..., heads, time, features of a head).
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> x = torch.randn(2, 5, 64)
    >>> torch.equal(an.join_heads(an.split_heads(x, 4, algebra=an.H), algebra=an.H), x)
    True
    """
    over = algebras.get(algebra)
    tuple_axis(y, over, -1)
    return y.unflatten(-1, (over.dim, -1)).movedim(-4, -2).flatten(-3)


def tuples_per_head(features: int, num_heads: int, algebra: Algebra | str, what: str = "embed_dim") -> int:
    """Return the number of tuples in each head. Raise an error unless each head gets whole tuples.

    ``what`` is the name of ``features`` in the error message.
    """
    algebra = algebras.get(algebra)
    checks.whole(what, features)
    unit = checks.whole("num_heads", num_heads, least=1) * algebra.dim
    if features < 1 or features % unit:
        nearest = nearest_multiple(features, unit)
        raise ValueError(
            f"{what}={features} cannot be split into {num_heads} heads of whole {algebra.name} tuples: it must be a "
            f"multiple of {unit}; the nearest that works is {nearest}."
        )
    return features // unit


def _equal_parts(count: int, size: int) -> list[int]:
    """The sizes of parts of ``size`` tuples each. The last part holds the rest."""
    return [min(size, count - start) for start in range(0, count, size)]


def _cut(x: Tensor, sizes: list[int], dim: int, algebra: Algebra) -> tuple[Tensor, ...]:
    """Cut the channel axis into parts of ``sizes`` tuples."""
    components = x.chunk(algebra.dim, dim)
    parts = zip(*(component.split(sizes, dim) for component in components), strict=True)
    return tuple(torch.cat(part, dim) for part in parts)
