"""`TupleGate`, an activation of whole tuples. Component-wise activations are torch's own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra, Block
from algebranets.nn.boundary import channel_axis, scaled
from algebranets.nn.layer import REQUIRED, Layer


class TupleGate(Layer):
    """Multiply each tuple t by the number ``f(g(t))``: the paper's activations of whole tuples (appendix B.1).

    With the Heaviside step as f, whole tuples become zero, and their products can be skipped.

    Args:
        g: The function from a tuple to a number: "mean", "determinant", or a function that takes tuples as a tensor
            (component, ...) and returns numbers (...).
        f: The function applied to that number: "heaviside" (1 above 0, else 0) or a function such as `torch.sigmoid`.
        dim: The channel axis: 1 for images (batch, channels, height, width), -1 for features. It must be given.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> gate = an.nn.TupleGate(dim=-1, algebra=an.C)
    >>> gate(torch.tensor([3.0, -3.0, -1.0, 1.0]))  # the tuples (3, -1) and (-3, 1)
    tensor([ 3., -0., -1.,  0.])
    """

    def __init__(
        self,
        g: str | Callable[[Tensor], Tensor] = "mean",
        f: str | Callable[[Tensor], Tensor] = "heaviside",
        *,
        dim: int = REQUIRED,
        algebra: Algebra | str = REQUIRED,
    ) -> None:
        super().__init__()
        self.algebra = self.resolve(algebra)
        self.g, self.f, self.dim = g, f, channel_axis(dim, type(self).__name__)
        if isinstance(g, str) and g not in _REDUCTIONS:
            hint = checks.did_you_mean(g, _REDUCTIONS)
            raise ValueError(f"g must be 'mean', 'determinant' or a function; got {g!r}.{hint}")
        if isinstance(f, str) and f != "heaviside":
            raise ValueError(f"f must be 'heaviside' or an activation such as torch.sigmoid; got {f!r}.")

    def forward(self, x: Tensor) -> Tensor:
        dim = product.tuple_axis(x, self.algebra, self.dim)
        t = product.tuples(x, self.algebra, dim).movedim(dim, 0)
        if self.f == "heaviside" and self.g == "determinant":  # scaling a tuple does not change the sign
            t, _ = scaled(t, 0, degree=sum(block.size for block in self.algebra.blocks))
        value = self.g(t) if callable(self.g) else _REDUCTIONS[self.g](t, self.algebra)
        gate = self.f(value) if callable(self.f) else (value > 0).to(x.dtype)
        return (x.unflatten(dim, (self.algebra.dim, -1)) * gate.unsqueeze(dim)).flatten(dim, dim + 1)

    def extra_repr(self) -> str:
        return f"g={self.g}, f={self.f}, dim={self.dim}, algebra={self.algebra.name}"


def determinant(t: Float[Tensor, "comp *rest"], algebra: Algebra | str) -> Float[Tensor, "*rest"]:
    """The determinant of left multiplication by each tuple, with copies of a block counted once.

    It is det t over M_n(R) and |t|^2 over C. It is zero if and only if t divides zero. It is computed in float32 or
    better.

    Args:
        t: Tuples, with components in table order on the first axis.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import algebranets as an
    >>> determinant(torch.tensor([1.0, 2.0, 3.0, 4.0]), an.M2R)
    tensor(-2.)
    """
    algebra = algebras.get(algebra)
    wide = t.float() if t.dtype.itemsize < 4 else t
    return torch.stack([_block_determinant(wide, block) for block in algebra.blocks]).prod(0).to(t.dtype)


def block_matrices(t: Float[Tensor, "comp *rest"], block: Block) -> Float[Tensor, "*rest row column"]:
    """The matrix rho(t) by which each tuple acts in a block of the algebra."""
    return torch.stack([torch.stack(row, -1) for row in _rows(t, block)], -2)


def _rows(t: Tensor, block: Block) -> list[list[Tensor]]:
    zero = torch.zeros_like(t[0])
    return [[sum((c * t[i] for i, c in entry), start=zero) for entry in row] for row in block.entries]


def _block_determinant(t: Tensor, block: Block) -> Tensor:
    if block.size <= 4:
        return _expand(_rows(t, block))
    return torch.linalg.det(block_matrices(t, block))


def _expand(rows: list[list[Tensor]]) -> Tensor:
    """A small determinant, expanded along its first row. Its derivatives are exact even at singular matrices."""
    if len(rows) == 1:
        return rows[0][0]
    minors = ([row[:q] + row[q + 1 :] for row in rows[1:]] for q in range(len(rows)))
    terms = [head * _expand(minor) for head, minor in zip(rows[0], minors, strict=True)]
    return sum(terms[2::2], start=terms[0]) - sum(terms[3::2], start=terms[1])


_REDUCTIONS: dict[str, Callable[[Tensor, Algebra], Tensor]] = {
    "mean": lambda t, _: t.mean(0),
    "determinant": determinant,
}
